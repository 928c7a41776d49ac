//! Repeatable random numbers: SplitMix64, one stream per purpose, so that one more draw for one purpose changes no other.

#[derive(Debug, Clone)]
pub(crate) struct SimulationRng(fakes::Rng);

impl SimulationRng {
    /// The stream of this seed for this purpose; another one than the fakes draw from with the same seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(fakes::Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D), purpose))
    }

    /// Below `limit`; 0 if there is nothing below it.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
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
