//! Arithmetic with times that never fails.

use jiff::{SignedDuration, Timestamp};

/// `at + by`, held within what a timestamp can say.
pub fn saturating_after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_time_is_not_passed() {
        let second = SignedDuration::from_secs(1);
        assert_eq!(saturating_after(Timestamp::MAX, second), Timestamp::MAX);
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, SignedDuration::MAX), Timestamp::MAX);
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, second), Timestamp::UNIX_EPOCH + second);
    }
}
