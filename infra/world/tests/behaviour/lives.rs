//! Lives of pull requests without faults, in virtual time.

use jiff::SignedDuration;
use world::{Deed, Fault, NewPull, Pr, Protection, Repo, Reports, Settings, Target, World};

pub(crate) fn minutes(world: &mut World, minutes: i64) {
    world.advance(SignedDuration::from_mins(minutes));
}

/// A world with one repository, and a pull request just opened in it.
pub(crate) fn opened_in(repo: Repo) -> (World, Pr) {
    let mut world = World::new(1, Settings { repos: vec![repo], ..Settings::default() });
    let pr = world.open_pr(NewPull::default());
    (world, pr)
}

pub(crate) fn opened() -> (World, Pr) {
    opened_in(Repo::new("acme/payments"))
}

#[test]
fn a_life_without_faults_ends_merged() {
    for protection in [Protection::Classic, Protection::Ruleset, Protection::None] {
        for reports in [Reports::Status, Reports::CheckRun, Reports::Both] {
            let (mut world, pr) = opened_in(Repo { protection, reports, strict: true, ..Repo::new("acme/payments") });
            minutes(&mut world, 30);
            let pull = world.pull(&pr).unwrap();
            assert_eq!(pull.merged_by.as_deref(), Some("automerge-bot[bot]"), "{protection:?} {reports:?}");
            assert_eq!(world.builds(&pr).count(), 1);
            assert_eq!(world.reviews(&pr).len(), 1);
            assert_eq!(world.needs_a_person(&pr), None);
            assert_eq!(world.next_event_at(), Some(world.now()), "only webhooks to take are left");
            assert!(!world.take_webhooks().is_empty());
            assert_eq!(world.next_event_at(), None);
        }
    }
}

#[test]
fn a_life_is_told_by_webhooks() {
    let (mut world, pr) = opened();
    minutes(&mut world, 30);
    let told: Vec<_> = world.take_webhooks();
    let names: Vec<_> = told.iter().map(|it| (it.event.as_str(), it.action.as_deref())).collect();
    for expected in [
        ("pull_request", Some("opened")),
        ("status", None),
        ("pull_request_review", Some("submitted")),
        ("pull_request", Some("closed")),
        ("push", None),
    ] {
        assert!(names.contains(&expected), "{expected:?} in {names:?}");
    }
    assert!(
        told.iter()
            .all(|it| it.target == Target::GitHub && it.headers.iter().any(|(name, _)| name == "x-hub-signature-256"))
    );
    assert!(told.iter().filter(|it| it.event != "push").all(|it| it.pr.as_ref() == Some(&pr)));
    let merged: serde_json::Value =
        serde_json::from_slice(&told.iter().rev().find(|it| it.action.as_deref() == Some("closed")).unwrap().body)
            .unwrap();
    assert_eq!(merged["pull_request"]["merged"], true);
    assert_eq!(merged["pull_request"]["merged_by"]["login"], "automerge-bot[bot]");
    assert!(!merged["pull_request"]["merged_at"].as_str().unwrap().contains('.'), "whole seconds");
}

#[test]
fn the_same_seed_makes_the_same_world_and_another_seed_another_one() {
    let tell = |seed| {
        let faults = world::Faults::all();
        let mut world = World::new(seed, Settings { faults, ..Settings::default() });
        world.schedule_prs(20, SignedDuration::from_mins(1));
        minutes(&mut world, 120);
        let sent: Vec<_> = world.take_webhooks().into_iter().map(|it| (it.guid, it.due, it.body)).collect();
        (sent, world.effects().to_vec())
    };
    assert_eq!(tell(7), tell(7));
    assert_ne!(tell(7).0, tell(8).0);
}

