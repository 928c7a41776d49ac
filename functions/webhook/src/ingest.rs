//! Ingests a parsed webhook: finds its pull requests and applies the fact to each, puts commands on the queue, and turns a push to a
//! base branch or a new installation into a debounced reconcile request. Facts above the rate limit are deferred to the queue, so that
//! a burst of webhooks loses nothing. Verification and HTTP responses are in `handler` and `response`.

use std::collections::VecDeque;
use std::time::Duration;

use domain::command::CommandMessage;
use domain::comment::sweep as words;
use domain::decide::Outcome;
use domain::event::{Fact, Happened};
use domain::id::{CommandId, EventId, PrId, RepoName, RunId};
use domain::policy::Policies;
use domain::pull_request::Record;
use domain::request::{Ask, Scope};
use domain::run::RunTrigger;
use domain::state::State;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::github::{About, News, Told};
use platform::engine::ingest::apply_fact;
use platform::engine::repo_registry::RepoRegistry;
use platform::engine::{Applied, Engine, EngineError};
use platform::hash::hashed;
use platform::lookup;
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::requests;
use platform::store::{Key, Store, StoreError};

/// Facts of one webhook that are applied immediately; a commit can be the head of many pull requests.
const MAX_IMMEDIATE: usize = 50;
const WINDOW_SECS: i64 = 60;
/// How long a fact is deferred after a write conflict, or if its webhook concerns too many pull requests.
const SHORT_DELAY: Duration = Duration::from_secs(10);
/// SQS cannot delay a message for longer.
const MAX_DELAY_SECS: u64 = 900;

domain::named! {
    /// The `status` field of the HTTP response (R-HOOK-3).
    pub enum Status {
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

impl Status {
    fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied => Self::Applied,
            Outcome::Duplicate => Self::Duplicate,
            Outcome::Ignored | Outcome::Refused => Self::Ignored,
            Outcome::Superseded => Self::Superseded,
            Outcome::Anomaly => Self::Anomaly,
        }
    }
}

/// The result of one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The most important status of all its pull requests.
    pub status: Status,
    pub reason: String,
    pub each: Vec<One>,
    /// The run of the reconcile request, if the webhook became one.
    pub run: Option<RunId>,
}

impl Taken {
    /// A result that concerns no particular pull request.
    pub fn said(status: Status, reason: String) -> Self {
        Self { status, reason, each: Vec::new(), run: None }
    }
}

/// The result for one pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One {
    pub pr: PrId,
    pub status: Status,
    pub reason: String,
    /// The old and the new state, if the state changed.
    pub change: Option<(State, State)>,
    pub tries: u32,
    /// The run that the fact proved, ended or opened.
    pub run: Option<RunId>,
    /// Duration of the run that the fact ended, in milliseconds.
    pub ended_ms: Option<u64>,
    /// The commands that were put on the queue.
    pub commands: Vec<CommandId>,
}

/// Why a webhook could not be ingested. The sender should redeliver it; facts already applied are recognised by their id.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum IntakeError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("command queue: {0}")]
    Queue(#[from] Undelivered),
}

#[derive(Debug)]
pub struct Intake<S, O> {
    engine: Engine<S, O>,
    policies: Policies,
    repos: RepoRegistry,
}

/// A pull request that the fact concerns, with its record if that has been read.
struct Hearer {
    pr: PrId,
    record: Option<Record>,
}

/// The pull requests that the fact concerns, or why there are none.
enum Heard {
    By(Vec<Hearer>),
    ByNobody(String),
}

impl<S: Store, O: Outlets> Intake<S, O> {
    pub fn new(engine: Engine<S, O>, policies: Policies) -> Self {
        Self { engine, policies, repos: RepoRegistry::default() }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        &self.engine
    }

