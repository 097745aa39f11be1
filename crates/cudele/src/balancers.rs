//! The cluster's balancer: which policy is in force, and what it did.

use types::{Errno, Error, Result};
use wire::{BalancerEntry, ClusterMap, MonAnswer, MonOp};

use crate::Cluster;
use crate::cluster::unexpected;

/// What the balancers of all ranks did lately ([`Cluster::balancer_log`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerLog {
    /// How many records there were before these.
    pub before: u64,
    /// In the order in which the monitor heard of them; each in the bytes of `docs/formats/balancer.md`.
    pub records: Vec<Vec<u8>>,
}

impl Cluster {
    /// Puts a balancer policy in force on all ranks, and stores it. Returns what is in force then.
    ///
    /// # Errors
    /// `EINVAL` with the line for what is no policy; `EAGAIN` while another one is being stored.
    pub fn set_balancer(&self, name: &str, text: &str) -> Result<BalancerEntry> {
        let op = MonOp::SetBalancer { name: name.as_bytes(), text: text.as_bytes() };
        self.balancer_entry(op)
    }

    /// Puts the balancer policy before the one in force in force again.
    ///
    /// # Errors
    /// `ENODATA` if there was none before.
    pub fn revert_balancer(&self) -> Result<BalancerEntry> {
        self.balancer_entry(MonOp::RevertBalancer)
    }

    fn balancer_entry(&self, op: MonOp<'_>) -> Result<BalancerEntry> {
        let answer = self.call(op)?;
        let MonAnswer::Balancer(entry) = answer else { return Err(unexpected(&answer)) };
        Ok(entry)
    }

    /// The text of a balancer policy that was set; `None` for one that comes with the program.
    ///
    /// # Errors
    /// If the store cannot be read; `EBADMSG` if what is there is no text.
    pub fn balancer_text(&self, map: &ClusterMap, entry: &BalancerEntry) -> Result<Option<String>> {
        if entry.object == 0 {
            return Ok(None);
        }
        let object = BalancerEntry::object_name(entry.object);
        let (bytes, _) = crate::stores::open(&map.store)?.get(&object)?;
        let text = String::from_utf8(bytes);
        let cause = "not a text, so no balancer policy";
        text.map(Some).map_err(|_| Error::new(Errno::BadMessage, object, cause))
    }

    /// What the balancers of all ranks did after so many records: what they knew, what they decided and
    /// why, and what became of that. The monitor keeps some thousands, in memory.
    ///
    /// # Errors
    /// If the monitor does not answer.
    pub fn balancer_log(&self, after: u64) -> Result<BalancerLog> {
        let answer = self.call(MonOp::BalancerLog { after })?;
        let MonAnswer::BalancerLog { before, records } = answer else {
            return Err(unexpected(&answer));
        };
        Ok(BalancerLog { before, records })
    }
}
