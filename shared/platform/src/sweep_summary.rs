//! What a sweep did, in numbers: for its run record, for the log line and for CloudWatch. Counting only.

use std::collections::BTreeMap;

use domain::id::PrId;
use domain::run::Run;
use domain::state::Strategy;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::Spending;
use crate::telemetry::Line;

/// Longest list in a summary: a run record has to stay small.
const MOST_LISTED: usize = 50;

domain::named! {
    /// Why a pull request was left alone.
    pub enum Skip {
        /// GitHub could not be asked, or answered in part.
        Unread = "unread",
        /// GitHub wants to be left alone, or little is left of what it allows in an hour.
        RateLimit = "rate_limit",
        Breaker = "breaker",
        Paused = "paused",
        Full = "full",
        /// Another pull request of the same base was brought up to date before it, and is to be merged first.
        Turn = "turn",
        /// A remedy of this pull request is under way.
        UnderWay = "under_way",
        Overtaken = "overtaken",
        /// Nothing was wrong with it that a rule would act on now.
        NoAction = "no_action",
        /// The store did not take what was to be written.
        Store = "store",
        /// Somebody has cancelled the sweep before it was written.
        Cancelled = "cancelled",
    }
}

/// What would be done about one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub pr: String,
    pub what: String,
    pub why: String,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    pub dry_run: bool,
    pub due: u32,
    /// How long the one has been due that has waited longest.
    pub oldest_due_secs: u64,
    /// Of these, as many as this sweep did not get to; they are still due.
    pub left: u32,
    /// Those that were too many for it, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    pub requests: u32,
    /// How many requests it stands for, itself included; 0 for the schedule's own.
    pub stands_for: u32,
    pub verified: u32,
    pub drifted: u32,
    /// Found to be merged or closed by that.
    pub ended: u32,
    /// In their normal time, held, or with a person.
    pub healthy: u32,
    /// Remedies claimed, by strategy.
    pub dispatched: BTreeMap<String, u32>,
    pub escalated: u32,
    /// Of these, because a budget or the lifetime cap is used up: a loop that ends here.
    pub loop_blocked: u32,
    /// Left alone, by reason.
    pub skipped: BTreeMap<String, u32>,
    /// Observe mode: would have been remedied, and handed to people.
    pub would_remedy: u32,
    /// See `would_remedy`.
    pub would_escalate: u32,
    /// Observe mode: all of this week, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// Effects that had been left behind and are out now.
    pub delivered: u32,
    /// Effects that still could not be delivered.
    pub undelivered: u32,
    pub notices: u32,
    /// Runs whose message was sent again, because it was lost or its worker gone.
    pub resent: u32,
    /// Runs that missed their deadline, or could not go on.
    pub expired: u32,
    /// The inventory: pull requests nobody had told us about; `None` if there was no inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopted: Option<u32>,
    /// Webhook deliveries that were asked for again.
    pub redelivered: u32,
    /// What was never heard, by kind: missed events, and deliveries that failed.
    pub lost: BTreeMap<String, u32>,
    /// Remedies under way when it began to look.
    pub in_flight: u32,
    /// Rows that nobody understands; they come back in an hour.
    pub unreadable: u32,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Stale pull requests, while nothing may be done about them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<String>,
    /// What would be done, in a dry run or in observe mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<Plan>,
    /// What was done beyond single pull requests; `None` if nothing of it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordination: Option<Coordinated>,
    /// What went wrong in a stage; the others went on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    pub github_points: u64,
    pub store_requests: u64,
    pub store_units: f64,
    /// It stopped at its deadline; what it missed is still due.
    pub partial: bool,
    pub cancelled: bool,
}

