//! How lives end, and what must hold then: every pull request merged, closed or with a person who was told; the record as GitHub
//! has it; nothing left behind.

use domain::id::PrId;
use domain::pull_request::Record;
use domain::state::{State, Substatus};
use fakes::{Pr, PullState};
use jiff::Timestamp;
use platform::rows;
use platform::store::{From, Index, Query, Store};

use super::border::{Scene, locked};
use super::watch::{Watch, Wrong};

/// How a pull request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
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
pub(crate) fn inside(pr: &Pr) -> Option<PrId> {
    pr.to_string().parse().ok()
}

/// What Suture knows about it, read past all faults.
pub(crate) fn record_of<S: Store>(scene: &Scene<S>, pr: &Pr) -> Option<Record> {
    let key = rows::record_key(&inside(pr)?);
    rows::read(&key, &scene.peek(&key)?).ok()
}

/// How it has ended, if it has; otherwise what it waits for.
pub(crate) fn end_of<S: Store>(scene: &Scene<S>, pr: &Pr) -> Result<End, String> {
    let state = locked(&scene.world).pull(pr).map(|pull| pull.state);
    let Some(state) = state else { return Err("GitHub does not know it".to_owned()) };
    let record = record_of(scene, pr);
    match (state, record) {
        (PullState::Merged, Some(record)) if record.state == State::Merged => Ok(End::Merged),
        (PullState::Closed, Some(record)) if record.state == State::Closed => closed(scene, pr, &record),
        (PullState::Open, Some(record)) if record.state == State::NeedsIntervention => {
            with_a_person(scene, pr, &record)
        }
        (state @ (PullState::Merged | PullState::Closed | PullState::Open), Some(record)) => {
            let run = record.active_run.as_ref().map(|run| format!(", {} under way", run.strategy)).unwrap_or_default();
            let due = record.due_at.map(|at| at.to_string()).unwrap_or_default();
            Err(format!("GitHub has it {state:?}, the record {} (due {due}{run})", record.state))
        }
        // Never heard of, or forgotten since: nothing is left to do.
        (PullState::Merged, None) => Ok(End::Merged),
        (PullState::Closed, None) => Ok(End::Closed),
        (PullState::Open, None) => Err("nobody has heard of it".to_owned()),
    }
}

fn closed<S: Store>(scene: &Scene<S>, pr: &Pr, record: &Record) -> Result<End, String> {
    if let Some(run) = &record.active_run {
        return Err(format!("closed, and {} is under way", run.strategy));
    }
    if record.substatus != Some(Substatus::Replaced) {
        return Ok(End::Closed);
    }
    match record.replaced_by {
        Some(fresh) => linked_back(scene, pr, fresh).map(|()| End::Replaced),
        None if locked(&scene.watch).told(&record.id, record.created_at) => Ok(End::Escalated),
        None => Err("closed to be replaced, and neither came a fresh one nor was anybody told".to_owned()),
    }
}

/// The fresh one knows what it replaces, unless it is over and forgotten.
fn linked_back<S: Store>(scene: &Scene<S>, pr: &Pr, fresh: u64) -> Result<(), String> {
    let fresh = Pr { repo: pr.repo.clone(), number: fresh };
    match record_of(scene, &fresh) {
        Some(record) if record.replaces != Some(pr.number) => {
            Err(format!("{fresh} took its place and does not know: it says {:?}", record.replaces))
        }
        Some(_) | None => Ok(()),
    }
}

fn with_a_person<S: Store>(scene: &Scene<S>, pr: &Pr, record: &Record) -> Result<End, String> {
    let since = record.blocked.as_ref().map_or(Timestamp::MIN, |blocked| blocked.at);
    let watch = locked(&scene.watch);
    let logged = watch.escalations.iter().rev().find(|one| one.pr == record.id).map(|one| one.at);
    if watch.told(&record.id, logged.unwrap_or(since)) {
        Ok(End::Escalated)
    } else {
        Err(format!("{pr} needs a person, and nobody was told"))
    }
}

/// What is in the index and should not be, once everything is over: effects and runs.
pub(crate) async fn left_behind<S: Store>(scene: &Scene<S>) -> Vec<String> {
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
        let Ok(page) = scene.store.query(&query, scene.now()).await else { continue };
        let keys = page.rows.into_iter().map(|(key, _)| key.partition);
        left.extend(keys.filter(|key| key.starts_with("OUT#") || key.starts_with("RUN#")));
    }
    left
}

/// Notes what is wrong in the end.
pub(crate) fn note(watch: &mut Watch, why: &str, pr: &Pr, at: Timestamp) {
    let what = if why.contains("nobody was told") {
        Wrong::Untold
    } else if why.contains("took its place") {
        Wrong::Disagreement
    } else {
        Wrong::Stuck
    };
    watch.wrong(what, at, format!("{pr}: {why}"));
}
