//! Jenkins: its remote API, and what it reports to GitHub.

use fakes::{
    AuditedAction, BuildResult, FakeSettings, Fakes, Fault, JenkinsReporting, RepoSettings, StatusState, WebhookTarget,
};
use serde_json::Value;

use super::client::{ask_jenkins, try_jenkins};
use super::lifecycle::{minutes, opened, opened_in};

const JOB: &str = "/job/acme/job/payments/job/PR-1";

#[test]
fn build_is_queued_followed_and_found_by_its_commit() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::AgentLost, &pr);
    minutes(&mut fakes, 20);
    assert_eq!(fakes.statuses(&pr).last().unwrap().state, StatusState::Error);
    let queued = ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build"));
    let location = queued.header("location").unwrap().to_owned();
    assert_eq!((queued.code, location.as_str()), (201, "https://jenkins.example/queue/item/2/"));
    let same = ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build"));
    assert_eq!(same.header("location").unwrap(), location, "a job has at most one waiting item");
    let waiting = ask_jenkins(&mut fakes, "GET", "/queue/item/2/api/json").json;
    assert!(waiting["why"].is_string() && waiting["executable"].is_null());
    minutes(&mut fakes, 1);
    let left = ask_jenkins(&mut fakes, "GET", "/queue/item/2/api/json").json;
    assert_eq!(left["executable"]["number"], 2);
    let job = ask_jenkins(&mut fakes, "GET", &format!("{JOB}/api/json?tree=builds[number]")).json;
    let newest = &job["builds"][0];
    assert_eq!(newest["building"], true);
    let head = fakes.pull(&pr).unwrap().head().to_string();
    assert!(newest["actions"].as_array().unwrap().iter().any(|it| it["lastBuiltRevision"]["SHA1"] == head.as_str()));
    minutes(&mut fakes, 15);
    assert_eq!(
        ask_jenkins(&mut fakes, "GET", "/queue/item/2/api/json").code,
        404,
        "queue items expire five minutes after they left the queue"
    );
    let job = ask_jenkins(&mut fakes, "GET", &format!("{JOB}/api/json")).json;
    assert_eq!(job["builds"][0]["result"], "SUCCESS");
    assert!(fakes.is_merged(&pr));
    assert_eq!(
        ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build")).code,
        409,
        "a merged pull request has nothing to build"
    );
    let mine: Vec<_> = fakes.audit_by("jenkins:suture").map(|it| it.action).collect();
    assert_eq!(mine, [AuditedAction::BuildQueued]);
}

#[test]
fn replay_and_parameterised_builds_run() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 1);
    assert_eq!(ask_jenkins(&mut fakes, "POST", &format!("{JOB}/1/replay/rebuild")).code, 302);
    minutes(&mut fakes, 1);
    ask_jenkins(&mut fakes, "POST", &format!("{JOB}/buildWithParameters?SHA=abc&delay=0sec"));
    minutes(&mut fakes, 1);
    let builds: Vec<_> = fakes.builds(&pr).collect();
    assert_eq!(builds.len(), 3);
    assert_eq!(builds[2].parameters, [("SHA".to_owned(), "abc".to_owned())]);
}

#[test]
fn hung_build_runs_until_stopped() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::BuildHung, &pr);
    minutes(&mut fakes, 24 * 60);
    assert_eq!(fakes.builds(&pr).next().unwrap().result, None);
    let log = ask_jenkins(&mut fakes, "GET", &format!("{JOB}/1/logText/progressiveText?start=0"));
    assert_eq!(log.header("x-more-data"), Some("true"));
    ask_jenkins(&mut fakes, "POST", &format!("{JOB}/1/stop"));
    ask_jenkins(&mut fakes, "POST", &format!("{JOB}/1/stop"));
    assert_eq!(fakes.builds(&pr).next().unwrap().result, Some(BuildResult::Aborted));
    assert_eq!(fakes.audit_by("jenkins:suture").filter(|it| it.action == AuditedAction::BuildStopped).count(), 1);
    minutes(&mut fakes, 1);
    let last = fakes.statuses(&pr).iter().rev().find(|it| it.context.contains("jenkins")).unwrap();
    assert_eq!(last.description, "The build of this commit was aborted");
}

