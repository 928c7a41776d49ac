//! Diagnoses again: a record is put into each interval of a timeline and visited whenever a sweep would have come by the new
//! configuration. Rules, staleness and budgets are the domain's own.

use domain::decide::decide;
use domain::diagnosis::{Classification, DiagnosisInput, classify};
use domain::event::{Actor, EventKind, Fact, FactKind, PullRequestDetails};
use domain::id::{EventId, PrId, Sha};
use domain::policy::{Mode, Policy};
use domain::pull_request::{PullRequest, Vulnerability, visit_backoff};
use domain::snapshot::{BuildStatus, LiveStatus, Mergeability};
use domain::state::{State, Strategy, Substatus};
use domain::time::saturating_after;
use domain::transient::{FailureClass, FailureSignals, classify as classify_failure};
use jiff::{SignedDuration, Timestamp};

use super::timeline::{Interval, IntervalEnd, ReplayAction, ReplayDecision, Timeline, TimelineReport, known_by};

/// Visits of one interval at most.
const MAX_VISITS: usize = 50;
/// A sweep at the very end of an interval may be what ended it.
const SLACK: SignedDuration = SignedDuration::from_mins(5);
/// A sweep may take this long: what it decided at its end, it saw at its beginning.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);

/// What would have been decided in each interval.
pub(super) fn evaluate(timeline: &Timeline, policy: &Policy) -> Vec<Vec<ReplayDecision>> {
    // What observe mode would do is what it would do if it acted.
    let mut policy = policy.clone();
    policy.mode = Mode::Act;
    let Some(mut record) = new_record(&timeline.pr, timeline.intervals.first(), &policy) else { return Vec::new() };
    let mut reopens = 0;
    let mut escalated = false;
    let mut evaluated = Vec::new();
    for interval in &timeline.intervals {
        enter(&mut record, interval, &policy);
        // It stays escalated until a person, or new facts, end that.
        escalated &= !matches!(interval.until, Some((_, IntervalEnd::Person)));
        let decisions = if escalated || !record.is_actionable() {
            Vec::new()
        } else {
            visit(&mut record, interval, &policy, &mut reopens)
        };
        escalated |= decisions.iter().any(|decision| decision.action == ReplayAction::Escalation);
        evaluated.push(decisions);
    }
    evaluated
}

