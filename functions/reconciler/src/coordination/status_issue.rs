//! The status issue: the numbers of `/api/overview`, counted by the same functions, worded by the domain, and written by
//! the Car Bridge. An update is requested when the text has changed, and once an hour in case an update was lost.

use domain::coordination::backlog::{BacklogMemory, IssueStage};
use domain::coordination::post_merge_health::HealthWatch;
use domain::coordination::status_issue::{BacklogCounts, RepoRow, StateRow, StatusReport, WaitingPullRequest};
use domain::id::RepoName;
use domain::policy::StatusIssue;
use domain::pull_request::PullRequest;
use domain::text::coordination as coordination_text;
use domain::text::pull_request as reasons;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use platform::sweep_summary::CoordinationSummary;

use super::{CoordinationError, Coordinator, backlog};
use crate::context::saturating_after;
use crate::limits::rate_budget::WorkKind;
use platform::hash::stable_id;
use platform::overview::{self, OverviewCounts};
use platform::publish::Publisher;
use platform::publish::queue_message::{ManagedIssue, Task};
use platform::store::breaker;
use platform::store::pause;
use platform::store::versioned::{self, Versioned};
use platform::store::{Key, Store};

const LABEL: &str = "suture/status";
/// An unchanged text is requested again after this long.
const REFRESH_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The last requested text is remembered this long.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 14);

/// The hash of the last requested text, and when it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RequestedStatus {
    what: String,
    at: Timestamp,
}

/// A status issue: its repository, and the repositories it covers.
struct PublishedStatusIssue<'p> {
    repo: RepoName,
    settings: &'p StatusIssue,
    /// One repository, or all of the owner's.
    of: Option<RepoName>,
}

impl PublishedStatusIssue<'_> {
    fn key(&self) -> String {
        self.of.as_ref().map_or_else(|| "status".to_owned(), |of| format!("status-{of}"))
    }

    fn name(&self) -> &str {
        self.of.as_ref().map_or_else(|| self.repo.owner(), |of| of.as_str())
    }

    fn covers(&self, repo: &RepoName) -> bool {
        match &self.of {
            Some(of) => of.as_str().eq_ignore_ascii_case(repo.as_str()),
            // The repositories of other owners are not covered.
            None => self.repo.owner().eq_ignore_ascii_case(repo.owner()),
        }
    }
}

