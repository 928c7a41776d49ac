//! Applies an external fact, from a webhook or from the queue. Both callers use this one function.

use domain::event::Fact;
use domain::pull_request::Record;
use jiff::Timestamp;

use super::replacement;
use super::repo_registry::RepoRegistry;
use super::{Applied, Engine, EngineError};
use crate::outlets::Outlets;
use crate::store::Store;

/// Applies a fact, registers the repository of a new pull request, and links a replacement with the pull request it replaces. `record`
/// saves a read if the caller has the record already.
pub async fn apply_fact<S: Store, O: Outlets>(
    engine: &Engine<S, O>,
    repos: &RepoRegistry,
    record: Option<Record>,
    fact: &Fact,
    now: Timestamp,
) -> Result<Applied, EngineError> {
    let applied = match record {
        Some(record) => engine.apply_to(Some(record), fact, now).await?,
        None => engine.apply(fact, now).await?,
    };
    repos.register_new(engine.store(), &applied, now).await;
    replacement::follow(engine, &applied, now).await?;
    Ok(applied)
}
