//! What came of a simulation, in numbers: for machines as one JSON object, for people as a table.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::invariants::{Escalation, Invariant, InvariantChecker, Violation};

/// What came of one seed, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Worlds.
    pub seeds: u64,
    /// Lives of pull requests, replacements included.
    pub prs: u64,
    /// Merged.
    pub merged: u64,
    /// Closed, and another one has taken their place.
    pub replaced: u64,
    /// Closed by or for a person.
    pub closed: u64,
    /// With a person, who was told.
    pub escalated: u64,
    /// Calls for a person that the world gave no reason for.
    pub escalated_needlessly: u64,
    /// Sent more than once under the same name: mails, bus events, redeliveries.
    pub repeated: u64,
    /// Messages nobody could work on.
    pub dead_letters: u64,
    /// Processes that died or took too long.
    pub killed: u64,
    /// Sweeps.
    pub sweeps: u64,
    /// Minutes in which a sweep would have found nothing to do, and was left out.
    pub idle_ticks: u64,
    /// Remedies claimed, by strategy.
    pub remedies: BTreeMap<&'static str, u64>,
    /// Requests to GitHub and Jenkins.
    pub github_requests: u64,
    /// Requests to the tables.
    pub store_requests: u64,
    /// What must not have happened, by kind.
    pub violations: BTreeMap<Invariant, u64>,
    /// Seeds in which it did, and the first thing that went wrong.
    pub failed: BTreeMap<u64, String>,
    /// Needless calls: seed, pull request, reason.
    pub needless: Vec<(u64, String)>,
}

/// Needless calls that are listed.
const MOST_LISTED: usize = 200;

impl Outcome {
    pub(crate) fn take(&mut self, checker: &InvariantChecker, seed: u64) {
        self.repeated = checker.repeated;
        self.remedies.clone_from(&checker.remedies);
        for Violation { what, .. } in &checker.violations {
            *self.violations.entry(*what).or_default() += 1;
        }
        if let Some(first) = checker.violations.first() {
            self.failed.insert(seed, format!("{}: {}", first.what.name(), first.detail));
        }
        for Escalation { pr, why, .. } in checker.escalations.iter().filter(|one| one.needless) {
            self.escalated_needlessly += 1;
            self.needless.push((seed, format!("{pr}: {why}")));
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.prs += other.prs;
        self.merged += other.merged;
        self.replaced += other.replaced;
        self.closed += other.closed;
        self.escalated += other.escalated;
        self.escalated_needlessly += other.escalated_needlessly;
        self.repeated += other.repeated;
        self.dead_letters += other.dead_letters;
        self.killed += other.killed;
        self.sweeps += other.sweeps;
        self.idle_ticks += other.idle_ticks;
        self.github_requests += other.github_requests;
        self.store_requests += other.store_requests;
        for (name, count) in other.remedies {
            *self.remedies.entry(name).or_default() += count;
        }
        for (what, count) in other.violations {
            *self.violations.entry(what).or_default() += count;
        }
        self.failed.extend(other.failed);
        self.needless.extend(other.needless);
        self.needless.sort();
        self.needless.truncate(MOST_LISTED);
    }

    /// How often something happened that must not.
    #[must_use]
    pub fn count(&self, what: Invariant) -> u64 {
        self.violations.get(&what).copied().unwrap_or(0)
    }

    /// Whether nothing happened that must not.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    /// One object, as design §9 has it.
    #[must_use]
    pub fn json(&self, seconds: f64) -> Value {
        let violations: BTreeMap<&str, u64> =
            self.violations.iter().map(|(what, count)| (what.name(), *count)).collect();
        json!({
            "seeds": self.seeds, "prs": self.prs, "merged": self.merged, "replaced": self.replaced, "closed": self.closed,
            "escalated": self.escalated, "escalated_needlessly": self.escalated_needlessly,
            "stuck": self.count(Invariant::Stuck), "lost_events": self.count(Invariant::LostEvent),
            "double_effects": self.count(Invariant::DoubleEffect), "repeated": self.repeated,
            "dead_letters": self.dead_letters, "killed": self.killed, "sweeps": self.sweeps,
            "idle_ticks": self.idle_ticks, "remedies": self.remedies,
            "github_requests": self.github_requests, "store_requests": self.store_requests,
            "violations": violations, "failed_seeds": self.failed.keys().collect::<Vec<_>>(), "seconds": seconds,
        })
    }

    /// A table.
    #[must_use]
    pub fn table(&self, seconds: f64) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: u64| rows.push((name.to_owned(), value.to_string()));
        row("worlds", self.seeds);
        row("pull requests", self.prs);
        row("  merged", self.merged);
        row("  replaced by a fresh one", self.replaced);
        row("  closed by or for a person", self.closed);
        row("  with a person who was told", self.escalated);
        row("  stuck", self.count(Invariant::Stuck));
        row("called a person needlessly", self.escalated_needlessly);
        row("events lost", self.count(Invariant::LostEvent));
        row("effects done twice", self.count(Invariant::DoubleEffect));
        row("sent again under the same name", self.repeated);
        row("messages set aside", self.dead_letters);
        row("processes that died", self.killed);
        row("sweeps", self.sweeps);
        row("sweeps left out: nothing to do", self.idle_ticks);
        for (name, count) in &self.remedies {
            row(&format!("remedies: {name}"), *count);
        }
        row("requests to GitHub and Jenkins", self.github_requests);
        row("requests to the tables", self.store_requests);
        for (what, count) in &self.violations {
            row(&format!("WRONG: {}", what.name()), *count);
        }
        rows.push(("seconds".to_owned(), format!("{seconds:.1}")));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, value): &(String, String)| format!("{name:<width$}  {value:>12}");
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
