//! Ingests a parsed webhook: finds its pull requests and applies the fact to each, puts commands on the queue, and turns a push to a
//! base branch or a new installation into a debounced reconcile request. Facts above the rate limit are deferred to the queue, and
//! reports that overtake the event of their pull request are kept for it, so that a burst of webhooks loses nothing. Verification and
//! HTTP responses are in `handler` and `response`.

use std::collections::VecDeque;
use std::time::Duration;

use domain::command::CommandMessage;
use domain::decide::FactOutcome;
use domain::event::{Fact, FactKind};
use domain::id::{CommandId, EventId, PrId, RepoName, RunId, Sha};
use domain::policy::Policies;
use domain::pull_request::PullRequest;
use domain::reconcile_request::{NewRequest, ReconcileScope};
use domain::run::RunTrigger;
use domain::state::State;
use domain::text::sweep;
use jiff::Timestamp;
use thiserror::Error;

use crate::github::{ParsedWebhook, PrSelector, WebhookFact, details_of};
use crate::throttle::{self, CONFLICT_DELAY, Throttle};
use platform::engine::early_reports::{self, EarlyReport};
use platform::engine::ingest::apply_fact;
use platform::engine::repo_registry::{self, RepoRegistry};
use platform::engine::{ApplyResult, Engine, EngineError};
use platform::hash::stable_id;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use platform::reconcile_request;
use platform::store::queries;
use platform::store::{Store, StoreError};

domain::named! {
    /// The `status` field of the HTTP response (R-HOOK-3).
    pub enum IngestStatus {
        Ignored = "ignored",
        Duplicate = "duplicate_ignored",
        Superseded = "superseded",
        /// On the queue, to be applied later.
        Throttled = "throttled_delayed",
        CommandQueued = "command_queued",
        Applied = "applied",
        /// Recorded, but inconsistent with the record; the next sweep compares with GitHub.
        Anomaly = "anomaly",
    }
}

impl IngestStatus {
    fn of(outcome: FactOutcome) -> Self {
        match outcome {
            FactOutcome::Applied => Self::Applied,
            FactOutcome::Duplicate => Self::Duplicate,
            FactOutcome::Ignored | FactOutcome::Refused | FactOutcome::Deferred => Self::Ignored,
            FactOutcome::Superseded => Self::Superseded,
            FactOutcome::Anomaly => Self::Anomaly,
        }
    }
}

/// The result of one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestResult {
    /// The most important status of all its pull requests.
    pub status: IngestStatus,
    pub reason: String,
    pub pull_requests: Vec<PrResult>,
    /// The run of the reconcile request, if the webhook became one.
    pub run: Option<RunId>,
}

impl IngestResult {
    /// A result that concerns no particular pull request.
    pub fn result(status: IngestStatus, reason: String) -> Self {
        Self { status, reason, pull_requests: Vec::new(), run: None }
    }
}

/// The result for one pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrResult {
    pub pr: PrId,
    pub status: IngestStatus,
    pub reason: String,
    /// The old and the new state, if the state changed.
    pub change: Option<(State, State)>,
    pub attempts: u32,
    /// The run that the fact proved, ended or opened.
    pub run: Option<RunId>,
    /// Duration of the run that the fact ended, in milliseconds.
    pub run_duration_ms: Option<u64>,
    /// The commands that were put on the queue.
    pub commands: Vec<CommandId>,
}

/// Why a webhook could not be ingested. The sender should redeliver it; facts already applied are recognised by their id.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum IngestError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("command queue: {0}")]
    Queue(#[from] PublishError),
}

impl IngestError {
    /// Whether other writers were faster: ordinary contention, which a redelivery resolves.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_conflict(),
            Self::Store(error) => error.is_conflict(),
            Self::Queue(_) => false,
        }
    }
}

#[derive(Debug)]
pub struct Ingester<S, O> {
    engine: Engine<S, O>,
    policies: Policies,
    repos: RepoRegistry,
    throttle: Throttle,
}

/// A pull request that the fact concerns, with its record if that has been read.
struct Recipient {
    pr: PrId,
    record: Option<PullRequest>,
}

/// The pull requests that the fact concerns, or why there are none.
enum Recipients {
    Found(Vec<Recipient>),
    NoneFound(String),
}

/// What happened to a report without a recorded pull request.
enum EarlyOutcome {
    /// The pull request is not managed, as far as is known.
    NotKept,
    Kept,
    /// The pull request was recorded meanwhile.
    Applied(Vec<PrResult>),
}

