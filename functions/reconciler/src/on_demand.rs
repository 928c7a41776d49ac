//! What somebody asks for before the schedule would look (seed 003). A request is granted by a pass of its own over what was
//! asked for: one at a time for a repository, so many at once in all. The regular sweep grants what is due; whoever was woken
//! by the bus grants the one it was woken for.

use std::collections::BTreeSet;

use domain::comment::sweep as words;
use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId, RepoName, RunId};
use domain::pull_request::Record;
use domain::request::{Ask, End, Request, Scope, Standing, Then};
use domain::run::{Initiator, Run, Step, TransitionContext};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};

use crate::sweep::{NoSweep, Pass, READING, RESERVE, Sweep, Swept, after};
use crate::trigger::Wish;
use crate::verify::Stopped;
use platform::engine::EngineError;
use platform::guards::{self, Lease, Slot};
use platform::lookup;
use platform::outlets::Outlets;
use platform::requests::{self, Begun, MayBegin, Taken};
use platform::rows;
use platform::store::{Store, StoreError};
use platform::sweep_summary::Summary;

/// The slots of all requests together.
const ALL_REQUESTS: &str = "requests";
/// Of one repository, one at a time.
const PER_REPO: u32 = 1;

/// What became of a request that might have begun.
enum Granted {
    /// It has ended, and these pull requests were compared with GitHub.
    Done(Box<Summary>, BTreeSet<PrId>),
    /// It waits: for its time, for room, or for somebody who is at it.
    Later { by: String, until: Timestamp },
    /// There is nothing to do.
    Nothing,
}

/// The room a request takes while it is under way.
enum Room {
    /// Who only looks is in nobody's way, and neither is what a sweep does within itself.
    None,
    /// The lease of the regular sweep.
    Lease(String),
    /// A slot of the repository, and one of all.
    Slots(RepoName, RunId),
}

fn repo_slot(repo: &RepoName) -> String {
    format!("{ALL_REQUESTS}:{repo}")
}

impl<S: Store, O: Outlets> Sweep<S, O> {
    /// Somebody was woken for a wish: it is taken like every other request, and granted if it may begin.
    pub(crate) async fn requested(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        let (store, policies, now) = (self.store(), self.engine.policies(), self.clock.now());
        let ask = Ask {
            run: wish.run.clone(),
            at: wish.at.unwrap_or(now),
            trigger: wish.trigger,
            requested_by: wish.requested_by.clone(),
        };
        match requests::ask(store, policies, (&wish.scope, wish.dry_run), &ask, now).await? {
            Taken::Queued(_) | Taken::Known(Standing::Waiting | Standing::Running) => {}
            Taken::Known(Standing::Over) => return Ok(Swept::Repeated),
            Taken::Superseded { by } => return Ok(Swept::Superseded { by }),
            Taken::OverLimit(why) => return Ok(Swept::LeftToSchedule(why)),
        }
        let key = Request::key_of(&wish.scope, wish.dry_run);
        let Some(request) = requests::load(store, &key, now).await? else { return Ok(Swept::Repeated) };
        if let Some(newer) = request.waiting().filter(|asked| asked.run != wish.run) {
            return Ok(Swept::Superseded { by: newer.run.clone() });
        }
        Ok(match self.grant(&request, &wish.holder, deadline, false).await? {
            Granted::Done(summary, _) => Swept::Done(summary),
            Granted::Later { by, until } => Swept::Busy { by, until },
            Granted::Nothing => Swept::Repeated,
        })
    }

    /// The regular sweep grants what is due, as many at once as may be, one of each repository. Answers whom they visited.
    pub(crate) async fn grant_due(&self, pass: &mut Pass<'_, S, O>, keys: Vec<String>) -> BTreeSet<PrId> {
        let mut visited = BTreeSet::new();
        if keys.is_empty() || !pass.goes_on().await {
            return visited;
        }
        let read = self.due_requests(pass, &keys).await;
        let mut rest = read.unwrap_or_else(|error| {
            pass.failed("requests", &error);
            Vec::new()
        });
        let at_once = usize::try_from(self.engine.policies().base().triggers.at_once).unwrap_or(1).max(1);
        while !rest.is_empty() && pass.goes_on().await {
            let (round, later) = next_round(rest, at_once);
            rest = later;
            let (holder, deadline) = (&pass.wish.holder, pass.deadline);
            // Boxed one by one: their futures are large, and there are several.
            let grants = round.iter().map(|request| Box::pin(self.grant(request, holder, deadline, true)));
            for (request, granted) in round.iter().zip(join_all(grants).await) {
                match granted {
                    Ok(Granted::Done(_, seen)) => {
                        pass.summary.requests += 1;
                        visited.extend(seen);
                    }
                    Ok(Granted::Later { by, until }) => info!(request = request.key(), by, %until, "a request waits"),
                    Ok(Granted::Nothing) => {}
                    Err(error) => pass.failed("requests", &error),
                }
            }
        }
        visited
    }

