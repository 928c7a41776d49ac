//! Simulated users: they send commands, with and without permission, push, hold, merge and close; some react to an escalation mail
//! and repair the pull request.

use std::collections::BTreeMap;

use domain::time::saturating_after;
use fakes::{AuditedAction, FakePrId, Fakes, Fault};
use jiff::{SignedDuration, Timestamp};

use crate::dashboard_users::DashboardAction;
use crate::rng::SimulationRng;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserAction {
    /// A comment: pull request, login and text.
    Comment(FakePrId, &'static str, &'static str),
    Push(FakePrId),
    Merge(FakePrId),
    Close(FakePrId),
    Reopen(FakePrId),
    HoldLabel(FakePrId, bool),
    Draft(FakePrId, bool),
    PushBase(FakePrId),
    /// Requests a reconcile of this pull request.
    Sweep(FakePrId),
    Dashboard(FakePrId, DashboardAction),
    /// Repairs an escalated pull request.
    Repair(FakePrId),
}

type UserAgenda = BTreeMap<(Timestamp, u64), UserAction>;

#[derive(Debug)]
pub(crate) struct SimulatedUsers {
    rng: SimulationRng,
    planned: UserAgenda,
    count: u64,
    escalations: BTreeMap<FakePrId, u32>,
    /// Comments without a reaction yet, by deadline and comment id.
    unacknowledged: UserAgenda,
}

/// A user repeats a command without a reaction after this time, because webhooks can be lost.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(45);

impl SimulatedUsers {
    pub(crate) fn new(seed: u64) -> Self {
        let (planned, unacknowledged) = (UserAgenda::new(), UserAgenda::new());
        Self { rng: SimulationRng::new(seed, 2), planned, count: 0, escalations: BTreeMap::new(), unacknowledged }
    }

    pub(crate) fn plan(&mut self, at: Timestamp, action: UserAction) {
        self.count += 1;
        self.planned.insert((at, self.count), action);
    }

    /// A random duration with a resolution of seconds, so that not all actions fall on the minute.
    fn minutes(&mut self, low: u64, high: u64) -> SignedDuration {
        self.rng.seconds(low * 60, high * 60)
    }

    /// Plans an action and its reversal.
    fn plan_both(&mut self, at: Timestamp, action: UserAction, undo: UserAction, (low, high): (u64, u64)) {
        let until = self.minutes(low, high);
        self.plan(at, action);
        self.plan(saturating_after(at, until), undo);
    }

    /// Plans the users' actions on a new pull request; most get none.
    pub(crate) fn pull_request_opened(&mut self, pr: &FakePrId, now: Timestamp) {
        if !self.rng.happens(300) {
            return;
        }
        let wait = self.minutes(0, 120);
        let at = saturating_after(now, wait);
        let pr = pr.clone();
        let login = self.rng.pick(["danny", "maria", "guest"]);
        match self.rng.below(22) {
            0..=4 => {
                let text = self.rng.pick([
                    "/status",
                    "/explain",
                    "/rebuild",
                    "/recheck-policy",
                    "/recheck-sod",
                    "/recheck-approval",
                    "/merge",
                    "/update-branch",
                    "/approve",
                    "/rebild please",
                ]);
                self.plan(at, UserAction::Comment(pr, login, text));
            }
            5 | 6 => {
                let hold = UserAction::Comment(pr.clone(), "danny", "/hold until the release is out");
                self.plan_both(at, hold, UserAction::Comment(pr, "danny", "/resume"), (5, 180));
            }
            7 => self.plan(at, UserAction::Comment(pr, "maria", "/cancel not needed any more")),
            8 => self.plan(at, UserAction::Comment(pr, "maria", "/close-and-reopen")),
            9 => self.plan(at, UserAction::Push(pr)),
            10 => self.plan(at, UserAction::Merge(pr)),
            11 => {
                let until = self.minutes(0, 60);
                let reopens = self.rng.happens(700);
                self.plan(at, UserAction::Close(pr.clone()));
                if reopens {
                    self.plan(saturating_after(at, until), UserAction::Reopen(pr));
                }
            }
            12 => {
                let (hold, resume) = (UserAction::HoldLabel(pr.clone(), true), UserAction::HoldLabel(pr, false));
                self.plan_both(at, hold, resume, (5, 120));
            }
            13 => {
                let (draft, ready) = (UserAction::Draft(pr.clone(), true), UserAction::Draft(pr, false));
                self.plan_both(at, draft, ready, (1, 90));
            }
            14 => self.plan(at, UserAction::PushBase(pr)),
            15..=20 => self.plan_dashboard(at, pr),
            _ => self.plan(at, UserAction::Sweep(pr)),
        }
    }

