//! Decides anew: a record is put into each stretch of a life as the log has it, and looked at whenever a sweep would have come by
//! the new configuration. The rules, the staleness and the budgets are the domain's own.

use domain::decide::decide as begin;
use domain::diagnosis::{Case, Classification, classify};
use domain::event::{Actor, Described, EventKind, Fact, Happened};
use domain::id::{EventId, PrId, Sha};
use domain::policy::{Mode, Policy};
use domain::pull_request::{Record, Vulnerability, pauses};
use domain::snapshot::{Build, Live, Mergeable};
use domain::state::{State, Strategy, Substatus};
use domain::time::saturating_after;
use domain::transient::{FailureClass, FailureSignals, classify as class_of};
use jiff::{SignedDuration, Timestamp};

use super::life::{Done, Ended, Life, Said, Stretch, What, known_by};

/// What was done in a stretch is followed this far at most.
const MOST_VISITS: usize = 50;
/// A sweep that comes at the very end of a stretch may be what ended it.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// A sweep may take this long: what it decided then, it had seen when it came.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);

/// What would have been done in each stretch.
pub(crate) fn decide(life: &Life, policy: &Policy) -> Vec<Vec<Done>> {
    // What observe mode would do is what it would do if it acted.
    let mut policy = policy.clone();
    policy.mode = Mode::Act;
    let Some(mut record) = record(&life.pr, life.stretches.first().map(|first| first.since), &policy) else {
        return life.stretches.iter().map(|_| Vec::new()).collect();
    };
    let mut reopens = 0;
    let mut with_a_person = false;
    let mut decided = Vec::new();
    for stretch in &life.stretches {
        enter(&mut record, stretch, &policy);
        // Who is with a person stays there until a person, or the truth, takes it out.
        with_a_person &= !matches!(stretch.until, Some((_, Ended::Person)));
        let done = if with_a_person || !record.is_actionable() {
            Vec::new()
        } else {
            visits(&mut record, stretch, &policy, &mut reopens)
        };
        with_a_person |= done.iter().any(|done| done.what == What::Escalation);
        decided.push(done);
    }
    decided
}

/// A record that knows nothing yet.
fn record(pr: &PrId, at: Option<Timestamp>, policy: &Policy) -> Option<Record> {
    let at = at?;
    let described = Described {
        node_id: None,
        branch: String::new(),
        base_branch: "its base".to_owned(),
        head: "0000000000000000000000000000000000000000".parse::<Sha>().ok()?,
        labels: Vec::new(),
        draft: false,
        vulnerability_id: Some("as recorded".to_owned()),
        created_at: at,
        size: None,
        required_checks: Some(Vec::new()),
    };
    let what = Happened::Opened(described);
    let fact = Fact { id: EventId::new("replay"), pr: pr.clone(), occurred_at: at, actor: Actor::GithubWebhook, what };
    begin(policy, None, &fact, at).record
}

/// The record as it is when a stretch begins.
fn enter(record: &mut Record, stretch: &Stretch, policy: &Policy) {
    if record.state == State::NeedsIntervention && stretch.state != State::NeedsIntervention {
        record.retry_counts.reset_all();
        record.lifetime_remedies = 0;
    }
    record.state = stretch.state;
    record.substatus = substatus(stretch, policy);
    record.progressed_at = record.progressed_at.max(stretch.since);
    record.hold = stretch.held;
    record.not_before = None;
    let assumed = stretch.said.first().is_some_and(|said| said.kind == EventKind::RemediationAccepted);
    if !assumed {
        record.retry_counts.reached(stretch.state, record.substatus);
    }
}

/// The detail of a state, by the new configuration's own patterns. A failure that was healed by a rebuild was transient to
/// whoever saw more of it than the log has.
fn substatus(stretch: &Stretch, policy: &Policy) -> Option<Substatus> {
    match stretch.state {
        State::ChecksFailed => {
            let transient = stretch.said.iter().any(|said| is_transient(said, policy))
                || stretch.done.iter().any(|done| done.rule.contains("TRANSIENT"));
            Some(if transient { Substatus::Transient } else { Substatus::Persistent })
        }
        State::PolicyFailed => {
            let text = stretch.said.iter().rev().find(|said| said.kind == EventKind::PolicyFailed);
            Some(policy.policy_bot.failure(text.map_or("", |said| said.text.as_str())))
        }
        State::Created
        | State::ChecksRunning
        | State::ChecksPassed
        | State::PolicyEvaluating
        | State::PolicyPassed
        | State::Approved
        | State::Merging
        | State::Merged
        | State::Closed
        | State::NeedsIntervention => None,
    }
}

fn is_transient(said: &Said, policy: &Policy) -> bool {
    let reported = matches!(said.kind, EventKind::ChecksFailed | EventKind::CheckReported);
    let failure = FailureSignals { conclusion: "failure", source: &said.name, text: &said.text };
    reported && !said.text.is_empty() && matches!(class_of(policy, &failure), FailureClass::Transient { .. })
}