impl<S: Store, O: Publisher> Coordinator<'_, S, O> {
    pub(super) async fn update_status_issue(&self, summary: &mut CoordinationSummary) -> Result<(), CoordinationError> {
        let all = self.configured_issues();
        if all.is_empty() || self.is_scarce(WorkKind::Status, "status", summary) {
            return Ok(());
        }
        let (mut counts, mut last) = (None, Ok(()));
        for status_issue in &all {
            // A failed status issue does not prevent the others.
            match self.request_update(status_issue, &mut counts).await {
                Ok(sent) => summary.status += u32::from(sent),
                Err(error) => last = Err(error),
            }
        }
        last
    }

    /// Requests an update of one status issue, if its text has changed. Returns whether it was requested.
    async fn request_update(
        &self,
        status_issue: &PublishedStatusIssue<'_>,
        counts: &mut Option<OverviewCounts>,
    ) -> Result<bool, CoordinationError> {
        let now = self.cx.now();
        let row = Key::state(format!("STATUS#{}#{}", status_issue.repo, status_issue.key()));
        let known: Option<Versioned<RequestedStatus>> = versioned::load(self.cx.store(), &row, now).await?;
        let version = known.as_ref().map(|known| known.version);
        let last = known.map(|known| known.value);
        // Half a minute earlier, so that the sweep of that minute runs it whichever second it starts in.
        let every = SignedDuration::from_mins(status_issue.settings.every_minutes.into());
        let pause = every.saturating_sub(SignedDuration::from_secs(30));
        let is_recent = last.as_ref().is_some_and(|last| now < saturating_after(last.at, pause));
        if is_recent || !self.acts_in(&status_issue.repo) {
            return Ok(false);
        }
        let counts = match counts {
            Some(counts) => counts,
            None => counts.insert(overview::count(self.cx.store(), self.cx.policies(), now).await?),
        };
        let body = coordination_text::status_body(&self.numbers(status_issue, counts).await?);
        let what = stable_id(&[&body]);
        if last.is_some_and(|last| last.what == what && now < saturating_after(last.at, REFRESH_AFTER)) {
            return Ok(false);
        }
        let (repo, title) = (status_issue.repo.clone(), coordination_text::status_title(status_issue.name()));
        let (key, label, pin) = (status_issue.key(), LABEL.to_owned(), status_issue.settings.pin);
        let id = format!("{key}-{repo}-{}", &what[..16]);
        let issue = ManagedIssue { key, label, labels: Vec::new(), title, body, as_of: now, keep_updated: true, pin };
        // Sent before it is stored: after a crash the next sweep sends it again, and the Car Bridge writes it once.
        self.send(id, Task::Issue { repo, issue: Box::new(issue) }).await?;
        versioned::save(
            self.cx.store(),
            &row,
            &RequestedStatus { what, at: now },
            version,
            Some(saturating_after(now, RETENTION)),
            now,
        )
        .await?;
        Ok(true)
    }

    /// The configured status issues: one for all repositories of the owner, and those of single repositories.
    fn configured_issues(&self) -> Vec<PublishedStatusIssue<'_>> {
        let policies = self.cx.policies();
        let base = &policies.base().status_issue;
        let mut all = Vec::new();
        if let Ok(repo) = base.repo.parse() {
            all.push(PublishedStatusIssue { repo, settings: base, of: None });
        }
        for (name, policy) in policies.overrides() {
            let own = &policy.status_issue;
            // A repository that only inherits the setting is part of the owner's status issue.
            if own.repo != base.repo
                && let (Ok(repo), Ok(of)) = (own.repo.parse(), name.parse())
            {
                all.push(PublishedStatusIssue { repo, settings: own, of: Some(of) });
            }
        }
        all
    }

    async fn numbers(
        &self,
        status_issue: &PublishedStatusIssue<'_>,
        counts: &OverviewCounts,
    ) -> Result<StatusReport, CoordinationError> {
        let (store, now) = (self.cx.store(), self.cx.now());
        let covered = |repo: &RepoName| counts.repos.contains(repo) && status_issue.covers(repo);
        let today = overview::today(store, covered, now).await?;
        let states = counts.state_counts(covered).into_iter();
        let waiting = |record: &&PullRequest| {
            let why = reasons::waiting_reason(record, self.cx.policies().for_repo(&record.id.repo), now);
            WaitingPullRequest { pr: record.id.clone(), since: record.state_since, why }
        };
        Ok(StatusReport {
            states: states.map(|row| StateRow { state: row.state, count: row.count, stale: row.stale }).collect(),
            repos: counts
                .by_repo(covered)
                .into_iter()
                .map(|(repo, [open, needs_person, stale])| RepoRow { repo, open, needs_person, stale })
                .collect(),
            needs_person: counts.needing_person(covered).iter().map(waiting).collect(),
            today,
            breaker: Some(breaker::load(store, now).await?.state.status()),
            paused: pause::paused_by(store, now).await?,
            backlog: self.issues(status_issue).await?,
            outages: self.outages(status_issue).await?,
        })
    }

    /// The backlog of the last pass, if one is configured.
    async fn issues(
        &self,
        status_issue: &PublishedStatusIssue<'_>,
    ) -> Result<Option<BacklogCounts>, CoordinationError> {
        let known: Option<Versioned<BacklogMemory>> =
            versioned::load(self.cx.store(), &backlog::key(), self.cx.now()).await?;
        let Some(known) = known else { return Ok(None) };
        let wip_limit = self.cx.policies().base().coordination.wip_limit;
        let mut issues = BacklogCounts { wip_limit, ..BacklogCounts::default() };
        for (key, known) in &known.value {
            let here = key
                .split_once('#')
                .and_then(|(repo, _)| repo.parse().ok())
                .is_some_and(|repo| status_issue.covers(&repo));
            if !here {
                continue;
            }
            match known.stage {
                IssueStage::Discovered => issues.discovered += 1,
                IssueStage::Approved => issues.approved += 1,
                IssueStage::InProgress => issues.in_progress += 1,
                IssueStage::PrOpen | IssueStage::ReviewFailed => issues.pr_open += 1,
            }
        }
        Ok(Some(issues))
    }

    async fn outages(
        &self,
        status_issue: &PublishedStatusIssue<'_>,
    ) -> Result<Vec<(Timestamp, String)>, CoordinationError> {
        let mut outages = Vec::new();
        for target in self.targets().await? {
            if target.repos.iter().any(|repo| status_issue.covers(repo)) {
                let known: Option<Versioned<HealthWatch>> =
                    versioned::load(self.cx.store(), &target.key(), self.cx.now()).await?;
                let outage = known.and_then(|known| known.value.ongoing_outage().cloned());
                outages.extend(outage.map(|outage| (outage.since, outage.what)));
            }
        }
        Ok(outages)
    }
}
