//! Each fault's effect, its remedy, and which faults need a person.

use fakes::{FakeBot, FakePrId, FakeSettings, Fakes, Fault, FaultRates, NewPullRequest, RepoSettings, StatusState};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::client::{ask, ask_jenkins};
use super::lifecycle::{minutes, opened, opened_in};

const JOB: &str = "/job/acme/job/payments/job/PR-1";

fn bus(fakes: &mut Fakes, kind: &str, pr: &FakePrId) {
    let pull = fakes.pull(pr).unwrap();
    let detail = json!({"repo": pr.repo, "pr_number": pr.number, "head_sha": pull.head(), "base_branch": "main", "vulnerability_id": pull.vulnerability, "run_id": "r", "effect_id": "e"});
    assert!(fakes.bus_event(kind, &detail.to_string()));
}

/// A pull request that this fault struck; after an hour it is still not merged.
fn stuck(fault: Fault) -> (Fakes, FakePrId) {
    let (mut fakes, pr) = opened();
    fakes.force(fault, &pr);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "{fault:?} blocks the merge");
    assert_eq!(fakes.struck(&pr).iter().map(|(_, fault)| *fault).collect::<Vec<_>>(), [fault]);
    (fakes, pr)
}

fn merges(fakes: &mut Fakes, pr: &FakePrId) {
    minutes(fakes, 60);
    assert!(fakes.is_merged(pr));
    assert_eq!(fakes.needs_a_person(pr), None);
}

#[test]
fn rebuild_passes_after_a_transient_failure() {
    for fault in [Fault::AgentLost, Fault::FlakyTest, Fault::ReportLost] {
        let (mut fakes, pr) = stuck(fault);
        assert_eq!(ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build")).code, 201);
        merges(&mut fakes, &pr);
    }
}

#[test]
fn status_stays_pending_when_the_report_is_lost() {
    let (fakes, pr) = stuck(Fault::ReportLost);
    assert!(fakes.builds(&pr).next().unwrap().result.is_some());
    assert_eq!(
        fakes.statuses(&pr).iter().rev().find(|it| it.context.contains("jenkins")).unwrap().state,
        StatusState::Pending
    );
}

#[test]
fn bus_event_retriggers_a_bot_that_missed_its_work() {
    for (fault, kind) in [
        (Fault::PolicyAsleep, "PolicyEvaluationRequested"),
        (Fault::ApproverAsleep, "ApprovalRequested"),
        (Fault::AutomergeAsleep, "MergeRequested"),
        (Fault::SodTiming, "SodCheckRequested"),
    ] {
        let (mut fakes, pr) = stuck(fault);
        bus(&mut fakes, kind, &pr);
        merges(&mut fakes, &pr);
    }
}

#[test]
fn comment_or_label_retriggers_automerge_bot() {
    let (mut fakes, pr) = stuck(Fault::AutomergeAsleep);
    fakes.person_comments(&pr, "guest", "anybody there?");
    merges(&mut fakes, &pr);
    let (mut fakes, pr) = stuck(Fault::AutomergeAsleep);
    assert_eq!(ask(&mut fakes, "POST", "/repos/acme/payments/issues/1/labels", json!({"labels": ["wake"]})).code, 200);
    merges(&mut fakes, &pr);
}

#[test]
fn bus_event_is_ignored_by_a_bot_without_the_bus_trigger() {
    let mut settings = FakeSettings::default();
    settings.listening[2].bus = false;
    let mut fakes = Fakes::new(1, settings);
    let pr = fakes.open_pr(NewPullRequest::default());
    fakes.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut fakes, 60);
    bus(&mut fakes, "MergeRequested", &pr);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr));
}

#[test]
fn policy_evaluation_does_not_refresh_stale_sod_data() {
    let (mut fakes, pr) = stuck(Fault::SodTiming);
    assert!(fakes.statuses(&pr).last().unwrap().description.starts_with("Separation of duties"));
    bus(&mut fakes, "PolicyEvaluationRequested", &pr);
    minutes(&mut fakes, 10);
    assert_eq!(fakes.statuses(&pr).last().unwrap().state, StatusState::Failure);
    bus(&mut fakes, "SodCheckRequested", &pr);
    merges(&mut fakes, &pr);
}

