//! Circuit breaker rows.

use domain::breaker::{BreakerPermit, BreakerState, ProbeOutcome};
use domain::id::RunId;
use platform::store::Store;
use platform::store::breaker::{
    RemedyOutcome, count_outcome, evaluate, load, may_dispatch, minutes, probe_ended, reset,
};
use tests::{acting, minute, start};

fn run(n: u32) -> RunId {
    RunId::new(format!("run-{n}"))
}

pub(crate) async fn breaker_trips_once_and_admits_one_probe(store: &impl Store) {
    let policies = acting();
    let settings = &policies.base().breaker;
    assert_eq!(load(store, start()).await.unwrap().state, BreakerState::Closed);
    for n in 0..6 {
        let ended = if n < 2 { RemedyOutcome::Succeeded } else { RemedyOutcome::Failed };
        count_outcome(store, &run(n), ended, minute(i64::from(n))).await.unwrap();
        count_outcome(store, &run(n), ended, minute(i64::from(n))).await.unwrap();
    }
    let breaker = load(store, minute(6)).await.unwrap();
    let counted = minutes(store, &breaker, settings, minute(6)).await.unwrap();
    assert_eq!(breaker.window_counts(&counted, minute(6), settings).total(), 6, "a repeated outcome counts once");
    let tripped = evaluate(store, settings, minute(6)).await.unwrap().unwrap();
    assert_eq!(tripped.log, "circuit breaker tripped: 67% failure rate");
    assert_eq!(evaluate(store, settings, minute(6)).await.unwrap(), None, "once per trip");
    assert_eq!(
        may_dispatch(store, &run(7), settings, minute(7)).await.unwrap(),
        BreakerPermit::Refused { until: minute(16) }
    );
    assert!(matches!(may_dispatch(store, &run(7), settings, minute(16)).await.unwrap(), BreakerPermit::Probe(_)));
    let refused = may_dispatch(store, &run(8), settings, minute(16)).await.unwrap();
    assert_eq!(refused, BreakerPermit::Refused { until: minute(26) }, "only one probe");
    assert_eq!(
        may_dispatch(store, &run(7), settings, minute(16)).await.unwrap(),
        BreakerPermit::Allowed,
        "delivered again"
    );
    assert_eq!(probe_ended(store, &run(8), ProbeOutcome::Accepted, settings, minute(17)).await.unwrap(), None);
    let closed = probe_ended(store, &run(7), ProbeOutcome::Accepted, settings, minute(17)).await.unwrap().unwrap();
    assert_eq!(closed.state, BreakerState::Closed);
    assert_eq!(may_dispatch(store, &run(8), settings, minute(17)).await.unwrap(), BreakerPermit::Allowed);
    assert_eq!(evaluate(store, settings, minute(17)).await.unwrap(), None, "earlier failures are not counted again");
}

pub(crate) async fn breaker_can_be_reset_manually(store: &impl Store) {
    let policies = acting();
    let settings = &policies.base().breaker;
    for n in 0..6 {
        count_outcome(store, &run(n), RemedyOutcome::Failed, start()).await.unwrap();
    }
    evaluate(store, settings, start()).await.unwrap().unwrap();
    reset(store, minute(1)).await.unwrap();
    assert_eq!(load(store, minute(1)).await.unwrap().state, BreakerState::Closed);
    assert_eq!(load(store, minute(1)).await.unwrap().trips, 1);
}
