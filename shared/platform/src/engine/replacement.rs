//! Links a replacement pull request with the one that was closed for it, on both records. Runs when a pull request is opened, when one is
//! closed (the replacement may have arrived first), and when a replacement seems to be missing, so that a crash in between is repaired.

use domain::event::{Actor, EventKind, Fact, FactKind, ReplacementLink};
use domain::id::{EventId, PrId};
use domain::pull_request::PullRequest;
use domain::state::{State, Strategy};
use jiff::Timestamp;

use crate::engine::{ApplyResult, Engine, EngineError};
use crate::publish::Publisher;
use crate::store::Store;
use crate::store::queries;

/// Links replacements after a fact was applied, from either side.
pub async fn link_after<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    applied: &ApplyResult,
    now: Timestamp,
) -> Result<(), EngineError> {
    let Some(record) = &applied.record else { return Ok(()) };
    if applied.events.iter().any(|event| event.kind == EventKind::PrOpened) {
        link(engine, record, now).await?;
    } else if applied.events.iter().any(|event| event.to == Some(State::Closed)) {
        find(engine, record, now).await?;
    }
    Ok(())
}

/// Finds and links the replacement of a closed pull request that awaits one. Returns whether it exists.
pub async fn find<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    old: &PullRequest,
    now: Timestamp,
) -> Result<bool, EngineError> {
    let Some(id) = old.vulnerability_id.as_ref().filter(|_| awaits_replacement(old)) else { return Ok(false) };
    // Including closed ones: the replacement may have been merged already.
    let lineage = queries::vulnerability(engine.store(), &old.id.repo, &old.base_branch, id, now).await?.lineage;
    let Some(number) = lineage.into_iter().rfind(|number| *number > old.id.number) else { return Ok(false) };
    let Some(replacement) = engine.load(&PrId::new(old.id.repo.clone(), number), now).await? else {
        return Ok(false);
    };
    Ok(link(engine, &replacement, now).await?.is_some_and(|replaced| replaced == old.id))
}

/// Links a new pull request with the one it replaces, if one awaits a replacement. Returns which.
pub async fn link<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    replacement: &PullRequest,
    now: Timestamp,
) -> Result<Option<PrId>, EngineError> {
    let Some(id) = &replacement.vulnerability_id else { return Ok(None) };
    let repo = &replacement.id.repo;
    let known = queries::vulnerability(engine.store(), repo, &replacement.base_branch, id, now).await?;
    let before: Vec<PrId> = known
        .lineage
        .iter()
        .filter(|number| **number != replacement.id.number)
        .map(|number| PrId::new(repo.clone(), *number))
        .collect();
    if before.is_empty() {
        return Ok(None);
    }
    let records = queries::records(engine.store(), &before, now).await?;
    let Some(old) = records.into_iter().find(awaits_replacement) else { return Ok(None) };
    apply_link(engine, &old.id, ReplacementLink::ReplacedBy(replacement.id.number), now).await?;
    apply_link(engine, &replacement.id, ReplacementLink::Replaces(old.id.number), now).await?;
    Ok(Some(old.id))
}

/// Closed by close-and-reopen, and not yet replaced.
fn awaits_replacement(record: &PullRequest) -> bool {
    let close_and_reopen = record.active_run.as_ref().is_some_and(|run| run.strategy == Strategy::CloseAndReopen);
    close_and_reopen && record.replaced_by.is_none() && record.state.is_terminal()
}

async fn apply_link<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    pr: &PrId,
    link: ReplacementLink,
    now: Timestamp,
) -> Result<(), EngineError> {
    let other = match link {
        ReplacementLink::ReplacedBy(number) | ReplacementLink::Replaces(number) => number,
    };
    let id = EventId::new(format!("link#{}#{other}", pr.number));
    let fact = Fact {
        id,
        pr: pr.clone(),
        occurred_at: now,
        actor: Actor::Codegenie,
        kind: FactKind::Linked(link),
        described: None,
    };
    engine.apply(&fact, now).await.map(drop)
}