impl<S: Store, O: Publisher> Ingester<S, O> {
    pub fn new(engine: Engine<S, O>, policies: Policies) -> Self {
        Self { engine, policies, repos: RepoRegistry::default(), throttle: Throttle::default() }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        &self.engine
    }

    /// Ingests a webhook. On return everything is stored in the table or on the queue.
    pub async fn ingest(&self, webhook: &ParsedWebhook, now: Timestamp) -> Result<IngestResult, IngestError> {
        let mut results = Vec::new();
        let mut no_recipient = None;
        // Commands first, so that a burst of facts does not delay them.
        if let Some(first) = webhook.commands.first() {
            results.push(self.commands(webhook, first.pr(), now).await?);
        }
        if let Some(fact) = &webhook.fact {
            if let PrSelector::Base(branch) = &fact.selector {
                return self.base_moved(&webhook.repo, branch, fact, now).await;
            }
            match self.recipients(&webhook.repo, fact, now).await? {
                Recipients::Found(recipients) => {
                    results.extend(self.facts(&webhook.repo, fact, recipients, now).await?)
                }
                Recipients::NoneFound(why) => match self.keep_early(&webhook.repo, fact, now).await? {
                    EarlyOutcome::NotKept => no_recipient = Some(why),
                    EarlyOutcome::Kept if results.is_empty() => {
                        let reason = "kept until its pull request is recorded".to_owned();
                        return Ok(IngestResult::result(IngestStatus::Throttled, reason));
                    }
                    EarlyOutcome::Kept => {}
                    EarlyOutcome::Applied(applied) => results.extend(applied),
                },
            }
        }
        Ok(combine(results, no_recipient))
    }

    async fn commands(&self, webhook: &ParsedWebhook, pr: PrId, now: Timestamp) -> Result<PrResult, IngestError> {
        let mut delay = Duration::ZERO;
        if self.engine.load(&pr, now).await?.is_none() {
            let Some(expected_at) = early_reports::expected_at(self.engine.store(), &pr, now).await? else {
                return Ok(single_result(pr.clone(), IngestStatus::Ignored, format!("{pr} is not managed by Suture")));
            };
            delay = throttle::delay_until(expected_at, now);
        }
        let message = |command: &CommandMessage| {
            let mut message = OutboundMessage::command(command.command_id.to_string(), command.clone());
            if let Destination::Queue { delay: waits, .. } = &mut message.destination {
                *waits = delay;
            }
            message
        };
        let messages: Vec<OutboundMessage> = webhook.commands.iter().map(message).collect();
        self.send(&messages).await?;
        let names: Vec<&str> = webhook.commands.iter().map(|command| command.command.name()).collect();
        let commands = webhook.commands.iter().map(|command| command.command_id.clone()).collect();
        Ok(PrResult { commands, ..single_result(pr, IngestStatus::CommandQueued, names.join(", ")) })
    }

    /// Finds the pull requests that the fact concerns. Unknown pull requests are left out, unless the fact may create a record; they
    /// do not count toward the rate limit.
    async fn recipients(&self, repo: &RepoName, fact: &WebhookFact, now: Timestamp) -> Result<Recipients, IngestError> {
        let numbers = match &fact.selector {
            PrSelector::Base(branch) => return Ok(Recipients::NoneFound(format!("push to `{branch}`"))),
            PrSelector::Head(head) => {
                let numbers = queries::by_head(self.engine.store(), repo, head, now).await?;
                if numbers.is_empty() {
                    let why = format!("{} is not the head of a managed pull request", head.short());
                    return Ok(Recipients::NoneFound(why));
                }
                numbers.into_iter().collect()
            }
            PrSelector::Numbers(numbers) => numbers.clone(),
        };
        let creates_record = fact.creates_record();
        let skip_read = creates_record && matches!(fact.kind, FactKind::Opened(_));
        let mut recipients = Vec::new();
        for number in numbers {
            let pr = PrId::new(repo.clone(), number);
            let record = if skip_read { None } else { self.engine.load(&pr, now).await? };
            if creates_record || record.is_some() {
                recipients.push(Recipient { pr, record });
            }
        }
        if recipients.is_empty() {
            return Ok(Recipients::NoneFound("not a managed pull request".to_owned()));
        }
        Ok(Recipients::Found(recipients))
    }

