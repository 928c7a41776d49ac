//! Decides whether any remedy may be dispatched: evaluates the circuit breaker and reads the pause switch. Sends one
//! mail for each trip of the breaker.

use domain::breaker::{Breaker, BreakerState, SKIPPED_LOG};
use domain::text::sweep as sweep_text;
use jiff::{SignedDuration, Timestamp};
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::store::breaker as breakers;
use platform::store::pause;
use platform::store::{COUNT, Condition, Key, RowWrite, Store, StoreError, number, number_of};
use platform::sweep_summary::{SkipReason, SweepSummary};
use serde_dynamo::Item;
use tracing::{info, warn};

use super::Deferral;
use crate::context::{SweepContext, saturating_after};

/// While Suture is paused, stale pull requests are due again after this long.
const PAUSED_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// While a probe is in flight, they are due again after this long: it may close the breaker at any moment.
const PROBE_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The deferral while the breaker state cannot be read.
pub(crate) fn unknown(now: Timestamp) -> Deferral {
    let why = "cannot read the circuit breaker".to_owned();
    Deferral { skip: SkipReason::Store, why, until: Some(saturating_after(now, PROBE_RETRY_AFTER)) }
}

/// Evaluates the breaker, and stores its state in `breaker`. Returns why no remedy may be dispatched, if so.
pub(crate) async fn check(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    breaker: &mut Option<BreakerState>,
    summary: &mut SweepSummary,
) -> Result<Option<Deferral>, StoreError> {
    let now = cx.now();
    cx.evaluate_breaker().await?;
    let loaded = breakers::load(cx.store(), now).await?;
    let until = match &loaded.state {
        BreakerState::Closed => None,
        BreakerState::Open { cooldown_until, .. } => Some(*cooldown_until).filter(|until| now < *until),
        BreakerState::HalfOpen { lease_until, .. } => Some(saturating_after(now, PROBE_RETRY_AFTER).min(*lease_until)),
    };
    summary.breaker = Some(loaded.state.status());
    *breaker = Some(loaded.state.clone());
    let mut gate = None;
    if until.is_some() {
        info!(run = %cx.trigger.run, "{SKIPPED_LOG}");
        gate = Some(Deferral { skip: SkipReason::Breaker, why: SKIPPED_LOG.to_owned(), until });
    }
    if let Some(by) = pause::paused_by(cx.store(), now).await? {
        let why = format!("Suture is paused by {by}");
        gate = Some(Deferral { skip: SkipReason::Paused, why, until: Some(saturating_after(now, PAUSED_RETRY_AFTER)) });
    }
    cx.report_trip(&loaded, summary).await?;
    Ok(gate)
}

/// Mails each trip once: the table stores the number of the last trip that was mailed.
pub(crate) async fn report_trip(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    breaker: &Breaker,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let BreakerState::Open { since, cooldown_until, failure_rate_percent } = breaker.state else { return Ok(()) };
    let (key, now, trips) = (Key::state("BREAKER-NOTICE"), cx.now(), breaker.trips);
    let mailed = cx.store().get(&key, now).await?.and_then(|row| number_of(&row, COUNT)).unwrap_or(0);
    if u64::try_from(mailed).unwrap_or(0) >= trips {
        return Ok(());
    }
    let what = Destination::Notice(sweep_text::breaker_tripped(failure_rate_percent, since, cooldown_until));
    let outbound = OutboundMessage { id: format!("breaker-trip-{trips}"), destination: what };
    if let Err(error) = cx.engine.publisher().send_now(outbound).await {
        warn!(%error, "cannot send breaker mail; next sweep retries");
        return Ok(());
    }
    summary.notices += 1;
    let mut item = Item::default();
    item.inner_mut().insert(COUNT.to_owned(), number(trips));
    cx.store().write(vec![RowWrite::Put { key, item, only_if: Condition::Always }], now).await
}
