//! The object that says which rank is the authority of which subtree (B-02).
//!
//! The authority of an inode is that of the nearest directory above it that the object names, and
//! rank 0 where there is none. The object is replaced by compare-and-swap and nothing else, and
//! that is the moment in which a subtree, or a name between two ranks, changes hands (B-03, F-13).
//! So there is one authority at any time, after any crash. Each subtree carries the data that its
//! new authority needs to begin: its root's inode and those with several names, the policy that the
//! root inherits, and the entries of its rank's table about decoupled subtrees in it.
//!
//! ```text
//! object  := "CUDLSUBT" format:u16 count:varint subtree* count:varint fence* count:varint name*
//!            crc:u32
//! subtree := root:varint rank:varint moves:varint flags:u8 path:bytes policy:bytes
//!            inode:bytes part? outer:varint decoupled:bytes moved:signed
//! part    := state:u8 dir:varint bits:u8 value:u32 mode:varint uid:varint gid:varint
//! fence   := rank:varint value:varint
//! ```
//!
//! `name` is a [`MovedName`], the record of a name that moves to another rank: it is in the list
//! from the commit of the transfer until the journals of both ranks have their parts. The commit
//! requires that the `fence` of the taker has not changed since the taker reserved the name.
//!
//! Format 7 has neither fences nor names: each such name had an object of its own. Format 6 does
//! not say when a subtree was moved. Format 5 hands over no inodes with several names: those
//! stayed. Format 4 has no subtrees that follow their names, and does not mark joined ones (flags).
//! Format 3 has neither `outer` nor `decoupled`: subtrees were not in each other, and a subtree
//! that returned to rank 0 was a part of the one around it even if the list named it, so that is
//! left out. Format 2 has no fragments, format 1 no flags either: moves were made by hand then. All
//! are read.
//!
//! A directory that is split has its names in hidden directories, one for each fragment, which are
//! subtrees of their own here: so a fragment changes hands like any subtree.
//!
//! `docs/formats/rank.md` says it in words.
//!
//! Invariant: from any bytes, decoding returns subtrees sorted by their roots, each once, or an
//! error that names the byte.

use std::collections::BTreeMap;

use types::bytes::{Malformed, Put, Reader};
use types::{Frag, Ino, Rank, Timestamp};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};
use crate::moved_name::{MovedName, rank};

/// Name of the object.
pub const SUBTREES_NAME: &str = "mds/subtrees";

const FRAME: Frame = Frame {
    magic: b"CUDLSUBT",
    versions: VERSION_PINNED..=8,
    is_magic: "the magic of a list of subtrees",
};
/// The version that says neither which subtrees follow their names, nor which are joined.
const VERSION_NESTED: u16 = 4;
/// The last version without fences and names.
const VERSION_NAMELESS: u16 = 7;
/// The last version without the times of moves.
const VERSION_TIMELESS: u16 = 6;
/// The version without flags.
const VERSION_PINNED: u16 = 1;
/// The version without fragments.
const VERSION_WHOLE: u16 = 2;
/// The version that has neither the subtree with the root's name, nor decoupled subtrees.
const VERSION_FLAT: u16 = 3;
const PINNED: u8 = 1;
const FRAGMENT: u8 = 2;
const FOLLOWS: u8 = 4;
const JOINED: u8 = 8;
/// How many subtrees there may be: the object stays small, and requests are compared with all.
pub const SUBTREES_MAX: usize = 4096;
/// How many names may be on their way at once: each has its inode in the object.
const NAMES_MAX: usize = 1024;
/// How many bytes their inodes may have: some have content in them.
const NAMES_BYTES_MAX: usize = 4 << 20;