#[test]
fn scan_finds_a_head_that_jenkins_missed() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::JenkinsDeaf, &pr);
    minutes(&mut fakes, 60);
    assert_eq!(fakes.builds(&pr).count(), 0);
    assert_eq!(ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build")).code, 404, "Jenkins has no job for it");
    assert_eq!(ask_jenkins(&mut fakes, "POST", "/job/acme/job/payments/build?delay=0sec").code, 302);
    minutes(&mut fakes, 30);
    assert!(fakes.is_merged(&pr));
}

#[test]
fn logs_show_the_cause_and_can_be_read_from_an_offset() {
    for (fault, words, result) in [
        (Fault::AgentLost, "channel is already closed", "FAILURE"),
        (Fault::FlakyTest, "timed out", "FAILURE"),
        (Fault::RealTestFailure, "Failures: 1", "UNSTABLE"),
    ] {
        let (mut fakes, pr) =
            opened_in(RepoSettings { reports: JenkinsReporting::Both, ..RepoSettings::new("acme/payments") });
        fakes.force(fault, &pr);
        minutes(&mut fakes, 20);
        let all = ask_jenkins(&mut fakes, "GET", &format!("{JOB}/1/logText/progressiveText?start=0")).text;
        assert!(all.contains(words), "{fault:?}: {all}");
        let size = all.len();
        let tail = ask_jenkins(&mut fakes, "GET", &format!("{JOB}/1/logText/progressiveText?start={}", size - 40));
        assert_eq!(
            (tail.text.as_str(), tail.header("x-text-size")),
            (&all[size - 40..], Some(size.to_string().as_str()))
        );
        assert_eq!(fakes.builds(&pr).next().unwrap().result.unwrap().name(), result);
        let check = fakes.check_runs(&pr).last().unwrap();
        assert_eq!(check.conclusion.as_deref(), Some("failure"));
        assert!(all.trim_end().ends_with(&check.summary), "the end of the log: {}", check.summary);
    }
}

#[test]
fn password_needs_a_crumb_and_session_but_a_token_does_not() {
    let (mut fakes, _) = opened();
    minutes(&mut fakes, 1);
    // suture:world-jenkins-password
    let password = ("authorization", "Basic c3V0dXJlOndvcmxkLWplbmtpbnMtcGFzc3dvcmQ=");
    let build = format!("{JOB}/build");
    assert_eq!(try_jenkins(&mut fakes, "POST", &build, &[password]).unwrap().code, 403);
    let crumb = try_jenkins(&mut fakes, "GET", "/crumbIssuer/api/json", &[password]).unwrap();
    let field = crumb.json["crumbRequestField"].as_str().unwrap().to_owned();
    let value = crumb.json["crumb"].as_str().unwrap().to_owned();
    assert_eq!(try_jenkins(&mut fakes, "POST", &build, &[password, (&field, &value)]).unwrap().code, 403, "no session");
    let session = crumb.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let headers = [password, (field.as_str(), value.as_str()), ("cookie", session.as_str())];
    assert_eq!(try_jenkins(&mut fakes, "POST", &build, &headers).unwrap().code, 201);
    assert_eq!(
        try_jenkins(&mut fakes, "GET", "/queue/api/json", &[("authorization", "Basic eDp5")]).unwrap().code,
        401
    );
    assert_eq!(try_jenkins(&mut fakes, "GET", "/queue/api/json", &[]).unwrap().code, 403);
}

#[test]
fn notifier_posts_webhooks_and_unreachable_jenkins_gives_no_response() {
    let mut fakes = Fakes::new(1, FakeSettings { jenkins_notifies: true, ..FakeSettings::default() });
    fakes.open_pr(fakes::NewPullRequest::default());
    minutes(&mut fakes, 20);
    let payloads: Vec<Value> = fakes
        .take_webhooks()
        .into_iter()
        .filter(|it| it.target == WebhookTarget::Jenkins)
        .map(|it| serde_json::from_slice(&it.body).unwrap())
        .collect();
    let phases: Vec<_> =
        payloads.iter().map(|it| (it["build"]["phase"].as_str().unwrap(), it["build"]["status"].as_str())).collect();
    assert_eq!(phases, [("STARTED", None), ("FINALIZED", Some("SUCCESS"))]);
    fakes.force_request(Fault::JenkinsDown);
    assert!(try_jenkins(&mut fakes, "GET", "/queue/api/json", &[]).is_err());
}