    /// Ingests a webhook. On return everything is stored in the table or on the queue.
    pub async fn take(&self, webhook: &Told, now: Timestamp) -> Result<Taken, IntakeError> {
        let mut each = Vec::new();
        let mut no_recipient = None;
        // Commands first, so that a burst of facts does not delay them.
        if let Some(first) = webhook.commands.first() {
            each.push(self.commands(webhook, first.pr(), now).await?);
        }
        if let Some(news) = &webhook.news {
            if let About::Base(branch) = &news.about {
                return self.base_moved(&webhook.repo, branch, news, now).await;
            }
            match self.hearers(&webhook.repo, news, now).await? {
                Heard::By(recipients) => each.extend(self.facts(&webhook.repo, news, recipients, now).await?),
                Heard::ByNobody(why) => no_recipient = Some(why),
            }
        }
        Ok(sum_up(each, no_recipient))
    }

    async fn commands(&self, webhook: &Told, pr: PrId, now: Timestamp) -> Result<One, IntakeError> {
        if self.engine.load(&pr, now).await?.is_none() {
            return Ok(one(pr.clone(), Status::Ignored, format!("{pr} is not managed by Suture")));
        }
        let message = |command: &CommandMessage| Parcel::command(command.command_id.to_string(), command.clone());
        let messages: Vec<Parcel> = webhook.commands.iter().map(message).collect();
        self.send(&messages).await?;
        let names: Vec<&str> = webhook.commands.iter().map(|command| command.command.name()).collect();
        let commands = webhook.commands.iter().map(|command| command.command_id.clone()).collect();
        Ok(One { commands, ..one(pr, Status::CommandQueued, names.join(", ")) })
    }

    /// Finds the pull requests that the fact concerns. Unknown pull requests are left out, unless the fact may create a record; they
    /// cost one read and do not count toward the rate limit.
    async fn hearers(&self, repo: &RepoName, news: &News, now: Timestamp) -> Result<Heard, IntakeError> {
        let numbers = match &news.about {
            About::Base(branch) => return Ok(Heard::ByNobody(format!("push to `{branch}`"))),
            About::Head(head) => {
                let numbers = lookup::by_head(self.engine.store(), repo, head, now).await?;
                if numbers.is_empty() {
                    let why = format!("{} is not the head of a managed pull request", head.short());
                    return Ok(Heard::ByNobody(why));
                }
                numbers.into_iter().collect()
            }
            About::Numbers(numbers) => numbers.clone(),
        };
        let skip_read = news.begins && matches!(news.what, Happened::Opened(_));
        let mut recipients = Vec::new();
        for number in numbers {
            let pr = PrId::new(repo.clone(), number);
            let record = if skip_read { None } else { self.engine.load(&pr, now).await? };
            if news.begins || record.is_some() {
                recipients.push(Hearer { pr, record });
            }
        }
        if recipients.is_empty() {
            return Ok(Heard::ByNobody("not a managed pull request".to_owned()));
        }
        Ok(Heard::By(recipients))
    }

    /// A push to a base branch: one reconcile request for all its open pull requests; further pushes coalesce with it.
    async fn base_moved(
        &self,
        repo: &RepoName,
        branch: &str,
        news: &News,
        now: Timestamp,
    ) -> Result<Taken, IntakeError> {
        if !lookup::has_base(self.engine.store(), repo, branch, now).await? {
            return Ok(Taken::said(Status::Ignored, format!("no managed pull request is based on `{branch}`")));
        }
        let scope = Scope::Base(repo.clone(), branch.to_owned());
        self.request(&scope, &news.id, news.occurred_at, now).await
    }

    /// A new installation, or more repositories: requests a reconcile of everything.
    pub async fn installed(&self, id: &EventId, at: Timestamp, now: Timestamp) -> Result<Taken, IntakeError> {
        self.request(&Scope::All, id, at, now).await
    }

