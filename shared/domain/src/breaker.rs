//! The circuit breaker (R-BREAKER-1 to R-BREAKER-8): stops automatic remedies while most of them fail, and lets one
//! pass as a probe after a cooldown. Everything here is a function of the stored breaker and of `now`; the conditional
//! write of the store ensures that there is exactly one probe. People's commands are neither counted nor blocked:
//! callers do not check the breaker for them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// Log message of a sweep that the breaker stops.
pub const SKIPPED_LOG: &str = "circuit breaker open, skipping remediation";

/// Longest window. Each of its minutes is one read.
const MAX_WINDOW_MINUTES: u32 = 24 * 60;

/// Window, threshold and cooldown, from the policy.
pub use crate::policy::Breaker as BreakerSettings;

impl BreakerSettings {
    fn window(&self) -> SignedDuration {
        SignedDuration::from_mins(i64::from(self.window_minutes.min(MAX_WINDOW_MINUTES)))
    }

    fn after_cooldown(&self, now: Timestamp) -> Timestamp {
        now.checked_add(SignedDuration::from_mins(i64::from(self.cooldown_minutes))).unwrap_or(Timestamp::MAX)
    }
}

/// Whether remedies may be dispatched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    /// No remedy is dispatched until the cooldown is over; then the first one becomes the probe.
    Open {
        /// When it tripped; failed probes do not change this.
        since: Timestamp,
        /// From when a probe may be dispatched.
        cooldown_until: Timestamp,
        /// The failure rate at which it tripped, for display.
        failure_rate_percent: u32,
    },
    /// One remedy, the probe, is running to test whether remedies work again; no other is dispatched.
    HalfOpen {
        probe: RunId,
        /// From when the probe counts as lost.
        lease_until: Timestamp,
        since: Timestamp,
        failure_rate_percent: u32,
    },
}

named! {
    /// The breaker's state without its details, for summaries and the API.
    pub enum BreakerStatus {
        Closed = "closed",
        Open = "open",
        HalfOpen = "half_open",
    }
}

impl BreakerState {
    pub fn status(&self) -> BreakerStatus {
        match self {
            Self::Closed => BreakerStatus::Closed,
            Self::Open { .. } => BreakerStatus::Open,
            Self::HalfOpen { .. } => BreakerStatus::HalfOpen,
        }
    }
}

/// The breaker as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub state: BreakerState,
    /// When a probe or a person last closed it. Only outcomes from then on count: the cooldown is shorter than the
    /// window, so older failures would trip it again at once.
    pub window_starts_at: Timestamp,
    /// Total number of trips. A failed probe is not another trip.
    pub trips: u64,
    /// How often it was closed. What it put off before ends then.
    #[serde(default)]
    pub epoch: u64,
}

impl Default for Breaker {
    /// The breaker before anything was stored: closed, with no cleared window.
    fn default() -> Self {
        Self { state: BreakerState::Closed, window_starts_at: Timestamp::UNIX_EPOCH, trips: 0, epoch: 0 }
    }
}

/// The outcomes of one minute by run, with their times. A run that is counted twice still counts once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeMinute {
    /// Start of the minute, see [`minute_of`].
    pub at: Timestamp,
    /// Runs whose target accepted the remedy.
    pub succeeded: BTreeMap<RunId, Timestamp>,
    /// Runs that could not be dispatched, or missed their deadline.
    pub failed: BTreeMap<RunId, Timestamp>,
}

/// The start of the minute that contains `at`.
pub fn minute_of(at: Timestamp) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(at)
}

/// Successes and failures within the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowCounts {
    /// Runs that succeeded and did not fail later.
    pub succeeded: u32,
    pub failed: u32,
    /// The share of failures, 0 to 1; 0 if the window is empty.
    pub rate: f64,
}

impl WindowCounts {
    fn new(succeeded: usize, failed: usize) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (succeeded, failed) = (count(succeeded), count(failed));
        let total = succeeded.saturating_add(failed);
        let rate = if total == 0 { 0.0 } else { f64::from(failed) / f64::from(total) };
        Self { succeeded, failed, rate }
    }

    pub fn total(&self) -> u32 {
        self.succeeded.saturating_add(self.failed)
    }

    /// The failure rate, rounded to the nearest percent.
    pub fn rate_percent(&self) -> u32 {
        let total = u64::from(self.total());
        let percent = (u64::from(self.failed) * 100 + total / 2).checked_div(total).unwrap_or(0);
        u32::try_from(percent).unwrap_or(100)
    }

    fn trips(&self, settings: &BreakerSettings) -> bool {
        self.rate > settings.failure_threshold && self.total() > settings.minimum_actions
    }
}

