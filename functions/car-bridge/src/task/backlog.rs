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
    pub(crate) async fn ask_for_pull(&self, repo: &RepoName, ask: &PullAsk) -> Result<Handled, Again> {
        let place = PrId::new(repo.clone(), ask.issue);
        let nothing = |why: String| Ok(Handled::Nothing(format!("{place}: {why}")));
        let issue = match self.world.github.issue(repo, ask.issue).await {
            Ok(issue) => issue,
            Err(CallError::Gone { .. }) => return nothing("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return nothing(why);
        }
        let asked_before = has(&issue.labels, &ask.in_progress);
        if issue.assigned || !(asked_before || has(&issue.labels, &ask.approved)) {
            return nothing("assigned to or relabelled by a user".to_owned());
        }
        let (store, now) = (self.engine.store(), self.now());
        let known = lookup::vulnerability(store, repo, &ask.base_branch, &ask.vulnerability, now).await?;
        if known.abandoned {
            return nothing(format!("{} was abandoned by a user", ask.vulnerability));
        }
        if let Some(number) = known.open.first() {
            return nothing(format!("#{number} is open for {}", ask.vulnerability));
        }
        let detail = PullRequestAsk::of_issue(repo, ask.issue, &ask.vulnerability, &ask.effect);
        let detail = serde_json::to_string(&detail).map_err(|error| Again::Bus(error.to_string()))?;
        let what = Content::Bus { detail_type: DetailType::PullRequestRequested, detail };
        let sent = self.engine.outlets().send_one(Parcel { id: ask.effect.to_string(), what }).await;
        sent.map_err(|error| Again::Bus(error.to_string()))?;
        self.relabel(&place, &issue, from_ref(&ask.in_progress), from_ref(&ask.approved)).await?;
        Ok(Handled::Done(format!("requested a pull request for {place} from CodeGenie")))
    }

    /// Closes the issue's pull request, comments, closes the issue, changes its labels. Every step can be repeated.
    pub(crate) async fn tend(&self, repo: &RepoName, tending: &Tending) -> Result<Handled, Again> {
        let place = PrId::new(repo.clone(), tending.issue);
        let nothing = |why: String| Ok(Handled::Nothing(format!("{place}: {why}")));
        let issue = match self.world.github.issue(repo, tending.issue).await {
            Ok(issue) => issue,
            Err(CallError::Gone { .. }) => return nothing("the issue does not exist any more".to_owned()),
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = self.skip_reason(&issue).await? {
            return nothing(why);
        }
        if !has(&issue.labels, &tending.expects) {
            return nothing(format!("the issue has lost its label `{}`", tending.expects));
        }
        let marker = format!("suture:{}", tending.key);
        if let Some((number, text)) = &tending.close_pull {
            let pull = PrId::new(repo.clone(), *number);
            let shown = self.world.github.pull(&pull).await?;
            if is_held(&shown.labels) {
                return nothing(format!("#{number} is held by a label"));
            }
            if shown.open {
                self.comment_once(&pull, &marker, text, Some(tending.since)).await?;
                self.world.github.close(&pull).await?;
            }
        }
        if let Some(text) = &tending.comment {
            self.comment_once(&place, &marker, text, Some(tending.since)).await?;
        }
        if let Some(reason) = &tending.close {
            let change = IssueChange {
                state: Some("closed".to_owned()),
                state_reason: Some(reason.clone()),
                ..IssueChange::default()
            };
            // Closed before the labels change: an open issue without its label could be picked up again.
            self.world.github.update_issue(repo, tending.issue, &change).await?;
        }
        // The expected label is removed last, so that a retry before that still finds it.
        let (last, first): (Vec<String>, Vec<String>) =
            tending.remove.iter().cloned().partition(|label| label.eq_ignore_ascii_case(&tending.expects));
        self.relabel(&place, &issue, &tending.add, &first).await?;
        self.relabel(&place, &issue, &[], &last).await?;
        Ok(Handled::Done(format!("updated {place}")))
    }

    async fn relabel(&self, place: &PrId, issue: &Issue, add: &[String], remove: &[String]) -> Result<(), Again> {
        let add: Vec<&str> =
            add.iter().map(String::as_str).filter(|label| !is_peoples(label) && !has(&issue.labels, label)).collect();
        if !add.is_empty() {
            self.world.github.add_labels(place, &add).await?;
        }
        for label in remove.iter().filter(|label| !is_peoples(label) && has(&issue.labels, label)) {
            self.world.github.remove_label(place, label).await?;
        }
        Ok(())
    }
}
