//! The check run on the head, which shows the state of the pull request. It is an effect like any other: decided with
//! the record, delivered after the commit, and sent only if its content changed; changed times alone do not count.

use jiff::SignedDuration;

use crate::command::{Command, CommandSource};
use crate::decide::{DecisionBuilder, EffectKind};
use crate::event::{CommandRequest, EventPayload, truncate};
use crate::policy::Mode;
use crate::pull_request::PublishedCheckRun;
use crate::state::State;
use crate::text::check_run;
use crate::time::saturating_after;

/// Versions of one check run differ by at least this much in time, so that the newer one is known.
const MIN_STEP: SignedDuration = SignedDuration::from_millis(1);

impl DecisionBuilder<'_> {
    /// Shows the result of a button on the check run, since a button has no comment to reply to.
    pub(super) fn show_button_result(&mut self, request: &CommandRequest, result: Result<Option<&str>, &str>) {
        if request.source != CommandSource::CheckRun {
            // A newer command makes the result of the last button obsolete.
            if let Some(shown) = &mut self.record.published_check {
                (shown.command_result, shown.explained) = (None, false);
            }
            return;
        }
        self.explain = request.command == Command::Explain && result.is_ok();
        self.command_result =
            Some(truncate(&check_run::button_result(&request.by, request.command, result), EventPayload::MAX_TEXT));
    }

    /// Adds an effect that updates the check run, if its content changed.
    pub(super) fn update_check_run(&mut self) {
        if !self.policy.check_run.enabled || self.policy.mode != Mode::Act {
            return;
        }
        let record = &self.record;
        let before = record.published_check.as_ref();
        if before.is_none() && record.state.is_terminal() {
            return;
        }
        // The diagnosis is shown as long as its remedy or escalation lasts.
        let ongoing = record.active_run.is_some() || record.state == State::NeedsIntervention;
        let diagnosis = self
            .diagnosis_text
            .clone()
            .or_else(|| before.filter(|_| ongoing).and_then(|shown| shown.diagnosis.clone()));
        let answered = self.command_result.is_some();
        let command_result =
            self.command_result.clone().or_else(|| before.and_then(|shown| shown.command_result.clone()));
        let explained = if answered { self.explain } else { before.is_some_and(|shown| shown.explained) };
        let at = before.map_or(self.now, |shown| self.now.max(saturating_after(shown.at, MIN_STEP)));
        let head = record.head_sha.clone();
        let mut shown = PublishedCheckRun { head, digest: 0, at, diagnosis, command_result, explained };
        shown.digest = check_run::digest(record, &shown, self.policy);
        // A repeated request for an explanation gets a fresh one.
        let same = before.is_some_and(|before| (&before.head, before.digest) == (&shown.head, shown.digest));
        if same && !self.explain {
            return;
        }
        let text = check_run::text(record, &shown, self.policy, self.now);
        self.record.published_check = Some(shown);
        self.add_effect(EffectKind::CheckRun { text, as_of: at });
    }
}