    /// The requests themselves, the longest due first. A row nobody understands is put off like any other.
    async fn due_requests(&self, pass: &mut Pass<'_, S, O>, keys: &[String]) -> Result<Vec<Request>, StoreError> {
        let now = self.clock.now();
        let mut found = lookup::requests(self.store(), keys, now).await?;
        for key in keys.iter().filter(|key| found.iter().all(|request| request.key() != **key)) {
            if let Err(error) = requests::load(self.store(), key, now).await {
                pass.unreadable(rows::request_key(key), EngineError::Store(error)).await?;
            }
        }
        found.sort_by_key(|request| (request.due_at(), request.key()));
        Ok(found)
    }

    /// Grants a request, if its time has come and there is room.
    async fn grant(
        &self,
        request: &Request,
        holder: &str,
        deadline: Timestamp,
        within_sweep: bool,
    ) -> Result<Granted, StoreError> {
        let (policies, now) = (self.engine.policies(), self.clock.now());
        match request.due_at() {
            None => return Ok(Granted::Nothing),
            Some(until) if until > now => return Ok(Granted::Later { by: "its own date".to_owned(), until }),
            Some(_) => {}
        }
        let policy = request.scope.repo().map_or(policies.base(), |repo| policies.for_repo(repo));
        let patience = SignedDuration::from_mins(i64::from(policy.triggers.timeout_minutes));
        let until = deadline.min(after(now, patience));
        if after(now, READING + RESERVE) >= until {
            // It would end before it could look at anything, and pass for granted.
            return Ok(Granted::Later { by: "the end of this sweep".to_owned(), until: deadline });
        }
        let room = match self.take_room(request, holder, until, within_sweep).await? {
            Ok(room) => room,
            Err(later) => return Ok(later),
        };
        let granted = match requests::begin(self.store(), policies, request, (holder, until), now).await {
            Ok(MayBegin::Yes(begun)) => self.evaluate(&begun, holder, until).await,
            Ok(MayBegin::Later { by, until }) => Ok(Granted::Later { by, until }),
            Ok(MayBegin::No) => Ok(Granted::Nothing),
            Err(error) => Err(error),
        };
        self.give_room(room).await;
        granted
    }

    /// The pass itself, and its end.
    async fn evaluate(&self, begun: &Begun, holder: &str, until: Timestamp) -> Result<Granted, StoreError> {
        let Begun { request, asked, .. } = begun;
        let wish = Wish {
            run: asked.run.clone(),
            holder: holder.to_owned(),
            trigger: asked.trigger,
            requested_by: asked.requested_by.clone(),
            key: None,
            scope: request.scope.clone(),
            dry_run: request.dry_run,
            at: Some(asked.at),
        };
        let mut pass = Pass::new(self, &wish, until);
        pass.summary.stands_for = asked.stands_for;
        Box::pin(pass.stages()).await;
        pass.finish().await;
        if matches!(request.scope, Scope::One(_)) && pass.visited.is_empty() && pass.summary.left > 0 {
            // What is not due is not found by the schedule: it is tried again.
            pass.broken.get_or_insert_with(|| "GitHub could not be asked".to_owned());
        }
        let end = match &pass.broken {
            _ if pass.summary.cancelled => End::Cancelled,
            Some(error) => End::Failed(error),
            None => End::Done,
        };
        let now = self.clock.now();
        let close = |run: Run, then: &Then| pass.closed(run, then, asked.tries);
        let then = requests::end(self.store(), self.engine.policies(), begun, end, close, now).await?;
        let said = pass.summary.sentence();
        info!(request = request.key(), run = %asked.run, stands_for = asked.stands_for, ?then, summary = said, "a request was granted");
        Ok(Granted::Done(Box::new(pass.summary), pass.visited))
    }

    async fn take_room(
        &self,
        request: &Request,
        holder: &str,
        until: Timestamp,
        within_sweep: bool,
    ) -> Result<Result<Room, Granted>, StoreError> {
        let (store, now) = (self.store(), self.clock.now());
        let asked = request.waiting().or_else(|| request.running());
        let (Some(asked), false) = (asked, request.dry_run) else { return Ok(Ok(Room::None)) };
        let Some(repo) = request.scope.repo() else {
            if within_sweep {
                return Ok(Ok(Room::None));
            }
            return Ok(match self.lease(holder, until, now).await? {
                Lease::Held => Ok(Room::Lease(holder.to_owned())),
                Lease::Taken { by, until } => Err(Granted::Later { by, until }),
            });
        };
        let (run, slot) = (asked.run.as_str(), repo_slot(repo));
        let full = |by: &str, until| Ok(Err(Granted::Later { by: by.to_owned(), until }));
        if let Slot::Full { until } = guards::take_place(store, &slot, PER_REPO, run, until, now).await? {
            return full("another request of its repository", until);
        }
        let at_once = self.engine.policies().base().triggers.at_once;
        if let Slot::Full { until } = guards::take_place(store, ALL_REQUESTS, at_once, run, until, now).await? {
            guards::give_place(store, &slot, PER_REPO, run, now).await?;
            return full("as many requests as may be under way", until);
        }
        Ok(Ok(Room::Slots(repo.clone(), asked.run.clone())))
    }

