//! People, as they are: they ask, they command what they may and what they may not, they push, hold, merge and close; and some
//! of them read their mail and repair what nobody else can.

use std::collections::BTreeMap;

use fakes::{Action, Fakes, Pr};
use jiff::{SignedDuration, Timestamp};

use super::chance::Chance;
use super::desk::Button;
use super::queue::later;

/// Something somebody does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Writes a comment.
    Says(Pr, &'static str, &'static str),
    Pushes(Pr),
    Merges(Pr),
    Closes(Pr),
    Reopens(Pr),
    Labels(Pr, bool),
    Drafts(Pr, bool),
    PushesBase(Pr),
    /// Asks for a sweep of this one.
    Sweeps(Pr),
    /// Presses a button of the dashboard.
    Presses(Pr, Button),
    /// Has read the mail, and repairs.
    Repairs(Pr),
}

/// What people are going to do.
#[derive(Debug)]
pub(crate) struct People {
    chance: Chance,
    plans: BTreeMap<(Timestamp, u64), Act>,
    planned: u64,
    repaired: BTreeMap<Pr, u32>,
    /// Commands that somebody waits to see acknowledged: when they look, the comment, and what it said.
    waiting: BTreeMap<(Timestamp, u64), Act>,
}

/// Somebody who sees no reaction to a command after this long says it again: webhooks get lost.
const UNHEARD_AFTER: SignedDuration = SignedDuration::from_mins(45);

impl People {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed, 2),
            plans: BTreeMap::new(),
            planned: 0,
            repaired: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    fn plan(&mut self, at: Timestamp, act: Act) {
        self.planned += 1;
        self.plans.insert((at, self.planned), act);
    }

    fn minutes(&mut self, low: u64, high: u64) -> SignedDuration {
        // In seconds, so that not everything happens on the minute.
        SignedDuration::from_secs(i64::try_from(self.chance.between(low * 60, high * 60)).unwrap_or(60))
    }

    /// There is a new pull request: somebody may have plans with it.
    pub(crate) fn hear_of(&mut self, pr: &Pr, now: Timestamp) {
        if !self.chance.happens(300) {
            return;
        }
        let wait = self.minutes(0, 120);
        let at = later(now, wait);
        let pr = pr.clone();
        let who = *self.chance.pick(&["danny", "maria", "guest"]).unwrap_or(&"danny");
        match self.chance.below(22) {
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
                let what = *self.chance.pick(&ASKS).unwrap_or(&"/status");
                self.plan(at, Act::Says(pr, who, what));
            }
            5 | 6 => {
                let until = self.minutes(5, 180);
                self.plan(at, Act::Says(pr.clone(), "danny", "/hold until the release is out"));
                self.plan(later(at, until), Act::Says(pr, "danny", "/resume"));
            }
            7 => self.plan(at, Act::Says(pr, "maria", "/cancel not needed any more")),
            8 => self.plan(at, Act::Says(pr, "maria", "/close-and-reopen")),
            9 => self.plan(at, Act::Pushes(pr)),
            10 => self.plan(at, Act::Merges(pr)),
            11 => {
                let until = self.minutes(0, 60);
                let back = self.chance.happens(700);
                self.plan(at, Act::Closes(pr.clone()));
                if back {
                    self.plan(later(at, until), Act::Reopens(pr));
                }
            }
            12 => {
                let until = self.minutes(5, 120);
                self.plan(at, Act::Labels(pr.clone(), true));
                self.plan(later(at, until), Act::Labels(pr, false));
            }
            13 => {
                let until = self.minutes(1, 90);
                self.plan(at, Act::Drafts(pr.clone(), true));
                self.plan(later(at, until), Act::Drafts(pr, false));
            }
            14 => self.plan(at, Act::PushesBase(pr)),
            15..=20 => self.sit_down(at, pr),
            _ => self.plan(at, Act::Sweeps(pr)),
        }
    }

    /// Somebody sits down at the dashboard. What they stop they let go again.
    fn sit_down(&mut self, at: Timestamp, pr: Pr) {
        const BUTTONS: [Button; 12] = [
            Button::Look,
            Button::Sweep,
            Button::CancelRun,
            Button::ApproveRun,
            Button::RejectRun,
            Button::ResetBreaker,
            Button::Command("/rebuild"),
            Button::Command("/recheck-policy"),
            Button::Command("/recheck-approval"),
            Button::Command("/merge"),
            Button::Command("/update-branch"),
            Button::Command("/close-and-reopen"),
        ];
        let until = self.minutes(3, 60);
        match self.chance.below(6) {
            0 => {
                self.plan(at, Act::Presses(pr.clone(), Button::Pause));
                self.plan(later(at, until), Act::Presses(pr, Button::Unpause));
            }
            1 => {
                self.plan(at, Act::Presses(pr.clone(), Button::Command("/hold")));
                self.plan(later(at, until), Act::Presses(pr, Button::Command("/resume")));
            }
            _ => {
                let button = *self.chance.pick(&BUTTONS).unwrap_or(&Button::Look);
                self.plan(at, Act::Presses(pr, button));
            }
        }
    }

    /// Somebody is going to press this.
    pub(crate) fn will_press(&mut self, at: Timestamp, pr: Pr, button: Button) {
        self.plan(at, Act::Presses(pr, button));
    }

    /// A person was called: some come.
    pub(crate) fn called(&mut self, pr: &Pr, now: Timestamp) {
        let times = self.repaired.entry(pr.clone()).or_default();
        *times += 1;
        if *times <= 2 && self.chance.happens(500) {
            let wait = self.minutes(5, 240);
            self.plan(later(now, wait), Act::Repairs(pr.clone()));
        }
    }

    /// Something was said, as this comment: who lets a pull request go makes sure of it.
    pub(crate) fn wait_for(&mut self, act: &Act, comment: Option<u64>, now: Timestamp) {
        if let (Act::Says(_, _, "/resume"), Some(comment)) = (act, comment) {
            self.waiting.insert((later(now, UNHEARD_AFTER), comment), act.clone());
        }
    }

    /// What nobody has reacted to by now.
    pub(crate) fn unheard(&mut self, world: &Fakes, now: Timestamp) -> Vec<Act> {
        let mut acts = Vec::new();
        while let Some(((at, comment), act)) = self.waiting.pop_first() {
            if at > now {
                self.waiting.insert((at, comment), act);
                break;
            }
            let Act::Says(pr, ..) = &act else { continue };
            let heard = world.comments(pr).any(|one| one.id == comment && !one.reactions.is_empty());
            if !heard && is_open(world, pr) {
                acts.push(act);
            }
        }
        acts
    }

    /// It is said again.
    pub(crate) fn again(&mut self, act: Act, now: Timestamp) {
        self.plan(now, act);
    }

    /// When somebody next does something.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        let first = |acts: &BTreeMap<(Timestamp, u64), Act>| acts.first_key_value().map(|((at, _), _)| *at);
        [first(&self.plans), first(&self.waiting)].into_iter().flatten().min()
    }

    /// What is done by now.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Act> {
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

