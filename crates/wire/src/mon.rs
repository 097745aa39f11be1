//! Messages to and from the monitor.

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Epoch, Rank};

use crate::answer::Decoupled;
use crate::codec::{list, put_list, string};
use crate::map::{
    BalancerEntry, ClusterMap, DecoupledSubtree, MdsState, Warning, balancer, counters, decoupled,
    put_balancer, put_counters, put_decoupled, put_warning, rank, state, warning,
};

/// A request to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonOp<'a> {
    /// A new client id.
    Register,
    /// The cluster map, with the servers' counters.
    Status,
    /// Gives a subtree to a client.
    Decouple {
        /// The directory.
        path: &'a [u8],
        /// To whom.
        client: ClientId,
        /// Under which policy.
        policy: &'a [u8],
    },
    /// Sets the policy of a directory, or removes it with empty text.
    SetPolicy {
        /// The directory.
        path: &'a [u8],
        /// Canonical text.
        policy: &'a [u8],
        /// As which owner of a decoupled subtree; 0 for none.
        client: ClientId,
    },
    /// Ends the cluster cleanly: every metadata server writes everything down and stops, then the
    /// monitor does.
    Stop,
    /// Ends the server of a rank, which writes everything down; a standby may take over.
    Fail {
        /// Which.
        rank: Rank,
    },
    /// Puts a balancer policy in force on all ranks, as a new version.
    SetBalancer {
        /// Its name: a preset's or a file's.
        name: &'a [u8],
        /// Its text.
        text: &'a [u8],
    },
    /// Puts the balancer policy before the one in force in force again, as a new version.
    RevertBalancer,
    /// The recent records of the ranks' balancers.
    BalancerLog {
        /// How many records the asker has: only later ones.
        after: u64,
    },
    /// Removes the last rank, which serves nothing any more, from the cluster: its server ends, and
    /// no standby takes over.
    Remove {
        /// Which.
        rank: Rank,
    },
}

/// The answers of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonAnswer {
    /// Done.
    Done,
    /// A fresh client id.
    Client(ClientId),
    /// The map.
    Map(Box<ClusterMap>),
    /// The subtree is the client's.
    Decoupled(Decoupled),
    /// The policy will be in force when this client gives the subtree back (P-16).
    Pending(ClientId),
    /// This balancer policy is in force.
    Balancer(BalancerEntry),
    /// Records of the balancers' log, in the order in which they came.
    BalancerLog {
        /// How many there were before the first of these.
        before: u64,
        /// Each in the balancer's bytes.
        records: Vec<Vec<u8>>,
    },
}

/// The regular report of a metadata server to the monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beacon {
    /// Its rank.
    pub rank: Rank,
    /// Its term; 0 while it does not know it yet.
    pub epoch: Epoch,
    /// Where it listens.
    pub address: String,
    /// The server's state.
    pub state: MdsState,
    /// Its process id.
    pub pid: u32,
    /// Its counters.
    pub counters: Vec<(String, u64)>,
    /// The subtrees of this rank that belong to clients for now. The server is the authority on
    /// them; the monitor only repeats the list.
    pub decoupled: Vec<DecoupledSubtree>,
    /// Conditions that hold at present.
    pub warnings: Vec<Warning>,
    /// The version of the balancer policy that the rank has given up, and why; version 0 for none.
    pub given_up: (u64, String),
}

impl MonOp<'_> {
    /// Whether a second execution does no harm: a client that lost its connection to the monitor
    /// sends the request again.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        match self {
            MonOp::Register | MonOp::Status | MonOp::BalancerLog { .. } => true,
            MonOp::Decouple { .. }
            | MonOp::SetPolicy { .. }
            | MonOp::Stop
            | MonOp::Fail { .. }
            | MonOp::SetBalancer { .. }
            | MonOp::RevertBalancer
            | MonOp::Remove { .. } => false,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            MonOp::Register => out.put_u8(1),
            MonOp::Status => out.put_u8(2),
            MonOp::Decouple { path, client, policy } => {
                out.put_u8(3);
                out.put_bytes(path);
                out.put_varint(client.0);
                out.put_bytes(policy);
            }
            MonOp::SetPolicy { path, policy, client } => {
                out.put_u8(4);
                out.put_bytes(path);
                out.put_bytes(policy);
                out.put_varint(client.0);
            }
            MonOp::Stop => out.put_u8(5),
            MonOp::Fail { rank } => {
                out.put_u8(6);
                out.put_varint(u64::from(rank.0));
            }
            MonOp::SetBalancer { name, text } => {
                out.put_u8(7);
                out.put_bytes(name);
                out.put_bytes(text);
            }
            MonOp::RevertBalancer => out.put_u8(8),
            MonOp::BalancerLog { after } => {
                out.put_u8(9);
                out.put_varint(after);
            }
            MonOp::Remove { rank } => {
                out.put_u8(10);
                out.put_varint(u64::from(rank.0));
            }
        }
    }
}