    /// Keeps a report on a commit that is not the head of a recorded pull request yet, if the pull request is managed.
    async fn keep_early(
        &self,
        repo: &RepoName,
        fact: &WebhookFact,
        now: Timestamp,
    ) -> Result<EarlyOutcome, IngestError> {
        let Some(head) = reported_commit(&fact.kind) else { return Ok(EarlyOutcome::NotKept) };
        let WebhookFact { id, occurred_at, actor, kind, managed, .. } = fact.clone();
        let report = EarlyReport { id, occurred_at, actor, kind };
        if !early_reports::keep(self.engine.store(), (repo, head), &report, managed, now).await? {
            return Ok(EarlyOutcome::NotKept);
        }
        // The record may have been created between the lookup and the write; then nobody else applies the report.
        match self.recipients(repo, fact, now).await? {
            Recipients::Found(recipients) => Ok(EarlyOutcome::Applied(self.facts(repo, fact, recipients, now).await?)),
            Recipients::NoneFound(_) => Ok(EarlyOutcome::Kept),
        }
    }

    /// A push to a base branch: one reconcile request for all its open pull requests; further pushes coalesce with it.
    async fn base_moved(
        &self,
        repo: &RepoName,
        branch: &str,
        fact: &WebhookFact,
        now: Timestamp,
    ) -> Result<IngestResult, IngestError> {
        let store = self.engine.store();
        // Most pushes are to branches that are nobody's base: one read shows it.
        if !repo_registry::is_base(store, repo, branch, now).await?
            || !queries::has_open_on_base(store, repo, branch, now).await?
        {
            return Ok(IngestResult::result(
                IngestStatus::Ignored,
                format!("no managed pull request is based on `{branch}`"),
            ));
        }
        let scope = ReconcileScope::Base(repo.clone(), branch.to_owned());
        self.request(&scope, &fact.id, fact.occurred_at, now).await
    }

    /// A new installation, or more repositories: requests a reconcile of everything.
    pub async fn installed(&self, id: &EventId, at: Timestamp, now: Timestamp) -> Result<IngestResult, IngestError> {
        self.request(&ReconcileScope::All, id, at, now).await
    }

