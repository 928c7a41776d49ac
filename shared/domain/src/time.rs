//! Time arithmetic that cannot overflow.

use jiff::{SignedDuration, Timestamp};

/// `at + by`, at most the largest timestamp.
pub fn saturating_after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturating_after_stops_at_the_largest_timestamp() {
        let second = SignedDuration::from_secs(1);
        assert_eq!(saturating_after(Timestamp::MAX, second), Timestamp::MAX);
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, SignedDuration::MAX), Timestamp::MAX);
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, second), Timestamp::UNIX_EPOCH + second);
    }
}
