//! Cancels, approves and rejects runs. The run of a remedy ends through its record, like every change of one. A running
//! sweep stops at its next stage, claim or write; a pending request is removed. An approval goes to the Car Bridge, which
//! executes the remedy.

use domain::backoff::AttemptFailure;
use domain::command::{Command, CommandMessage, CommandRequester, CommandSource, MessageVersion};
use domain::event::{Actor, Fact, FactKind, RemedyUpdate};
use domain::id::{CommandId, EventId, PrId, RunId};
use domain::run::{Initiator, Run, RunError, RunKind, RunState, TransitionContext};
use platform::publish::{OutboundMessage, Publisher};
use platform::reconcile_request;
use platform::store::schema;
use platform::store::versioned::write_if;
use platform::store::{Condition, RowWrite, Store};

use crate::api_keys::ApiCaller;
use crate::query::{AdminApi, AdminError};

/// An action on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAction {
    Cancel,
    /// Approves a remedy that awaits approval.
    Approve,
    /// Rejects a remedy that awaits approval.
    Reject,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// Applies the action, and returns the run after it.
    pub async fn change_run(&self, caller: &ApiCaller, id: &RunId, verb: RunAction) -> Result<Run, AdminError> {
        let run = self.run(caller, id).await?;
        if run.state.is_terminal() {
            // Cancelling a finished sweep is no error: the caller cannot know whether it has ended.
            if (verb, run.kind) == (RunAction::Cancel, RunKind::Sweep) {
                return Ok(run);
            }
            return Err(refused(&RunError::TerminalState { run: run.id, state: run.state }));
        }
        match (verb, run.kind, run.pr.clone()) {
            (RunAction::Approve | RunAction::Reject, ..) if run.state != RunState::AwaitingApproval => {
                let why =
                    format!("run `{id}` is {}: only a run that awaits approval can be approved or rejected", run.state);
                return Err(AdminError::Conflict { code: "RUN_INVALID_TRANSITION", why });
            }
            (RunAction::Approve, _, Some(pr)) => self.approve(caller, &run, pr).await?,
            (RunAction::Reject, _, Some(pr)) => {
                let error = format!("rejected by {}", caller.name);
                // Blocked is permanent: the same approval must not be requested again.
                let update = RemedyUpdate::Failed { error, failure: AttemptFailure::Blocked };
                self.end(caller, &run, pr, "rejected", update).await?;
            }
            (RunAction::Cancel, RunKind::Abandon, _) => {
                let why = "abandoning cannot be cancelled: reopen the pull request on GitHub".to_owned();
                return Err(AdminError::Conflict { code: "RUN_INVALID_TRANSITION", why });
            }
            (RunAction::Cancel, RunKind::Sweep, _) => {
                let (store, policies, now) = (self.store(), self.engine.policies(), self.now());
                match &run.request {
                    Some(key) => reconcile_request::cancel(store, policies, (key, id), &caller.name, now).await?,
                    None => reconcile_request::request_cancel(store, id, now).await?,
                }
            }
            (RunAction::Cancel, RunKind::Remedy(_), Some(pr)) => {
                let record = self.engine.load(&pr, self.now()).await?;
                let active = record.as_ref().and_then(|record| record.active_run.as_ref());
                if active.is_some_and(|active| active.id == *id && active.closing) {
                    let why = "the pull request is being closed and replaced: reopen it on GitHub".to_owned();
                    return Err(AdminError::Conflict { code: "RUN_INVALID_TRANSITION", why });
                }
                let update = RemedyUpdate::Dropped { why: format!("cancelled by {}", caller.name) };
                self.end(caller, &run, pr, "cancelled", update).await?;
            }
            (_, _, _) => self.cancel_row(caller, run).await?,
        }
        self.run(caller, id).await
    }

    /// Applies the end to the record, which ends the run. A run that no record waits for is cancelled directly.
    async fn end(
        &self,
        caller: &ApiCaller,
        run: &Run,
        pr: PrId,
        word: &str,
        update: RemedyUpdate,
    ) -> Result<(), AdminError> {
        let now = self.now();
        let fact = Fact {
            id: EventId::new(format!("{}#{word}", run.id)),
            pr,
            occurred_at: now,
            actor: Actor::AdminApi,
            kind: FactKind::Remedy { run: run.id.clone(), update },
            described: None,
        };
        self.engine.apply(&fact, now).await?;
        match self.engine.run(&run.id, self.now()).await? {
            Some(still) if !still.state.is_terminal() => self.cancel_row(caller, still).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn cancel_row(&self, caller: &ApiCaller, run: Run) -> Result<(), AdminError> {
        let now = self.now();
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::User, now).by(&caller.name);
        let cancelled =
            run.cancel(format!("cancelled by {}", caller.name), context).map_err(|error| refused(&error))?;
        let (key, item) = schema::run_row(&cancelled, self.engine.policies().base())?;
        if write_if(self.store(), RowWrite::Put { key, item, only_if: Condition::Version(loaded) }, now).await? {
            return Ok(());
        }
        let why = "the run has just changed: reload it and try again".to_owned();
        Err(AdminError::Conflict { code: "RUN_INVALID_TRANSITION", why })
    }

    async fn approve(&self, caller: &ApiCaller, run: &Run, pr: PrId) -> Result<(), AdminError> {
        let allowed = Command::Approve.allows(CommandRequester::Api(caller.role));
        allowed.map_err(|refusal| AdminError::Forbidden(refusal.to_string()))?;
        // The same id for every repetition: approving this version of the run twice is one approval.
        let id = format!("{}#approved-{}", run.id, run.version);
        let message = CommandMessage {
            v: MessageVersion,
            pr_number: pr.number,
            repo: pr.repo,
            command: Command::Approve,
            source: CommandSource::AdminApi,
            requested_by: caller.name.clone(),
            timestamp: run.updated_at,
            command_id: CommandId::new(id.as_str()),
            run_id: Some(run.id.clone()),
            head_sha: None,
            args: None,
            comment: None,
            resent: false,
        };
        Ok(self.engine.publisher().send_one(OutboundMessage::command(id, message)).await?)
    }
}

fn refused(error: &RunError) -> AdminError {
    AdminError::Conflict { code: error.code(), why: error.to_string() }
}
