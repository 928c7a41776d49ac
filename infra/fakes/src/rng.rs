//! Deterministic random numbers: SplitMix64, one stream per purpose, so that an additional request does not affect
//! other events.

/// FNV-1a, stable across platforms.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A random stream that depends only on its seed and purpose.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed for this purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F));
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

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// A number in the inclusive range.
    pub(crate) fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with this probability.
    pub(crate) fn happens(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < share
    }

    /// A random element; `None` if the slice is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).unwrap_or(0))
    }

    /// A string of hexadecimal digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            let number = self.next();
            for shift in 0..16 {
                let digit = (number >> (shift * 4)) & 15;
                text.push(char::from(b"0123456789abcdef"[usize::try_from(digit).unwrap_or(0)]));
            }
        }
        text.truncate(digits);
        text
    }

    /// A GUID, the format of GitHub's delivery ids.
    pub(crate) fn guid(&mut self) -> String {
        let hex = self.hex(32);
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_depends_on_seed_and_purpose() {
        let draw = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            (rng.hex(40), rng.guid(), rng.between((3, 9)))
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert_eq!(draw(7, 1).0.len(), 40);
    }
}
