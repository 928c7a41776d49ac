//! Issues that become pull requests (R-COORD-5 to R-COORD-9). The labels of an issue give its stage: `discovered` waits for a
//! person, `approved` for capacity, `in-progress` for CodeGenie's pull request, `pr-open` for the end of that pull request.
//! An issue that stays too long is closed, requested again or marked urgent. Suture obeys control labels and never changes
//! them. A person's change always wins: each step names the stage it was decided on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{LABEL_HUMAN, has_label, is_held};
use crate::id::RepoName;
use crate::policy::Backlog;
use crate::priority::{self, Priority};
use crate::time::saturating_after;

named! {
    /// The stage of an issue, in order.
    pub enum IssueStage {
        /// Found, but not approved yet.
        Discovered = "discovered",
        Approved = "approved",
        InProgress = "in-progress",
        PrOpen = "pr-open",
        /// A review of its pull request failed.
        ReviewFailed = "review-failed",
    }
}

impl IssueStage {
    pub fn label(self, settings: &Backlog) -> String {
        format!("{}{}", settings.label_prefix, self.name())
    }

    /// The furthest stage among these labels: a person who approves an issue need not remove `discovered`.
    pub fn of(labels: &[String], settings: &Backlog) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|stage| has_label(labels, &stage.label(settings)))
    }
}

/// The latest pull request of an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuePullRequest {
    /// None is known.
    None,
    Open {
        number: u64,
        approved: bool,
        /// Whether it is held, a draft or has a remedy in progress: then Suture must not close it.
        taken: bool,
    },
    Merged {
        number: u64,
        at: Timestamp,
    },
    /// Closed without a merge.
    Closed(u64),
}

/// An open issue with a pipeline label, as just read from GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacklogIssue {
    pub repo: RepoName,
    pub number: u64,
    pub labels: Vec<String>,
    pub assigned: bool,
    pub created_at: Timestamp,
    pub vulnerability: Option<String>,
    /// Whether a person abandoned the vulnerability with `/cancel`.
    pub abandoned: bool,
    pub pull: IssuePullRequest,
}

impl BacklogIssue {
    fn key(&self) -> String {
        format!("{}#{}", self.repo, self.number)
    }
}

/// What is stored about an issue between sweeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueMemory {
    /// The last seen stage.
    pub stage: IssueStage,
    pub since: Timestamp,
    #[serde(default)]
    pub requests: u32,
    /// When CodeGenie was last asked for the pull request that is expected now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Timestamp>,
    /// When the issue was last listed; an issue that is no longer listed is forgotten later.
    pub seen_at: Timestamp,
}

/// The stored issues, by `owner/name#number`.
pub type BacklogMemory = BTreeMap<String, IssueMemory>;

/// The most issues that are stored: they share one row.
pub const MAX_REMEMBERED: usize = 2_000;
/// An issue that was not listed for this time is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// An action on an issue, with the stage it was decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacklogStep {
    pub repo: RepoName,
    pub number: u64,
    /// The stage the step was decided on: if the issue has left it, the step is dropped.
    pub from: IssueStage,
    /// When the issue entered that stage; part of the step's idempotency key.
    pub since: Timestamp,
    pub action: BacklogAction,
}

/// An action on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BacklogAction {
    /// Ask CodeGenie for a pull request.
    RequestPullRequest {
        vulnerability: String,
        /// The number of the request, from 1.
        request: u32,
    },
    /// Its pull request is open.
    Opened(u64),
    /// Approve it again: no pull request was opened, or it was closed.
    Requeue(BacklogReason),
    /// Close a pull request whose failed review was not fixed, and approve the issue again.
    ClosePullRequest(u64),
    /// Close it: it was not approved in time.
    CloseUnapproved,
    /// Close it: its pull request was merged.
    Done(u64),
    /// Mark it urgent.
    MarkUrgent(BacklogReason),
}

/// Why an issue is requested again or urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacklogReason {
    NoPullRequest,
    PullRequestClosed(u64),
    /// Its pull request was not approved in time.
    NotApproved(u64),
    /// CodeGenie was asked the maximum number of times.
    RequestsExhausted(u32),
}

