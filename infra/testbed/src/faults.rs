//! Plans which call of a process fails, and how.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::locked;

/// A fault of one outgoing call of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The process dies before the call.
    Before,
    /// The process dies after the call, before it reads the response.
    After,
    /// The call is made and its response is lost; the process continues.
    AnswerLost,
    /// The call is made half a second late. On a paused tokio clock this takes no real time.
    Late,
    /// The call is not made; the process continues.
    NotSent,
}

impl CallFault {
    /// The faults after which the caller has to start again.
    pub const CRASHES: [Self; 3] = [Self::Before, Self::After, Self::AnswerLost];
}

/// Counts the outgoing calls of a process, records their names, and decides which of them fail. After the process has died, all
/// calls fail until [`restart`](Self::restart).
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    calls: usize,
    planned: Option<(usize, CallFault)>,
    occurred: bool,
    dead: bool,
    failing: BTreeSet<String>,
    names: Vec<String>,
}

impl Faults {
    /// Plans a fault for the call with this number, counted from 1, starting now.
    pub fn plan(&self, call: usize, fault: CallFault) {
        let mut state = locked(&self.0);
        (state.calls, state.planned, state.occurred) = (0, Some((call, fault)), false);
    }

    /// Restarts the process and clears the planned fault.
    pub fn restart(&self) {
        let mut state = locked(&self.0);
        (state.planned, state.dead) = (None, false);
    }

    /// Whether the planned fault has occurred.
    #[must_use]
    pub fn struck(&self) -> bool {
        locked(&self.0).occurred
    }

    /// Whether the process has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        locked(&self.0).dead
    }

    /// Starts or stops failing all calls whose name contains `named`; the empty string matches every call.
    pub fn fail_calls(&self, named: &str, fail: bool) {
        let failing = &mut locked(&self.0).failing;
        if fail {
            failing.insert(named.to_owned())
        } else {
            failing.remove(named)
        };
    }

    /// The number of calls since the last `plan` or `count_anew`.
    #[must_use]
    pub fn calls(&self) -> usize {
        locked(&self.0).calls
    }

    pub fn count_anew(&self) {
        locked(&self.0).calls = 0;
    }

    /// Returns and clears the names of the calls. While a fault is planned, only the failing call is recorded.
    pub fn take_names(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.0).names)
    }

    /// Makes the call, or fails it.
    ///
    /// # Errors
    /// If the call has no response.
    pub(crate) async fn call<T>(&self, name: String, call: impl Future<Output = T>) -> Result<T, String> {
        let no_response = Err(format!("no answer: {name}"));
        match self.next(name) {
            None => Ok(call.await),
            Some(CallFault::Before | CallFault::NotSent) => no_response,
            Some(CallFault::After | CallFault::AnswerLost) => {
                call.await;
                no_response
            }
            Some(CallFault::Late) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                Ok(call.await)
            }
        }
    }

    /// Counts a call and returns its fault.
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
        state.occurred |= fault.is_some();
        state.dead = matches!(fault, Some(CallFault::Before | CallFault::After));
        fault
    }
}