#[test]
fn broken_test_needs_a_person() {
    let (mut fakes, pr) = stuck(Fault::RealTestFailure);
    assert_eq!(fakes.needs_a_person(&pr), Some(Fault::RealTestFailure));
    ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build"));
    minutes(&mut fakes, 30);
    assert!(!fakes.is_merged(&pr), "a retry fails again");
    fakes.person_pushes(&pr, "danny");
    merges(&mut fakes, &pr);
}

#[test]
fn invalid_policy_needs_a_person() {
    let (mut fakes, pr) = stuck(Fault::PolicyMisconfigured);
    assert_eq!(fakes.statuses(&pr).last().unwrap().state, StatusState::Error);
    bus(&mut fakes, "PolicyEvaluationRequested", &pr);
    minutes(&mut fakes, 10);
    assert!(fakes.needs_a_person(&pr).is_some() && !fakes.is_merged(&pr));
    fakes.person_repairs_policy(&pr);
    merges(&mut fakes, &pr);
}

#[test]
fn replacement_from_codegenie_resolves_a_conflict() {
    let (mut fakes, old) = stuck(Fault::Conflict);
    assert!(fakes.pull(&old).unwrap().conflicts);
    fakes.person_closes(&old, "suture[bot]");
    bus(&mut fakes, "PullRequestRequested", &old);
    bus(&mut fakes, "PullRequestRequested", &old);
    minutes(&mut fakes, 60);
    let all: Vec<_> =
        fakes.pulls().map(|(pr, pull)| (pr.number, pull.vulnerability.clone(), pull.head_ref.clone())).collect();
    assert_eq!(all.len(), 2, "requested twice, opened once");
    assert_eq!((all[1].1.clone(), all[1].2.as_str()), (all[0].1.clone(), "codegenie/cve-2026-10001-2"));
    let new = FakePrId { repo: old.repo.clone(), number: 2 };
    assert!(fakes.pull(&new).unwrap().body.contains("Replaces #1"));
    assert!(fakes.is_merged(&new));
}

#[test]
fn replacement_that_conflicts_again_needs_a_person() {
    let (mut fakes, old) = stuck(Fault::ConflictAgain);
    fakes.person_closes(&old, "suture[bot]");
    bus(&mut fakes, "PullRequestRequested", &old);
    minutes(&mut fakes, 60);
    let new = FakePrId { repo: old.repo, number: 2 };
    assert!(fakes.pull(&new).unwrap().conflicts && fakes.needs_a_person(&new).is_some());
    fakes.person_resolves(&new, "maria");
    merges(&mut fakes, &new);
}

#[test]
fn codegenie_misses_the_first_request_when_asleep() {
    let (mut fakes, old) = opened();
    fakes.force(Fault::GenieAsleep, &old);
    fakes.person_closes(&old, "suture[bot]");
    bus(&mut fakes, "PullRequestRequested", &old);
    minutes(&mut fakes, 10);
    assert_eq!(fakes.pulls().count(), 1);
    bus(&mut fakes, "PullRequestRequested", &old);
    minutes(&mut fakes, 10);
    assert_eq!(fakes.pulls().count(), 2);
}

#[test]
fn base_push_blocks_the_merge_only_on_a_strict_base() {
    for strict in [false, true] {
        let (mut fakes, pr) = opened_in(RepoSettings { strict, ..RepoSettings::new("acme/payments") });
        fakes.force(Fault::BaseMoves, &pr);
        minutes(&mut fakes, 60);
        assert_eq!(fakes.is_merged(&pr), !strict);
    }
}

#[test]
fn bot_that_answers_twice_repeats_the_same_status() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::BotAnswersTwice, &pr);
    minutes(&mut fakes, 60);
    let passed = fakes
        .statuses(&pr)
        .iter()
        .filter(|it| it.context == "policy-bot: main" && it.state == StatusState::Success)
        .count();
    assert_eq!(passed, 2);
    assert!(fakes.is_merged(&pr));
}

