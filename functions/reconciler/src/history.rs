//! Reads the remedies and events of a pull request for the escalation mail. The domain words them.

use domain::id::PrId;
use domain::text::{EscalationHistory, sweep};
use jiff::Timestamp;

use platform::store::queries;
use platform::store::{Store, StoreError};

/// How many of the newest remedies a mail lists.
const MAX_REMEDIES: u32 = 20;
/// How many of the newest events a mail lists.
const MAX_EVENTS: u32 = 30;

/// The history, oldest first.
pub(crate) async fn load<S: Store>(store: &S, pr: &PrId, now: Timestamp) -> Result<EscalationHistory, StoreError> {
    let (runs, events) = tokio::try_join!(
        queries::runs_of(store, Some(pr), None, MAX_REMEDIES, now),
        queries::events(store, pr, true, None, MAX_EVENTS, now),
    )?;
    Ok(EscalationHistory {
        remedies: runs.entries.iter().rev().filter_map(sweep::remedy_line).collect(),
        events: events.entries.iter().rev().map(sweep::event_line).collect(),
    })
}
