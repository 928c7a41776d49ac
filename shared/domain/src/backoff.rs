//! Exponential backoff, and which failures may be retried (R-STALE-2, R-REMEDY-6). Jitter is a function of a seed, so a
//! replay waits exactly as long as the original. The number of attempts is in `budget`.

use jiff::SignedDuration;

/// Exponential backoff: `min(max, base * 2^(attempt - 1))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffSchedule {
    /// Delay before the first retry.
    pub base_secs: u64,
    /// Longest delay.
    pub max_secs: u64,
}

impl BackoffSchedule {
    /// The delay after this many attempts; zero before the first.
    pub fn delay(&self, attempt: u32) -> SignedDuration {
        let Some(doublings) = attempt.checked_sub(1) else {
            return SignedDuration::ZERO;
        };
        // A large number of attempts must give the maximum, never an overflow.
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        let secs = self.base_secs.saturating_mul(factor).min(self.max_secs);
        SignedDuration::from_secs(i64::try_from(secs).unwrap_or(i64::MAX))
    }
}

/// The jitter seed of one attempt, for example of (delivery id, attempt).
pub fn jitter_seed(text: &str, attempt: u32) -> u64 {
    splitmix64(fnv1a(text.as_bytes()) ^ u64::from(attempt))
}

/// FNV-1a, 64 bits. The hash must be stable for replays, and std's hasher may change between versions.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One step of splitmix64, so that neighbouring inputs (attempt 1, attempt 2) give unrelated seeds.
fn splitmix64(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Why an attempt failed, as far as a retry depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptFailure {
    Unreachable,
    /// No response in time. The request may have been executed, so a retry probes first.
    TimedOut,
    /// Server error (5xx).
    Unavailable,
    /// Rate limited; the server said when to retry.
    Throttled,
    /// Write conflict; a retry after a reload may succeed.
    Contended,
    /// Refused by a safety policy or a guard.
    Blocked,
    /// The content to send contains secrets.
    SecretsDetected,
    ScanFailed,
    /// GitHub refused to merge the base into the head, because they conflict.
    MergeConflict,
    /// Rejected as invalid: validation failed, no such pull request.
    Invalid,
    /// Bad credentials or missing permission.
    Forbidden,
}

impl AttemptFailure {
    /// All failures, those that may be retried first.
    pub const ALL: [Self; 11] = [
        Self::Unreachable,
        Self::TimedOut,
        Self::Unavailable,
        Self::Throttled,
        Self::Contended,
        Self::Blocked,
        Self::SecretsDetected,
        Self::ScanFailed,
        Self::MergeConflict,
        Self::Invalid,
        Self::Forbidden,
    ];

    /// Whether the cause may go away by itself. A permanent refusal is never retried, because the response would be the
    /// same.
    pub fn may_retry(self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::Unavailable | Self::Throttled | Self::Contended => true,
            Self::Blocked
            | Self::SecretsDetected
            | Self::ScanFailed
            | Self::MergeConflict
            | Self::Invalid
            | Self::Forbidden => false,
        }
    }

    /// Whether the target may have executed the request although no success was reported.
    pub fn may_have_succeeded(self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::Unavailable => true,
            Self::Throttled
            | Self::Contended
            | Self::Blocked
            | Self::SecretsDetected
            | Self::ScanFailed
            | Self::MergeConflict
            | Self::Invalid
            | Self::Forbidden => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: BackoffSchedule = BackoffSchedule { base_secs: 30, max_secs: 600 };
    use proptest::prelude::*;

    fn secs(schedule: BackoffSchedule, attempts: &[u32]) -> Vec<i64> {
        attempts.iter().map(|attempt| schedule.delay(*attempt).as_secs()).collect()
    }

    #[test]
    fn default_delay_doubles_from_30_seconds_to_10_minutes() {
        let schedule = DEFAULT;
        assert_eq!(secs(schedule, &[0, 1, 2, 3, 4, 5, 6, 7]), [0, 30, 60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn delay_does_not_overflow() {
        assert_eq!(secs(DEFAULT, &[64, 65, 66, u32::MAX]), [600; 4]);
        let endless = BackoffSchedule { base_secs: 1, max_secs: u64::MAX };
        assert_eq!(secs(endless, &[63, 64, 65, u32::MAX]), [1 << 62, i64::MAX, i64::MAX, i64::MAX]);
    }

    #[test]
    fn zero_base_never_waits_and_large_base_is_capped() {
        assert_eq!(secs(BackoffSchedule { base_secs: 0, max_secs: 9 }, &[1, 2, 70]), [0, 0, 0]);
        assert_eq!(secs(BackoffSchedule { base_secs: 50, max_secs: 9 }, &[0, 1, 2]), [0, 9, 9]);
    }

    #[test]
    fn fnv1a_and_splitmix64_match_published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(splitmix64(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn jitter_seed_depends_on_name_and_attempt() {
        let seed = jitter_seed("72d3162e", 3);
        assert_eq!(seed, splitmix64(fnv1a(b"72d3162e") ^ 3));
        assert_ne!(seed, jitter_seed("72d3162e", 4));
        assert_ne!(seed, jitter_seed("72d3162f", 3));
        assert_eq!(jitter_seed("", 0), splitmix64(0xcbf2_9ce4_8422_2325));
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        let retried: Vec<AttemptFailure> =
            AttemptFailure::ALL.into_iter().filter(|failure| failure.may_retry()).collect();
        assert_eq!(
            retried,
            [
                AttemptFailure::Unreachable,
                AttemptFailure::TimedOut,
                AttemptFailure::Unavailable,
                AttemptFailure::Throttled,
                AttemptFailure::Contended
            ]
        );
    }

    #[test]
    fn only_failures_without_an_answer_may_have_succeeded() {
        let unsure = AttemptFailure::ALL.into_iter().filter(|failure| failure.may_have_succeeded());
        assert!(unsure.eq([AttemptFailure::Unreachable, AttemptFailure::TimedOut, AttemptFailure::Unavailable]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn delays_never_shrink(base: u64, max: u64, attempt: u32) {
            let schedule = BackoffSchedule { base_secs: base, max_secs: max };
            let delay = schedule.delay(attempt);
            prop_assert!(delay >= SignedDuration::ZERO);
            prop_assert!(delay <= schedule.delay(attempt.saturating_add(1)));
        }
    }
}
