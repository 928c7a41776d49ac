//! The counts of one sweep, for its run record, its log line and its CloudWatch metrics.

use std::collections::BTreeMap;

use domain::breaker::BreakerStatus;
use domain::id::PrId;
use domain::run::Run;
use domain::state::Strategy;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::Usage;
use crate::telemetry::LogRecord;

/// Longest list in a summary, to keep run records small.
const MAX_LISTED: usize = 50;

domain::named! {
    /// Why a pull request was skipped.
    pub enum SkipReason {
        /// GitHub did not respond, or only in part.
        Unread = "unread",
        /// GitHub's rate limit is used up or low.
        RateLimit = "rate_limit",
        Breaker = "breaker",
        Paused = "paused",
        Full = "full",
        /// Another pull request on the same base was updated first and should be merged before this one.
        Turn = "turn",
        /// A remedy of this pull request is in progress.
        UnderWay = "under_way",
        Overtaken = "overtaken",
        /// No rule requires an action now.
        NoAction = "no_action",
        /// A write failed.
        Store = "store",
        /// The sweep was cancelled first.
        Cancelled = "cancelled",
    }
}

/// The planned action for one pull request, in a dry run or in observe mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedAction {
    pub pr: String,
    pub what: String,
    pub why: String,
}

/// The result of one sweep.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepSummary {
    pub dry_run: bool,
    pub due: u32,
    /// How long the oldest due item has been due.
    pub oldest_due_secs: u64,
    /// Due pull requests that this sweep did not reach; they are still due.
    pub remaining: u32,
    /// The ids of pull requests above the sweep's limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_limit: Vec<String>,
    pub requests: u32,
    /// Number of coalesced requests, this one included; 0 for a scheduled sweep.
    pub coalesced: u32,
    pub verified: u32,
    pub drifted: u32,
    /// Found merged or closed by verification.
    pub ended: u32,
    /// Within their thresholds, held, or needing a user.
    pub healthy: u32,
    /// Remedies claimed, by strategy.
    pub dispatched: BTreeMap<String, u32>,
    pub escalated: u32,
    /// Escalated because a budget or the lifetime cap is used up.
    pub loop_blocked: u32,
    /// Skipped, by reason.
    pub skipped: BTreeMap<String, u32>,
    /// Observe mode: would have been remedied.
    pub would_remedy: u32,
    /// Observe mode: would have been escalated.
    pub would_escalate: u32,
    /// Observe mode: the totals of this week, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// Effects from the outbox that were published.
    pub delivered: u32,
    /// Effects that remain in the outbox.
    pub undelivered: u32,
    pub notices: u32,
    /// Runs whose message was sent again, because it was lost or its worker crashed.
    pub resent: u32,
    /// Runs that missed their deadline or could not be resumed.
    pub expired: u32,
    /// Pull requests that the inventory found without a webhook; `None` if there was no inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopted: Option<u32>,
    /// Webhook deliveries whose redelivery was requested.
    pub redelivered: u32,
    /// Missed webhooks, by kind: events found only by verification, and failed deliveries.
    pub webhooks_missed: BTreeMap<String, u32>,
    /// No webhook has been received for long, within business hours.
    pub webhooks_silent: bool,
    /// Remedies in flight at the start of the sweep.
    pub in_flight: u32,
    /// Undecodable items; retried in an hour.
    pub unreadable: u32,
    /// `None` if the sweep could not read it.
    pub breaker: Option<BreakerStatus>,
    /// Stale pull requests while the breaker or a pause blocks remedies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<String>,
    /// Planned actions, in a dry run or in observe mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlannedAction>,
    /// Backlog, post-merge health and status issue; `None` if none of them is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordination: Option<CoordinationSummary>,
    /// Why GitHub could not be read, if a request for pull requests failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github_error: Option<String>,
    /// Errors of stages; the other stages still ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    pub github_points: u64,
    pub store_requests: u64,
    pub store_units: f64,
    /// The sweep stopped at its deadline; the rest is still due.
    pub partial: bool,
    pub cancelled: bool,
}