    async fn request(&self, scope: &Scope, id: &EventId, at: Timestamp, now: Timestamp) -> Result<Taken, IntakeError> {
        // A redelivery produces the same run id; the hash keeps it valid in a URL.
        let run = RunId::new(format!("asked-{}", &hashed(&[id.as_str(), &scope.to_string()])[..20]));
        let ask = Ask { run: run.clone(), at, trigger: RunTrigger::Webhook, requested_by: None };
        let enqueued = requests::ask(self.engine.store(), &self.policies, (scope, false), &ask, now).await?;
        Ok(match enqueued {
            requests::Taken::Queued(pending) => {
                let secs = pending.due_at.duration_since(now).as_secs().max(0);
                let reason =
                    format!("reconcile of {scope} in about {secs} s; {} requests coalesced", pending.stands_for);
                Taken { run: Some(run), ..Taken::said(Status::Applied, reason) }
            }
            requests::Taken::Known(_) => Taken::said(Status::Duplicate, format!("{id} was already received")),
            requests::Taken::Superseded { by } => Taken::said(Status::Superseded, words::superseded(&by)),
            requests::Taken::OverLimit(why) => Taken::said(Status::Throttled, why),
        })
    }

    /// Applies as many facts as the limits allow, and defers the others to the queue.
    async fn facts(
        &self,
        repo: &RepoName,
        news: &News,
        recipients: Vec<Hearer>,
        now: Timestamp,
    ) -> Result<Vec<One>, IntakeError> {
        let waits = self.waits(repo, recipients.len(), now).await?;
        let mut each = Vec::new();
        let mut later: Vec<(Fact, Duration, &str)> = Vec::new();
        for (Hearer { pr, record }, wait) in recipients.into_iter().zip(waits) {
            let fact = news.fact(pr.clone());
            if let Some((wait, why)) = wait {
                later.push((fact, wait, why));
                continue;
            }
            match apply_fact(&self.engine, &self.repos, record, &fact, now).await {
                Ok(applied) => each.push(applied_to(pr, &applied)),
                Err(EngineError::Contended { .. }) => {
                    later.push((fact, SHORT_DELAY, "write conflict"));
                }
                Err(error @ EngineError::Store(_)) => return Err(error.into()),
            }
        }
        each.extend(self.put_off(repo, later).await?);
        Ok(each)
    }

