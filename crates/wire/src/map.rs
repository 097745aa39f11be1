//! The cluster map: the shared state of the cluster. Kept by the monitor, stamped with an epoch.

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Epoch, Ino, InoRange, Rank, Timestamp};

use crate::codec::{boolean, list, option, put_list, put_option, put_range, range, string};
use crate::op::ino;

/// The state of a metadata server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MdsState {
    /// It is replaying its journal.
    #[default]
    Replaying,
    /// It serves requests.
    Active,
    /// It is writing everything down and will stop.
    Stopping,
    /// Nothing was heard of it for too long.
    Lost,
}

impl MdsState {
    /// The word that status output uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Replaying => "replaying",
            Self::Active => "active",
            Self::Stopping => "stopping",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Replaying, Self::Active, Self::Stopping, Self::Lost].get(usize::from(code)).copied()
    }
}

/// A metadata server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsEntry {
    /// Its rank.
    pub rank: Rank,
    /// Its term: grows with every start of a server of this rank.
    pub epoch: Epoch,
    /// Where it listens: `unix:PATH` or `tcp:HOST:PORT`.
    pub address: String,
    /// The server's state.
    pub state: MdsState,
    /// Its process id.
    pub pid: u32,
    /// Its counters, by name.
    pub counters: Vec<(String, u64)>,
}

/// A condition that an administrator should know of and act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warning {
    /// Which kind, such as `BALANCER_FAULT`.
    pub code: String,
    /// The condition, on one line.
    pub text: String,
    /// The remedy.
    pub remedy: String,
}

/// A balancer policy that was put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerEntry {
    /// Grows with every switch.
    pub version: u64,
    /// The version that has the text in its object: an earlier one, if that was put in force again.
    /// 0 for a policy that comes with the program under this name.
    pub object: u64,
    /// The policy's name.
    pub name: String,
    /// When it was put in force.
    pub time: Timestamp,
    /// The reason, if no user set it.
    pub why: String,
    /// A rank has given it up.
    pub failed: bool,
}

impl BalancerEntry {
    /// The object with the text of the policy that was put in force as this version.
    #[must_use]
    pub fn object_name(version: u64) -> String {
        format!("balancer/policy/{version:016x}")
    }
}

/// A policy that was set through the monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyEntry {
    /// The directory, as it was called when the policy was set.
    pub path: Vec<u8>,
    /// How often it was set.
    pub version: u64,
    /// Canonical text.
    pub policy: String,
    /// The directory's inode, which stays the same when it is renamed; 0 if it is not known.
    pub ino: Ino,
}

/// A subtree that belongs to one client for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecoupledSubtree {
    /// Its path when it was decoupled.
    pub path: Vec<u8>,
    /// Its root.
    pub ino: Ino,
    /// Whose it is.
    pub client: ClientId,
    /// The inode numbers that are the client's.
    pub range: InoRange,
    /// Its policy.
    pub policy: String,
    /// The policy that will be in force when the subtree is shared again, if a user set another one
    /// since; empty for none of its own.
    pub next: Option<String>,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMap {
    /// Grows with every change.
    pub epoch: Epoch,
    /// Identifies the cluster.
    pub cluster: String,
    /// Where the object store is.
    pub store: String,
    /// The next client id that was never given out.
    pub next_client: ClientId,
    /// The metadata servers, by rank.
    pub mds: Vec<MdsEntry>,
    /// Policies, by path.
    pub policies: Vec<PolicyEntry>,
    /// Decoupled subtrees, as the servers report them; not stored with the map.
    pub decoupled: Vec<DecoupledSubtree>,
    /// The balancer policies that were put in force last, by version: the last one is in force.
    pub balancers: Vec<BalancerEntry>,
    /// The servers' conditions; not stored with the map.
    pub warnings: Vec<(Rank, Warning)>,
    /// The ids of revoked keys, in order: no daemon or client accepts them.
    pub revoked: Vec<u64>,
}

impl ClusterMap {
    /// The versions that can be read of a map that was stored: [`ClusterMap::decode_stored`].
    pub const STORED_VERSIONS: std::ops::RangeInclusive<u16> = 1..=4;

    /// The balancer policy in force.
    #[must_use]
    pub fn balancer(&self) -> BalancerEntry {
        self.balancers.last().cloned().unwrap_or_default()
    }

    /// How many decoupled subtrees there are by the counters of the servers: the status lists as
    /// many as fit a message.
    #[must_use]
    pub fn decoupled_count(&self) -> u64 {
        let counters = self.mds.iter().flat_map(|entry| &entry.counters);
        let counts = counters.filter(|(name, _)| name == "decoupled_subtrees");
        // The counters may be older than the list.
        counts.map(|(_, count)| count).sum::<u64>().max(self.decoupled.len() as u64)
    }

    /// Appends the map's bytes. With `live`, also the servers' last reports, which are not stored:
    /// their counters and the decoupled subtrees.
    pub fn encode(&self, out: &mut Vec<u8>, live: bool) {
        let Self {
            epoch,
            cluster,
            store,
            next_client,
            mds,
            policies,
            decoupled,
            balancers,
            warnings,
            revoked,
        } = self;
        out.put_varint(epoch.0);
        out.put_bytes(cluster.as_bytes());
        out.put_bytes(store.as_bytes());
        out.put_varint(next_client.0);
        put_list(out, mds, |out, entry| put_mds(out, entry, live));
        put_list(out, policies, |out, entry| {
            out.put_bytes(&entry.path);
            out.put_varint(entry.version);
            out.put_bytes(entry.policy.as_bytes());
            out.put_varint(entry.ino.0);
        });
        put_list(out, if live { decoupled } else { &[] }, put_decoupled);
        put_list(out, balancers, put_balancer);
        put_list(out, if live { warnings } else { &[] }, |out, (rank, warning)| {
            out.put_varint(u64::from(rank.0));
            put_warning(out, warning);
        });
        put_list(out, revoked, |out, id| out.put_u64(*id));
    }

