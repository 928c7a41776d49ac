//! The Jenkins client against the fake Jenkins and against scripted responses.

use domain::id::Sha;
use domain::snapshot::BuildStatus;
use fakes::{AuditedAction, Fault};
use jiff::SignedDuration;
use platform::jenkins::{BuildMatch, BuildQuery, BuildRef, JenkinsJob, JenkinsLogin};
use platform::transport::{ApiError, BodyLimit};
use testbed::{FaultTransport, Testbed};

use crate::github::{head, opened};
use crate::{response, testbed_with};

/// A pull request whose first build has ended, with its job.
fn built_job() -> (Testbed, fakes::FakePrId, JenkinsJob) {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    testbed.advance(SignedDuration::from_mins(20));
    let job = JenkinsJob::new(&format!("{}/PR-{}", pr.repo, pr.number));
    (testbed, pr, job)
}

/// A pull request whose build lost its agent, with its job.
fn failed_job() -> (Testbed, fakes::FakePrId, JenkinsJob) {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    testbed.advance(SignedDuration::from_mins(20));
    let job = JenkinsJob::new(&format!("{}/PR-{}", pr.repo, pr.number));
    (testbed, pr, job)
}

fn queued(testbed: &Testbed) -> usize {
    testbed.with(|fakes| fakes.audit().iter().filter(|effect| effect.action == AuditedAction::BuildQueued).count())
}

#[tokio::test]
async fn build_is_triggered_polled_and_read() {
    let (testbed, pr, job) = failed_job();
    let before = testbed.jenkins.builds(&job).await.unwrap();
    assert_eq!((before[0].building, before[0].result.as_deref()), (false, Some("FAILURE")));
    let log = testbed.jenkins.log_tail(&before[0].build, 4096).await.unwrap();
    assert!(!log.is_empty() && log.len() <= 4096, "{log}");
    let tail = testbed.jenkins.log_tail(&before[0].build, 120).await.unwrap();
    assert!(tail.len() < 120 && log.ends_with(&tail), "whole lines of the tail: {tail}");
    let since = testbed.with(|fakes| fakes.now());
    let head = head(&testbed, &pr);
    let looking = BuildQuery { job: &job, commit: Some(&head), since };
    assert_eq!(testbed.jenkins.find_build(&looking).await.unwrap(), None, "older builds do not count");
    assert_eq!(testbed.jenkins.build_of(&looking).await, BuildStatus::Gone);

    let item = testbed.jenkins.trigger_build(&job).await.unwrap().item.expect("a queue item");
    let waiting = testbed.jenkins.queue_item(item).await.unwrap().unwrap();
    assert_eq!((waiting.id, waiting.cancelled, waiting.build), (item, false, None));
    assert!(waiting.why.is_some());
    let of_job = BuildQuery { commit: None, ..looking };
    let found = testbed.jenkins.find_build(&of_job).await.unwrap();
    assert!(matches!(&found, Some(BuildMatch::Queued(queued)) if queued.id == item), "{found:?}");
    testbed.advance(SignedDuration::from_mins(1));
    let started = testbed.jenkins.queue_item(item).await.unwrap().unwrap().build.expect("a started build");
    assert_eq!(started, BuildRef { job: job.clone(), number: 2 });
    let state = testbed.jenkins.builds(&job).await.unwrap().swap_remove(0);
    assert_eq!(state.build, started);
    assert!(state.building && state.result.is_none() && state.revisions.contains(&head.to_string()), "{state:?}");
    assert_eq!(testbed.jenkins.build_of(&looking).await, BuildStatus::Building { since: state.started_at });
    let later = BuildQuery { since: state.started_at + SignedDuration::from_mins(5), ..looking };
    assert_eq!(
        testbed.jenkins.build_of(&later).await,
        BuildStatus::Building { since: state.started_at },
        "it is building"
    );
    let other: Sha = "f".repeat(40).parse().unwrap();
    let another = BuildQuery { commit: Some(&other), ..later };
    assert_eq!(testbed.jenkins.build_of(&another).await, BuildStatus::Gone, "the running build is of another commit");
    testbed.advance(SignedDuration::from_mins(15));
    assert_eq!(testbed.jenkins.build_of(&later).await, BuildStatus::Gone, "earlier builds do not count");
    assert_eq!(testbed.jenkins.build_of(&looking).await, BuildStatus::Finished);
    let done = testbed.jenkins.builds(&job).await.unwrap().swap_remove(0);
    assert_eq!((done.building, done.result.as_deref()), (false, Some("SUCCESS")));
    assert_eq!(testbed.jenkins.queue_item(item).await.unwrap(), None, "Jenkins has dropped the item");
    assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), Vec::<String>::new());
}

