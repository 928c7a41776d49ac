//! The sentinel: what is asked after merges, and what follows.

use std::sync::Arc;

use domain::event::EventKind;
use fakes::{AuditedAction, FakePrId, FakeSettings, RepoSettings};
use jiff::SignedDuration;
use reconciler::SweepTrigger;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use super::{SUTURE, actions, ours, stopped};

const SHOP: &str = "https://shop.example/health";
const CONFIG: &str = "sentinel = { urls = ['https://shop.example/health'], issue_repo = 'acme/ops' }";

fn with_ops() -> FakeSettings {
    FakeSettings {
        repos: vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")],
        ..FakeSettings::default()
    }
}

/// Opened, and merged by a person a minute later.
async fn merged(stage: &Testbed) -> FakePrId {
    let pr = stage.open();
    stage.pass(1).await;
    stage.with(|world| world.person_merges(&pr, "maria"));
    stage.pass(1).await;
    pr
}

fn is_sick(stage: &Testbed, status: u16) {
    stage.set_health(SHOP, status);
}

fn is_well(stage: &Testbed) {
    stage.set_health(SHOP, 200);
}

fn asked(stage: &Testbed) -> usize {
    stage.transport.take_count("health")
}

#[tokio::test]
async fn a_merge_after_which_all_is_well_is_verified_once() {
    let stage = Testbed::new(with_ops(), CONFIG);
    stage.pass(5).await;
    assert_eq!(asked(&stage), 0, "nothing was merged");
    let pr = merged(&stage).await;
    stage.pass(27).await;
    assert_eq!(stage.logged(&pr, EventKind::PostMergeVerified).await, []);
    assert!(asked(&stage) >= 26, "each sweep asks");
    stage.pass(5).await;
    let verified = stage.logged(&pr, EventKind::PostMergeVerified).await;
    assert_eq!(verified.len(), 1);
    assert_eq!(verified[0].payload.text, "healthy for 30 min after the merge");
    asked(&stage);
    stage.pass(60).await;
    assert_eq!((asked(&stage), stage.logged(&pr, EventKind::PostMergeVerified).await.len()), (0, 1));
    assert_eq!(actions(&stage, AuditedAction::CommentCreated), 0, "comments have to be asked for");
    let total: u32 = stage.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.verified).sum();
    assert_eq!(total, 1);
}

#[tokio::test]
async fn the_pull_request_is_told_if_that_is_wanted() {
    let stage = Testbed::new(with_ops(), &CONFIG.replace("issue_repo", "comment = true, issue_repo"));
    let pr = merged(&stage).await;
    stage.pass(60).await;
    let said: Vec<String> = stage.with(|world| {
        let comments = world.comments(&pr).filter(|comment| comment.user == SUTURE);
        comments.map(|comment| comment.body.clone()).collect()
    });
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("✅ post-merge verified: healthy for 30 min after the merge."), "{said:?}");
}

#[tokio::test]
async fn an_outage_is_one_issue_that_names_the_likely_merges_however_long_it_lasts() {
    let stage = Testbed::new(with_ops(), CONFIG);
    let (first, second) = (merged(&stage).await, merged(&stage).await);
    // One bad answer is nothing.
    is_sick(&stage, 503);
    stage.pass(1).await;
    is_well(&stage);
    stage.pass(3).await;
    assert_eq!(stage.with(|world| ours(world)).len(), 0);
    is_sick(&stage, 500);
    stage.pass(3).await;
    let issues = stage.with(|world| ours(world));
    assert_eq!(issues.len(), 1, "{issues:?}");
    let (place, issue) = &issues[0];
    assert_eq!(
        (place.repo.as_str(), issue.labels.as_slice()),
        ("acme/ops", &["suture/sentinel", "P0"].map(str::to_owned)[..])
    );
    assert!(issue.title.starts_with("P0: down since "), "{}", issue.title);
    assert!(issue.body.contains("https://shop.example/health answered 500"), "{}", issue.body);
    let (newest, older) = (issue.body.find(&second.to_string()), issue.body.find(&first.to_string()));
    assert!(newest.unwrap() < older.unwrap(), "{}", issue.body);
    // It goes on for hours, with further merges: still one.
    merged(&stage).await;
    stage.pass(180).await;
    assert_eq!(stage.with(|world| ours(world)).len(), 1);
    for pr in [&first, &second] {
        assert_eq!(stage.logged(pr, EventKind::PostMergeVerified).await, [], "{pr} may be why");
    }
    is_well(&stage);
    stage.pass(5).await;
    let said: Vec<String> = stage.with(|world| world.comments(place).map(|comment| comment.body.clone()).collect());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("Healthy again since "), "{said:?}");
    assert!(stage.with(|world| world.issue(place).unwrap().open), "closing it is a person's");
    // Another outage is another issue.
    merged(&stage).await;
    is_sick(&stage, 0);
    stage.pass(4).await;
    assert_eq!(stage.with(|world| ours(world)).len(), 2);
}

