//! Deterministic random numbers (SplitMix64). Each purpose has its own stream, so an extra draw for one purpose does not change the
//! others.

#[derive(Debug, Clone)]
pub(crate) struct SimulationRng(fakes::Rng);

impl SimulationRng {
    /// The stream of this seed for this purpose. The fakes use a different stream for the same seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(fakes::Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D), purpose))
    }

    /// A number below `limit`, or 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// A number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A duration from `low` to `high` seconds, inclusive.
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