impl SweepSummary {
    pub fn skip(&mut self, why: SkipReason) {
        *self.skipped.entry(why.name().to_owned()).or_default() += 1;
    }

    pub fn dispatch(&mut self, strategy: Strategy) {
        *self.dispatched.entry(strategy.to_string()).or_default() += 1;
    }

    pub fn count_failure(&mut self, what: &str) {
        *self.webhooks_missed.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts pull requests above the sweep's limit, and lists as many as fit.
    pub fn count_deferred(&mut self, prs: &[PrId]) {
        self.remaining += u32::try_from(prs.len()).unwrap_or(u32::MAX);
        let free = MAX_LISTED.saturating_sub(self.over_limit.len());
        self.over_limit.extend(prs.iter().take(free).map(PrId::to_string));
    }

    pub fn list_stale(&mut self, pr: String) {
        if self.stale.len() < MAX_LISTED {
            self.stale.push(pr);
        }
    }

    pub fn plan(&mut self, plan: PlannedAction) {
        if self.plans.len() < MAX_LISTED {
            self.plans.push(plan);
        }
    }

    pub fn fail(&mut self, stage: &str, error: &impl std::fmt::Display) {
        if self.errors.len() < MAX_LISTED {
            self.errors.push(format!("{stage}: {error}"));
        }
    }

    /// Whether GitHub could be read; `None` if the sweep had nothing to read. One success shows that GitHub is there.
    pub fn github_result(&self) -> Option<Result<(), &str>> {
        if self.verified > 0 || self.adopted.is_some() {
            return Some(Ok(()));
        }
        self.github_error.as_deref().map(Err)
    }

    pub fn spent(&mut self, before: Usage, after: Usage) {
        self.store_requests = after.requests.saturating_sub(before.requests);
        self.store_units = after.units - before.units;
    }

    pub fn claims(&self) -> u32 {
        self.dispatched.values().sum()
    }

    pub fn sentence(&self) -> String {
        let skipped: u32 = self.skipped.values().sum();
        let how = match (self.cancelled, self.partial, self.dry_run) {
            (true, _, _) => "cancelled: ",
            (false, true, _) => "stopped at the deadline: ",
            (false, false, true) => "dry run: ",
            (false, false, false) => "",
        };
        format!(
            "{how}{} due, {} verified, {} drifted, {} healthy, {} dispatched, {} escalated, {skipped} skipped",
            self.due,
            self.verified,
            self.drifted,
            self.healthy,
            self.claims(),
            self.escalated,
        )
    }

    /// The sweep's log line, with its metrics.
    pub fn line(&self, run: &str, at: Timestamp, ms: u64) -> LogRecord {
        let map = |map: &BTreeMap<String, u32>| serde_json::to_value(map).unwrap_or(Value::Null);
        let skipped: u32 = self.skipped.values().sum();
        let webhooks_missed: u32 = self.webhooks_missed.values().sum();
        LogRecord::new("reconciler", at)
            .with("level", if self.errors.is_empty() { "INFO" } else { "ERROR" })
            .with("run", run)
            .with("summary", self.sentence())
            .with("dispatched_by", map(&self.dispatched))
            .with("skipped_by", map(&self.skipped))
            .with("webhooks_missed_by", map(&self.webhooks_missed))
            .with("breaker", self.breaker.map_or("unknown", BreakerStatus::name))
            .with("partial", self.partial)
            .with_some("observed", self.observed.clone())
            .with_some("coordination", self.coordination.as_ref().and_then(|done| serde_json::to_value(done).ok()))
            .with_some("stale", (!self.stale.is_empty()).then(|| self.stale.clone()))
            .with_some("errors", (!self.errors.is_empty()).then(|| self.errors.clone()))
            .with("store_units", self.store_units)
            .count("due", self.due.into())
            .count("remaining", self.remaining.into())
            .count("requests", self.requests.into())
            .count("verified", self.verified.into())
            .count("drifted", self.drifted.into())
            .count("healthy", self.healthy.into())
            .count("dispatched", self.claims().into())
            .count("escalated", self.escalated.into())
            .count("loop_blocked", self.loop_blocked.into())
            .count("skipped", skipped.into())
            .count("resent", self.resent.into())
            .count("expired", self.expired.into())
            .count("delivered", self.delivered.into())
            .count("undelivered", self.undelivered.into())
            .count("adopted", self.adopted.unwrap_or(0).into())
            .count("redelivered", self.redelivered.into())
            .count("webhooks_missed", webhooks_missed.into())
            .count("unreadable", self.unreadable.into())
            .count("github_points", self.github_points)
            .count("store_requests", self.store_requests)
            .count("failed_stages", self.errors.len() as u64)
            .with("oldest_due_secs", self.oldest_due_secs)
            .gauge("in_flight", "Count", self.in_flight.into())
            .gauge("breaker_open", "Count", self.breaker.is_some_and(|status| status != BreakerStatus::Closed).into())
            .duration_ms(ms)
    }

    /// The log line of a scheduled sweep, with the metrics that only the schedule can tell: a requested sweep must not hide a schedule that has
    /// stopped, and its scope says nothing about what is due elsewhere.
    pub fn scheduled_line(&self, run: &str, at: Timestamp, ms: u64) -> LogRecord {
        let line = self.line(run, at, ms).count("sweeps", 1).gauge("oldest_due_secs", "Seconds", self.oldest_due_secs);
        line.gauge("webhooks_silent", "Count", self.webhooks_silent.into())
    }
}

/// Work beyond single pull requests: backlog, post-merge health, status issue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoordinationSummary {
    pub verified: u32,
    /// Outages that were detected.
    pub outages_begun: u32,
    /// Outages that ended.
    pub outages_ended: u32,
    /// Issues whose pull request was requested, including repeats.
    pub requested: u32,
    /// Issues that were relabelled or closed, including repeats.
    pub issues_updated: u32,
    pub waiting: u32,
    /// Status issues to be updated.
    pub status: u32,
    /// Steps that were skipped, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// The summary stored in a sweep's run record.
pub fn summary_of(run: &Run) -> Option<SweepSummary> {
    serde_json::from_str(run.step("summary")?.output.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_roundtrips_through_json() {
        let mut summary =
            SweepSummary { due: 3, verified: 2, observed: Some("x".to_owned()), ..SweepSummary::default() };
        summary.skip(SkipReason::Full);
        summary.skip(SkipReason::Full);
        summary.dispatch(Strategy::Rebuild);
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<SweepSummary>(&json).unwrap(), summary);
        assert_eq!(summary.skipped["full"], 2);
        assert_eq!(summary.sentence(), "3 due, 2 verified, 0 drifted, 0 healthy, 1 dispatched, 0 escalated, 2 skipped");
    }

    #[test]
    fn lists_are_bounded() {
        let mut summary = SweepSummary::default();
        for n in 0..200 {
            summary.list_stale(format!("acme/app#{n}"));
            summary.fail("a stage", &"it broke");
        }
        assert_eq!((summary.stale.len(), summary.errors.len()), (MAX_LISTED, MAX_LISTED));
    }

    #[test]
    fn line_has_counts_and_gauges() {
        let line = |breaker| -> Value {
            let summary =
                SweepSummary { due: 7, oldest_due_secs: 61, breaker: Some(breaker), ..SweepSummary::default() };
            serde_json::from_str(&summary.line("sweep-1", Timestamp::UNIX_EPOCH, 5).to_json()).unwrap()
        };
        let closed = line(BreakerStatus::Closed);
        assert_eq!((&closed["due"], &closed["run"], &closed["ms"]), (&7.into(), &"sweep-1".into(), &5.into()));
        assert_eq!((&closed["oldest_due_secs"], &closed["breaker_open"]), (&61.into(), &0.into()));
        assert_eq!(
            (&line(BreakerStatus::Open)["breaker_open"], &line(BreakerStatus::HalfOpen)["breaker_open"]),
            (&1.into(), &1.into())
        );
    }
}
