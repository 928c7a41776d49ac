//! The JSON of the insights.

use crate::query::Advice;
use domain::comment::insight as words;
use domain::insight::{Heard, RuleRecord, Stay, Tally, percent};
use domain::state::Strategy;
use jiff::Timestamp;
use platform::overview::MOST_A_DAY;
use serde::Serialize;
use utoipa::ToSchema;

/// Statistics of the event log, and what they suggest.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Insights {
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
    dwell: Vec<StayView>,
    /// Received and missed webhooks, by event type.
    webhooks: Vec<HeardView>,
    /// The results of automatic remedies, by strategy.
    remedies: Vec<RemedyView>,
    /// The results of retries, by transient rule.
    rules: Vec<RuleView>,
}

impl Insights {
    pub(crate) fn of(advice: &Advice, now: Timestamp) -> Self {
        let Advice { insights, days, cut_days } = advice;
        let partial = *cut_days > 0;
        Self {
            now,
            days: *days,
            partial,
            partial_reason: partial.then(|| words::partial(*cut_days, MOST_A_DAY)),
            formulas: [words::FORMULA, words::FLAG],
            dwell: insights.stays.iter().map(StayView::from).collect(),
            webhooks: insights.heard.iter().map(HeardView::from).collect(),
            remedies: insights.remedies.iter().map(|(strategy, tally)| RemedyView::of(*strategy, tally)).collect(),
            rules: insights.rules.iter().map(RuleView::from).collect(),
        }
    }
}

/// The time in a state, and the threshold that it suggests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StateDuration)]
struct StayView {
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

impl From<&Stay> for StayView {
    fn from(stay: &Stay) -> Self {
        Self {
            repo: stay.repo.as_ref().map(ToString::to_string),
            state: stay.state.name(),
            count: stay.count,
            by_itself: stay.by_itself,
            p50_secs: stay.p50_secs,
            p95_secs: stay.p95_secs,
            p99_secs: stay.p99_secs,
            configured_minutes: stay.configured_minutes,
            suggested_minutes: stay.suggested_minutes,
            advice: words::advice(stay),
        }
    }
}

/// Received and missed webhooks of one event type.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookStats)]
struct HeardView {
    kind: &'static str,
    /// Received by a webhook.
    told: u64,
    /// Found by a sweep, or skipped because the merge came first.
    missed: u64,
    loss_percent: f64,
}

impl From<&Heard> for HeardView {
    fn from(heard: &Heard) -> Self {
        let Heard { kind, told, missed } = *heard;
        Self { kind: kind.name(), told, missed, loss_percent: percent(missed, told + missed).unwrap_or(0.0) }
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
    fn of(strategy: Strategy, tally: &Tally) -> Self {
        let Tally { claimed, helped, failed_again, failed, dropped } = *tally;
        let success_percent = tally.success_percent();
        Self { strategy: strategy.to_string(), claimed, healed: helped, failed_again, failed, dropped, success_percent }
    }
}

/// The results of retries by one transient rule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TransientRule)]
struct RuleView {
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

impl From<&RuleRecord> for RuleView {
    fn from(rule: &RuleRecord) -> Self {
        Self {
            rule: rule.rule.clone(),
            retries: rule.tally.claimed,
            healed: rule.tally.helped,
            failed_again: rule.tally.failed_again,
            identical: rule.identical,
            success_percent: rule.tally.success_percent(),
            flagged: rule.is_flagged(),
            advice: words::rule_advice(rule),
        }
    }
}
