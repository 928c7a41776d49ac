//! What a sweep does beyond single pull requests (seed 004): `sentinel` looks whether what was merged has broken something,
//! `backlog` looks after issues that become pull requests, `status` keeps one issue up to date. Reading and remembering only: what
//! follows is decided in `domain::coordination`, and written to GitHub by the Car Bridge. A step that fails never keeps the next
//! from being taken, and what nobody has configured costs nothing.

mod backlog;
mod post_merge_health;
mod status_issue;

use std::time::Duration;

use domain::id::{RepoName, RunId};
use domain::policy::{Mode, Policies};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use tracing::error;

use crate::limits::rate_budget::{self, Work};
use platform::clock::Clock;
use platform::engine::{Engine, EngineError};
use platform::github::GitHub;
use platform::guards;
use platform::http::{CallError, Transport};
use platform::outlets::message::{Chore, Message};
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::store::{Store, StoreError};
use platform::sweep_summary::Coordinated;

/// Sending may take this long.
const SEND_FOR: Duration = Duration::from_secs(5);
/// No step is begun with less than this left: the longest of them waits 8 s for a health address.
const RESERVE: SignedDuration = SignedDuration::from_secs(10);

/// Why a step could not be taken. The next sweep takes it again.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Undelivered(#[from] Undelivered),
    #[error("{0}")]
    Missing(&'static str),
}

/// A sweep's look beyond single pull requests.
pub(crate) struct Beyond<'a, S, O> {
    pub(crate) engine: &'a Engine<S, O>,
    pub(crate) github: &'a GitHub,
    /// For health addresses; nothing else is asked through it.
    pub(crate) http: Option<&'a Transport>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) deadline: Timestamp,
    pub(crate) run: &'a RunId,
    /// `closed`, `open` or `half_open`; empty if it could not be read.
    pub(crate) breaker: &'a str,
}

/// What went wrong, by step.
pub(crate) type Failures = Vec<(&'static str, String)>;

/// Whether anything of all this is configured.
pub(crate) fn is_configured(policies: &Policies) -> bool {
    let all = std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy));
    all.into_iter()
        .any(|policy| !policy.sentinel.urls.is_empty() || policy.backlog.enabled || !policy.status.repo.is_empty())
}

impl<S: Store, O: Outlets> Beyond<'_, S, O> {
    /// All steps, in order. Status is the last, and always reached while there is time.
    pub(crate) async fn coordinate(&self) -> (Coordinated, Failures) {
        let (mut told, mut failed) = (Coordinated::default(), Failures::new());
        match guards::paused(self.store(), self.now()).await {
            Ok(by) => self.act(by.is_none(), &mut told, &mut failed).await,
            // Whether somebody has stopped all acting is not known: nothing is begun, and nothing judged, until it is.
            Err(error) => failed.push(("pause", error.to_string())),
        }
        if self.has_time("status", &mut told) {
            self.note("status", Box::pin(self.status(&mut told)).await, &mut failed);
        }
        (told, failed)
    }

    async fn act(&self, acts: bool, told: &mut Coordinated, failed: &mut Failures) {
        if self.has_time("sentinel", told) {
            self.note("sentinel", Box::pin(self.sentinel(acts, told)).await, failed);
        }
        if !acts {
            told.left_out.push("backlog: somebody has paused Suture".to_owned());
        } else if self.has_time("backlog", told) {
            let done = Box::pin(self.backlog(told, failed)).await;
            self.note("backlog", done, failed);
        }
    }

    fn note(&self, step: &'static str, done: Result<(), Failed>, failed: &mut Failures) {
        if let Err(why) = done {
            error!(run = %self.run, step, error = %why, "a step beyond single pull requests failed");
            failed.push((step, why.to_string()));
        }
    }

    fn has_time(&self, step: &str, told: &mut Coordinated) -> bool {
        let has = after(self.now(), RESERVE) < self.deadline;
        if !has {
            told.left_out.push(format!("{step}: no time was left"));
        }
        has
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn store(&self) -> &S {
        self.engine.store()
    }

    fn policies(&self) -> &Policies {
        self.engine.policies()
    }

    /// Whether GitHub may be written to about this repository.
    fn acts_in(&self, repo: &RepoName) -> bool {
        self.policies().for_repo(repo).mode == Mode::Act
    }

    /// Whether work can wait, because little is left of what GitHub allows in an hour; if so, it is told.
    fn is_scarce(&self, work: Work, step: &str, told: &mut Coordinated) -> bool {
        let now = self.now();
        let until = rate_budget::left_out_until(&self.github.rates(), work, now).or_else(|| self.github.not_before());
        if let Some(until) = until.filter(|until| *until > now) {
            told.left_out.push(format!("{step}: little is left of GitHub's rate limit until {until}"));
            return true;
        }
        false
    }

    /// Puts a chore onto the Car Bridge's queue.
    async fn send(&self, id: String, chore: Chore) -> Result<(), Failed> {
        let Some(repo) = chore.repo().cloned() else { return Ok(()) };
        let what = Content::Queue { message: Message::Chore(chore), repo, delay: Duration::ZERO };
        let sent = tokio::time::timeout(SEND_FOR, self.engine.outlets().send(&[Parcel { id, what }])).await;
        match sent.map(|answers| answers.into_iter().next()) {
            Ok(Some(answer)) => Ok(answer?),
            Ok(None) => Err(Undelivered("nobody answered for it".to_owned()).into()),
            Err(_) => Err(Undelivered("it took too long".to_owned()).into()),
        }
    }
}

/// When a moment is so much later.
fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_configured_by_default() {
        assert!(!is_configured(&Policies::default()));
        for text in [
            "sentinel.urls = ['https://shop.example']",
            "backlog.enabled = true",
            "status.repo = 'acme/ops'",
            "[repos.'acme/shop']\nstatus.repo = 'acme/shop'",
        ] {
            assert!(is_configured(&Policies::parse(text).unwrap()), "{text}");
        }
    }
}