#[test]
fn what_is_asked_does_not_change_what_happens_to_others() {
    let tell = |meddle: bool| {
        let repos = vec![Repo::new("acme/payments"), Repo::new("acme/ledger")];
        let mut world = World::new(9, Settings { repos, faults: world::Faults::all(), ..Settings::default() });
        world.schedule_prs(40, SignedDuration::from_mins(1));
        minutes(&mut world, 5);
        if meddle {
            for _ in 0..20 {
                drop(super::asking::try_github(
                    &mut world,
                    "GET",
                    "/repos/acme/payments/pulls/1",
                    &[("authorization", "Bearer world-token")],
                    &serde_json::Value::Null,
                ));
            }
            world.person_pushes(&Pr { repo: "acme/payments".to_owned(), number: 1 }, "danny");
        }
        minutes(&mut world, 300);
        let others = world.pulls().filter(|(pr, _)| pr.repo == "acme/ledger");
        others.map(|(pr, pull)| (pull.closed_at, world.struck(&pr).to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(tell(false), tell(true));
}

#[test]
fn a_merge_queue_merges_what_it_was_given() {
    let (mut world, pr) = opened_in(Repo { merge_queue: true, ..Repo::new("acme/payments") });
    minutes(&mut world, 40);
    assert_eq!(world.pull(&pr).unwrap().merged_by.as_deref(), Some("github-merge-queue[bot]"));
    let actions: Vec<_> = world.take_webhooks().into_iter().filter_map(|it| it.action).collect();
    for expected in ["enqueued", "checks_requested", "destroyed", "closed"] {
        assert!(actions.iter().any(|action| action == expected), "{expected}");
    }
}

#[test]
fn auto_merge_merges_for_whoever_switched_it_on() {
    let (mut world, pr) = opened();
    world.person_auto_merges(&pr, "maria", true);
    minutes(&mut world, 30);
    assert_eq!(world.pull(&pr).unwrap().merged_by.as_deref(), Some("maria"));
    assert!(world.take_webhooks().iter().any(|it| it.action.as_deref() == Some("auto_merge_enabled")));
}

#[test]
fn a_strict_base_that_moves_keeps_a_head_from_being_merged_until_it_is_updated() {
    let (mut world, pr) = opened_in(Repo { strict: true, ..Repo::new("acme/payments") });
    world.push_base("acme/payments");
    minutes(&mut world, 60);
    assert!(!world.is_merged(&pr));
    assert_eq!(world.behind_by(&pr), 1);
    let updated =
        super::asking::ask(&mut world, "PUT", "/repos/acme/payments/pulls/1/update-branch", serde_json::json!({}));
    assert_eq!(updated.code, 202);
    assert_eq!(world.behind_by(&pr), 0);
    minutes(&mut world, 30);
    assert!(world.is_merged(&pr), "built, evaluated and approved anew");
    assert_eq!(world.builds(&pr).count(), 2);
}

#[test]
fn a_push_dismisses_approvals_and_starts_anew() {
    let (mut world, pr) = opened();
    world.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut world, 40);
    assert_eq!(world.reviews(&pr).len(), 1);
    world.take_webhooks();
    world.person_pushes(&pr, "danny").unwrap();
    minutes(&mut world, 1);
    let actions: Vec<_> = world.take_webhooks().into_iter().filter_map(|it| it.action).collect();
    assert!(actions.contains(&"synchronize".to_owned()) && actions.contains(&"dismissed".to_owned()), "{actions:?}");
    minutes(&mut world, 30);
    assert!(world.is_merged(&pr));
}

#[test]
fn people_close_reopen_label_and_draft() {
    let (mut world, pr) = opened();
    world.person_drafts(&pr, "danny", true);
    minutes(&mut world, 60);
    assert!(!world.is_merged(&pr), "drafts are not approved");
    world.person_labels(&pr, "danny", "hold");
    world.person_drafts(&pr, "danny", false);
    minutes(&mut world, 60);
    assert!(!world.is_merged(&pr), "a label holds it");
    world.person_closes(&pr, "danny");
    assert!(world.person_reopens(&pr, "danny"));
    world.person_unlabels(&pr, "danny", "hold");
    minutes(&mut world, 60);
    assert!(world.is_merged(&pr));
    assert!(!world.person_reopens(&pr, "danny"), "what is merged stays merged");
    let deeds: Vec<_> = world.effects_by("danny").map(|it| it.deed).collect();
    assert_eq!(deeds, [Deed::LabelAdded, Deed::PullClosed, Deed::PullReopened, Deed::LabelRemoved]);
}

#[test]
fn many_lives_are_quick() {
    // Unoptimised, JSON is slow: what counts is how quick it is where simulations run.
    let lives = if cfg!(debug_assertions) { 200 } else { 1_000 };
    let began = std::time::Instant::now();
    let repos = (0..20).map(|n| Repo::new(&format!("acme/r{n}"))).collect();
    let mut world = World::new(3, Settings { repos, ..Settings::default() });
    world.schedule_prs(lives, SignedDuration::from_secs(5));
    minutes(&mut world, 240);
    assert_eq!(world.pulls().filter(|(pr, _)| world.is_merged(pr)).count() as u64, lives);
    let (sent, took) = (world.take_webhooks().len(), began.elapsed());
    println!("{lives} lives, {sent} webhooks: {took:?}");
    assert!(cfg!(debug_assertions) || took.as_secs() < 2, "{took:?}");
}
