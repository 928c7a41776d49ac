//! Explains the state of a pull request with the classifier. Nothing is written, even if GitHub shows another state.

use domain::decide::decide;
use domain::diagnosis::{Diagnosis, DiagnosisInput, classify};
use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId};
use domain::pull_request::{PullRequest, Vulnerability};
use domain::snapshot::{LiveStatus, Snapshot};
use domain::state::State;
use domain::text::pull_request as pr_text;

use super::{AdminApi, AdminError};
use crate::api_keys::ApiCaller;
use platform::jenkins::build_of;
use platform::publish::Publisher;
use platform::store::Store;
use platform::store::queries;

/// The diagnosis, and the inputs it is based on.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainResult {
    /// The record, corrected by the GitHub snapshot if one was read.
    pub record: PullRequest,
    pub vulnerability: Option<Vulnerability>,
    /// The rule, its evidence, and what follows.
    pub diagnosis: Diagnosis,
    /// The correction by the snapshot, in a sentence.
    pub corrected: Option<String>,
    pub live: bool,
    pub live_error: Option<String>,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// Explains a pull request; with `live`, a snapshot is read from GitHub first.
    ///
    /// If GitHub does not answer, the explanation is based on the record alone.
    pub async fn explain(&self, caller: &ApiCaller, pr: &PrId, live: bool) -> Result<ExplainResult, AdminError> {
        let known = self.record(caller, pr).await?;
        let vulnerability = queries::vulnerability_of(self.store(), &known, self.now()).await?;
        let policy = self.engine.policies().for_repo(&known.id.repo);
        let read = if live && !known.state.is_terminal() { Some(self.read_snapshot(&known).await) } else { None };
        let (snapshot, live_error) = match read {
            Some(Ok(snapshot)) => (Some(snapshot), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let now = self.now();
        let was = known.state;
        let mut live_status: Option<LiveStatus> = snapshot.as_ref().map(|snapshot| snapshot.live);
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
        let corrected = (record.state != was).then(|| pr_text::diagnosis_with_corrections(was, record.state));
        let case = DiagnosisInput {
            record: &record,
            live: live_status.as_ref(),
            vulnerability: vulnerability.as_ref(),
            policy,
            now,
        };
        let diagnosis = classify(&case);
        Ok(ExplainResult { record, vulnerability, diagnosis, corrected, live, live_error })
    }

    async fn read_snapshot(&self, record: &PullRequest) -> Result<Snapshot, String> {
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
    fn verified(&self, record: PullRequest, snapshot: Snapshot) -> PullRequest {
        let fact = Fact {
            id: EventId::new("explain"),
            pr: record.id.clone(),
            occurred_at: snapshot.read_at,
            actor: Actor::AdminApi,
            kind: FactKind::Verified(Box::new(snapshot)),
            described: None,
        };
        let policy = self.engine.policies().for_repo(&record.id.repo);
        let decision = decide(policy, Some(record.clone()), &fact, self.now());
        decision.record.unwrap_or(record)
    }
}