impl Summary {
    pub fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why.name().to_owned()).or_default() += 1;
    }

    pub fn dispatch(&mut self, strategy: Strategy) {
        *self.dispatched.entry(strategy.to_string()).or_default() += 1;
    }

    pub fn lose(&mut self, what: &str) {
        *self.lost.entry(what.to_owned()).or_default() += 1;
    }

    /// Too many for this sweep: each counts, and as many as fit are named.
    pub fn leave_out(&mut self, prs: &[PrId]) {
        self.left += u32::try_from(prs.len()).unwrap_or(u32::MAX);
        let room = MOST_LISTED.saturating_sub(self.left_out.len());
        self.left_out.extend(prs.iter().take(room).map(PrId::to_string));
    }

    pub fn list_stale(&mut self, pr: String) {
        if self.stale.len() < MOST_LISTED {
            self.stale.push(pr);
        }
    }

    pub fn plan(&mut self, plan: Plan) {
        if self.plans.len() < MOST_LISTED {
            self.plans.push(plan);
        }
    }

    pub fn fail(&mut self, stage: &str, error: &impl std::fmt::Display) {
        if self.errors.len() < MOST_LISTED {
            self.errors.push(format!("{stage}: {error}"));
        }
    }

    pub fn spent(&mut self, before: Spending, after: Spending) {
        self.store_requests = after.requests.saturating_sub(before.requests);
        self.store_units = after.units - before.units;
    }

    pub fn claims(&self) -> u32 {
        self.dispatched.values().sum()
    }

    /// Whether remedies are held back because too many failed.
    fn breaker_is_open(&self) -> bool {
        matches!(self.breaker.as_str(), "open" | "half_open")
    }

    pub fn sentence(&self) -> String {
        let skipped: u32 = self.skipped.values().sum();
        let how = match (self.cancelled, self.partial, self.dry_run) {
            (true, _, _) => "cancelled: ",
            (false, true, _) => "stopped in time: ",
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

    /// The one line a sweep leaves in the log, with its counters.
    pub fn line(&self, run: &str, at: Timestamp, ms: u64) -> Line {
        let map = |map: &BTreeMap<String, u32>| serde_json::to_value(map).unwrap_or(Value::Null);
        let skipped: u32 = self.skipped.values().sum();
        let lost: u32 = self.lost.values().sum();
        Line::new("reconciler", at)
            .with("level", if self.errors.is_empty() { "INFO" } else { "ERROR" })
            .with("run", run)
            .with("summary", self.sentence())
            .with("dispatched_by", map(&self.dispatched))
            .with("skipped_by", map(&self.skipped))
            .with("lost_by", map(&self.lost))
            .with("breaker", self.breaker.as_str())
            .with("partial", self.partial)
            .with_some("observed", self.observed.clone())
            .with_some("coordination", self.coordination.as_ref().and_then(|done| serde_json::to_value(done).ok()))
            .with_some("stale", (!self.stale.is_empty()).then(|| self.stale.clone()))
            .with_some("errors", (!self.errors.is_empty()).then(|| self.errors.clone()))
            .with("store_units", self.store_units)
            .count("due", self.due.into())
            .count("left", self.left.into())
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
            .count("lost", lost.into())
            .count("unreadable", self.unreadable.into())
            .count("github_points", self.github_points)
            .count("store_requests", self.store_requests)
            .count("failed_stages", self.errors.len() as u64)
            .gauge("oldest_due_secs", "Seconds", self.oldest_due_secs)
            .gauge("in_flight", "Count", self.in_flight.into())
            .gauge("breaker_open", "Count", self.breaker_is_open().into())
            .took_ms(ms)
    }
}

/// What was done beyond single pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Coordinated {
    pub verified: u32,
    /// Outages that were seen to begin, and to end.
    pub outages_begun: u32,
    /// See `outages_begun`.
    pub outages_ended: u32,
    /// Issues whose pull request was asked for; a repetition counts.
    pub asked: u32,
    /// Issues that were moved, made urgent or closed; a repetition counts.
    pub tended: u32,
    pub waiting: u32,
    /// Status issues that are to say something else.
    pub status: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// What a sweep wrote down, from its run record.
pub fn summary_of(run: &Run) -> Option<Summary> {
    serde_json::from_str(run.step("summary")?.output.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_survives_its_run_record() {
        let mut summary = Summary { due: 3, verified: 2, observed: Some("x".to_owned()), ..Summary::default() };
        summary.skip(Skip::Full);
        summary.skip(Skip::Full);
        summary.dispatch(Strategy::Rebuild);
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
        assert_eq!(summary.skipped["full"], 2);
        assert_eq!(summary.sentence(), "3 due, 2 verified, 0 drifted, 0 healthy, 1 dispatched, 0 escalated, 2 skipped");
    }

    #[test]
    fn lists_are_bounded() {
        let mut summary = Summary::default();
        for n in 0..200 {
            summary.list_stale(format!("acme/app#{n}"));
            summary.fail("a stage", &"it broke");
        }
        assert_eq!((summary.stale.len(), summary.errors.len()), (MOST_LISTED, MOST_LISTED));
    }

    #[test]
    fn the_line_counts() {
        let line = |breaker: &str| -> Value {
            let summary = Summary { due: 7, oldest_due_secs: 61, breaker: breaker.to_owned(), ..Summary::default() };
            serde_json::from_str(&summary.line("sweep-1", Timestamp::UNIX_EPOCH, 5).to_json()).unwrap()
        };
        let closed = line("closed");
        assert_eq!((&closed["due"], &closed["run"], &closed["ms"]), (&7.into(), &"sweep-1".into(), &5.into()));
        assert_eq!((&closed["oldest_due_secs"], &closed["breaker_open"]), (&61.into(), &0.into()));
        assert_eq!((&line("open")["breaker_open"], &line("half_open")["breaker_open"]), (&1.into(), &1.into()));
    }
}
