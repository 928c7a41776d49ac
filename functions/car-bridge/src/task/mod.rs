//! Small writes to GitHub that no record depends on. Each one probes before it writes, so that a duplicate message has no effect. Under
//! a rate limit the task is put back on the queue with a delay.

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

/// SQS cannot delay a message for longer.
const MAX_DELAY_SECS: u64 = 900;
const RATE_LIMITED: &str = "GitHub rate limit";
/// The message group of tasks that belong to no repository.
const NO_REPO_GROUP: &str = "suture/errands";

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub(crate) async fn chore(&self, id: &str, task: &Chore) -> Result<Handled, Again> {
        if let Some(until) = self.github_held_off().await? {
            return self.put_off(id, task, until, RATE_LIMITED).await;
        }
        let github = &self.world.github;
        let done = match task {
            Chore::Redeliver { delivery } => {
                let requested = github.redeliver(*delivery).await;
                requested.map(|()| Handled::Done(format!("requested redelivery of {delivery}"))).map_err(Again::from)
            }
            Chore::React { repo, subject, reaction } => {
                // No probe: GitHub ignores a duplicate reaction.
                let reacted = github.react(repo, subject, *reaction).await;
                reacted.map(|()| Handled::Done(format!("reacted to {subject}"))).map_err(Again::from)
            }
            Chore::Comment { pr, marker, text, since } => self.comment_chore(pr, marker, text, *since).await,
            Chore::CheckRun { pr, head_sha, text, as_of } => {
                self.show(&pr.repo, &CheckRun::of(pr, head_sha, text), *as_of).await
            }
            Chore::Issue { repo, issue } => self.issue_chore(id, task, repo, issue).await,
            Chore::AskForPull { repo, ask } => self.ask_for_pull(repo, ask).await,
            Chore::Tend { repo, tending } => self.tend(repo, tending).await,
        };
        let Err(Again::Call(error)) = done else { return done };
        match error.until() {
            Some(until) => {
                self.note_limit(&error).await?;
                self.put_off(id, task, until, RATE_LIMITED).await
            }
            None if error.is_transient() => Err(error.into()),
            None => Ok(Handled::Failed(error.to_string())),
        }
    }

    /// A task has no due date in the table, so a copy is queued with a delay before this message is acknowledged.
    pub(crate) async fn put_off(&self, id: &str, task: &Chore, until: Timestamp, why: &str) -> Result<Handled, Again> {
        let secs = until.duration_since(self.now()).as_secs().max(1).unsigned_abs().min(MAX_DELAY_SECS);
        let Some(repo) = task.repo().cloned().or_else(|| NO_REPO_GROUP.parse().ok()) else {
            return Ok(Handled::Failed("the task has no repository".to_owned()));
        };
        let message = Message::Chore(task.clone());
        let what = Content::Queue { message, repo, delay: Duration::from_secs(secs) };
        let sent = self.engine.outlets().send_one(Parcel { id: format!("{id}-later"), what }).await;
        sent.map_err(|error| Again::Bus(error.to_string()))?;
        Ok(Handled::Waits(format!("{why}: retry after {until}")))
    }

    async fn comment_chore(&self, pr: &PrId, marker: &str, text: &str, since: Timestamp) -> Result<Handled, Again> {
        Ok(if self.comment_once(pr, marker, text, Some(since)).await? {
            Handled::Done(format!("commented on {pr}"))
        } else {
            Handled::Nothing(format!("{pr} has this comment already"))
        })
    }

    /// Creates or updates Suture's check run on a commit, unless it is already up to date.
    async fn show(&self, repo: &RepoName, run: &CheckRun, as_of: Timestamp) -> Result<Handled, Again> {
        let github = &self.world.github;
        if !github.is_app() {
            return Ok(Handled::Nothing(
                "check runs need a GitHub App, and Suture uses a token: see [check_run] in suture.toml".to_owned(),
            ));
        }
        let Some(seen) = github.find_check_run(repo, run).await? else {
            let (what, run) = (format!("check-run-{repo}-{}-{}", run.external_id, run.head), dated(run, as_of));
            let id = self.first(&what, github.create_check_run(repo, &run)).await?;
            return Ok(Handled::Done(format!("created check run {id}: {}", run.title)));
        };
        let shown_as_of = date_of(&seen.summary);
        if shown_as_of.is_some_and(|at| at > as_of) {
            return Ok(Handled::Nothing(format!("check run {} is newer", seen.id)));
        }
        if shown_as_of.is_some_and(|at| dated(run, at).is_shown_by(&seen)) {
            return Ok(Handled::Nothing(format!("check run {} is up to date", seen.id)));
        }
        github.update_check_run(repo, seen.id, &dated(run, as_of)).await?;
        Ok(Handled::Done(format!("updated check run {}: {}", seen.id, run.title)))
    }
}

/// The hidden date, at the start of the text, because GitHub may truncate the end.
const DATE: &str = "<!-- suture:as-of ";
const DATE_ENDS: &str = " -->\n";

/// Prefixes the text with its date.
pub(crate) fn dated_text(text: &str, as_of: Timestamp) -> String {
    format!("{DATE}{as_of}{DATE_ENDS}{text}")
}

/// Adds the date of the content, so that a message overtaken on the queue does not overwrite newer content.
fn dated(run: &CheckRun, as_of: Timestamp) -> CheckRun {
    CheckRun { summary: dated_text(&run.summary, as_of), completed_at: Some(as_of), ..run.clone() }
}

pub(crate) fn date_of(summary: &str) -> Option<Timestamp> {
    summary.strip_prefix(DATE)?.split_once(" -->")?.0.parse().ok()
}