impl Act {
    /// Does it to the world, and answers which comment was written; a sweep is asked for elsewhere.
    pub(crate) fn happen(&self, world: &mut Fakes) -> Option<u64> {
        match self {
            Self::Says(pr, who, what) => return world.person_comments(pr, who, what),
            Self::Pushes(pr) if is_open(world, pr) => _ = world.person_pushes(pr, "danny"),
            Self::Merges(pr) => world.person_merges(pr, "maria"),
            Self::Closes(pr) if is_open(world, pr) => world.person_closes(pr, "maria"),
            Self::Reopens(pr) if was_closed_by(world, pr, "maria") => _ = world.person_reopens(pr, "maria"),
            Self::Labels(pr, true) => world.person_labels(pr, "danny", "suture/hold"),
            Self::Labels(pr, false) => world.person_unlabels(pr, "danny", "suture/hold"),
            Self::Drafts(pr, draft) if is_open(world, pr) => world.person_drafts(pr, "danny", *draft),
            Self::PushesBase(pr) => world.push_base(&pr.repo),
            Self::Repairs(pr) if is_open(world, pr) => repair(world, pr),
            Self::Pushes(_)
            | Self::Closes(_)
            | Self::Reopens(_)
            | Self::Drafts(..)
            | Self::Repairs(_)
            | Self::Presses(..)
            | Self::Sweeps(_) => {}
        }
        None
    }
}

/// People reopen what they have closed, not what was closed for a reason.
fn was_closed_by(world: &Fakes, pr: &Pr, login: &str) -> bool {
    let mut closings = world.audit().iter().rev().filter(|effect| effect.action == Action::PullClosed);
    closings.find(|effect| effect.pr.as_ref() == Some(pr)).is_some_and(|effect| effect.by == login)
}

fn is_open(world: &Fakes, pr: &Pr) -> bool {
    world.pull(pr).is_some_and(fakes::Pull::is_open)
}

/// Does what is needed, as far as it is known.
fn repair(world: &mut Fakes, pr: &Pr) {
    match world.needs_a_person(pr) {
        Some(why) if why.contains("conflict") => _ = world.person_resolves(pr, "danny"),
        Some(why) if why.contains("policy") => world.person_repairs_policy(pr),
        Some(_) => _ = world.person_pushes(pr, "danny"),
        // Called for nothing, as far as anybody can see: merged by hand.
        None => world.person_merges(pr, "maria"),
    }
}
