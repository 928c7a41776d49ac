//! Compares the recorded decisions with those of the new configuration, and states the limits of the comparison.

use std::collections::BTreeMap;

use domain::state::Strategy;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::timeline::{Interval, IntervalEnd, ReplayAction, ReplayDecision, Timeline};

/// Printed with every report.
pub const CANNOT_TELL: [&str; 4] = [
    "The log does not show the effect of a remedy that did not happen. \"Sooner\" assumes that the same remedy would have healed after the same time.",
    "Where only the new configuration acts, the pull request progressed by itself: whether acting would have helped is unknown.",
    "Where only the recorded configuration acted, whether the pull request would have healed without it is unknown.",
    "Events do not contain conflicts, branches behind their base, or hanging builds. They are inferred from the recorded decisions, and never earlier.",
];

/// Smaller differences only reflect when a sweep ran.
const SAME: SignedDuration = SignedDuration::from_secs(90);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplayReport {
    pub events: usize,
    pub prs: usize,
    /// Recorded remedies, by strategy.
    pub recorded: BTreeMap<&'static str, u64>,
    /// Remedies under the new configuration, by strategy.
    pub would: BTreeMap<&'static str, u64>,
    pub escalated: u64,
    pub would_escalate: u64,
    /// Recorded escalations that the new configuration would not have made.
    pub escalated_less: u64,
    pub escalated_more: u64,
    /// Minutes by which each healed pull request would have been healed sooner.
    pub sooner: Vec<f64>,
    pub later: Vec<f64>,
}

impl ReplayReport {
    pub(super) fn add(&mut self, timeline: &Timeline, evaluated: &[Vec<ReplayDecision>]) {
        self.prs += 1;
        let mut gained = SignedDuration::ZERO;
        for (interval, would) in timeline.intervals.iter().zip(evaluated) {
            gained = gained.saturating_add(self.compare(interval, would));
        }
        let minutes = gained.as_secs_f64() / 60.0;
        if gained > SAME {
            self.sooner.push(minutes);
        } else if gained < -SAME {
            self.later.push(-minutes);
        }
    }

    /// Compares one interval. Returns how much sooner it would have been healed.
    fn compare(&mut self, interval: &Interval, would: &[ReplayDecision]) -> SignedDuration {
        let escalated = count(&interval.decisions, &mut self.recorded);
        let would_escalate = count(would, &mut self.would);
        self.escalated += escalated;
        self.would_escalate += would_escalate;
        self.escalated_less += u64::from(escalated > 0 && would_escalate == 0);
        self.escalated_more += u64::from(escalated == 0 && would_escalate > 0);
        // The last remedy before a good end is the one that healed; compare it with the first new remedy of the same strategy.
        let healed = matches!(interval.until, Some((_, IntervalEnd::Progress | IntervalEnd::Assumption)));
        let last = interval.decisions.iter().rev().find_map(remedy).filter(|_| healed);
        match (last, would.iter().find_map(remedy)) {
            (Some((strategy, then)), Some((same, now))) if strategy == same => then.duration_since(now),
            (Some(_) | None, _) => SignedDuration::ZERO,
        }
    }

    /// For each strategy: the number of recorded remedies and of new ones.
    fn by_strategy(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        Strategy::ALL.into_iter().map(|strategy| {
            let of = |counts: &BTreeMap<&str, u64>| counts.get(strategy.name()).copied().unwrap_or(0);
            (strategy.name(), of(&self.recorded), of(&self.would))
        })
    }

    /// For each strategy whose count changes: by how much.
    #[must_use]
    pub fn difference(&self) -> BTreeMap<&'static str, i64> {
        let changed = self.by_strategy().filter(|(_, recorded, would)| recorded != would);
        changed.map(|(name, recorded, would)| (name, would.cast_signed() - recorded.cast_signed())).collect()
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let difference = self.difference();
        let more: BTreeMap<_, _> = difference.iter().filter(|(_, by)| **by > 0).collect();
        let less: BTreeMap<_, _> = difference.iter().filter(|(_, by)| **by < 0).map(|(name, by)| (name, -by)).collect();
        json!({
            "events": self.events, "prs": self.prs,
            "recorded": {"remedies": self.recorded, "escalated": self.escalated},
            "would": {"remedies": self.would, "escalated": self.would_escalate},
            "healed_sooner": {"prs": self.sooner.len(), "median_minutes": median(&self.sooner)},
            "healed_later": {"prs": self.later.len(), "median_minutes": median(&self.later)},
            "escalated_less": self.escalated_less, "escalated_more": self.escalated_more,
            "acted_more": more, "acted_less": less, "cannot_tell": CANNOT_TELL,
        })
    }

    #[must_use]
    pub fn table(&self) -> String {
        let row = |name: &str, recorded: &str, new: &str| format!("{name:<28}{recorded:>10}{new:>10}\n");
        let counts = |name: &str, was: u64, would: u64| row(name, &was.to_string(), &would.to_string());
        let minutes =
            |all: &[f64]| median(all).map_or_else(String::new, |median| format!(", by {median:.0} min (median)"));
        let strategies: String = self.by_strategy().map(|(name, was, would)| counts(name, was, would)).collect();
        format!(
            "{} pull requests, {} events\n\n{}{strategies}{}\nhealed sooner:    {}{}\nhealed later:     {}{}\nescalations less: {}\nescalations more: {}\n\nLimits of this comparison:\n- {}\n",
            self.prs,
            self.events,
            row("", "recorded", "new"),
            counts("escalated", self.escalated, self.would_escalate),
            self.sooner.len(),
            minutes(&self.sooner),
            self.later.len(),
            minutes(&self.later),
            self.escalated_less,
            self.escalated_more,
            CANNOT_TELL.join("\n- ")
        )
    }
}

fn remedy(decision: &ReplayDecision) -> Option<(Strategy, Timestamp)> {
    match decision.action {
        ReplayAction::Remedy(strategy) => Some((strategy, decision.at)),
        ReplayAction::Escalation => None,
    }
}

/// Counts remedies by strategy, and returns the number of escalations.
fn count(decisions: &[ReplayDecision], remedies: &mut BTreeMap<&'static str, u64>) -> u64 {
    for (strategy, _) in decisions.iter().filter_map(remedy) {
        *remedies.entry(strategy.name()).or_default() += 1;
    }
    decisions.iter().filter(|decision| decision.action == ReplayAction::Escalation).count() as u64
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}
