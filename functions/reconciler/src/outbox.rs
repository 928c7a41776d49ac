//! Delivers effects that were written with a decision and not delivered yet, and the mails held for a digest. An effect
//! that cannot be delivered stays in the outbox, with a later due date.

use domain::id::EffectId;
use futures_util::future::join_all;
use jiff::SignedDuration;
use platform::publish::Publisher;
use platform::store::schema;
use platform::store::{Condition, Store, StoreError};
use platform::sweep_summary::SweepSummary;

use crate::context::{SweepContext, saturating_after};
use crate::due::{defer, defer_undecodable};

/// An effect that could not be delivered is due again after this long.
const EFFECT_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(2);

pub(crate) async fn redeliver(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    ids: &[EffectId],
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    for group in ids.chunks(cx.concurrency()) {
        if cx.is_late(summary) {
            break;
        }
        let now = cx.now();
        let results = join_all(group.iter().map(|id| cx.engine.redeliver(id, now))).await;
        for (id, result) in group.iter().zip(results) {
            match result {
                Ok(true) => summary.delivered += 1,
                Ok(false) if cx.engine.publisher().is_held(id) => {}
                Ok(false) => {
                    summary.undelivered += 1;
                    defer(cx, schema::effect_key(id), EFFECT_RETRY_AFTER, Condition::Present).await?;
                }
                Err(error) => defer_undecodable(cx, schema::effect_key(id), error, summary).await?,
            }
        }
    }
    send_mails(cx, summary).await
}

/// Sends the mails held so far.
pub(crate) async fn send_mails(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let now = cx.now();
    summary.notices +=
        cx.engine.publisher().send_held(cx.store(), saturating_after(now, EFFECT_RETRY_AFTER), now).await?;
    Ok(())
}
