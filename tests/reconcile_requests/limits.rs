//! What keeps requests within bounds: one at a time for a repository and five in all, a hundred a day for a repository and a
//! thousand for its owner, and so many pull requests for each.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::id::{PrId, RepoName, RunId};
use domain::policy::Policies;
use domain::reconcile_request::{NewRequest, ReconcileScope};
use domain::run::{RunState, RunTrigger};
use fakes::{FakePrId, FakeSettings, NewPullRequest, RepoSettings};
use jiff::{SignedDuration, Timestamp};
use platform::reconcile_request::{self, EnqueueOutcome};
use platform::sweep_summary::summary_of;
use reconciler::SweepOutcome;
use serde_json::json;
use testbed::{MemoryStore, SWEEP_TIMEOUT, Testbed, pr_id, scheduled_sweep};
use tests::{acting, minute, start};

use crate::{base, hear, push, quiet, request, run, runs, settled, wish};

fn ask(name: impl Into<String>, at: Timestamp) -> NewRequest {
    NewRequest { run: RunId::new(name), at, trigger: RunTrigger::Webhook, requested_by: None }
}

async fn take(store: &MemoryStore, policies: &Policies, scope: ReconcileScope, at: Timestamp) -> EnqueueOutcome {
    let ask = ask(format!("{scope} {}", at.as_millisecond()), at);
    reconcile_request::enqueue(store, policies, (&scope, false), &ask, at).await.unwrap()
}

fn one(repo: &str, number: u64) -> ReconcileScope {
    ReconcileScope::One(PrId::new(repo.parse().unwrap(), number))
}

#[tokio::test]
async fn a_hundred_a_day_for_a_repository_and_the_hundred_and_first_is_left_to_the_schedule() {
    let (store, policies) = (MemoryStore::new(), acting());
    for number in 1..=100 {
        let taken = take(&store, &policies, one("acme/shop", number), start()).await;
        assert!(matches!(taken, EnqueueOutcome::Queued(_)), "{number}: {taken:?}");
    }
    // What stands for something that waits already is counted once.
    for second in 1..=50 {
        let again = take(&store, &policies, one("acme/shop", 7), start() + SignedDuration::from_secs(second)).await;
        assert!(matches!(again, EnqueueOutcome::Queued(_)), "{again:?}");
    }
    let EnqueueOutcome::OverLimit(why) = take(&store, &policies, one("acme/shop", 101), start()).await else {
        panic!()
    };
    assert!(why.contains("100 requests for acme/shop") && why.contains("schedule"), "{why}");
    assert!(reconcile_request::load(&store, "pr:acme/shop#101", start()).await.unwrap().is_none(), "nothing waits");
    // Another repository has its own hundred, everything is exempt, and tomorrow there is room again.
    assert!(matches!(take(&store, &policies, one("acme/web", 1), start()).await, EnqueueOutcome::Queued(_)));
    assert!(matches!(take(&store, &policies, ReconcileScope::All, start()).await, EnqueueOutcome::Queued(_)));
    let tomorrow: Timestamp = "2036-03-04T00:00:00Z".parse().unwrap();
    let last = tomorrow - SignedDuration::from_secs(1);
    assert!(matches!(take(&store, &policies, one("acme/shop", 102), last).await, EnqueueOutcome::OverLimit(_)));
    assert!(matches!(take(&store, &policies, one("acme/shop", 102), tomorrow).await, EnqueueOutcome::Queued(_)));
}

#[tokio::test]
async fn a_thousand_a_day_for_an_owner() {
    let (store, policies) = (MemoryStore::new(), acting());
    for repo in 0..10 {
        for number in 1..=100 {
            let taken = take(&store, &policies, one(&format!("acme/shop-{repo}"), number), start()).await;
            assert!(matches!(taken, EnqueueOutcome::Queued(_)), "{repo} {number}: {taken:?}");
        }
    }
    let EnqueueOutcome::OverLimit(why) = take(&store, &policies, one("acme/new", 1), start()).await else { panic!() };
    assert!(why.contains("1000 requests for acme;"), "{why}");
    assert!(matches!(take(&store, &policies, one("other/new", 1), start()).await, EnqueueOutcome::Queued(_)));
    assert!(
        matches!(take(&store, &policies, ReconcileScope::All, start()).await, EnqueueOutcome::Queued(_)),
        "everything is exempt"
    );
    // A repository's own limit, where it has one.
    let own = Policies::parse("[repos.'acme/quiet']\ntriggers.per_repo_per_day = 1").unwrap();
    let (store, quiet) = (MemoryStore::new(), |number| one("acme/quiet", number));
    assert!(matches!(take(&store, &own, quiet(1), minute(1)).await, EnqueueOutcome::Queued(_)));
    assert!(matches!(take(&store, &own, quiet(2), minute(1)).await, EnqueueOutcome::OverLimit(_)));
}

