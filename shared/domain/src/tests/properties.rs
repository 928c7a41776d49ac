//! Property tests: `decide` never panics, is deterministic and increments versions; the order and the number of
//! deliveries do not matter; a GitHub snapshot leads to the same state as the facts.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::fixture::{PrScenario, described, pr, sha, start};
use crate::backoff;
use crate::command::Command;
use crate::decide::{FactOutcome, decide};
use crate::event::{Actor, Fact, FactKind, PullRequestDetails, RemedyUpdate};
use crate::id::EventId;
use crate::policy::Mode;
use crate::signals::{
    ApprovalReport, CheckFailure, CheckKind, CheckReport, CheckVerdict, MergeReport, PolicyReport, PolicyVerdict,
    RenewalMark, Signals,
};
use crate::snapshot::{BuildStatus, LiveStatus, Mergeability, PullRequestState, Snapshot};
use crate::state::{State, Substatus};

const HEADS: [char; 3] = ['a', 'b', 'c'];
/// Pushes happen at these minutes; other facts at any minute.
const PUSHED_AT: [i64; 3] = [0, 20, 40];

fn at(minute: i64) -> Timestamp {
    start() + SignedDuration::from_mins(minute)
}

prop_compose! {
    fn any_check()(
        name in select(vec!["build", "lint", "scan"]),
        kind in select(vec![CheckKind::Run, CheckKind::Status]),
        verdict in select(vec![CheckVerdict::Queued, CheckVerdict::Running, CheckVerdict::Passed, CheckVerdict::Failed]),
        id in 1u64..4,
        minute in 0i64..60,
        started in proptest::option::of(0i64..3),
        transient in any::<bool>(),
    ) -> CheckReport {
        let failure = (verdict == CheckVerdict::Failed)
            .then(|| CheckFailure { transient_rule: transient.then(|| "timeout".to_owned()), text: format!("because {transient}") });
        let (id, started_at) = match kind {
            CheckKind::Run => (Some(id), started.map(at)),
            CheckKind::Status => (None, None),
        };
        CheckReport { name: name.to_owned(), kind, verdict, id, started_at, at: at(minute), failure, renewal: RenewalMark::None, posted_by: None }
    }
}

fn any_policy() -> impl Strategy<Value = PolicyReport> {
    let verdict = select(vec![
        PolicyVerdict::Evaluating,
        PolicyVerdict::Passed,
        PolicyVerdict::Failed(Substatus::SodFailure),
        PolicyVerdict::Failed(Substatus::OtherPolicyFailure),
    ]);
    (verdict, 0i64..60).prop_map(|(verdict, minute)| PolicyReport {
        verdict,
        at: at(minute),
        text: String::new(),
        renewal: RenewalMark::None,
    })
}

/// Any report on a commit.
fn any_report() -> impl Strategy<Value = FactKind> {
    let head = select(HEADS.to_vec()).prop_map(sha);
    let bot = select(vec!["approver-bot[bot]", "second-approver[bot]"]);
    prop_oneof![
        4 => (head.clone(), any_check()).prop_map(|(head, check)| FactKind::Check { head, check }),
        2 => (head.clone(), any_policy()).prop_map(|(head, report)| FactKind::Policy { head, report }),
        1 => (head.clone(), bot, any::<bool>(), 0i64..60).prop_map(|(head, by, granted, minute)| {
            FactKind::Approval { head, approval: ApprovalReport { by: by.to_owned(), granted, at: at(minute) } }
        }),
        1 => (head.clone(), any::<bool>(), 0i64..60).prop_map(|(head, failed, minute)| FactKind::Merge {
            head,
            report: MergeReport { failed, at: at(minute), text: String::new(), renewal: RenewalMark::None },
        }),
        1 => head.prop_map(|head| FactKind::ChecksRequested { head }),
    ]
}

fn time_of(what: &FactKind) -> Timestamp {
    match what {
        FactKind::Check { check, .. } => check.at,
        FactKind::Policy { report, .. } => report.at,
        FactKind::Approval { approval, .. } => approval.at,
        FactKind::Merge { report, .. } => report.at,
        _ => at(30),
    }
}

fn fact(n: usize, occurred_at: Timestamp, what: FactKind) -> Fact {
    Fact {
        id: EventId::new(format!("d{n}")),
        pr: pr(),
        occurred_at,
        actor: Actor::GithubWebhook,
        kind: what,
        described: None,
    }
}

/// Pushes and reports on any of the heads, ordered by time.
fn any_facts() -> impl Strategy<Value = Vec<Fact>> {
    (1usize..=3, prop::collection::vec(any_report(), 0..14)).prop_map(|(pushes, reports)| {
        let mut facts: Vec<Fact> =
            reports.into_iter().enumerate().map(|(n, what)| fact(n, time_of(&what), what)).collect();
        for n in 1..pushes {
            let before = Some(sha(HEADS[n - 1]));
            let what = FactKind::HeadMoved { described: described(&sha(HEADS[n])), before, by_suture: false };
            facts.push(fact(100 + n, at(PUSHED_AT[n]), what));
        }
        facts.sort_by_key(|fact| fact.occurred_at);
        facts
    })
}

