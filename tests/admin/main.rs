//! The admin function: access, refusals, responses and their cost.

#![expect(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "tests may panic")]

mod access;
mod commands;
mod end_to_end;
mod explain;
mod harness;
mod insights;
mod lambda_binary;
mod latency;
mod malformed_input;
mod openapi;
mod queries;
mod runs;

use domain::id::PrId;
use domain::signals::{CheckFailure, CheckKind, CheckVerdict, RenewalMark};
use platform::store::Store;
use tests::{fact, minute, opened, pr, sha, start};

use harness::Harness;

/// `acme/web#<number>`.
fn web(number: u64) -> PrId {
    format!("acme/web#{number}").parse().unwrap()
}

/// A check of head `a` that fails with a network error.
fn failed_check(pr: &PrId, id: &str, minutes: i64) -> domain::event::Fact {
    let check = domain::signals::CheckReport {
        name: "build".to_owned(),
        kind: CheckKind::Run,
        verdict: CheckVerdict::Failed,
        id: Some(7),
        started_at: Some(start()),
        at: minute(minutes),
        failure: Some(CheckFailure { transient_rule: Some("network".to_owned()), text: "connection reset".to_owned() }),
        renewal: RenewalMark::None,
        posted_by: None,
    };
    fact(pr, id, minute(minutes), domain::event::FactKind::Check { head: sha('a'), check })
}

/// Two repositories: `acme/shop` with #1 (failed), #2 (just opened) and #3 (merged), `acme/web` with #1 (just opened).
async fn seed_records<S: Store + 'static>(harness: &Harness<S>) {
    harness.apply_fact(&opened(&pr(1), "d1", start())).await;
    harness.apply_fact(&failed_check(&pr(1), "d2", 3)).await;
    harness.apply_fact(&opened(&pr(2), "d3", minute(2))).await;
    for mut fact in tests::typical_life(&pr(3)) {
        fact.id = domain::id::EventId::new(format!("life-{}", fact.id));
        harness.apply_fact(&fact).await;
    }
    harness.apply_fact(&opened(&web(1), "d5", minute(4))).await;
    harness.clock.set(minute(20));
}
