//! Statistics over the event log: how long states last and which thresholds that suggests, how many webhooks were missed,
//! which remedies and transient rules help. Pure aggregation; the admin function reads the events, the text module words
//! the advice.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::backoff::jitter_seed;
use crate::event::{Actor, Event, EventKind};
use crate::id::{PrId, RepoName, RunId};
use crate::policy::{Policies, Policy};
use crate::pull_request::PullRequest;
use crate::run::RunEnd;
use crate::state::{State, Strategy};
use crate::transition;

/// The least number of stays without intervention from which a threshold is suggested.
pub const MIN_SAMPLES: usize = 20;
/// The suggested threshold is the p99 plus 25 %.
const MARGIN_PERCENT: u64 = 125;
/// A rule is flagged from this many identical failures …
const FLAGGED_FROM: u64 = 2;
/// … if they are at least this share of the finished retries, in percent.
const FLAGGED_PERCENT: u64 = 50;

/// The parts of an event that the statistics need.
#[derive(Debug, Clone, PartialEq)]
pub struct EventSample {
    pub pr: PrId,
    pub at: Timestamp,
    pub kind: EventKind,
    /// The state left, if the state changed.
    pub from: Option<State>,
    /// The new state, if the state changed; CREATED for an opened pull request.
    pub to: Option<State>,
    /// Whether a sweep found the event.
    swept: bool,
    /// The run that was claimed or has ended.
    run: Option<RunId>,
    end: Option<RunEnd>,
    /// The transient rules that matched the failures.
    rules: Vec<String>,
    /// A digest of the failures.
    failure: Option<String>,
    /// The events whose webhooks were missing at that time.
    missed: Vec<EventKind>,
}

impl EventSample {
    /// The sample of an event; `None` if the statistics do not need it.
    pub fn of(event: &Event) -> Option<Self> {
        let opened = (event.kind == EventKind::PrOpened).then_some(State::Created);
        let to = event.to.or(opened);
        let end = event.payload.run_end;
        let drift = event.kind == EventKind::StateDriftCorrected;
        if to.is_none() && end.is_none() && !drift && event.kind.claimed_strategy().is_none() {
            return None;
        }
        let payload = &event.payload;
        Some(Self {
            pr: event.pr.clone(),
            at: event.occurred_at,
            kind: event.kind,
            from: event.from,
            to,
            swept: event.source == Actor::Reconciler,
            run: payload.run.clone(),
            end,
            rules: payload.rules.clone(),
            failure: payload.failure.clone(),
            missed: missed(event),
        })
    }

    /// Whether the pipeline itself made this change. Changes by Suture or a person, and changes that a sweep found late,
    /// do not show how long the pipeline takes.
    fn by_itself(&self) -> bool {
        !matches!(
            self.kind,
            EventKind::RemediationAccepted
                | EventKind::RemediationEnded
                | EventKind::EscalatedNeedsIntervention
                | EventKind::CommandReceived
                | EventKind::StateDriftCorrected
        )
    }

    fn strategy(&self) -> Option<Strategy> {
        self.kind.claimed_strategy()
    }
}

/// The events whose webhooks were missing: those behind a drift correction (the transitions between the two states, a
/// push, a close or a merge), or the approval before a merge by Automerge Bot, which merges nothing unapproved.
fn missed(event: &Event) -> Vec<EventKind> {
    let hops = |to: Option<State>| {
        let walk = event.from.zip(to).and_then(|(from, to)| transition::walk(from, to)).unwrap_or_default();
        walk.iter().map(|hop| hop.trigger.event()).collect()
    };
    if event.kind == EventKind::MergeSucceeded && event.from < Some(State::Approved) {
        return hops(Some(State::Approved));
    }
    if event.kind != EventKind::StateDriftCorrected || event.withdraws_assumption() {
        return Vec::new();
    }
    let named_kinds = [EventKind::BranchUpdated, EventKind::PrClosed, EventKind::PrMerged, EventKind::MergeSucceeded];
    let named = named_kinds.into_iter().find(|kind| event.payload.name.as_deref() == Some(kind.name()));
    named.map_or_else(|| hops(event.to), |kind| vec![kind])
}

