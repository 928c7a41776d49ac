//! Limits of reconcile requests: one at a time per repository and five in total, 100 a day per repository and 1000 per owner, and
//! a maximum number of pull requests per request.

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

use crate::{base, deliver_webhook, open_not_due, push, request, run, runs, trigger, wait_until_not_due};

fn new_request(name: impl Into<String>, at: Timestamp) -> NewRequest {
    NewRequest { run: RunId::new(name), at, trigger: RunTrigger::Webhook, requested_by: None }
}

async fn enqueue(store: &MemoryStore, policies: &Policies, scope: ReconcileScope, at: Timestamp) -> EnqueueOutcome {
    let new_request = new_request(format!("{scope} {}", at.as_millisecond()), at);
    reconcile_request::enqueue(store, policies, (&scope, false), &new_request, at).await.unwrap()
}

fn pr_scope(repo: &str, number: u64) -> ReconcileScope {
    ReconcileScope::One(PrId::new(repo.parse().unwrap(), number))
}

#[tokio::test]
async fn hundred_and_first_request_of_a_repository_is_over_the_daily_limit() {
    let (store, policies) = (MemoryStore::new(), acting());
    for number in 1..=100 {
        let outcome = enqueue(&store, &policies, pr_scope("acme/shop", number), start()).await;
        assert!(matches!(outcome, EnqueueOutcome::Queued(_)), "{number}: {outcome:?}");
    }
    // Requests coalesced into a waiting one are counted once.
    for second in 1..=50 {
        let outcome =
            enqueue(&store, &policies, pr_scope("acme/shop", 7), start() + SignedDuration::from_secs(second)).await;
        assert!(matches!(outcome, EnqueueOutcome::Queued(_)), "{outcome:?}");
    }
    let EnqueueOutcome::OverLimit(why) = enqueue(&store, &policies, pr_scope("acme/shop", 101), start()).await else {
        panic!()
    };
    assert!(why.contains("100 requests for acme/shop") && why.contains("schedule"), "{why}");
    assert!(
        reconcile_request::load(&store, "pr:acme/shop#101", start()).await.unwrap().is_none(),
        "no request is queued"
    );
    // Other repositories have their own limit, requests for all are exempt, and the limit resets at midnight UTC.
    assert!(matches!(enqueue(&store, &policies, pr_scope("acme/web", 1), start()).await, EnqueueOutcome::Queued(_)));
    assert!(matches!(enqueue(&store, &policies, ReconcileScope::All, start()).await, EnqueueOutcome::Queued(_)));
    let tomorrow: Timestamp = "2036-03-04T00:00:00Z".parse().unwrap();
    let last = tomorrow - SignedDuration::from_secs(1);
    assert!(matches!(enqueue(&store, &policies, pr_scope("acme/shop", 102), last).await, EnqueueOutcome::OverLimit(_)));
    assert!(matches!(
        enqueue(&store, &policies, pr_scope("acme/shop", 102), tomorrow).await,
        EnqueueOutcome::Queued(_)
    ));
}

#[tokio::test]
async fn thousand_and_first_request_of_an_owner_is_over_the_daily_limit() {
    let (store, policies) = (MemoryStore::new(), acting());
    for repo in 0..10 {
        for number in 1..=100 {
            let outcome = enqueue(&store, &policies, pr_scope(&format!("acme/shop-{repo}"), number), start()).await;
            assert!(matches!(outcome, EnqueueOutcome::Queued(_)), "{repo} {number}: {outcome:?}");
        }
    }
    let EnqueueOutcome::OverLimit(why) = enqueue(&store, &policies, pr_scope("acme/new", 1), start()).await else {
        panic!()
    };
    assert!(why.contains("1000 requests for acme;"), "{why}");
    assert!(matches!(enqueue(&store, &policies, pr_scope("other/new", 1), start()).await, EnqueueOutcome::Queued(_)));
    assert!(
        matches!(enqueue(&store, &policies, ReconcileScope::All, start()).await, EnqueueOutcome::Queued(_)),
        "requests for all are exempt"
    );
    // A repository may configure its own limit.
    let own = Policies::parse("[repos.'acme/quiet']\ntriggers.per_repo_per_day = 1").unwrap();
    let (store, scope) = (MemoryStore::new(), |number| pr_scope("acme/quiet", number));
    assert!(matches!(enqueue(&store, &own, scope(1), minute(1)).await, EnqueueOutcome::Queued(_)));
    assert!(matches!(enqueue(&store, &own, scope(2), minute(1)).await, EnqueueOutcome::OverLimit(_)));
}

