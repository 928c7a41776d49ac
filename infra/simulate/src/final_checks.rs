//! Checks the final state: each pull request is merged, closed, or escalated with a mail; the record agrees with GitHub; the outbox
//! is empty.

use domain::id::PrId;
use domain::pull_request::PullRequest;
use domain::state::{State, Substatus};
use fakes::{FakePrId, PullState};
use jiff::Timestamp;
use platform::store::schema;
use platform::store::{Index, Query, QuerySource, Store};

use crate::invariants::Invariant;
use crate::shared_state::{SharedState, locked};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalState {
    Merged,
    /// Closed by close-and-reopen, and a replacement was opened.
    Replaced,
    /// Closed by a person or by a person's command.
    Closed,
    Escalated,
}

/// The violated invariant of an unfinished pull request, and details.
pub(crate) type NotFinal = (Invariant, String);

/// Reads the record without faults.
fn record_of(shared: &SharedState, pr: &FakePrId) -> Option<PullRequest> {
    let key = schema::record_key(&pr.to_string().parse::<PrId>().ok()?);
    schema::read(&key, &shared.peek(&key)?).ok()
}

pub(crate) fn final_state(shared: &SharedState, pr: &FakePrId) -> Result<FinalState, NotFinal> {
    let stuck = |why: String| Err((Invariant::Stuck, format!("{pr}: {why}")));
    let Some(state) = locked(&shared.fakes).pull(pr).map(|pull| pull.state) else {
        return stuck("it does not exist on GitHub".to_owned());
    };
    match (state, record_of(shared, pr)) {
        (PullState::Merged, Some(record)) if record.state == State::Merged => Ok(FinalState::Merged),
        (PullState::Closed, Some(record)) if record.state == State::Closed => closed(shared, pr, &record),
        (PullState::Open, Some(record)) if record.state == State::NeedsIntervention => escalated(shared, pr, &record),
        (state @ (PullState::Merged | PullState::Closed | PullState::Open), Some(record)) => {
            let run = record.active_run.as_ref().map(|run| format!(", {} running", run.strategy)).unwrap_or_default();
            let due = record.due_at.map(|at| at.to_string()).unwrap_or_default();
            stuck(format!("GitHub says {state:?}, the record says {} (due {due}{run})", record.state))
        }
        // Without a record (never created, or expired) nothing is left to do.
        (PullState::Merged, None) => Ok(FinalState::Merged),
        (PullState::Closed, None) => Ok(FinalState::Closed),
        (PullState::Open, None) => stuck("it has no record".to_owned()),
    }
}

fn closed(shared: &SharedState, pr: &FakePrId, record: &PullRequest) -> Result<FinalState, NotFinal> {
    if let Some(run) = &record.active_run {
        return Err((Invariant::Stuck, format!("{pr}: closed, but {} is still running", run.strategy)));
    }
    if record.substatus != Some(Substatus::Replaced) {
        return Ok(FinalState::Closed);
    }
    let Some(replacement) = record.replaced_by else {
        if locked(&shared.checker).is_mailed(&record.id, record.created_at) {
            return Ok(FinalState::Escalated);
        }
        return Err((Invariant::Stuck, format!("{pr}: closed without a replacement, but no mail was sent")));
    };
    // The replacement's record links back, unless it has expired.
    let replacement = FakePrId { repo: pr.repo.clone(), number: replacement };
    match record_of(shared, &replacement) {
        Some(record) if record.replaces != Some(pr.number) => Err((
            Invariant::Disagreement,
            format!("{pr}: replaced by {replacement}, whose record says it replaces {:?}", record.replaces),
        )),
        Some(_) | None => Ok(FinalState::Replaced),
    }
}

fn escalated(shared: &SharedState, pr: &FakePrId, record: &PullRequest) -> Result<FinalState, NotFinal> {
    let checker = locked(&shared.checker);
    let logged = checker.escalations.iter().rev().find(|escalation| escalation.pr == record.id);
    let blocked = || record.blocked.as_ref().map_or(Timestamp::MIN, |blocked| blocked.at);
    if checker.is_mailed(&record.id, logged.map_or_else(blocked, |escalation| escalation.at)) {
        Ok(FinalState::Escalated)
    } else {
        Err((Invariant::NotNotified, format!("{pr} needs a person, but no mail was sent")))
    }
}

/// The keys of effects, waiting messages and runs that are still due, except the runs of sweeps, because a sweep is always running or due.
pub(crate) async fn left_behind(shared: &SharedState) -> Vec<String> {
    let mut left = Vec::new();
    for partition in schema::due_partitions() {
        let query = Query {
            from: QuerySource::Index(Index::Due),
            partition,
            prefix: None,
            up_to: None,
            backwards: false,
            limit: 10_000,
            after: None,
        };
        let Ok(page) = shared.store.query(&query, shared.now()).await else { continue };
        let keys = page.rows.into_iter().map(|(key, _)| key.partition);
        let is_left = |key: &String| ["OUT#", "RUN#", "WAIT#"].iter().any(|kind| key.starts_with(kind));
        left.extend(keys.filter(|key| is_left(key) && !key.starts_with("RUN#sweep")));
    }
    left
}
