//! Whether any remedy may be dispatched: the circuit breaker, after the results of the last minutes, and the pause
//! switch. And the mail about a trip, once for each.

use domain::breaker::{Breaker, BreakerState, SKIPPED_LOG};
use domain::comment::sweep as words;
use jiff::{SignedDuration, Timestamp};
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::{COUNT, Key, OnlyIf, Store, StoreError, Write, number, number_of};
use platform::sweep_summary::{Skip, Summary};
use platform::{breaker, guards};
use serde_dynamo::Item;
use tracing::{info, warn};

use super::Deferral;
use crate::context::{SweepContext, after};

/// While a person has paused Suture, stale pull requests are due again after this long.
const PAUSED_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// While a probe is in flight, after this long: it may close the breaker at any moment.
const PROBING_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// What the breaker would say is unknown.
pub(crate) fn unknown(now: Timestamp) -> Deferral {
    let why = "whether the circuit breaker is open could not be found out".to_owned();
    Deferral { skip: Skip::Store, why, until: Some(after(now, PROBING_AGAIN)) }
}

/// Trips the breaker if it has to be. Answers why nothing may be dispatched, if so.
pub(crate) async fn check(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    summary: &mut Summary,
) -> Result<Option<Deferral>, StoreError> {
    let now = cx.now();
    cx.evaluate_breaker().await?;
    let breaker = breaker::load(cx.store(), now).await?;
    let until = match &breaker.state {
        BreakerState::Closed => None,
        BreakerState::Open { cooldown_until, .. } => Some(*cooldown_until).filter(|until| now < *until),
        BreakerState::HalfOpen { lease_until, .. } => Some(after(now, PROBING_AGAIN).min(*lease_until)),
    };
    breaker.state.name().clone_into(&mut summary.breaker);
    let mut gate = None;
    if until.is_some() {
        info!(run = %cx.wish.run, "{SKIPPED_LOG}");
        gate = Some(Deferral { skip: Skip::Breaker, why: SKIPPED_LOG.to_owned(), until });
    }
    if let Some(by) = guards::paused(cx.store(), now).await? {
        let why = format!("{by} has paused Suture");
        gate = Some(Deferral { skip: Skip::Paused, why, until: Some(after(now, PAUSED_AGAIN)) });
    }
    cx.report_trip(&breaker, summary).await?;
    Ok(gate)
}

/// Each trip is mailed once: the number of the last one that was is in the table.
pub(crate) async fn report_trip(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    breaker: &Breaker,
    summary: &mut Summary,
) -> Result<(), StoreError> {
    let BreakerState::Open { since, cooldown_until, failure_rate_percent } = breaker.state else { return Ok(()) };
    let (key, now, trips) = (Key::state("BREAKER-TOLD"), cx.now(), breaker.trips);
    let mailed = cx.store().get(&key, now).await?.and_then(|row| number_of(&row, COUNT)).unwrap_or(0);
    if u64::try_from(mailed).unwrap_or(0) >= trips {
        return Ok(());
    }
    let what = Content::People(words::breaker_tripped(failure_rate_percent, since, cooldown_until));
    let parcel = Parcel { id: format!("breaker-trip-{trips}"), what };
    if let Err(error) = cx.engine.outlets().send_now(parcel).await {
        warn!(%error, "cannot send the mail about the breaker; the next sweep tries again");
        return Ok(());
    }
    summary.notices += 1;
    let mut item = Item::default();
    item.inner_mut().insert(COUNT.to_owned(), number(trips));
    cx.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Always }], now).await
}
