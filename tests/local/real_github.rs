//! `suture up` with credentials: a GitHub server outside the process under test, in observe mode.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fakes::{FakeSettings, Fakes, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use tests::local_aws::Folder;

use crate::child_process::Up;

#[tokio::test(flavor = "multi_thread")]
async fn github_from_the_environment_is_observed_and_not_changed() {
    let start = Timestamp::now() - SignedDuration::from_hours(2);
    let settings = FakeSettings { start, ..FakeSettings::default() };
    let mut fakes = Fakes::new(3, settings.clone());
    let pr = fakes.open_pr(NewPullRequest::default());
    fakes.force(fakes::Fault::ApproverAsleep, &pr);
    fakes.advance_to(Timestamp::now());
    let webhooks = fakes.take_webhooks();
    let fakes = Arc::new(Mutex::new(fakes));
    let serving = fakes::serve(Arc::clone(&fakes)).await.expect("ports");
    let done = tokio::task::spawn_blocking(move || {
        let folder = Folder::new();
        let up = Up::start(folder.path(), |command| {
            command.envs([
                ("SUTURE_GITHUB_TOKEN", "world-token"),
                ("SUTURE_GITHUB_OWNER", "acme"),
                ("SUTURE_GITHUB_API_URL", serving.github_url.as_str()),
                ("SUTURE_WEBHOOK_SECRET", settings.webhook_secret.as_str()),
                ("SUTURE_JENKINS_URL", serving.jenkins_url.as_str()),
                ("SUTURE_JENKINS_USER", settings.jenkins_user.as_str()),
                ("SUTURE_JENKINS_TOKEN", settings.jenkins_token.as_str()),
            ])
        });
        // No webhook was sent: the first sweep lists open pull requests.
        let found = up.wait_for("the pull request", Duration::from_secs(30), |up| {
            Some(up.get("/api/prs?repo=payments")["prs"][0].clone()).filter(|pr| pr["number"] == 1)
        });
        assert_eq!(found["repo"], "acme/payments");
        let overview = up.get("/api/overview");
        assert_eq!((&overview["mode"], &overview["owner"]), (&"observe".into(), &"acme".into()));
        // A webhook with an invalid signature is rejected.
        let delivery = &webhooks[0];
        let headers: Vec<(&str, &str)> =
            delivery.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let post = |body: &[u8]| up.request("POST", "/webhook/github", &headers, body).map(|(status, _)| status);
        assert_eq!((post(&delivery.body), post(b"{}")), (Some(200), Some(401)));
        up.kill();
    });
    done.await.expect("the blocking part does not panic");
    let fakes = fakes.lock().expect("not poisoned");
    assert_eq!(fakes.audit_by("suture-operator").count(), 0, "observe mode changes nothing");
    assert_eq!(fakes.unknown_requests(), [] as [String; 0]);
}
