//! The clock of the clients: current time and sleep. Tests and the simulation replace it with virtual time. Timeouts of network calls
//! always use real time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

pub type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;

    fn sleep(&self, pause: Duration) -> SleepFuture;

    /// How many seconds of this clock pass in one real second.
    fn speed(&self) -> f64 {
        1.0
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, pause: Duration) -> SleepFuture {
        Box::pin(tokio::time::sleep(pause))
    }
}