    /// The delay of each fact, with its reason. Facts above the limit per minute are spread over the following minutes, so that a
    /// burst does not return as a burst.
    async fn waits(
        &self,
        repo: &RepoName,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<Option<(Duration, &'static str)>>, StoreError> {
        let limit = u64::from(self.policies.for_repo(repo).limits.webhooks_per_minute_per_repo.max(1));
        let minute = now.as_second().div_euclid(WINDOW_SECS);
        let ttl = saturating_after(now, SignedDuration::from_secs(2 * WINDOW_SECS));
        let key = limit_key(repo, minute);
        let total = self.engine.store().count(&key, i64::try_from(count).unwrap_or(i64::MAX), ttl, now).await?;
        let total = u64::try_from(total).unwrap_or(0);
        let before = total.saturating_sub(count as u64);
        let into_minute = now.as_second().rem_euclid(WINDOW_SECS).unsigned_abs();
        Ok((0..count)
            .map(|n| {
                let place = before + n as u64;
                if place >= limit {
                    Some((wait(place, limit, into_minute), "webhook limit per minute of this repository"))
                } else if n >= MAX_IMMEDIATE {
                    Some((SHORT_DELAY, "too many pull requests in one delivery"))
                } else {
                    None
                }
            })
            .collect())
    }

    /// Puts facts on the queue; the Car Bridge applies them later.
    async fn put_off(&self, repo: &RepoName, facts: Vec<(Fact, Duration, &str)>) -> Result<Vec<One>, IntakeError> {
        if facts.is_empty() {
            return Ok(Vec::new());
        }
        let mut each = VecDeque::new();
        let mut messages = Vec::new();
        for (fact, delay, why) in facts {
            let reason = format!("{why}: deferred for about {} s", delay.as_secs());
            each.push_back(one(fact.pr.clone(), Status::Throttled, reason));
            let id = format!("fact:{}#{}", fact.pr, fact.id);
            let message = Message::Fact(Box::new(fact));
            messages.push(Parcel { id, what: Content::Queue { message, repo: repo.clone(), delay } });
        }
        self.send(&messages).await?;
        Ok(each.into())
    }

    /// Sends all messages or fails; a redelivered webhook produces the same message ids.
    async fn send(&self, messages: &[Parcel]) -> Result<(), Undelivered> {
        let results = self.engine.outlets().send(messages).await;
        if results.len() < messages.len() {
            return Err(Undelivered("missing a result for some messages".to_owned()));
        }
        results.into_iter().collect()
    }
}

fn limit_key(repo: &RepoName, minute: i64) -> Key {
    Key::state(format!("LIMIT#webhook#{repo}#{minute}"))
}

/// The delay of the `place`th fact of this minute, counted from 0.
fn wait(place: u64, limit: u64, into_minute: u64) -> Duration {
    let window = WINDOW_SECS.unsigned_abs();
    let minutes_later = place / limit;
    let into_that_minute = (place % limit) * window / limit;
    let secs = (minutes_later * window + into_that_minute).saturating_sub(into_minute).clamp(1, MAX_DELAY_SECS);
    Duration::from_secs(secs)
}

fn one(pr: PrId, status: Status, reason: String) -> One {
    One { pr, status, reason, change: None, tries: 0, run: None, ended_ms: None, commands: Vec::new() }
}

fn applied_to(pr: PrId, applied: &Applied) -> One {
    let from = applied.events.iter().find_map(|event| event.from);
    let to = applied.events.iter().rev().find_map(|event| event.to);
    One {
        pr,
        status: Status::of(applied.outcome),
        reason: applied.reason.clone(),
        change: from.zip(to),
        tries: applied.tries,
        run: applied.events.iter().find_map(|event| event.payload.run.clone()),
        ended_ms: applied.ended_ms.first().copied(),
        commands: Vec::new(),
    }
}

fn sum_up(each: Vec<One>, no_recipient: Option<String>) -> Taken {
    let Some(most_important) = each.iter().map(|one| one.status).max() else {
        let reason = no_recipient.unwrap_or_else(|| "nothing to do".to_owned());
        return Taken::said(Status::Ignored, reason);
    };
    let reason = match each.as_slice() {
        [one] => one.reason.clone(),
        many => {
            let most =
                many.iter().filter(|one| one.status == most_important).map(|one| format!("{}: {}", one.pr, one.reason));
            domain::event::cut(&most.collect::<Vec<_>>().join("; "), 500)
        }
    };
    Taken { status: most_important, reason, each, run: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_spread_over_the_following_minutes() {
        let waits: Vec<u64> = [30, 31, 59, 60, 75, 90].map(|place| wait(place, 30, 20).as_secs()).into();
        assert_eq!(waits, [40, 42, 98, 100, 130, 160]);
        assert_eq!(wait(1, 1, 59).as_secs(), 1);
        assert_eq!(wait(u64::MAX / 60, 1, 0).as_secs(), 900);
    }

    #[test]
    fn response_statuses_have_fixed_names_and_the_most_important_wins() {
        let all = [
            Status::Ignored,
            Status::Duplicate,
            Status::Superseded,
            Status::Throttled,
            Status::CommandQueued,
            Status::Applied,
            Status::Anomaly,
        ];
        let names = all.map(Status::name).join(" ");
        assert_eq!(names, "ignored duplicate_ignored superseded throttled_delayed command_queued applied anomaly");
        let each = all.map(|status| one("a/b#1".parse().unwrap(), status, status.name().to_owned())).to_vec();
        let taken = sum_up(each, None);
        assert_eq!((taken.status, taken.reason.as_str()), (Status::Anomaly, "a/b#1: anomaly"));
        assert_eq!(sum_up(Vec::new(), Some("unmanaged".to_owned())).reason, "unmanaged");
    }
}
