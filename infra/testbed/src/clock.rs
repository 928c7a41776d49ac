//! Time that only moves when it is told to, or when somebody sleeps.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, SleepFuture};

use crate::{SharedFakes, locked};

/// A clock of its own, or the fakes' clock. Whoever sleeps moves it and goes on at once.
#[derive(Clone)]
pub struct ManualClock {
    time: Time,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

#[derive(Clone)]
enum Time {
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
        Self { time: Time::Own(Arc::new(Mutex::new(now))), pauses: Arc::default() }
    }

    #[must_use]
    pub fn of(fakes: &SharedFakes) -> Self {
        Self { time: Time::Fakes(Arc::clone(fakes)), pauses: Arc::default() }
    }

    /// Sets the time; the fakes' time only goes forward.
    pub fn set(&self, now: Timestamp) {
        match &self.time {
            Time::Own(time) => *locked(time) = now,
            Time::Fakes(fakes) => locked(fakes).advance_to(now),
        }
    }

    pub fn advance(&self, by: SignedDuration) {
        self.set(self.now() + by);
    }

    /// What was slept since this was last asked.
    pub fn take_pauses(&self) -> Vec<Duration> {
        std::mem::take(&mut locked(&self.pauses))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        match &self.time {
            Time::Own(time) => *locked(time),
            Time::Fakes(fakes) => locked(fakes).now(),
        }
    }

    fn sleep(&self, pause: Duration) -> SleepFuture {
        locked(&self.pauses).push(pause);
        self.advance(SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO));
        Box::pin(std::future::ready(()))
    }
}