/// Which actions are allowed in this sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogLimits {
    /// Ask CodeGenie for pull requests.
    pub may_request: bool,
    /// Close late issues and mark issues urgent.
    pub may_follow_up: bool,
}

/// The label of an issue that needs a person.
pub fn urgent_label(settings: &Backlog) -> String {
    format!("{}urgent", settings.label_prefix)
}

/// The steps of one sweep over the backlog, and the memory for the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BacklogPlan {
    pub steps: Vec<BacklogStep>,
    pub memory: BacklogMemory,
    pub waiting: u32,
}

/// Plans the steps for the issues of all repositories. `settings` returns those of each repository. Issues of repositories
/// that could not be listed are missing from `issues`; the stored ones still count as work in progress.
pub fn plan<'s>(
    issues: &[BacklogIssue],
    memory: BacklogMemory,
    settings: impl Fn(&RepoName) -> &'s Backlog,
    wip_limit: u32,
    may: BacklogLimits,
    now: Timestamp,
) -> BacklogPlan {
    let mut plan = BacklogPlan { memory, ..BacklogPlan::default() };
    let mut requests: Vec<(i64, &BacklogIssue, String)> = Vec::new();
    for issue in issues {
        let own = settings(&issue.repo);
        let Some(stage) = IssueStage::of(&issue.labels, own) else { continue };
        let known = plan.remember(issue, stage, own.every_minutes, now);
        match step(issue, &known, own, now) {
            NextAction::Nothing => {}
            NextAction::Request(vulnerability) => {
                let score = priority::score(Priority::from_labels(&issue.labels), issue.created_at, now, None);
                requests.push((score, issue, vulnerability));
            }
            NextAction::Do(BacklogAction::CloseUnapproved | BacklogAction::MarkUrgent(_)) if !may.may_follow_up => {}
            NextAction::Do(what) => plan.push(issue, &known, what),
        }
    }
    plan.memory.retain(|_, known| saturating_after(known.seen_at, FORGOTTEN_AFTER) > now);
    plan.add_requests(requests, wip_limit, may, now);
    plan
}

/// What to do with an issue.
enum NextAction {
    Nothing,
    /// Request its pull request, if the work-in-progress limit allows.
    Request(String),
    Do(BacklogAction),
}

fn step(issue: &BacklogIssue, known: &IssueMemory, settings: &Backlog, now: Timestamp) -> NextAction {
    if is_held(&issue.labels) {
        return NextAction::Nothing;
    }
    let late = |hours: u32| now >= saturating_after(known.since, SignedDuration::from_hours(hours.into()));
    let urge = |why| {
        let is_urgent = has_label(&issue.labels, &urgent_label(settings));
        if is_urgent { NextAction::Nothing } else { NextAction::Do(BacklogAction::MarkUrgent(why)) }
    };
    // The pull request was opened and merged between two sweeps.
    let requested_at = known.requested_at.or((known.stage == IssueStage::InProgress).then_some(known.since));
    if let (IssuePullRequest::Merged { number, at }, Some(requested_at)) = (issue.pull, requested_at)
        && at >= requested_at
    {
        return NextAction::Do(BacklogAction::Done(number));
    }
    match (known.stage, issue.pull) {
        (IssueStage::Discovered, _) => {
            let has_owner = issue.assigned || has_label(&issue.labels, LABEL_HUMAN);
            if late(settings.discovered_hours) && !has_owner {
                NextAction::Do(BacklogAction::CloseUnapproved)
            } else {
                NextAction::Nothing
            }
        }
        (IssueStage::Approved | IssueStage::InProgress, IssuePullRequest::Open { number, .. }) => {
            NextAction::Do(BacklogAction::Opened(number))
        }
        (
            IssueStage::Approved,
            IssuePullRequest::None | IssuePullRequest::Closed(_) | IssuePullRequest::Merged { .. },
        ) => match &issue.vulnerability {
            Some(_) if issue.abandoned || issue.assigned => NextAction::Nothing,
            // Without an id its pull request could not be recognised, and the requests would never end.
            None => NextAction::Nothing,
            // A pending request is only repeated, with the same idempotency key.
            Some(_) if known.requested_at.is_none() && known.requests >= settings.max_requests => {
                urge(BacklogReason::RequestsExhausted(known.requests))
            }
            Some(id) => NextAction::Request(id.clone()),
        },
        (
            IssueStage::InProgress,
            IssuePullRequest::None | IssuePullRequest::Closed(_) | IssuePullRequest::Merged { .. },
        ) => {
            if late(settings.in_progress_hours) {
                NextAction::Do(BacklogAction::Requeue(BacklogReason::NoPullRequest))
            } else {
                NextAction::Nothing
            }
        }
        (IssueStage::PrOpen | IssueStage::ReviewFailed, IssuePullRequest::Merged { number, .. }) => {
            NextAction::Do(BacklogAction::Done(number))
        }
        (IssueStage::PrOpen | IssueStage::ReviewFailed, IssuePullRequest::Closed(number)) => {
            NextAction::Do(BacklogAction::Requeue(BacklogReason::PullRequestClosed(number)))
        }
        (IssueStage::PrOpen, IssuePullRequest::Open { number, approved, .. }) => {
            if late(settings.pr_open_hours) && !approved {
                urge(BacklogReason::NotApproved(number))
            } else {
                NextAction::Nothing
            }
        }
        (IssueStage::ReviewFailed, IssuePullRequest::Open { number, taken, .. }) => {
            if late(settings.review_failed_hours) && !taken {
                NextAction::Do(BacklogAction::ClosePullRequest(number))
            } else {
                NextAction::Nothing
            }
        }
        // A person added the label, or the pull request is not known yet.
        (IssueStage::PrOpen | IssueStage::ReviewFailed, IssuePullRequest::None) => NextAction::Nothing,
    }
}

