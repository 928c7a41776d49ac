//! How long to wait before trying again, and whether to try again at all (R-STALE-2, R-REMEDY-6). Nothing waits here and nothing
//! is random: jitter is a function of a seed the caller names, so a replay waits exactly as long as the original did.
//! How many attempts there are is in `budget`.

use jiff::SignedDuration;

/// Exponential backoff: `min(max, base * 2^(attempt - 1))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The wait before the first repeat.
    pub base_secs: u64,
    /// The wait that is never exceeded.
    pub max_secs: u64,
}

impl Schedule {
    /// How long to wait after this many attempts; nothing after none.
    pub fn delay(&self, attempt: u32) -> SignedDuration {
        let Some(doublings) = attempt.checked_sub(1) else {
            return SignedDuration::ZERO;
        };
        // Attempts are counted by loops elsewhere: a large number must mean "the maximum", never an overflow.
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        let secs = self.base_secs.saturating_mul(factor).min(self.max_secs);
        SignedDuration::from_secs(i64::try_from(secs).unwrap_or(i64::MAX))
    }
}

/// The jitter seed of one attempt at something that has a name, such as (delivery id, attempt).
pub fn seed_of(text: &str, attempt: u32) -> u64 {
    spread(fnv1a(text.as_bytes()) ^ u64::from(attempt))
}

/// FNV-1a, 64 bits: std's hasher promises no stable result between versions, and a replay needs one.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One step of splitmix64: neighbouring inputs (attempt 1, attempt 2) come out far apart.
fn spread(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Why an attempt did not succeed, as far as the next attempt cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    Unreachable,
    /// No answer in time; what was asked may have happened, so the repeat asks its probe first.
    TimedOut,
    /// The other side is broken right now (5xx).
    Unavailable,
    /// Too many requests; the other side said when to come back.
    Throttled,
    /// Somebody else wrote first; after a reload the same attempt may succeed.
    Contended,
    /// A safety policy or a guard forbids it.
    Blocked,
    /// Secrets were found in what would be sent.
    SecretsDetected,
    ScanFailed,
    /// It was understood and found wrong: validation failed, a merge conflict, no such pull request.
    Invalid,
    /// We may not: bad credentials or missing permission.
    Forbidden,
}

impl Failure {
    /// Every failure, the ones worth a repeat first.
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::TimedOut,
        Self::Unavailable,
        Self::Throttled,
        Self::Contended,
        Self::Blocked,
        Self::SecretsDetected,
        Self::ScanFailed,
        Self::Invalid,
        Self::Forbidden,
    ];

    /// Whether the cause may pass by itself. A definitive refusal is never repeated: the answer would be the same, and
    /// asking again is noise at best.
    pub fn may_retry(self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::Unavailable | Self::Throttled | Self::Contended => true,
            Self::Blocked | Self::SecretsDetected | Self::ScanFailed | Self::Invalid | Self::Forbidden => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Schedule = Schedule { base_secs: 30, max_secs: 600 };
    use proptest::prelude::*;

    fn secs(schedule: Schedule, attempts: &[u32]) -> Vec<i64> {
        attempts.iter().map(|attempt| schedule.delay(*attempt).as_secs()).collect()
    }

    #[test]
    fn the_default_doubles_from_30_seconds_to_10_minutes() {
        let schedule = DEFAULT;
        assert_eq!(secs(schedule, &[0, 1, 2, 3, 4, 5, 6, 7]), [0, 30, 60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn no_attempt_overflows() {
        assert_eq!(secs(DEFAULT, &[64, 65, 66, u32::MAX]), [600; 4]);
        let endless = Schedule { base_secs: 1, max_secs: u64::MAX };
        assert_eq!(secs(endless, &[63, 64, 65, u32::MAX]), [1 << 62, i64::MAX, i64::MAX, i64::MAX]);
    }

    #[test]
    fn a_base_of_zero_never_waits_and_a_base_above_the_maximum_is_capped() {
        assert_eq!(secs(Schedule { base_secs: 0, max_secs: 9 }, &[1, 2, 70]), [0, 0, 0]);
        assert_eq!(secs(Schedule { base_secs: 50, max_secs: 9 }, &[0, 1, 2]), [0, 9, 9]);
    }

    #[test]
    fn the_hash_and_the_spread_are_the_published_ones() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(spread(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(spread(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn jitter_is_the_same_for_the_same_name_and_attempt_only() {
        let seed = seed_of("72d3162e", 3);
        assert_eq!(seed, spread(fnv1a(b"72d3162e") ^ 3));
        assert_ne!(seed, seed_of("72d3162e", 4));
        assert_ne!(seed, seed_of("72d3162f", 3));
        assert_eq!(seed_of("", 0), spread(0xcbf2_9ce4_8422_2325));
    }

    #[test]
    fn only_what_may_pass_by_itself_is_tried_again() {
        let again: Vec<Failure> = Failure::ALL.into_iter().filter(|failure| failure.may_retry()).collect();
        assert_eq!(
            again,
            [Failure::Unreachable, Failure::TimedOut, Failure::Unavailable, Failure::Throttled, Failure::Contended]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn delays_never_shrink(base: u64, max: u64, attempt: u32) {
            let schedule = Schedule { base_secs: base, max_secs: max };
            let delay = schedule.delay(attempt);
            prop_assert!(delay >= SignedDuration::ZERO);
            prop_assert!(delay <= schedule.delay(attempt.saturating_add(1)));
        }
    }
}