/// A subtree that was moved to a rank, or back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedSubtree {
    /// Its root directory.
    pub root: Ino,
    /// Its authority.
    pub rank: Rank,
    /// How often it was moved, this time included.
    pub moves: u64,
    /// A user wants it there: the balancer leaves it.
    pub pinned: bool,
    /// It is apart from the subtree around its name only because its root was renamed: its rank
    /// gives it to the one that has the name as soon as it can.
    pub follows: bool,
    /// It is where its name is, and a part of the subtree around it: it moves with that one, and
    /// `rank` and `outer` decide nothing. The list still knows how often it was moved, and whether
    /// it is pinned where it is.
    pub joined: bool,
    /// The path of the root when it was moved.
    pub path: Vec<u8>,
    /// The policy that the root inherits, canonical text; empty for the default.
    pub policy: String,
    /// The root's inode when it was moved, and those that have several names, all of them in it:
    /// blocks of a journal with one event for each.
    pub inode: Vec<u8>,
    /// The fragment of which the root is the hidden directory, if it is one.
    pub part: Option<FragmentOf>,
    /// The root of the subtree that has the name of this one's root; 0 if that is none of them.
    pub outer: Ino,
    /// Until it is taken in, the decoupled subtrees in it, from the table of the rank that had it.
    pub decoupled: Vec<u8>,
    /// When it was moved last, by the clock of the rank that gave it away; 0 if that is not known.
    pub moved: Timestamp,
}

/// The operation on the fragments of a directory: all of its fragments have the same value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartState {
    /// Nothing: each name is in its fragment.
    #[default]
    Stable,
    /// Names are being moved from the directory to the fragments.
    Splitting,
    /// Names are being moved back.
    Joining,
}

/// The fragment of a directory that a hidden directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentOf {
    /// The directory.
    pub dir: Ino,
    /// Which of its names.
    pub frag: Frag,
    /// See [`PartState`].
    pub state: PartState,
    /// The permissions of the directory: mode, owner and group.
    pub access: (u32, u32, u32),
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtrees {
    list: Vec<MovedSubtree>,
    /// The fences of ranks that have one: none is 0.
    fences: BTreeMap<Rank, u64>,
    /// The names on their way, by giver and number.
    names: BTreeMap<(Rank, u64), MovedName>,
}

impl Subtrees {
    /// All of them, by root.
    pub fn iter(&self) -> impl Iterator<Item = &MovedSubtree> {
        self.list.iter()
    }

    /// Whether everything is one rank's: nothing was ever moved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The subtrees that their ranks serve apart from the subtrees around them.
    pub fn unjoined(&self) -> impl Iterator<Item = &MovedSubtree> {
        self.list.iter().filter(|subtree| !subtree.joined)
    }

    /// The subtree with this root, if its rank serves it apart from the subtree around it.
    #[must_use]
    pub fn unjoined_at(&self, root: Ino) -> Option<&MovedSubtree> {
        self.get(root).filter(|subtree| !subtree.joined)
    }

    /// The subtree with this root.
    #[must_use]
    pub fn get(&self, root: Ino) -> Option<&MovedSubtree> {
        let at = self.list.binary_search_by_key(&root, |subtree| subtree.root).ok()?;
        self.list.get(at)
    }

    /// Adds a subtree, or replaces its entry.
    pub fn put(&mut self, subtree: MovedSubtree) {
        match self.list.binary_search_by_key(&subtree.root, |subtree| subtree.root) {
            Ok(at) => self.list[at] = subtree,
            Err(at) => self.list.insert(at, subtree),
        }
    }

    /// Removes a subtree from the list: the rank that serves the subtree around it serves it, too.
    pub fn remove(&mut self, root: Ino) {
        self.list.retain(|subtree| subtree.root != root);
    }

    /// The fragments of a directory, by their hashes; none if it is not split.
    #[must_use]
    pub fn parts_of(&self, dir: Ino) -> Vec<(Ino, FragmentOf)> {
        let parts = self.list.iter().filter_map(|it| Some((it.root, it.part?)));
        let mut parts: Vec<_> = parts.filter(|(_, part)| part.dir == dir).collect();
        parts.sort_unstable_by_key(|(_, part)| part.frag.value);
        parts
    }

    /// The fence of a rank; 0 if the rank never reserved a name.
    #[must_use]
    pub fn fence(&self, rank: Rank) -> u64 {
        self.fences.get(&rank).copied().unwrap_or_default()
    }

    /// Ends all reservations of a rank.
    pub fn raise_fence(&mut self, rank: Rank) {
        *self.fences.entry(rank).or_default() += 1;
    }

