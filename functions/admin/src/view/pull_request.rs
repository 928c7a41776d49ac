//! The JSON of a pull request: as a list item, its status, and its explanation.

use crate::api_keys::ApiCaller;
use crate::query::{ExplainResult, PullRequestDetail};
use domain::command::{ApiRole, Command};
use domain::diagnosis::Classification;
use domain::policy::Policy;
use domain::priority::Priority;
use domain::pull_request::{PullRequest, Vulnerability};
use domain::signals::{CheckReport, PolicyVerdict};
use domain::state::Strategy;
use domain::text::{self, pull_request as pr_text};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::run::RunView;
use super::{EventView, serialized_name};

/// A pull request in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PullRequestItem {
    /// `owner/name`.
    repo: String,
    number: u64,
    /// The URL on GitHub.
    url: String,
    /// One of the twelve states.
    state: &'static str,
    /// The substatus of the state.
    substatus: Option<&'static str>,
    /// The vulnerability it fixes.
    vulnerability_id: Option<String>,
    /// Since when it has been in its state.
    since: Timestamp,
    /// How long it has been in its state.
    waiting_secs: u64,
    /// When Suture visits it next.
    due_at: Option<Timestamp>,
    /// In its state for longer than the threshold.
    stale: bool,
    /// Held by a person.
    held: bool,
    draft: bool,
    /// `p0`, `p1`, `p2` or `none`.
    priority: &'static str,
    /// What it waits for, or what is wrong.
    why: String,
    /// What Suture does next, and when.
    next: String,
    /// The remedy in progress.
    active_run: Option<ActiveRunView>,
}

/// The remedy in progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ActiveRun)]
struct ActiveRunView {
    id: String,
    strategy: &'static str,
    since: Timestamp,
    /// Whether its target has accepted it.
    accepted: bool,
}

/// A page of pull requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PullRequestPage {
    pub(crate) prs: Vec<PullRequestItem>,
    /// The cursor of the next page, for `after`.
    pub(crate) next: Option<String>,
}

/// A page of stale pull requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StalePage {
    pub(crate) prs: Vec<PullRequestItem>,
    /// Pull requests that need a person; only with `include=needs_intervention`, and on the pages after the stale ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) needs_intervention: Option<Vec<PullRequestItem>>,
    /// The cursor of the next page, for `after`.
    pub(crate) next: Option<String>,
}

fn secs_since(since: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.duration_since(since).as_secs()).unwrap_or(0)
}

fn priority(record: &PullRequest) -> &'static str {
    let labelled = |priority: Priority| record.labels.iter().any(|label| label.eq_ignore_ascii_case(priority.label()));
    match Priority::ALL.into_iter().find(|priority| labelled(*priority)) {
        Some(Priority::P0) => "p0",
        Some(Priority::P1) => "p1",
        Some(Priority::P2) => "p2",
        None => "none",
    }
}

fn active_run(record: &PullRequest) -> Option<ActiveRunView> {
    let run = record.active_run.as_ref()?;
    let (strategy, accepted) = (run.strategy.name(), run.accepted);
    Some(ActiveRunView { id: run.id.to_string(), strategy, since: run.since, accepted })
}

impl PullRequestItem {
    pub(crate) fn of(record: &PullRequest, policy: &Policy, now: Timestamp) -> Self {
        Self {
            url: record.url(policy),
            repo: record.id.repo.to_string(),
            number: record.id.number,
            state: record.state.name(),
            substatus: record.substatus.map(|substatus| substatus.name()),
            vulnerability_id: record.vulnerability_id.clone(),
            since: record.state_since,
            waiting_secs: secs_since(record.state_since, now),
            due_at: record.due_at,
            stale: record.is_past_threshold(policy, now),
            held: record.is_held(),
            draft: record.draft,
            priority: priority(record),
            why: pr_text::waiting_reason(record, policy, now),
            next: pr_text::next_step(record, policy, now),
            active_run: active_run(record),
        }
    }
}

