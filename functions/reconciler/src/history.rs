//! What was tried and what happened, for the mail to a person. Reading only; the words are the domain's.

use domain::comment::{Story, sweep};
use domain::id::PrId;
use jiff::Timestamp;

use platform::lookup;
use platform::store::{Store, StoreError};

/// Remedies that a mail names, the newest.
const MOST_REMEDIES: u32 = 20;
/// Events that a mail names, the newest.
const MOST_EVENTS: u32 = 30;

/// The story so far, oldest first.
pub(crate) async fn of<S: Store>(store: &S, pr: &PrId, now: Timestamp) -> Result<Story, StoreError> {
    let (runs, events) = tokio::try_join!(
        lookup::runs_of(store, Some(pr), None, MOST_REMEDIES, now),
        lookup::events(store, pr, true, None, MOST_EVENTS, now),
    )?;
    Ok(Story {
        remedies: runs.entries.iter().rev().filter_map(sweep::remedy_line).collect(),
        history: events.entries.iter().rev().map(sweep::event_line).collect(),
    })
}
