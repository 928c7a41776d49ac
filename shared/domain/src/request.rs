//! A reconcile request (R-TRIGGER-1 to R-TRIGGER-9): somebody wants pull requests looked at before the schedule would. There is one request for
//! each thing that can be asked for, and it is the debounce: of all who ask for the same, the newest by the time of what
//! happened waits, and stands for the others. It has a date like everything else. Decisions only: counting, slots and rows are
//! the platform's, and the visit itself is a sweep's.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backoff::Schedule;
use crate::id::{PrId, RepoName, RunId};
use crate::policy::Triggers;
use crate::pull_request::seconds;
use crate::run::RunTrigger;
use crate::time::saturating_after;

/// How long a request that nobody waits for any more is remembered: what happened before it is history until then.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    All,
    Repo(RepoName),
    /// Every open pull request on a base branch, due or not.
    Base(RepoName, String),
    /// One pull request, due or not.
    One(PrId),
}

impl Scope {
    /// The repository it is about; everything is about none.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            Self::All => None,
            Self::Repo(repo) | Self::Base(repo, _) => Some(repo),
            Self::One(pr) => Some(&pr.repo),
        }
    }
}

impl fmt::Display for Scope {
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
pub struct Ask {
    /// The name of the run it gets: the same in every repetition.
    pub run: RunId,
    /// When what it is about happened, by whoever tells: the newest counts, in whatever order they come.
    pub at: Timestamp,
    pub trigger: RunTrigger,
    /// Who asks, if a person.
    pub requested_by: Option<String>,
}

/// The one that waits or is worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub run: RunId,
    pub at: Timestamp,
    pub trigger: RunTrigger,
    /// Who asked, if a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When the first of those came that it stands for.
    pub first_at: Timestamp,
    pub due_at: Timestamp,
    /// How many it stands for, itself included.
    pub stands_for: u32,
    #[serde(default)]
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Asked {
    /// Whether its run was promised to somebody, and so is there before it begins.
    pub fn is_promised(&self) -> bool {
        self.trigger == RunTrigger::AdminApi
    }
}

/// Somebody is at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    asked: Asked,
    holder: String,
    /// The first moment at which its worker counts as gone.
    until: Timestamp,
}

/// What was looked at last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Evaluated {
    run: RunId,
    at: Timestamp,
}

/// The request: one for each scope, and one more for dry runs of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub scope: Scope,
    /// Only say what would be done.
    pub dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting: Option<Asked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<Running>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluated: Option<Evaluated>,
    /// How often it has changed; 0 is one that was never written.
    pub version: u64,
}

/// What becomes of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It waits, and whatever else waited is superseded by it.
    Queued(Box<Queued>),
    /// This very one was asked for before; it waits, is under way or over.
    Known(Standing),
    /// Something newer waits, is under way or was looked at: that shows what this one would.
    Superseded { by: RunId },
}

/// How far the same ask has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    Running,
    Over,
}

/// An ask that waits now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The request, as it is to be.
    pub request: Request,
    /// The one that waited, and does not any more.
    pub replaced: Option<Asked>,
    /// The one that is under way, and is to stop at its next stage boundary.
    pub cancel: Option<RunId>,
    /// Whether nothing waited before: only then does it count against the limits of the day.
    pub is_first: bool,
}

/// Whether it may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    Begun {
        /// The request, as it is to be.
        request: Box<Request>,
        asked: Box<Asked>,
        /// One whose worker is gone, and which something newer has superseded.
        overtaken: Option<RunId>,
    },
    /// It was begun as often as it may be.
    GivenUp {
        /// The request, as it is to be.
        request: Box<Request>,
        asked: Box<Asked>,
    },
    Busy {
        by: String,
        /// Until when at the latest.
        until: Timestamp,
    },
    /// It waits for quiet, or for its next try.
    NotYet {
        until: Timestamp,
    },
    Nothing,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// It was looked at, all of it or as much as time allowed.
    Done,
    /// Somebody did not want it any more: neither a failure nor a try.
    Cancelled,
    Failed(&'a str),
}

/// What follows from that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    Over,
    Superseded {
        by: RunId,
    },
    Again {
        at: Timestamp,
    },
    GivenUp,
    /// Somebody else has taken it over meanwhile.
    Lost,
}

