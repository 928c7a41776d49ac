//! Decides anew: a record is put into each stretch of a life as the log has it, and looked at whenever a sweep would have come by
//! the new configuration. The rules, the staleness and the budgets are the domain's own.

use domain::decide::decide;
use domain::diagnosis::{Case, Classification, classify};
use domain::event::{Actor, Described, EventKind, Fact, Happened};
use domain::id::{EventId, PrId, Sha};
use domain::policy::{Mode, Policy};
use domain::pull_request::{Record, Vulnerability, later, pauses};
use domain::snapshot::{Build, Live, Mergeable};
use domain::state::{State, Strategy, Substatus};
use domain::transient::{FailureClass, FailureSignals, classify as class_of};
use jiff::{SignedDuration, Timestamp};

use super::timeline::{Action, Decision, Interval, IntervalEnd, StatusReport, Timeline, known_by};

/// Action was done in a stretch is followed this far at most.
const MOST_VISITS: usize = 50;
/// A sweep that comes at the very end of a stretch may be what ended it.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// A sweep may take this long: what it decided then, it had seen when it came.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);

/// Action would have been done in each stretch.
pub(crate) fn evaluate(timeline: &Timeline, policy: &Policy) -> Vec<Vec<Decision>> {
    // Action observe mode would do is what it would do if it acted.
    let mut policy = policy.clone();
    policy.mode = Mode::Act;
    let Some(mut record) = record(&timeline.pr, timeline.intervals.first().map(|first| first.since), &policy) else {
        return timeline.intervals.iter().map(|_| Vec::new()).collect();
    };
    let mut reopens = 0;
    let mut with_a_person = false;
    let mut decided = Vec::new();
    for interval in &timeline.intervals {
        enter(&mut record, interval, &policy);
        // Who is with a person stays there until a person, or the truth, takes it out.
        with_a_person &= !matches!(interval.until, Some((_, IntervalEnd::Person)));
        let done = if with_a_person || !record.is_actionable() {
            Vec::new()
        } else {
            visits(&mut record, interval, &policy, &mut reopens)
        };
        with_a_person |= done.iter().any(|done| done.what == Action::Escalation);
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
    decide(policy, None, &fact, at).record
}

/// The record as it is when a stretch begins.
fn enter(record: &mut Record, interval: &Interval, policy: &Policy) {
    if record.state == State::NeedsIntervention && interval.state != State::NeedsIntervention {
        record.retry_counts.reset_all();
        record.lifetime_remedies = 0;
    }
    record.state = interval.state;
    record.substatus = substatus(interval, policy);
    record.progressed_at = record.progressed_at.max(interval.since);
    record.hold = interval.held;
    record.not_before = None;
    let assumed = interval.reports.first().is_some_and(|reports| reports.kind == EventKind::RemediationAccepted);
    if !assumed {
        record.retry_counts.reached(interval.state, record.substatus);
    }
}

/// The detail of a state, by the new configuration's own patterns. A failure that was healed by a rebuild was transient to
/// whoever saw more of it than the log has.
fn substatus(interval: &Interval, policy: &Policy) -> Option<Substatus> {
    match interval.state {
        State::ChecksFailed => {
            let transient = interval.reports.iter().any(|reports| is_transient(reports, policy))
                || interval.done.iter().any(|done| done.rule.contains("TRANSIENT"));
            Some(if transient { Substatus::Transient } else { Substatus::Persistent })
        }
        State::PolicyFailed => {
            let text = interval.reports.iter().rev().find(|reports| reports.kind == EventKind::PolicyFailed);
            Some(policy.policy_bot.failure(text.map_or("", |reports| reports.text.as_str())))
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

fn is_transient(reports: &StatusReport, policy: &Policy) -> bool {
    let reported = matches!(reports.kind, EventKind::ChecksFailed | EventKind::CheckReported);
    let failure = FailureSignals { conclusion: "failure", source: &reports.name, text: &reports.text };
    reported && !reports.text.is_empty() && matches!(class_of(policy, &failure), FailureClass::Transient { .. })
}

/// Looks at a stretch whenever a sweep would have come.
fn visits(record: &mut Record, interval: &Interval, policy: &Policy, reopens: &mut u32) -> Vec<Decision> {
    let until = match interval.until {
        Some((at, IntervalEnd::Escalation)) => later(at, SLACK),
        // Action was done within the second that GitHub gives as the end came before it.
        Some((at, IntervalEnd::Progress | IntervalEnd::Assumption | IntervalEnd::Person | IntervalEnd::Closing)) => {
            known_by(at)
        }
        // Nobody knows how long it lasted beyond the end of the log.
        None => interval.done.last().map_or(interval.since, |last| later(last.at, SLACK)),
    };
    let mut done = Vec::new();
    let mut from = interval.since;
    for _ in 0..MOST_VISITS {
        let Some(at) = next_visit(record, interval, policy, from).filter(|at| *at <= until) else { break };
        from = later(at, SWEEP);
        let live = live(interval, at);
        let vulnerability = Vulnerability { close_and_reopen: *reopens, ..Vulnerability::default() };
        let case = Case { record, live: Some(&live), vulnerability: Some(&vulnerability), policy, now: at };
        let found = classify(&case);
        let rule = found.rule.title.to_owned();
        let what = match (found.classification.strategy(), found.classification) {
            (Some(strategy), _) => Action::Remedy(strategy),
            (None, Classification::NeedsIntervention) => Action::Escalation,
            (None, _) => {
                // Not now: it is looked at again after the longest pause.
                record.not_before = Some(later(at, SignedDuration::from_secs(policy.backoff.max_secs.into())));
                continue;
            }
        };
        done.push(Decision { at, what, rule, evidence: found.evidence.join("; ") });
        let Action::Remedy(strategy) = what else { break };
        *reopens += u32::from(strategy == Strategy::CloseAndReopen);
        record.retry_counts.count(strategy);
        record.lifetime_remedies += 1;
        record.last_remediation_at = Some(at);
        record.remediation_action = Some(strategy);
        record.last_asked.insert(strategy, at);
        // While a remedy is under way nothing else is begun.
        record.not_before = Some(later(at, pauses(policy).delay(1)));
    }
    done
}

/// The first sweep at which this stretch is stale. If the base was in the way, nothing else was done until that was seen, and
/// nobody knows whether it could have been seen earlier.
fn next_visit(record: &Record, interval: &Interval, policy: &Policy, from: Timestamp) -> Option<Timestamp> {
    let stale = record.stale_at(policy).map(|at| record.not_before.map_or(at, |not_before| at.max(not_before)))?;
    let stale = slot(stale.max(from), policy);
    let seen = interval.done.iter().filter(|done| is_about_base(done) && done.at >= from).map(|done| done.at).min();
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
fn is_about_base(done: &Decision) -> bool {
    done.rule.contains("CONFLICT") || done.rule.contains("BEHIND")
}

/// Action GitHub and Jenkins would have said, as far as what was decided shows it.
fn live(interval: &Interval, at: Timestamp) -> Live {
    let seen = |word: &str| interval.done.iter().any(|done| done.rule.contains(word) && done.at <= later(at, SWEEP));
    let gone = interval.done.iter().any(|done| done.rule.contains("RUNNING TOO LONG"));
    Live {
        mergeable: if seen("CONFLICT") { Mergeable::Conflicting } else { Mergeable::Clean },
        behind_by: Some(u32::from(seen("BEHIND"))),
        strict: true,
        build: Some(if gone { Build::Gone } else { Build::Building { since: interval.since } }),
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
        let updated = Decision {
            at: at("00:58:05.787"),
            what: Action::Remedy(Strategy::BranchUpdate),
            rule: "BRANCH BEHIND BASE".to_owned(),
            evidence: String::new(),
        };
        let interval = Interval {
            state: State::ChecksFailed,
            since: at("00:14:33"),
            until: Some((at("00:58:05"), IntervalEnd::Progress)),
            reports: Vec::new(),
            done: vec![updated.clone()],
            held: false,
        };
        let timeline = Timeline { pr: "acme/payments#6".parse().unwrap(), intervals: vec![interval] };
        let policies = Policies::parse("mode = \"act\"").unwrap();
        let decided = evaluate(&timeline, policies.for_repo(&timeline.pr.repo));
        let what = |done: &Decision| (done.at, done.what);
        assert_eq!(decided[0].iter().map(what).collect::<Vec<_>>(), [what(&updated)]);
    }
}
