//! Admission: whether a remedy may start now. The sweep asks before it claims a remedy, the Car Bridge before it executes
//! one. A refusal says why and until when (R-ADMIT-1).
//!
//! Pause and circuit breaker are gates: each has an epoch that changes when the gate opens. What a closed gate has put off
//! ends with that epoch, whatever its date (R-ADMIT-2).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::breaker::{Breaker, BreakerState, SKIPPED_LOG};
use crate::id::RunId;
use crate::state::Strategy;
use crate::time::saturating_after;

/// While Suture is paused, stale pull requests are due again after this long.
pub const PAUSED_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// While a probe is in flight, they are due again after this long: it may close the breaker at any moment.
const PROBE_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// When `limits.remedies_in_flight` is reached, the others are due again after this long.
const FULL_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);

named! {
    /// What stops all automatic remedies at once.
    pub enum Gate {
        Pause = "pause",
        Breaker = "breaker",
    }
}

/// The gate that put something off, and its epoch at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateEpoch {
    pub gate: Gate,
    pub epoch: u64,
}

/// The gates as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates {
    /// Who paused Suture, if it is paused.
    pub paused_by: Option<String>,
    pub pause_epoch: u64,
    pub breaker: Breaker,
}

impl Gates {
    pub fn epoch(&self, gate: Gate) -> u64 {
        match gate {
            Gate::Pause => self.pause_epoch,
            Gate::Breaker => self.breaker.epoch,
        }
    }

    /// Whether the gate has opened since.
    pub fn has_released(&self, put_off: GateEpoch) -> bool {
        self.epoch(put_off.gate) != put_off.epoch
    }

    /// The closed gate that stops remedies now, if any. An open breaker whose cooldown is over admits a probe.
    pub fn put_off(&self, now: Timestamp) -> Option<PutOff> {
        if let Some(by) = &self.paused_by {
            let why = format!("Suture is paused by {by}");
            return Some(self.behind(Gate::Pause, why, saturating_after(now, PAUSED_RETRY_AFTER)));
        }
        let until = match self.breaker.as_of(now).state {
            BreakerState::Closed => return None,
            BreakerState::Open { cooldown_until, .. } if now >= cooldown_until => return None,
            BreakerState::Open { cooldown_until, .. } => cooldown_until,
            BreakerState::HalfOpen { lease_until, .. } => saturating_after(now, PROBE_RETRY_AFTER).min(lease_until),
        };
        Some(self.behind(Gate::Breaker, SKIPPED_LOG.to_owned(), until))
    }

    fn behind(&self, gate: Gate, why: String, until: Timestamp) -> PutOff {
        let reason = match gate {
            Gate::Pause => PutOffReason::Paused,
            Gate::Breaker => PutOffReason::Breaker,
        };
        PutOff { reason, why, until, gate: Some(GateEpoch { gate, epoch: self.epoch(gate) }) }
    }

    fn is_probe(&self, run: &RunId, now: Timestamp) -> bool {
        matches!(self.breaker.as_of(now).state, BreakerState::HalfOpen { probe, .. } if probe == *run)
    }
}

named! {
    /// What a remedy waits for.
    pub enum PutOffReason {
        Paused = "paused",
        Breaker = "breaker",
        /// GitHub's rate limit is used up or low.
        RateLimit = "rate_limit",
        /// `limits.remedies_in_flight` is reached.
        Full = "full",
        /// All build slots of the repository are held.
        Slots = "slots",
        /// Another pull request on the same base is updated first.
        Turn = "turn",
    }
}

/// A remedy that may not start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOff {
    pub reason: PutOffReason,
    pub why: String,
    pub until: Timestamp,
    /// Set if a gate is the cause: then it ends when the gate opens.
    pub gate: Option<GateEpoch>,
}

/// Who wants to start the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter<'a> {
    /// The sweep, before it claims the remedy.
    Sweep,
    /// The Car Bridge, for a run that a sweep claimed.
    Run(&'a RunId),
    /// The Car Bridge, for a person's command: only the pause and limits of other systems apply.
    Person,
}

/// What is known about the limits. The sweep and the Car Bridge each know some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartConditions<'a> {
    pub gates: &'a Gates,
    /// Until when GitHub's rate limit leaves no request for this remedy.
    pub github_until: Option<Timestamp>,
    /// Whether `limits.remedies_in_flight` is reached.
    pub is_full: bool,
    /// Set if all build slots of the repository are held: when the first one expires.
    pub slots_until: Option<Timestamp>,
    /// Set if another pull request on the same base is updated first: which one, and until when to wait.
    pub turn_of: Option<(String, Timestamp)>,
}

impl<'a> StartConditions<'a> {
    /// No limit but the gates.
    pub fn new(gates: &'a Gates) -> Self {
        Self { gates, github_until: None, is_full: false, slots_until: None, turn_of: None }
    }
}

