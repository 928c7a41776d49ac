//! How long a decision takes: `decide` on a record with 20 checks, and `classify` on the same record. Run with
//! `cargo bench -p domain`; the figures are in docs/performance.md.

#![expect(clippy::expect_used, reason = "a benchmark may stop when its own setting is wrong")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use domain::decide::decide;
use domain::diagnosis::{DiagnosisInput, classify};
use domain::event::{Actor, Fact, FactKind, PullRequestDetails};
use domain::id::{EventId, PrId, Sha};
use domain::policy::{Mode, Policies, Policy};
use domain::pull_request::PullRequest;
use domain::signals::{CheckFailure, CheckKind, CheckReport, CheckVerdict, RenewalMark};
use domain::snapshot::{LiveStatus, Mergeability};
use jiff::{SignedDuration, Timestamp};

fn head() -> Sha {
    "a".repeat(40).parse().expect("forty digits")
}

fn at(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

fn fact(n: usize, minute: i64, what: FactKind) -> Fact {
    let pr: PrId = "acme/my-app#42".parse().expect("a pull request");
    Fact {
        id: EventId::new(format!("d{n}")),
        pr,
        occurred_at: at(minute),
        actor: Actor::GithubWebhook,
        kind: what,
        described: None,
    }
}

fn check(n: usize, verdict: CheckVerdict, minute: i64) -> FactKind {
    let failure = (verdict == CheckVerdict::Failed).then(|| CheckFailure {
        transient_rule: Some("timeout".to_owned()),
        text: "timed out after 60 minutes".to_owned(),
    });
    let check = CheckReport {
        name: format!("continuous-integration/jenkins/stage-{n:02}"),
        kind: CheckKind::Run,
        verdict,
        id: Some(1000 + n as u64),
        started_at: Some(at(1)),
        at: at(minute),
        failure,
        renewal: RenewalMark::None,
        posted_by: None,
    };
    FactKind::Check { head: head(), check }
}

/// A pull request with 20 required checks, 19 of them green, the last one running.
fn record(policy: &Policy) -> PullRequest {
    let described = PullRequestDetails {
        node_id: Some("PR_kwDOABCDEF".to_owned()),
        html_url: None,
        branch: "codegenie/fix".to_owned(),
        base_branch: "main".to_owned(),
        head: head(),
        labels: vec![],
        draft: false,
        vulnerability_id: Some("CVE-2026-1234".to_owned()),
        created_at: at(0),
        size: Some(12),
        required_checks: None,
    };
    let mut record = decide(policy, None, &fact(0, 0, FactKind::Opened(described)), at(0)).record;
    for n in 0..20 {
        let verdict = if n == 19 { CheckVerdict::Running } else { CheckVerdict::Passed };
        let fact_of_interest = fact(n + 1, 2, check(n, verdict, 2));
        record = decide(policy, record, &fact_of_interest, at(2)).record;
    }
    let mut record = record.expect("it was opened");
    record.required_checks = (0..20).map(|n| format!("continuous-integration/jenkins/stage-{n:02}")).collect();
    record
}

fn benchmarks(criterion: &mut Criterion) {
    let mut policy = Policies::default().base().clone();
    policy.mode = Mode::Act;
    let running = record(&policy);
    let passes = fact(50, 9, check(19, CheckVerdict::Passed, 9));
    let again = fact(51, 2, check(3, CheckVerdict::Passed, 2));
    let fails = fact(52, 9, check(19, CheckVerdict::Failed, 9));
    for (name, fact_of_interest) in [("last check passes", &passes), ("nothing new", &again), ("a check fails", &fails)]
    {
        criterion.bench_function(&format!("decide, 20 checks: {name}"), |bench| {
            bench.iter_batched(
                || running.clone(),
                |record| decide(&policy, Some(record), black_box(fact_of_interest), at(10)),
                BatchSize::SmallInput,
            );
        });
    }
    let failed = decide(&policy, Some(running), &fails, at(10)).record.expect("it changed");
    let live = LiveStatus { mergeable: Mergeability::Clean, behind_by: Some(0), strict: true, build: None };
    criterion.bench_function("classify, 20 checks: transient failure", |bench| {
        bench.iter(|| {
            let case = DiagnosisInput {
                record: black_box(&failed),
                live: Some(&live),
                vulnerability: None,
                policy: &policy,
                now: at(60),
            };
            classify(&case)
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).measurement_time(std::time::Duration::from_secs(3));
    targets = benchmarks
}
criterion_main!(benches);
