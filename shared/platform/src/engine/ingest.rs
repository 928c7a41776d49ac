//! Applies an external fact, from a webhook or from the queue. Both callers use this one function.

use domain::event::Fact;
use domain::pull_request::PullRequest;
use jiff::Timestamp;

use super::replacement;
use super::repo_registry::RepoRegistry;
use super::{ApplyResult, Engine, EngineError};
use crate::publish::Publisher;
use crate::store::Store;

/// Applies a fact, registers the repository of a new pull request, and links a replacement with the pull request it replaces. `record`
/// saves a read if the caller has the record already.
pub async fn apply_fact<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    repos: &RepoRegistry,
    record: Option<PullRequest>,
    fact: &Fact,
    now: Timestamp,
) -> Result<ApplyResult, EngineError> {
    let applied = match record {
        Some(record) => engine.apply_to(Some(record), fact, now).await?,
        None => engine.apply(fact, now).await?,
    };
    repos.register_new(engine.store(), &applied, now).await;
    replacement::link_after(engine, &applied, now).await?;
    Ok(applied)
}
