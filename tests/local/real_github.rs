//! With credentials: a GitHub that this process did not make, in observe mode.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fakes::{FakeSettings, Fakes, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use tests::local_aws::Folder;

use crate::child_process::Up;

#[tokio::test(flavor = "multi_thread")]
async fn a_github_is_served_by_what_the_environment_names() {
    let start = Timestamp::now() - SignedDuration::from_hours(2);
    let settings = FakeSettings { start, ..FakeSettings::default() };
    let mut world = Fakes::new(3, settings.clone());
    let pr = world.open_pr(NewPullRequest::default());
    world.force(fakes::Fault::ApproverAsleep, &pr);
    world.advance_to(Timestamp::now());
    let heard = world.take_webhooks();
    let world = Arc::new(Mutex::new(world));
    let serving = fakes::serve(Arc::clone(&world)).await.expect("ports");
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
        // Nobody told of it: the first sweep lists what is open.
        let found = up.wait_for("the pull request", Duration::from_secs(30), |up| {
            Some(up.get("/api/prs?repo=payments")["prs"][0].clone()).filter(|pr| pr["number"] == 1)
        });
        assert_eq!(found["repo"], "acme/payments");
        let overview = up.get("/api/overview");
        assert_eq!((&overview["mode"], &overview["owner"]), (&"observe".into(), &"acme".into()));
        // Webhooks are believed by their signature only.
        let delivery = &heard[0];
        let headers: Vec<(&str, &str)> =
            delivery.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let post = |body: &[u8]| up.ask("POST", "/webhook/github", &headers, body).map(|(status, _)| status);
        assert_eq!((post(&delivery.body), post(b"{}")), (Some(200), Some(401)));
        up.kill();
    });
    done.await.expect("it is as it should be");
    let world = world.lock().expect("nobody panicked");
    assert_eq!(world.audit_by("suture-operator").count(), 0, "observing touches nothing");
    assert_eq!(world.unknown_requests(), [] as [String; 0]);
}
