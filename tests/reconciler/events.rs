//! The Lambda handler: which events it accepts, what it returns, and the one log line per invocation.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use fakes::{FakeSettings, Fault};
use platform::telemetry::MetricLog;
use reconciler::{Invocation, handle};
use serde_json::{Value, json};
use testbed::{SWEEP_TIMEOUT, Testbed};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn all(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn each_event_returns_one_response_and_logs_one_line() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    testbed.bridging.set(false);
    testbed.sweeping.set(false);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
    testbed.pass(1).await;
    testbed.sweep_now().await;
    testbed.pass(6).await;
    let lines = Lines::default();
    let log = MetricLog::writing_to(lines.clone());
    let now = testbed.now();
    let invocation = |request| Invocation { request_id: request, now, deadline: now + SWEEP_TIMEOUT };
    let dry_request = json!({"detail-type": "ReconcileRequested", "detail": {"dry_run": true, "run_id": "dry-1"}});
    let dry = handle(&testbed.sweep, dry_request, &invocation("a"), &log).await.unwrap();
    assert_eq!((&dry["status"], &dry["run_id"]), (&json!("completed"), &json!("dry-1")));
    assert_eq!(dry["summary"]["plans"][0]["pr"], json!(pr.to_string()));
    let tick = json!({"schedule": "sweep", "slot": now.to_string()});
    let completed = handle(&testbed.sweep, tick.clone(), &invocation("b"), &log).await.unwrap();
    assert_eq!(completed["summary"]["dispatched"], json!({"rebuild": 1}));
    let duplicate = handle(&testbed.sweep, tick, &invocation("c"), &log).await.unwrap();
    assert_eq!((&duplicate["status"], &duplicate["run_id"]), (&json!("duplicate_trigger"), &completed["run_id"]));
    assert!(handle(&testbed.sweep, json!({"detail-type": "Nonsense"}), &invocation("d"), &log).await.is_err());
    let lines = lines.all();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[1]["due"], &lines[1]["dispatched"], &lines[1]["level"]), (&json!(1), &json!(1), &json!("INFO")));
    let metrics = lines[1]["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    for name in ["due", "verified", "drifted", "healthy", "dispatched", "escalated", "skipped", "github_points"] {
        assert!(metrics.iter().any(|metric| metric["Name"] == name), "{name}");
    }
    assert_eq!((&lines[2]["duplicate_trigger"], &lines[3]["failed"]), (&json!(1), &json!(1)));
}
