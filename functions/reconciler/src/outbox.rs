//! Sends messages that have waited, delivers effects that were written with a decision and not delivered yet, and the
//! mails held for a digest. What cannot be sent stays in the table, with a later due date.

use domain::id::EffectId;
use futures_util::future::join_all;
use jiff::SignedDuration;
use platform::engine::EngineError;
use platform::publish::Publisher;
use platform::store::schema;
use platform::store::waiting::{self, waiting_key};
use platform::store::{Condition, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::warn;

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

/// Sends the messages that have waited until now to the Car Bridge.
pub(crate) async fn send_waiting(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    ids: &[String],
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    for group in ids.chunks(cx.concurrency()) {
        if cx.is_late(summary) {
            break;
        }
        let results = join_all(group.iter().map(|id| send_one(cx, id))).await;
        for (id, result) in group.iter().zip(results) {
            match result {
                Ok(true) => summary.delivered += 1,
                Ok(false) => {
                    summary.undelivered += 1;
                    defer(cx, waiting_key(id), EFFECT_RETRY_AFTER, Condition::Present).await?;
                }
                Err(error) => defer_undecodable(cx, waiting_key(id), EngineError::Store(error), summary).await?,
            }
        }
    }
    Ok(())
}

/// Sends a message and deletes its row. After a crash in between it is sent again, and the Car Bridge recognises it. Returns whether it
/// was sent, by this sweep or another one.
async fn send_one(cx: &SweepContext<'_, impl Store, impl Publisher>, id: &str) -> Result<bool, StoreError> {
    let Some(waiting) = waiting::load(cx.store(), id, cx.now()).await? else { return Ok(true) };
    if let Err(error) = cx.engine.publisher().send_now(waiting.value.outbound()?).await {
        warn!(message = id, %error, "cannot send waiting message");
        return Ok(false);
    }
    waiting::delete(cx.store(), id, waiting.version, cx.now()).await?;
    Ok(true)
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
