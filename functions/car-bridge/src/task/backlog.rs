//! Backlog issues: request their pull requests from CodeGenie, relabel and close them. The issue is read before every write, because
//! a user's change wins; control labels set by users are never touched.

use std::slice::from_ref;

use domain::backoff::AttemptFailure;
use domain::bus::{PullRequestRequestDetail, RemedyTarget};
use domain::coordination::{has_label, is_control_label, is_held};
use domain::id::{PrId, RepoName};
use domain::policy::RetriggerVia;

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError};
use crate::remedy::RemedyError;
use platform::github::{GitHubIssue, IssueChange};
use platform::publish::queue_message::{IssueUpdate, PullRequestRequest};
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::store::Store;
use platform::store::pause;
use platform::store::queries;
use platform::transport::ApiError;

impl<S: Store, O: Publisher> CarBridge<S, O> {
    /// Why an issue must not be changed now, if so. The next backlog pass decides again.
    async fn skip_reason(&self, issue: &GitHubIssue) -> Result<Option<String>, RetryableError> {
        if let Some(by) = pause::paused_by(self.engine.store(), self.now()).await? {
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

    /// Sends the request first and sets the label second, so that an issue labelled `in-progress` has been requested. A retry sends
    /// the same effect id.
    pub(crate) async fn request_pull_request(
        &self,
        repo: &RepoName,
        request: &PullRequestRequest,
    ) -> Result<MessageOutcome, RetryableError> {
        let issue_id = PrId::new(repo.clone(), request.issue);
        let noop = |why: String| Ok(MessageOutcome::Noop(format!("{issue_id}: {why}")));
        let issue = match self.clients.github.issue(repo, request.issue).await {
            Ok(issue) => issue,
            Err(ApiError::NotFound { .. }) => return noop("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return noop(why);
        }
        let requested_before = has_label(&issue.labels, &request.in_progress);
        if issue.assigned || !(requested_before || has_label(&issue.labels, &request.approved)) {
            return noop("assigned to or relabelled by a user".to_owned());
        }
        let (store, now) = (self.engine.store(), self.now());
        let known = queries::vulnerability(store, repo, &request.base_branch, &request.vulnerability, now).await?;
        if known.abandoned {
            return noop(format!("{} was abandoned by a user", request.vulnerability));
        }
        if let Some(number) = known.open.first() {
            return noop(format!("#{number} is open for {}", request.vulnerability));
        }
        match self.request_from_codegenie(&issue_id, request).await {
            Ok(()) => {}
            Err(RemedyError::Retry(again) | RemedyError::Unknown(again, _)) => return Err(again),
            Err(RemedyError::NotSent(why)) => return Err(RetryableError::Publish(why)),
            Err(RemedyError::Fail(why, failure)) if failure.may_retry() => return Err(RetryableError::Publish(why)),
            Err(RemedyError::Fail(why, _) | RemedyError::Drop(why)) => return Ok(MessageOutcome::Failed(why)),
        }
        self.relabel(&issue_id, &issue, from_ref(&request.in_progress), from_ref(&request.approved)).await?;
        Ok(MessageOutcome::Done(format!("requested a pull request for {issue_id} from CodeGenie")))
    }

    /// Asks CodeGenie for the pull request of an issue, as `[retrigger.codegenie]` says.
    async fn request_from_codegenie(&self, issue: &PrId, request: &PullRequestRequest) -> Result<(), RemedyError> {
        let PullRequestRequest { vulnerability, base_branch, effect, .. } = request;
        let how = &self.engine.policies().for_repo(&issue.repo).retrigger.codegenie;
        let detail = PullRequestRequestDetail::for_issue(&issue.repo, issue.number, vulnerability, effect);
        let detail = serde_json::to_string(&detail)
            .map_err(|error| RemedyError::Fail(error.to_string(), AttemptFailure::Invalid))?;
        let github = &self.clients.github;
        match how.via {
            RetriggerVia::Bus => {
                let detail_type = self.bus_event_of(RemedyTarget::CodeGenie)?;
                let destination = Destination::Bus { detail_type, detail };
                let sent = self.engine.publisher().send_one(OutboundMessage { id: effect.to_string(), destination });
                sent.await.map_err(|error| RemedyError::Fail(error.to_string(), AttemptFailure::Unavailable))
            }
            RetriggerVia::Comment => {
                let text = how.comment(vulnerability, base_branch, issue.number);
                let posted = self.comment_once(issue, &format!("suture:{effect}"), &text, None).await;
                posted.map(drop).map_err(|error| RemedyError::Retry(error.into()))
            }
            RetriggerVia::Label => {
                let again = |error: ApiError| RemedyError::Retry(error.into());
                github.remove_label(issue, &how.target).await.map_err(again)?;
                github.add_labels(issue, &[&how.target]).await.map_err(again).map(drop)
            }
            RetriggerVia::Http => self.post_json(RemedyTarget::CodeGenie, &how.target, detail.into_bytes()).await,
        }
    }

    /// Closes the issue's pull request, comments, closes the issue, changes its labels. Every step can be repeated.
    pub(crate) async fn update_backlog_issue(
        &self,
        repo: &RepoName,
        update: &IssueUpdate,
    ) -> Result<MessageOutcome, RetryableError> {
        let issue_id = PrId::new(repo.clone(), update.issue);
        let noop = |why: String| Ok(MessageOutcome::Noop(format!("{issue_id}: {why}")));
        let issue = match self.clients.github.issue(repo, update.issue).await {
            Ok(issue) => issue,
            Err(ApiError::NotFound { .. }) => return noop("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return noop(why);
        }
        if !has_label(&issue.labels, &update.expects) {
            return noop(format!("the issue has lost its label `{}`", update.expects));
        }
        let marker = format!("suture:{}", update.key);
        if let Some((number, text)) = &update.close_pull {
            let pull = PrId::new(repo.clone(), *number);
            let shown = self.clients.github.pull(&pull).await?;
            if is_held(&shown.labels) {
                return noop(format!("#{number} is held by a label"));
            }
            if shown.open {
                self.comment_once(&pull, &marker, text, Some(update.since)).await?;
                self.clients.github.close(&pull).await?;
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
            self.clients.github.update_issue(repo, update.issue, &change).await?;
        }
        // The expected label is removed last, so that a retry before that still finds it.
        let (last, first): (Vec<String>, Vec<String>) =
            update.remove.iter().cloned().partition(|label| label.eq_ignore_ascii_case(&update.expects));
        self.relabel(&issue_id, &issue, &update.add, &first).await?;
        self.relabel(&issue_id, &issue, &[], &last).await?;
        Ok(MessageOutcome::Done(format!("updated {issue_id}")))
    }

    async fn relabel(
        &self,
        issue_id: &PrId,
        issue: &GitHubIssue,
        add: &[String],
        remove: &[String],
    ) -> Result<(), RetryableError> {
        let add: Vec<&str> = add
            .iter()
            .map(String::as_str)
            .filter(|label| !is_control_label(label) && !has_label(&issue.labels, label))
            .collect();
        if !add.is_empty() {
            self.clients.github.add_labels(issue_id, &add).await?;
        }
        for label in remove.iter().filter(|label| !is_control_label(label) && has_label(&issue.labels, label)) {
            self.clients.github.remove_label(issue_id, label).await?;
        }
        Ok(())
    }
}
