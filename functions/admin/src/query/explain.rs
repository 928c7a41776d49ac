//! Explains the state of a pull request with the classifier. Nothing is written, even if GitHub shows another state.

use domain::comment::desk as words;
use domain::decide::decide;
use domain::diagnosis::{Case, Diagnosis, classify};
use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId};
use domain::pull_request::{Record, Vulnerability};
use domain::snapshot::{Live, Snapshot};
use domain::state::State;

use super::{Desk, DeskError};
use crate::api_keys::Caller;
use platform::jenkins::build_of;
use platform::lookup;
use platform::outlets::Outlets;
use platform::store::Store;

/// The diagnosis, and the inputs it is based on.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The record, corrected by the GitHub snapshot if one was read.
    pub record: Record,
    pub vulnerability: Option<Vulnerability>,
    /// The rule, its evidence, and what follows.
    pub diagnosis: Diagnosis,
    /// The correction by the snapshot, in a sentence.
    pub corrected: Option<String>,
    pub live: bool,
    pub live_error: Option<String>,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Explains a pull request; with `live`, a snapshot is read from GitHub first.
    ///
    /// If GitHub does not answer, the explanation is based on the record alone.
    pub async fn explain(&self, caller: &Caller, pr: &PrId, live: bool) -> Result<Explained, DeskError> {
        let known = self.record(caller, pr).await?;
        let vulnerability = lookup::vulnerability_of(self.store(), &known, self.now()).await?;
        let policy = self.engine.policies().for_repo(&known.id.repo);
        let read = if live && !known.state.is_terminal() { Some(self.read_snapshot(&known).await) } else { None };
        let (snapshot, live_error) = match read {
            Some(Ok(snapshot)) => (Some(snapshot), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let now = self.now();
        let was = known.state;
        let mut live_status: Option<Live> = snapshot.as_ref().map(|snapshot| snapshot.live);
        let live = snapshot.is_some();
        let record = match snapshot {
            Some(snapshot) => self.verified(known, snapshot),
            None => known,
        };
        if let Some(live_status) = &mut live_status
            && record.state == State::ChecksRunning
            && let Some(jenkins) = &self.jenkins
        {
            live_status.build = Some(build_of(jenkins, &record, policy).await);
        }
        let corrected = (record.state != was).then(|| words::corrected(was, record.state));
        let case =
            Case { record: &record, live: live_status.as_ref(), vulnerability: vulnerability.as_ref(), policy, now };
        let diagnosis = classify(&case);
        Ok(Explained { record, vulnerability, diagnosis, corrected, live, live_error })
    }

    async fn read_snapshot(&self, record: &Record) -> Result<Snapshot, String> {
        let github = self.github.as_ref().ok_or("cannot read GitHub: no credentials are configured")?;
        let node_id = match &record.node_id {
            Some(node_id) => node_id.clone(),
            None => match github.pull(&record.id).await {
                Ok(pull) => pull.node_id,
                Err(error) => return Err(format!("cannot read GitHub: {error}")),
            },
        };
        let wanted = [(record.id.clone(), node_id)];
        let read = github.snapshots(&wanted, self.engine.policies()).await.into_iter().next();
        match read {
            Some((_, Ok(snapshot))) => Ok(snapshot),
            Some((_, Err(unread))) => Err(unread.to_string()),
            None => Err("cannot read GitHub: empty response".to_owned()),
        }
    }

    /// The record as a sweep would correct it by this snapshot; nothing is written.
    fn verified(&self, record: Record, snapshot: Snapshot) -> Record {
        let fact = Fact {
            id: EventId::new("explain"),
            pr: record.id.clone(),
            occurred_at: snapshot.read_at,
            actor: Actor::AdminApi,
            what: Happened::Verified(Box::new(snapshot)),
        };
        let policy = self.engine.policies().for_repo(&record.id.repo);
        let decision = decide(policy, Some(record.clone()), &fact, self.now());
        decision.record.unwrap_or(record)
    }
}
