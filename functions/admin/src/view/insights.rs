//! The JSON of the insights.

use crate::query::InsightPeriod;
use domain::insights::{OutcomeCounts, StateDuration, TransientRuleStats, WebhookStats, percent};
use domain::state::Strategy;
use domain::text::insights as insight_text;
use jiff::Timestamp;
use platform::overview::MAX_EVENTS_PER_DAY;
use serde::Serialize;
use utoipa::ToSchema;

/// Statistics of the event log, and what they suggest.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InsightsView {
    now: Timestamp,
    /// How many days were read.
    days: usize,
    /// Whether the log has more events than were read.
    partial: bool,
    /// If so, which part is missing.
    partial_reason: Option<String>,
    /// How a threshold is suggested, and when a rule is flagged.
    formulas: [&'static str; 2],
    /// The time in each state: in all repositories first (`repo` is null), then per repository.
    dwell: Vec<StateDurationView>,
    /// Received and missed webhooks, by event type.
    webhooks: Vec<WebhookStatsView>,
    /// The results of automatic remedies, by strategy.
    remedies: Vec<RemedyView>,
    /// The results of retries, by transient rule.
    rules: Vec<TransientRuleView>,
}

impl InsightsView {
    pub(crate) fn of(advice: &InsightPeriod, now: Timestamp) -> Self {
        let InsightPeriod { insights, days, cut_days } = advice;
        let partial = *cut_days > 0;
        Self {
            now,
            days: *days,
            partial,
            partial_reason: partial.then(|| insight_text::incomplete_data(*cut_days, MAX_EVENTS_PER_DAY)),
            formulas: [insight_text::THRESHOLD_FORMULA, insight_text::FLAG_CRITERION],
            dwell: insights.state_durations.iter().map(StateDurationView::from).collect(),
            webhooks: insights.webhooks.iter().map(WebhookStatsView::from).collect(),
            remedies: insights.remedies.iter().map(|(strategy, tally)| RemedyView::of(*strategy, tally)).collect(),
            rules: insights.rules.iter().map(TransientRuleView::from).collect(),
        }
    }
}

/// The time in a state, and the threshold that it suggests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StateDuration)]
struct StateDurationView {
    /// Null: all visible repositories.
    repo: Option<String>,
    state: &'static str,
    /// How often the state was left.
    count: usize,
    /// How many of these without Suture or a person.
    by_itself: usize,
    p50_secs: u64,
    p95_secs: u64,
    p99_secs: u64,
    configured_minutes: u64,
    /// Null: not enough data.
    suggested_minutes: Option<u64>,
    /// The advice, in one sentence.
    advice: String,
}

impl From<&StateDuration> for StateDurationView {
    fn from(stay: &StateDuration) -> Self {
        Self {
            repo: stay.repo.as_ref().map(ToString::to_string),
            state: stay.state.name(),
            count: stay.count,
            by_itself: stay.undisturbed,
            p50_secs: stay.p50_secs,
            p95_secs: stay.p95_secs,
            p99_secs: stay.p99_secs,
            configured_minutes: stay.configured_minutes,
            suggested_minutes: stay.suggested_minutes,
            advice: insight_text::threshold_advice(stay),
        }
    }
}

/// Received and missed webhooks of one event type.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookStats)]
struct WebhookStatsView {
    kind: &'static str,
    /// Received by a webhook.
    received: u64,
    /// Found by a sweep, or skipped because the merge came first.
    missed: u64,
    loss_percent: f64,
}

impl From<&WebhookStats> for WebhookStatsView {
    fn from(stats: &WebhookStats) -> Self {
        let WebhookStats { kind, by_webhook: received, missed } = *stats;
        Self { kind: kind.name(), received, missed, loss_percent: percent(missed, received + missed).unwrap_or(0.0) }
    }
}

/// The results of the remedies of one strategy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RemedyRecord)]
struct RemedyView {
    strategy: String,
    claimed: u64,
    /// Proven by the event they expected.
    healed: u64,
    /// Ended in the same failure again.
    failed_again: u64,
    /// Could not be executed, or the expected event did not arrive.
    failed: u64,
    /// Not executed, or superseded.
    dropped: u64,
    /// Of those that were executed and have ended; null if there are none.
    success_percent: Option<f64>,
}

impl RemedyView {
    fn of(strategy: Strategy, tally: &OutcomeCounts) -> Self {
        let OutcomeCounts { claimed, helped, failed_again, failed, dropped } = *tally;
        let success_percent = tally.success_percent();
        Self { strategy: strategy.to_string(), claimed, healed: helped, failed_again, failed, dropped, success_percent }
    }
}

/// The results of retries by one transient rule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TransientRule)]
struct TransientRuleView {
    rule: String,
    retries: u64,
    healed: u64,
    failed_again: u64,
    /// Failed again with the same text, ignoring numbers.
    identical: u64,
    success_percent: Option<f64>,
    /// Its retries fail identically: the failures it matches are probably not transient.
    flagged: bool,
    /// The advice in one sentence, if it is flagged.
    advice: Option<String>,
}

impl From<&TransientRuleStats> for TransientRuleView {
    fn from(rule: &TransientRuleStats) -> Self {
        Self {
            rule: rule.rule.clone(),
            retries: rule.outcomes.claimed,
            healed: rule.outcomes.helped,
            failed_again: rule.outcomes.failed_again,
            identical: rule.identical,
            success_percent: rule.outcomes.success_percent(),
            flagged: rule.is_flagged(),
            advice: insight_text::rule_advice(rule),
        }
    }
}