/// The retry count of each strategy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryCounts)]
struct RetryCountsView {
    rebuild: u32,
    branch_update: u32,
    retrigger_policy_bot: u32,
    retrigger_approver_bot: u32,
    retrigger_automerge_bot: u32,
    retrigger_sod_check: u32,
    close_and_reopen: u32,
}

/// The retry budget of a strategy.
#[derive(Debug, Serialize, ToSchema)]
struct BudgetView {
    strategy: &'static str,
    used: u32,
    max: u32,
    remaining: u32,
}

/// The remedies of one generation, and their limit.
#[derive(Debug, Serialize, ToSchema)]
struct LifetimeView {
    used: u32,
    max: u32,
}

/// The priority of a pull request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Priority)]
struct PriorityView {
    /// `p0`, `p1`, `p2` or `none`.
    name: &'static str,
    score: i64,
}

/// A check, or a commit status.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Check)]
struct CheckView {
    name: String,
    required: bool,
    /// `queued`, `running`, `passed` or `failed`.
    verdict: String,
    at: Timestamp,
    failure: Option<FailureView>,
}

/// Why a check failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
struct FailureView {
    text: String,
    /// The transient rule that matched.
    transient_rule: Option<String>,
}

/// The verdict of Policy Bot.
#[derive(Debug, Serialize, ToSchema)]
struct PolicyView {
    /// `evaluating`, `passed`, or the policy that failed.
    verdict: String,
    text: String,
    at: Timestamp,
}

/// The review of an approver bot.
#[derive(Debug, Serialize, ToSchema)]
struct ApprovalView {
    granted: bool,
    by: String,
    at: Timestamp,
}

/// The report of Automerge Bot.
#[derive(Debug, Serialize, ToSchema)]
struct MergeView {
    failed: bool,
    text: String,
    at: Timestamp,
}

/// A command that is possible now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Command)]
struct CommandView {
    command: &'static str,
    help: &'static str,
    /// Whether a client should ask for confirmation.
    destructive: bool,
    /// The role it requires.
    role: &'static str,
}

/// The status of a pull request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PullRequestStatus {
    repo: String,
    number: u64,
    url: String,
    state: &'static str,
    substatus: Option<&'static str>,
    branch: String,
    base_branch: String,
    head_sha: String,
    vulnerability_id: Option<String>,
    created_at: Timestamp,
    since: Timestamp,
    waiting_secs: u64,
    last_event_at: Timestamp,
    verified_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    stale: bool,
    held: bool,
    /// The label that holds it.
    hold_label: Option<String>,
    draft: bool,
    labels: Vec<String>,
    priority: PriorityView,
    /// Why automation stopped.
    blocked_reason: Option<String>,
    retry_counts: RetryCountsView,
    budgets: Vec<BudgetView>,
    lifetime: LifetimeView,
    last_remediation_at: Option<Timestamp>,
    remediation_action: Option<&'static str>,
    active_run: Option<ActiveRunView>,
    checks: Vec<CheckView>,
    policy: Option<PolicyView>,
    approval: Option<ApprovalView>,
    merge: Option<MergeView>,
    /// The generation: one more each time the pull request is reopened.
    generation: u32,
    /// The pull request that it replaces.
    replaces: Option<u64>,
    /// The pull request that replaces it.
    replaced_by: Option<u64>,
    /// `observe` or `act`.
    mode: String,
    /// What it waits for, or what is wrong.
    why: String,
    /// What Suture does next, and when.
    next: String,
    /// The commands that this key may submit now.
    commands: Vec<CommandView>,
    /// Newest first, at most 50.
    history: Vec<EventView>,
    /// Newest first, at most 20.
    runs: Vec<RunView>,
    version: u64,
    /// The reply to `/status`.
    summary: String,
}