    /// What cannot be given back ends by itself.
    async fn give_room(&self, room: Room) {
        let (store, now) = (self.store(), self.clock.now());
        let (repo, run) = match room {
            Room::None => return,
            Room::Lease(holder) => return self.give_lease(&holder).await,
            Room::Slots(repo, run) => (repo, run),
        };
        let at_once = self.engine.policies().base().triggers.at_once;
        for (name, slots) in [(ALL_REQUESTS.to_owned(), at_once), (repo_slot(&repo), PER_REPO)] {
            if let Err(error) = guards::give_place(store, &name, slots, run.as_str(), now).await {
                warn!(%run, %error, "a request's slot could not be given back");
            }
        }
    }
}

/// As many as may be under way at once, one of each repository; and the rest.
fn next_round(requests: Vec<Request>, at_once: usize) -> (Vec<Request>, Vec<Request>) {
    let (mut round, mut rest): (Vec<Request>, Vec<Request>) = (Vec::new(), Vec::new());
    for request in requests {
        let taken = round.iter().any(|other| !other.dry_run && other.scope.repo() == request.scope.repo());
        if round.len() < at_once && (request.dry_run || !taken) { round.push(request) } else { rest.push(request) }
    }
    (round, rest)
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// A base has moved: everything on it hears so, and as many as may be are looked at now, those of the highest rank first.
    /// The others are due now, and so the schedule's.
    pub(crate) async fn of_base(&mut self, repo: &RepoName, branch: &str) -> Result<Vec<PrId>, StoreError> {
        let now = self.now();
        let mut rest = lookup::on_base(self.store(), repo, branch, now).await?.into_iter();
        let mut records = Vec::new();
        self.summary.due = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        loop {
            let group: Vec<Record> = rest.by_ref().take(self.at_once()).collect();
            if group.is_empty() || self.is_late() {
                break;
            }
            for heard in join_all(group.into_iter().map(|record| self.hear_of_base(record, branch))).await {
                records.extend(heard?);
            }
        }
        records.sort_by_cached_key(|record| (std::cmp::Reverse(record.priority_score(now)), record.id.clone()));
        let ranked = records.into_iter().map(|record| record.id).collect();
        let most = self.policies().for_repo(repo).triggers.max_prs;
        Ok(self.first_of(ranked, most))
    }

    /// One of them hears of it, once for each request, however often that is tried.
    async fn hear_of_base(&self, record: Record, branch: &str) -> Result<Option<Record>, Stopped> {
        if self.wish.dry_run {
            return Ok(Some(record));
        }
        let fact = Fact {
            id: EventId::new(format!("{}.base", self.wish.run)),
            pr: record.id.clone(),
            occurred_at: self.wish.at.unwrap_or_else(|| self.now()),
            actor: Actor::GithubWebhook,
            what: Happened::BaseMoved { base: branch.to_owned() },
        };
        match self.settle(record.clone(), &fact).await {
            Ok(applied) => Ok(Some(applied.record.unwrap_or(record))),
            Err(error) => self.lost(error).map(|_| None),
        }
    }

    /// A request's run, as it is to be after this pass; nothing if it is somebody else's by now.
    fn closed(&self, run: Run, then: &Then, tries: u32) -> Option<Run> {
        let now = self.now();
        let context = TransitionContext::new(Initiator::System, now);
        let (said, error) = (self.summary.sentence(), self.broken.clone().unwrap_or_default());
        let summed_up = self.summed_up(&run, now);
        let closed = match then {
            Then::Lost => return None,
            Then::Over if self.summary.cancelled => run.checkpoint(summed_up).and_then(|run| run.cancel(said, context)),
            Then::Over => run.checkpoint(summed_up).and_then(|run| run.complete(said, context)),
            Then::Superseded { by } => {
                let said = format!("{}; {said}", words::superseded(by));
                run.checkpoint(summed_up).and_then(|run| run.cancel(said, context))
            }
            Then::GivenUp => run.checkpoint(summed_up).and_then(|run| run.fail("given up", error, context)),
            Then::Again { .. } => {
                let step = Step::started(format!("try-{tries}"), run.updated_at).idempotent().failed(error, now);
                run.checkpoint(step).map(|run| Run { lease_until: None, lease_holder: None, ..run })
            }
        };
        match closed {
            Ok(run) => Some(Run { partial: self.summary.partial, ..run }),
            Err(error) => {
                warn!(run = %self.wish.run, %error, "a request's run is left as it is");
                None
            }
        }
    }
}