/// What becomes of a wish to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancel {
    Removed(Box<Request>),
    /// It is under way, and has to be told.
    Running,
    /// It is over, or was never here.
    NotHere,
}

impl Request {
    /// One that nobody has asked for yet.
    pub fn new(scope: Scope, dry_run: bool) -> Self {
        Self { scope, dry_run, waiting: None, running: None, evaluated: None, version: 0 }
    }

    /// What makes two asks the same thing. Who only wants to know does not supersede who wants it done.
    pub fn key_of(scope: &Scope, dry_run: bool) -> String {
        if dry_run { format!("dry:{scope}") } else { scope.to_string() }
    }

    /// See [`Request::key_of`].
    pub fn key(&self) -> String {
        Self::key_of(&self.scope, self.dry_run)
    }

    pub fn waiting(&self) -> Option<&Asked> {
        self.waiting.as_ref()
    }

    pub fn running(&self) -> Option<&Asked> {
        self.running.as_ref().map(|running| &running.asked)
    }

    fn touched(mut self) -> Self {
        self.version = self.version.saturating_add(1);
        self
    }

    fn standing_of(&self, run: &RunId) -> Option<Standing> {
        if self.waiting.as_ref().is_some_and(|asked| asked.run == *run) {
            Some(Standing::Waiting)
        } else if self.running().is_some_and(|asked| asked.run == *run) {
            Some(Standing::Running)
        } else if self.evaluated.as_ref().is_some_and(|last| last.run == *run) {
            Some(Standing::Over)
        } else {
            None
        }
    }

    /// The newest of all that are known, by the time of what happened.
    fn newest(&self) -> Option<(Timestamp, &RunId)> {
        let waiting = self.waiting.as_ref().map(|asked| (asked.at, &asked.run));
        let running = self.running().map(|asked| (asked.at, &asked.run));
        let evaluated = self.evaluated.as_ref().map(|last| (last.at, &last.run));
        [waiting, running, evaluated].into_iter().flatten().max_by_key(|(at, _)| *at)
    }

    /// Somebody asks. What machines tell waits until it is quiet, though not for ever; what people ask for does not wait.
    pub fn ask(&self, ask: &Ask, settings: &Triggers, now: Timestamp) -> Answer {
        if let Some(standing) = self.standing_of(&ask.run) {
            return Answer::Known(standing);
        }
        if let Some((at, run)) = self.newest()
            && at > ask.at
        {
            return Answer::Superseded { by: run.clone() };
        }
        let replaced = self.waiting.clone();
        let first_at = replaced.as_ref().map_or(now, |asked| asked.first_at);
        let mut due_at = now;
        if ask.trigger == RunTrigger::Webhook {
            let patience = saturating_after(first_at, seconds(settings.longest_wait_secs));
            due_at = saturating_after(now, seconds(settings.quiet_secs)).min(patience);
        }
        let waiting = Asked {
            run: ask.run.clone(),
            at: ask.at,
            trigger: ask.trigger,
            requested_by: ask.requested_by.clone(),
            first_at,
            due_at,
            stands_for: replaced.as_ref().map_or(0, |asked| asked.stands_for).saturating_add(1),
            tries: 0,
            error: None,
        };
        let is_first = replaced.is_none();
        let cancel = self.running().map(|asked| asked.run.clone());
        let request = Self { waiting: Some(waiting), ..self.clone() }.touched();
        Answer::Queued(Box::new(Queued { request, replaced, cancel, is_first }))
    }

