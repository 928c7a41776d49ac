//! Users, as they are: they ask, they command what they may and what they may not, they push, hold, merge and close; and some
//! of them read their mail and repair what nobody else can.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use world::{Deed, Pr, World};

use crate::dashboard_users::DashboardAction;
use crate::queue::later;
use crate::rng::Rng;

/// Something somebody does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserAction {
    /// Writes a comment.
    Says(Pr, &'static str, &'static str),
    Pushes(Pr),
    Merges(Pr),
    Closes(Pr),
    ReopenChange(Pr),
    Labels(Pr, bool),
    Drafts(Pr, bool),
    PushesBase(Pr),
    /// Asks for a sweep of this one.
    Sweeps(Pr),
    /// Presses a button of the dashboard.
    Presses(Pr, DashboardAction),
    /// Has read the mail, and repairs.
    Repairs(Pr),
}

/// What people are going to do.
#[derive(Debug)]
pub(crate) struct Users {
    rng: Rng,
    plans: BTreeMap<(Timestamp, u64), UserAction>,
    planned: u64,
    repaired: BTreeMap<Pr, u32>,
    /// Commands that somebody waits to see acknowledged: when they look, the comment, and what it said.
    waiting: BTreeMap<(Timestamp, u64), UserAction>,
}

/// Somebody who sees no reaction to a command after this long says it again: webhooks get lost.
const UNHEARD_AFTER: SignedDuration = SignedDuration::from_mins(45);

impl Users {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, 2),
            plans: BTreeMap::new(),
            planned: 0,
            repaired: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    fn plan(&mut self, at: Timestamp, act: UserAction) {
        self.planned += 1;
        self.plans.insert((at, self.planned), act);
    }

    fn minutes(&mut self, low: u64, high: u64) -> SignedDuration {
        // In seconds, so that not everything happens on the minute.
        SignedDuration::from_secs(i64::try_from(self.rng.between(low * 60, high * 60)).unwrap_or(60))
    }

    /// There is a new pull request: somebody may have plans with it.
    pub(crate) fn hear_of(&mut self, pr: &Pr, now: Timestamp) {
        if !self.rng.happens(300) {
            return;
        }
        let wait = self.minutes(0, 120);
        let at = later(now, wait);
        let pr = pr.clone();
        let who = *self.rng.pick(&["danny", "maria", "guest"]).unwrap_or(&"danny");
        match self.rng.below(22) {
            0..=4 => {
                const ASKS: [&str; 10] = [
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
                ];
                let what = *self.rng.pick(&ASKS).unwrap_or(&"/status");
                self.plan(at, UserAction::Says(pr, who, what));
            }
            5 | 6 => {
                let until = self.minutes(5, 180);
                self.plan(at, UserAction::Says(pr.clone(), "danny", "/hold until the release is out"));
                self.plan(later(at, until), UserAction::Says(pr, "danny", "/resume"));
            }
            7 => self.plan(at, UserAction::Says(pr, "maria", "/cancel not needed any more")),
            8 => self.plan(at, UserAction::Says(pr, "maria", "/close-and-reopen")),
            9 => self.plan(at, UserAction::Pushes(pr)),
            10 => self.plan(at, UserAction::Merges(pr)),
            11 => {
                let until = self.minutes(0, 60);
                let back = self.rng.happens(700);
                self.plan(at, UserAction::Closes(pr.clone()));
                if back {
                    self.plan(later(at, until), UserAction::ReopenChange(pr));
                }
            }
            12 => {
                let until = self.minutes(5, 120);
                self.plan(at, UserAction::Labels(pr.clone(), true));
                self.plan(later(at, until), UserAction::Labels(pr, false));
            }
            13 => {
                let until = self.minutes(1, 90);
                self.plan(at, UserAction::Drafts(pr.clone(), true));
                self.plan(later(at, until), UserAction::Drafts(pr, false));
            }
            14 => self.plan(at, UserAction::PushesBase(pr)),
            15..=20 => self.sit_down(at, pr),
            _ => self.plan(at, UserAction::Sweeps(pr)),
        }
    }

    /// Somebody sits down at the dashboard. What they stop they let go again.
    fn sit_down(&mut self, at: Timestamp, pr: Pr) {
        const BUTTONS: [DashboardAction; 12] = [
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
        ];
        let until = self.minutes(3, 60);
        match self.rng.below(6) {
            0 => {
                self.plan(at, UserAction::Presses(pr.clone(), DashboardAction::Pause));
                self.plan(later(at, until), UserAction::Presses(pr, DashboardAction::Unpause));
            }
            1 => {
                self.plan(at, UserAction::Presses(pr.clone(), DashboardAction::Command("/hold")));
                self.plan(later(at, until), UserAction::Presses(pr, DashboardAction::Command("/resume")));
            }
            _ => {
                let button = *self.rng.pick(&BUTTONS).unwrap_or(&DashboardAction::Look);
                self.plan(at, UserAction::Presses(pr, button));
            }
        }
    }

    /// Somebody is going to press this.
    pub(crate) fn will_press(&mut self, at: Timestamp, pr: Pr, button: DashboardAction) {
        self.plan(at, UserAction::Presses(pr, button));
    }

    /// A person was called: some come.
    pub(crate) fn called(&mut self, pr: &Pr, now: Timestamp) {
        let times = self.repaired.entry(pr.clone()).or_default();
        *times += 1;
        if *times <= 2 && self.rng.happens(500) {
            let wait = self.minutes(5, 240);
            self.plan(later(now, wait), UserAction::Repairs(pr.clone()));
        }
    }

    /// Something was said, as this comment: who lets a pull request go makes sure of it.
    pub(crate) fn wait_for(&mut self, act: &UserAction, comment: Option<u64>, now: Timestamp) {
        if let (UserAction::Says(_, _, "/resume"), Some(comment)) = (act, comment) {
            self.waiting.insert((later(now, UNHEARD_AFTER), comment), act.clone());
        }
    }

    /// What nobody has reacted to by now.
    pub(crate) fn unheard(&mut self, world: &World, now: Timestamp) -> Vec<UserAction> {
        let mut acts = Vec::new();
        while let Some(((at, comment), act)) = self.waiting.pop_first() {
            if at > now {
                self.waiting.insert((at, comment), act);
                break;
            }
            let UserAction::Says(pr, ..) = &act else { continue };
            let heard = world.comments(pr).any(|one| one.id == comment && !one.reactions.is_empty());
            if !heard && is_open(world, pr) {
                acts.push(act);
            }
        }
        acts
    }

    /// It is said again.
    pub(crate) fn again(&mut self, act: UserAction, now: Timestamp) {
        self.plan(now, act);
    }

    /// When somebody next does something.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        let first = |acts: &BTreeMap<(Timestamp, u64), UserAction>| acts.first_key_value().map(|((at, _), _)| *at);
        [first(&self.plans), first(&self.waiting)].into_iter().flatten().min()
    }

    /// What is done by now.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<UserAction> {
        let mut acts = Vec::new();
        while self.plans.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            acts.extend(self.plans.pop_first().map(|(_, act)| act));
        }
        acts
    }

    /// Whether nobody has plans any more.
    pub(crate) fn is_done(&self) -> bool {
        self.plans.is_empty() && self.waiting.is_empty()
    }
}

