//! The balancer of the cluster: the policy in force, and its decisions.

use types::{Errno, Error, Result};
use wire::{BalancerEntry, ClusterMap, MonAnswer, MonOp};

use crate::Cluster;
use crate::cluster::unexpected;

/// The latest decisions of the balancers of all ranks ([`Cluster::balancer_log`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerLog {
    /// How many records there were before these.
    pub before: u64,
    /// In the order in which the monitor received them; the encoding is in
    /// `docs/formats/balancer.md`.
    pub records: Vec<Vec<u8>>,
}

impl Cluster {
    /// Stores a balancer policy, and puts it in force on all ranks. Returns the policy that is then
    /// in force.
    ///
    /// # Errors
    /// `EINVAL` with the line for a text that is no policy; `EAGAIN` while another policy is being
    /// stored.
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
    /// The error of the store; `EBADMSG` for an object that is no text.
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

    /// The decisions of the balancers of all ranks after so many records: the inputs, the decision
    /// with its reason, and the outcome. The monitor keeps some thousands in memory.
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