#[tokio::test]
async fn over_the_limit_a_push_is_answered_and_logged_and_the_schedule_does_its_work() {
    let stage = Testbed::new(FakeSettings::default(), "triggers.per_repo_per_day = 1");
    let prs = quiet(&stage, 2).await;
    let ReconcileScope::Base(repo, branch) = base() else { panic!() };
    let pushed = |at: Timestamp| {
        json!({"ref": format!("refs/heads/{branch}"), "deleted": false,
               "repository": {"full_name": repo.as_str(), "pushed_at": at.as_second()}})
    };
    assert_eq!(hear(&stage, "push", "d-1", &pushed(stage.now())).await["status"], "applied");
    stage.with(|world| world.advance(SignedDuration::from_secs(10)));
    assert_eq!(stage.sweep_now().await.requests, 1);
    let now = stage.now();
    let over = hear(&stage, "push", "d-2", &pushed(now)).await;
    assert_eq!(over["status"], "throttled_delayed", "{over}");
    assert!(over["reason"].as_str().unwrap().contains("left to the schedule"), "{over}");
    assert_eq!(request(&stage, &base()).await.unwrap().waiting(), None);
    // Whatever the push did to them, the schedule finds out when they are due.
    stage.sweeping.set(true);
    let healed = stage.until(180, async |stage| {
        let mut verified = Vec::new();
        for pr in &prs {
            verified.push(stage.find(pr).await.is_none_or(|record| record.verified_at > Some(now)));
        }
        verified.into_iter().all(|one| one)
    });
    assert!(healed.await);
}

#[tokio::test]
async fn one_at_a_time_for_a_repository() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = quiet(&stage, 2).await;
    let (one, other) = (stage.another_sweep(), stage.another_sweep());
    let now = stage.now();
    let (first, second) =
        (wish("first", ReconcileScope::One(pr_id(&prs[0]))), wish("second", ReconcileScope::One(pr_id(&prs[1]))));
    let (first, second) =
        tokio::join!(one.sweep(&first, now + SWEEP_TIMEOUT), other.sweep(&second, now + SWEEP_TIMEOUT));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(matches!(first, SweepOutcome::Done(_)), "{first:?}");
    let SweepOutcome::Busy { by, .. } = second else { panic!("{second:?}") };
    assert_eq!(by, "another request of the same repository");
    let waiting = run(&stage, "second").await.unwrap();
    assert_eq!(waiting.state, RunState::Pending, "it waits, and was not tried");
    assert_eq!(stage.sweep_now().await.requests, 1);
    let done = run(&stage, "second").await.unwrap();
    assert_eq!(done.state, RunState::Completed);
}

