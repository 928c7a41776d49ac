//! Small writes to GitHub that no record depends on. Each one probes before it writes, so that a duplicate message has no effect. Under
//! a rate limit the task waits as a row with a due date.

mod backlog;
mod managed_issue;

use domain::id::{PrId, RepoName, Sha};
use jiff::Timestamp;

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError};
use platform::github::CheckRun;
use platform::publish::Publisher;
use platform::publish::queue_message::{QueueMessage, Task};
use platform::store::Store;

const RATE_LIMITED: &str = "GitHub rate limit";
/// The message group of tasks that belong to no repository.
const NO_REPO_GROUP: &str = "suture/errands";

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn run_task(&self, id: &str, task: &Task) -> Result<MessageOutcome, RetryableError> {
        if let Some(until) = self.github_not_before().await? {
            return self.defer(task, until, RATE_LIMITED).await;
        }
        let github = &self.clients.github;
        let done = match task {
            Task::Redeliver { delivery } => {
                let requested = github.redeliver(*delivery).await;
                requested
                    .map(|()| MessageOutcome::Done(format!("requested redelivery of {delivery}")))
                    .map_err(RetryableError::from)
            }
            Task::React { repo, subject, reaction } => {
                // No probe: GitHub ignores a duplicate reaction.
                let reacted = github.react(repo, subject, *reaction).await;
                reacted.map(|()| MessageOutcome::Done(format!("reacted to {subject}"))).map_err(RetryableError::from)
            }
            Task::Comment { pr, marker, text, since } => self.post_comment_task(pr, marker, text, *since).await,
            Task::CheckRun { pr, head_sha, text, as_of } => {
                if self.has_newer_text(pr, head_sha, *as_of).await? {
                    return Ok(MessageOutcome::Noop(format!("a newer text of the check run of {pr} is queued")));
                }
                self.publish_check_run(&pr.repo, &CheckRun::of(pr, head_sha, text), *as_of).await
            }
            Task::Issue { repo, issue } => self.managed_issue_task(id, task, repo, issue).await,
            Task::AskForPull { repo, ask } => self.request_pull_request(repo, ask).await,
            Task::Tend { repo, tending } => self.update_backlog_issue(repo, tending).await,
        };
        let Err(RetryableError::Api(error)) = done else { return done };
        match error.until() {
            Some(until) => {
                self.store_rate_limit(&error).await?;
                self.defer(task, until, RATE_LIMITED).await
            }
            None if error.is_transient() => Err(error.into()),
            None => Ok(MessageOutcome::Failed(error.to_string())),
        }
    }

    /// Keeps the task until then.
    pub(crate) async fn defer(
        &self,
        task: &Task,
        until: Timestamp,
        why: &str,
    ) -> Result<MessageOutcome, RetryableError> {
        let Some(repo) = task.repo().cloned().or_else(|| NO_REPO_GROUP.parse().ok()) else {
            return Ok(MessageOutcome::Failed("the task has no repository".to_owned()));
        };
        self.wait_until(until, &QueueMessage::Task(task.clone()), &repo).await?;
        Ok(MessageOutcome::Deferred(format!("{why}: retry after {until}")))
    }

    async fn post_comment_task(
        &self,
        pr: &PrId,
        marker: &str,
        text: &str,
        since: Timestamp,
    ) -> Result<MessageOutcome, RetryableError> {
        Ok(if self.comment_once(pr, marker, text, Some(since)).await? {
            MessageOutcome::Done(format!("commented on {pr}"))
        } else {
            MessageOutcome::Noop(format!("{pr} has this comment already"))
        })
    }

    /// Whether a newer text for this check run was decided. It has a message of its own, so this one needs no request to GitHub.
    async fn has_newer_text(&self, pr: &PrId, head: &Sha, as_of: Timestamp) -> Result<bool, RetryableError> {
        let record = self.engine.load(pr, self.now()).await?;
        let published = record.and_then(|record| record.published_check);
        Ok(published.is_some_and(|shown| shown.head == *head && shown.at > as_of))
    }

    /// Creates or updates Suture's check run on a commit, unless it is already up to date.
    async fn publish_check_run(
        &self,
        repo: &RepoName,
        run: &CheckRun,
        as_of: Timestamp,
    ) -> Result<MessageOutcome, RetryableError> {
        let github = &self.clients.github;
        if !github.is_app() {
            return Ok(MessageOutcome::Noop(
                "check runs need a GitHub App, and Suture uses a token: see [check_run] in suture.toml".to_owned(),
            ));
        }
        let Some(seen) = github.find_check_run(repo, run).await? else {
            let (what, run) = (format!("check-run-{repo}-{}-{}", run.external_id, run.head), dated(run, as_of));
            let id = self.run_once(&what, github.create_check_run(repo, &run)).await?;
            return Ok(MessageOutcome::Done(format!("created check run {id}: {}", run.title)));
        };
        let shown_as_of = date_of(&seen.summary);
        if shown_as_of.is_some_and(|at| at > as_of) {
            return Ok(MessageOutcome::Noop(format!("check run {} is newer", seen.id)));
        }
        if shown_as_of.is_some_and(|at| dated(run, at).matches(&seen)) {
            return Ok(MessageOutcome::Noop(format!("check run {} is up to date", seen.id)));
        }
        github.update_check_run(repo, seen.id, &dated(run, as_of)).await?;
        Ok(MessageOutcome::Done(format!("updated check run {}: {}", seen.id, run.title)))
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