    /// Somebody could begin with it. A try counts when it begins, so that one which kills its worker ends too.
    pub fn begin(&self, holder: &str, until: Timestamp, settings: &Triggers, now: Timestamp) -> Begin {
        let (waiting, overtaken) = match (&self.running, &self.waiting) {
            (Some(running), _) if now < running.until => {
                return Begin::Busy { by: running.holder.clone(), until: running.until };
            }
            // Its worker is gone. Something newer takes its place, or it is tried again.
            (Some(lost), Some(newer)) => (newer.clone(), Some(lost.asked.run.clone())),
            (Some(lost), None) => (Asked { due_at: now, ..lost.asked.clone() }, None),
            (None, Some(waiting)) => (waiting.clone(), None),
            (None, None) => return Begin::Nothing,
        };
        if waiting.due_at > now {
            return Begin::NotYet { until: waiting.due_at };
        }
        if waiting.tries > settings.retries {
            let request = Self { waiting: None, running: None, ..self.clone() }.touched();
            return Begin::GivenUp { request: Box::new(request), asked: Box::new(waiting) };
        }
        let asked = Asked { tries: waiting.tries.saturating_add(1), ..waiting };
        let running = Running { asked: asked.clone(), holder: holder.to_owned(), until };
        let request = Self { waiting: None, running: Some(running), ..self.clone() }.touched();
        Begin::Begun { request: Box::new(request), asked: Box::new(asked), overtaken }
    }

    /// A visit has ended: what follows, and the request as it is to be.
    pub fn end(
        &self,
        run: &RunId,
        end: End<'_>,
        pauses: Schedule,
        settings: &Triggers,
        now: Timestamp,
    ) -> (Self, Then) {
        let Some(Running { asked, .. }) = self.running.clone().filter(|running| running.asked.run == *run) else {
            return (self.clone(), Then::Lost);
        };
        let mut request = Self { running: None, ..self.clone() }.touched();
        let newer = request.waiting.as_ref().map(|newer| newer.run.clone());
        let then = match (end, newer) {
            (End::Done, _) => {
                request.evaluated = Some(Evaluated { run: asked.run, at: asked.at });
                Then::Over
            }
            (End::Cancelled | End::Failed(_), Some(by)) => Then::Superseded { by },
            (End::Cancelled, None) => Then::Over,
            (End::Failed(_), None) if asked.tries > settings.retries => Then::GivenUp,
            (End::Failed(error), None) => {
                let at = saturating_after(now, pauses.delay(asked.tries));
                request.waiting = Some(Asked { due_at: at, error: Some(error.to_owned()), ..asked });
                Then::Again { at }
            }
        };
        (request, then)
    }

    /// Somebody does not want this run any more.
    pub fn cancel(&self, run: &RunId) -> Cancel {
        match self.standing_of(run) {
            Some(Standing::Waiting) => Cancel::Removed(Box::new(Self { waiting: None, ..self.clone() }.touched())),
            Some(Standing::Running) => Cancel::Running,
            Some(Standing::Over) | None => Cancel::NotHere,
        }
    }

    /// When somebody has to look at it: what waits at its time, what is under way when its worker counts as gone.
    pub fn due_at(&self) -> Option<Timestamp> {
        let running = self.running.as_ref().map(|running| running.until);
        running.or_else(|| self.waiting.as_ref().map(|asked| asked.due_at))
    }

