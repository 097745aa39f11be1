//! Numbers from a seed, for simulations and tests.
//!
//! Invariant: the same seed gives the same sequence for ever, so that a seed repeats a failure.
//! Limit: anybody can predict the numbers. Identities and keys take theirs from the operating
//! system, at the edge.

/// A generator of the family "SplitMix64".
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// The next 8 bits.
    pub fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[0]
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        debug_assert!(end > 0, "there is no number below 0");
        self.bits() % end
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A position in a list of this length, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }

    /// At least 0 and less than 1.
    #[allow(clippy::cast_precision_loss, reason = "32 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 32) as f64 / (1u64 << 32) as f64
    }

    /// A separate generator for one part of a simulation, so that the draws of another part do not
    /// change it.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}

/// Scatters numbers: neighbours get unrelated results, and no two numbers the same one.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
