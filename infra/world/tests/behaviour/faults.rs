//! Each fault's effect, what heals it, and which of them need a person.

use jiff::SignedDuration;
use serde_json::{Value, json};
use world::{Bot, Fault, Faults, NewPull, Pr, Repo, Settings, StatusState, World};

use super::asking::{ask, ask_jenkins};
use super::lives::{minutes, opened, opened_in};

const JOB: &str = "/job/acme/job/payments/job/PR-1";

fn bus(world: &mut World, kind: &str, pr: &Pr) {
    let pull = world.pull(pr).unwrap();
    let detail = json!({"repo": pr.repo, "pr_number": pr.number, "head_sha": pull.head(), "vulnerability_id": pull.vulnerability, "run_id": "r", "effect_id": "e"});
    assert!(world.bus_event(kind, &detail.to_string()));
}

/// A pull request that this fault has struck, an hour later: not merged.
fn stuck(fault: Fault) -> (World, Pr) {
    let (mut world, pr) = opened();
    world.force(fault, &pr);
    minutes(&mut world, 60);
    assert!(!world.is_merged(&pr), "{fault:?} keeps it from being merged");
    assert_eq!(world.struck(&pr).iter().map(|(_, fault)| *fault).collect::<Vec<_>>(), [fault]);
    (world, pr)
}

fn merges(world: &mut World, pr: &Pr) {
    minutes(world, 60);
    assert!(world.is_merged(pr));
    assert_eq!(world.needs_a_person(pr), None);
}

#[test]
fn builds_that_failed_by_accident_pass_when_repeated() {
    for fault in [Fault::AgentLost, Fault::FlakyTest, Fault::ReportLost] {
        let (mut world, pr) = stuck(fault);
        assert_eq!(ask_jenkins(&mut world, "POST", &format!("{JOB}/build")).code, 201);
        merges(&mut world, &pr);
    }
}

#[test]
fn a_lost_report_leaves_the_status_pending_although_the_build_has_ended() {
    let (world, pr) = stuck(Fault::ReportLost);
    assert!(world.builds(&pr).next().unwrap().result.is_some());
    assert_eq!(
        world.statuses(&pr).iter().rev().find(|it| it.context.contains("jenkins")).unwrap().state,
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
        let (mut world, pr) = stuck(fault);
        bus(&mut world, kind, &pr);
        merges(&mut world, &pr);
    }
}

#[test]
fn automerge_bot_is_woken_by_a_comment_or_a_label_too() {
    let (mut world, pr) = stuck(Fault::AutomergeAsleep);
    world.person_comments(&pr, "guest", "anybody there?");
    merges(&mut world, &pr);
    let (mut world, pr) = stuck(Fault::AutomergeAsleep);
    assert_eq!(ask(&mut world, "POST", "/repos/acme/payments/issues/1/labels", json!({"labels": ["wake"]})).code, 200);
    merges(&mut world, &pr);
}

#[test]
fn a_bot_that_does_not_listen_to_the_bus_is_not_woken_by_it() {
    let mut settings = Settings::default();
    settings.listening[2].bus = false;
    let mut world = World::new(1, settings);
    let pr = world.open_pr(NewPull::default());
    world.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut world, 60);
    bus(&mut world, "MergeRequested", &pr);
    minutes(&mut world, 60);
    assert!(!world.is_merged(&pr));
}

#[test]
fn old_sod_data_is_not_renewed_by_policy_bot_alone() {
    let (mut world, pr) = stuck(Fault::SodTiming);
    assert!(world.statuses(&pr).last().unwrap().description.starts_with("Separation of duties"));
    bus(&mut world, "PolicyEvaluationRequested", &pr);
    minutes(&mut world, 10);
    assert_eq!(world.statuses(&pr).last().unwrap().state, StatusState::Failure);
    bus(&mut world, "SodCheckRequested", &pr);
    merges(&mut world, &pr);
}

#[test]
fn a_broken_test_needs_a_person() {
    let (mut world, pr) = stuck(Fault::RealTestFailure);
    assert_eq!(world.needs_a_person(&pr), Some("the change breaks a test"));
    ask_jenkins(&mut world, "POST", &format!("{JOB}/build"));
    minutes(&mut world, 30);
    assert!(!world.is_merged(&pr), "a retry fails again");
    world.person_pushes(&pr, "danny");
    merges(&mut world, &pr);
}

#[test]
fn an_invalid_policy_needs_a_person() {
    let (mut world, pr) = stuck(Fault::PolicyMisconfigured);
    assert_eq!(world.statuses(&pr).last().unwrap().state, StatusState::Error);
    bus(&mut world, "PolicyEvaluationRequested", &pr);
    minutes(&mut world, 10);
    assert!(world.needs_a_person(&pr).is_some() && !world.is_merged(&pr));
    world.person_repairs_policy(&pr);
    merges(&mut world, &pr);
}

#[test]
fn a_conflict_is_healed_by_a_fresh_pull_request_from_codegenie() {
    let (mut world, old) = stuck(Fault::Conflict);
    assert!(world.pull(&old).unwrap().conflicts);
    world.person_closes(&old, "suture[bot]");
    bus(&mut world, "PullRequestRequested", &old);
    bus(&mut world, "PullRequestRequested", &old);
    minutes(&mut world, 60);
    let all: Vec<_> =
        world.pulls().map(|(pr, pull)| (pr.number, pull.vulnerability.clone(), pull.head_ref.clone())).collect();
    assert_eq!(all.len(), 2, "asked twice, opened once");
    assert_eq!((all[1].1.clone(), all[1].2.as_str()), (all[0].1.clone(), "codegenie/cve-2026-10001-2"));
    let new = Pr { repo: old.repo.clone(), number: 2 };
    assert!(world.pull(&new).unwrap().body.contains("Replaces #1"));
    assert!(world.is_merged(&new));
}

