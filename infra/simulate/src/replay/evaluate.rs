//! Repeats the diagnosis: puts a record into each interval of a timeline and visits it at every sweep of the new configuration.
//! Rules, staleness and budgets come from the domain.

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

/// The most visits per interval.
const MAX_VISITS: usize = 50;
/// The sweep that ended an interval may be recorded slightly after its end.
const SLACK: SignedDuration = SignedDuration::from_mins(5);
/// The assumed duration of a sweep: a decision at its end uses data from its start.
const SWEEP_DURATION: SignedDuration = SignedDuration::from_mins(1);
/// Numbers of the diagnosis rules whose recorded decisions stand for what the events do not contain.
const CONFLICT: &str = "1";
const BEHIND: &str = "2";
const TRANSIENT: &str = "3";
const RUNNING_TOO_LONG: &str = "9b";

/// The decisions of the new configuration in each interval.
pub(super) fn evaluate(timeline: &Timeline, policy: &Policy) -> Vec<Vec<ReplayDecision>> {
    // Evaluate observe mode as if it acted.
    let mut policy = policy.clone();
    policy.mode = Mode::Act;
    let Some(mut record) = new_record(&timeline.pr, timeline.intervals.first(), &policy) else { return Vec::new() };
    let mut reopens = 0;
    let mut escalated = false;
    let mut evaluated = Vec::new();
    for interval in &timeline.intervals {
        enter(&mut record, interval, &policy);
        // An escalation lasts until a person acts.
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
        html_url: None,
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
    let fact = Fact {
        id: EventId::new("replay"),
        pr: pr.clone(),
        occurred_at: at,
        actor: Actor::GithubWebhook,
        kind: what,
        described: None,
    };
    decide(policy, None, &fact, at).record
}

fn enter(record: &mut PullRequest, interval: &Interval, policy: &Policy) {
    if record.state == State::NeedsIntervention && interval.state != State::NeedsIntervention {
        record.retry_counts.reset_all();
        record.lifetime_remedies = 0;
    }
    record.end_cooldown_by(interval.state);
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

/// Classifies failures with the new configuration's patterns. A failure for which a transient rule was recorded stays transient,
/// because the original diagnosis had more data than the log.
fn substatus(interval: &Interval, policy: &Policy) -> Option<Substatus> {
    if interval.state == State::ChecksFailed {
        let transient = interval.reports.iter().any(|report| is_transient(report, policy))
            || interval.decisions.iter().any(|decision| decision.is_by(TRANSIENT));
        Some(if transient { Substatus::Transient } else { Substatus::Persistent })
    } else if interval.state == State::PolicyFailed {
        let report = interval.reports.iter().rev().find(|report| report.kind == EventKind::PolicyFailed);
        Some(policy.policy_bot.failure(report.map_or("", |report| report.text.as_str())))
    } else {
        None
    }
}

fn is_transient(report: &TimelineReport, policy: &Policy) -> bool {
    let is_check_report = matches!(report.kind, EventKind::ChecksFailed | EventKind::CheckReported);
    let failure = FailureSignals { conclusion: "failure", source: &report.name, text: &report.text };
    is_check_report
        && !report.text.is_empty()
        && matches!(classify_failure(policy, &failure), FailureClass::Transient { .. })
}

/// Visits an interval at every sweep of the new configuration.
fn visit(record: &mut PullRequest, interval: &Interval, policy: &Policy, reopens: &mut u32) -> Vec<ReplayDecision> {
    let until = match interval.until {
        Some((at, IntervalEnd::Escalation)) => saturating_after(at, SLACK),
        // GitHub rounds the end down to whole seconds; actions within that second came before it.
        Some((at, _)) => known_by(at),
        // The log ends before the interval does.
        None => interval.decisions.last().map_or(interval.since, |last| saturating_after(last.at, SLACK)),
    };
    let mut decisions = Vec::new();
    let mut from = interval.since;
    for _ in 0..MAX_VISITS {
        let Some(at) = next_visit(record, interval, policy, from).filter(|at| *at <= until) else { break };
        from = saturating_after(at, SWEEP_DURATION);
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
            // No remedy now: visit again after the longest backoff.
            record.not_before = Some(saturating_after(at, SignedDuration::from_secs(policy.backoff.max_secs.into())));
            continue;
        };
        decisions.push(ReplayDecision { at, action: ReplayAction::Remedy(strategy), rule });
        *reopens += u32::from(strategy == Strategy::CloseAndReopen);
        record.retry_counts.spend(strategy);
        record.lifetime_remedies += 1;
        record.last_remediation_at = Some(at);
        record.remediation_action = Some(strategy);
        record.remedied_in = Some(record.state);
        record.last_requested.insert(strategy, at);
        // No other remedy starts while one is running.
        record.not_before = Some(saturating_after(at, visit_backoff(policy).delay(1)));
    }
    decisions
}

/// The first sweep at which this interval is stale. A conflict or a branch behind its base counts only from its recorded decision,
/// because the log does not show when it began.
fn next_visit(record: &PullRequest, interval: &Interval, policy: &Policy, from: Timestamp) -> Option<Timestamp> {
    let stale = record.stale_at(policy).map(|at| record.not_before.map_or(at, |not_before| at.max(not_before)))?;
    let stale = next_sweep(stale.max(from), policy);
    let is_about_base = |one: &&ReplayDecision| one.is_by(CONFLICT) || one.is_by(BEHIND);
    let about_base = interval.decisions.iter().filter(|one| is_about_base(one) && one.at >= from);
    Some(about_base.map(|decision| decision.at).min().map_or(stale, |seen| stale.max(seen)))
}

fn next_sweep(at: Timestamp, policy: &Policy) -> Timestamp {
    let every = i64::from(policy.sweep.every_minutes.max(1)) * 60;
    let slot = at.as_second().div_euclid(every) * every;
    let slot = if slot < at.as_second() || at.subsec_nanosecond() > 0 { slot + every } else { slot };
    Timestamp::from_second(slot).unwrap_or(at)
}

/// The status that GitHub and Jenkins would have reported. Conflicts and outdated branches are inferred from the recorded decisions,
/// because events do not contain them.
fn live(interval: &Interval, at: Timestamp) -> LiveStatus {
    let seen = |rule: &str| {
        interval.decisions.iter().any(|one| one.is_by(rule) && one.at <= saturating_after(at, SWEEP_DURATION))
    };
    let gone = interval.decisions.iter().any(|decision| decision.is_by(RUNNING_TOO_LONG));
    LiveStatus {
        mergeable: if seen(CONFLICT) { Mergeability::Conflicting } else { Mergeability::Clean },
        behind_by: Some(u32::from(seen(BEHIND))),
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
    fn remedy_confirmed_within_the_same_second_is_not_repeated() {
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
