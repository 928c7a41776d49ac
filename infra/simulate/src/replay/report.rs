//! Action a replay has to tell: what was done, what would have been, and what no log can say.

use std::collections::BTreeMap;

use domain::state::Strategy;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::timeline::{Action, Decision, Interval, IntervalEnd, Timeline};

/// Action no log can say; printed with every answer.
pub const CANNOT_TELL: [&str; 4] = [
    "Action a remedy would have led to is in no log. \"Sooner\" assumes that the same remedy would have healed after the same time.",
    "Where only the new configuration acts, the pull request went on by itself: whether acting would have helped is unknown.",
    "Where only the recorded one acted, it may have been needed: whether it would have healed without is unknown.",
    "Conflicts, lags behind the base and hanging builds are in no event. They are taken from what was decided then, and seen no earlier.",
];

/// Differences smaller than this are a matter of when a sweep came.
const SAME: SignedDuration = SignedDuration::from_secs(90);

/// Action a replay has to tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplayReport {
    /// Events read.
    pub events: usize,
    /// Lives in them.
    pub prs: usize,
    /// Remedies that were claimed, by strategy.
    pub recorded: BTreeMap<&'static str, u64>,
    /// Remedies that would have been.
    pub would: BTreeMap<&'static str, u64>,
    /// Calls for a person that were made.
    pub escalated: u64,
    /// Calls that would have been.
    pub would_escalate: u64,
    /// Calls that would not have been made: a remedy would have been tried instead, or nothing.
    pub escalated_less: u64,
    /// Calls that would have been made in addition.
    pub escalated_more: u64,
    /// Minutes by which each pull request that was healed would have been healed sooner.
    pub sooner: Vec<f64>,
    /// And later.
    pub later: Vec<f64>,
}

impl ReplayReport {
    pub(crate) fn of<'a>(events: usize, timelines: impl Iterator<Item = (&'a Timeline, Vec<Vec<Decision>>)>) -> Self {
        let mut report = Self { events, ..Self::default() };
        for (timeline, decided) in timelines {
            report.prs += 1;
            let mut gained = SignedDuration::ZERO;
            for (interval, would) in timeline.intervals.iter().zip(&decided) {
                gained = gained.saturating_add(report.compare(interval, would));
            }
            let minutes = gained.as_secs_f64() / 60.0;
            if gained > SAME {
                report.sooner.push(minutes);
            } else if gained < -SAME {
                report.later.push(-minutes);
            }
        }
        report.sooner.sort_by(f64::total_cmp);
        report.later.sort_by(f64::total_cmp);
        report
    }

    /// One stretch: what was done and what would have been. Answers how much sooner it would have been healed.
    fn compare(&mut self, interval: &Interval, would: &[Decision]) -> SignedDuration {
        count(&interval.done, &mut self.recorded, &mut self.escalated);
        count(would, &mut self.would, &mut self.would_escalate);
        let called = |done: &[Decision]| done.iter().any(|done| done.what == Action::Escalation);
        match (called(&interval.done), called(would)) {
            (true, false) => self.escalated_less += 1,
            (false, true) => self.escalated_more += 1,
            (true, true) | (false, false) => {}
        }
        // Action healed is the last remedy before the stretch ended well; the new one is the same remedy, as often.
        let healed = matches!(interval.until, Some((_, IntervalEnd::Progress | IntervalEnd::Assumption)));
        let last =
            |done: &[Decision]| done.iter().rev().find_map(|done| remedy(done).map(|strategy| (strategy, done.at)));
        match (last(&interval.done).filter(|_| healed), first(would)) {
            (Some((strategy, then)), Some((same, now))) if strategy == same => then.duration_since(now),
            (Some(_) | None, _) => SignedDuration::ZERO,
        }
    }

    /// How much more, or less, each strategy would have been tried.
    #[must_use]
    pub fn difference(&self) -> BTreeMap<&'static str, i64> {
        let mut difference = BTreeMap::new();
        for strategy in Strategy::ALL {
            let of = |counts: &BTreeMap<&str, u64>| counts.get(strategy.name()).copied().unwrap_or(0);
            let more = i64::try_from(of(&self.would)).unwrap_or(0) - i64::try_from(of(&self.recorded)).unwrap_or(0);
            if more != 0 {
                difference.insert(strategy.name(), more);
            }
        }
        difference
    }

    /// One object.
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

    /// A table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} pull requests, {} events\n\n{:<28}{:>10}{:>10}\n",
            self.prs, self.events, "", "recorded", "new"
        );
        for strategy in Strategy::ALL {
            let of = |counts: &BTreeMap<&str, u64>| counts.get(strategy.name()).copied().unwrap_or(0);
            let (was, would) = (of(&self.recorded), of(&self.would));
            text.push_str(&format!("{:<28}{was:>10}{would:>10}\n", strategy.name()));
        }
        text.push_str(&format!("{:<28}{:>10}{:>10}\n\n", "called a person", self.escalated, self.would_escalate));
        let minutes =
            |all: &[f64]| median(all).map_or_else(String::new, |median| format!(", by {median:.0} min (median)"));
        text.push_str(&format!("healed sooner: {}{}\n", self.sooner.len(), minutes(&self.sooner)));
        text.push_str(&format!("healed later:  {}{}\n", self.later.len(), minutes(&self.later)));
        text.push_str(&format!(
            "calls saved:   {}\ncalls more:    {}\n\nWhat this cannot tell:\n",
            self.escalated_less, self.escalated_more
        ));
        for sentence in CANNOT_TELL {
            text.push_str(&format!("- {sentence}\n"));
        }
        text
    }
}

fn remedy(done: &Decision) -> Option<Strategy> {
    match done.what {
        Action::Remedy(strategy) => Some(strategy),
        Action::Escalation => None,
    }
}

fn first(done: &[Decision]) -> Option<(Strategy, Timestamp)> {
    done.iter().find_map(|done| remedy(done).map(|strategy| (strategy, done.at)))
}

fn count(done: &[Decision], remedies: &mut BTreeMap<&'static str, u64>, escalated: &mut u64) {
    for done in done {
        match done.what {
            Action::Remedy(strategy) => *remedies.entry(strategy.name()).or_default() += 1,
            Action::Escalation => *escalated += 1,
        }
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted {
        [] => None,
        _ if sorted.len() % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}