impl BacklogPlan {
    /// Stores an issue as it is now, and returns what is stored.
    fn remember(&mut self, issue: &BacklogIssue, stage: IssueStage, every_minutes: u32, now: Timestamp) -> IssueMemory {
        let unseen_for = SignedDuration::from_mins(2 * i64::from(every_minutes) + 5);
        let fresh = IssueMemory { stage, since: now, requests: 0, requested_at: None, seen_at: now };
        // An issue that was closed or unlabelled in the meantime starts over: a person brought it back.
        let known = self.memory.get(&issue.key()).filter(|known| saturating_after(known.seen_at, unseen_for) > now);
        let known = match known {
            None => fresh,
            Some(known) if known.stage == stage => IssueMemory { seen_at: now, ..known.clone() },
            // The time for CodeGenie counts from the request, not from when the label was seen.
            Some(known) if stage == IssueStage::InProgress => {
                IssueMemory { since: known.requested_at.unwrap_or(now), requests: known.requests, ..fresh }
            }
            Some(known) => IssueMemory { requests: known.requests, ..fresh },
        };
        if self.memory.len() < MAX_REMEMBERED || self.memory.contains_key(&issue.key()) {
            self.memory.insert(issue.key(), known.clone());
        }
        known
    }

    fn push(&mut self, issue: &BacklogIssue, known: &IssueMemory, what: BacklogAction) {
        let (repo, number) = (issue.repo.clone(), issue.number);
        self.steps.push(BacklogStep { repo, number, from: known.stage, since: known.since, action: what });
    }

