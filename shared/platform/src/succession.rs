//! A fresh pull request takes the place of one that was closed for it: both are told. Asked when a pull request is opened, and
//! again when a replacement seems to be missing, so that a crash in between leaves nothing unlinked.

use domain::event::{Actor, Fact, Happened, Link};
use domain::id::{EventId, PrId};
use domain::pull_request::Record;
use domain::state::Strategy;
use jiff::Timestamp;

use crate::engine::{Engine, EngineError};
use crate::lookup;
use crate::outlets::Outlets;
use crate::store::Store;

/// Links a pull request that was opened with the one it replaces, if there is one that waits for it. Answers which.
///
/// # Errors
/// [`EngineError`]; asking again does no harm.
pub async fn link<S: Store, O: Outlets>(
    engine: &Engine<S, O>,
    fresh: &Record,
    now: Timestamp,
) -> Result<Option<PrId>, EngineError> {
    let Some(id) = &fresh.vulnerability_id else { return Ok(None) };
    let repo = &fresh.id.repo;
    let known = lookup::vulnerability(engine.store(), repo, &fresh.base_branch, id, now);
    let known = known.await.map_err(EngineError::Store)?;
    let before: Vec<PrId> = known
        .lineage
        .iter()
        .filter(|number| **number != fresh.id.number)
        .map(|number| PrId::new(repo.clone(), *number))
        .collect();
    if before.is_empty() {
        return Ok(None);
    }
    let records = lookup::records(engine.store(), &before, now).await.map_err(EngineError::Store)?;
    let Some(old) = records.into_iter().find(awaits_replacement) else { return Ok(None) };
    tell(engine, &old.id, Link::ReplacedBy(fresh.id.number), now).await?;
    tell(engine, &fresh.id, Link::Replaces(old.id.number), now).await?;
    Ok(Some(old.id))
}

/// Closed by close-and-reopen, and nothing has come in its place.
fn awaits_replacement(record: &Record) -> bool {
    let asked = record.active_run.as_ref().is_some_and(|run| run.strategy == Strategy::CloseAndReopen);
    asked && record.replaced_by.is_none() && record.state.is_terminal()
}

async fn tell<S: Store, O: Outlets>(
    engine: &Engine<S, O>,
    pr: &PrId,
    link: Link,
    now: Timestamp,
) -> Result<(), EngineError> {
    let other = match link {
        Link::ReplacedBy(number) | Link::Replaces(number) => number,
    };
    let id = EventId::new(format!("link#{}#{other}", pr.number));
    let fact = Fact { id, pr: pr.clone(), occurred_at: now, actor: Actor::Codegenie, what: Happened::Linked(link) };
    engine.apply(&fact, now).await.map(drop)
}
