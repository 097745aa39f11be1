//! Chance from a seed (SplitMix64).

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// At least 0 and less than 1.
    #[allow(clippy::cast_precision_loss, reason = "32 bits fit")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 32) as f64 / (1u64 << 32) as f64
    }

    /// 1, give or take up to `share`.
    pub(super) fn about_one(&mut self, share: f64) -> f64 {
        1.0 + share * (2.0 * self.unit() - 1.0)
    }
}

/// A number that looks like chance and is the same for the same input.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
