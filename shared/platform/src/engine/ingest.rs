//! Applies external facts: one from a webhook, or those of one pull request that waited on the queue.

use domain::decide::FactOutcome;
use domain::event::{Fact, FactKind};
use domain::id::Sha;
use domain::pull_request::PullRequest;
use jiff::Timestamp;

use super::repo_registry::{FIRST_VERSION, RepoRegistry};
use super::{ApplyResult, Engine, EngineError};
use super::{early_reports, replacement};
use crate::publish::Publisher;
use crate::store::Store;

/// Applies the fact of a webhook, unless many others report on the pull request at the same time (`Engine::try_apply`). Registers the
/// repository of a new pull request, links a replacement with the pull request it replaces, and applies the reports that arrived before
/// their commit became the head. `record` saves a read if the caller has the record already.
pub async fn apply_fact<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    repos: &RepoRegistry,
    record: Option<PullRequest>,
    fact: &Fact,
    now: Timestamp,
) -> Result<ApplyResult, EngineError> {
    let applied = engine.try_apply(record, fact, now).await?;
    follow_up(engine, repos, fact, &applied, now).await?;
    Ok(applied)
}

/// Applies deferred facts of one pull request together, with the same consequences. Returns one result per fact, in the same order.
pub async fn apply_facts<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    repos: &RepoRegistry,
    facts: &[Fact],
    now: Timestamp,
) -> Result<Vec<ApplyResult>, EngineError> {
    let results = engine.apply_all(facts, now).await?;
    for (fact, applied) in facts.iter().zip(&results) {
        follow_up(engine, repos, fact, applied, now).await?;
    }
    Ok(results)
}

async fn follow_up<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    repos: &RepoRegistry,
    fact: &Fact,
    applied: &ApplyResult,
    now: Timestamp,
) -> Result<(), EngineError> {
    repos.register_new(engine.store(), applied, describes(fact), now).await;
    replacement::link_after(engine, applied, now).await?;
    if let Some(head) = announced_head(fact, applied) {
        Box::pin(early_reports::apply(engine, &fact.pr, head, now)).await?;
    }
    Ok(())
}

/// Whether the fact describes its pull request, and so may have changed its base branch.
fn describes(fact: &Fact) -> bool {
    matches!(fact.kind, FactKind::Opened(_) | FactKind::Reopened(_) | FactKind::Edited(_))
}

/// The commit that the fact made the head. Of a duplicate too: the first process may have died before it applied the early reports.
fn announced_head<'a>(fact: &'a Fact, applied: &'a ApplyResult) -> Option<&'a Sha> {
    let record = applied.record.as_ref();
    let changed = matches!(applied.outcome, FactOutcome::Applied | FactOutcome::Duplicate);
    if !changed || record.is_some_and(|record| record.state.is_terminal()) {
        return None;
    }
    if let FactKind::Opened(described) | FactKind::Reopened(described) | FactKind::HeadMoved { described, .. } =
        &fact.kind
    {
        return Some(&described.head);
    }
    record.filter(|record| record.version == FIRST_VERSION).map(|record| &record.head_sha)
}