/// The breaker tripped: the new breaker and the log message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerTrip {
    /// The breaker to store, on condition that it is unchanged since it was read.
    pub breaker: Breaker,
    pub log: String,
}

/// Whether one remedy may be dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakerPermit {
    Allowed,
    /// Allowed as the only probe, once this breaker is stored in place of the one that was read.
    Probe(Breaker),
    Refused {
        /// From when it may be allowed.
        until: Timestamp,
    },
}

/// How the probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeOutcome {
    /// The target accepted it.
    Accepted,
    /// It could not be dispatched, or missed its deadline.
    Failed,
    /// Dropped without a result (the head moved, a guard, a person).
    Cancelled,
}

impl Breaker {
    /// The breaker at this time: HALF_OPEN with an expired lease is OPEN with its cooldown elapsed. All other functions
    /// use this view, so the expiry is never written.
    pub fn as_of(&self, now: Timestamp) -> Self {
        match &self.state {
            BreakerState::HalfOpen { lease_until, since, failure_rate_percent, .. } if now >= *lease_until => {
                self.opened(*since, *lease_until, *failure_rate_percent)
            }
            BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => self.clone(),
        }
    }

    fn opened(&self, since: Timestamp, cooldown_until: Timestamp, failure_rate_percent: u32) -> Self {
        let state = BreakerState::Open { since, cooldown_until, failure_rate_percent };
        Self { state, ..self.clone() }
    }

    /// Whether a minute is in the window: not too old, not cleared, and not in the future.
    fn counts(&self, minute: Timestamp, now: Timestamp, settings: &BreakerSettings) -> bool {
        let oldest = now.checked_sub(settings.window()).unwrap_or(Timestamp::MIN);
        minute >= oldest && minute >= minute_of(self.window_starts_at) && minute <= now
    }

    /// The starts of the minutes in the window, oldest first: these have to be read from the store.
    pub fn counted_minutes(&self, now: Timestamp, settings: &BreakerSettings) -> Vec<Timestamp> {
        let newest = minute_of(now);
        (0..=i64::from(settings.window_minutes.min(MAX_WINDOW_MINUTES)))
            .rev()
            .filter_map(|back| newest.checked_sub(SignedDuration::from_mins(back)).ok())
            .filter(|minute| self.counts(*minute, now, settings))
            .collect()
    }

    /// Counts the outcomes within the window. A run counts once, and as failed if it ever failed: a remedy that was
    /// accepted and then missed its deadline did not help.
    pub fn window_counts(&self, minutes: &[OutcomeMinute], now: Timestamp, settings: &BreakerSettings) -> WindowCounts {
        let (mut succeeded, mut failed) = (BTreeSet::<RunId>::new(), BTreeSet::new());
        for minute in minutes.iter().filter(|minute| self.counts(minute.at, now, settings)) {
            let since_closing = |(run, at): (&RunId, &Timestamp)| (*at >= self.window_starts_at).then(|| run.clone());
            succeeded.extend(minute.succeeded.iter().filter_map(since_closing));
            failed.extend(minute.failed.iter().filter_map(since_closing));
        }
        WindowCounts::new(succeeded.difference(&failed).count(), failed.len())
    }

