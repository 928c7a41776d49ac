//! Chance, repeatable: one stream of numbers per purpose, so that what happens to one thing does not depend on how often
//! another was asked about.

#[derive(Debug, Clone)]
pub(crate) struct Chance(fakes::Rng);

impl Chance {
    /// The stream of this seed for this purpose; another one than the fakes draw from with the same seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(fakes::Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D), purpose))
    }

    /// Below `limit`; 0 if there is nothing below it.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// From the first to the second, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        self.0.pick(of)
    }
}
