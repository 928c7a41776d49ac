//! A clock that advances only when a test sets it or when code sleeps.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, SleepFuture};

use crate::{SharedFakes, locked};

/// A clock of its own, or the fakes' clock. `sleep` advances it and returns at once.
#[derive(Clone)]
pub struct ManualClock {
    source: TimeSource,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

#[derive(Clone)]
enum TimeSource {
    Own(Arc<Mutex<Timestamp>>),
    Fakes(SharedFakes),
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({})", self.now())
    }
}

impl ManualClock {
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { source: TimeSource::Own(Arc::new(Mutex::new(now))), pauses: Arc::default() }
    }

    #[must_use]
    pub fn of(fakes: &SharedFakes) -> Self {
        Self { source: TimeSource::Fakes(Arc::clone(fakes)), pauses: Arc::default() }
    }

    /// Sets the time. The fakes' clock ignores earlier times.
    pub fn set(&self, now: Timestamp) {
        match &self.source {
            TimeSource::Own(time) => *locked(time) = now,
            TimeSource::Fakes(fakes) => locked(fakes).advance_to(now),
        }
    }

    pub fn advance(&self, by: SignedDuration) {
        self.set(self.now() + by);
    }

    /// Returns and clears the durations of all sleeps.
    pub fn take_pauses(&self) -> Vec<Duration> {
        std::mem::take(&mut locked(&self.pauses))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        match &self.source {
            TimeSource::Own(time) => *locked(time),
            TimeSource::Fakes(fakes) => locked(fakes).now(),
        }
    }

    fn sleep(&self, pause: Duration) -> SleepFuture {
        locked(&self.pauses).push(pause);
        self.advance(SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO));
        Box::pin(std::future::ready(()))
    }
}