impl<'a> MonOp<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            1 => MonOp::Register,
            2 => MonOp::Status,
            3 => MonOp::Decouple {
                path: reader.bytes()?,
                client: ClientId(reader.varint()?),
                policy: reader.bytes()?,
            },
            4 => MonOp::SetPolicy {
                path: reader.bytes()?,
                policy: reader.bytes()?,
                client: ClientId(reader.varint()?),
            },
            5 => MonOp::Stop,
            6 => MonOp::Fail { rank: rank(reader)? },
            7 => MonOp::SetBalancer { name: reader.bytes()?, text: reader.bytes()? },
            8 => MonOp::RevertBalancer,
            9 => MonOp::BalancerLog { after: reader.varint()? },
            10 => MonOp::Remove { rank: rank(reader)? },
            _ => return Err(start.malformed("a known request to the monitor")),
        })
    }
}

impl MonAnswer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            MonAnswer::Done => out.put_u8(0),
            MonAnswer::Client(client) => {
                out.put_u8(1);
                out.put_varint(client.0);
            }
            MonAnswer::Map(map) => {
                out.put_u8(2);
                map.encode(out, true);
            }
            MonAnswer::Decoupled(decoupled) => {
                out.put_u8(3);
                crate::Answer::Decoupled(decoupled.clone()).encode(out);
            }
            MonAnswer::Pending(client) => {
                out.put_u8(4);
                out.put_varint(client.0);
            }
            MonAnswer::Balancer(entry) => {
                out.put_u8(5);
                put_balancer(out, entry);
            }
            MonAnswer::BalancerLog { before, records } => {
                out.put_u8(6);
                out.put_varint(*before);
                put_list(out, records, |out, record| out.put_bytes(record));
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            0 => MonAnswer::Done,
            1 => MonAnswer::Client(ClientId(reader.varint()?)),
            2 => MonAnswer::Map(Box::new(ClusterMap::decode(reader)?)),
            3 => {
                let crate::Answer::Decoupled(decoupled) = crate::Answer::decode(reader)? else {
                    return Err(start.malformed("a decoupled subtree"));
                };
                MonAnswer::Decoupled(decoupled)
            }
            4 => MonAnswer::Pending(ClientId(reader.varint()?)),
            5 => MonAnswer::Balancer(balancer(reader)?),
            6 => MonAnswer::BalancerLog {
                before: reader.varint()?,
                records: list(reader, |reader| reader.bytes().map(<[u8]>::to_vec))?,
            },
            _ => return Err(start.malformed("a known answer of the monitor")),
        })
    }
}

impl Beacon {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self {
            rank,
            epoch,
            address,
            state,
            pid,
            counters,
            decoupled,
            warnings,
            given_up: (version, why),
        } = self;
        out.put_varint(u64::from(rank.0));
        out.put_varint(epoch.0);
        out.put_bytes(address.as_bytes());
        out.put_u8(*state as u8);
        out.put_varint(u64::from(*pid));
        put_counters(out, counters);
        put_list(out, decoupled, put_decoupled);
        put_list(out, warnings, put_warning);
        out.put_varint(*version);
        out.put_bytes(why.as_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            rank: rank(reader)?,
            epoch: Epoch(reader.varint()?),
            address: string(reader)?,
            state: state(reader)?,
            pid: reader.varint_u32()?,
            counters: counters(reader)?,
            decoupled: list(reader, decoupled)?,
            warnings: list(reader, warning)?,
            given_up: (reader.varint()?, string(reader)?),
        })
    }
}