fn apply_all(facts: &[Fact]) -> PrScenario {
    let mut scenario = PrScenario::opened();
    scenario.now = at(61);
    for fact in facts {
        scenario.apply_fact(fact);
    }
    scenario
}

/// GitHub's snapshot after all facts: the newest head, and every report on it.
fn final_snapshot(facts: &[Fact]) -> Snapshot {
    let pushes = facts.iter().filter(|fact| matches!(fact.kind, FactKind::HeadMoved { .. })).count();
    let head = sha(HEADS[pushes]);
    let mut signals = Signals::default();
    for fact in facts {
        match &fact.kind {
            FactKind::Check { head: on, check } if *on == head => _ = signals.note_check(check, 250),
            FactKind::Policy { head: on, report } if *on == head => _ = signals.note_policy(report),
            FactKind::Approval { head: on, approval } if *on == head => _ = signals.note_approval(approval),
            FactKind::Merge { head: on, report } if *on == head => _ = signals.note_merge(report),
            _ => {}
        }
    }
    Snapshot {
        read_at: at(61),
        details: described(&head),
        state: PullRequestState::Open,
        signals,
        required_checks: None,
        live: LiveStatus::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn order_and_number_of_deliveries_do_not_matter(
        facts in any_facts(),
        order in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let mut in_order = apply_all(&facts);
        // Some facts repeatedly, in any order, and each of them at least once.
        let mut shuffled: Vec<Fact> = Vec::new();
        let mut rest = facts.clone();
        for index in order {
            if facts.is_empty() {
                break;
            }
            shuffled.push(facts[index.index(facts.len())].clone());
            if !rest.is_empty() {
                shuffled.push(rest.remove(index.index(rest.len())));
            }
        }
        rest.reverse();
        shuffled.extend(rest);
        let mut out_of_order = apply_all(&shuffled);
        prop_assert_eq!(&in_order.record().head_sha, &out_of_order.record().head_sha);
        prop_assert_eq!(&in_order.record().signals, &out_of_order.record().signals);
        in_order.verify(final_snapshot(&facts));
        out_of_order.verify(final_snapshot(&facts));
        prop_assert_eq!(in_order.state(), out_of_order.state());
        prop_assert_eq!(in_order.record().substatus, out_of_order.record().substatus);
    }

    #[test]
    fn snapshot_leads_to_the_same_state_as_the_facts(facts in any_facts()) {
        let mut scenario = apply_all(&facts);
        let needs_verification = scenario.record().verify_reason.is_some();
        let state = scenario.state();
        let signals = scenario.record().signals.clone();
        scenario.verify(final_snapshot(&facts));
        prop_assert_eq!(&scenario.record().signals, &signals, "the snapshot has nothing that the facts did not have");
        if !needs_verification {
            prop_assert_eq!(scenario.state(), state);
        }
        prop_assert_eq!(scenario.state(), scenario.record().implied(&scenario.policy).state);
        prop_assert!(scenario.record().verify_reason.is_none());
    }

    #[test]
    fn merge_ends_in_merged_in_any_order(facts in any_facts(), place in any::<Index>()) {
        let mut facts = facts;
        let merged = fact(999, at(61), FactKind::Merged { by: None, by_automerge_bot: true });
        facts.insert(place.index(facts.len() + 1), merged);
        let scenario = apply_all(&facts);
        prop_assert_eq!(scenario.state(), State::Merged);
    }

    #[test]
    fn decide_never_panics_is_deterministic_and_increments_versions(
        steps in prop::collection::vec(any_step(), 1..40),
        observe in any::<bool>(),
    ) {
        let mut scenario = PrScenario::opened();
        if observe {
            scenario.policy.mode = Mode::Observe;
        }
        for (step, pass) in steps {
            scenario.advance_minutes(pass);
            let before = scenario.record.clone();
            step.take(&mut scenario);
            // `hear` has checked versions, due dates and hops; this checks that `decide` is deterministic.
            if let Some(what) = step.fact() {
                let fact = fact(7, scenario.now, what);
                let once = decide(&scenario.policy, scenario.record.clone(), &fact, scenario.now);
                prop_assert_eq!(&once, &decide(&scenario.policy, scenario.record.clone(), &fact, scenario.now));
                prop_assert!(!once.reason.is_empty());
                if let Some(after) = &once.record {
                    // Applying the same fact again adds no event.
                    let again = decide(&scenario.policy, Some(after.clone()), &fact, scenario.now);
                    prop_assert!(again.events.is_empty() || again.outcome == FactOutcome::Anomaly || !step.is_a_report());
                }
            }
            prop_assert!(!observe || scenario.last().effects.is_empty(), "observe mode takes no action");
            prop_assert!(!observe || scenario.record().active_run.is_none());
            let budgets = scenario.record().retry_counts;
            for strategy in crate::state::Strategy::ALL {
                prop_assert!(budgets.of(strategy) <= scenario.policy.budget(strategy), "{} is over its budget", strategy);
            }
            prop_assert!(scenario.record().lifetime_remedies <= scenario.policy.budgets.lifetime);
            prop_assert!(scenario.record().version >= before.map_or(0, |record| record.version));
        }
    }
}

/// Any fact or action, from outside or by Suture.
#[derive(Debug, Clone)]
enum RandomStep {
    Report(Box<FactKind>),
    Push(char, bool),
    Edit(Vec<String>, bool),
    Close,
    Merge,
    Reopen,
    Base,
    Skip,
    Sweep(Mergeability, u32, Option<BuildStatus>),
    News(RemedyUpdate),
    Command(Command),
}

fn any_step() -> impl Strategy<Value = (RandomStep, i64)> {
    let mergeable =
        select(vec![Mergeability::Unknown, Mergeability::Clean, Mergeability::Clean, Mergeability::Conflicting]);
    let build =
        select(vec![None, Some(BuildStatus::Gone), Some(BuildStatus::Finished), Some(BuildStatus::Unreachable)]);
    let update = select(vec![
        RemedyUpdate::Accepted,
        RemedyUpdate::Accepted,
        RemedyUpdate::Dropped { why: "guard".into() },
        RemedyUpdate::Failed { error: "500".into(), failure: backoff::AttemptFailure::Unavailable },
        RemedyUpdate::Failed { error: "conflict".into(), failure: backoff::AttemptFailure::MergeConflict },
        RemedyUpdate::Overdue,
    ]);
    let labels = select(vec![vec![], vec!["suture/hold".to_owned()], vec!["suture/priority-p0".to_owned()]]);
    let step = prop_oneof![
        8 => any_report().prop_map(|what| RandomStep::Report(Box::new(what))),
        1 => (select(HEADS.to_vec()), any::<bool>()).prop_map(|(head, by_suture)| RandomStep::Push(head, by_suture)),
        1 => (labels, any::<bool>()).prop_map(|(labels, draft)| RandomStep::Edit(labels, draft)),
        1 => Just(RandomStep::Close),
        1 => Just(RandomStep::Merge),
        2 => Just(RandomStep::Reopen),
        1 => Just(RandomStep::Base),
        1 => Just(RandomStep::Skip),
        8 => (mergeable, 0u32..3, build).prop_map(|(m, behind, build)| RandomStep::Sweep(m, behind, build)),
        6 => update.prop_map(RandomStep::News),
        3 => select(Command::ALL.to_vec()).prop_map(RandomStep::Command),
    ];
    (step, select(vec![0, 1, 15, 61, 130]))
}

impl RandomStep {
    /// The fact of a step that consists of one fact.
    fn fact(&self) -> Option<FactKind> {
        let shown =
            |labels: &[String], draft| PullRequestDetails { labels: labels.to_vec(), draft, ..described(&sha('a')) };
        match self {
            Self::Report(what) => Some((**what).clone()),
            Self::Edit(labels, draft) => Some(FactKind::Edited(shown(labels, *draft))),
            Self::Close => Some(FactKind::Closed { by: None, why: None }),
            Self::Merge => Some(FactKind::Merged { by: None, by_automerge_bot: false }),
            Self::Base => Some(FactKind::BaseMoved { base: "main".into() }),
            Self::Skip => Some(FactKind::Skipped { why: "502".into(), until: None, gate: None }),
            Self::Push(..) | Self::Reopen | Self::Sweep(..) | Self::News(_) | Self::Command(_) => None,
        }
    }

    fn is_a_report(&self) -> bool {
        matches!(self, Self::Report(_) | Self::Edit(..))
    }

    fn take(&self, scenario: &mut PrScenario) {
        match self {
            Self::Push(head, by_suture) => scenario.push(*head, *by_suture),
            Self::Reopen => scenario.apply(FactKind::Reopened(described(&scenario.head.clone()))),
            Self::Sweep(mergeable, behind_by, build) => {
                if !scenario.state().is_terminal() {
                    let mut github = scenario.github();
                    github.details.head = scenario.record().head_sha.clone();
                    github.live =
                        LiveStatus { mergeable: *mergeable, behind_by: Some(*behind_by), strict: true, build: *build };
                    scenario.sweep(github);
                }
            }
            Self::News(update) => scenario.remedy_update(update.clone()),
            Self::Command(command) => scenario.command(*command),
            Self::Report(_) | Self::Edit(..) | Self::Close | Self::Merge | Self::Base | Self::Skip => {
                if let Some(what) = self.fact() {
                    scenario.apply(what);
                }
            }
        }
    }
}