    /// Until when it is remembered, once nobody waits for it.
    pub fn ttl(&self, now: Timestamp) -> Option<Timestamp> {
        (self.running.is_none() && self.waiting.is_none()).then(|| saturating_after(now, REMEMBERED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: fn() -> Triggers = Triggers::default;
    const PAUSES: Schedule = Schedule { base_secs: 30, max_secs: 600 };

    fn at(secs: i64) -> Timestamp {
        "2036-03-03T09:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
    }

    fn push(run: &str, secs: i64) -> Ask {
        Ask { run: RunId::new(run), at: at(secs), trigger: RunTrigger::Webhook, requested_by: None }
    }

    fn base() -> Request {
        Request::new(Scope::Base("acme/shop".parse().unwrap(), "main".to_owned()), false)
    }

    fn queued(request: &Request, ask: &Ask, now: i64) -> Queued {
        match request.ask(ask, &SETTINGS(), at(now)) {
            Answer::Queued(queued) => *queued,
            other @ (Answer::Known(_) | Answer::Superseded { .. }) => panic!("{other:?}"),
        }
    }

    fn begun(request: &Request, holder: &str, now: i64) -> (Request, Asked) {
        match request.begin(holder, at(now + 600), &SETTINGS(), at(now)) {
            Begin::Begun { request, asked, .. } => (*request, *asked),
            other @ (Begin::GivenUp { .. } | Begin::Busy { .. } | Begin::NotYet { .. } | Begin::Nothing) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn each_thing_that_can_be_asked_for_has_its_own_key() {
        let repo: RepoName = "acme/shop".parse().unwrap();
        let scopes = [
            Scope::All,
            Scope::Repo(repo.clone()),
            Scope::Base(repo.clone(), "release/1".to_owned()),
            Scope::One(PrId::new(repo.clone(), 7)),
        ];
        let keys: Vec<String> = scopes.iter().map(|scope| Request::new(scope.clone(), false).key()).collect();
        assert_eq!(keys, ["all", "repo:acme/shop", "base:acme/shop#release/1", "pr:acme/shop#7"]);
        assert_eq!(Request::new(Scope::All, true).key(), "dry:all");
        let repos: Vec<Option<&RepoName>> = scopes.iter().map(Scope::repo).collect();
        assert_eq!(repos, [None, Some(&repo), Some(&repo), Some(&repo)]);
    }

    #[test]
    fn the_newest_by_event_time_wins_in_whatever_order_they_come() {
        let first = queued(&base(), &push("b", 20), 21);
        assert!(first.is_first && first.replaced.is_none());
        let older = first.request.ask(&push("a", 10), &SETTINGS(), at(22));
        assert_eq!(older, Answer::Superseded { by: RunId::new("b") });
        let newer = queued(&first.request, &push("c", 30), 31);
        assert_eq!(newer.replaced.as_ref().map(|asked| asked.run.as_str()), Some("b"));
        assert!(!newer.is_first, "it counts once, however often it is asked for");
        let waiting = newer.request.waiting().unwrap();
        assert_eq!((waiting.run.as_str(), waiting.stands_for, waiting.first_at), ("c", 2, at(21)));
        // The same second: the one that came last.
        assert_eq!(queued(&newer.request, &push("d", 30), 32).request.waiting().unwrap().run.as_str(), "d");
        assert_eq!(newer.request.ask(&push("c", 30), &SETTINGS(), at(33)), Answer::Known(Standing::Waiting));
    }

    #[test]
    fn a_storm_waits_for_quiet_but_not_for_ever() {
        let settings = SETTINGS();
        let (quiet, longest) = (i64::from(settings.quiet_secs), i64::from(settings.longest_wait_secs));
        let mut request = base();
        for second in 0..=2 * longest {
            request = queued(&request, &push(&format!("r{second}"), second), second).request;
            assert_eq!(request.due_at(), Some(at((second + quiet).min(longest))), "{second}");
        }
        let person = Ask { trigger: RunTrigger::AdminApi, ..push("p", 0) };
        assert_eq!(queued(&base(), &person, 5).request.due_at(), Some(at(5)), "people do not wait");
    }

    #[test]
    fn what_is_under_way_is_cancelled_by_something_newer_and_not_by_something_older() {
        let (running, asked) = begun(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        assert_eq!((asked.tries, running.due_at()), (1, Some(at(630))));
        assert_eq!(running.ask(&push("z", 5), &SETTINGS(), at(31)), Answer::Superseded { by: RunId::new("a") });
        let newer = queued(&running, &push("b", 31), 32);
        assert_eq!(newer.cancel, Some(RunId::new("a")));
        assert!(newer.is_first, "nothing waited");
        assert_eq!(newer.request.due_at(), Some(at(630)), "not before the first has ended, or its worker is gone");
        let (request, then) = newer.request.end(&RunId::new("a"), End::Cancelled, PAUSES, &SETTINGS(), at(40));
        assert_eq!(then, Then::Superseded { by: RunId::new("b") });
        assert_eq!((request.due_at(), request.ttl(at(40))), (Some(at(42)), None));
        assert_eq!(begun(&request, "h", 42).1.run.as_str(), "b");
    }

    #[test]
    fn who_was_looked_at_is_remembered_for_a_day() {
        let (running, asked) = begun(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let (done, then) = running.end(&asked.run, End::Done, PAUSES, &SETTINGS(), at(40));
        assert_eq!((then, done.due_at(), done.ttl(at(40))), (Then::Over, None, Some(at(40 + 86_400))));
        assert_eq!(done.ask(&push("a", 10), &SETTINGS(), at(41)), Answer::Known(Standing::Over));
        assert_eq!(done.ask(&push("z", 9), &SETTINGS(), at(41)), Answer::Superseded { by: RunId::new("a") });
        assert!(matches!(done.ask(&push("b", 10), &SETTINGS(), at(41)), Answer::Queued(_)));
        assert_eq!(done.begin("h", at(900), &SETTINGS(), at(41)), Begin::Nothing);
    }

    #[test]
    fn it_is_tried_again_three_times_with_growing_pauses() {
        let mut request = queued(&base(), &push("a", 0), 0).request;
        let mut now = 10;
        for pause in [30, 60, 120] {
            let (running, asked) = begun(&request, "h", now);
            let (again, then) = running.end(&asked.run, End::Failed("no"), PAUSES, &SETTINGS(), at(now));
            assert_eq!(then, Then::Again { at: at(now + pause) });
            let early = again.begin("h", at(9_999), &SETTINGS(), at(now + pause - 1));
            assert_eq!(early, Begin::NotYet { until: at(now + pause) });
            assert_eq!(again.waiting().unwrap().error.as_deref(), Some("no"));
            (request, now) = (again, now + pause);
        }
        let (running, asked) = begun(&request, "h", now);
        assert_eq!(asked.tries, 4, "once, and three times again");
        let (over, then) = running.end(&asked.run, End::Failed("no"), PAUSES, &SETTINGS(), at(now));
        assert_eq!((then, over.due_at()), (Then::GivenUp, None));
    }

    #[test]
    fn a_worker_that_died_costs_a_try_and_the_last_one_gives_up() {
        let mut request = queued(&base(), &push("a", 0), 0).request;
        let mut now = 10;
        for tries in 1..=4 {
            let (running, asked) = begun(&request, &format!("h{tries}"), now);
            assert_eq!(asked.tries, tries);
            let busy = running.begin("other", at(9_999), &SETTINGS(), at(now + 599));
            assert_eq!(busy, Begin::Busy { by: format!("h{tries}"), until: at(now + 600) });
            (request, now) = (running, now + 600);
        }
        let Begin::GivenUp { request, asked } = request.begin("h5", at(9_999), &SETTINGS(), at(now)) else { panic!() };
        assert_eq!((asked.run.as_str(), request.due_at()), ("a", None));
    }

    #[test]
    fn who_takes_over_from_a_dead_worker_takes_the_newest() {
        let (running, _) = begun(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let newer = queued(&running, &push("b", 31), 32).request;
        let Begin::Begun { asked, overtaken, .. } = newer.begin("i", at(9_999), &SETTINGS(), at(630)) else { panic!() };
        assert_eq!((asked.run.as_str(), asked.tries, overtaken), ("b", 1, Some(RunId::new("a"))));
        // And the dead one, if it was only slow, changes nothing any more.
        let (request, _) = begun(&newer, "i", 630);
        assert_eq!(
            request.end(&RunId::new("a"), End::Done, PAUSES, &SETTINGS(), at(640)),
            (request.clone(), Then::Lost)
        );
    }

    #[test]
    fn cancelling_removes_what_waits_tells_what_runs_and_leaves_the_rest() {
        let waiting = queued(&base(), &push("a", 10), 10).request;
        let Cancel::Removed(request) = waiting.cancel(&RunId::new("a")) else { panic!() };
        assert_eq!((request.due_at(), request.version), (None, 2));
        assert_eq!(waiting.cancel(&RunId::new("b")), Cancel::NotHere);
        let (running, asked) = begun(&waiting, "h", 30);
        assert_eq!(running.cancel(&asked.run), Cancel::Running);
        let (over, then) = running.end(&asked.run, End::Cancelled, PAUSES, &SETTINGS(), at(31));
        assert_eq!((then, over.due_at()), (Then::Over, None));
        assert_eq!(over.cancel(&asked.run), Cancel::NotHere);
        // It was no evaluation: what it would have shown may be asked for again, and begins without a try.
        assert_eq!(begun(&queued(&over, &push("a", 10), 40).request, "h", 50).1.tries, 1);
    }

    #[test]
    fn it_survives_being_written_down() {
        let (running, _) = begun(&queued(&base(), &push("a", 10), 10).request, "h", 30);
        let whole = queued(&running, &push("b", 31), 32).request;
        let json = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&json).unwrap(), whole);
    }
}
