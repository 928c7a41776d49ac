//! Issues of our own: the one about an outage, written once, and the status issue, kept up to date by editing. Which number one
//! got is a row of the table; if that row is not there, GitHub is asked for the hidden key. One process at a time works on one
//! issue, so that two messages never write two.

use domain::event::cut;
use domain::id::RepoName;
use jiff::Timestamp;
use tracing::warn;

use crate::dispatch::{AT_WORK, Again, Bridge, Handled};
use crate::task::{date_of, dated_text};
use platform::github::{Issue, IssueChange};
use platform::guards::{self, Lease};
use platform::http::CallError;
use platform::managed_issue::{self, ManagedIssueRow};
use platform::outlets::Outlets;
use platform::outlets::message::{Chore, OwnIssue};
use platform::store::Store;

/// The longest text GitHub takes, less the date and the key.
const MAX_BODY: usize = 65_000;

fn marker(key: &str) -> String {
    format!("<!-- suture:{key} -->")
}

/// As it is written: with its date, and its key.
fn text(issue: &OwnIssue, as_of: Timestamp) -> String {
    dated_text(&format!("{}\n\n{}", cut(&issue.body, MAX_BODY), marker(&issue.key)), as_of)
}

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub(crate) async fn issue_chore(
        &self,
        id: &str,
        chore: &Chore,
        repo: &RepoName,
        issue: &OwnIssue,
    ) -> Result<Handled, Again> {
        let now = self.now();
        let name = format!("issue-{repo}-{}", issue.key);
        let until = now.saturating_add(AT_WORK).unwrap_or(now);
        let worker = self.worker(id);
        if let Lease::Taken { until, .. } = guards::take_lease(self.engine.store(), &name, &worker, until, now).await? {
            return self.put_off(id, chore, until, "another worker is writing it, or died over it").await;
        }
        let done = self.write_issue(repo, issue).await;
        guards::give_lease(self.engine.store(), &name, &worker, self.now()).await?;
        done
    }

    async fn write_issue(&self, repo: &RepoName, issue: &OwnIssue) -> Result<Handled, Again> {
        let (store, now) = (self.engine.store(), self.now());
        let known = managed_issue::load(store, repo, &issue.key, now).await?;
        let found = match &known {
            Some(_) if !issue.kept => return Ok(Handled::Nothing(format!("{} is written already", issue.key))),
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
                let made = self.world.github.create_issue(repo, &issue.title, &text, &labels).await?;
                let handled = Handled::Done(format!("{repo}#{} says: {}", made.number, issue.title));
                (made, handled)
            }
            Some(found) if issue.kept => {
                let handled = self.edit_issue(repo, &found, issue).await?;
                (found, handled)
            }
            Some(found) => {
                let handled = Handled::Nothing(format!("{repo}#{} says so already", found.number));
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

    /// An issue that was deleted, or moved away, is not there.
    async fn read_issue(&self, repo: &RepoName, number: u64) -> Result<Option<Issue>, Again> {
        match self.world.github.issue(repo, number).await {
            Ok(issue) => Ok(Some(issue)),
            Err(CallError::Gone { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The probe: by the key that is hidden in it. Closed ones count, since a person who closes an issue wants no second.
    async fn find_issue(&self, repo: &RepoName, issue: &OwnIssue) -> Result<Option<Issue>, Again> {
        let marker = marker(&issue.key);
        let all = self.world.github.issues_labelled(repo, &issue.label, true).await?;
        // Of two, the first is the one people know.
        Ok(all.into_iter().filter(|found| found.body.contains(&marker)).min_by_key(|found| found.number))
    }

    /// Says something else, unless it says so already, or something newer.
    async fn edit_issue(&self, repo: &RepoName, found: &Issue, issue: &OwnIssue) -> Result<Handled, Again> {
        let at = date_of(&found.body);
        if at.is_some_and(|at| at > issue.as_of) {
            return Ok(Handled::Nothing(format!("{repo}#{} says something newer", found.number)));
        }
        // GitHub gives line ends back as it likes.
        let same = at.is_some_and(|at| found.body.replace("\r\n", "\n").trim() == text(issue, at).trim());
        if same && found.title == issue.title {
            return Ok(Handled::Nothing(format!("{repo}#{} says so already", found.number)));
        }
        let change = IssueChange {
            title: Some(issue.title.clone()),
            body: Some(text(issue, issue.as_of)),
            ..IssueChange::default()
        };
        self.world.github.update_issue(repo, found.number, &change).await?;
        Ok(Handled::Done(format!("{repo}#{} is up to date", found.number)))
    }

    /// A repository has room for three pinned issues; one that is not pinned is still an issue.
    async fn pin(&self, repo: &RepoName, issue: &Issue) -> Result<(), Again> {
        match self.world.github.pin_issue(repo, issue).await {
            Ok(()) => Ok(()),
            Err(error @ (CallError::Refused { .. } | CallError::Gone { .. } | CallError::Conflict { .. })) => {
                warn!(%repo, issue = issue.number, %error, "an issue is not pinned");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