    /// Adds as many requests as the limit allows: the highest score first, then the oldest. A request that does not show on
    /// GitHub yet is repeated, and counts as work in progress.
    fn add_requests(
        &mut self,
        mut requests: Vec<(i64, &BacklogIssue, String)>,
        wip_limit: u32,
        may: BacklogLimits,
        now: Timestamp,
    ) {
        let in_progress = |known: &&IssueMemory| {
            known.stage == IssueStage::InProgress
                || (known.stage == IssueStage::Approved && known.requested_at.is_some())
        };
        let mut capacity = wip_limit
            .saturating_sub(u32::try_from(self.memory.values().filter(in_progress).count()).unwrap_or(u32::MAX));
        requests.sort_by_key(|(score, issue, _)| (Reverse(*score), issue.created_at, issue.key()));
        let mut requested: Vec<&str> = Vec::new();
        for (_, issue, vulnerability) in &requests {
            // An issue that is not stored could be requested without end.
            let Some(known) = self.memory.get_mut(&issue.key()) else { continue };
            let is_repeat = known.requested_at.is_some();
            // Two issues about one vulnerability become one pull request.
            let is_duplicate = requested.contains(&vulnerability.as_str());
            if !may.may_request || is_duplicate || (capacity == 0 && !is_repeat) {
                self.waiting += 1;
                continue;
            }
            if !is_repeat {
                capacity -= 1;
                known.requests += 1;
                known.requested_at = Some(now);
            }
            let known = known.clone();
            requested.push(vulnerability);
            let (vulnerability, request) = (vulnerability.clone(), known.requests);
            self.push(issue, &known, BacklogAction::RequestPullRequest { vulnerability, request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hour: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + 3_600 * hour).unwrap()
    }

    fn issue(number: u64, labels: &[&str]) -> BacklogIssue {
        BacklogIssue {
            repo: "acme/shop".parse().unwrap(),
            number,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            assigned: false,
            created_at: hour(-1),
            vulnerability: Some(format!("CVE-2026-{}", 10_000 + number)),
            abandoned: false,
            pull: IssuePullRequest::None,
        }
    }

    fn open(number: u64) -> IssuePullRequest {
        IssuePullRequest::Open { number, approved: false, taken: false }
    }

    fn merged(number: u64, at: i64) -> IssuePullRequest {
        IssuePullRequest::Merged { number, at: hour(at) }
    }

    const ALL: BacklogLimits = BacklogLimits { may_request: true, may_follow_up: true };

    /// Settings that list the issues once a day.
    fn daily() -> Backlog {
        Backlog { every_minutes: 1_440, ..Backlog::default() }
    }

    fn planned(issues: &[BacklogIssue], memory: BacklogMemory, wip_limit: u32, now: Timestamp) -> BacklogPlan {
        let settings = daily();
        plan(issues, memory, |_| &settings, wip_limit, ALL, now)
    }

    fn whats(plan: &BacklogPlan) -> Vec<(u64, BacklogAction)> {
        plan.steps.iter().map(|step| (step.number, step.action.clone())).collect()
    }

    fn ask(number: u64, request: u32) -> (u64, BacklogAction) {
        (number, BacklogAction::RequestPullRequest { vulnerability: format!("CVE-2026-{}", 10_000 + number), request })
    }

    #[test]
    fn furthest_label_is_the_stage() {
        let settings = Backlog::default();
        let of = |labels: &[&str]| IssueStage::of(&issue(1, labels).labels, &settings);
        assert_eq!(of(&["bug"]), None);
        assert_eq!(of(&["Pipeline/Discovered"]), Some(IssueStage::Discovered));
        assert_eq!(of(&["pipeline/discovered", "pipeline/approved"]), Some(IssueStage::Approved));
        assert_eq!(of(&["pipeline/review-failed", "pipeline/pr-open"]), Some(IssueStage::ReviewFailed));
    }

    #[test]
    fn approved_issues_are_requested_up_to_the_limit_by_priority_then_age() {
        let mut issues: Vec<BacklogIssue> = (1..=4).map(|number| issue(number, &["pipeline/approved"])).collect();
        issues[1].created_at = hour(-5);
        issues[3].labels.push("suture/priority-p0".to_owned());
        let first = planned(&issues, BacklogMemory::new(), 2, hour(0));
        assert_eq!((whats(&first), first.waiting), (vec![ask(4, 1), ask(2, 1)], 2));
        // While GitHub shows no change, the same requests are repeated and none is added.
        let again = planned(&issues, first.memory.clone(), 2, hour(0));
        assert_eq!(again.steps, first.steps);
        // One is in progress now: it still uses capacity.
        issues[3].labels[0] = "pipeline/in-progress".to_owned();
        let then = planned(&issues, again.memory, 2, hour(1));
        assert_eq!(whats(&then), [ask(2, 1)]);
        // Its pull request is open: capacity is free again.
        issues[3].labels[0] = "pipeline/pr-open".to_owned();
        issues[3].pull = open(9);
        let last = planned(&issues, then.memory, 2, hour(1));
        assert_eq!((whats(&last), last.waiting), (vec![ask(2, 1), ask(1, 1)], 1));
    }

    #[test]
    fn owned_held_or_unidentified_issue_is_not_requested() {
        let approved = |number| issue(number, &["pipeline/approved"]);
        let issues = [
            BacklogIssue { assigned: true, ..approved(1) },
            BacklogIssue { vulnerability: None, ..approved(2) },
            BacklogIssue { abandoned: true, ..approved(3) },
            issue(4, &["pipeline/approved", "suture/hold"]),
            issue(5, &["pipeline/approved", "suture/ignore"]),
            BacklogIssue { pull: open(77), ..approved(6) },
        ];
        assert_eq!(whats(&planned(&issues, BacklogMemory::new(), 10, hour(0))), [(6, BacklogAction::Opened(77))]);
        // Two issues about one vulnerability get one pull request.
        let twins = [approved(7), BacklogIssue { vulnerability: approved(7).vulnerability, ..approved(8) }];
        assert_eq!(whats(&planned(&twins, BacklogMemory::new(), 10, hour(0))), [ask(7, 1)]);
    }

    #[test]
    fn issue_without_pull_request_is_requested_again_up_to_three_times() {
        let mut one = [issue(1, &["pipeline/approved"])];
        let (mut memory, mut now) = (BacklogMemory::new(), 0);
        for request in 1..=3 {
            let asked = planned(&one, memory, 10, hour(now));
            assert_eq!(whats(&asked), [ask(1, request)]);
            one[0].labels = vec!["pipeline/in-progress".to_owned()];
            let quiet = planned(&one, asked.memory, 10, hour(now + 1));
            assert_eq!(whats(&quiet), []);
            let late = planned(&one, quiet.memory, 10, hour(now + 2));
            assert_eq!(
                whats(&late),
                [(1, BacklogAction::Requeue(BacklogReason::NoPullRequest))],
                "counted from the request"
            );
            one[0].labels = vec!["pipeline/approved".to_owned()];
            (memory, now) = (late.memory, now + 3);
        }
        let enough = planned(&one, memory, 10, hour(now));
        assert_eq!(whats(&enough), [(1, BacklogAction::MarkUrgent(BacklogReason::RequestsExhausted(3)))]);
        one[0].labels.push("pipeline/urgent".to_owned());
        assert_eq!(whats(&planned(&one, enough.memory, 10, hour(now + 20))), []);
    }

    #[test]
    fn unapproved_issue_without_owner_is_closed_after_a_day() {
        let issues = [
            BacklogIssue { created_at: hour(-500), ..issue(1, &["pipeline/discovered"]) },
            issue(2, &["pipeline/discovered", "source/human"]),
            BacklogIssue { assigned: true, ..issue(3, &["pipeline/discovered"]) },
            issue(4, &["pipeline/discovered", "suture/hold"]),
        ];
        let first = planned(&issues, BacklogMemory::new(), 10, hour(0));
        assert_eq!(whats(&first), [], "the day counts from the label, not from the creation");
        assert_eq!(whats(&planned(&issues, first.memory.clone(), 10, hour(23))), []);
        let settings = daily();
        let no_tidying = BacklogLimits { may_request: true, may_follow_up: false };
        let untidied = plan(&issues, first.memory.clone(), |_| &settings, 10, no_tidying, hour(24));
        assert_eq!(whats(&untidied), []);
        let late = planned(&issues, first.memory, 10, hour(24));
        assert_eq!(whats(&late), [(1, BacklogAction::CloseUnapproved)]);
        assert_eq!((late.steps[0].from, late.steps[0].since), (IssueStage::Discovered, hour(0)));
    }

    #[test]
    fn reopened_issue_starts_over() {
        let settings = Backlog::default();
        let one = [issue(1, &["pipeline/discovered"])];
        let look = |memory, minute: i64| {
            let now = hour(0) + SignedDuration::from_mins(minute);
            plan(&one, memory, |_| &settings, 10, ALL, now)
        };
        let mut memory = BacklogMemory::new();
        for minute in (0..24 * 60).step_by(5) {
            memory = look(memory, minute).memory;
        }
        let rejected = look(memory, 24 * 60);
        assert_eq!(whats(&rejected), [(1, BacklogAction::CloseUnapproved)]);
        assert_eq!(
            whats(&look(rejected.memory.clone(), 24 * 60 + 14)),
            [(1, BacklogAction::CloseUnapproved)],
            "it is still there"
        );
        assert_eq!(whats(&look(rejected.memory, 24 * 60 + 15)), [], "it was closed, and is open again");
    }

    #[test]
    fn merged_pull_request_closes_its_issue_and_closed_one_requeues_it() {
        let with = |number, pull| BacklogIssue { pull, ..issue(number, &["pipeline/pr-open"]) };
        let approved = IssuePullRequest::Open { number: 14, approved: true, taken: false };
        let issues =
            [with(1, merged(11, -5)), with(2, IssuePullRequest::Closed(12)), with(3, open(13)), with(4, approved)];
        let first = planned(&issues, BacklogMemory::new(), 10, hour(0));
        let closed = BacklogAction::Requeue(BacklogReason::PullRequestClosed(12));
        assert_eq!(whats(&first), [(1, BacklogAction::Done(11)), (2, closed.clone())]);
        let late = planned(&issues, first.memory, 10, hour(4));
        assert_eq!(whats(&late)[2..], [(3, BacklogAction::MarkUrgent(BacklogReason::NotApproved(13)))]);
    }

    #[test]
    fn pull_request_merged_between_two_sweeps_closes_its_issue() {
        let mut one = [BacklogIssue { pull: merged(9, -1), ..issue(1, &["pipeline/approved"]) }];
        let asked = planned(&one, BacklogMemory::new(), 10, hour(0));
        assert_eq!(whats(&asked), [ask(1, 1)], "a merge before the approval does not count");
        one[0].pull = merged(10, 1);
        assert_eq!(whats(&planned(&one, asked.memory.clone(), 10, hour(1))), [(1, BacklogAction::Done(10))]);
        one[0].labels = vec!["pipeline/in-progress".to_owned()];
        assert_eq!(whats(&planned(&one, asked.memory, 10, hour(1))), [(1, BacklogAction::Done(10))]);
    }

    #[test]
    fn unfixed_failed_review_closes_the_pull_request_unless_taken() {
        let failed = |number, taken| BacklogIssue {
            pull: IssuePullRequest::Open { number: number + 10, approved: false, taken },
            ..issue(number, &["pipeline/pr-open", "pipeline/review-failed"])
        };
        let issues = [failed(1, false), failed(2, true)];
        let first = planned(&issues, BacklogMemory::new(), 10, hour(0));
        assert_eq!(whats(&first), []);
        assert_eq!(whats(&planned(&issues, first.memory, 10, hour(4))), [(1, BacklogAction::ClosePullRequest(11))]);
    }

    #[test]
    fn forbidden_requests_wait_and_unlisted_issues_still_count() {
        let settings = Backlog::default();
        let one = [issue(1, &["pipeline/approved"])];
        let none = plan(
            &one,
            BacklogMemory::new(),
            |_| &settings,
            10,
            BacklogLimits { may_request: false, may_follow_up: true },
            hour(0),
        );
        assert_eq!((none.steps.len(), none.waiting), (0, 1));
        let other = planned(&[issue(2, &["pipeline/in-progress"])], BacklogMemory::new(), 10, hour(0));
        let full = planned(&one, other.memory, 1, hour(1));
        assert_eq!((full.steps.len(), full.waiting), (0, 1));
        let forgotten = planned(&one, full.memory, 1, hour(26));
        assert_eq!(whats(&forgotten), [ask(1, 1)]);
    }

    #[test]
    fn memory_is_bounded_and_unstored_issues_are_not_requested() {
        let many: Vec<BacklogIssue> =
            (1..=u64::try_from(MAX_REMEMBERED).unwrap() + 5).map(|n| issue(n, &["pipeline/approved"])).collect();
        let plan = planned(&many, BacklogMemory::new(), 1_000_000, hour(0));
        assert_eq!((plan.memory.len(), plan.steps.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    }
}
