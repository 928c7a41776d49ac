//! The living check run: one on each head, which says how the pull request stands. It is an effect like any other, decided
//! with the record and delivered after the commit, and only if it has something new to say; times alone are nothing new.

use jiff::SignedDuration;

use crate::command::{Command, CommandSource};
use crate::comment::check_run;
use crate::decide::{Draft, EffectKind};
use crate::event::{Commanded, Payload, cut};
use crate::policy::Mode;
use crate::pull_request::Shown;
use crate::state::State;
use crate::time::saturating_after;

/// Two texts of one check run are at least this far apart, so that their order is known.
const TICK: SignedDuration = SignedDuration::from_millis(1);

impl Draft<'_> {
    /// What became of a button that somebody pressed. It is told on the check run: a button leaves no comment.
    pub(super) fn answer_button(&mut self, asked: &Commanded, answer: Result<Option<&str>, &str>) {
        if asked.source != CommandSource::CheckRun {
            // What was asked for by a button is history once somebody has said something since.
            if let Some(shown) = &mut self.record.shown {
                (shown.asked, shown.explained) = (None, false);
            }
            return;
        }
        self.explain = asked.command == Command::Explain && answer.is_ok();
        self.asked = Some(cut(&check_run::answer(&asked.by, asked.command, answer), Payload::MAX_TEXT));
    }

    /// Keeps the check run on the head true.
    pub(super) fn show(&mut self) {
        if !self.policy.check_run.enabled || self.policy.mode != Mode::Act {
            return;
        }
        let record = &self.record;
        let before = record.shown.as_ref();
        if before.is_none() && record.state.is_terminal() {
            return;
        }
        // A diagnosis is worth showing as long as what came of it goes on.
        let goes_on = record.active_run.is_some() || record.state == State::NeedsIntervention;
        let because =
            self.because.clone().or_else(|| before.filter(|_| goes_on).and_then(|shown| shown.because.clone()));
        let answered = self.asked.is_some();
        let asked = self.asked.clone().or_else(|| before.and_then(|shown| shown.asked.clone()));
        let explained = if answered { self.explain } else { before.is_some_and(|shown| shown.explained) };
        let at = before.map_or(self.now, |shown| self.now.max(saturating_after(shown.at, TICK)));
        let head = record.head_sha.clone();
        let mut shown = Shown { head, digest: 0, at, because, asked, explained };
        shown.digest = check_run::digest(record, &shown, self.policy);
        // Whoever asks for an explanation once more wants the present one.
        let same = before.is_some_and(|before| (&before.head, before.digest) == (&shown.head, shown.digest));
        if same && !self.explain {
            return;
        }
        let text = check_run::text(record, &shown, self.policy, self.now);
        self.record.shown = Some(shown);
        self.effect(EffectKind::CheckRun { text, as_of: at });
    }
}
