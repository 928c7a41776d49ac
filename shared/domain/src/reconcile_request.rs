//! Reconcile requests (R-TRIGGER-1 to R-TRIGGER-9): a request to visit pull requests before the next scheduled sweep. There
//! is one row per scope, which debounces: requests for the same scope are coalesced into the newest by event time. The row
//! has a due date. Decisions only: the platform does counting, slots and storage, and a sweep does the visit.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backoff::BackoffSchedule;
use crate::id::{PrId, RepoName, RunId};
use crate::policy::Triggers;
use crate::pull_request::seconds;
use crate::run::RunTrigger;
use crate::time::saturating_after;

/// How long a finished request is kept, to recognise repeated and older requests.
const KEPT_AFTER_END: SignedDuration = SignedDuration::from_hours(24);

/// Which pull requests to visit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconcileScope {
    All,
    Repo(RepoName),
    /// Every open pull request on a base branch, due or not.
    Base(RepoName, String),
    /// One pull request, due or not.
    One(PrId),
}

impl ReconcileScope {
    /// The repository of the scope; `None` for everything.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            Self::All => None,
            Self::Repo(repo) | Self::Base(repo, _) => Some(repo),
            Self::One(pr) => Some(&pr.repo),
        }
    }
}

impl fmt::Display for ReconcileScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Repo(repo) => write!(f, "repo:{repo}"),
            Self::Base(repo, branch) => write!(f, "base:{repo}#{branch}"),
            Self::One(pr) => write!(f, "pr:{pr}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    /// The id of its run: the same in every repetition.
    pub run: RunId,
    /// The time of the event behind the request, as given by its source: the newest wins, in any order of arrival.
    pub at: Timestamp,
    pub trigger: RunTrigger,
    /// The person who sent the request, if any.
    pub requested_by: Option<String>,
}

/// A request that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRequest {
    pub run: RunId,
    pub at: Timestamp,
    pub trigger: RunTrigger,
    /// The person who sent the request, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When the first of the coalesced requests came.
    pub first_at: Timestamp,
    pub due_at: Timestamp,
    /// How many requests were coalesced into this one, itself included.
    pub coalesced: u32,
    #[serde(default)]
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PendingRequest {
    /// Whether its run id was returned to an API caller, so that the run exists before the request starts.
    pub fn has_promised_run(&self) -> bool {
        self.trigger == RunTrigger::AdminApi
    }
}

/// A request that a worker has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RunningRequest {
    request: PendingRequest,
    holder: String,
    /// When the lease expires: from then on the worker counts as gone.
    until: Timestamp,
}

/// The last request that was completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LastEvaluation {
    run: RunId,
    at: Timestamp,
}

/// The row of a scope: one for real runs and one for dry runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileRequest {
    pub scope: ReconcileScope,
    /// Whether to only report what would be done.
    pub dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting: Option<PendingRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<RunningRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluated: Option<LastEvaluation>,
    /// How often the row was changed; 0 if it was never written.
    pub version: u64,
}

/// The result of a new request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueResult {
    /// It waits; a request that waited before is superseded by it.
    Queued(Box<QueuedRequest>),
    /// The same request came before; it waits, runs or is finished.
    Known(RequestState),
    /// A newer request waits, runs or was completed, and covers this one.
    Superseded { by: RunId },
}

/// The state of a known request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    Waiting,
    Running,
    Finished,
}

/// A new request that waits now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRequest {
    /// The new row.
    pub request: ReconcileRequest,
    /// The request that waited before and is replaced.
    pub replaced: Option<PendingRequest>,
    /// The running request, which must stop at its next stage.
    pub cancel_running: Option<RunId>,
    /// Whether no request waited before: only then does it count toward the daily limits.
    pub is_first: bool,
}

/// Whether a request can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartResult {
    Started {
        /// The new row.
        request: Box<ReconcileRequest>,
        asked: Box<PendingRequest>,
        /// A request whose worker is gone and which a newer request superseded.
        overtaken: Option<RunId>,
    },
    /// All retries are used up.
    GivenUp {
        /// The new row.
        request: Box<ReconcileRequest>,
        asked: Box<PendingRequest>,
    },
    Busy {
        by: String,
        /// When the lease of the other worker expires.
        until: Timestamp,
    },
    /// It waits for the quiet time, or for its next retry.
    NotYet {
        until: Timestamp,
    },
    Nothing,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCompletion<'a> {
    /// Completed, at least as far as time allowed.
    Done,
    /// Cancelled by a person or a newer request; counts as neither a failure nor an attempt.
    Cancelled,
    Failed(&'a str),
}