    /// Trips a closed breaker if there are more actions than the minimum and the failure rate is above the threshold;
    /// both strictly (R-BREAKER-1).
    pub fn evaluate(
        &self,
        minutes: &[OutcomeMinute],
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<BreakerTrip> {
        match self.state {
            BreakerState::Closed => {}
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => return None,
        }
        let tally = self.window_counts(minutes, now, settings);
        if !tally.trips(settings) {
            return None;
        }
        let failure_rate = tally.rate_percent();
        let mut breaker = self.opened(now, settings.after_cooldown(now), failure_rate);
        breaker.trips = self.trips.saturating_add(1);
        Some(BreakerTrip { breaker, log: format!("circuit breaker tripped: {failure_rate}% failure rate") })
    }

    /// Whether this run's remedy may be dispatched now. A redelivery of the probe itself is allowed: otherwise the
    /// breaker would wait for an outcome that cannot arrive.
    pub fn may_dispatch(&self, run: &RunId, now: Timestamp, settings: &BreakerSettings) -> BreakerPermit {
        match self.as_of(now).state {
            BreakerState::Closed => BreakerPermit::Allowed,
            BreakerState::Open { cooldown_until, .. } if now < cooldown_until => {
                BreakerPermit::Refused { until: cooldown_until }
            }
            BreakerState::Open { since, failure_rate_percent, .. } => {
                let lease_until = settings.after_cooldown(now);
                let state = BreakerState::HalfOpen { probe: run.clone(), lease_until, since, failure_rate_percent };
                BreakerPermit::Probe(Self { state, ..self.clone() })
            }
            BreakerState::HalfOpen { probe, .. } if probe == *run => BreakerPermit::Allowed,
            BreakerState::HalfOpen { lease_until, .. } => BreakerPermit::Refused { until: lease_until },
        }
    }

    /// The breaker after a run ended; `None` if nothing changes, because the run is not the probe or its lease has
    /// expired.
    pub fn probe_ended(
        &self,
        run: &RunId,
        outcome: ProbeOutcome,
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<Self> {
        match self.as_of(now).state {
            BreakerState::HalfOpen { probe, since, failure_rate_percent, .. } if probe == *run => Some(match outcome {
                ProbeOutcome::Accepted => self.reset(now),
                ProbeOutcome::Failed => self.opened(since, settings.after_cooldown(now), failure_rate_percent),
                ProbeOutcome::Cancelled => self.opened(since, now, failure_rate_percent),
            }),
            BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => None,
        }
    }

    /// Closes it with an empty window, from any state, and releases what it put off. People can do this by command.
    pub fn reset(&self, now: Timestamp) -> Self {
        let epoch = self.epoch.saturating_add(1);
        Self { state: BreakerState::Closed, window_starts_at: now, trips: self.trips, epoch }
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    const SETTINGS: BreakerSettings =
        BreakerSettings { window_minutes: 15, failure_threshold: 0.5, minimum_actions: 5, cooldown_minutes: 10 };

    fn at(secs: i64) -> Timestamp {
        "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
    }

    fn mins(minutes: i64) -> Timestamp {
        at(minutes * 60)
    }

    fn run(n: u32) -> RunId {
        RunId::new(format!("run-{n}"))
    }

    fn minute(minutes: i64, succeeded: std::ops::Range<u32>, failed: std::ops::Range<u32>) -> OutcomeMinute {
        let at = mins(minutes);
        let outcomes = |runs: std::ops::Range<u32>| runs.map(|n| (run(n), at)).collect();
        OutcomeMinute { at, succeeded: outcomes(succeeded), failed: outcomes(failed) }
    }

    fn open(since: i64, cooldown_until: i64) -> Breaker {
        let state =
            BreakerState::Open { since: mins(since), cooldown_until: mins(cooldown_until), failure_rate_percent: 67 };
        Breaker { state, trips: 3, ..Breaker::default() }
    }

    fn half_open(probe: u32, lease_until: i64) -> Breaker {
        let state = BreakerState::HalfOpen {
            probe: run(probe),
            lease_until: mins(lease_until),
            since: mins(0),
            failure_rate_percent: 67,
        };
        Breaker { state, trips: 3, ..Breaker::default() }
    }

    fn closed(window_starts_at: Timestamp) -> Breaker {
        Breaker { state: BreakerState::Closed, window_starts_at, trips: 3, epoch: 0 }
    }

    #[test]
    fn default_settings_are_15_minutes_50_percent_5_actions_10_minutes() {
        assert_eq!(BreakerSettings::default(), SETTINGS);
        assert_eq!(serde_json::from_str::<BreakerSettings>("{}").unwrap(), SETTINGS);
        assert!(serde_json::from_str::<BreakerSettings>("{\"window\":1}").is_err());
    }

    #[test]
    fn breaker_trips_above_half_of_more_than_five_actions() {
        let trips = |succeeded: u32, failed: u32| {
            let minutes = [minute(0, 0..succeeded, 100..100 + failed)];
            Breaker::default().evaluate(&minutes, at(30), &SETTINGS).is_some()
        };
        assert!(!trips(0, 0));
        assert!(!trips(0, 5), "five of five: not more than five actions");
        assert!(!trips(3, 3), "half is not more than half");
        assert!(trips(2, 4));
        assert!(trips(0, 6));
        assert!(!trips(6, 0));
        assert!(!trips(50, 50));
        assert!(trips(50, 51));
    }

    #[test]
    fn evaluate_returns_the_tripped_breaker_and_the_log_message() {
        let minutes = [minute(0, 0..2, 10..14)];
        let change = Breaker::default().evaluate(&minutes, at(30), &SETTINGS).unwrap();
        assert_eq!(change.log, "circuit breaker tripped: 67% failure rate");
        assert_eq!(SKIPPED_LOG, "circuit breaker open, skipping remediation");
        let state = BreakerState::Open { since: at(30), cooldown_until: at(630), failure_rate_percent: 67 };
        assert_eq!(change.breaker, Breaker { state, trips: 1, ..Breaker::default() });
        for tripped in [change.breaker, half_open(1, 10)] {
            assert_eq!(tripped.evaluate(&minutes, at(30), &SETTINGS), None, "it trips once");
        }
        let again = closed(mins(0)).evaluate(&minutes, at(30), &SETTINGS).unwrap();
        assert_eq!((again.breaker.trips, again.breaker.window_starts_at), (4, mins(0)));
    }

    #[test]
    fn run_counts_once_and_as_failed_if_it_ever_failed() {
        let minutes = [minute(0, 1..4, 0..0), minute(1, 2..5, 3..5), minute(2, 0..0, 3..4)];
        let tally = Breaker::default().window_counts(&minutes, mins(3), &SETTINGS);
        assert_eq!(tally, WindowCounts { succeeded: 2, failed: 2, rate: 0.5 });
        assert_eq!((tally.total(), tally.rate_percent()), (4, 50));
    }

    #[test]
    fn empty_window_has_rate_zero() {
        let tally = Breaker::default().window_counts(&[], mins(3), &SETTINGS);
        assert_eq!(tally, WindowCounts { succeeded: 0, failed: 0, rate: 0.0 });
        assert_eq!((tally.total(), tally.rate_percent()), (0, 0));
    }

    #[test]
    fn rate_percent_is_rounded_to_the_nearest() {
        let percent = |succeeded, failed| WindowCounts::new(succeeded, failed).rate_percent();
        assert_eq!((percent(1, 2), percent(2, 1), percent(0, 7), percent(1, 1)), (67, 33, 100, 50));
        assert_eq!((percent(7, 1), percent(199, 1)), (13, 1), "halves go up");
        assert_eq!(WindowCounts::new(usize::MAX, usize::MAX).total(), u32::MAX);
    }

    #[test]
    fn minutes_outside_the_window_are_ignored() {
        let minutes = [minute(0, 0..0, 0..6)];
        let failed = |breaker: &Breaker, now| breaker.window_counts(&minutes, now, &SETTINGS).failed;
        let breaker = Breaker::default();
        assert_eq!(failed(&breaker, mins(0)), 6);
        assert_eq!(failed(&breaker, mins(15)), 6, "exactly fifteen minutes old");
        assert_eq!(failed(&breaker, at(15 * 60 + 1)), 0);
        assert_eq!(failed(&breaker, at(-1)), 0, "a minute that has not begun");
        assert!(breaker.evaluate(&minutes, mins(15), &SETTINGS).is_some());
        assert!(breaker.evaluate(&minutes, mins(16), &SETTINGS).is_none());
        assert_eq!(failed(&closed(mins(0)), mins(1)), 6);
        assert_eq!(failed(&closed(at(1)), mins(1)), 0, "cleared");
    }

    #[test]
    fn counted_minutes_are_exactly_those_in_the_window() {
        let listed = |breaker: Breaker, now| {
            let minutes = breaker.counted_minutes(now, &SETTINGS);
            (minutes.len(), minutes.first().copied(), minutes.last().copied())
        };
        assert_eq!(listed(Breaker::default(), mins(20)), (16, Some(mins(5)), Some(mins(20))));
        assert_eq!(listed(Breaker::default(), at(20 * 60 + 30)), (15, Some(mins(6)), Some(mins(20))));
        assert_eq!(listed(closed(at(18 * 60 + 1)), mins(20)), (3, Some(mins(18)), Some(mins(20))));
        assert_eq!(listed(closed(at(20 * 60 + 1)), at(20 * 60 + 30)), (1, Some(mins(20)), Some(mins(20))));
        let endless = BreakerSettings { window_minutes: u32::MAX, ..SETTINGS };
        assert_eq!(Breaker::default().counted_minutes(mins(0), &endless).len(), 1441);
    }

    #[test]
    fn minute_of_rounds_down_to_the_minute() {
        assert_eq!(minute_of(at(0)), at(0));
        assert_eq!(minute_of(at(59) + SignedDuration::from_millis(999)), at(0));
        assert_eq!(minute_of(at(60)), at(60));
        assert_eq!(minute_of(Timestamp::constant(-1, 0)), Timestamp::constant(-60, 0));
    }

    #[test]
    fn closed_breaker_allows_every_dispatch() {
        assert_eq!(Breaker::default().may_dispatch(&run(1), mins(0), &SETTINGS), BreakerPermit::Allowed);
    }

    #[test]
    fn first_remedy_after_the_cooldown_becomes_the_only_probe() {
        let breaker = open(0, 10);
        let refused = BreakerPermit::Refused { until: mins(10) };
        assert_eq!(breaker.may_dispatch(&run(1), at(599), &SETTINGS), refused);
        let probing = half_open(1, 20);
        assert_eq!(breaker.may_dispatch(&run(1), mins(10), &SETTINGS), BreakerPermit::Probe(probing.clone()));
        assert_eq!(probing.may_dispatch(&run(2), mins(11), &SETTINGS), BreakerPermit::Refused { until: mins(20) });
        assert_eq!(probing.may_dispatch(&run(1), mins(11), &SETTINGS), BreakerPermit::Allowed, "its own redelivery");
    }

    #[test]
    fn expired_probe_is_replaced_by_the_next_remedy() {
        let probing = half_open(1, 20);
        assert_eq!(probing.as_of(at(20 * 60 - 1)), probing);
        assert_eq!(probing.as_of(mins(20)), open(0, 20));
        assert_eq!(probing.may_dispatch(&run(2), mins(20), &SETTINGS), BreakerPermit::Probe(half_open(2, 30)));
        assert_eq!(probing.may_dispatch(&run(1), mins(20), &SETTINGS), BreakerPermit::Probe(half_open(1, 30)));
        assert_eq!(probing.probe_ended(&run(1), ProbeOutcome::Accepted, mins(20), &SETTINGS), None, "too late");
        assert_eq!(open(0, 10).as_of(mins(30)), open(0, 10));
    }

    #[test]
    fn probe_outcome_decides_the_next_state() {
        let probing = half_open(1, 20);
        let ended = |outcome| probing.probe_ended(&run(1), outcome, mins(12), &SETTINGS);
        assert_eq!(ended(ProbeOutcome::Accepted), Some(Breaker { epoch: 1, ..closed(mins(12)) }));
        assert_eq!(ended(ProbeOutcome::Failed), Some(open(0, 22)));
        assert_eq!(ended(ProbeOutcome::Cancelled), Some(open(0, 12)));
        let next = open(0, 12).may_dispatch(&run(2), mins(12), &SETTINGS);
        assert_eq!(next, BreakerPermit::Probe(half_open(2, 22)), "after a cancelled probe the next remedy probes");
    }

    #[test]
    fn end_of_another_run_changes_nothing() {
        for outcome in [ProbeOutcome::Accepted, ProbeOutcome::Failed, ProbeOutcome::Cancelled] {
            for breaker in [Breaker::default(), open(0, 10), half_open(2, 20)] {
                assert_eq!(breaker.probe_ended(&run(1), outcome, mins(12), &SETTINGS), None);
            }
        }
    }

    #[test]
    fn reset_closes_from_any_state_and_clears_the_window() {
        for breaker in [closed(mins(1)), open(0, 10), half_open(2, 20)] {
            assert_eq!(breaker.reset(mins(12)), Breaker { epoch: 1, ..closed(mins(12)) });
        }
    }

    #[test]
    fn outcomes_in_the_rest_of_the_reset_minute_count() {
        let breaker = open(0, 10).reset(at(12 * 60 + 20));
        let outcomes = |secs: i64| (0..6).map(|n| (run(n), at(12 * 60 + secs))).collect::<BTreeMap<_, _>>();
        let minute = |secs| OutcomeMinute { at: mins(12), succeeded: BTreeMap::new(), failed: outcomes(secs) };
        assert_eq!(breaker.evaluate(&[minute(19)], mins(13), &SETTINGS), None, "before the reset");
        assert!(breaker.evaluate(&[minute(20)], mins(13), &SETTINGS).is_some());
        assert_eq!(breaker.counted_minutes(mins(13), &SETTINGS), [mins(12), mins(13)]);
    }

    #[test]
    fn breaker_survives_a_json_round_trip() {
        for breaker in [Breaker::default(), open(0, 10), half_open(2, 20)] {
            let json = serde_json::to_string(&breaker).unwrap();
            assert_eq!(serde_json::from_str::<Breaker>(&json).unwrap(), breaker);
        }
        insta::assert_snapshot!(serde_json::to_string(&half_open(2, 20)).unwrap(), @r#"{"state":{"kind":"half_open","probe":"run-2","lease_until":"2026-03-01T12:20:00Z","since":"2026-03-01T12:00:00Z","failure_rate_percent":67},"window_starts_at":"1970-01-01T00:00:00Z","trips":3,"epoch":0}"#);
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let endless = BreakerSettings { window_minutes: u32::MAX, cooldown_minutes: u32::MAX, ..SETTINGS };
        assert_eq!(endless.after_cooldown(Timestamp::MAX), Timestamp::MAX);
        assert_eq!(Breaker::default().window_counts(&[minute(0, 0..1, 0..0)], Timestamp::MIN, &endless).total(), 0);
        assert!(Breaker::default().counted_minutes(Timestamp::MIN, &endless).is_empty());
    }

    /// A simple model of the breaker: all outcomes ever, the time of the last reset, and the probe.
    #[derive(Debug, Default)]
    struct ModelBreaker {
        outcomes: Vec<(i64, u32, bool)>,
        cleared: i64,
        /// While not closed: the first second at which a probe may start.
        open_until: Option<i64>,
        /// The probe's run, and the first second at which it is lost.
        probe: Option<(u32, i64)>,
    }

    impl ModelBreaker {
        fn counts(&self, now: i64) -> (u32, u32) {
            let in_window = |t: i64| {
                let minute = t - t % 60;
                minute + 15 * 60 >= now && t >= self.cleared
            };
            let (mut good, mut bad) = (0, 0);
            for n in 0..20 {
                let ends: Vec<bool> =
                    self.outcomes.iter().filter(|(t, r, _)| *r == n && in_window(*t)).map(|(_, _, ok)| *ok).collect();
                bad += u32::from(ends.contains(&false));
                good += u32::from(!ends.is_empty() && !ends.contains(&false));
            }
            (good, bad)
        }

        fn expire(&mut self, now: i64) {
            if let Some((_, lost)) = self.probe.filter(|(_, lost)| *lost <= now) {
                (self.probe, self.open_until) = (None, Some(lost));
            }
        }

        fn clear(&mut self, now: i64) {
            (self.cleared, self.open_until, self.probe) = (now, None, None);
        }
    }

    #[derive(Debug, Clone)]
    enum ModelAction {
        Wait(i64),
        Ended(u32, bool),
        Dispatch(u32),
        ProbeEnded(Option<u32>, ProbeOutcome),
        Reset,
    }

    fn act() -> impl Strategy<Value = ModelAction> {
        let outcome =
            prop_oneof![Just(ProbeOutcome::Accepted), Just(ProbeOutcome::Failed), Just(ProbeOutcome::Cancelled)];
        prop_oneof![
            4 => prop_oneof![0..90_i64, 200..700_i64].prop_map(ModelAction::Wait),
            10 => (0..20_u32, prop::bool::weighted(0.4)).prop_map(|(run, ok)| ModelAction::Ended(run, ok)),
            4 => (0..20_u32).prop_map(ModelAction::Dispatch),
            // `None` means the current probe, which a random run would rarely be.
            3 => (prop::option::weighted(0.3, 0..20_u32), outcome).prop_map(|(run, end)| ModelAction::ProbeEnded(run, end)),
            1 => Just(ModelAction::Reset),
        ]
    }

    /// The breaker and its model, driven by the same actions.
    #[derive(Default)]
    struct BreakerAndModel {
        breaker: Breaker,
        minutes: BTreeMap<Timestamp, OutcomeMinute>,
        model: ModelBreaker,
        now: i64,
    }

    impl BreakerAndModel {
        fn step(&mut self, act: ModelAction) {
            self.model.expire(self.now);
            match act {
                ModelAction::Wait(secs) => self.now += secs,
                ModelAction::Ended(n, ok) => self.ended(n, ok),
                ModelAction::Dispatch(n) => self.dispatch(n),
                ModelAction::ProbeEnded(n, outcome) => self.probe_ended(n, outcome),
                ModelAction::Reset => {
                    self.breaker = self.breaker.reset(at(self.now));
                    self.model.clear(self.now);
                }
            }
        }

        fn ended(&mut self, n: u32, ok: bool) {
            let beginning = minute_of(at(self.now));
            let empty = OutcomeMinute { at: beginning, succeeded: BTreeMap::new(), failed: BTreeMap::new() };
            let minute = self.minutes.entry(beginning).or_insert(empty);
            let outcomes = if ok { &mut minute.succeeded } else { &mut minute.failed };
            outcomes.insert(run(n), at(self.now));
            self.model.outcomes.push((self.now, n, ok));

            let minutes: Vec<OutcomeMinute> = self.minutes.values().cloned().collect();
            let tally = self.breaker.window_counts(&minutes, at(self.now), &SETTINGS);
            let (good, bad) = self.model.counts(self.now);
            assert_eq!((tally.succeeded, tally.failed), (good, bad));
            let read: Vec<OutcomeMinute> = self
                .breaker
                .counted_minutes(at(self.now), &SETTINGS)
                .iter()
                .filter_map(|beginning| self.minutes.get(beginning).cloned())
                .collect();
            assert_eq!(self.breaker.window_counts(&read, at(self.now), &SETTINGS), tally);

            let trips = self.model.open_until.is_none() && self.model.probe.is_none() && bad > good && good + bad > 5;
            let change = self.breaker.evaluate(&minutes, at(self.now), &SETTINGS);
            assert_eq!(change.is_some(), trips);
            if let Some(change) = change {
                self.breaker = change.breaker;
                self.model.open_until = Some(self.now + 600);
            }
        }

        fn dispatch(&mut self, n: u32) {
            let expected = match (self.model.probe, self.model.open_until) {
                (Some((probe, _)), _) if probe == n => "allowed",
                (Some(_), _) => "refused",
                (None, Some(until)) if self.now < until => "refused",
                (None, Some(_)) => "probe",
                (None, None) => "allowed",
            };
            let got = match self.breaker.may_dispatch(&run(n), at(self.now), &SETTINGS) {
                BreakerPermit::Allowed => "allowed",
                BreakerPermit::Probe(breaker) => {
                    self.breaker = breaker;
                    (self.model.probe, self.model.open_until) = (Some((n, self.now + 600)), None);
                    "probe"
                }
                BreakerPermit::Refused { until } => {
                    assert!(until > at(self.now));
                    "refused"
                }
            };
            assert_eq!(got, expected);
        }

        fn probe_ended(&mut self, n: Option<u32>, outcome: ProbeOutcome) {
            let probing = self.model.probe.map(|(probe, _)| probe);
            let n = n.or(probing).unwrap_or(0);
            let change = self.breaker.probe_ended(&run(n), outcome, at(self.now), &SETTINGS);
            assert_eq!(change.is_some(), probing == Some(n));
            let Some(change) = change else { return };
            self.breaker = change;
            self.model.probe = None;
            match outcome {
                ProbeOutcome::Accepted => self.model.clear(self.now),
                ProbeOutcome::Failed => self.model.open_until = Some(self.now + 600),
                ProbeOutcome::Cancelled => self.model.open_until = Some(self.now),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn breaker_agrees_with_a_simple_model(acts in prop::collection::vec(act(), 1..120)) {
            let mut pair = BreakerAndModel::default();
            for act in acts {
                pair.step(act);
            }
        }
    }
}