#[tokio::test]
async fn push_over_daily_limit_is_left_to_the_schedule() {
    let testbed = Testbed::new(FakeSettings::default(), "triggers.per_repo_per_day = 1");
    let prs = open_not_due(&testbed, 2).await;
    let ReconcileScope::Base(repo, branch) = base() else { panic!() };
    let pushed = |at: Timestamp| {
        json!({"ref": format!("refs/heads/{branch}"), "deleted": false,
               "repository": {"full_name": repo.as_str(), "pushed_at": at.as_second()}})
    };
    assert_eq!(deliver_webhook(&testbed, "push", "d-1", &pushed(testbed.now())).await["status"], "applied");
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(10)));
    assert_eq!(testbed.sweep_now().await.requests, 1);
    let now = testbed.now();
    let response = deliver_webhook(&testbed, "push", "d-2", &pushed(now)).await;
    assert_eq!(response["status"], "throttled_delayed", "{response}");
    assert!(response["reason"].as_str().unwrap().contains("left to the schedule"), "{response}");
    assert_eq!(request(&testbed, &base()).await.unwrap().waiting(), None);
    // The scheduled sweep verifies the pull requests when they are due.
    testbed.sweeping.set(true);
    let healed = testbed.until(180, async |testbed| {
        let mut verified = Vec::new();
        for pr in &prs {
            verified.push(testbed.find(pr).await.is_none_or(|record| record.verified_at > Some(now)));
        }
        verified.into_iter().all(|one| one)
    });
    assert!(healed.await);
}

#[tokio::test]
async fn one_request_per_repository_runs_at_a_time() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_not_due(&testbed, 2).await;
    let (one, other) = (testbed.another_sweep(), testbed.another_sweep());
    let now = testbed.now();
    let (first, second) =
        (trigger("first", ReconcileScope::One(pr_id(&prs[0]))), trigger("second", ReconcileScope::One(pr_id(&prs[1]))));
    let (first, second) =
        tokio::join!(one.sweep(&first, now + SWEEP_TIMEOUT), other.sweep(&second, now + SWEEP_TIMEOUT));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(matches!(first, SweepOutcome::Done(_)), "{first:?}");
    let SweepOutcome::Busy { by, .. } = second else { panic!("{second:?}") };
    assert_eq!(by, "another request of the same repository");
    let waiting = run(&testbed, "second").await.unwrap();
    assert_eq!(waiting.state, RunState::Pending, "the request waits and was not attempted");
    assert_eq!(testbed.sweep_now().await.requests, 1);
    let done = run(&testbed, "second").await.unwrap();
    assert_eq!(done.state, RunState::Completed);
}