/// The failure behind a claimed remedy or an escalation: the transient rules that match the failed checks, and a digest of
/// their texts. Digits are ignored, because they differ from build to build.
pub fn failure_digest(record: &PullRequest, policy: &Policy) -> (Vec<String>, Option<String>) {
    if record.state != State::ChecksFailed {
        return (Vec::new(), None);
    }
    let (mut rules, mut text) = (BTreeSet::new(), String::new());
    for check in record.signals.failed_checks(record.required(policy)) {
        let failure = check.failure.as_ref();
        rules.extend(failure.and_then(|failure| failure.transient_rule.clone()));
        let message = failure.map(|failure| failure.text.as_str()).unwrap_or_default();
        text.push_str(&check.name);
        text.extend(message.chars().filter(|c| !c.is_ascii_digit()));
        text.push('\n');
    }
    (rules.into_iter().collect(), Some(format!("{:016x}", jitter_seed(&text, 0))))
}

/// How long a state lasts, in one repository or in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDuration {
    /// The repository; `None` for all of them.
    pub repo: Option<RepoName>,
    pub state: State,
    pub count: usize,
    /// How many of these ended without Suture or a person.
    pub undisturbed: usize,
    /// The median.
    pub p50_secs: u64,
    pub p95_secs: u64,
    pub p99_secs: u64,
    pub configured_minutes: u64,
    /// The threshold suggested by the stays without intervention, if there were enough.
    pub suggested_minutes: Option<u64>,
}

/// How events of one kind became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookStats {
    pub kind: EventKind,
    /// By a webhook.
    pub by_webhook: u64,
    /// By a sweep, or never, because the webhook was missing.
    pub missed: u64,
}

/// The outcomes of remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeCounts {
    pub claimed: u64,
    pub helped: u64,
    /// The same failure came back.
    pub failed_again: u64,
    /// The remedy could not be done, or the expected event never came.
    pub failed: u64,
    /// The remedy was never done, or was overtaken.
    pub dropped: u64,
}

impl OutcomeCounts {
    fn note(&mut self, end: Option<RunEnd>) {
        self.claimed += 1;
        match end {
            Some(RunEnd::Completed) => self.helped += 1,
            Some(RunEnd::NoEffect) => self.failed_again += 1,
            Some(RunEnd::Failed) => self.failed += 1,
            Some(RunEnd::Dropped | RunEnd::Cancelled) => self.dropped += 1,
            None => {}
        }
    }

    /// How many were done and have ended.
    pub fn finished(&self) -> u64 {
        self.helped + self.failed_again + self.failed
    }

    /// How many of the finished ones helped, in percent; `None` if none has finished.
    pub fn success_percent(&self) -> Option<f64> {
        percent(self.helped, self.finished())
    }
}

/// The outcomes of the retries of one transient rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransientRuleStats {
    pub rule: String,
    pub outcomes: OutcomeCounts,
    /// How many failed again with the same text, digits ignored.
    pub identical: u64,
}

impl TransientRuleStats {
    /// Whether its retries mostly fail identically, so that the failures it matches are not transient.
    pub fn is_flagged(&self) -> bool {
        self.identical >= FLAGGED_FROM && self.identical * 100 >= self.outcomes.finished() * FLAGGED_PERCENT
    }
}

/// All statistics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Insights {
    /// How long states last: all repositories first, then each; only states with samples.
    pub state_durations: Vec<StateDuration>,
    /// How events became known, by kind.
    pub webhooks: Vec<WebhookStats>,
    /// Outcomes of remedies, by strategy.
    pub remedies: Vec<(Strategy, OutcomeCounts)>,
    /// Outcomes of retries, by transient rule.
    pub rules: Vec<TransientRuleStats>,
}

