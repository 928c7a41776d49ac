//! Repeatable random numbers: SplitMix64, one stream per purpose, so that one more draw for one purpose changes no other.

#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F));
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`; 0 if there is nothing below it.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// The same, as seconds.
    pub(crate) fn seconds(&mut self, low: u64, high: u64) -> jiff::SignedDuration {
        jiff::SignedDuration::from_secs(i64::try_from(self.between(low, high)).unwrap_or(i64::MAX))
    }

    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[usize::try_from(self.below(N as u64)).unwrap_or(0)]
    }
}
