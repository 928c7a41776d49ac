//! A killed process loses no acknowledged webhook: after a restart it is in the tables or on the queue.

use std::collections::BTreeMap;

use fakes::{FakeSettings, Fakes, NewPullRequest, RepoSettings, WebhookDelivery};
use jiff::SignedDuration;
use serde_json::Value;
use tests::local_aws::Folder;

use crate::child_process::{LIMIT, Up};

/// A repository unknown to the demo's fakes: Suture can learn of it only from the webhooks of this test.
const REPO: &str = "acme/elsewhere";
/// A low rate limit, so that most webhooks are deferred to the queue.
const CONFIG: &str = "mode = \"act\"\n[limits]\nwebhooks_per_minute_per_repo = 5\n";

fn opened_webhooks(count: usize) -> Vec<WebhookDelivery> {
    let repos = vec![RepoSettings::new(REPO)];
    let start = jiff::Timestamp::now() - SignedDuration::from_mins(1);
    let mut fakes = Fakes::new(99, FakeSettings { repos, start, ..FakeSettings::default() });
    for _ in 0..count {
        fakes.open_pr(NewPullRequest::default());
    }
    fakes.advance(SignedDuration::from_secs(5));
    let opened = |delivery: &WebhookDelivery| delivery.action.as_deref() == Some("opened");
    fakes.take_webhooks().into_iter().filter(opened).collect()
}

#[test]
fn acknowledged_webhooks_survive_a_kill() {
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, CONFIG).expect("a file");
    let data = folder.path().join("data");
    let start = || Up::start(&data, |command| command.args(["--demo", "--speed", "20", "--config"]).arg(&config));
    let up = start();
    let mut acknowledged: BTreeMap<u64, String> = BTreeMap::new();
    let mut deferred = 0;
    for delivery in opened_webhooks(20) {
        let headers: Vec<(&str, &str)> =
            delivery.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (status, body) = up.request("POST", "/webhook/github", &headers, &delivery.body).expect("a response");
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        deferred += usize::from(body["status"] == "throttled_delayed");
        acknowledged.insert(delivery.pr.expect("a pull request").number, delivery.guid);
    }
    up.kill();
    assert!(deferred > 0, "no webhook was deferred to the queue");

    let up = start();
    for (number, guid) in acknowledged {
        up.wait_for(&format!("event of #{number}"), LIMIT, |up| {
            let events = up.get(&format!("/api/pr/{REPO}/{number}/events"))["events"].as_array().cloned()?;
            events.iter().any(|event| event["id"].as_str() == Some(&guid)).then_some(())
        });
    }
    assert_eq!(up.get("/api/dlq")["approximate_count"], 0);
    up.kill();
}