/// What follows from the end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestNextStep {
    Finished,
    Superseded {
        by: RunId,
    },
    Retry {
        at: Timestamp,
    },
    GivenUp,
    /// Another worker has taken it over.
    Lost,
}

/// The result of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelResult {
    Removed(Box<ReconcileRequest>),
    /// It is running: its worker must be told to stop.
    Running,
    /// It is finished, or unknown.
    NotFound,
}

impl ReconcileRequest {
    /// An empty row.
    pub fn new(scope: ReconcileScope, dry_run: bool) -> Self {
        Self { scope, dry_run, waiting: None, running: None, evaluated: None, version: 0 }
    }

    /// The key of a scope. Dry runs have their own key, so that they never supersede real runs.
    pub fn key_of(scope: &ReconcileScope, dry_run: bool) -> String {
        if dry_run { format!("dry:{scope}") } else { scope.to_string() }
    }

    /// See [`ReconcileRequest::key_of`].
    pub fn key(&self) -> String {
        Self::key_of(&self.scope, self.dry_run)
    }

    pub fn waiting(&self) -> Option<&PendingRequest> {
        self.waiting.as_ref()
    }

    pub fn running(&self) -> Option<&PendingRequest> {
        self.running.as_ref().map(|running| &running.request)
    }

    fn touched(mut self) -> Self {
        self.version = self.version.saturating_add(1);
        self
    }

    fn standing_of(&self, run: &RunId) -> Option<RequestState> {
        if self.waiting.as_ref().is_some_and(|asked| asked.run == *run) {
            Some(RequestState::Waiting)
        } else if self.running().is_some_and(|asked| asked.run == *run) {
            Some(RequestState::Running)
        } else if self.evaluated.as_ref().is_some_and(|last| last.run == *run) {
            Some(RequestState::Finished)
        } else {
            None
        }
    }

    /// The newest known request, by event time.
    fn newest(&self) -> Option<(Timestamp, &RunId)> {
        let waiting = self.waiting.as_ref().map(|asked| (asked.at, &asked.run));
        let running = self.running().map(|asked| (asked.at, &asked.run));
        let evaluated = self.evaluated.as_ref().map(|last| (last.at, &last.run));
        [waiting, running, evaluated].into_iter().flatten().max_by_key(|(at, _)| *at)
    }

    /// Adds a new request. A request from a webhook waits for a quiet time, up to a limit; a person's request does not.
    pub fn enqueue(&self, ask: &NewRequest, settings: &Triggers, now: Timestamp) -> EnqueueResult {
        if let Some(standing) = self.standing_of(&ask.run) {
            return EnqueueResult::Known(standing);
        }
        if let Some((at, run)) = self.newest()
            && at > ask.at
        {
            return EnqueueResult::Superseded { by: run.clone() };
        }
        let replaced = self.waiting.clone();
        let first_at = replaced.as_ref().map_or(now, |asked| asked.first_at);
        let mut due_at = now;
        if ask.trigger == RunTrigger::Webhook {
            let latest = saturating_after(first_at, seconds(settings.max_debounce_secs));
            due_at = saturating_after(now, seconds(settings.debounce_secs)).min(latest);
        }
        let waiting = PendingRequest {
            run: ask.run.clone(),
            at: ask.at,
            trigger: ask.trigger,
            requested_by: ask.requested_by.clone(),
            first_at,
            due_at,
            coalesced: replaced.as_ref().map_or(0, |asked| asked.coalesced).saturating_add(1),
            tries: 0,
            error: None,
        };
        let is_first = replaced.is_none();
        let cancel = self.running().map(|asked| asked.run.clone());
        let request = Self { waiting: Some(waiting), ..self.clone() }.touched();
        EnqueueResult::Queued(Box::new(QueuedRequest { request, replaced, cancel_running: cancel, is_first }))
    }