#[tokio::test]
async fn build_with_a_lost_response_is_found_before_a_retrigger() {
    let (testbed, pr, job) = failed_job();
    let since = testbed.with(|fakes| fakes.now());
    let head = head(&testbed, &pr);
    let before = queued(&testbed);
    testbed.with(|fakes| fakes.force_request(Fault::AnswerLost));
    let error = testbed.jenkins.trigger_build(&job).await.unwrap_err();
    assert!(error.may_have_happened(), "{error}");
    for minutes in [0, 2, 15] {
        testbed.advance(SignedDuration::from_mins(minutes));
        let found = testbed.jenkins.find_build(&BuildQuery { job: &job, commit: None, since }).await.unwrap();
        assert!(found.is_some(), "after {minutes} minutes");
    }
    let of_head = BuildQuery { job: &job, commit: Some(&head), since };
    assert!(
        matches!(testbed.jenkins.find_build(&of_head).await.unwrap(), Some(BuildMatch::Build(build)) if build.build.number == 2)
    );
    let other = tests::sha('e');
    assert_eq!(testbed.jenkins.find_build(&BuildQuery { commit: Some(&other), ..of_head }).await.unwrap(), None);
    assert_eq!(queued(&testbed), before + 1);
}

#[tokio::test]
async fn builds_are_replayed_parameterised_and_stopped() {
    let (testbed, _, job) = failed_job();
    let first = BuildRef { job: job.clone(), number: 1 };
    let queued_before = queued(&testbed);
    testbed.jenkins.replay_build(&first).await.unwrap();
    assert_eq!(queued(&testbed), queued_before + 1);
    testbed.advance(SignedDuration::from_mins(1));
    let second = BuildRef { job: job.clone(), number: 2 };
    testbed.jenkins.stop_build(&second).await.unwrap();
    testbed.advance(SignedDuration::from_mins(1));
    let stopped = testbed.jenkins.builds(&job).await.unwrap().swap_remove(0);
    assert_eq!((stopped.build, stopped.result.as_deref()), (second, Some("ABORTED")));
    let parameters = [("COMMIT", "a b&c=d"), ("WHY", "suture")];
    testbed.jenkins.trigger_build_with_parameters(&job, &parameters).await.unwrap();
    testbed.advance(SignedDuration::from_mins(1));
    let third = testbed.jenkins.builds(&job).await.unwrap().swap_remove(0);
    assert!(third.revisions.contains(&"a b&c=d".to_owned()), "{third:?}");
    testbed.jenkins.scan_multibranch(&job.parent().unwrap()).await.unwrap();
    let scanned =
        testbed.with(|fakes| fakes.audit().iter().any(|effect| effect.action == AuditedAction::RepositoryScanned));
    assert!(scanned);
    assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), Vec::<String>::new());
}

#[tokio::test]
async fn missing_job_has_no_builds_and_unbuildable_job_is_a_conflict() {
    let (testbed, pr, job) = built_job();
    let nowhere = JenkinsJob::new("acme/nothing/PR-1");
    assert_eq!(testbed.jenkins.builds(&nowhere).await.unwrap(), []);
    testbed.with(|fakes| fakes.person_closes(&pr, "danny"));
    let error = testbed.jenkins.trigger_build(&job).await.unwrap_err();
    assert!(matches!(error, ApiError::Conflict { .. }), "{error}");
    assert!(matches!(testbed.jenkins.trigger_build(&nowhere).await, Err(ApiError::NotFound { .. })));
}

#[tokio::test]
async fn unreachable_jenkins_is_retried_then_reported() {
    let (testbed, _, job) = built_job();
    let looking = BuildQuery { job: &job, commit: None, since: testbed.with(|fakes| fakes.now()) };
    let sent = testbed.transport.count();
    for _ in 0..3 {
        testbed.with(|fakes| fakes.force_request(Fault::JenkinsDown));
    }
    assert_eq!(testbed.jenkins.build_of(&looking).await, BuildStatus::Unreachable);
    assert_eq!(testbed.transport.count() - sent, 3);
    testbed.with(|fakes| fakes.force_request(Fault::JenkinsDown));
    let sent = testbed.transport.count();
    assert!(testbed.jenkins.trigger_build(&job).await.is_err());
    assert_eq!(testbed.transport.count() - sent, 1, "a write is sent once");
}

