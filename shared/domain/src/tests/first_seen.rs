//! Facts that overtake `opened`, and ends that are reported twice (R-HOOK-15, R-STATE-6).

use jiff::Timestamp;

use super::fixture::{PrScenario, described, minutes, pr, sha, start};
use crate::decide::{FactOutcome, HeadChange};
use crate::event::{Actor, EventKind, Fact, FactKind};
use crate::id::{EventId, Sha};
use crate::signals::ApprovalReport;
use crate::state::State;

/// A fact whose payload describes the pull request with this head.
fn described_fact(id: &str, at: Timestamp, kind: FactKind, head: &Sha) -> Fact {
    let described = Some(Box::new(described(head)));
    Fact { id: EventId::new(id), pr: pr(), occurred_at: at, actor: Actor::GithubWebhook, kind, described }
}

#[test]
fn close_or_merge_before_opened_creates_a_terminal_record() {
    let ends = [
        (FactKind::Closed { by: None, why: None }, State::Closed, EventKind::PrClosed),
        (FactKind::Merged { by: None, by_automerge_bot: true }, State::Merged, EventKind::MergeSucceeded),
    ];
    for (kind, state, event) in ends {
        let mut scenario = PrScenario::new();
        scenario.advance_minutes(10);
        scenario.apply_fact(&described_fact("end", start() + minutes(5), kind.clone(), &sha('b')));
        assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Applied, state));
        assert_eq!(scenario.kinds(), [EventKind::PrOpened, event]);
        assert!(scenario.last.as_ref().unwrap().effects.is_empty(), "a terminal record has no effects");
        // The events that it overtook change nothing, and neither does the same delivery again.
        scenario.apply_at(start(), FactKind::Opened(described(&sha('a'))));
        assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Ignored, state));
        scenario.apply_at(
            start() + minutes(4),
            FactKind::HeadMoved { described: described(&sha('b')), before: Some(sha('a')), by_suture: false },
        );
        assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Ignored, state));
        scenario.apply_fact(&described_fact("end", start() + minutes(5), kind, &sha('b')));
        assert_eq!((scenario.outcome(), scenario.record().head_sha.clone()), (FactOutcome::Duplicate, sha('b')));
    }
}

#[test]
fn close_that_overtakes_a_push_has_the_final_head() {
    for kind in [FactKind::Closed { by: None, why: None }, FactKind::Merged { by: None, by_automerge_bot: true }] {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        let pushed_at = scenario.now;
        scenario.advance_minutes(1);
        scenario.apply_fact(&described_fact("end", scenario.now, kind.clone(), &sha('b')));
        assert_eq!(
            (scenario.record().head_sha.clone(), scenario.record().past_heads.clone()),
            (sha('b'), vec![sha('a')])
        );
        let heads = &scenario.last.as_ref().unwrap().heads;
        assert_eq!(*heads, [HeadChange::Superseded(sha('a')), HeadChange::Superseded(sha('b'))]);
        let moved = FactKind::HeadMoved { described: described(&sha('b')), before: Some(sha('a')), by_suture: false };
        scenario.apply_at(pushed_at, moved);
        assert!(scenario.state().is_terminal() && scenario.record().head_sha == sha('b'));
        // A close older than the last push does not know the head.
        let mut newer = PrScenario::at(State::ChecksRunning);
        newer.push('c', false);
        let head_at = newer.record().head_at;
        newer.apply_fact(&described_fact("end", head_at - minutes(1), kind, &sha('b')));
        assert_eq!(newer.record().head_sha, sha('c'));
    }
}

#[test]
fn approval_before_opened_creates_the_record_and_counts() {
    let mut scenario = PrScenario::new();
    let approval = ApprovalReport { by: "approver-bot[bot]".into(), granted: true, at: start() };
    let kind = FactKind::Approval { head: sha('a'), approval };
    scenario.apply_fact(&described_fact("approval", start(), kind, &sha('a')));
    assert_eq!((scenario.state(), scenario.record().signals.approvals.len()), (State::Created, 1));
    assert_eq!(scenario.kinds(), [EventKind::PrOpened, EventKind::ApprovalGranted]);
    assert!(scenario.record().verify_reason.is_some(), "other events may have been missed");
}

#[test]
fn repeated_close_or_merge_is_a_duplicate() {
    let (closed, merged) =
        (FactKind::Closed { by: None, why: None }, FactKind::Merged { by: None, by_automerge_bot: true });
    for (kind, other) in [(&closed, &merged), (&merged, &closed)] {
        let mut scenario = PrScenario::at(State::Approved);
        scenario.apply(kind.clone());
        scenario.apply(kind.clone());
        assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
        scenario.apply(other.clone());
        assert_eq!(scenario.outcome(), FactOutcome::Ignored);
    }
}