    /// Starts the request that is due. An attempt counts when it starts, so that a request that crashes its worker also
    /// runs out of retries.
    pub fn start(&self, holder: &str, until: Timestamp, settings: &Triggers, now: Timestamp) -> StartResult {
        let (waiting, overtaken) = match (&self.running, &self.waiting) {
            (Some(running), _) if now < running.until => {
                return StartResult::Busy { by: running.holder.clone(), until: running.until };
            }
            // The worker is gone: a newer request replaces it, or it is retried.
            (Some(lost), Some(newer)) => (newer.clone(), Some(lost.request.run.clone())),
            (Some(lost), None) => (PendingRequest { due_at: now, ..lost.request.clone() }, None),
            (None, Some(waiting)) => (waiting.clone(), None),
            (None, None) => return StartResult::Nothing,
        };
        if waiting.due_at > now {
            return StartResult::NotYet { until: waiting.due_at };
        }
        if waiting.tries > settings.retries {
            let request = Self { waiting: None, running: None, ..self.clone() }.touched();
            return StartResult::GivenUp { request: Box::new(request), asked: Box::new(waiting) };
        }
        let asked = PendingRequest { tries: waiting.tries.saturating_add(1), ..waiting };
        let running = RunningRequest { request: asked.clone(), holder: holder.to_owned(), until };
        let request = Self { waiting: None, running: Some(running), ..self.clone() }.touched();
        StartResult::Started { request: Box::new(request), asked: Box::new(asked), overtaken }
    }

    /// Ends a request; returns the new row and what follows.
    pub fn complete(
        &self,
        run: &RunId,
        end: RequestCompletion<'_>,
        pauses: BackoffSchedule,
        settings: &Triggers,
        now: Timestamp,
    ) -> (Self, RequestNextStep) {
        let Some(RunningRequest { request: asked, .. }) =
            self.running.clone().filter(|running| running.request.run == *run)
        else {
            return (self.clone(), RequestNextStep::Lost);
        };
        let mut request = Self { running: None, ..self.clone() }.touched();
        let newer = request.waiting.as_ref().map(|newer| newer.run.clone());
        let then = match (end, newer) {
            (RequestCompletion::Done, _) => {
                request.evaluated = Some(LastEvaluation { run: asked.run, at: asked.at });
                RequestNextStep::Finished
            }
            (RequestCompletion::Cancelled | RequestCompletion::Failed(_), Some(by)) => {
                RequestNextStep::Superseded { by }
            }
            (RequestCompletion::Cancelled, None) => RequestNextStep::Finished,
            (RequestCompletion::Failed(_), None) if asked.tries > settings.retries => RequestNextStep::GivenUp,
            (RequestCompletion::Failed(error), None) => {
                let at = saturating_after(now, pauses.delay(asked.tries));
                request.waiting = Some(PendingRequest { due_at: at, error: Some(error.to_owned()), ..asked });
                RequestNextStep::Retry { at }
            }
        };
        (request, then)
    }

    /// Cancels the request with this run id.
    pub fn cancel(&self, run: &RunId) -> CancelResult {
        match self.standing_of(run) {
            Some(RequestState::Waiting) => {
                CancelResult::Removed(Box::new(Self { waiting: None, ..self.clone() }.touched()))
            }
            Some(RequestState::Running) => CancelResult::Running,
            Some(RequestState::Finished) | None => CancelResult::NotFound,
        }
    }

    /// When the row is due: a running request when its lease expires, a waiting one at its time.
    pub fn due_at(&self) -> Option<Timestamp> {
        let running = self.running.as_ref().map(|running| running.until);
        running.or_else(|| self.waiting.as_ref().map(|asked| asked.due_at))
    }

