//! The results of simulations, as one JSON object or as a table.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::invariants::{Invariant, InvariantChecker};

/// The results of one or more seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationReport {
    pub seeds: u64,
    pub prs: u64,
    pub merged: u64,
    pub replaced: u64,
    pub closed: u64,
    pub escalated: u64,
    /// Escalations although nothing in the fakes required a person.
    pub escalated_needlessly: u64,
    /// Mails, bus events and redeliveries sent more than once with the same id.
    pub repeated: u64,
    pub dead_letters: u64,
    /// Processes that died or timed out.
    pub killed: u64,
    pub sweeps: u64,
    /// Ticks without a sweep, because nothing was due.
    pub idle_ticks: u64,
    /// Remedies claimed, by strategy.
    pub remedies: BTreeMap<&'static str, u64>,
    pub github_requests: u64,
    pub store_requests: u64,
    pub violations: BTreeMap<Invariant, u64>,
    /// Seeds with violations, and the first violation of each.
    pub failed: BTreeMap<u64, String>,
    /// Needless escalations: seed, pull request and reason.
    pub needless: Vec<(u64, String)>,
}

/// The most needless escalations to list.
const MAX_NEEDLESS: usize = 200;

impl SimulationReport {
    pub(crate) fn read(&mut self, checker: &InvariantChecker, seed: u64) {
        self.repeated = checker.repeated;
        self.remedies.clone_from(&checker.remedies);
        for violation in &checker.violations {
            *self.violations.entry(violation.invariant).or_default() += 1;
        }
        if let Some(first) = checker.violations.first() {
            self.failed.insert(seed, format!("{}: {}", first.invariant.name(), first.detail));
        }
        for escalation in checker.escalations.iter().filter(|escalation| escalation.needless) {
            self.escalated_needlessly += 1;
            self.needless.push((seed, format!("{}: {}", escalation.pr, escalation.why)));
        }
    }

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
        for (invariant, count) in other.violations {
            *self.violations.entry(invariant).or_default() += count;
        }
        self.failed.extend(other.failed);
        self.needless.extend(other.needless);
        self.needless.sort();
        self.needless.truncate(MAX_NEEDLESS);
    }

    #[must_use]
    pub fn count(&self, invariant: Invariant) -> u64 {
        self.violations.get(&invariant).copied().unwrap_or(0)
    }

    /// Whether all invariants held and nobody was called needlessly.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.escalated_needlessly == 0
    }

    /// The JSON object that `simulate --json` prints.
    #[must_use]
    pub fn json(&self, seconds: f64) -> Value {
        let violations: BTreeMap<&str, u64> =
            self.violations.iter().map(|(invariant, count)| (invariant.name(), *count)).collect();
        json!({
            "seeds": self.seeds, "prs": self.prs, "merged": self.merged, "replaced": self.replaced, "closed": self.closed,
            "escalated": self.escalated, "escalated_needlessly": self.escalated_needlessly,
            "stuck": self.count(Invariant::Stuck), "lost_events": self.count(Invariant::LostEvent),
            "double_effects": self.count(Invariant::DoubleEffect), "repeated": self.repeated,
            "dead_letters": self.dead_letters, "killed": self.killed, "sweeps": self.sweeps,
            "idle_ticks": self.idle_ticks, "remedies": self.remedies,
            "github_requests": self.github_requests, "store_requests": self.store_requests,
            "needless": self.needless, "violations": violations, "failed_seeds": self.failed.keys().collect::<Vec<_>>(), "seconds": seconds,
        })
    }

    #[must_use]
    pub fn table(&self, seconds: f64) -> String {
        let mut rows = vec![
            ("simulations".to_owned(), self.seeds),
            ("pull requests".to_owned(), self.prs),
            ("  merged".to_owned(), self.merged),
            ("  replaced".to_owned(), self.replaced),
            ("  closed by or for a person".to_owned(), self.closed),
            ("  escalated".to_owned(), self.escalated),
            ("  stuck".to_owned(), self.count(Invariant::Stuck)),
            ("escalated needlessly".to_owned(), self.escalated_needlessly),
            ("events lost".to_owned(), self.count(Invariant::LostEvent)),
            ("effects repeated".to_owned(), self.count(Invariant::DoubleEffect)),
            ("sent again with the same id".to_owned(), self.repeated),
            ("dead letters".to_owned(), self.dead_letters),
            ("processes that died".to_owned(), self.killed),
            ("sweeps".to_owned(), self.sweeps),
            ("ticks without a sweep: nothing due".to_owned(), self.idle_ticks),
        ];
        rows.extend(self.remedies.iter().map(|(name, count)| (format!("remedies: {name}"), *count)));
        rows.push(("requests to GitHub and Jenkins".to_owned(), self.github_requests));
        rows.push(("requests to the store".to_owned(), self.store_requests));
        rows.extend(self.violations.iter().map(|(one, count)| (format!("VIOLATED: {}", one.name()), *count)));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: String = rows.iter().map(|(name, value)| format!("{name:<width$}  {value:>12}\n")).collect();
        format!("{lines}{:<width$}  {seconds:>12.1}", "seconds")
    }
}
