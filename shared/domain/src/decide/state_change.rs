//! The two ways to change the state of a record: a transition of the table, and drift correction, which is the only one
//! that the table does not limit (R-STATE-14).

use jiff::Timestamp;

use crate::decide::DecisionBuilder;
use crate::state::{State, Substatus};
use crate::transition::{self, TransitionTrigger};

impl DecisionBuilder<'_> {
    /// Changes the state by a transition of the table, and returns the change for the log. `None` if the table does not
    /// allow it; then nothing changes. The new state counts from `at`, but never from an earlier time than before.
    pub(super) fn enter(
        &mut self,
        trigger: TransitionTrigger,
        substatus: Option<Substatus>,
        at: Timestamp,
    ) -> Option<(State, State)> {
        let from = self.record.state;
        let to = transition::next(from, trigger)?;
        self.set_state(to, substatus, at);
        Some((from, to))
    }

    /// Changes the state to what GitHub or the signals show. The caller logs it as STATE_DRIFT_CORRECTED.
    pub(super) fn correct_state(
        &mut self,
        to: State,
        substatus: Option<Substatus>,
        at: Timestamp,
    ) -> Option<(State, State)> {
        let from = self.record.state;
        self.set_state(to, substatus, at);
        Some((from, to))
    }

    fn set_state(&mut self, state: State, substatus: Option<Substatus>, at: Timestamp) {
        if self.record.state == State::NeedsIntervention {
            // Leaving NEEDS_INTERVENTION resets all budgets except close-and-reopen (R-STATE-9).
            self.record.retry_counts.reset_all();
            self.record.lifetime_remedies = 0;
        }
        self.record.end_cooldown_by(state);
        self.record.blocked = None;
        self.record.state = state;
        self.record.substatus = substatus;
        self.record.state_since = self.record.state_since.max(at);
        self.record.not_before = None;
        self.record.skips = 0;
        self.record.inconclusive_visits = 0;
        self.record.unknown_mergeable_visits = 0;
        self.record.dropped = None;
        self.record.refused = None;
        self.record.observed_decision = None;
        if let Some(shown) = &mut self.record.published_check {
            (shown.command_result, shown.explained) = (None, false);
        }
    }
}