fn new_record(pr: &PrId, first: Option<&Interval>, policy: &Policy) -> Option<PullRequest> {
    let at = first?.since;
    let details = PullRequestDetails {
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
    let what = FactKind::Opened(details);
    let fact =
        Fact { id: EventId::new("replay"), pr: pr.clone(), occurred_at: at, actor: Actor::GithubWebhook, kind: what };
    decide(policy, None, &fact, at).record
}

fn enter(record: &mut PullRequest, interval: &Interval, policy: &Policy) {
    if record.state == State::NeedsIntervention && interval.state != State::NeedsIntervention {
        record.retry_counts.reset_all();
        record.lifetime_remedies = 0;
    }
    record.state = interval.state;
    record.substatus = substatus(interval, policy);
    record.state_since = record.state_since.max(interval.since);
    record.hold = interval.held;
    record.not_before = None;
    let assumed = interval.reports.first().is_some_and(|report| report.kind == EventKind::RemediationAccepted);
    if !assumed {
        record.retry_counts.reset_reached(interval.state, record.substatus);
    }
}

/// By the new configuration's own patterns. A failure that was healed by a rebuild was transient to whoever saw more of it than
/// the log has.
fn substatus(interval: &Interval, policy: &Policy) -> Option<Substatus> {
    if interval.state == State::ChecksFailed {
        let transient = interval.reports.iter().any(|report| is_transient(report, policy))
            || interval.decisions.iter().any(|decision| decision.rule.contains("TRANSIENT"));
        Some(if transient { Substatus::Transient } else { Substatus::Persistent })
    } else if interval.state == State::PolicyFailed {
        let report = interval.reports.iter().rev().find(|report| report.kind == EventKind::PolicyFailed);
        Some(policy.policy_bot.failure(report.map_or("", |report| report.text.as_str())))
    } else {
        None
    }
}

fn is_transient(report: &TimelineReport, policy: &Policy) -> bool {
    let about_checks = matches!(report.kind, EventKind::ChecksFailed | EventKind::CheckReported);
    let failure = FailureSignals { conclusion: "failure", source: &report.name, text: &report.text };
    about_checks
        && !report.text.is_empty()
        && matches!(classify_failure(policy, &failure), FailureClass::Transient { .. })
}

/// Visits an interval whenever a sweep would have come.
fn visit(record: &mut PullRequest, interval: &Interval, policy: &Policy, reopens: &mut u32) -> Vec<ReplayDecision> {
    let until = match interval.until {
        Some((at, IntervalEnd::Escalation)) => saturating_after(at, SLACK),
        // What was done within the second that GitHub gives as the end came before it.
        Some((at, _)) => known_by(at),
        // Nobody knows how long it lasted beyond the end of the log.
        None => interval.decisions.last().map_or(interval.since, |last| saturating_after(last.at, SLACK)),
    };
    let mut decisions = Vec::new();
    let mut from = interval.since;
    for _ in 0..MAX_VISITS {
        let Some(at) = next_visit(record, interval, policy, from).filter(|at| *at <= until) else { break };
        from = saturating_after(at, SWEEP);
        let live = live(interval, at);
        let vulnerability = Vulnerability { close_and_reopen: *reopens, ..Vulnerability::default() };
        let case = DiagnosisInput { record, live: Some(&live), vulnerability: Some(&vulnerability), policy, now: at };
        let diagnosis = classify(&case);
        let rule = diagnosis.rule.title.to_owned();
        let Some(strategy) = diagnosis.classification.strategy() else {
            if diagnosis.classification == Classification::NeedsIntervention {
                decisions.push(ReplayDecision { at, action: ReplayAction::Escalation, rule });
                break;
            }
            // Not now: it is visited again after the longest pause.
            record.not_before = Some(saturating_after(at, SignedDuration::from_secs(policy.backoff.max_secs.into())));
            continue;
        };
        decisions.push(ReplayDecision { at, action: ReplayAction::Remedy(strategy), rule });
        *reopens += u32::from(strategy == Strategy::CloseAndReopen);
        record.retry_counts.spend(strategy);
        record.lifetime_remedies += 1;
        record.last_remediation_at = Some(at);
        record.remediation_action = Some(strategy);
        record.last_asked.insert(strategy, at);
        // While a remedy is under way nothing else is begun.
        record.not_before = Some(saturating_after(at, visit_backoff(policy).delay(1)));
    }
    decisions
}

/// The first sweep at which this interval is stale. If the base was in the way, nothing else was done until that was seen, and
/// nobody knows whether it could have been seen earlier.
fn next_visit(record: &PullRequest, interval: &Interval, policy: &Policy, from: Timestamp) -> Option<Timestamp> {
    let stale = record.stale_at(policy).map(|at| record.not_before.map_or(at, |not_before| at.max(not_before)))?;
    let stale = next_sweep(stale.max(from), policy);
    let is_about_base = |rule: &str| rule.contains("CONFLICT") || rule.contains("BEHIND");
    let about_base = interval.decisions.iter().filter(|one| is_about_base(&one.rule) && one.at >= from);
    Some(about_base.map(|decision| decision.at).min().map_or(stale, |seen| stale.max(seen)))
}

fn next_sweep(at: Timestamp, policy: &Policy) -> Timestamp {
    let every = i64::from(policy.sweep.every_minutes.max(1)) * 60;
    let slot = at.as_second().div_euclid(every) * every;
    let slot = if slot < at.as_second() || at.subsec_nanosecond() > 0 { slot + every } else { slot };
    Timestamp::from_second(slot).unwrap_or(at)
}

/// What GitHub and Jenkins would have said. Conflicts and lags are in no event: only what was decided shows them.
fn live(interval: &Interval, at: Timestamp) -> LiveStatus {
    let seen = |word: &str| {
        interval.decisions.iter().any(|one| one.rule.contains(word) && one.at <= saturating_after(at, SWEEP))
    };
    let gone = interval.decisions.iter().any(|decision| decision.rule.contains("RUNNING TOO LONG"));
    LiveStatus {
        mergeable: if seen("CONFLICT") { Mergeability::Conflicting } else { Mergeability::Clean },
        behind_by: Some(u32::from(seen("BEHIND"))),
        strict: true,
        build: Some(if gone { BuildStatus::Gone } else { BuildStatus::Building { since: interval.since } }),
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
    fn remedy_that_github_answered_within_the_same_second_is_not_repeated() {
        let rule = "BRANCH BEHIND BASE".to_owned();
        let action = ReplayAction::Remedy(Strategy::BranchUpdate);
        let interval = Interval {
            state: State::ChecksFailed,
            since: at("00:14:33"),
            until: Some((at("00:58:05"), IntervalEnd::Progress)),
            reports: Vec::new(),
            decisions: vec![ReplayDecision { at: at("00:58:05.787"), action, rule }],
            held: false,
        };
        let timeline = Timeline { pr: "acme/payments#6".parse().unwrap(), intervals: vec![interval] };
        let policies = Policies::parse("mode = \"act\"").unwrap();
        let evaluated = evaluate(&timeline, policies.for_repo(&timeline.pr.repo));
        let decided: Vec<_> = evaluated[0].iter().map(|decision| (decision.at, decision.action)).collect();
        assert_eq!(decided, [(at("00:58:05.787"), action)]);
    }
}