    /// The names on their way from one rank to another one.
    pub fn names(&self) -> impl Iterator<Item = &MovedName> {
        self.names.values()
    }

    /// The record of a transfer, by giver and number.
    #[must_use]
    pub fn name(&self, key: (Rank, u64)) -> Option<&MovedName> {
        self.names.get(&key)
    }

    /// Whether the list stays small enough with one more name.
    #[must_use]
    pub fn has_room(&self, name: &MovedName) -> bool {
        let bytes: usize = self.names.values().map(|it| it.inode.len()).sum();
        self.names.len() < NAMES_MAX && bytes + name.inode.len() <= NAMES_BYTES_MAX
    }

    /// Adds the record of a transfer: the name is the taker's.
    pub fn put_name(&mut self, name: MovedName) {
        self.names.insert(name.key(), name);
    }

    /// Notes that the journal of a rank has its part of a transfer. A record with both marks goes.
    pub fn mark_name(&mut self, key: (Rank, u64), rank: Rank) {
        let Some(name) = self.names.get_mut(&key) else { return };
        name.is_given |= name.from == rank;
        name.is_taken |= name.to == rank;
        if name.is_given && name.is_taken {
            self.names.remove(&key);
        }
    }

    /// The rank that has the name of a subtree's root.
    #[must_use]
    pub fn named_by(&self, subtree: &MovedSubtree) -> Rank {
        self.get(subtree.outer).map_or(Rank(0), |outer| outer.rank)
    }

