//! The gates of one sweep: the pause switch and the circuit breaker, read once together with the times before which
//! GitHub and the inventory wait. Sends one mail for each trip of the breaker, and records when everything that an opened
//! gate had put off was visited.

use domain::admission::Gates;
use domain::breaker::{Breaker, BreakerState};
use domain::github_contact::GithubContact;
use domain::policy::Policy;
use domain::text::sweep as sweep_text;
use jiff::{SignedDuration, Timestamp};
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::store::gates::{self, GateRows};
use platform::store::github_contact;
use platform::store::last_webhook;
use platform::store::not_before;
use platform::store::{COUNT, Condition, Key, RowWrite, Store, StoreError, number, number_of};
use platform::sweep_summary::{SkipReason, SweepSummary};
use serde_dynamo::Item;
use tracing::{info, warn};

use super::Deferral;
use super::rate_budget::GITHUB;
use crate::context::{SweepContext, saturating_after};
use crate::inventory::INVENTORY;

/// While the gates cannot be read, stale pull requests are due again after this long.
const UNREAD_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// What a sweep reads before anything else, in one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct SweepRows {
    pub(crate) gate_rows: GateRows,
    /// Until when GitHub's rate limit forbids requests.
    pub(crate) github_not_before: Option<Timestamp>,
    /// When the next inventory is due, if it is not due now.
    pub(crate) inventory_not_before: Option<Timestamp>,
    /// When GitHub was last read.
    pub(crate) github_contact: GithubContact,
    /// When GitHub's last webhook was received.
    pub(crate) last_webhook: Option<Timestamp>,
    /// The number of the last breaker trip that was mailed.
    mailed_trips: u64,
}

impl SweepRows {
    pub(crate) fn gates(&self) -> &Gates {
        &self.gate_rows.gates
    }

    /// Whether they give a sweep without due items something to do.
    pub(crate) fn are_idle(&self) -> bool {
        let breaker_is_closed = self.gates().breaker.state == BreakerState::Closed;
        breaker_is_closed && !self.gate_rows.has_opened() && self.inventory_not_before.is_some()
    }
}

fn notice_key() -> Key {
    Key::state("BREAKER-NOTICE")
}

pub(crate) async fn load<S: Store>(store: &S, now: Timestamp) -> Result<SweepRows, StoreError> {
    let [breaker, pause, released] = gates::keys();
    let limits = [not_before::key(GITHUB), not_before::key(INVENTORY)];
    let others = [notice_key(), github_contact::key(), last_webhook::key()].into_iter().chain(limits);
    let keys: Vec<Key> = [breaker, pause, released].into_iter().chain(others).collect();
    let rows = store.get_many(&keys, now).await?;
    let mailed = rows.iter().find(|(key, _)| *key == notice_key()).and_then(|(_, row)| number_of(row, COUNT));
    Ok(SweepRows {
        gate_rows: gates::read(&rows, now)?,
        github_not_before: not_before::read(&rows, GITHUB, now),
        inventory_not_before: not_before::read(&rows, INVENTORY, now),
        github_contact: github_contact::read(&rows)?,
        last_webhook: last_webhook::read(&rows),
        mailed_trips: mailed.and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
    })
}

/// The deferral while the gates cannot be read.
pub(crate) fn unread(now: Timestamp) -> Deferral {
    let why = "cannot read the pause switch and the circuit breaker".to_owned();
    Deferral { skip: SkipReason::Store, why, until: Some(saturating_after(now, UNREAD_RETRY_AFTER)), gate: None }
}

/// The longest time that a gate puts something off.
pub(crate) fn longest_put_off(policy: &Policy) -> SignedDuration {
    SignedDuration::from_mins(i64::from(policy.breaker.cooldown_minutes)).max(domain::admission::PAUSED_RETRY_AFTER)
}

/// Evaluates the breaker before remedies are dispatched, and mails a trip.
pub(crate) async fn evaluate(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: &mut SweepRows,
    has_work: bool,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    if has_work && let Some(tripped) = cx.evaluate_breaker().await? {
        rows.gate_rows.gates.breaker = tripped;
    }
    let gates = rows.gates();
    summary.breaker = Some(gates.breaker.state.status());
    if let Some(put_off) = gates.put_off(cx.now()).filter(|_| has_work) {
        info!(run = %cx.trigger.run, "{}", put_off.why);
    }
    cx.report_trip(rows, summary).await
}

/// Mails each trip once: the table stores the number of the last trip that was mailed.
pub(crate) async fn report_trip(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: &SweepRows,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let Breaker { state: BreakerState::Open { since, cooldown_until, failure_rate_percent }, trips, .. } =
        rows.gates().breaker
    else {
        return Ok(());
    };
    if rows.mailed_trips >= trips {
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
    let write = RowWrite::Put { key: notice_key(), item, only_if: Condition::Always };
    cx.store().write(vec![write], cx.now()).await
}

/// Records that this sweep visited everything that the gates had put off, unless it left something for the next one.
pub(crate) async fn mark_released(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: &SweepRows,
    summary: &SweepSummary,
) -> Result<(), StoreError> {
    if !rows.gate_rows.has_opened() || summary.partial || summary.cancelled || summary.remaining > 0 {
        return Ok(());
    }
    gates::mark_released(cx.store(), rows.gates(), cx.now()).await
}
