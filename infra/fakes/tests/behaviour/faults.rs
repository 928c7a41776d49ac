//! Each fault's effect, what heals it, and which of them need a person.

use fakes::{FakeBot, FakePrId, FakeSettings, Fakes, Fault, FaultRates, NewPullRequest, RepoSettings, StatusState};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::client::{ask, ask_jenkins};
use super::lifecycle::{minutes, opened, opened_in};

const JOB: &str = "/job/acme/job/payments/job/PR-1";

fn bus(fakes: &mut Fakes, kind: &str, pr: &FakePrId) {
    let pull = fakes.pull(pr).unwrap();
    let detail = json!({"repo": pr.repo, "pr_number": pr.number, "head_sha": pull.head(), "vulnerability_id": pull.vulnerability, "run_id": "r", "effect_id": "e"});
    assert!(fakes.bus_event(kind, &detail.to_string()));
}

/// A pull request that this fault has struck, an hour later: not merged.
fn stuck(fault: Fault) -> (Fakes, FakePrId) {
    let (mut fakes, pr) = opened();
    fakes.force(fault, &pr);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "{fault:?} keeps it from being merged");
    assert_eq!(fakes.struck(&pr).iter().map(|(_, fault)| *fault).collect::<Vec<_>>(), [fault]);
    (fakes, pr)
}

fn merges(fakes: &mut Fakes, pr: &FakePrId) {
    minutes(fakes, 60);
    assert!(fakes.is_merged(pr));
    assert_eq!(fakes.needs_a_person(pr), None);
}