/// Nine requests of nine repositories and a second one of the first: the most under way at any moment.
#[tokio::test]
async fn five_at_once_in_all() {
    let names: Vec<String> = (0..9).map(|n| format!("acme/shop-{n}")).collect();
    let settings =
        FakeSettings { repos: names.iter().map(|name| RepoSettings::new(name)).collect(), ..FakeSettings::default() };
    let stage = Testbed::new(settings, "");
    let open = |stage: &Testbed, name: &String| {
        stage.with(|world| world.open_pr(NewPullRequest { repo: name.clone(), ..NewPullRequest::default() }))
    };
    let mut prs: Vec<FakePrId> = names.iter().map(|name| open(&stage, name)).collect();
    prs.push(open(&stage, &names[0]));
    settled(&stage, &prs).await;
    let scopes: Vec<ReconcileScope> = prs.iter().map(|pr| ReconcileScope::One(pr_id(pr))).collect();
    let now = stage.now();
    for scope in &scopes {
        let ask = ask(format!("run of {scope}"), now - SignedDuration::from_secs(60));
        reconcile_request::enqueue(&stage.store, &stage.policies, (scope, false), &ask, now).await.unwrap();
    }
    stage.with(|world| world.advance(SignedDuration::from_secs(10)));
    let over = AtomicBool::new(false);
    let (sweep, other) = (stage.another_sweep(), stage.another_sweep());
    let deadline = stage.now() + SWEEP_TIMEOUT;
    let tick = scheduled_sweep("tick", stage.now());
    let swept = async {
        let swept = sweep.sweep(&tick, deadline).await.unwrap();
        over.store(true, Ordering::SeqCst);
        swept
    };
    // Somebody else, woken by the bus, wants one of them too.
    let woken = async {
        tokio::task::yield_now().await;
        other.sweep(&wish("woken", scopes[8].clone()), deadline).await.unwrap()
    };
    let watched = async {
        let (mut most, mut of_first) = (0, 0);
        while !over.load(Ordering::SeqCst) {
            let mut under_way = Vec::new();
            for scope in &scopes {
                if request(&stage, scope).await.is_some_and(|request| request.running().is_some()) {
                    under_way.push(scope.repo().unwrap().clone());
                }
            }
            let first: RepoName = names[0].parse().unwrap();
            of_first = of_first.max(under_way.iter().filter(|repo| **repo == first).count());
            most = most.max(under_way.len());
            tokio::task::yield_now().await;
        }
        (most, of_first)
    };
    let (swept, _, (most, of_first)) = tokio::join!(swept, woken, watched);
    let SweepOutcome::Done(summary) = swept else { panic!("{swept:?}") };
    println!("of ten requests at most {most} were under way at once; {} were granted in one sweep", summary.requests);
    assert_eq!((most, of_first), (5, 1));
    stage.with(|world| world.advance(SignedDuration::from_mins(1)));
    stage.sweep_now().await;
    for scope in &scopes {
        assert_eq!(request(&stage, scope).await.unwrap().due_at(), None, "{scope}");
    }
    assert_eq!(runs(&stage).await.iter().filter(|run| run.state == RunState::Completed).count(), 10);
}

#[tokio::test]
async fn a_request_visits_so_many_by_priority_and_names_the_others() {
    let stage = Testbed::new(FakeSettings::default(), "triggers.max_prs = 3");
    let prs = quiet(&stage, 8).await;
    stage.with(|world| world.person_labels(&prs[6], "maria", "suture/priority-p0"));
    stage.with(|world| world.person_labels(&prs[4], "maria", "suture/priority-p1"));
    stage.pass(1).await;
    stage.sweep_now().await;
    push(&stage);
    stage.with(|world| world.advance(SignedDuration::from_secs(12)));
    stage.settle().await;
    let verified = async |stage: &Testbed| {
        let mut at = Vec::new();
        for pr in &prs {
            at.push(stage.record(pr).await.verified_at);
        }
        at
    };
    let before = verified(&stage).await;
    stage.with(|world| world.advance(SignedDuration::from_secs(12)));
    let SweepOutcome::Done(summary) = stage.request_sweep(&wish("now", base())).await else { panic!("no sweep") };
    let after = verified(&stage).await;
    let visited: Vec<usize> = (0..8).filter(|n| before[*n] != after[*n]).collect();
    assert_eq!(visited, [0, 4, 6], "the two that are urgent, and the oldest of the others");
    assert_eq!((summary.due, summary.verified, summary.left), (8, 3, 5), "{summary:?}");
    let others: Vec<String> = [1, 2, 3, 5, 7].map(|n: usize| prs[n].to_string()).into();
    assert_eq!(summary.left_out, others);
    let said = summary_of(&run(&stage, "now").await.unwrap()).unwrap();
    assert_eq!(said.left_out, others, "and its run says so");
    // They have heard of the push: the schedule looks at them next.
    let next = stage.sweep_now().await;
    assert_eq!((next.due, next.verified), (5, 5), "{next:?}");
}