impl UserAction {
    /// Does it to the world, and answers which comment was written; a sweep is asked for elsewhere.
    pub(crate) fn happen(&self, world: &mut World) -> Option<u64> {
        match self {
            Self::Says(pr, who, what) => return world.person_comments(pr, who, what),
            Self::Pushes(pr) if is_open(world, pr) => _ = world.person_pushes(pr, "danny"),
            Self::Merges(pr) => world.person_merges(pr, "maria"),
            Self::Closes(pr) if is_open(world, pr) => world.person_closes(pr, "maria"),
            Self::ReopenChange(pr) if was_closed_by(world, pr, "maria") => _ = world.person_reopens(pr, "maria"),
            Self::Labels(pr, true) => world.person_labels(pr, "danny", "suture/hold"),
            Self::Labels(pr, false) => world.person_unlabels(pr, "danny", "suture/hold"),
            Self::Drafts(pr, draft) if is_open(world, pr) => world.person_drafts(pr, "danny", *draft),
            Self::PushesBase(pr) => world.push_base(&pr.repo),
            Self::Repairs(pr) if is_open(world, pr) => repair(world, pr),
            Self::Pushes(_)
            | Self::Closes(_)
            | Self::ReopenChange(_)
            | Self::Drafts(..)
            | Self::Repairs(_)
            | Self::Presses(..)
            | Self::Sweeps(_) => {}
        }
        None
    }
}

/// Users reopen what they have closed, not what was closed for a reason.
fn was_closed_by(world: &World, pr: &Pr, login: &str) -> bool {
    let mut closings = world.effects().iter().rev().filter(|effect| effect.deed == Deed::PullClosed);
    closings.find(|effect| effect.pr.as_ref() == Some(pr)).is_some_and(|effect| effect.by == login)
}

fn is_open(world: &World, pr: &Pr) -> bool {
    world.pull(pr).is_some_and(world::Pull::is_open)
}

/// Does what is needed, as far as it is known.
fn repair(world: &mut World, pr: &Pr) {
    match world.needs_a_person(pr) {
        Some(why) if why.contains("conflict") => _ = world.person_resolves(pr, "danny"),
        Some(why) if why.contains("policy") => world.person_repairs_policy(pr),
        Some(_) => _ = world.person_pushes(pr, "danny"),
        // Called for nothing, as far as anybody can see: merged by hand.
        None => world.person_merges(pr, "maria"),
    }
}