/// `part` of `all` in percent, to one decimal; `None` if `all` is 0.
pub fn percent(part: u64, all: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts of events, far below what a float holds exactly")]
    (all > 0).then(|| (part as f64 * 1000.0 / all as f64).round() / 10.0)
}

/// Aggregates samples, given in log order.
pub fn aggregate<'a>(traces: impl IntoIterator<Item = &'a EventSample>, policies: &Policies) -> Insights {
    let mut by_pr: BTreeMap<&PrId, Vec<&EventSample>> = BTreeMap::new();
    for trace in traces {
        by_pr.entry(&trace.pr).or_default().push(trace);
    }
    let mut sums = InsightTotals::default();
    for (pr, traces) in &mut by_pr {
        traces.sort_by_key(|trace| trace.at);
        sums.stays(&pr.repo, traces);
        sums.webhooks(traces);
        sums.remedies(traces);
    }
    sums.into_insights(policies)
}

/// The seconds of each stay, and whether it ended without intervention.
type DurationSamples = Vec<(u64, bool)>;

#[derive(Default)]
struct InsightTotals {
    stays: BTreeMap<(Option<RepoName>, State), DurationSamples>,
    webhooks: BTreeMap<EventKind, (u64, u64)>,
    remedies: BTreeMap<Strategy, OutcomeCounts>,
    rules: BTreeMap<String, (OutcomeCounts, u64)>,
}

impl InsightTotals {
    /// Adds the time between entering and leaving each state, where both are known.
    fn stays(&mut self, repo: &RepoName, traces: &[&EventSample]) {
        let mut since: Option<(State, Timestamp, bool)> = None;
        for trace in traces {
            if let (Some(_), Some((_, _, remedied))) = (trace.strategy(), &mut since) {
                *remedied = true;
            }
            let Some(to) = trace.to else { continue };
            if let Some((state, at, remedied)) = since
                && trace.from == Some(state)
                && state.is_live()
            {
                let secs = u64::try_from(trace.at.duration_since(at).as_secs()).unwrap_or(0);
                for scope in [None, Some(repo.clone())] {
                    self.stays.entry((scope, state)).or_default().push((secs, trace.by_itself() && !remedied));
                }
            }
            since = Some((to, trace.at, false));
        }
    }

    /// Counts events that came by webhook and events that were missed. Suture's own changes are neither.
    fn webhooks(&mut self, traces: &[&EventSample]) {
        for trace in traces {
            for kind in &trace.missed {
                self.webhooks.entry(*kind).or_default().1 += 1;
            }
            if trace.kind == EventKind::PrOpened && trace.swept {
                self.webhooks.entry(trace.kind).or_default().1 += 1;
            } else if trace.to.is_some() && trace.by_itself() {
                self.webhooks.entry(trace.kind).or_default().0 += 1;
            }
        }
    }

    /// Counts each claimed remedy with the end of its run and, if it failed again, compares the next failure.
    fn remedies(&mut self, traces: &[&EventSample]) {
        for (n, claim) in traces.iter().enumerate() {
            let Some(strategy) = claim.strategy() else { continue };
            let later = &traces[n + 1..];
            let end =
                later.iter().find(|trace| trace.end.is_some() && trace.run == claim.run).and_then(|trace| trace.end);
            self.remedies.entry(strategy).or_default().note(end);
            let next_failure = later.iter().find(|trace| trace.failure.is_some());
            let identical =
                end == Some(RunEnd::NoEffect) && next_failure.is_some_and(|next| next.failure == claim.failure);
            for rule in claim.rules.iter().filter(|_| strategy == Strategy::Rebuild) {
                let (tally, same) = self.rules.entry(rule.clone()).or_default();
                tally.note(end);
                *same += u64::from(identical);
            }
        }
    }

