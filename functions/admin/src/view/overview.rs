//! The JSON of the overview.

use std::collections::BTreeMap;

use crate::api_keys::ApiCaller;
use crate::query::{ActivityHistory, StateDwellTime};
use domain::breaker::{Breaker, BreakerSettings, BreakerState, OutcomeMinute};
use domain::event::Event;
use domain::github_contact::GithubContact;
use domain::policy::{Policies, Sweep};
use domain::text::pull_request as pr_text;
use jiff::Timestamp;
use platform::overview::{DayCounts, OverviewCounts, StateCount};
use platform::sweep_summary::SweepSummary;
use serde::Serialize;
use utoipa::ToSchema;

use super::pull_request::PullRequestItem;

/// Pull requests in each list of the overview.
const MAX_ITEMS: usize = 20;

/// The overview of the dashboard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OverviewView {
    pub(crate) now: Timestamp,
    pub(crate) health: HealthView,
    /// `observe` or `act`.
    pub(crate) mode: String,
    /// The owner of a bare repository name.
    pub(crate) owner: Option<String>,
    /// The role of the key.
    pub(crate) role: &'static str,
    /// The name of the key.
    pub(crate) key: String,
    pub(crate) paused: Option<PauseView>,
    pub(crate) breaker: BreakerView,
    pub(crate) last_sweep: Option<SweepView>,
    /// All twelve states; MERGED and CLOSED count the last day.
    pub(crate) states: Vec<StateCountView>,
    pub(crate) repos: Vec<RepoView>,
    /// Longest waiting first, at most 20.
    pub(crate) needs_person: Vec<PullRequestItem>,
    /// Stale pull requests by priority, at most 20.
    pub(crate) stuck: Vec<PullRequestItem>,
    /// Newest first, at most 50.
    pub(crate) activity: Vec<ActivityView>,
    /// The last 14 days, oldest first.
    pub(crate) days: Vec<DayView>,
    /// The time in each live state, of the last 7 days.
    pub(crate) dwell: Vec<StateDwellTime>,
    /// The dead-letter queue, if there is one.
    pub(crate) dlq: Option<DeadLetterCount>,
}

/// Whether what the overview shows is current.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthView {
    github: GithubHealth,
}

/// When Suture last compared pull requests with GitHub.
#[derive(Debug, Serialize, ToSchema)]
struct GithubHealth {
    /// `ok`, `failing`, `old` (no success for two inventories) or `never`.
    status: &'static str,
    /// The last successful comparison.
    last_compared_at: Option<Timestamp>,
    failing_since: Option<Timestamp>,
    error: Option<String>,
    /// The same in one sentence.
    text: String,
}

impl HealthView {
    pub(crate) fn of(contact: &GithubContact, settings: &Sweep, now: Timestamp) -> Self {
        let status = contact.status(settings, now);
        Self {
            github: GithubHealth {
                status: status.name(),
                last_compared_at: contact.last_success,
                failing_since: contact.failing_since,
                error: contact.error.clone(),
                text: contact.sentence(status),
            },
        }
    }
}

/// Who has paused Suture, and why.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseView {
    pub(crate) by: String,
}

/// The approximate number of messages in the dead-letter queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterCount {
    pub(crate) messages: u64,
}

/// The circuit breaker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breaker)]
pub(crate) struct BreakerView {
    /// `closed`, `open` or `half_open`.
    state: &'static str,
    /// Of the current window; while open, of the trip.
    failure_rate_percent: u32,
    actions: u32,
    failures: u32,
    window_minutes: u32,
    opened_at: Option<Timestamp>,
    cooldown_until: Option<Timestamp>,
}

impl BreakerView {
    pub(crate) fn of(breaker: &Breaker, minutes: &[OutcomeMinute], settings: &BreakerSettings, now: Timestamp) -> Self {
        let tally = breaker.window_counts(minutes, now, settings);
        let (state, rate, opened_at, cooldown_until) = match &breaker.state {
            BreakerState::Closed => ("closed", tally.rate_percent(), None, None),
            BreakerState::Open { since, cooldown_until, failure_rate_percent } => {
                ("open", *failure_rate_percent, Some(*since), Some(*cooldown_until))
            }
            BreakerState::HalfOpen { since, lease_until, failure_rate_percent, .. } => {
                ("half_open", *failure_rate_percent, Some(*since), Some(*lease_until))
            }
        };
        Self {
            state,
            failure_rate_percent: rate,
            actions: tally.total(),
            failures: tally.failed,
            window_minutes: settings.window_minutes,
            opened_at,
            cooldown_until,
        }
    }
}

