//! A clock that runs faster than real time, for the demo: Suture and the fakes both use it.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, SleepFuture};

#[derive(Debug, Clone)]
pub(super) struct ScaledClock {
    start: Timestamp,
    started: Instant,
    speed: f64,
}

impl ScaledClock {
    pub(super) fn new(start: Timestamp, speed: f64) -> Self {
        Self { start, started: Instant::now(), speed }
    }
}

impl Clock for ScaledClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from_secs_f64(self.started.elapsed().as_secs_f64() * self.speed);
        self.start.saturating_add(passed.unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    }

    fn sleep(&self, pause: Duration) -> SleepFuture {
        let real = Duration::try_from_secs_f64(pause.as_secs_f64() / self.speed).unwrap_or(pause);
        Box::pin(tokio::time::sleep(real))
    }

    fn speed(&self) -> f64 {
        self.speed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleep_of_a_minute_takes_100_ms_at_speed_600() {
        let start: Timestamp = "2036-03-03T09:00:00Z".parse().unwrap();
        let (clock, real) = (ScaledClock::new(start, 600.0), Instant::now());
        clock.sleep(Duration::from_secs(60)).await;
        let passed = clock.now().duration_since(start);
        assert!(passed >= SignedDuration::from_secs(60), "{passed}");
        assert!(real.elapsed() >= Duration::from_millis(100));
    }
}
