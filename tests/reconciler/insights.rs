//! Insights computed from the event log: suggested thresholds, missed webhooks, and success rates of remedies and rules.

use admin::keys::{ApiCaller, ApiKeys, new_key};
use admin::query::AdminApi;
use domain::command::ApiRole;
use domain::event::EventKind;
use domain::insights::{Insights, StateDuration};
use domain::state::{State, Strategy};
use fakes::{FakePrId, FakeSettings, Fault, NewPullRequest, RepoSettings};
use platform::engine::Engine;
use testbed::Testbed;

fn caller(scope: &str) -> ApiCaller {
    let (key, entry) = new_key("looker", ApiRole::Viewer).unwrap();
    ApiKeys::parse(&format!("{entry}{scope}")).unwrap().caller(&key).unwrap()
}

async fn insights(testbed: &Testbed, scope: &str) -> Insights {
    let engine = Engine::new(testbed.store.clone(), testbed::RecordingPublisher::default(), testbed.policies.clone());
    let api = AdminApi::new(engine, std::sync::Arc::new(testbed.clock.clone()), None, None);
    let response = api.insights(&caller(scope), None).await.unwrap();
    assert_eq!((response.days, response.cut_days), (14, 0));
    response.insights
}

fn duration_of<'a>(insights: &'a Insights, repo: Option<&str>, state: State) -> &'a StateDuration {
    let is_wanted =
        |entry: &&StateDuration| entry.repo.as_ref().map(|repo| repo.as_str()) == repo && entry.state == state;
    insights
        .state_durations
        .iter()
        .find(is_wanted)
        .unwrap_or_else(|| panic!("{state} in {repo:?}: {:?}", insights.state_durations))
}

/// Opens `count` pull requests three minutes apart and runs until all are merged or escalated.
async fn run_until_done(testbed: &Testbed, count: usize, repo: &str, fault: Option<Fault>) -> Vec<FakePrId> {
    let mut prs = Vec::new();
    for _ in 0..count {
        let pr =
            testbed.with(|fakes| fakes.open_pr(NewPullRequest { repo: repo.to_owned(), ..NewPullRequest::default() }));
        if let Some(fault) = fault {
            testbed.with(|fakes| fakes.force(fault, &pr));
        }
        testbed.pass(3).await;
        prs.push(pr);
    }
    let done = async |testbed: &Testbed| {
        for pr in &prs {
            let state = testbed.state(pr).await;
            if !matches!(state, Some(State::Merged | State::NeedsIntervention)) {
                return false;
            }
        }
        true
    };
    assert!(testbed.until(600, done).await);
    prs
}

#[tokio::test]
async fn thresholds_are_suggested_per_state_and_repository_from_undisturbed_durations() {
    let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/web")];
    let testbed = Testbed::new(FakeSettings { repos, ..FakeSettings::default() }, "");
    run_until_done(&testbed, 24, "acme/payments", None).await;
    run_until_done(&testbed, 2, "acme/web", None).await;
    run_until_done(&testbed, 1, "acme/payments", Some(Fault::AgentLost)).await;
    let report = insights(&testbed, "").await;
    let running = duration_of(&report, Some("acme/payments"), State::ChecksRunning);
    assert!(running.count >= 25 && running.p50_secs > 0, "{running:?}");
    assert!(running.p50_secs <= running.p95_secs && running.p95_secs <= running.p99_secs, "{running:?}");
    let suggested = running.suggested_minutes.unwrap();
    assert_eq!(running.configured_minutes, 60);
    assert!(suggested >= 1 && suggested <= (running.p99_secs * 125).div_ceil(6_000).max(1), "{running:?}");
    assert_eq!(
        duration_of(&report, Some("acme/web"), State::ChecksRunning).suggested_minutes,
        None,
        "two samples are not enough"
    );
    let everywhere = duration_of(&report, None, State::ChecksRunning);
    assert_eq!(everywhere.count, running.count + duration_of(&report, Some("acme/web"), State::ChecksRunning).count);
    // A rebuild ended this CHECKS_FAILED state, so it does not count as undisturbed.
    let failed = duration_of(&report, Some("acme/payments"), State::ChecksFailed);
    assert_eq!((failed.count, failed.undisturbed), (1, 0), "{failed:?}");
    let scoped = insights(&testbed, ":acme/web").await;
    assert!(
        scoped.state_durations.iter().all(|entry| entry.repo.as_ref().is_none_or(|repo| repo.as_str() == "acme/web"))
    );
    assert_eq!(
        duration_of(&scoped, None, State::ChecksRunning).count,
        2,
        "a scoped key sees only its own repositories"
    );
}