    /// When the row expires, once no request waits or runs.
    pub fn ttl(&self, now: Timestamp) -> Option<Timestamp> {
        (self.running.is_none() && self.waiting.is_none()).then(|| saturating_after(now, KEPT_AFTER_END))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: fn() -> Triggers = Triggers::default;
    const PAUSES: BackoffSchedule = BackoffSchedule { base_secs: 30, max_secs: 600 };

    fn at(secs: i64) -> Timestamp {
        "2036-03-03T09:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
    }

    fn push(run: &str, secs: i64) -> NewRequest {
        NewRequest { run: RunId::new(run), at: at(secs), trigger: RunTrigger::Webhook, requested_by: None }
    }

    fn base() -> ReconcileRequest {
        ReconcileRequest::new(ReconcileScope::Base("acme/shop".parse().unwrap(), "main".to_owned()), false)
    }

    fn queued(request: &ReconcileRequest, ask: &NewRequest, now: i64) -> QueuedRequest {
        match request.enqueue(ask, &SETTINGS(), at(now)) {
            EnqueueResult::Queued(queued) => *queued,
            other @ (EnqueueResult::Known(_) | EnqueueResult::Superseded { .. }) => panic!("{other:?}"),
        }
    }

    fn started(request: &ReconcileRequest, holder: &str, now: i64) -> (ReconcileRequest, PendingRequest) {
        match request.start(holder, at(now + 600), &SETTINGS(), at(now)) {
            StartResult::Started { request, asked, .. } => (*request, *asked),
            other @ (StartResult::GivenUp { .. }
            | StartResult::Busy { .. }
            | StartResult::NotYet { .. }
            | StartResult::Nothing) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn each_scope_has_its_own_key() {
        let repo: RepoName = "acme/shop".parse().unwrap();
        let scopes = [
            ReconcileScope::All,
            ReconcileScope::Repo(repo.clone()),
            ReconcileScope::Base(repo.clone(), "release/1".to_owned()),
            ReconcileScope::One(PrId::new(repo.clone(), 7)),
        ];
        let keys: Vec<String> = scopes.iter().map(|scope| ReconcileRequest::new(scope.clone(), false).key()).collect();
        assert_eq!(keys, ["all", "repo:acme/shop", "base:acme/shop#release/1", "pr:acme/shop#7"]);
        assert_eq!(ReconcileRequest::new(ReconcileScope::All, true).key(), "dry:all");
        let repos: Vec<Option<&RepoName>> = scopes.iter().map(ReconcileScope::repo).collect();
        assert_eq!(repos, [None, Some(&repo), Some(&repo), Some(&repo)]);
    }

    #[test]
    fn newest_request_by_event_time_wins_in_any_order() {
        let first = queued(&base(), &push("b", 20), 21);
        assert!(first.is_first && first.replaced.is_none());
        let older = first.request.enqueue(&push("a", 10), &SETTINGS(), at(22));
        assert_eq!(older, EnqueueResult::Superseded { by: RunId::new("b") });
        let newer = queued(&first.request, &push("c", 30), 31);
        assert_eq!(newer.replaced.as_ref().map(|asked| asked.run.as_str()), Some("b"));
        assert!(!newer.is_first, "coalesced requests count once");
        let waiting = newer.request.waiting().unwrap();
        assert_eq!((waiting.run.as_str(), waiting.coalesced, waiting.first_at), ("c", 2, at(21)));
        // In the same second, the last one to arrive wins.
        assert_eq!(queued(&newer.request, &push("d", 30), 32).request.waiting().unwrap().run.as_str(), "d");
        assert_eq!(
            newer.request.enqueue(&push("c", 30), &SETTINGS(), at(33)),
            EnqueueResult::Known(RequestState::Waiting)
        );
    }

    #[test]
    fn webhook_requests_wait_for_quiet_up_to_the_limit() {
        let settings = SETTINGS();
        let (quiet, longest) = (i64::from(settings.debounce_secs), i64::from(settings.max_debounce_secs));
        let mut request = base();
        for second in 0..=2 * longest {
            request = queued(&request, &push(&format!("r{second}"), second), second).request;
            assert_eq!(request.due_at(), Some(at((second + quiet).min(longest))), "{second}");
        }
        let person = NewRequest { trigger: RunTrigger::AdminApi, ..push("p", 0) };
        assert_eq!(queued(&base(), &person, 5).request.due_at(), Some(at(5)), "a person's request does not wait");
    }

    #[test]
    fn running_request_is_cancelled_by_a_newer_one_only() {
        let (running, asked) = started(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        assert_eq!((asked.tries, running.due_at()), (1, Some(at(630))));
        assert_eq!(
            running.enqueue(&push("z", 5), &SETTINGS(), at(31)),
            EnqueueResult::Superseded { by: RunId::new("a") }
        );
        let newer = queued(&running, &push("b", 31), 32);
        assert_eq!(newer.cancel_running, Some(RunId::new("a")));
        assert!(newer.is_first, "nothing waited");
        assert_eq!(newer.request.due_at(), Some(at(630)), "not before the first has ended, or its worker is gone");
        let (request, then) =
            newer.request.complete(&RunId::new("a"), RequestCompletion::Cancelled, PAUSES, &SETTINGS(), at(40));
        assert_eq!(then, RequestNextStep::Superseded { by: RunId::new("b") });
        assert_eq!((request.due_at(), request.ttl(at(40))), (Some(at(42)), None));
        assert_eq!(started(&request, "h", 42).1.run.as_str(), "b");
    }

    #[test]
    fn completed_request_is_kept_for_a_day() {
        let (running, asked) = started(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let (done, then) = running.complete(&asked.run, RequestCompletion::Done, PAUSES, &SETTINGS(), at(40));
        assert_eq!((then, done.due_at(), done.ttl(at(40))), (RequestNextStep::Finished, None, Some(at(40 + 86_400))));
        assert_eq!(done.enqueue(&push("a", 10), &SETTINGS(), at(41)), EnqueueResult::Known(RequestState::Finished));
        assert_eq!(done.enqueue(&push("z", 9), &SETTINGS(), at(41)), EnqueueResult::Superseded { by: RunId::new("a") });
        assert!(matches!(done.enqueue(&push("b", 10), &SETTINGS(), at(41)), EnqueueResult::Queued(_)));
        assert_eq!(done.start("h", at(900), &SETTINGS(), at(41)), StartResult::Nothing);
    }

    #[test]
    fn failed_request_is_retried_three_times_with_backoff() {
        let mut request = queued(&base(), &push("a", 0), 0).request;
        let mut now = 10;
        for pause in [30, 60, 120] {
            let (running, asked) = started(&request, "h", now);
            let (again, then) =
                running.complete(&asked.run, RequestCompletion::Failed("no"), PAUSES, &SETTINGS(), at(now));
            assert_eq!(then, RequestNextStep::Retry { at: at(now + pause) });
            let early = again.start("h", at(9_999), &SETTINGS(), at(now + pause - 1));
            assert_eq!(early, StartResult::NotYet { until: at(now + pause) });
            assert_eq!(again.waiting().unwrap().error.as_deref(), Some("no"));
            (request, now) = (again, now + pause);
        }
        let (running, asked) = started(&request, "h", now);
        assert_eq!(asked.tries, 4, "one attempt and three retries");
        let (over, then) = running.complete(&asked.run, RequestCompletion::Failed("no"), PAUSES, &SETTINGS(), at(now));
        assert_eq!((then, over.due_at()), (RequestNextStep::GivenUp, None));
    }

    #[test]
    fn crashed_worker_costs_an_attempt_and_the_last_one_gives_up() {
        let mut request = queued(&base(), &push("a", 0), 0).request;
        let mut now = 10;
        for tries in 1..=4 {
            let (running, asked) = started(&request, &format!("h{tries}"), now);
            assert_eq!(asked.tries, tries);
            let busy = running.start("other", at(9_999), &SETTINGS(), at(now + 599));
            assert_eq!(busy, StartResult::Busy { by: format!("h{tries}"), until: at(now + 600) });
            (request, now) = (running, now + 600);
        }
        let StartResult::GivenUp { request, asked } = request.start("h5", at(9_999), &SETTINGS(), at(now)) else {
            panic!()
        };
        assert_eq!((asked.run.as_str(), request.due_at()), ("a", None));
    }

    #[test]
    fn takeover_from_a_dead_worker_starts_the_newest_request() {
        let (running, _) = started(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let newer = queued(&running, &push("b", 31), 32).request;
        let StartResult::Started { asked, overtaken, .. } = newer.start("i", at(9_999), &SETTINGS(), at(630)) else {
            panic!()
        };
        assert_eq!((asked.run.as_str(), asked.tries, overtaken), ("b", 1, Some(RunId::new("a"))));
        // If the first worker was only slow, its late report changes nothing.
        let (request, _) = started(&newer, "i", 630);
        assert_eq!(
            request.complete(&RunId::new("a"), RequestCompletion::Done, PAUSES, &SETTINGS(), at(640)),
            (request.clone(), RequestNextStep::Lost)
        );
    }

    #[test]
    fn cancel_removes_a_waiting_request_and_reports_a_running_one() {
        let waiting = queued(&base(), &push("a", 10), 10).request;
        let CancelResult::Removed(request) = waiting.cancel(&RunId::new("a")) else { panic!() };
        assert_eq!((request.due_at(), request.version), (None, 2));
        assert_eq!(waiting.cancel(&RunId::new("b")), CancelResult::NotFound);
        let (running, asked) = started(&waiting, "h", 30);
        assert_eq!(running.cancel(&asked.run), CancelResult::Running);
        let (over, then) = running.complete(&asked.run, RequestCompletion::Cancelled, PAUSES, &SETTINGS(), at(31));
        assert_eq!((then, over.due_at()), (RequestNextStep::Finished, None));
        assert_eq!(over.cancel(&asked.run), CancelResult::NotFound);
        // A cancelled request does not count as completed: it may be requested again and starts with no attempts.
        assert_eq!(started(&queued(&over, &push("a", 10), 40).request, "h", 50).1.tries, 1);
    }

    #[test]
    fn request_round_trips_through_json() {
        let (running, _) = started(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let whole = queued(&running, &push("b", 31), 32).request;
        let json = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<ReconcileRequest>(&json).unwrap(), whole);
    }
}