#[test]
fn builds_that_failed_by_accident_pass_when_repeated() {
    for fault in [Fault::AgentLost, Fault::FlakyTest, Fault::ReportLost] {
        let (mut fakes, pr) = stuck(fault);
        assert_eq!(ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build")).code, 201);
        merges(&mut fakes, &pr);
    }
}

#[test]
fn a_lost_report_leaves_the_status_pending_although_the_build_has_ended() {
    let (fakes, pr) = stuck(Fault::ReportLost);
    assert!(fakes.builds(&pr).next().unwrap().result.is_some());
    assert_eq!(
        fakes.statuses(&pr).iter().rev().find(|it| it.context.contains("jenkins")).unwrap().state,
        StatusState::Pending
    );
}

#[test]
fn sleeping_bots_are_woken_by_the_bus() {
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
fn automerge_bot_is_woken_by_a_comment_or_a_label_too() {
    let (mut fakes, pr) = stuck(Fault::AutomergeAsleep);
    fakes.person_comments(&pr, "guest", "anybody there?");
    merges(&mut fakes, &pr);
    let (mut fakes, pr) = stuck(Fault::AutomergeAsleep);
    assert_eq!(ask(&mut fakes, "POST", "/repos/acme/payments/issues/1/labels", json!({"labels": ["wake"]})).code, 200);
    merges(&mut fakes, &pr);
}

#[test]
fn a_bot_that_does_not_listen_to_the_bus_is_not_woken_by_it() {
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
fn old_sod_data_is_not_renewed_by_policy_bot_alone() {
    let (mut fakes, pr) = stuck(Fault::SodTiming);
    assert!(fakes.statuses(&pr).last().unwrap().description.starts_with("Separation of duties"));
    bus(&mut fakes, "PolicyEvaluationRequested", &pr);
    minutes(&mut fakes, 10);
    assert_eq!(fakes.statuses(&pr).last().unwrap().state, StatusState::Failure);
    bus(&mut fakes, "SodCheckRequested", &pr);
    merges(&mut fakes, &pr);
}

#[test]
fn a_broken_test_needs_a_person() {
    let (mut fakes, pr) = stuck(Fault::RealTestFailure);
    assert_eq!(fakes.needs_a_person(&pr), Some("the change breaks a test"));
    ask_jenkins(&mut fakes, "POST", &format!("{JOB}/build"));
    minutes(&mut fakes, 30);
    assert!(!fakes.is_merged(&pr), "a retry fails again");
    fakes.person_pushes(&pr, "danny");
    merges(&mut fakes, &pr);
}

#[test]
fn an_invalid_policy_needs_a_person() {
    let (mut fakes, pr) = stuck(Fault::PolicyMisconfigured);
    assert_eq!(fakes.statuses(&pr).last().unwrap().state, StatusState::Error);
    bus(&mut fakes, "PolicyEvaluationRequested", &pr);
    minutes(&mut fakes, 10);
    assert!(fakes.needs_a_person(&pr).is_some() && !fakes.is_merged(&pr));
    fakes.person_repairs_policy(&pr);
    merges(&mut fakes, &pr);
}

#[test]
fn a_conflict_is_healed_by_a_fresh_pull_request_from_codegenie() {
    let (mut fakes, old) = stuck(Fault::Conflict);
    assert!(fakes.pull(&old).unwrap().conflicts);
    fakes.person_closes(&old, "suture[bot]");
    bus(&mut fakes, "PullRequestRequested", &old);
    bus(&mut fakes, "PullRequestRequested", &old);
    minutes(&mut fakes, 60);
    let all: Vec<_> =
        fakes.pulls().map(|(pr, pull)| (pr.number, pull.vulnerability.clone(), pull.head_ref.clone())).collect();
    assert_eq!(all.len(), 2, "asked twice, opened once");
    assert_eq!((all[1].1.clone(), all[1].2.as_str()), (all[0].1.clone(), "codegenie/cve-2026-10001-2"));
    let new = FakePrId { repo: old.repo.clone(), number: 2 };
    assert!(fakes.pull(&new).unwrap().body.contains("Replaces #1"));
    assert!(fakes.is_merged(&new));
}

#[test]
fn two_fixes_in_conflict_need_a_person_the_second_time_as_well() {
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
fn codegenie_may_miss_the_first_request() {
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
fn a_moving_base_matters_only_where_the_base_is_strict() {
    for strict in [false, true] {
        let (mut fakes, pr) = opened_in(RepoSettings { strict, ..RepoSettings::new("acme/payments") });
        fakes.force(Fault::BaseMoves, &pr);
        minutes(&mut fakes, 60);
        assert_eq!(fakes.is_merged(&pr), !strict);
    }
}

#[test]
fn a_bot_that_answers_twice_says_the_same() {
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
fn mergeability_may_stay_unknown_for_long() {
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
fn webhooks_come_late_twice_and_out_of_order() {
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
fn bots_report_directly_if_they_are_set_up_so() {
    let mut settings = FakeSettings::default();
    for listening in &mut settings.listening {
        listening.reports = true;
    }
    let mut fakes = Fakes::new(1, settings);
    fakes.open_pr(NewPullRequest::default());
    minutes(&mut fakes, 30);
    let told: Vec<Value> = fakes
        .take_webhooks()
        .into_iter()
        .filter(|it| it.target == fakes::WebhookTarget::Bot)
        .map(|it| serde_json::from_slice(&it.body).unwrap())
        .collect();
    let told: Vec<_> = told.iter().map(|it| (it["bot"].as_str().unwrap(), it["result"].as_str().unwrap())).collect();
    assert!(
        told.contains(&("policy-bot", "passed"))
            && told.contains(&("approver-bot", "passed"))
            && told.contains(&("automerge-bot", "started")),
        "{told:?}"
    );
    assert_eq!(FakeBot::Policy.login(), "policy-bot[bot]");
}

#[test]
fn by_chance_every_fault_of_lives_and_webhooks_strikes_and_most_lives_still_end_well() {
    let repos = (0..10).map(|n| RepoSettings::new(&format!("acme/r{n}"))).collect();
    let mut fakes = Fakes::new(11, FakeSettings { faults: FaultRates::all(), repos, ..FakeSettings::default() });
    fakes.schedule_prs(600, SignedDuration::from_secs(20));
    minutes(&mut fakes, 12 * 60);
    let struck: std::collections::BTreeSet<Fault> =
        fakes.pulls().flat_map(|(pr, _)| fakes.struck(&pr).to_vec()).map(|(_, fault)| fault).collect();
    // These wait for somebody who asks.
    let waits = [Fault::GenieAsleep, Fault::MergeableUnknown];
    let lives: Vec<Fault> = Fault::ALL.into_iter().skip(5).take(17).filter(|fault| !waits.contains(fault)).collect();
    for fault in lives {
        assert!(struck.contains(&fault), "{fault:?}");
    }
    let merged = fakes.pulls().filter(|(pr, _)| fakes.is_merged(pr)).count();
    let people = fakes.pulls().filter(|(pr, _)| fakes.needs_a_person(pr).is_some()).count();
    assert!((250..550).contains(&merged) && people > 20, "{merged} merged, {people} need a person");
}