/// Looks at a stretch whenever a sweep would have come.
fn visits(record: &mut Record, stretch: &Stretch, policy: &Policy, reopens: &mut u32) -> Vec<Done> {
    let until = match stretch.until {
        Some((at, Ended::Escalation)) => saturating_after(at, SLACK),
        // What was done within the second that GitHub gives as the end came before it.
        Some((at, Ended::Progress | Ended::Assumption | Ended::Person | Ended::Closing)) => known_by(at),
        // Nobody knows how long it lasted beyond the end of the log.
        None => stretch.done.last().map_or(stretch.since, |last| saturating_after(last.at, SLACK)),
    };
    let mut done = Vec::new();
    let mut from = stretch.since;
    for _ in 0..MOST_VISITS {
        let Some(at) = next_visit(record, stretch, policy, from).filter(|at| *at <= until) else { break };
        from = saturating_after(at, SWEEP);
        let live = live(stretch, at);
        let vulnerability = Vulnerability { close_and_reopen: *reopens, ..Vulnerability::default() };
        let case = Case { record, live: Some(&live), vulnerability: Some(&vulnerability), policy, now: at };
        let found = classify(&case);
        let rule = found.rule.title.to_owned();
        let what = match (found.classification.strategy(), found.classification) {
            (Some(strategy), _) => What::Remedy(strategy),
            (None, Classification::NeedsIntervention) => What::Escalation,
            (None, _) => {
                // Not now: it is looked at again after the longest pause.
                record.not_before =
                    Some(saturating_after(at, SignedDuration::from_secs(policy.backoff.max_secs.into())));
                continue;
            }
        };
        done.push(Done { at, what, rule, evidence: found.evidence.join("; ") });
        let What::Remedy(strategy) = what else { break };
        *reopens += u32::from(strategy == Strategy::CloseAndReopen);
        record.retry_counts.count(strategy);
        record.lifetime_remedies += 1;
        record.last_remediation_at = Some(at);
        record.remediation_action = Some(strategy);
        record.last_asked.insert(strategy, at);
        // While a remedy is under way nothing else is begun.
        record.not_before = Some(saturating_after(at, pauses(policy).delay(1)));
    }
    done
}

/// The first sweep at which this stretch is stale. If the base was in the way, nothing else was done until that was seen, and
/// nobody knows whether it could have been seen earlier.
fn next_visit(record: &Record, stretch: &Stretch, policy: &Policy, from: Timestamp) -> Option<Timestamp> {
    let stale = record.stale_at(policy).map(|at| record.not_before.map_or(at, |not_before| at.max(not_before)))?;
    let stale = slot(stale.max(from), policy);
    let seen = stretch.done.iter().filter(|done| is_about_base(done) && done.at >= from).map(|done| done.at).min();
    Some(seen.map_or(stale, |seen| stale.max(seen)))
}

/// Sweeps come every so many minutes.
fn slot(at: Timestamp, policy: &Policy) -> Timestamp {
    let every = i64::from(policy.sweep.every_minutes.max(1)) * 60;
    let slot = at.as_second().div_euclid(every) * every;
    let slot = if slot < at.as_second() || at.subsec_nanosecond() > 0 { slot + every } else { slot };
    Timestamp::from_second(slot).unwrap_or(at)
}

/// Conflicts and lags are seen in no event: only what was decided shows them.
fn is_about_base(done: &Done) -> bool {
    done.rule.contains("CONFLICT") || done.rule.contains("BEHIND")
}

/// What GitHub and Jenkins would have said, as far as what was decided shows it.
fn live(stretch: &Stretch, at: Timestamp) -> Live {
    let seen =
        |word: &str| stretch.done.iter().any(|done| done.rule.contains(word) && done.at <= saturating_after(at, SWEEP));
    let gone = stretch.done.iter().any(|done| done.rule.contains("RUNNING TOO LONG"));
    Live {
        mergeable: if seen("CONFLICT") { Mergeable::Conflicting } else { Mergeable::Clean },
        behind_by: Some(u32::from(seen("BEHIND"))),
        strict: true,
        build: Some(if gone { Build::Gone } else { Build::Building { since: stretch.since } }),
    }
}

#[cfg(test)]
mod tests {
    use domain::policy::Policies;

    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    /// The branch was updated at 00:58:05.787, and GitHub gives the push that followed as 00:58:05.
    #[test]
    fn what_github_answered_within_the_same_second_was_not_done_again() {
        let updated = Done {
            at: at("00:58:05.787"),
            what: What::Remedy(Strategy::BranchUpdate),
            rule: "BRANCH BEHIND BASE".to_owned(),
            evidence: String::new(),
        };
        let stretch = Stretch {
            state: State::ChecksFailed,
            since: at("00:14:33"),
            until: Some((at("00:58:05"), Ended::Progress)),
            said: Vec::new(),
            done: vec![updated.clone()],
            held: false,
        };
        let life = Life { pr: "acme/payments#6".parse().unwrap(), stretches: vec![stretch] };
        let policies = Policies::parse("mode = \"act\"").unwrap();
        let decided = decide(&life, policies.for_repo(&life.pr.repo));
        let what = |done: &Done| (done.at, done.what);
        assert_eq!(decided[0].iter().map(what).collect::<Vec<_>>(), [what(&updated)]);
    }
}