    /// A subtree at the rank of its name becomes a part of the subtree around it; a list of an
    /// older version did not mark these.
    fn join(&mut self) {
        let is_joined = |it: &MovedSubtree| {
            it.part.is_none() && it.inode.is_empty() && it.rank == self.named_by(it)
        };
        let joined: Vec<bool> = self.list.iter().map(is_joined).collect();
        self.list.iter_mut().zip(joined).for_each(|(subtree, joined)| subtree.joined = joined);
        for at in 0..self.list.len() {
            // Only a damaged list has rings.
            for _ in 0..self.list.len() {
                let outer = self.get(self.list[at].outer).filter(|outer| outer.joined);
                let Some(around) = outer.map(|outer| outer.outer) else { break };
                self.list[at].outer = around;
            }
        }
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varint(self.list.len() as u64);
        for subtree in &self.list {
            let MovedSubtree {
                root, rank, moves, path, policy, inode, part, outer, decoupled, ..
            } = subtree;
            out.put_varint(root.0);
            out.put_varint(u64::from(rank.0));
            out.put_varint(*moves);
            let flags = [
                (PINNED, subtree.pinned),
                (FRAGMENT, part.is_some()),
                (FOLLOWS, subtree.follows),
                (JOINED, subtree.joined),
            ];
            out.put_u8(flags.iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
            out.put_bytes(path);
            out.put_bytes(policy.as_bytes());
            out.put_bytes(inode);
            if let Some(part) = part {
                put_part(&mut out, part);
            }
            out.put_varint(outer.0);
            out.put_bytes(decoupled);
            out.put_signed(subtree.moved.0);
        }
        out.put_varint(self.fences.len() as u64);
        for (rank, fence) in &self.fences {
            out.put_varint(u64::from(rank.0));
            out.put_varint(*fence);
        }
        out.put_varint(self.names.len() as u64);
        self.names.values().for_each(|name| name.put(&mut out));
        sealed(out)
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but the result of [`Subtrees::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(SUBTREES_NAME, malformed))
    }
}

fn read(bytes: &[u8]) -> Result<Subtrees, Malformed> {
    let (version, mut reader) = FRAME.open(bytes)?;
    let before = reader;
    let count = reader.varint()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(subtree(&mut reader, version)?);
    }
    let (mut fences, mut names) = (BTreeMap::new(), BTreeMap::new());
    if version > VERSION_NAMELESS {
        fences = in_order(&mut reader, usize::from(u16::MAX), |reader| {
            Ok((rank(reader)?, reader.varint()?))
        })?;
        names = in_order(&mut reader, NAMES_MAX, |reader| {
            MovedName::read(reader).map(|name| (name.key(), name))
        })?;
    }
    reader.end()?;
    if list.len() > SUBTREES_MAX || !list.is_sorted_by(|a: &MovedSubtree, b| a.root < b.root) {
        return Err(before.malformed("subtrees in order, and not too many"));
    }
    if version <= VERSION_FLAT {
        let came_back = |it: &MovedSubtree| it.rank == Rank(0) && it.inode.is_empty();
        list.retain(|subtree| !came_back(subtree) || subtree.part.is_some());
    }
    let mut subtrees = Subtrees { list, fences, names };
    if version <= VERSION_NESTED {
        subtrees.join();
    }
    Ok(subtrees)
}

/// At most so many values, in the order of their keys.
fn in_order<K: Ord, V>(
    reader: &mut Reader<'_>,
    max: usize,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<(K, V), Malformed>,
) -> Result<BTreeMap<K, V>, Malformed> {
    let start = *reader;
    let mut all = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let (key, value) = read(reader)?;
        let is_next = all.last_key_value().is_none_or(|(last, _)| *last < key);
        if !is_next || all.len() == max {
            return Err(start.malformed("values in order, and not too many"));
        }
        all.insert(key, value);
    }
    Ok(all)
}

fn put_part(out: &mut Vec<u8>, part: &FragmentOf) {
    let FragmentOf { dir, frag, state, access } = part;
    out.put_u8(match state {
        PartState::Stable => 1,
        PartState::Splitting => 2,
        PartState::Joining => 3,
    });
    out.put_varint(dir.0);
    out.put_u8(frag.bits);
    out.put_u32(frag.value);
    for number in [access.0, access.1, access.2] {
        out.put_varint(u64::from(number));
    }
}

fn part(reader: &mut Reader<'_>) -> Result<FragmentOf, Malformed> {
    let start = *reader;
    let state = match reader.u8()? {
        1 => PartState::Stable,
        2 => PartState::Splitting,
        3 => PartState::Joining,
        _ => return Err(start.malformed("what is done to a fragment")),
    };
    let dir = Ino(reader.varint()?);
    let start = *reader;
    let frag = Frag { bits: reader.u8()?, value: reader.u32()? };
    if !frag.is_legal() || frag == Frag::WHOLE {
        return Err(start.malformed("a fragment"));
    }
    let access = (reader.varint_u32()?, reader.varint_u32()?, reader.varint_u32()?);
    Ok(FragmentOf { dir, frag, state, access })
}

fn subtree(reader: &mut Reader<'_>, version: u16) -> Result<MovedSubtree, Malformed> {
    let root = Ino(reader.varint()?);
    let rank = rank(reader)?;
    let moves = reader.varint()?;
    let start = *reader;
    let flags = if version == VERSION_PINNED { PINNED } else { reader.u8()? };
    let known = match version {
        ..=VERSION_WHOLE => PINNED,
        VERSION_FLAT..=VERSION_NESTED => PINNED | FRAGMENT,
        _ => PINNED | FRAGMENT | FOLLOWS | JOINED,
    };
    if flags & !known != 0 {
        return Err(start.malformed("known flags"));
    }
    let is = |flag| flags & flag != 0;
    let (pinned, follows, joined) = (is(PINNED), is(FOLLOWS), is(JOINED));
    let path = reader.bytes()?.to_vec();
    let start = *reader;
    let policy = String::from_utf8(reader.bytes()?.to_vec());
    let policy = policy.map_err(|_| start.malformed("text"))?;
    let inode = reader.bytes()?.to_vec();
    let part = if flags & FRAGMENT == 0 { None } else { Some(part(reader)?) };
    let (mut outer, mut decoupled) = (Ino(0), Vec::new());
    if version > VERSION_FLAT {
        outer = Ino(reader.varint()?);
        decoupled = reader.bytes()?.to_vec();
    }
    let moved = if version > VERSION_TIMELESS { reader.signed()? } else { 0 };
    let moved = Timestamp(moved);
    Ok(MovedSubtree {
        root,
        rank,
        moves,
        pinned,
        follows,
        joined,
        path,
        policy,
        inode,
        part,
        outer,
        decoupled,
        moved,
    })
}

#[cfg(test)]
mod tests;