#[tokio::test]
async fn missed_webhooks_are_counted_by_kind() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    // Every third approval webhook and every fourth merge webhook is lost.
    let (mut reviews, mut ends) = (0, 0);
    testbed.lose_webhooks(move |_, delivery| {
        let closed = delivery.event == "pull_request" && delivery.action.as_deref() == Some("closed");
        reviews += usize::from(delivery.event == "pull_request_review");
        ends += usize::from(closed);
        (delivery.event == "pull_request_review" && reviews % 3 == 0) || (closed && ends % 4 == 0)
    });
    let prs = run_until_done(&testbed, 12, "acme/payments", None).await;
    let mut corrected = 0;
    for pr in &prs {
        corrected += testbed.logged(pr, EventKind::StateDriftCorrected).await.len();
    }
    assert!(corrected >= 3, "the sweep found the missed merges");
    let report = insights(&testbed, "").await;
    let of = |kind: EventKind| {
        let entry = report.webhooks.iter().find(|entry| entry.kind == kind).unwrap();
        (entry.by_webhook, entry.missed)
    };
    assert_eq!(of(EventKind::ApprovalGranted).0, 8);
    assert!(
        (3..=4).contains(&of(EventKind::ApprovalGranted).1),
        "one approval may be hidden by a merge that was lost too: {:?}",
        report.webhooks
    );
    assert_eq!(of(EventKind::MergeSucceeded), (9, 3));
    assert_eq!((of(EventKind::PrOpened), of(EventKind::ChecksPassed)), ((12, 0), (12, 0)));
}

#[tokio::test]
async fn remedies_and_rules_are_counted_by_outcome() {
    let config =
        "[never_transient.test-failure]\nenabled = false\n[transient.any-test]\npatterns = ['Tests run: [0-9]+']";
    let testbed = Testbed::new(FakeSettings::default(), config);
    run_until_done(&testbed, 4, "acme/payments", Some(Fault::AgentLost)).await;
    run_until_done(&testbed, 2, "acme/payments", Some(Fault::RealTestFailure)).await;
    run_until_done(&testbed, 2, "acme/payments", Some(Fault::PolicyAsleep)).await;
    let report = insights(&testbed, "").await;
    let of = |strategy: Strategy| report.remedies.iter().find(|(one, _)| *one == strategy).unwrap().1;
    let rebuilds = of(Strategy::Rebuild);
    assert_eq!((rebuilds.claimed, rebuilds.helped, rebuilds.failed_again), (10, 4, 6), "{rebuilds:?}");
    assert_eq!(rebuilds.success_percent(), Some(40.0));
    assert_eq!(of(Strategy::RetriggerPolicyBot).success_percent(), Some(100.0));
    let rule = |name: &str| report.rules.iter().find(|rule| rule.rule == name).unwrap();
    let (lost, test) = (rule("agent-lost"), rule("any-test"));
    assert_eq!((lost.outcomes.helped, lost.identical, lost.is_flagged()), (4, 0, false), "{lost:?}");
    assert_eq!((test.outcomes.failed_again, test.identical, test.is_flagged()), (6, 6, true), "{test:?}");
}
