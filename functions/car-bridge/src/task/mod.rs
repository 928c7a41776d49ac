//! Small things to do on GitHub that no record depends on. Each asks its probe before it is done, so that a message that comes twice
//! does it once; what GitHub does not want now is put off on the queue.

mod backlog;
mod managed_issue;

use std::time::Duration;

use domain::id::{PrId, RepoName};
use jiff::Timestamp;

use crate::dispatch::{Again, Bridge, Handled};
use platform::github::CheckRun;
use platform::outlets::message::{Chore, Message};
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::Store;

/// The queue can put nothing off for longer.
const LONGEST_DELAY_SECS: u64 = 900;
const LEFT_ALONE: &str = "GitHub wants to be left alone";
/// Whose errands those are that belong to no repository.
const ERRANDS: &str = "suture/errands";

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub(crate) async fn chore(&self, id: &str, chore: &Chore) -> Result<Handled, Again> {
        if let Some(until) = self.github_held_off().await? {
            return self.put_off(id, chore, until, LEFT_ALONE).await;
        }
        let github = &self.world.github;
        let done = match chore {
            Chore::Redeliver { delivery } => {
                let asked = github.redeliver(*delivery).await;
                asked.map(|()| Handled::Done(format!("delivery {delivery} was asked for again"))).map_err(Again::from)
            }
            Chore::React { repo, subject, reaction } => {
                // Reacting twice is reacting once: GitHub itself is the probe.
                let reacted = github.react(repo, subject, *reaction).await;
                reacted.map(|()| Handled::Done(format!("reacted to {subject}"))).map_err(Again::from)
            }
            Chore::Comment { pr, marker, text, since } => self.comment_chore(pr, marker, text, *since).await,
            Chore::CheckRun { pr, head_sha, text, as_of } => {
                self.show(&pr.repo, &CheckRun::of(pr, head_sha, text), *as_of).await
            }
            Chore::Issue { repo, issue } => self.issue_chore(id, chore, repo, issue).await,
            Chore::AskForPull { repo, ask } => self.ask_for_pull(repo, ask).await,
            Chore::Tend { repo, tending } => self.tend(repo, tending).await,
        };
        let Err(Again::Call(error)) = done else { return done };
        match error.until() {
            Some(until) => {
                self.note_limit(&error).await?;
                self.put_off(id, chore, until, LEFT_ALONE).await
            }
            None if error.is_transient() => Err(error.into()),
            None => Ok(Handled::Failed(error.to_string())),
        }
    }

    /// A chore has no date in the table: the queue brings it back. It is acknowledged only once its successor is there.
    pub(crate) async fn put_off(&self, id: &str, chore: &Chore, until: Timestamp, why: &str) -> Result<Handled, Again> {
        let secs = until.duration_since(self.now()).as_secs().max(1).unsigned_abs().min(LONGEST_DELAY_SECS);
        let Some(repo) = chore.repo().cloned().or_else(|| ERRANDS.parse().ok()) else {
            return Ok(Handled::Failed("it belongs to nobody".to_owned()));
        };
        let message = Message::Chore(chore.clone());
        let what = Content::Queue { message, repo, delay: Duration::from_secs(secs) };
        let sent = self.engine.outlets().send_one(Parcel { id: format!("{id}-later"), what }).await;
        sent.map_err(|error| Again::Bus(error.to_string()))?;
        Ok(Handled::Waits(format!("{why}: again after {until}")))
    }

    async fn comment_chore(&self, pr: &PrId, marker: &str, text: &str, since: Timestamp) -> Result<Handled, Again> {
        Ok(if self.comment_once(pr, marker, text, Some(since)).await? {
            Handled::Done(format!("said on {pr}"))
        } else {
            Handled::Nothing(format!("{pr} has this comment already"))
        })
    }

    /// Shows how a commit stands: a new check run, or ours changed, or nothing if it says so already.
    async fn show(&self, repo: &RepoName, run: &CheckRun, as_of: Timestamp) -> Result<Handled, Again> {
        let github = &self.world.github;
        if !github.is_app() {
            return Ok(Handled::Nothing(
                "check runs are for GitHub Apps, and Suture has a token: see [check_run]".to_owned(),
            ));
        }
        let Some(seen) = github.find_check_run(repo, run).await? else {
            let (what, run) = (format!("check-run-{repo}-{}-{}", run.external_id, run.head), dated(run, as_of));
            let id = self.first(&what, github.create_check_run(repo, &run)).await?;
            return Ok(Handled::Done(format!("check run {id} shows: {}", run.title)));
        };
        let shown_as_of = date_of(&seen.summary);
        if shown_as_of.is_some_and(|at| at > as_of) {
            return Ok(Handled::Nothing(format!("check run {} shows something newer", seen.id)));
        }
        if shown_as_of.is_some_and(|at| dated(run, at).is_shown_by(&seen)) {
            return Ok(Handled::Nothing(format!("check run {} shows this already", seen.id)));
        }
        github.update_check_run(repo, seen.id, &dated(run, as_of)).await?;
        Ok(Handled::Done(format!("check run {} shows: {}", seen.id, run.title)))
    }
}

/// Where the date stands, hidden, at the beginning of the text: its end may be cut.
const DATE: &str = "<!-- suture:as-of ";
const DATE_ENDS: &str = " -->\n";

/// A text with the date of what it says.
pub(crate) fn dated_text(text: &str, as_of: Timestamp) -> String {
    format!("{DATE}{as_of}{DATE_ENDS}{text}")
}

/// With the date of what it shows, so that a message that was overtaken on the queue does not take anything back.
fn dated(run: &CheckRun, as_of: Timestamp) -> CheckRun {
    CheckRun { summary: dated_text(&run.summary, as_of), completed_at: Some(as_of), ..run.clone() }
}

pub(crate) fn date_of(summary: &str) -> Option<Timestamp> {
    summary.strip_prefix(DATE)?.split_once(" -->")?.0.parse().ok()
}
