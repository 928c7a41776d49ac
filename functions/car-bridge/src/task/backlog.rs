//! Backlog issues: request their pull requests from CodeGenie, relabel and close them. The issue is read before every write, because
//! a user's change wins; control labels set by users are never touched.

use std::slice::from_ref;

use domain::bus::{DetailType, PullRequestAsk};
use domain::coordination::{has, is_held, is_peoples};
use domain::id::{PrId, RepoName};

use crate::dispatch::{Again, Bridge, Handled};
use platform::github::{Issue, IssueChange};
use platform::guards;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::message::{PullAsk, Tending};
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::Store;

impl<S: Store, O: Outlets> Bridge<S, O> {
    /// Why an issue must not be changed now, if so. The next backlog pass decides again.
    async fn skip_reason(&self, issue: &Issue) -> Result<Option<String>, Again> {
        if let Some(by) = guards::paused(self.engine.store(), self.now()).await? {
            return Ok(Some(format!("paused by {by}")));
        }
        Ok(if !issue.is_open() {
            Some("the issue is closed".to_owned())
        } else if is_held(&issue.labels) {
            Some("held by a label".to_owned())
        } else {
            None
        })
    }

    /// Publishes the request first and sets the label second, so that an issue labelled `in-progress` has been requested. A retry publishes
    /// the same effect id.
    pub(crate) async fn ask_for_pull(&self, repo: &RepoName, request: &PullAsk) -> Result<Handled, Again> {
        let issue_id = PrId::new(repo.clone(), request.issue);
        let noop = |why: String| Ok(Handled::Nothing(format!("{issue_id}: {why}")));
        let issue = match self.world.github.issue(repo, request.issue).await {
            Ok(issue) => issue,
            Err(CallError::Gone { .. }) => return noop("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return noop(why);
        }
        let requested_before = has(&issue.labels, &request.in_progress);
        if issue.assigned || !(requested_before || has(&issue.labels, &request.approved)) {
            return noop("assigned to or relabelled by a user".to_owned());
        }
        let (store, now) = (self.engine.store(), self.now());
        let known = lookup::vulnerability(store, repo, &request.base_branch, &request.vulnerability, now).await?;
        if known.abandoned {
            return noop(format!("{} was abandoned by a user", request.vulnerability));
        }
        if let Some(number) = known.open.first() {
            return noop(format!("#{number} is open for {}", request.vulnerability));
        }
        let detail = PullRequestAsk::of_issue(repo, request.issue, &request.vulnerability, &request.effect);
        let detail = serde_json::to_string(&detail).map_err(|error| Again::Bus(error.to_string()))?;
        let what = Content::Bus { detail_type: DetailType::PullRequestRequested, detail };
        let sent = self.engine.outlets().send_one(Parcel { id: request.effect.to_string(), what }).await;
        sent.map_err(|error| Again::Bus(error.to_string()))?;
        self.relabel(&issue_id, &issue, from_ref(&request.in_progress), from_ref(&request.approved)).await?;
        Ok(Handled::Done(format!("requested a pull request for {issue_id} from CodeGenie")))
    }

    /// Closes the issue's pull request, comments, closes the issue, changes its labels. Every step can be repeated.
    pub(crate) async fn tend(&self, repo: &RepoName, update: &Tending) -> Result<Handled, Again> {
        let issue_id = PrId::new(repo.clone(), update.issue);
        let noop = |why: String| Ok(Handled::Nothing(format!("{issue_id}: {why}")));
        let issue = match self.world.github.issue(repo, update.issue).await {
            Ok(issue) => issue,
            Err(CallError::Gone { .. }) => return noop("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return noop(why);
        }
        if !has(&issue.labels, &update.expects) {
            return noop(format!("the issue has lost its label `{}`", update.expects));
        }
        let marker = format!("suture:{}", update.key);
        if let Some((number, text)) = &update.close_pull {
            let pull = PrId::new(repo.clone(), *number);
            let shown = self.world.github.pull(&pull).await?;
            if is_held(&shown.labels) {
                return noop(format!("#{number} is held by a label"));
            }
            if shown.open {
                self.comment_once(&pull, &marker, text, Some(update.since)).await?;
                self.world.github.close(&pull).await?;
            }
        }
        if let Some(text) = &update.comment {
            self.comment_once(&issue_id, &marker, text, Some(update.since)).await?;
        }
        if let Some(reason) = &update.close {
            let change = IssueChange {
                state: Some("closed".to_owned()),
                state_reason: Some(reason.clone()),
                ..IssueChange::default()
            };
            // Closed before the labels change: an open issue without its label could be picked up again.
            self.world.github.update_issue(repo, update.issue, &change).await?;
        }
        // The expected label is removed last, so that a retry before that still finds it.
        let (last, first): (Vec<String>, Vec<String>) =
            update.remove.iter().cloned().partition(|label| label.eq_ignore_ascii_case(&update.expects));
        self.relabel(&issue_id, &issue, &update.add, &first).await?;
        self.relabel(&issue_id, &issue, &[], &last).await?;
        Ok(Handled::Done(format!("updated {issue_id}")))
    }

    async fn relabel(&self, issue_id: &PrId, issue: &Issue, add: &[String], remove: &[String]) -> Result<(), Again> {
        let add: Vec<&str> =
            add.iter().map(String::as_str).filter(|label| !is_peoples(label) && !has(&issue.labels, label)).collect();
        if !add.is_empty() {
            self.world.github.add_labels(issue_id, &add).await?;
        }
        for label in remove.iter().filter(|label| !is_peoples(label) && has(&issue.labels, label)) {
            self.world.github.remove_label(issue_id, label).await?;
        }
        Ok(())
    }
}