#[tokio::test]
async fn an_outage_of_a_repository_is_told_there_and_what_others_watch_is_theirs() {
    let config = "[repos.'acme/payments']\nsentinel.urls = ['https://shop.example/health']";
    let stage = Testbed::new(with_ops(), config);
    let other =
        stage.with(|world| world.open_pr(fakes::NewPullRequest { repo: "acme/ops".to_owned(), ..Default::default() }));
    stage.pass(1).await;
    stage.with(|world| world.person_merges(&other, "maria"));
    stage.pass(2).await;
    assert_eq!(asked(&stage), 0, "nobody watches acme/ops");
    is_sick(&stage, 404);
    merged(&stage).await;
    stage.pass(4).await;
    let issues = stage.with(|world| ours(world));
    assert_eq!(issues.iter().map(|(place, _)| place.repo.as_str()).collect::<Vec<_>>(), ["acme/payments"]);
    assert!(!issues[0].1.body.contains(&other.to_string()));
}

#[tokio::test]
async fn where_suture_only_watches_nothing_is_written() {
    let policies = domain::policy::Policies::parse(CONFIG).unwrap();
    let stage = Testbed::with_policies(with_ops(), policies);
    let pr = merged(&stage).await;
    is_sick(&stage, 500);
    stage.pass(10).await;
    let begun: u32 =
        stage.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.outages_begun).sum();
    assert_eq!((begun, stage.with(|world| ours(world)).len()), (1, 0));
    is_well(&stage);
    let later = merged(&stage).await;
    stage.pass(40).await;
    assert_eq!(stage.logged(&pr, EventKind::PostMergeVerified).await.len(), 0);
    assert_eq!(stage.logged(&later, EventKind::PostMergeVerified).await.len(), 1, "the log may be written");
    assert_eq!(stage.with(|world| world.audit_by(SUTURE).count()), 0);
}

#[tokio::test]
async fn while_a_person_has_paused_suture_no_issue_is_written_and_later_it_is() {
    let stage = Testbed::new(with_ops(), CONFIG);
    merged(&stage).await;
    platform::guards::pause(&stage.store, "maria", stage.now(), stage.now()).await.unwrap();
    is_sick(&stage, 500);
    stage.pass(10).await;
    assert_eq!(stage.with(|world| ours(world)).len(), 0);
    platform::guards::unpause(&stage.store, stage.now(), stage.now()).await.unwrap();
    stage.pass(3).await;
    assert_eq!(stage.with(|world| ours(world)).len(), 1);
}

/// The second bad look: the outage begins with the next sweep.
async fn nearly() -> Testbed {
    let stage = Testbed::new(with_ops(), CONFIG);
    merged(&stage).await;
    stage.sweeping.set(false);
    is_sick(&stage, 500);
    stage.with(|world| world.advance(SignedDuration::from_mins(1)));
    stage.sweep_now().await;
    stage.with(|world| world.advance(SignedDuration::from_mins(1)));
    stage
}

#[tokio::test]
async fn an_outage_is_one_issue_wherever_the_process_dies() {
    let mut points = 0;
    for how in CallFault::CRASHES {
        for at in 0.. {
            let stage = nearly().await;
            let reached = stopped(&stage, at, how).await;
            stage.sweeping.set(true);
            stage.pass(15).await;
            let issues = stage.with(|world| ours(world));
            assert_eq!(issues.len(), 1, "stopped {how:?} call {at}: {issues:?}");
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 60, "{points}");
}

#[tokio::test]
async fn the_end_of_a_watch_is_told_once_wherever_the_process_dies() {
    let mut points = 0;
    for how in CallFault::CRASHES {
        for at in 0.. {
            let stage = Testbed::new(with_ops(), &CONFIG.replace("issue_repo", "comment = true, issue_repo"));
            let pr = merged(&stage).await;
            stage.sweeping.set(false);
            stage.with(|world| world.advance(SignedDuration::from_mins(31)));
            let reached = stopped(&stage, at, how).await;
            stage.sweeping.set(true);
            stage.pass(8).await;
            let told = (
                stage.logged(&pr, EventKind::PostMergeVerified).await.len(),
                actions(&stage, AuditedAction::CommentCreated),
            );
            assert_eq!(told, (1, 1), "stopped {how:?} call {at}: {:?}", stage.faults.take_names().first());
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 60, "{points}");
}

/// Two sweeps at the same moment, one of which has outlived its lease, see one outage once, and write one issue.
#[tokio::test]
async fn sweeps_that_overlap_see_one_outage() {
    for ahead in (0..30).step_by(3) {
        let stage = nearly().await;
        let now = stage.now();
        stage.faults.count_anew();
        let (one, other) = (Arc::new(stage.another_sweep()), Arc::new(stage.another_sweep()));
        let wishes = ["first", "second"]
            .map(|name| SweepTrigger { run: domain::id::RunId::new(name), ..SweepTrigger::scheduled(name, now, name) });
        let second = async {
            for _ in 0..10_000 {
                if stage.faults.calls() >= ahead {
                    break;
                }
                tokio::task::yield_now().await;
            }
            forget_lease(&stage).await;
            other.sweep(&wishes[1], now + SWEEP_TIMEOUT).await
        };
        let (first, second) = tokio::join!(one.sweep(&wishes[0], now + SWEEP_TIMEOUT), second);
        first.unwrap();
        second.unwrap();
        stage.settle().await;
        stage.with(|world| world.advance(SWEEP_TIMEOUT));
        stage.sweeping.set(true);
        stage.pass(10).await;
        let issues = stage.with(|world| ours(world));
        assert_eq!(issues.len(), 1, "{ahead} calls ahead: {issues:?}");
    }
}

async fn forget_lease(stage: &Testbed) {
    use platform::store::{Condition, Key, RowWrite, Store};
    let gone = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
    stage.store.store.write(vec![gone], stage.now()).await.unwrap();
}
