//! Which call of a process fails, and how.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::locked;

/// What goes wrong with one call that leaves a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The process dies before the call.
    Before,
    /// The process dies after the call, before it reads the answer.
    After,
    /// The call is made and its answer is lost; the process goes on.
    AnswerLost,
    /// The call is made half a second late. (On a paused tokio clock this takes no real time.)
    Late,
    /// The call is not made; the process goes on.
    NotSent,
}

impl CallFault {
    /// The faults after which a process has to start over.
    pub const CRASHES: [Self; 3] = [Self::Before, Self::After, Self::AnswerLost];
}

/// Counts and names the calls that leave a process, and says which of them fail. A process that has died makes no more calls
/// until it is restarted: each of them is answered with an error.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    calls: usize,
    planned: Option<(usize, CallFault)>,
    struck: bool,
    dead: bool,
    failing: BTreeSet<String>,
    names: Vec<String>,
}

impl Faults {
    /// The call of this number, counted from 1 and from now, fails in this way.
    pub fn plan(&self, call: usize, fault: CallFault) {
        let mut state = locked(&self.0);
        (state.calls, state.planned, state.struck) = (0, Some((call, fault)), false);
    }

    /// The process is started again, and nothing is planned any more.
    pub fn restart(&self) {
        let mut state = locked(&self.0);
        (state.planned, state.dead) = (None, false);
    }

    /// Whether the call that was last planned to fail was made.
    #[must_use]
    pub fn struck(&self) -> bool {
        locked(&self.0).struck
    }

    /// Whether the process has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        locked(&self.0).dead
    }

    /// From now on, or no longer, calls fail whose name contains this: all calls contain "".
    pub fn fail_calls(&self, named: &str, fail: bool) {
        let failing = &mut locked(&self.0).failing;
        if fail {
            failing.insert(named.to_owned())
        } else {
            failing.remove(named)
        };
    }

    /// How many calls there were since they were counted anew.
    #[must_use]
    pub fn calls(&self) -> usize {
        locked(&self.0).calls
    }

    pub fn count_anew(&self) {
        locked(&self.0).calls = 0;
    }

    /// The names of the calls since this was last asked: while a fault is planned, only of the one that fails.
    pub fn take_names(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.0).names)
    }

    /// Makes a call of this name, or fails it.
    ///
    /// # Errors
    /// If there is no answer.
    pub(crate) async fn call<T>(&self, name: String, call: impl Future<Output = T>) -> Result<T, String> {
        let no_answer = Err(format!("no answer: {name}"));
        match self.next(name) {
            None => Ok(call.await),
            Some(CallFault::Before | CallFault::NotSent) => no_answer,
            Some(CallFault::After | CallFault::AnswerLost) => {
                call.await;
                no_answer
            }
            Some(CallFault::Late) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                Ok(call.await)
            }
        }
    }

    /// Counts a call, and says what happens to it.
    fn next(&self, name: String) -> Option<CallFault> {
        let mut state = locked(&self.0);
        if state.dead {
            return Some(CallFault::NotSent);
        }
        state.calls += 1;
        if state.failing.iter().any(|failing| name.contains(failing)) {
            return Some(CallFault::NotSent);
        }
        let fault = state.planned.filter(|(call, _)| *call == state.calls).map(|(_, fault)| fault);
        if state.planned.is_none() || fault.is_some() {
            state.names.push(name);
        }
        state.struck |= fault.is_some();
        state.dead = matches!(fault, Some(CallFault::Before | CallFault::After));
        fault
    }
}