/// Ten requests of nine repositories, two of them for the first: counts the requests that run at the same time.
#[tokio::test]
async fn at_most_five_requests_run_at_once() {
    let names: Vec<String> = (0..9).map(|n| format!("acme/shop-{n}")).collect();
    let settings =
        FakeSettings { repos: names.iter().map(|name| RepoSettings::new(name)).collect(), ..FakeSettings::default() };
    let testbed = Testbed::new(settings, "");
    let open = |testbed: &Testbed, name: &String| {
        testbed.with(|fakes| fakes.open_pr(NewPullRequest { repo: name.clone(), ..NewPullRequest::default() }))
    };
    let mut prs: Vec<FakePrId> = names.iter().map(|name| open(&testbed, name)).collect();
    prs.push(open(&testbed, &names[0]));
    wait_until_not_due(&testbed, &prs).await;
    let scopes: Vec<ReconcileScope> = prs.iter().map(|pr| ReconcileScope::One(pr_id(pr))).collect();
    let now = testbed.now();
    for scope in &scopes {
        let new_request = new_request(format!("run of {scope}"), now - SignedDuration::from_secs(60));
        reconcile_request::enqueue(&testbed.store, &testbed.policies, (scope, false), &new_request, now).await.unwrap();
    }
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(10)));
    let sweep_done = AtomicBool::new(false);
    let (sweep, other) = (testbed.another_sweep(), testbed.another_sweep());
    let deadline = testbed.now() + SWEEP_TIMEOUT;
    let tick = scheduled_sweep("tick", testbed.now());
    let sweeping = async {
        let sweep_outcome = sweep.sweep(&tick, deadline).await.unwrap();
        sweep_done.store(true, Ordering::SeqCst);
        sweep_outcome
    };
    // A second process receives a request for one of them from the event bus.
    let requested = async {
        tokio::task::yield_now().await;
        other.sweep(&trigger("woken", scopes[8].clone()), deadline).await.unwrap()
    };
    let measured = async {
        let (mut most, mut of_first) = (0, 0);
        while !sweep_done.load(Ordering::SeqCst) {
            let mut under_way = Vec::new();
            for scope in &scopes {
                if request(&testbed, scope).await.is_some_and(|request| request.running().is_some()) {
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
    let (sweep_outcome, _, (most, of_first)) = tokio::join!(sweeping, requested, measured);
    let SweepOutcome::Done(summary) = sweep_outcome else { panic!("{sweep_outcome:?}") };
    println!("of ten requests at most {most} ran at once; {} completed in one sweep", summary.requests);
    assert_eq!((most, of_first), (5, 1));
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
    testbed.sweep_now().await;
    for scope in &scopes {
        assert_eq!(request(&testbed, scope).await.unwrap().due_at(), None, "{scope}");
    }
    assert_eq!(runs(&testbed).await.iter().filter(|run| run.state == RunState::Completed).count(), 10);
}

#[tokio::test]
async fn request_visits_max_prs_by_priority_and_lists_the_rest() {
    let testbed = Testbed::new(FakeSettings::default(), "triggers.max_prs = 3");
    let prs = open_not_due(&testbed, 8).await;
    testbed.with(|fakes| fakes.person_labels(&prs[6], "maria", "suture/priority-p0"));
    testbed.with(|fakes| fakes.person_labels(&prs[4], "maria", "suture/priority-p1"));
    testbed.pass(1).await;
    testbed.sweep_now().await;
    push(&testbed);
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(12)));
    testbed.settle().await;
    let verified = async |testbed: &Testbed| {
        let mut at = Vec::new();
        for pr in &prs {
            at.push(testbed.record(pr).await.verified_at);
        }
        at
    };
    let before = verified(&testbed).await;
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(12)));
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger("now", base())).await else { panic!("no sweep") };
    let after = verified(&testbed).await;
    let visited: Vec<usize> = (0..8).filter(|n| before[*n] != after[*n]).collect();
    assert_eq!(visited, [0, 4, 6], "the two with priority, and the oldest of the others");
    assert_eq!((summary.due, summary.verified, summary.remaining), (8, 3, 5), "{summary:?}");
    let others: Vec<String> = [1, 2, 3, 5, 7].map(|n: usize| prs[n].to_string()).into();
    assert_eq!(summary.over_limit, others);
    let recorded = summary_of(&run(&testbed, "now").await.unwrap()).unwrap();
    assert_eq!(recorded.over_limit, others, "the run lists them too");
    // The push made them due: the next scheduled sweep verifies them.
    let next = testbed.sweep_now().await;
    assert_eq!((next.due, next.verified), (5, 5), "{next:?}");
}