/// Whether a remedy may start now. The breaker's probe is chosen afterwards, by a conditional write.
pub fn may_start(
    strategy: Strategy,
    starter: Starter<'_>,
    conditions: &StartConditions<'_>,
    now: Timestamp,
) -> Result<(), PutOff> {
    if let Some(put_off) = conditions.gates.put_off(now) {
        let exempt = match (starter, put_off.reason) {
            // Otherwise the breaker would wait for a result that cannot arrive.
            (Starter::Run(run), PutOffReason::Breaker) => conditions.gates.is_probe(run, now),
            (Starter::Person, reason) => reason != PutOffReason::Paused,
            (Starter::Sweep | Starter::Run(_), _) => false,
        };
        if !exempt {
            return Err(put_off);
        }
    }
    let limit = |reason, why, until| Err(PutOff { reason, why, until, gate: None });
    if let Some(until) = conditions.github_until {
        return limit(PutOffReason::RateLimit, format!("GitHub rate limit: {strategy} waits until {until}"), until);
    }
    if conditions.is_full && starter == Starter::Sweep {
        let why = "`limits.remedies_in_flight` is reached".to_owned();
        return limit(PutOffReason::Full, why, saturating_after(now, FULL_RETRY_AFTER));
    }
    if let Some(until) = conditions.slots_until {
        let why = format!("all build slots of the repository are in use; the first expires at {until}");
        return limit(PutOffReason::Slots, why, until);
    }
    if let Some((why, until)) = &conditions.turn_of {
        return limit(PutOffReason::Turn, why.clone(), *until);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
    }

    fn open_until(minutes: i64) -> Gates {
        let state = BreakerState::Open { since: at(0), cooldown_until: at(minutes), failure_rate_percent: 80 };
        Gates { breaker: Breaker { state, epoch: 3, ..Breaker::default() }, ..Gates::default() }
    }

    fn probing(run: &RunId) -> Gates {
        let (since, lease_until) = (at(0), at(10));
        let state = BreakerState::HalfOpen { probe: run.clone(), lease_until, since, failure_rate_percent: 80 };
        Gates { breaker: Breaker { state, epoch: 3, ..Breaker::default() }, ..Gates::default() }
    }

    fn paused() -> Gates {
        Gates { paused_by: Some("ops".to_owned()), pause_epoch: 7, ..Gates::default() }
    }

    fn start(starter: Starter<'_>, gates: &Gates) -> Result<(), PutOff> {
        may_start(Strategy::Rebuild, starter, &StartConditions::new(gates), at(1))
    }

    #[test]
    fn pause_stops_everybody_and_names_its_epoch() {
        let (gates, run) = (paused(), RunId::new("run-1"));
        for starter in [Starter::Sweep, Starter::Run(&run), Starter::Person] {
            let put_off = start(starter, &gates).unwrap_err();
            assert_eq!((put_off.reason, put_off.until), (PutOffReason::Paused, at(6)), "{starter:?}");
            assert_eq!(put_off.gate, Some(GateEpoch { gate: Gate::Pause, epoch: 7 }));
            assert_eq!(put_off.why, "Suture is paused by ops");
        }
    }

    #[test]
    fn open_breaker_stops_automatic_remedies_until_its_cooldown() {
        let run = RunId::new("run-1");
        for starter in [Starter::Sweep, Starter::Run(&run)] {
            let put_off = start(starter, &open_until(10)).unwrap_err();
            assert_eq!((put_off.reason, put_off.until), (PutOffReason::Breaker, at(10)));
            assert_eq!(put_off.gate, Some(GateEpoch { gate: Gate::Breaker, epoch: 3 }));
            assert_eq!(start(starter, &open_until(1)), Ok(()), "the cooldown is over: it may probe");
        }
        assert_eq!(start(Starter::Person, &open_until(10)), Ok(()));
    }

    #[test]
    fn half_open_breaker_admits_only_its_probe() {
        let (probe, other) = (RunId::new("probe"), RunId::new("other"));
        let gates = probing(&probe);
        assert_eq!(start(Starter::Run(&probe), &gates), Ok(()));
        assert_eq!(start(Starter::Run(&other), &gates).unwrap_err().until, at(2));
        assert_eq!(start(Starter::Sweep, &gates).unwrap_err().until, at(2));
        assert_eq!(may_start(Strategy::Rebuild, Starter::Sweep, &StartConditions::new(&gates), at(10)), Ok(()));
    }

    #[test]
    fn put_off_ends_when_its_gate_opens() {
        let gates = Gates { pause_epoch: 8, breaker: Breaker { epoch: 3, ..Breaker::default() }, ..Gates::default() };
        assert!(gates.has_released(GateEpoch { gate: Gate::Pause, epoch: 7 }));
        assert!(!gates.has_released(GateEpoch { gate: Gate::Pause, epoch: 8 }));
        assert!(!gates.has_released(GateEpoch { gate: Gate::Breaker, epoch: 3 }));
        assert!(gates.has_released(GateEpoch { gate: Gate::Breaker, epoch: 2 }));
        let before = open_until(10).breaker;
        assert_eq!(before.reset(at(2)).epoch, before.epoch + 1);
    }

    #[test]
    fn each_limit_names_its_reason_and_date() {
        let (gates, run) = (Gates::default(), RunId::new("run-1"));
        let none = StartConditions::new(&gates);
        let all = [
            (StartConditions { github_until: Some(at(30)), ..none.clone() }, PutOffReason::RateLimit, at(30)),
            (StartConditions { is_full: true, ..none.clone() }, PutOffReason::Full, at(6)),
            (StartConditions { slots_until: Some(at(20)), ..none.clone() }, PutOffReason::Slots, at(20)),
            (
                StartConditions { turn_of: Some(("#4 first".to_owned(), at(3))), ..none.clone() },
                PutOffReason::Turn,
                at(3),
            ),
        ];
        for (conditions, reason, until) in all {
            let put_off = may_start(Strategy::BranchUpdate, Starter::Sweep, &conditions, at(1)).unwrap_err();
            assert_eq!((put_off.reason, put_off.until, put_off.gate), (reason, until, None));
        }
        // A claimed run has its place among those in flight.
        let full = StartConditions { is_full: true, ..none.clone() };
        assert_eq!(may_start(Strategy::Rebuild, Starter::Run(&run), &full, at(1)), Ok(()));
        assert_eq!(may_start(Strategy::Rebuild, Starter::Sweep, &none, at(1)), Ok(()));
    }
}