#[test]
fn two_fixes_in_conflict_need_a_person_the_second_time_as_well() {
    let (mut world, old) = stuck(Fault::ConflictAgain);
    world.person_closes(&old, "suture[bot]");
    bus(&mut world, "PullRequestRequested", &old);
    minutes(&mut world, 60);
    let new = Pr { repo: old.repo, number: 2 };
    assert!(world.pull(&new).unwrap().conflicts && world.needs_a_person(&new).is_some());
    world.person_resolves(&new, "maria");
    merges(&mut world, &new);
}

#[test]
fn codegenie_may_miss_the_first_request() {
    let (mut world, old) = opened();
    world.force(Fault::GenieAsleep, &old);
    world.person_closes(&old, "suture[bot]");
    bus(&mut world, "PullRequestRequested", &old);
    minutes(&mut world, 10);
    assert_eq!(world.pulls().count(), 1);
    bus(&mut world, "PullRequestRequested", &old);
    minutes(&mut world, 10);
    assert_eq!(world.pulls().count(), 2);
}

#[test]
fn a_moving_base_matters_only_where_the_base_is_strict() {
    for strict in [false, true] {
        let (mut world, pr) = opened_in(Repo { strict, ..Repo::new("acme/payments") });
        world.force(Fault::BaseMoves, &pr);
        minutes(&mut world, 60);
        assert_eq!(world.is_merged(&pr), !strict);
    }
}

#[test]
fn a_bot_that_answers_twice_says_the_same() {
    let (mut world, pr) = opened();
    world.force(Fault::BotAnswersTwice, &pr);
    minutes(&mut world, 60);
    let passed = world
        .statuses(&pr)
        .iter()
        .filter(|it| it.context == "policy-bot: main" && it.state == StatusState::Success)
        .count();
    assert_eq!(passed, 2);
    assert!(world.is_merged(&pr));
}

#[test]
fn mergeability_may_stay_unknown_for_long() {
    let (mut world, pr) = opened();
    world.force(Fault::MergeableUnknown, &pr);
    let ask_mergeable =
        |world: &mut World| ask(world, "GET", "/repos/acme/payments/pulls/1", Value::Null).json["mergeable"].clone();
    ask_mergeable(&mut world);
    for _ in 0..4 {
        world.advance(SignedDuration::from_secs(15));
        assert!(ask_mergeable(&mut world).is_null());
    }
    world.person_drafts(&pr, "danny", true);
    minutes(&mut world, 15);
    assert_eq!(ask_mergeable(&mut world), true);
}

#[test]
fn webhooks_come_late_twice_and_out_of_order() {
    let arrival = |fault: Option<Fault>| {
        let (mut world, pr) = opened();
        minutes(&mut world, 1);
        world.take_webhooks();
        if let Some(fault) = fault {
            world.force(fault, &pr);
        }
        let start = world.now();
        world.person_comments(&pr, "danny", "first");
        world.person_comments(&pr, "danny", "second");
        minutes(&mut world, 40);
        let comments = world.take_webhooks().into_iter().filter(|it| it.event == "issue_comment");
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
    let mut settings = Settings::default();
    for listening in &mut settings.listening {
        listening.reports = true;
    }
    let mut world = World::new(1, settings);
    world.open_pr(NewPull::default());
    minutes(&mut world, 30);
    let told: Vec<Value> = world
        .take_webhooks()
        .into_iter()
        .filter(|it| it.target == world::Target::Bot)
        .map(|it| serde_json::from_slice(&it.body).unwrap())
        .collect();
    let told: Vec<_> = told.iter().map(|it| (it["bot"].as_str().unwrap(), it["result"].as_str().unwrap())).collect();
    assert!(
        told.contains(&("policy-bot", "passed"))
            && told.contains(&("approver-bot", "passed"))
            && told.contains(&("automerge-bot", "started")),
        "{told:?}"
    );
    assert_eq!(Bot::Policy.login(), "policy-bot[bot]");
}

#[test]
fn by_chance_every_fault_of_lives_and_webhooks_strikes_and_most_lives_still_end_well() {
    let repos = (0..10).map(|n| Repo::new(&format!("acme/r{n}"))).collect();
    let mut world = World::new(11, Settings { faults: Faults::all(), repos, ..Settings::default() });
    world.schedule_prs(600, SignedDuration::from_secs(20));
    minutes(&mut world, 12 * 60);
    let struck: std::collections::BTreeSet<Fault> =
        world.pulls().flat_map(|(pr, _)| world.struck(&pr).to_vec()).map(|(_, fault)| fault).collect();
    // These wait for somebody who asks.
    let waits = [Fault::GenieAsleep, Fault::MergeableUnknown];
    let lives: Vec<Fault> = Fault::ALL.into_iter().skip(5).take(17).filter(|fault| !waits.contains(fault)).collect();
    for fault in lives {
        assert!(struck.contains(&fault), "{fault:?}");
    }
    let merged = world.pulls().filter(|(pr, _)| world.is_merged(pr)).count();
    let people = world.pulls().filter(|(pr, _)| world.needs_a_person(pr).is_some()).count();
    assert!((250..550).contains(&merged) && people > 20, "{merged} merged, {people} need a person");
}
