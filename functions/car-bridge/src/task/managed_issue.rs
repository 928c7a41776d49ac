//! Issues that Suture owns: an outage issue, created once, and the status issue, updated in place. A row in the table holds the issue's
//! number; without it the issue is found on GitHub by its hidden key. A lease per issue prevents duplicates.

use domain::event::truncate;
use domain::id::RepoName;
use jiff::Timestamp;
use tracing::warn;

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError, WORKER_LEASE};
use crate::task::{date_of, dated_text};
use platform::github::{GitHubIssue, IssueChange};
use platform::publish::Publisher;
use platform::publish::queue_message::{ManagedIssue, Task};
use platform::store::Store;
use platform::store::lease;
use platform::store::lease::LeaseResult;
use platform::store::managed_issue::{self, ManagedIssueRow};
use platform::transport::ApiError;

/// GitHub's limit for a body, less the date and the key.
const MAX_BODY: usize = 65_000;

fn marker(key: &str) -> String {
    format!("<!-- suture:{key} -->")
}

/// The body as posted, with its date and key.
fn text(issue: &ManagedIssue, as_of: Timestamp) -> String {
    dated_text(&format!("{}\n\n{}", truncate(&issue.body, MAX_BODY), marker(&issue.key)), as_of)
}

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn managed_issue_task(
        &self,
        id: &str,
        task: &Task,
        repo: &RepoName,
        issue: &ManagedIssue,
    ) -> Result<MessageOutcome, RetryableError> {
        let now = self.now();
        let name = format!("issue-{repo}-{}", issue.key);
        let until = now.saturating_add(WORKER_LEASE).unwrap_or(now);
        let worker = self.worker(id);
        if let LeaseResult::HeldByOther { until, .. } =
            lease::acquire(self.engine.store(), &name, &worker, until, now).await?
        {
            return self.defer(task, until, "another worker holds the lease").await;
        }
        let done = self.write_issue(repo, issue).await;
        lease::release(self.engine.store(), &name, &worker, self.now()).await?;
        done
    }

    async fn write_issue(&self, repo: &RepoName, issue: &ManagedIssue) -> Result<MessageOutcome, RetryableError> {
        let (store, now) = (self.engine.store(), self.now());
        let known = managed_issue::load(store, repo, &issue.key, now).await?;
        let found = match &known {
            Some(_) if !issue.keep_updated => return Ok(MessageOutcome::Noop(format!("{} already exists", issue.key))),
            Some(known) => self.read_issue(repo, known.number).await?,
            None => None,
        };
        let found = match found {
            Some(found) => Some(found),
            None => self.find_issue(repo, issue).await?,
        };
        let (shown, handled) = match found {
            None => {
                let mut labels = vec![issue.label.as_str()];
                labels.extend(issue.labels.iter().map(String::as_str));
                let text = text(issue, issue.as_of);
                let made = self.clients.github.create_issue(repo, &issue.title, &text, &labels).await?;
                let handled = MessageOutcome::Done(format!("created {repo}#{}: {}", made.number, issue.title));
                (made, handled)
            }
            Some(found) if issue.keep_updated => {
                let handled = self.edit_issue(repo, &found, issue).await?;
                (found, handled)
            }
            Some(found) => {
                let handled = MessageOutcome::Noop(format!("{repo}#{} is up to date", found.number));
                (found, handled)
            }
        };
        let pinned = known.is_some_and(|known| known.number == shown.number && known.pinned);
        if issue.pin && !pinned {
            self.pin(repo, &shown).await?;
        }
        let row = ManagedIssueRow { number: shown.number, pinned: issue.pin };
        managed_issue::save(store, repo, &issue.key, &row, now).await?;
        Ok(handled)
    }

    /// `None` if the issue was deleted or transferred.
    async fn read_issue(&self, repo: &RepoName, number: u64) -> Result<Option<GitHubIssue>, RetryableError> {
        match self.clients.github.issue(repo, number).await {
            Ok(issue) => Ok(Some(issue)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the issue by its hidden key. Closed issues count, because a user who closes it does not want a second one.
    async fn find_issue(&self, repo: &RepoName, issue: &ManagedIssue) -> Result<Option<GitHubIssue>, RetryableError> {
        let marker = marker(&issue.key);
        let all = self.clients.github.issues_labelled(repo, &issue.label, true).await?;
        // Of duplicates, the oldest.
        Ok(all.into_iter().filter(|found| found.body.contains(&marker)).min_by_key(|found| found.number))
    }

    /// Updates the issue, unless its content is the same or newer.
    async fn edit_issue(
        &self,
        repo: &RepoName,
        found: &GitHubIssue,
        issue: &ManagedIssue,
    ) -> Result<MessageOutcome, RetryableError> {
        let at = date_of(&found.body);
        if at.is_some_and(|at| at > issue.as_of) {
            return Ok(MessageOutcome::Noop(format!("{repo}#{} is newer", found.number)));
        }
        // GitHub may return CRLF line endings.
        let same = at.is_some_and(|at| found.body.replace("\r\n", "\n").trim() == text(issue, at).trim());
        if same && found.title == issue.title {
            return Ok(MessageOutcome::Noop(format!("{repo}#{} is up to date", found.number)));
        }
        let change = IssueChange {
            title: Some(issue.title.clone()),
            body: Some(text(issue, issue.as_of)),
            ..IssueChange::default()
        };
        self.clients.github.update_issue(repo, found.number, &change).await?;
        Ok(MessageOutcome::Done(format!("updated {repo}#{}", found.number)))
    }

    /// Best effort: GitHub allows three pinned issues per repository.
    async fn pin(&self, repo: &RepoName, issue: &GitHubIssue) -> Result<(), RetryableError> {
        match self.clients.github.pin_issue(repo, issue).await {
            Ok(()) => Ok(()),
            Err(error @ (ApiError::Refused { .. } | ApiError::NotFound { .. } | ApiError::Conflict { .. })) => {
                warn!(%repo, issue = issue.number, %error, "cannot pin issue");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