    /// Plans a dashboard action. A pause or hold is undone later.
    fn plan_dashboard(&mut self, at: Timestamp, pr: FakePrId) {
        let until = self.minutes(3, 60);
        let (action, undo) = match self.rng.below(6) {
            0 => (DashboardAction::Pause, Some(DashboardAction::Unpause)),
            1 => (DashboardAction::Command("/hold"), Some(DashboardAction::Command("/resume"))),
            _ => {
                let action = self.rng.pick([
                    DashboardAction::Look,
                    DashboardAction::Sweep,
                    DashboardAction::CancelRun,
                    DashboardAction::ApproveRun,
                    DashboardAction::RejectRun,
                    DashboardAction::ResetBreaker,
                    DashboardAction::Command("/rebuild"),
                    DashboardAction::Command("/recheck-policy"),
                    DashboardAction::Command("/recheck-approval"),
                    DashboardAction::Command("/merge"),
                    DashboardAction::Command("/update-branch"),
                    DashboardAction::Command("/close-and-reopen"),
                ]);
                (action, None)
            }
        };
        self.plan(at, UserAction::Dashboard(pr.clone(), action));
        if let Some(undo) = undo {
            self.plan(saturating_after(at, until), UserAction::Dashboard(pr, undo));
        }
    }

    /// Plans a repair after some escalations.
    pub(crate) fn escalated(&mut self, pr: &FakePrId, now: Timestamp) {
        let times = self.escalations.entry(pr.clone()).or_default();
        *times += 1;
        if *times <= 2 && self.rng.happens(500) {
            let wait = self.minutes(5, 240);
            self.plan(saturating_after(now, wait), UserAction::Repair(pr.clone()));
        }
    }

    /// Remembers a `/resume` until it gets a reaction; a lost one would hold the pull request for ever.
    pub(crate) fn commented(&mut self, action: &UserAction, comment: Option<u64>, now: Timestamp) {
        if let (UserAction::Comment(_, _, "/resume"), Some(comment)) = (action, comment) {
            self.unacknowledged.insert((saturating_after(now, REPEAT_AFTER), comment), action.clone());
        }
    }

    /// Plans comments without a reaction again after the deadline.
    pub(crate) fn repeat_unacknowledged(&mut self, fakes: &Fakes, now: Timestamp) {
        while let Some(entry) = self.unacknowledged.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, comment), action) = entry.remove_entry();
            let UserAction::Comment(pr, ..) = &action else { continue };
            let acknowledged = fakes.comments(pr).any(|one| one.id == comment && !one.reactions.is_empty());
            if !acknowledged && is_open(fakes, pr) {
                self.plan(now, action);
            }
        }
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        let first = |agenda: &UserAgenda| agenda.first_key_value().map(|((at, _), _)| *at);
        [first(&self.planned), first(&self.unacknowledged)].into_iter().flatten().min()
    }

    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<UserAction> {
        let mut due = Vec::new();
        while let Some(entry) = self.planned.first_entry().filter(|entry| entry.key().0 <= now) {
            due.push(entry.remove());
        }
        due
    }

    pub(crate) fn is_done(&self) -> bool {
        self.planned.is_empty() && self.unacknowledged.is_empty()
    }
}

impl UserAction {
    /// Applies the action to the fakes and returns the id of a new comment. Sweeps and dashboard actions go to Suture instead.
    pub(crate) fn apply(&self, fakes: &mut Fakes) -> Option<u64> {
        match self {
            Self::Comment(pr, login, text) => return fakes.person_comments(pr, login, text),
            Self::Push(pr) if is_open(fakes, pr) => _ = fakes.person_pushes(pr, "danny"),
            Self::Merge(pr) => fakes.person_merges(pr, "maria"),
            Self::Close(pr) if is_open(fakes, pr) => fakes.person_closes(pr, "maria"),
            Self::Reopen(pr) if was_closed_by(fakes, pr, "maria") => _ = fakes.person_reopens(pr, "maria"),
            Self::HoldLabel(pr, true) => fakes.person_labels(pr, "danny", "suture/hold"),
            Self::HoldLabel(pr, false) => fakes.person_unlabels(pr, "danny", "suture/hold"),
            Self::Draft(pr, draft) if is_open(fakes, pr) => fakes.person_drafts(pr, "danny", *draft),
            Self::PushBase(pr) => fakes.push_base(&pr.repo),
            Self::Repair(pr) if is_open(fakes, pr) => repair(fakes, pr),
            Self::Push(_)
            | Self::Close(_)
            | Self::Reopen(_)
            | Self::Draft(..)
            | Self::Repair(_)
            | Self::Dashboard(..)
            | Self::Sweep(_) => {}
        }
        None
    }
}

/// Users reopen only pull requests that they closed themselves.
fn was_closed_by(fakes: &Fakes, pr: &FakePrId, login: &str) -> bool {
    let mut closings = fakes.audit().iter().rev().filter(|effect| effect.action == AuditedAction::PullClosed);
    closings.find(|effect| effect.pr.as_ref() == Some(pr)).is_some_and(|effect| effect.by == login)
}

fn is_open(fakes: &Fakes, pr: &FakePrId) -> bool {
    fakes.pull(pr).is_some_and(fakes::FakePull::is_open)
}

fn repair(fakes: &mut Fakes, pr: &FakePrId) {
    match fakes.needs_a_person(pr) {
        Some(Fault::ConflictAgain) => _ = fakes.person_resolves(pr, "danny"),
        Some(Fault::PolicyMisconfigured) => fakes.person_repairs_policy(pr),
        Some(_) => _ = fakes.person_pushes(pr, "danny"),
        // Nothing visible to repair, so the user merges it.
        None => fakes.person_merges(pr, "maria"),
    }
}
