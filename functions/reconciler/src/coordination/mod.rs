//! What a sweep does beyond single pull requests (R-COORD-2 to R-COORD-9): `post_merge_health` requests health URLs after merges,
//! `backlog` looks after issues that become pull requests, `status_issue` keeps one issue up to date. They read, and
//! remember what they saw: what follows is decided in `domain::coordination`, and written to GitHub by the Car Bridge.
//! A step that fails never keeps the next from being taken, and what is not configured costs nothing.

mod backlog;
mod post_merge_health;
mod status_issue;

use std::time::Duration;

use domain::id::RepoName;
use domain::policy::{Mode, Policies};
use platform::engine::EngineError;
use platform::guards;
use platform::http::{CallError, Transport};
use platform::outlets::message::{Chore, Message};
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::store::{Store, StoreError};
use platform::sweep_summary::{Coordinated, Summary};
use thiserror::Error;
use tracing::error;

use crate::context::{RESERVE, SweepContext, after};
use crate::limits::rate_budget::{WorkKind, shed_until};

/// Why a step could not be taken. The next sweep takes it again.
#[derive(Debug, Clone, PartialEq, Error)]
enum Failed {
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

/// What the steps share.
struct Coordinator<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    /// For health URLs; nothing else is requested through it.
    http: Option<&'a Transport>,
    /// `closed`, `open` or `half_open`; empty if it could not be read.
    breaker: &'a str,
}

/// What went wrong, by step.
type Failures = Vec<(&'static str, String)>;

/// Whether anything of all this is configured.
fn is_configured(policies: &Policies) -> bool {
    let all = std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy));
    all.into_iter()
        .any(|policy| !policy.sentinel.urls.is_empty() || policy.backlog.enabled || !policy.status.repo.is_empty())
}

/// Takes all steps that are configured, unless the sweep was cancelled.
pub(crate) async fn run<S: Store, O: Outlets>(
    cx: &SweepContext<'_, S, O>,
    http: Option<&Transport>,
    summary: &mut Summary,
) {
    if summary.cancelled || !is_configured(cx.policies()) {
        return;
    }
    let (coordinated, failed) = Coordinator { cx, http, breaker: &summary.breaker }.coordinate().await;
    summary.coordination = Some(coordinated);
    for (step, why) in failed {
        summary.fail(step, &why);
    }
}

impl<S: Store, O: Outlets> Coordinator<'_, S, O> {
    /// All steps, in order. Status is the last, and always reached while there is time.
    async fn coordinate(&self) -> (Coordinated, Failures) {
        let (mut summary, mut failed) = (Coordinated::default(), Failures::new());
        match guards::paused(self.cx.store(), self.cx.now()).await {
            Ok(by) => self.act(by.is_none(), &mut summary, &mut failed).await,
            // Whether somebody has stopped all acting is not known: nothing is begun, and nothing judged, until it is.
            Err(error) => failed.push(("pause", error.to_string())),
        }
        if self.has_time("status", &mut summary) {
            self.note("status", Box::pin(self.status(&mut summary)).await, &mut failed);
        }
        (summary, failed)
    }

    async fn act(&self, acts: bool, summary: &mut Coordinated, failed: &mut Failures) {
        if self.has_time("sentinel", summary) {
            self.note("sentinel", Box::pin(self.sentinel(acts, summary)).await, failed);
        }
        if !acts {
            summary.left_out.push("backlog: somebody has paused Suture".to_owned());
        } else if self.has_time("backlog", summary) {
            let done = Box::pin(self.backlog(summary, failed)).await;
            self.note("backlog", done, failed);
        }
    }

    fn note(&self, step: &'static str, done: Result<(), Failed>, failed: &mut Failures) {
        if let Err(why) = done {
            error!(run = %self.cx.wish.run, step, error = %why, "coordination step failed");
            failed.push((step, why.to_string()));
        }
    }

    fn has_time(&self, step: &str, summary: &mut Coordinated) -> bool {
        // The longest step waits 8 s for a health URL.
        let has = after(self.cx.now(), RESERVE) < self.cx.deadline;
        if !has {
            summary.left_out.push(format!("{step}: no time was left"));
        }
        has
    }

    /// Whether GitHub may be written to about this repository.
    fn acts_in(&self, repo: &RepoName) -> bool {
        self.cx.policies().for_repo(repo).mode == Mode::Act
    }

    /// Whether work can wait, because little is left of what GitHub allows in an hour; if so, the summary says it.
    fn is_scarce(&self, work: WorkKind, step: &str, summary: &mut Coordinated) -> bool {
        let now = self.cx.now();
        let until = shed_until(&self.cx.github.rates(), work, now).or_else(|| self.cx.github.not_before());
        if let Some(until) = until.filter(|until| *until > now) {
            summary.left_out.push(format!("{step}: little is left of GitHub's rate limit until {until}"));
            return true;
        }
        false
    }

    /// Puts a chore onto the Car Bridge's queue.
    async fn send(&self, id: String, chore: Chore) -> Result<(), Failed> {
        let Some(repo) = chore.repo().cloned() else { return Ok(()) };
        let what = Content::Queue { message: Message::Chore(chore), repo, delay: Duration::ZERO };
        Ok(self.cx.engine.outlets().send_now(Parcel { id, what }).await?)
    }
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
