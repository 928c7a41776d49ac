//! How lives end, and what must hold then: every pull request merged, closed or with a person who was told; the record as GitHub
//! has it; nothing left behind.

use domain::id::PrId;
use domain::pull_request::Record;
use domain::state::{State, Substatus};
use jiff::Timestamp;
use platform::rows;
use platform::store::{From, Index, Query, Store};
use world::{Pr, PullState};

use crate::fault_injection::{SharedState, locked};
use crate::invariants::{Invariant, InvariantChecker};

/// How a pull request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FinalState {
    /// Merged.
    Merged,
    /// Closed by close-and-reopen: another one has taken its place.
    Replaced,
    /// Closed by a person, or for one.
    Closed,
    /// With a person, who was told.
    Escalated,
}

/// Suture's name of a pull request of the world.
pub(crate) fn pr_id(pr: &Pr) -> Option<PrId> {
    pr.to_string().parse().ok()
}

/// What Suture knows about it, read past all faults.
pub(crate) fn record_of<S: Store>(shared: &SharedState<S>, pr: &Pr) -> Option<Record> {
    let key = rows::record_key(&pr_id(pr)?);
    rows::read(&key, &shared.peek(&key)?).ok()
}

/// How it has ended, if it has; otherwise what it waits for.
pub(crate) fn end_of<S: Store>(shared: &SharedState<S>, pr: &Pr) -> Result<FinalState, String> {
    let state = locked(&shared.world).pull(pr).map(|pull| pull.state);
    let Some(state) = state else { return Err("GitHub does not know it".to_owned()) };
    let record = record_of(shared, pr);
    match (state, record) {
        (PullState::Merged, Some(record)) if record.state == State::Merged => Ok(FinalState::Merged),
        (PullState::Closed, Some(record)) if record.state == State::Closed => closed(shared, pr, &record),
        (PullState::Open, Some(record)) if record.state == State::NeedsIntervention => {
            with_a_person(shared, pr, &record)
        }
        (state @ (PullState::Merged | PullState::Closed | PullState::Open), Some(record)) => {
            let run = record.active_run.as_ref().map(|run| format!(", {} under way", run.strategy)).unwrap_or_default();
            let due = record.due_at.map(|at| at.to_string()).unwrap_or_default();
            Err(format!("GitHub has it {state:?}, the record {} (due {due}{run})", record.state))
        }
        // Never heard of, or forgotten since: nothing is left to do.
        (PullState::Merged, None) => Ok(FinalState::Merged),
        (PullState::Closed, None) => Ok(FinalState::Closed),
        (PullState::Open, None) => Err("nobody has heard of it".to_owned()),
    }
}

fn closed<S: Store>(shared: &SharedState<S>, pr: &Pr, record: &Record) -> Result<FinalState, String> {
    if let Some(run) = &record.active_run {
        return Err(format!("closed, and {} is under way", run.strategy));
    }
    if record.substatus != Some(Substatus::Replaced) {
        return Ok(FinalState::Closed);
    }
    match record.replaced_by {
        Some(fresh) => linked_back(shared, pr, fresh).map(|()| FinalState::Replaced),
        None if locked(&shared.checker).told(&record.id, record.created_at) => Ok(FinalState::Escalated),
        None => Err("closed to be replaced, and neither came a fresh one nor was anybody told".to_owned()),
    }
}

/// The fresh one knows what it replaces, unless it is over and forgotten.
fn linked_back<S: Store>(shared: &SharedState<S>, pr: &Pr, fresh: u64) -> Result<(), String> {
    let fresh = Pr { repo: pr.repo.clone(), number: fresh };
    match record_of(shared, &fresh) {
        Some(record) if record.replaces != Some(pr.number) => {
            Err(format!("{fresh} took its place and does not know: it says {:?}", record.replaces))
        }
        Some(_) | None => Ok(()),
    }
}

fn with_a_person<S: Store>(shared: &SharedState<S>, pr: &Pr, record: &Record) -> Result<FinalState, String> {
    let since = record.blocked.as_ref().map_or(Timestamp::MIN, |blocked| blocked.at);
    let checker = locked(&shared.checker);
    let logged = checker.escalations.iter().rev().find(|one| one.pr == record.id).map(|one| one.at);
    if checker.told(&record.id, logged.unwrap_or(since)) {
        Ok(FinalState::Escalated)
    } else {
        Err(format!("{pr} needs a person, and nobody was told"))
    }
}

/// What is in the index and should not be, once everything is over: effects and runs.
pub(crate) async fn left_behind<S: Store>(shared: &SharedState<S>) -> Vec<String> {
    let mut left = Vec::new();
    for partition in rows::due_shards() {
        let query = Query {
            from: From::Index(Index::Due),
            partition,
            prefix: None,
            up_to: None,
            backwards: false,
            limit: 10_000,
            after: None,
        };
        let Ok(page) = shared.store.query(&query, shared.now()).await else { continue };
        let keys = page.rows.into_iter().map(|(key, _)| key.partition);
        left.extend(keys.filter(|key| key.starts_with("OUT#") || key.starts_with("RUN#")));
    }
    left
}

/// Notes what is wrong in the end.
pub(crate) fn note(checker: &mut InvariantChecker, why: &str, pr: &Pr, at: Timestamp) {
    let what = if why.contains("nobody was told") {
        Invariant::NotNotified
    } else if why.contains("took its place") {
        Invariant::Disagreement
    } else {
        Invariant::Stuck
    };
    checker.violated(what, at, format!("{pr}: {why}"));
}