    /// Reads a map.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::decode_stored(reader, *Self::STORED_VERSIONS.end())
    }

    /// Reads a map as it was stored: version 1 does not name the inodes of directories with
    /// policies, version 2 no balancers, version 3 no revoked keys.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn decode_stored(reader: &mut Reader<'_>, version: u16) -> Result<Self, Malformed> {
        Ok(Self {
            epoch: Epoch(reader.varint()?),
            cluster: string(reader)?,
            store: string(reader)?,
            next_client: ClientId(reader.varint()?),
            mds: list(reader, mds)?,
            policies: list(reader, |reader| {
                Ok(PolicyEntry {
                    path: reader.bytes()?.to_vec(),
                    version: reader.varint()?,
                    policy: string(reader)?,
                    ino: if version > 1 { ino(reader)? } else { Ino(0) },
                })
            })?,
            decoupled: list(reader, decoupled)?,
            balancers: if version > 2 { list(reader, balancer)? } else { Vec::new() },
            warnings: if version > 2 {
                list(reader, |reader| Ok((rank(reader)?, warning(reader)?)))?
            } else {
                Vec::new()
            },
            revoked: if version > 3 { list(reader, Reader::u64)? } else { Vec::new() },
        })
    }
}

fn put_mds(out: &mut Vec<u8>, entry: &MdsEntry, live: bool) {
    let MdsEntry { rank, epoch, address, state, pid, counters } = entry;
    out.put_varint(u64::from(rank.0));
    out.put_varint(epoch.0);
    out.put_bytes(address.as_bytes());
    out.put_u8(*state as u8);
    out.put_varint(u64::from(*pid));
    put_counters(out, if live { counters } else { &[] });
}

pub(crate) fn put_warning(out: &mut Vec<u8>, warning: &Warning) {
    let Warning { code, text, remedy } = warning;
    [code, text, remedy].into_iter().for_each(|text| out.put_bytes(text.as_bytes()));
}

pub(crate) fn warning(reader: &mut Reader<'_>) -> Result<Warning, Malformed> {
    Ok(Warning { code: string(reader)?, text: string(reader)?, remedy: string(reader)? })
}

pub(crate) fn put_balancer(out: &mut Vec<u8>, entry: &BalancerEntry) {
    let BalancerEntry { version, object, name, time, why, failed } = entry;
    out.put_varint(*version);
    out.put_varint(*object);
    out.put_bytes(name.as_bytes());
    out.put_signed(time.0);
    out.put_bytes(why.as_bytes());
    out.put_u8(u8::from(*failed));
}

pub(crate) fn balancer(reader: &mut Reader<'_>) -> Result<BalancerEntry, Malformed> {
    Ok(BalancerEntry {
        version: reader.varint()?,
        object: reader.varint()?,
        name: string(reader)?,
        time: Timestamp(reader.signed()?),
        why: string(reader)?,
        failed: boolean(reader)?,
    })
}

pub(crate) fn put_decoupled(out: &mut Vec<u8>, subtree: &DecoupledSubtree) {
    let DecoupledSubtree { path, ino, client, range, policy, next } = subtree;
    out.put_bytes(path);
    out.put_varint(ino.0);
    out.put_varint(client.0);
    put_range(out, *range);
    out.put_bytes(policy.as_bytes());
    put_option(out, next.as_deref(), |out, next| out.put_bytes(next.as_bytes()));
}

pub(crate) fn decoupled(reader: &mut Reader<'_>) -> Result<DecoupledSubtree, Malformed> {
    Ok(DecoupledSubtree {
        path: reader.bytes()?.to_vec(),
        ino: ino(reader)?,
        client: ClientId(reader.varint()?),
        range: range(reader)?,
        policy: string(reader)?,
        next: option(reader, string)?,
    })
}

pub(crate) fn put_counters(out: &mut Vec<u8>, counters: &[(String, u64)]) {
    put_list(out, counters, |out, (name, value)| {
        out.put_bytes(name.as_bytes());
        out.put_varint(*value);
    });
}

pub(crate) fn counters(reader: &mut Reader<'_>) -> Result<Vec<(String, u64)>, Malformed> {
    list(reader, |reader| Ok((string(reader)?, reader.varint()?)))
}

pub(crate) fn rank(reader: &mut Reader<'_>) -> Result<Rank, Malformed> {
    let start = *reader;
    let number = reader.varint()?;
    u16::try_from(number).map(Rank).map_err(|_| start.malformed("a rank"))
}

pub(crate) fn state(reader: &mut Reader<'_>) -> Result<MdsState, Malformed> {
    let start = *reader;
    MdsState::from_code(reader.u8()?).ok_or_else(|| start.malformed("a known state"))
}

fn mds(reader: &mut Reader<'_>) -> Result<MdsEntry, Malformed> {
    Ok(MdsEntry {
        rank: rank(reader)?,
        epoch: Epoch(reader.varint()?),
        address: string(reader)?,
        state: state(reader)?,
        pid: reader.varint_u32()?,
        counters: counters(reader)?,
    })
}