#[test]
fn mergeability_stays_unknown_for_minutes() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::MergeableUnknown, &pr);
    let ask_mergeable =
        |fakes: &mut Fakes| ask(fakes, "GET", "/repos/acme/payments/pulls/1", Value::Null).json["mergeable"].clone();
    ask_mergeable(&mut fakes);
    for _ in 0..4 {
        fakes.advance(SignedDuration::from_secs(15));
        assert!(ask_mergeable(&mut fakes).is_null());
    }
    fakes.person_drafts(&pr, "danny", true);
    minutes(&mut fakes, 15);
    assert_eq!(ask_mergeable(&mut fakes), true);
}

#[test]
fn webhooks_arrive_late_twice_or_out_of_order() {
    let arrival = |fault: Option<Fault>| {
        let (mut fakes, pr) = opened();
        minutes(&mut fakes, 1);
        fakes.take_webhooks();
        if let Some(fault) = fault {
            fakes.force(fault, &pr);
        }
        let start = fakes.now();
        fakes.person_comments(&pr, "danny", "first");
        fakes.person_comments(&pr, "danny", "second");
        minutes(&mut fakes, 40);
        let comments = fakes.take_webhooks().into_iter().filter(|it| it.event == "issue_comment");
        comments
            .map(|it| {
                (
                    it.due.as_second() - start.as_second(),
                    it.guid,
                    serde_json::from_slice::<Value>(&it.body).unwrap()["comment"]["body"].clone(),
                )
            })
            .collect::<Vec<_>>()
    };
    assert!(arrival(None).iter().all(|(secs, ..)| *secs <= 3));
    let late = arrival(Some(Fault::WebhookLate));
    assert!(late[1].0 >= 120 && late[1].2 == "first");
    let reordered = arrival(Some(Fault::WebhookReordered));
    assert_eq!((&reordered[0].2, &reordered[1].2), (&json!("second"), &json!("first")));
    let doubled = arrival(Some(Fault::WebhookDoubled));
    assert_eq!(doubled.len(), 3);
    assert_eq!(doubled.iter().filter(|it| it.1 == doubled.iter().find(|it| it.2 == "first").unwrap().1).count(), 2);
}

#[test]
fn bots_post_webhooks_when_reports_are_enabled() {
    let mut settings = FakeSettings::default();
    for listening in &mut settings.listening {
        listening.reports = true;
    }
    let mut fakes = Fakes::new(1, settings);
    fakes.open_pr(NewPullRequest::default());
    minutes(&mut fakes, 30);
    let reports: Vec<Value> = fakes
        .take_webhooks()
        .into_iter()
        .filter(|it| matches!(it.target, fakes::WebhookTarget::Bot(_)))
        .map(|it| serde_json::from_slice(&it.body).unwrap())
        .collect();
    let results: Vec<_> =
        reports.iter().map(|it| (it["bot"].as_str().unwrap(), it["result"].as_str().unwrap())).collect();
    assert!(
        results.contains(&("policy-bot", "passed"))
            && results.contains(&("approver-bot", "passed"))
            && results.contains(&("automerge-bot", "started")),
        "{results:?}"
    );
    assert_eq!(FakeBot::Policy.login(), "policy-bot[bot]");
}

#[test]
fn random_faults_all_strike_and_most_pull_requests_still_merge() {
    let repos = (0..10).map(|n| RepoSettings::new(&format!("acme/r{n}"))).collect();
    let mut fakes = Fakes::new(11, FakeSettings { faults: FaultRates::all(), repos, ..FakeSettings::default() });
    fakes.schedule_prs(600, SignedDuration::from_secs(20));
    minutes(&mut fakes, 12 * 60);
    let struck: std::collections::BTreeSet<Fault> =
        fakes.pulls().flat_map(|(pr, _)| fakes.struck(&pr).to_vec()).map(|(_, fault)| fault).collect();
    // These two strike only when a client sends a request.
    let on_request = [Fault::GenieAsleep, Fault::MergeableUnknown];
    let expected: Vec<Fault> =
        Fault::ALL.into_iter().skip(5).take(17).filter(|fault| !on_request.contains(fault)).collect();
    for fault in expected {
        assert!(struck.contains(&fault), "{fault:?}");
    }
    let merged = fakes.pulls().filter(|(pr, _)| fakes.is_merged(pr)).count();
    let people = fakes.pulls().filter(|(pr, _)| fakes.needs_a_person(pr).is_some()).count();
    assert!((250..550).contains(&merged) && people > 20, "{merged} merged, {people} need a person");
}