    fn into_insights(self, policies: &Policies) -> Insights {
        let stay = |((repo, state), stays): ((Option<RepoName>, State), DurationSamples)| {
            let policy = repo.as_ref().map_or(policies.base(), |repo| policies.for_repo(repo));
            stay(repo, state, &stays, policy)
        };
        let webhooks =
            |(kind, (by_webhook, missed)): (EventKind, (u64, u64))| WebhookStats { kind, by_webhook, missed };
        let rule = |(rule, (tally, identical)): (String, (OutcomeCounts, u64))| TransientRuleStats {
            rule,
            outcomes: tally,
            identical,
        };
        Insights {
            state_durations: self.stays.into_iter().filter_map(stay).collect(),
            webhooks: self.webhooks.into_iter().map(webhooks).collect(),
            remedies: self.remedies.into_iter().collect(),
            rules: self.rules.into_iter().map(rule).collect(),
        }
    }
}

fn stay(repo: Option<RepoName>, state: State, stays: &DurationSamples, policy: &Policy) -> Option<StateDuration> {
    let configured = policy.threshold(state)?;
    let mut all: Vec<u64> = stays.iter().map(|(secs, _)| *secs).collect();
    all.sort_unstable();
    let mut undisturbed: Vec<u64> = stays.iter().filter(|(_, by_itself)| *by_itself).map(|(secs, _)| *secs).collect();
    undisturbed.sort_unstable();
    let suggested = (undisturbed.len() >= MIN_SAMPLES).then(|| suggested_minutes(percentile(&undisturbed, 99)));
    Some(StateDuration {
        repo,
        state,
        count: all.len(),
        undisturbed: undisturbed.len(),
        p50_secs: percentile(&all, 50),
        p95_secs: percentile(&all, 95),
        p99_secs: percentile(&all, 99),
        configured_minutes: u64::try_from(configured.as_secs() / 60).unwrap_or(0),
        suggested_minutes: suggested,
    })
}

