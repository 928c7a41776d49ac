//! A process is killed without a warning: what it had acknowledged is there when it is started again, in the tables or on
//! the queue.

use std::collections::BTreeMap;

use fakes::{FakeSettings, Fakes, NewPullRequest, RepoSettings, WebhookDelivery};
use jiff::SignedDuration;
use serde_json::Value;
use tests::local_aws::Folder;

use crate::child_process::{LIMIT, Up};

/// A repository that the demo's own world knows nothing of: nobody but the webhooks tells of it.
const REPO: &str = "acme/elsewhere";
/// Few webhooks a minute are taken at once: the others wait on the queue.
const CONFIG: &str = "mode = \"act\"\n[limits]\nwebhooks_per_minute_per_repo = 5\n";

fn openings(count: usize) -> Vec<WebhookDelivery> {
    let repos = vec![RepoSettings::new(REPO)];
    let start = jiff::Timestamp::now() - SignedDuration::from_mins(1);
    let mut world = Fakes::new(99, FakeSettings { repos, start, ..FakeSettings::default() });
    for _ in 0..count {
        world.open_pr(NewPullRequest::default());
    }
    world.advance(SignedDuration::from_secs(5));
    let opened = |delivery: &WebhookDelivery| delivery.action.as_deref() == Some("opened");
    world.take_webhooks().into_iter().filter(opened).collect()
}

#[test]
fn what_was_acknowledged_is_not_lost_with_the_process() {
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, CONFIG).expect("a file");
    let data = folder.path().join("data");
    let start = || Up::start(&data, |command| command.args(["--demo", "--speed", "20", "--config"]).arg(&config));
    let up = start();
    let mut acknowledged: BTreeMap<u64, String> = BTreeMap::new();
    let mut deferred = 0;
    for delivery in openings(20) {
        let headers: Vec<(&str, &str)> =
            delivery.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (status, body) = up.ask("POST", "/webhook/github", &headers, &delivery.body).expect("an answer");
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        deferred += usize::from(body["status"] == "throttled_delayed");
        acknowledged.insert(delivery.pr.expect("a pull request").number, delivery.guid);
    }
    up.kill();
    assert!(deferred > 0, "none of them was on the queue only");

    let up = start();
    for (number, guid) in acknowledged {
        up.wait_for(&format!("trace of #{number}"), LIMIT, |up| {
            let events = up.get(&format!("/api/pr/{REPO}/{number}/events"))["events"].as_array().cloned()?;
            events.iter().any(|event| event["id"].as_str() == Some(&guid)).then_some(())
        });
    }
    assert_eq!(up.get("/api/dlq")["approximate_count"], 0);
    up.kill();
}