#[tokio::test]
async fn password_login_reuses_one_crumb_and_its_session() {
    let settings = fakes::FakeSettings::default();
    let login =
        JenkinsLogin::Password { user: settings.jenkins_user.clone(), password: settings.jenkins_password.clone() };
    assert_eq!(format!("{login:?}"), "Password(suture, …)");
    let testbed = Testbed::with_access(settings, |access| access.login = login);
    let (pr, _, _) = opened(&testbed);
    // It stays open because its tests fail.
    testbed.with(|fakes| fakes.force(Fault::RealTestFailure, &pr));
    testbed.advance(SignedDuration::from_mins(20));
    let job = JenkinsJob::new(&format!("{}/PR-{}", pr.repo, pr.number));
    testbed.jenkins.trigger_build(&job).await.unwrap();
    testbed.advance(SignedDuration::from_mins(20));
    testbed.jenkins.trigger_build(&job).await.unwrap();
    let crumbs = || testbed.transport.lines().iter().filter(|line| line.contains("crumbIssuer")).count();
    assert_eq!(crumbs(), 1, "{:?}", testbed.transport.lines());
    assert!(testbed.transport.last().headers.contains_key("cookie"));
}

/// A Jenkins client with scripted responses.
fn scripted_jenkins<F>(login: JenkinsLogin, answer: F) -> (platform::jenkins::Jenkins, FaultTransport)
where
    F: Fn(http::Request<bytes::Bytes>) -> http::Response<bytes::Bytes> + Send + Sync + 'static,
{
    let transport = FaultTransport::default();
    let answering = transport.to("Jenkins", move |request| Ok(answer(request)));
    let settings = platform::jenkins::JenkinsSettings::new("https://ci.example/jenkins".parse().unwrap());
    let clock = std::sync::Arc::new(platform::clock::SystemClock);
    (platform::jenkins::Jenkins::with_service(login, settings, answering, clock), transport)
}

#[tokio::test]
async fn expired_crumb_is_replaced_once() {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    let login = JenkinsLogin::Password { user: "u".into(), password: "p".into() };
    let (jenkins, transport) = scripted_jenkins(login, move |request| {
        if request.uri().path() == "/jenkins/crumbIssuer/api/json" {
            let n = issued.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            let mut answer = response(200, &format!(r#"{{"crumb":"c{n}","crumbRequestField":"Jenkins-Crumb"}}"#));
            answer.headers_mut().insert("set-cookie", format!("JSESSIONID=s{n}; Path=/").parse().unwrap());
            return answer;
        }
        let shown = request.headers().get("jenkins-crumb").unwrap();
        // The first crumb is valid for one write.
        let used = request.uri().path().ends_with("PR-1/build");
        if shown == "c2" || (shown == "c1" && used) {
            response(201, "")
        } else {
            response(403, "No valid crumb was included")
        }
    });
    jenkins.trigger_build(&JenkinsJob::new("a/PR-1")).await.unwrap();
    jenkins.trigger_build(&JenkinsJob::new("a/PR-2")).await.unwrap();
    let lines = transport.lines();
    let (crumb, first, second) = (
        "GET /jenkins/crumbIssuer/api/json",
        "POST /jenkins/job/a/job/PR-1/build",
        "POST /jenkins/job/a/job/PR-2/build",
    );
    assert_eq!(lines, [crumb, first, second, crumb, second]);
}

#[tokio::test]
async fn redirect_to_the_login_page_is_an_error() {
    let login = || JenkinsLogin::Token { user: "u".into(), token: "t".into() };
    let (jenkins, _) = scripted_jenkins(login(), |_| {
        let mut answer = response(302, "");
        answer.headers_mut().insert("location", "https://ci.example/jenkins/login?from=x".parse().unwrap());
        answer
    });
    let job = JenkinsJob::new("a/PR-1");
    assert!(matches!(jenkins.trigger_build(&job).await, Err(ApiError::Unauthorized { .. })));
    assert!(matches!(jenkins.builds(&job).await, Err(ApiError::Unauthorized { .. })));
}

#[tokio::test]
async fn only_the_log_tail_is_requested() {
    let login = JenkinsLogin::Token { user: "u".into(), token: "t".into() };
    let log: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
    let length = log.len();
    let (jenkins, transport) = scripted_jenkins(login, move |request| {
        let start: usize = request.uri().query().unwrap().strip_prefix("start=").unwrap().parse().unwrap();
        let most = request.extensions().get::<BodyLimit>().map(|most| most.0).expect("a bound");
        let wanted = &log[start..];
        let mut answer = response(200, &wanted[..wanted.len().min(most)]);
        answer.headers_mut().insert("x-text-size", length.to_string().parse().unwrap());
        answer
    });
    let build = BuildRef { job: JenkinsJob::new("a/PR-1"), number: 3 };
    let tail = jenkins.log_tail(&build, 1000).await.unwrap();
    assert!(tail.starts_with("line 99") && tail.ends_with("line 9999\n") && tail.len() < 1000, "{tail}");
    assert_eq!(transport.last().query, format!("start={}", length - 1000));
    let whole = jenkins.log_tail(&build, 1 << 20).await.unwrap();
    assert_eq!((whole.len(), whole.starts_with("line 0\n")), (length, true));
}
