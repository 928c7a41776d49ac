//! The circuit breaker (R-BREAKER-1 to R-BREAKER-8): stops automatic remedies while they mostly fail, and lets one
//! through to find out whether the trouble is over. Everything here is a function of what is stored and of `now`; the
//! store's conditional write makes "exactly one probe" true between processes. Commands of people are neither counted
//! nor blocked: for those, callers do not ask.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// What a sweep logs when the breaker keeps it from acting.
pub const SKIPPED_LOG: &str = "circuit breaker open, skipping remediation";

/// No window is longer than a day: each of its minutes is a read.
const LONGEST_WINDOW_MINUTES: u32 = 24 * 60;

/// When to trip, and for how long: the numbers of the policy.
pub use crate::policy::Breaker as BreakerSettings;

impl BreakerSettings {
    fn window(&self) -> SignedDuration {
        SignedDuration::from_mins(i64::from(self.window_minutes.min(LONGEST_WINDOW_MINUTES)))
    }

    fn after_cooldown(&self, now: Timestamp) -> Timestamp {
        now.checked_add(SignedDuration::from_mins(i64::from(self.cooldown_minutes))).unwrap_or(Timestamp::MAX)
    }
}

/// Whether remedies may pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    /// No remedy passes until the cooldown is over; then the first one becomes the probe.
    Open {
        /// When it tripped; failed probes do not move this.
        since: Timestamp,
        /// The first moment at which a probe may pass.
        cooldown_until: Timestamp,
        /// The rate it tripped at, for people.
        failure_rate_percent: u32,
    },
    /// One remedy is under way, to see whether the trouble is over; no other passes.
    HalfOpen {
        probe: RunId,
        /// The first moment at which the probe counts as lost.
        lease_until: Timestamp,
        since: Timestamp,
        failure_rate_percent: u32,
    },
}

impl BreakerState {
    /// As summaries and the API name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
        }
    }
}

/// The breaker as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub state: BreakerState,
    /// When it last became CLOSED by a probe or by a person. Only minutes that begin at or after this count: the
    /// cooldown is shorter than the window, and the old failures would trip it again at once. (What happens in the rest
    /// of that very minute counts for nothing.)
    pub window_starts_at: Timestamp,
    /// How often it has tripped, ever. A failed probe is not another trip.
    pub trips: u64,
}

impl Default for Breaker {
    /// The breaker before anything was stored: closed, and everything counts.
    fn default() -> Self {
        Self { state: BreakerState::Closed, window_starts_at: Timestamp::UNIX_EPOCH, trips: 0 }
    }
}

/// The outcomes of one minute. They are sets of run ids, so counting the same outcome twice changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minute {
    /// The beginning of the minute, see [`minute_of`].
    pub at: Timestamp,
    /// Runs whose remedy was accepted by its target.
    pub succeeded: BTreeSet<RunId>,
    /// Runs that could not be dispatched, or missed their deadline.
    pub failed: BTreeSet<RunId>,
}

/// The beginning of the minute in which something happened.
pub fn minute_of(at: Timestamp) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(at)
}

/// How many remedies ended how within the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tally {
    /// Runs that succeeded and did not fail later.
    pub succeeded: u32,
    pub failed: u32,
    /// The share of failures, 0 to 1; 0 if nothing happened.
    pub rate: f64,
}

impl Tally {
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

    /// The rate as people read it, rounded to the nearest percent.
    pub fn rate_percent(&self) -> u32 {
        let total = u64::from(self.total());
        let percent = (u64::from(self.failed) * 100 + total / 2).checked_div(total).unwrap_or(0);
        u32::try_from(percent).unwrap_or(100)
    }

    fn trips(&self, settings: &BreakerSettings) -> bool {
        self.rate > settings.failure_threshold && self.total() > settings.minimum_actions
    }
}

/// The breaker has tripped: what to store and what to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The breaker to store, if it is still as it was read.
    pub breaker: Breaker,
    pub log: String,
}

/// Whether one remedy may be dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    Allowed,
    /// Go ahead as the one probe, once this breaker is stored in place of the one that was read.
    Probe(Breaker),
    Refused {
        /// When it is worth asking again.
        until: Timestamp,
    },
}

/// How the probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeOutcome {
    /// Its target accepted it.
    Accepted,
    /// It could not be dispatched, or missed its deadline.
    Failed,
    /// It was dropped before it could show anything (the head moved, a guard, a person).
    Cancelled,
}