/// The last sweep that ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sweep)]
pub(crate) struct SweepView {
    run_id: String,
    at: Timestamp,
    duration_ms: Option<u64>,
    due: u32,
    verified: u32,
    drifted: u32,
    /// Remedies claimed, by strategy.
    dispatched: BTreeMap<String, u32>,
    escalated: u32,
    /// Skipped pull requests, by reason.
    skipped: BTreeMap<String, u32>,
    partial: bool,
    errors: Vec<String>,
}

impl SweepView {
    /// Errors may name items of any repository, so they are only for callers who can see all.
    pub(crate) fn of(run: &domain::run::Run, summary: SweepSummary, caller: &ApiCaller) -> Self {
        Self {
            run_id: run.id.to_string(),
            at: run.created_at,
            duration_ms: run.duration_ms,
            due: summary.due,
            verified: summary.verified,
            drifted: summary.drifted,
            dispatched: summary.dispatched,
            escalated: summary.escalated,
            skipped: summary.skipped,
            partial: summary.partial,
            errors: if caller.can_see_all() { summary.errors } else { Vec::new() },
        }
    }
}

/// The pull requests in one state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StateCount)]
pub(crate) struct StateCountView {
    state: &'static str,
    count: u64,
    stale: u64,
    oldest: Option<OldestPullRequest>,
}

/// The pull request that has been in the state longest.
#[derive(Debug, Serialize, ToSchema)]
struct OldestPullRequest {
    repo: String,
    number: u64,
    since: Timestamp,
}

impl From<StateCount> for StateCountView {
    fn from(lane: StateCount) -> Self {
        let oldest =
            lane.oldest.map(|(pr, since)| OldestPullRequest { repo: pr.repo.to_string(), number: pr.number, since });
        Self { state: lane.state.name(), count: lane.count, stale: lane.stale, oldest }
    }
}

/// The counts of a repository.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Repo)]
pub(crate) struct RepoView {
    repo: String,
    open: u64,
    needs_person: u64,
    stale: u64,
}

/// A notable event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActivityView {
    at: Timestamp,
    repo: String,
    number: u64,
    kind: &'static str,
    /// A description in one sentence.
    text: String,
}

fn activity(event: &Event) -> Option<ActivityView> {
    Some(ActivityView {
        at: event.occurred_at,
        repo: event.pr.repo.to_string(),
        number: event.pr.number,
        kind: event.kind.name(),
        text: pr_text::activity(event)?,
    })
}

/// The counts of a day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Day)]
pub(crate) struct DayView {
    /// In UTC, such as `2026-11-16`.
    #[schema(format = Date)]
    day: String,
    opened: u32,
    merged: u32,
    /// Remedies proven by the event they expected.
    healed: u32,
    remedies: u32,
    escalated: u32,
}

/// The counts of the repositories that this caller can see.
pub(crate) struct VisibleCounts {
    pub(crate) states: Vec<StateCountView>,
    pub(crate) repos: Vec<RepoView>,
    pub(crate) needs_person: Vec<PullRequestItem>,
    pub(crate) stuck: Vec<PullRequestItem>,
}

impl VisibleCounts {
    pub(crate) fn of(counted: &OverviewCounts, caller: &ApiCaller, policies: &Policies, now: Timestamp) -> Self {
        let item = |record: &domain::pull_request::PullRequest| {
            PullRequestItem::of(record, policies.for_repo(&record.id.repo), now)
        };
        let repo = |(repo, [open, needs_person, stale]): (domain::id::RepoName, [u64; 3])| RepoView {
            repo: repo.to_string(),
            open,
            needs_person,
            stale,
        };
        Self {
            states: counted.state_counts(|repo| caller.can_see(repo)).into_iter().map(StateCountView::from).collect(),
            repos: counted.by_repo(|repo| caller.can_see(repo)).into_iter().map(repo).collect(),
            needs_person: counted
                .needing_person(|repo| caller.can_see(repo))
                .into_iter()
                .take(MAX_ITEMS)
                .map(item)
                .collect(),
            stuck: counted.stale(|repo| caller.can_see(repo), now).into_iter().take(MAX_ITEMS).map(item).collect(),
        }
    }
}

/// Converts the activity history.
pub(crate) fn activity_items(history: ActivityHistory) -> (Vec<DayView>, Vec<StateDwellTime>, Vec<ActivityView>) {
    let day = |(day, counts): (jiff::civil::Date, DayCounts)| {
        let DayCounts { opened, merged, healed, remedies, escalated } = counts;
        DayView { day: day.to_string(), opened, merged, healed, remedies, escalated }
    };
    let days = history.days.into_iter().map(day).collect();
    (days, history.dwell, history.activity.iter().filter_map(activity).collect())
}