fn budgets(record: &PullRequest, vulnerability: Option<&Vulnerability>, policy: &Policy) -> Vec<BudgetView> {
    let budget = |strategy: Strategy| {
        let counted = record.retry_counts.of(strategy);
        let reopens = vulnerability.filter(|_| strategy == Strategy::CloseAndReopen);
        let elsewhere = reopens.map_or(0, |row| row.close_and_reopen);
        let (used, max) = (counted.max(elsewhere), policy.budget(strategy));
        BudgetView { strategy: strategy.name(), used, max, remaining: max.saturating_sub(used) }
    };
    Strategy::ALL.into_iter().map(budget).collect()
}

fn lifetime(record: &PullRequest, policy: &Policy) -> LifetimeView {
    LifetimeView { used: record.lifetime_remedies, max: policy.budgets.lifetime }
}

fn check(check: &CheckReport, required: &[String]) -> CheckView {
    CheckView {
        name: check.name.clone(),
        required: required.is_empty() || required.contains(&check.name),
        verdict: serialized_name(&check.verdict),
        at: check.at,
        failure: check
            .failure
            .as_ref()
            .map(|failure| FailureView { text: failure.text.clone(), transient_rule: failure.transient_rule.clone() }),
    }
}

fn policy_view(record: &PullRequest) -> Option<PolicyView> {
    let report = record.signals.policy.as_ref()?;
    let verdict = match report.verdict {
        PolicyVerdict::Evaluating => "evaluating".to_owned(),
        PolicyVerdict::Passed => "passed".to_owned(),
        PolicyVerdict::Failed(which) => which.to_string(),
    };
    Some(PolicyView { verdict, text: report.text.clone(), at: report.at })
}

/// The review that counts: an approval that is still granted, otherwise the newest review.
fn approval_view(record: &PullRequest) -> Option<ApprovalView> {
    let newest = record.signals.approvals.iter().max_by_key(|approval| (approval.granted, approval.at))?;
    Some(ApprovalView { granted: newest.granted, by: newest.by.clone(), at: newest.at })
}

fn commands(record: &PullRequest, policy: &Policy, role: ApiRole) -> Vec<CommandView> {
    pr_text::commands(record, policy, role).into_iter().map(CommandView::from).collect()
}

impl From<Command> for CommandView {
    fn from(command: Command) -> Self {
        Self {
            command: command.name(),
            help: command.help(),
            destructive: command.is_destructive(),
            role: command.role().name(),
        }
    }
}

impl PullRequestStatus {
    pub(crate) fn of(detail: &PullRequestDetail, policy: &Policy, caller: &ApiCaller, now: Timestamp) -> Self {
        let record = &detail.record;
        let required = record.required(policy);
        let counts = &record.retry_counts;
        let merge = record.signals.merge.as_ref();
        Self {
            url: record.url(policy),
            repo: record.id.repo.to_string(),
            number: record.id.number,
            state: record.state.name(),
            substatus: record.substatus.map(|substatus| substatus.name()),
            branch: record.branch.clone(),
            base_branch: record.base_branch.clone(),
            head_sha: record.head_sha.to_string(),
            vulnerability_id: record.vulnerability_id.clone(),
            created_at: record.created_at,
            since: record.state_since,
            waiting_secs: secs_since(record.state_since, now),
            last_event_at: record.last_event_at,
            verified_at: record.verified_at,
            due_at: record.due_at,
            stale: record.is_past_threshold(policy, now),
            held: record.is_held(),
            hold_label: record.hold_label().map(str::to_owned),
            draft: record.draft,
            labels: record.labels.clone(),
            priority: PriorityView { name: priority(record), score: record.priority_score(now) },
            blocked_reason: text::blocked(record),
            retry_counts: RetryCountsView {
                rebuild: counts.rebuild,
                branch_update: counts.branch_update,
                retrigger_policy_bot: counts.retrigger_policy_bot,
                retrigger_approver_bot: counts.retrigger_approver_bot,
                retrigger_automerge_bot: counts.retrigger_automerge_bot,
                retrigger_sod_check: counts.retrigger_sod_check,
                close_and_reopen: counts.close_and_reopen,
            },
            budgets: budgets(record, detail.vulnerability.as_ref(), policy),
            lifetime: lifetime(record, policy),
            last_remediation_at: record.last_remediation_at,
            remediation_action: record.remediation_action.map(|strategy| strategy.name()),
            active_run: active_run(record),
            checks: record.signals.checks.iter().map(|one| check(one, required)).collect(),
            policy: policy_view(record),
            approval: approval_view(record),
            merge: merge.map(|report| MergeView { failed: report.failed, text: report.text.clone(), at: report.at }),
            generation: record.generation,
            replaces: record.replaces,
            replaced_by: record.replaced_by,
            mode: serialized_name(&policy.mode),
            why: pr_text::waiting_reason(record, policy, now),
            next: pr_text::next_step(record, policy, now),
            commands: commands(record, policy, caller.role),
            history: detail.events.iter().map(EventView::from).collect(),
            runs: detail.runs.iter().map(|run| RunView::of(run, caller)).collect(),
            version: record.version,
            summary: text::status(record, policy, now),
        }
    }
}

