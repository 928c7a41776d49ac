//! Time that passes faster than the machine's, for the demo: Suture and the pretended world both live in it.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, Pause};

/// A clock that began at some time and runs at some speed.
#[derive(Debug, Clone)]
pub(super) struct ScaledClock {
    from: Timestamp,
    began: Instant,
    speed: f64,
}

impl ScaledClock {
    /// So many times as fast as the machine's, from this time on.
    pub(super) fn new(from: Timestamp, speed: f64) -> Self {
        Self { from, began: Instant::now(), speed }
    }

    /// How much of the machine's time so much of this one takes.
    pub(super) fn real(&self, span: Duration) -> Duration {
        Duration::try_from_secs_f64(span.as_secs_f64() / self.speed).unwrap_or(span)
    }
}

impl Clock for ScaledClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from_secs_f64(self.began.elapsed().as_secs_f64() * self.speed);
        self.from.saturating_add(passed.unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    }

    fn sleep(&self, pause: Duration) -> Pause {
        Box::pin(tokio::time::sleep(self.real(pause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_minute_takes_a_second() {
        let start: Timestamp = "2036-03-03T09:00:00Z".parse().unwrap();
        let clock = ScaledClock::new(start, 600.0);
        assert_eq!(clock.real(Duration::from_secs(60)), Duration::from_millis(100));
        clock.sleep(Duration::from_secs(60)).await;
        let passed = clock.now().duration_since(start);
        assert!(passed >= SignedDuration::from_secs(60), "{passed}");
    }
}