    async fn request(
        &self,
        scope: &ReconcileScope,
        id: &EventId,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<IngestResult, IngestError> {
        // A redelivery produces the same run id; the hash keeps it valid in a URL.
        let run = RunId::new(format!("webhook-{}", &stable_id(&[id.as_str(), &scope.to_string()])[..20]));
        let ask = NewRequest { run: run.clone(), at, trigger: RunTrigger::Webhook, requested_by: None };
        let enqueued =
            reconcile_request::enqueue(self.engine.store(), &self.policies, (scope, false), &ask, now).await?;
        Ok(match enqueued {
            reconcile_request::EnqueueOutcome::Queued(pending) => {
                let secs = pending.due_at.duration_since(now).as_secs().max(0);
                let reason =
                    format!("reconcile of {scope} in about {secs} s; {} requests coalesced", pending.coalesced);
                IngestResult { run: Some(run), ..IngestResult::result(IngestStatus::Applied, reason) }
            }
            reconcile_request::EnqueueOutcome::AlreadyKnown(_) => {
                IngestResult::result(IngestStatus::Duplicate, format!("{id} was already received"))
            }
            reconcile_request::EnqueueOutcome::Superseded { by } => {
                IngestResult::result(IngestStatus::Superseded, sweep::superseded(&by))
            }
            reconcile_request::EnqueueOutcome::OverLimit(why) => IngestResult::result(IngestStatus::Throttled, why),
        })
    }

    /// Applies as many facts as the limits allow, and defers the others to the queue.
    async fn facts(
        &self,
        repo: &RepoName,
        webhook_fact: &WebhookFact,
        recipients: Vec<Recipient>,
        now: Timestamp,
    ) -> Result<Vec<PrResult>, IngestError> {
        let delays = self.throttle.delays(self.engine.store(), &self.policies, repo, recipients.len(), now).await?;
        let mut results = Vec::new();
        let mut deferred: Vec<(Fact, Duration, &str)> = Vec::new();
        for (Recipient { pr, record }, delay) in recipients.into_iter().zip(delays) {
            let fact = webhook_fact.fact(pr.clone());
            if let Some((delay, why)) = delay {
                deferred.push((fact, delay, why));
                continue;
            }
            match apply_fact(&self.engine, &self.repos, record, &fact, now).await {
                Ok(applied) => results.push(applied_to(pr, &applied)),
                Err(EngineError::WriteConflict { .. }) => {
                    deferred.push((fact, CONFLICT_DELAY, "write conflict"));
                }
                Err(error @ EngineError::Store(_)) => return Err(error.into()),
            }
        }
        results.extend(self.defer(repo, deferred, now).await?);
        Ok(results)
    }

    /// Puts facts on the queue; the Car Bridge applies them later.
    async fn defer(
        &self,
        repo: &RepoName,
        facts: Vec<(Fact, Duration, &str)>,
        now: Timestamp,
    ) -> Result<Vec<PrResult>, IngestError> {
        if facts.is_empty() {
            return Ok(Vec::new());
        }
        let mut results = VecDeque::new();
        let mut messages = Vec::new();
        for (fact, delay, why) in facts {
            // Until this fact is applied, nobody else knows that its head belongs to a managed pull request.
            if let Some(described) = details_of(&fact.kind) {
                let applied_at = now.saturating_add(delay).unwrap_or(now);
                early_reports::announce(self.engine.store(), &fact.pr, &described.head, applied_at, now).await?;
            }
            let reason = format!("{why}: deferred for about {} s", delay.as_secs());
            results.push_back(single_result(fact.pr.clone(), IngestStatus::Throttled, reason));
            let id = format!("fact:{}#{}", fact.pr, fact.id);
            let message = QueueMessage::Fact(Box::new(fact));
            messages.push(OutboundMessage { id, destination: Destination::queue(message, repo.clone(), delay) });
        }
        self.send(&messages).await?;
        Ok(results.into())
    }

    /// Sends all messages or fails; a redelivered webhook produces the same message ids.
    async fn send(&self, messages: &[OutboundMessage]) -> Result<(), PublishError> {
        let results = self.engine.publisher().publish(messages).await;
        if results.len() < messages.len() {
            return Err(PublishError("missing a result for some messages".to_owned()));
        }
        results.into_iter().collect()
    }
}

/// The commit that a check or a bot reported on.
fn reported_commit(kind: &FactKind) -> Option<&Sha> {
    if let FactKind::ChecksRequested { head }
    | FactKind::Check { head, .. }
    | FactKind::Policy { head, .. }
    | FactKind::Approval { head, .. }
    | FactKind::Merge { head, .. } = kind
    {
        return Some(head);
    }
    None
}

fn single_result(pr: PrId, status: IngestStatus, reason: String) -> PrResult {
    PrResult { pr, status, reason, change: None, attempts: 0, run: None, run_duration_ms: None, commands: Vec::new() }
}

fn applied_to(pr: PrId, applied: &ApplyResult) -> PrResult {
    let from = applied.events.iter().find_map(|event| event.from);
    let to = applied.events.iter().rev().find_map(|event| event.to);
    PrResult {
        pr,
        status: IngestStatus::of(applied.outcome),
        reason: applied.reason.clone(),
        change: from.zip(to),
        attempts: applied.attempts,
        run: applied.events.iter().find_map(|event| event.payload.run.clone()),
        run_duration_ms: applied.run_durations_ms.first().copied(),
        commands: Vec::new(),
    }
}

fn combine(results: Vec<PrResult>, no_recipient: Option<String>) -> IngestResult {
    let Some(most_important) = results.iter().map(|one| one.status).max() else {
        let reason = no_recipient.unwrap_or_else(|| "nothing to do".to_owned());
        return IngestResult::result(IngestStatus::Ignored, reason);
    };
    let reason = match results.as_slice() {
        [one] => one.reason.clone(),
        many => {
            let reasons =
                many.iter().filter(|one| one.status == most_important).map(|one| format!("{}: {}", one.pr, one.reason));
            domain::event::truncate(&reasons.collect::<Vec<_>>().join("; "), 500)
        }
    };
    IngestResult { status: most_important, reason, pull_requests: results, run: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_statuses_have_fixed_names_and_the_most_important_wins() {
        let all = [
            IngestStatus::Ignored,
            IngestStatus::Duplicate,
            IngestStatus::Superseded,
            IngestStatus::Throttled,
            IngestStatus::CommandQueued,
            IngestStatus::Applied,
            IngestStatus::Anomaly,
        ];
        let names = all.map(IngestStatus::name).join(" ");
        assert_eq!(names, "ignored duplicate_ignored superseded throttled_delayed command_queued applied anomaly");
        let results =
            all.map(|status| single_result("a/b#1".parse().unwrap(), status, status.name().to_owned())).to_vec();
        let combined = combine(results, None);
        assert_eq!((combined.status, combined.reason.as_str()), (IngestStatus::Anomaly, "a/b#1: anomaly"));
        assert_eq!(combine(Vec::new(), Some("unmanaged".to_owned())).reason, "unmanaged");
    }
}
