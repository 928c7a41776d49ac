//! Applies a fact from outside, wherever it comes from: a webhook, or the queue where it waited. One way, so that both do the same.

use domain::event::Fact;
use domain::pull_request::Record;
use jiff::Timestamp;

use super::replacement;
use super::repo_registry::RepoRegistry;
use super::{Applied, Engine, EngineError};
use crate::outlets::Outlets;
use crate::store::Store;

/// Applies a fact, registers the repository of a pull request that begins with it, and links a replacement with what it
/// replaces. `record` is the record if it has been read, to save a read.
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