/// A diagnosis rule.
#[derive(Debug, Serialize, ToSchema)]
struct RuleView {
    number: &'static str,
    title: &'static str,
}

/// Why a pull request is in its state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplanationView {
    repo: String,
    number: u64,
    state: &'static str,
    /// What is wrong, in one sentence.
    summary: String,
    /// The rule that matched; null if the classifier does not apply.
    rule: Option<RuleView>,
    /// The classification, such as `RETRY_CHECKS` or `NO_ACTION`.
    classification: &'static str,
    /// The evidence of the rule.
    evidence: Vec<String>,
    /// The next rule that would have matched.
    would_have_matched: Option<String>,
    /// What Suture does next, in one sentence.
    next_action: String,
    next_action_at: Option<Timestamp>,
    budgets: Vec<BudgetView>,
    lifetime: LifetimeView,
    /// What a person can do on GitHub, one sentence each.
    you_can: Vec<String>,
    /// The commands that are possible now.
    commands: Vec<CommandView>,
    /// Whether the explanation is based on a new snapshot from GitHub.
    live: bool,
    /// Why GitHub could not be read.
    live_error: Option<String>,
    /// The explanation as markdown, as in the reply to `/explain`.
    text: String,
}

impl ExplanationView {
    pub(crate) fn of(explained: &ExplainResult, policy: &Policy, role: ApiRole, now: Timestamp) -> Self {
        let (record, found) = (&explained.record, &explained.diagnosis);
        let can = pr_text::commands(record, policy, role);
        let diagnosed = record.is_actionable();
        let blocked = record.blocked.iter().map(|blocked| blocked.reason.clone());
        let mut evidence: Vec<String> = explained.corrected.iter().cloned().collect();
        if diagnosed {
            evidence.extend(found.evidence.iter().cloned());
            evidence.extend(found.overridden.iter().map(|(_, why)| why.clone()));
        } else {
            evidence.extend(blocked);
        }
        let escalated = record.state == domain::state::State::NeedsIntervention;
        let classification = match (diagnosed, escalated) {
            (true, _) => found.classification,
            (false, true) => Classification::NeedsIntervention,
            (false, false) => Classification::NoAction,
        };
        let would = found.next.filter(|_| diagnosed);
        Self {
            repo: record.id.repo.to_string(),
            number: record.id.number,
            state: record.state.name(),
            summary: pr_text::waiting_reason(record, policy, now),
            rule: diagnosed.then_some(RuleView { number: found.rule.number, title: found.rule.title }),
            classification: classification.name(),
            evidence,
            would_have_matched: would.map(|rule| format!("rule {} ({})", rule.number, rule.title)),
            next_action: pr_text::next_step_by_diagnosis(record, found, policy, now),
            next_action_at: record.due_at,
            budgets: budgets(record, explained.vulnerability.as_ref(), policy),
            lifetime: lifetime(record, policy),
            you_can: pr_text::manual_steps(record),
            commands: commands(record, policy, role),
            live: explained.live,
            live_error: explained.live_error.clone(),
            text: pr_text::explanation(record, found, &can, policy, now),
        }
    }
}
