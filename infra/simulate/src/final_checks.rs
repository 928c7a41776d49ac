//! How pull requests ended, and what must hold then: each is merged, closed, or escalated with a mail; the record agrees with
//! GitHub; nothing is left in the outbox.

use domain::id::PrId;
use domain::pull_request::PullRequest;
use domain::state::{State, Substatus};
use fakes::{FakePrId, PullState};
use jiff::Timestamp;
use platform::schema;
use platform::store::{Index, Query, QuerySource, Store};

use crate::invariants::Invariant;
use crate::shared_state::{SharedState, locked};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalState {
    Merged,
    /// Closed by close-and-reopen, and another one was opened.
    Replaced,
    /// Closed by a person, or for one.
    Closed,
    Escalated,
}

/// Why a pull request has not ended as it must.
pub(crate) type NotFinal = (Invariant, String);

/// Reads the record without faults.
fn record_of(shared: &SharedState, pr: &FakePrId) -> Option<PullRequest> {
    let key = schema::record_key(&pr.to_string().parse::<PrId>().ok()?);
    schema::read(&key, &shared.peek(&key)?).ok()
}

pub(crate) fn final_state(shared: &SharedState, pr: &FakePrId) -> Result<FinalState, NotFinal> {
    let stuck = |why: String| Err((Invariant::Stuck, format!("{pr}: {why}")));
    let Some(state) = locked(&shared.world).pull(pr).map(|pull| pull.state) else {
        return stuck("GitHub does not know it".to_owned());
    };
    match (state, record_of(shared, pr)) {
        (PullState::Merged, Some(record)) if record.state == State::Merged => Ok(FinalState::Merged),
        (PullState::Closed, Some(record)) if record.state == State::Closed => closed(shared, pr, &record),
        (PullState::Open, Some(record)) if record.state == State::NeedsIntervention => escalated(shared, pr, &record),
        (state @ (PullState::Merged | PullState::Closed | PullState::Open), Some(record)) => {
            let run = record.active_run.as_ref().map(|run| format!(", {} under way", run.strategy)).unwrap_or_default();
            let due = record.due_at.map(|at| at.to_string()).unwrap_or_default();
            stuck(format!("GitHub has it {state:?}, the record {} (due {due}{run})", record.state))
        }
        // Never known, or expired since: nothing is left to do.
        (PullState::Merged, None) => Ok(FinalState::Merged),
        (PullState::Closed, None) => Ok(FinalState::Closed),
        (PullState::Open, None) => stuck("it has no record".to_owned()),
    }
}

fn closed(shared: &SharedState, pr: &FakePrId, record: &PullRequest) -> Result<FinalState, NotFinal> {
    if let Some(run) = &record.active_run {
        return Err((Invariant::Stuck, format!("{pr}: closed, and {} is under way", run.strategy)));
    }
    if record.substatus != Some(Substatus::Replaced) {
        return Ok(FinalState::Closed);
    }
    let Some(fresh) = record.replaced_by else {
        if locked(&shared.checker).is_mailed(&record.id, record.created_at) {
            return Ok(FinalState::Escalated);
        }
        return Err((Invariant::Stuck, format!("{pr}: closed without a replacement, and no mail was sent")));
    };
    // The replacement knows what it replaces, unless its record has expired.
    let fresh = FakePrId { repo: pr.repo.clone(), number: fresh };
    match record_of(shared, &fresh) {
        Some(record) if record.replaces != Some(pr.number) => Err((
            Invariant::Disagreement,
            format!("{pr}: {fresh} replaces it, and says it replaces {:?}", record.replaces),
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
        Err((Invariant::NotNotified, format!("{pr} needs a person, and no mail was sent")))
    }
}

/// Effects and runs that are still due; sweeps' own runs aside, since a sweep is always under way or due.
pub(crate) async fn left_behind(shared: &SharedState) -> Vec<String> {
    let mut left = Vec::new();
    for partition in schema::due_shards() {
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
        let is_left = |key: &String| key.starts_with("OUT#") || key.starts_with("RUN#");
        left.extend(keys.filter(|key| is_left(key) && !key.starts_with("RUN#sweep")));
    }
    left
}
