//! Durations by size, with a fixed number of buckets: noting one is a few instructions.

/// The first bucket has durations up to 2^4 microseconds, and each further one twice as much.
const FIRST_POWER: u32 = 4;
/// The last bucket with a bound has durations up to 2^24 microseconds, 16.8 seconds.
const BOUNDED: usize = 21;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    buckets: [u64; BOUNDED + 1],
    nanos: u64,
}

impl LatencyHistogram {
    /// Notes a duration in nanoseconds.
    #[inline]
    pub fn note(&mut self, nanos: u64) {
        let micros = nanos.div_ceil(1000);
        let power = u64::BITS - micros.saturating_sub(1).leading_zeros();
        let bucket = (power.max(FIRST_POWER) - FIRST_POWER) as usize;
        self.buckets[bucket.min(BOUNDED)] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// How many durations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all durations in seconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of 100 days fit 53 bits")]
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// The upper bounds in seconds, each with the durations between the bound before and this one.
    pub(crate) fn bounded(&self) -> Vec<(f64, u64)> {
        let bounds = (FIRST_POWER..).map(|power| f64::from(1u32 << power) / 1e6);
        let mut buckets: Vec<_> = bounds.zip(self.buckets[..BOUNDED].iter().copied()).collect();
        buckets.push((f64::INFINITY, self.buckets[BOUNDED]));
        buckets
    }
}
