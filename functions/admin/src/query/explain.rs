//! Why a pull request is where it is: the classifier, dry. Nothing is written, whatever GitHub says.

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

/// What the classifier says, and what it looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The record, corrected by what GitHub showed, if it was asked.
    pub record: Record,
    pub vulnerability: Option<Vulnerability>,
    /// The rule, its evidence, and what follows.
    pub diagnosis: Diagnosis,
    /// What GitHub knew that the record did not.
    pub corrected: Option<String>,
    pub live: bool,
    pub live_error: Option<String>,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Explains a pull request; with `live`, GitHub is asked first.
    ///
    /// If GitHub does not answer, it is explained without.
    pub async fn explain(&self, caller: &Caller, pr: &PrId, live: bool) -> Result<Explained, DeskError> {
        let known = self.record(caller, pr).await?;
        let vulnerability = lookup::vulnerability_of(self.store(), &known, self.now()).await?;
        let policy = self.engine.policies().for_repo(&known.id.repo);
        let asked = if live && !known.state.is_terminal() { Some(self.ask_github(&known).await) } else { None };
        let (snapshot, live_error) = match asked {
            Some(Ok(snapshot)) => (Some(snapshot), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let now = self.now();
        let was = known.state;
        let mut seen: Option<Live> = snapshot.as_ref().map(|snapshot| snapshot.live);
        let live = snapshot.is_some();
        let record = match snapshot {
            Some(snapshot) => self.verified(known, snapshot),
            None => known,
        };
        if let Some(seen) = &mut seen
            && record.state == State::ChecksRunning
            && let Some(jenkins) = &self.jenkins
        {
            seen.build = Some(build_of(jenkins, &record, policy).await);
        }
        let corrected = (record.state != was).then(|| words::corrected(was, record.state));
        let case = Case { record: &record, live: seen.as_ref(), vulnerability: vulnerability.as_ref(), policy, now };
        let diagnosis = classify(&case);
        Ok(Explained { record, vulnerability, diagnosis, corrected, live, live_error })
    }

    async fn ask_github(&self, record: &Record) -> Result<Snapshot, String> {
        let github = self.github.as_ref().ok_or("GitHub could not be asked: no credentials are configured here")?;
        let node_id = match &record.node_id {
            Some(node_id) => node_id.clone(),
            None => match github.pull(&record.id).await {
                Ok(pull) => pull.node_id,
                Err(error) => return Err(format!("GitHub could not be asked: {error}")),
            },
        };
        let wanted = [(record.id.clone(), node_id)];
        let read = github.snapshots(&wanted, self.engine.policies()).await.into_iter().next();
        match read {
            Some((_, Ok(snapshot))) => Ok(snapshot),
            Some((_, Err(unread))) => Err(unread.to_string()),
            None => Err("GitHub could not be asked: it said nothing".to_owned()),
        }
    }

    /// What the record would be if the sweep had seen this; nothing is written.
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
