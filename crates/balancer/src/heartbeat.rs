//! The message that every rank sends to every other rank at each tick.
//!
//! Invariant: a heartbeat that was decoded holds finite numbers that are not negative.

use types::bytes::{Malformed, Put, Reader};
use types::{Epoch, Rank};

use crate::saved::checksum;
use crate::view::is_load;
use crate::{BalancerPolicy, Counts, Expired, Metrics};

/// One rank's words about itself. Its age is not in it: the receiver knows when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heartbeat {
    /// Who says it.
    pub rank: Rank,
    /// The rank's term: a server that takes over counts ticks from zero.
    pub epoch: Epoch,
    /// Which version of the policy its loads were computed with. Loads of different versions must
    /// not be compared: a receiver that has another version skips the tick.
    pub policy: u64,
    /// The rank's ticks so far: late heartbeats are dropped.
    pub tick: u64,
    /// The numbers. `age_seconds` is 0.
    pub metrics: Metrics,
}

const VERSION: u8 = 1;

impl Heartbeat {
    /// The bytes. See `docs/formats/balancer.md`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.put_u16(self.rank.0);
        bytes.put_u64(self.epoch.0);
        bytes.put_u64(self.policy);
        bytes.put_u64(self.tick);
        for value in numbers(&self.metrics) {
            bytes.put_u64(value.to_bits());
        }
        let sum = checksum(&bytes);
        bytes.put_u32(sum);
        bytes
    }

    /// Reads the bytes of [`Heartbeat::encode`].
    ///
    /// # Errors
    /// [`Malformed`] with the offset, for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(reader.malformed("version 1"));
        }
        let rank = Rank(reader.u16()?);
        let epoch = Epoch(reader.u64()?);
        let (policy, tick) = (reader.u64()?, reader.u64()?);
        let mut values = [0.0; 8];
        for value in &mut values {
            *value = f64::from_bits(reader.u64()?);
            if !is_load(*value) {
                return Err(reader.malformed("a finite number that is not negative"));
            }
        }
        let body = bytes.get(..reader.offset()).unwrap_or_default();
        if reader.u32()? != checksum(body) {
            return Err(reader.malformed("a matching checksum"));
        }
        reader.end()?;
        let [auth, all, cpu_percent, mem_percent, queue, requests_per_second, cost, inodes] =
            values;
        let metrics = Metrics {
            auth,
            all,
            cpu_percent,
            mem_percent,
            queue,
            requests_per_second,
            request_seconds: cost,
            inodes,
            age_seconds: 0.0,
        };
        Ok(Self { rank, epoch, policy, tick, metrics })
    }
}

fn numbers(metrics: &Metrics) -> [f64; 8] {
    [
        metrics.auth,
        metrics.all,
        metrics.cpu_percent,
        metrics.mem_percent,
        metrics.queue,
        metrics.requests_per_second,
        metrics.request_seconds,
        metrics.inodes,
    ]
}

/// The loads of a rank by its policy's `metaload`: of its own subtrees, and of all that it sees.
/// A policy that fails here, or that `expired` ends, also reports the fault when it decides;
/// until then the sum of all hits replaces its result, so that the other ranks receive a load.
#[must_use]
pub fn loads(
    policy: &BalancerPolicy,
    auth: &Counts,
    all: &Counts,
    expired: &Expired,
) -> (f64, f64) {
    match policy.metaload(&[*auth, *all], expired).as_deref() {
        Ok([auth, all]) => (*auth, *all),
        Ok(_) | Err(_) => (auth.sum(), all.sum()),
    }
}

#[cfg(test)]
mod tests;