/// The percentile of sorted values by nearest rank; 0 if there are none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn suggested_minutes(p99_secs: u64) -> u64 {
    (p99_secs.saturating_mul(MARGIN_PERCENT)).div_ceil(100 * 60).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RemedyUpdate;
    use crate::id::EventId;
    use crate::policy::Policies;
    use crate::signals::{CheckVerdict, PolicyVerdict};
    use crate::tests::fixture::PrScenario;

    fn insights(log: &[Event]) -> Insights {
        let traces: Vec<EventSample> = log.iter().filter_map(EventSample::of).collect();
        aggregate(&traces, &Policies::default())
    }

    /// The logs of several pull requests, concatenated under different numbers.
    fn renumbered(logs: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
        let of = |(number, log): (u64, Vec<Event>)| {
            log.into_iter().map(move |event| Event {
                pr: PrId::new(event.pr.repo.clone(), number),
                payload: crate::event::EventPayload {
                    run: event.payload.run.as_ref().map(|run| RunId::new(format!("{number}-{run}"))),
                    ..event.payload.clone()
                },
                id: EventId::new(format!("{number}-{}", event.id)),
                ..event
            })
        };
        (1..).zip(logs).flat_map(of).collect()
    }

    fn stay_in(insights: &Insights, state: State) -> &StateDuration {
        insights.state_durations.iter().find(|stay| stay.repo.is_none() && stay.state == state).unwrap()
    }

    #[test]
    fn state_durations_are_measured_overall_and_by_repository() {
        let stats = insights(&PrScenario::at(State::Merged).log);
        let everywhere: Vec<_> = stats.state_durations.iter().filter(|stay| stay.repo.is_none()).collect();
        let states: Vec<State> = everywhere.iter().map(|stay| stay.state).collect();
        assert_eq!(states.len(), 7, "{states:?}");
        assert!(everywhere.iter().all(|stay| (stay.count, stay.undisturbed, stay.p50_secs) == (1, 1, 60)));
        let here: Vec<_> = stats.state_durations.iter().filter(|stay| stay.repo.is_some()).collect();
        assert_eq!((here.len(), here[0].repo.as_ref().unwrap().as_str()), (7, "acme/my-app"));
    }

    #[test]
    fn percentiles_are_measured_values() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 95, 99].map(|percent| percentile(&hundred, percent)), [50, 95, 99]);
        assert_eq!([50, 95, 99].map(|percent| percentile(&[7], percent)), [7, 7, 7]);
        assert_eq!([50, 95, 99].map(|percent| percentile(&[1, 9], percent)), [1, 9, 9]);
        assert_eq!(percentile(&[], 99), 0);
    }

    #[test]
    fn threshold_is_suggested_from_20_undisturbed_stays() {
        let lasting = |secs: i64| {
            let mut scenario = PrScenario::at(State::ChecksRunning);
            scenario.now += jiff::SignedDuration::from_secs(secs);
            scenario.check("build", CheckVerdict::Passed);
            scenario.log
        };
        let nineteen = insights(&renumbered((1..20).map(|n| lasting(n * 60))));
        let stay = stay_in(&nineteen, State::ChecksRunning);
        assert_eq!((stay.count, stay.suggested_minutes, stay.configured_minutes), (19, None, 60));
        // 20 min at p99, plus 25 %; the test itself adds a minute.
        let twenty = insights(&renumbered((1..=20).map(|n| lasting(n * 60 - 60))));
        let stay = stay_in(&twenty, State::ChecksRunning);
        assert_eq!((stay.count, stay.undisturbed, stay.p99_secs, stay.suggested_minutes), (20, 20, 1200, Some(25)));
        assert_eq!([0, 1, 48, 49, 3600].map(suggested_minutes), [1, 1, 1, 2, 75]);
    }

    #[test]
    fn stay_ended_by_suture_is_not_counted_as_undisturbed() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.advance_minutes(40);
        scenario.sweep(scenario.github());
        scenario.remedy_update(RemedyUpdate::Accepted);
        scenario.advance_minutes(5);
        scenario.rerun("build", CheckVerdict::Passed, 8);
        let stats = insights(&scenario.log);
        let failed = stay_in(&stats, State::ChecksFailed);
        assert_eq!((failed.count, failed.undisturbed, failed.p50_secs), (1, 0, 2400));
        let rebuilt = stats
            .state_durations
            .iter()
            .find(|stay| stay.repo.is_none() && stay.state == State::ChecksRunning)
            .unwrap();
        assert_eq!((rebuilt.count, rebuilt.undisturbed), (2, 2), "the requested build took its own time");
        assert_eq!(stats.remedies.len(), 1);
        let (strategy, tally) = stats.remedies[0];
        assert_eq!((strategy, tally.claimed, tally.helped), (Strategy::Rebuild, 1, 1));
        assert_eq!((tally.success_percent(), OutcomeCounts::default().success_percent()), (Some(100.0), None));
    }

    #[test]
    fn event_is_counted_as_webhook_or_as_missed() {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.advance_minutes(5);
        let mut github = scenario.github();
        github.signals.note_check(&crate::tests::fixture::run_of("build", CheckVerdict::Passed, scenario.now), 250);
        github.signals.note_policy(&crate::tests::fixture::policy_says(PolicyVerdict::Passed, scenario.now));
        scenario.verify(github);
        assert_eq!(scenario.state(), State::PolicyPassed);
        scenario.advance_minutes(1);
        scenario.approve();
        let stats = insights(&scenario.log);
        let of = |kind: EventKind| {
            let webhooks = stats.webhooks.iter().find(|webhooks| webhooks.kind == kind);
            webhooks.map_or((0, 0), |webhooks| (webhooks.by_webhook, webhooks.missed))
        };
        assert_eq!(of(EventKind::PrOpened), (1, 0));
        assert_eq!(of(EventKind::ChecksStarted), (1, 0));
        assert_eq!((of(EventKind::ChecksPassed), of(EventKind::PolicyPassed)), ((0, 1), (0, 1)));
        assert_eq!(of(EventKind::ApprovalGranted), (1, 0));
        assert_eq!(of(EventKind::StateDriftCorrected), (0, 0));
        assert_eq!((percent(1, 8), percent(0, 3), percent(0, 0)), (Some(12.5), Some(0.0), None));
    }

    #[test]
    fn missed_pushes_and_merges_count_as_their_kind() {
        let mut scenario = PrScenario::at(State::Approved);
        let mut github = scenario.github();
        github.details.head = crate::tests::fixture::sha('b');
        github.signals = crate::signals::Signals::default();
        scenario.verify(github);
        scenario.advance_minutes(1);
        let mut merged = scenario.github();
        merged.state = crate::snapshot::PullRequestState::Merged { at: scenario.now, by: None, by_automerge_bot: true };
        scenario.verify(merged);
        assert_eq!(scenario.state(), State::Merged);
        let stats = insights(&scenario.log);
        let missed: Vec<_> =
            stats.webhooks.iter().filter(|webhooks| webhooks.missed > 0).map(|webhooks| webhooks.kind).collect();
        assert_eq!(missed, [EventKind::BranchUpdated, EventKind::MergeSucceeded]);
        // A merge after an approval whose webhook was missed.
        let mut scenario = PrScenario::at(State::PolicyPassed);
        scenario.apply(crate::event::FactKind::Merged { by: None, by_automerge_bot: true });
        let stats = insights(&scenario.log);
        let approval = stats.webhooks.iter().find(|webhooks| webhooks.kind == EventKind::ApprovalGranted).unwrap();
        assert_eq!((approval.by_webhook, approval.missed), (0, 1));
        let mut by_hand = PrScenario::at(State::PolicyPassed);
        by_hand.apply(crate::event::FactKind::Merged { by: Some("maria".to_owned()), by_automerge_bot: false });
        assert!(
            insights(&by_hand.log).webhooks.iter().all(|webhooks| webhooks.missed == 0),
            "a person may merge without approval"
        );
    }

    /// The log of a build that fails by the `network` rule with these texts, one retry per text.
    fn retried(words: &[&str]) -> Vec<Event> {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.fail("build", Some("network"), words[0]);
        for (n, said) in (8..).zip(words) {
            scenario.advance_minutes(60);
            scenario.sweep(scenario.github());
            scenario.remedy_update(RemedyUpdate::Accepted);
            scenario.advance_minutes(5);
            let failure = crate::tests::fixture::failed_because(Some("network"), words.get(n - 7).unwrap_or(said));
            let mut check = crate::tests::fixture::run_of("build", CheckVerdict::Failed, scenario.now);
            (check.id, check.failure) = (Some(n as u64), failure);
            scenario.apply(crate::event::FactKind::Check { head: scenario.head.clone(), check });
        }
        scenario.advance_minutes(60);
        scenario.sweep(scenario.github());
        scenario.log
    }

    #[test]
    fn rule_with_identical_retry_failures_is_flagged() {
        let stats = insights(&retried(&["reset by 10.0.0.1:443", "reset by 10.0.0.7:443", "reset by 10.0.0.9:443"]));
        let [rule] = &stats.rules[..] else { panic!("{:?}", stats.rules) };
        assert_eq!((rule.rule.as_str(), rule.outcomes.claimed, rule.outcomes.failed_again), ("network", 3, 3));
        assert_eq!((rule.identical, rule.is_flagged()), (3, true), "digits are ignored");
        assert_eq!(rule.outcomes.success_percent(), Some(0.0));
        let stats = insights(&retried(&["reset", "refused", "unreachable"]));
        // The escalation after the third retry repeats that retry's text.
        assert_eq!((stats.rules[0].identical, stats.rules[0].is_flagged()), (1, false));
        let healed = |mut rule: TransientRuleStats| {
            rule.outcomes.helped += 4;
            rule.is_flagged()
        };
        let rule = TransientRuleStats {
            rule: "x".to_owned(),
            outcomes: OutcomeCounts { failed_again: 3, ..OutcomeCounts::default() },
            identical: 3,
        };
        assert!(rule.is_flagged() && !healed(rule), "it mostly helps");
    }

    #[test]
    fn empty_log_gives_empty_insights() {
        assert_eq!(insights(&[]), Insights::default());
    }
}