impl Breaker {
    /// The breaker as it is at this moment: a probe whose lease has run out is OPEN with its cooldown elapsed. Every
    /// other function looks through this one, so nobody has to write that change down.
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

    /// Whether a minute that begins then lies in the window: no older than the window is long, not cleared, and begun.
    fn counts(&self, minute: Timestamp, now: Timestamp, settings: &BreakerSettings) -> bool {
        let oldest = now.checked_sub(settings.window()).unwrap_or(Timestamp::MIN);
        minute >= oldest && minute >= self.window_starts_at && minute <= now
    }

    /// The beginnings of the minutes that count now, oldest first: what the store has to read.
    pub fn counted_minutes(&self, now: Timestamp, settings: &BreakerSettings) -> Vec<Timestamp> {
        let newest = minute_of(now);
        (0..=i64::from(settings.window_minutes.min(LONGEST_WINDOW_MINUTES)))
            .rev()
            .filter_map(|back| newest.checked_sub(SignedDuration::from_mins(back)).ok())
            .filter(|minute| self.counts(*minute, now, settings))
            .collect()
    }

    /// The outcomes within the window; minutes outside of it are ignored. A run counts once, however often it was
    /// counted, and as failed if it ever failed: one that was accepted and then missed its deadline did not help.
    pub fn tally(&self, minutes: &[Minute], now: Timestamp, settings: &BreakerSettings) -> Tally {
        let (mut succeeded, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for minute in minutes.iter().filter(|minute| self.counts(minute.at, now, settings)) {
            succeeded.extend(&minute.succeeded);
            failed.extend(&minute.failed);
        }
        Tally::new(succeeded.difference(&failed).count(), failed.len())
    }

    /// Trips a closed breaker if more than the threshold of more than the minimum failed; both strictly (R-BREAKER-1).
    pub fn evaluate(&self, minutes: &[Minute], now: Timestamp, settings: &BreakerSettings) -> Option<Change> {
        match self.state {
            BreakerState::Closed => {}
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => return None,
        }
        let tally = self.tally(minutes, now, settings);
        if !tally.trips(settings) {
            return None;
        }
        let failure_rate = tally.rate_percent();
        let mut breaker = self.opened(now, settings.after_cooldown(now), failure_rate);
        breaker.trips = self.trips.saturating_add(1);
        Some(Change { breaker, log: format!("circuit breaker tripped: {failure_rate}% failure rate") })
    }

    /// Whether this run's remedy may be dispatched now. A redelivery of the probe itself is allowed: refusing it would
    /// leave the breaker waiting for an outcome that cannot come.
    pub fn may_dispatch(&self, run: &RunId, now: Timestamp, settings: &BreakerSettings) -> Permit {
        match self.as_of(now).state {
            BreakerState::Closed => Permit::Allowed,
            BreakerState::Open { cooldown_until, .. } if now < cooldown_until => {
                Permit::Refused { until: cooldown_until }
            }
            BreakerState::Open { since, failure_rate_percent, .. } => {
                let lease_until = settings.after_cooldown(now);
                let state = BreakerState::HalfOpen { probe: run.clone(), lease_until, since, failure_rate_percent };
                Permit::Probe(Self { state, ..self.clone() })
            }
            BreakerState::HalfOpen { probe, .. } if probe == *run => Permit::Allowed,
            BreakerState::HalfOpen { lease_until, .. } => Permit::Refused { until: lease_until },
        }
    }

    /// What the end of a run's remedy makes of the breaker; `None` if it changes nothing, because the run is not the
    /// probe or its lease has run out.
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

    /// CLOSED with an empty window, whatever it was: a person says that the trouble is over.
    pub fn reset(&self, now: Timestamp) -> Self {
        Self { state: BreakerState::Closed, window_starts_at: now, trips: self.trips }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

    fn minute(minutes: i64, succeeded: std::ops::Range<u32>, failed: std::ops::Range<u32>) -> Minute {
        Minute { at: mins(minutes), succeeded: succeeded.map(run).collect(), failed: failed.map(run).collect() }
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
        Breaker { state: BreakerState::Closed, window_starts_at, trips: 3 }
    }

    #[test]
    fn defaults_are_15_minutes_half_of_more_than_5_and_10_minutes() {
        assert_eq!(BreakerSettings::default(), SETTINGS);
        assert_eq!(serde_json::from_str::<BreakerSettings>("{}").unwrap(), SETTINGS);
        assert!(serde_json::from_str::<BreakerSettings>("{\"window\":1}").is_err());
    }

    #[test]
    fn it_trips_only_above_half_of_more_than_five() {
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
    fn tripping_says_what_to_store_to_log_and_to_tell() {
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
    fn a_run_counts_once_and_as_failed_if_it_ever_failed() {
        let minutes = [minute(0, 1..4, 0..0), minute(1, 2..5, 3..5), minute(2, 0..0, 3..4)];
        let tally = Breaker::default().tally(&minutes, mins(3), &SETTINGS);
        assert_eq!(tally, Tally { succeeded: 2, failed: 2, rate: 0.5 });
        assert_eq!((tally.total(), tally.rate_percent()), (4, 50));
    }

    #[test]
    fn an_empty_window_has_no_rate() {
        let tally = Breaker::default().tally(&[], mins(3), &SETTINGS);
        assert_eq!(tally, Tally { succeeded: 0, failed: 0, rate: 0.0 });
        assert_eq!((tally.total(), tally.rate_percent()), (0, 0));
    }

    #[test]
    fn percents_are_rounded_to_the_nearest() {
        let percent = |succeeded, failed| Tally::new(succeeded, failed).rate_percent();
        assert_eq!((percent(1, 2), percent(2, 1), percent(0, 7), percent(1, 1)), (67, 33, 100, 50));
        assert_eq!((percent(7, 1), percent(199, 1)), (13, 1), "halves go up");
        assert_eq!(Tally::new(usize::MAX, usize::MAX).total(), u32::MAX);
    }

    #[test]
    fn minutes_outside_the_window_do_not_count() {
        let minutes = [minute(0, 0..0, 0..6)];
        let failed = |breaker: &Breaker, now| breaker.tally(&minutes, now, &SETTINGS).failed;
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
    fn the_store_reads_exactly_the_minutes_that_count() {
        let listed = |breaker: Breaker, now| {
            let minutes = breaker.counted_minutes(now, &SETTINGS);
            (minutes.len(), minutes.first().copied(), minutes.last().copied())
        };
        assert_eq!(listed(Breaker::default(), mins(20)), (16, Some(mins(5)), Some(mins(20))));
        assert_eq!(listed(Breaker::default(), at(20 * 60 + 30)), (15, Some(mins(6)), Some(mins(20))));
        assert_eq!(listed(closed(at(18 * 60 + 1)), mins(20)), (2, Some(mins(19)), Some(mins(20))));
        assert_eq!(listed(closed(at(20 * 60 + 1)), at(20 * 60 + 30)), (0, None, None));
        let endless = BreakerSettings { window_minutes: u32::MAX, ..SETTINGS };
        assert_eq!(Breaker::default().counted_minutes(mins(0), &endless).len(), 1441);
    }

    #[test]
    fn a_minute_begins_at_its_zeroth_second() {
        assert_eq!(minute_of(at(0)), at(0));
        assert_eq!(minute_of(at(59) + SignedDuration::from_millis(999)), at(0));
        assert_eq!(minute_of(at(60)), at(60));
        assert_eq!(minute_of(Timestamp::constant(-1, 0)), Timestamp::constant(-60, 0));
    }

    #[test]
    fn a_closed_breaker_lets_everything_pass() {
        assert_eq!(Breaker::default().may_dispatch(&run(1), mins(0), &SETTINGS), Permit::Allowed);
    }

    #[test]
    fn after_the_cooldown_the_first_remedy_becomes_the_one_probe() {
        let breaker = open(0, 10);
        let refused = Permit::Refused { until: mins(10) };
        assert_eq!(breaker.may_dispatch(&run(1), at(599), &SETTINGS), refused);
        let probing = half_open(1, 20);
        assert_eq!(breaker.may_dispatch(&run(1), mins(10), &SETTINGS), Permit::Probe(probing.clone()));
        assert_eq!(probing.may_dispatch(&run(2), mins(11), &SETTINGS), Permit::Refused { until: mins(20) });
        assert_eq!(probing.may_dispatch(&run(1), mins(11), &SETTINGS), Permit::Allowed, "its own redelivery");
    }

    #[test]
    fn a_probe_whose_lease_ran_out_makes_room_for_the_next() {
        let probing = half_open(1, 20);
        assert_eq!(probing.as_of(at(20 * 60 - 1)), probing);
        assert_eq!(probing.as_of(mins(20)), open(0, 20));
        assert_eq!(probing.may_dispatch(&run(2), mins(20), &SETTINGS), Permit::Probe(half_open(2, 30)));
        assert_eq!(probing.may_dispatch(&run(1), mins(20), &SETTINGS), Permit::Probe(half_open(1, 30)));
        assert_eq!(probing.probe_ended(&run(1), ProbeOutcome::Accepted, mins(20), &SETTINGS), None, "too late");
        assert_eq!(open(0, 10).as_of(mins(30)), open(0, 10));
    }

    #[test]
    fn the_probes_end_decides() {
        let probing = half_open(1, 20);
        let ended = |outcome| probing.probe_ended(&run(1), outcome, mins(12), &SETTINGS);
        assert_eq!(ended(ProbeOutcome::Accepted), Some(closed(mins(12))));
        assert_eq!(ended(ProbeOutcome::Failed), Some(open(0, 22)));
        assert_eq!(ended(ProbeOutcome::Cancelled), Some(open(0, 12)));
        let next = open(0, 12).may_dispatch(&run(2), mins(12), &SETTINGS);
        assert_eq!(next, Permit::Probe(half_open(2, 22)), "after a cancelled probe the next remedy probes");
    }

    #[test]
    fn the_end_of_any_other_run_changes_nothing() {
        for outcome in [ProbeOutcome::Accepted, ProbeOutcome::Failed, ProbeOutcome::Cancelled] {
            for breaker in [Breaker::default(), open(0, 10), half_open(2, 20)] {
                assert_eq!(breaker.probe_ended(&run(1), outcome, mins(12), &SETTINGS), None);
            }
        }
    }

    #[test]
    fn a_reset_closes_it_from_any_state_and_forgets_the_window() {
        for breaker in [closed(mins(1)), open(0, 10), half_open(2, 20)] {
            assert_eq!(breaker.reset(mins(12)), closed(mins(12)));
        }
    }

    #[test]
    fn it_is_stored_and_read_back() {
        for breaker in [Breaker::default(), open(0, 10), half_open(2, 20)] {
            let json = serde_json::to_string(&breaker).unwrap();
            assert_eq!(serde_json::from_str::<Breaker>(&json).unwrap(), breaker);
        }
        insta::assert_snapshot!(serde_json::to_string(&half_open(2, 20)).unwrap(), @r#"{"state":{"kind":"half_open","probe":"run-2","lease_until":"2026-03-01T12:20:00Z","since":"2026-03-01T12:00:00Z","failure_rate_percent":67},"window_starts_at":"1970-01-01T00:00:00Z","trips":3}"#);
    }

    #[test]
    fn no_time_overflows() {
        let endless = BreakerSettings { window_minutes: u32::MAX, cooldown_minutes: u32::MAX, ..SETTINGS };
        assert_eq!(endless.after_cooldown(Timestamp::MAX), Timestamp::MAX);
        assert_eq!(Breaker::default().tally(&[minute(0, 0..1, 0..0)], Timestamp::MIN, &endless).total(), 0);
        assert!(Breaker::default().counted_minutes(Timestamp::MIN, &endless).is_empty());
    }

    /// The breaker as a person would explain it: all outcomes ever, the moment of the last clearing, and who probes.
    #[derive(Debug, Default)]
    struct Naive {
        outcomes: Vec<(i64, u32, bool)>,
        cleared: i64,
        /// While not closed: the first second at which a probe may start.
        shut_until: Option<i64>,
        /// Who probes, and the first second at which it is lost.
        probe: Option<(u32, i64)>,
    }

    impl Naive {
        fn counts(&self, now: i64) -> (u32, u32) {
            let in_window = |t: i64| {
                let minute = t - t % 60;
                minute + 15 * 60 >= now && minute >= self.cleared
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
                (self.probe, self.shut_until) = (None, Some(lost));
            }
        }

        fn clear(&mut self, now: i64) {
            (self.cleared, self.shut_until, self.probe) = (now, None, None);
        }
    }

    #[derive(Debug, Clone)]
    enum Act {
        Wait(i64),
        Ended(u32, bool),
        Dispatch(u32),
        ProbeEnded(Option<u32>, ProbeOutcome),
        Reset,
    }

    fn act() -> impl Strategy<Value = Act> {
        let outcome =
            prop_oneof![Just(ProbeOutcome::Accepted), Just(ProbeOutcome::Failed), Just(ProbeOutcome::Cancelled)];
        prop_oneof![
            4 => prop_oneof![0..90_i64, 200..700_i64].prop_map(Act::Wait),
            10 => (0..20_u32, prop::bool::weighted(0.4)).prop_map(|(run, ok)| Act::Ended(run, ok)),
            4 => (0..20_u32).prop_map(Act::Dispatch),
            // `None` means whoever probes: a random run hardly ever is.
            3 => (prop::option::weighted(0.3, 0..20_u32), outcome).prop_map(|(run, end)| Act::ProbeEnded(run, end)),
            1 => Just(Act::Reset),
        ]
    }

    /// Both breakers side by side.
    #[derive(Default)]
    struct Pair {
        breaker: Breaker,
        minutes: BTreeMap<Timestamp, Minute>,
        naive: Naive,
        now: i64,
    }

    impl Pair {
        fn step(&mut self, act: Act) {
            self.naive.expire(self.now);
            match act {
                Act::Wait(secs) => self.now += secs,
                Act::Ended(n, ok) => self.ended(n, ok),
                Act::Dispatch(n) => self.dispatch(n),
                Act::ProbeEnded(n, outcome) => self.probe_ended(n, outcome),
                Act::Reset => {
                    self.breaker = self.breaker.reset(at(self.now));
                    self.naive.clear(self.now);
                }
            }
        }

        fn ended(&mut self, n: u32, ok: bool) {
            let beginning = minute_of(at(self.now));
            let empty = Minute { at: beginning, succeeded: BTreeSet::new(), failed: BTreeSet::new() };
            let minute = self.minutes.entry(beginning).or_insert(empty);
            if ok {
                minute.succeeded.insert(run(n))
            } else {
                minute.failed.insert(run(n))
            };
            self.naive.outcomes.push((self.now, n, ok));

            let minutes: Vec<Minute> = self.minutes.values().cloned().collect();
            let tally = self.breaker.tally(&minutes, at(self.now), &SETTINGS);
            let (good, bad) = self.naive.counts(self.now);
            assert_eq!((tally.succeeded, tally.failed), (good, bad));
            let read: Vec<Minute> = self
                .breaker
                .counted_minutes(at(self.now), &SETTINGS)
                .iter()
                .filter_map(|beginning| self.minutes.get(beginning).cloned())
                .collect();
            assert_eq!(self.breaker.tally(&read, at(self.now), &SETTINGS), tally);

            let trips = self.naive.shut_until.is_none() && self.naive.probe.is_none() && bad > good && good + bad > 5;
            let change = self.breaker.evaluate(&minutes, at(self.now), &SETTINGS);
            assert_eq!(change.is_some(), trips);
            if let Some(change) = change {
                self.breaker = change.breaker;
                self.naive.shut_until = Some(self.now + 600);
            }
        }

        fn dispatch(&mut self, n: u32) {
            let expected = match (self.naive.probe, self.naive.shut_until) {
                (Some((probe, _)), _) if probe == n => "allowed",
                (Some(_), _) => "refused",
                (None, Some(until)) if self.now < until => "refused",
                (None, Some(_)) => "probe",
                (None, None) => "allowed",
            };
            let got = match self.breaker.may_dispatch(&run(n), at(self.now), &SETTINGS) {
                Permit::Allowed => "allowed",
                Permit::Probe(breaker) => {
                    self.breaker = breaker;
                    (self.naive.probe, self.naive.shut_until) = (Some((n, self.now + 600)), None);
                    "probe"
                }
                Permit::Refused { until } => {
                    assert!(until > at(self.now));
                    "refused"
                }
            };
            assert_eq!(got, expected);
        }

        fn probe_ended(&mut self, n: Option<u32>, outcome: ProbeOutcome) {
            let probing = self.naive.probe.map(|(probe, _)| probe);
            let n = n.or(probing).unwrap_or(0);
            let change = self.breaker.probe_ended(&run(n), outcome, at(self.now), &SETTINGS);
            assert_eq!(change.is_some(), probing == Some(n));
            let Some(change) = change else { return };
            self.breaker = change;
            self.naive.probe = None;
            match outcome {
                ProbeOutcome::Accepted => self.naive.clear(self.now),
                ProbeOutcome::Failed => self.naive.shut_until = Some(self.now + 600),
                ProbeOutcome::Cancelled => self.naive.shut_until = Some(self.now),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_does_what_a_naive_model_does(acts in prop::collection::vec(act(), 1..120)) {
            let mut pair = Pair::default();
            for act in acts {
                pair.step(act);
            }
        }
    }
}
