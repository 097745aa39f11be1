//! The object of a branch (E-04): its origin snapshot, the journals that were appended since, and
//! its state.
//!
//! A branch needs no server. A process that works on it holds its lock, puts its changes into the
//! store as a journal, a *layer*, and replaces this object by one that lists it. Layers are never
//! changed; branches of a branch list the same ones.
//!
//! ```text
//! object := "CUDLBRAN" format:u16 id:u64 state:u8 snapshot:u64 root:varint time:signed
//!           changes:varint from:bytes inherited:varint count:varint layer* count:varint range*
//!           client:varint conflict:u8 journal:bytes crc:u32
//! layer  := owner:u64 number:varint first:varint events:varint bytes:varint crc:u32
//! range  := start:varint end:varint
//! ```
//!
//! `docs/formats/branches.md` says it in words.
//!
//! Invariant: for any bytes, decoding returns a branch with layers that follow on each other, or an
//! error that names the byte.

use crc32c::crc32c;
use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Ino, InoRange, Seq, Timestamp};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};

/// The prefix of the objects of branches; the name of the branch follows.
pub const BRANCH_PREFIX: &str = "branches/named/";
/// The prefix of layers.
pub const LAYER_PREFIX: &str = "branches/layers/";
/// Longest name of a branch in bytes.
pub const BRANCH_NAME_BYTES_MAX: usize = 100;
/// The most layers of one branch: opening the branch reads each.
pub const LAYERS_MAX: usize = 100_000;

const FRAME: Frame =
    Frame { magic: b"CUDLBRAN", versions: 1..=1, is_magic: "the magic of a branch" };
/// A layer takes at least so many bytes, and a range.
const LAYER_BYTES_MIN: usize = 16;
const RANGE_BYTES_MIN: usize = 2;

/// The state of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BranchState {
    /// Its snapshot is being taken.
    #[default]
    Begun,
    /// It can be worked on.
    Open,
    /// It is complete, and waits to be merged.
    Published,
    /// It is being merged.
    Merging,
    /// The trunk has it.
    Merged,
}

impl BranchState {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 5] =
        [Self::Begun, Self::Open, Self::Published, Self::Merging, Self::Merged];

    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Open => "open",
            Self::Published => "published",
            Self::Merging => "merging",
            Self::Merged => "merged",
        }
    }
}

/// The winner where a branch and the trunk have changed the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// The branch, name by name.
    #[default]
    Branch,
    /// The trunk: the branch's changes there are left out.
    Trunk,
    /// Nobody: the branch is not merged.
    Fail,
}

impl Conflict {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 3] = [Self::Branch, Self::Trunk, Self::Fail];
}

/// A journal of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// The branch that wrote it.
    pub owner: u64,
    /// Which of that one's; never given twice.
    pub number: u64,
    /// Position of its first event.
    pub first: Seq,
    /// How many events it has.
    pub events: u64,
    /// The length of the object.
    pub bytes: u64,
    /// The CRC-32C of the whole object.
    pub crc: u32,
}

impl Layer {
    /// The name of its object.
    #[must_use]
    pub fn name(&self) -> String {
        layer_name(self.owner, self.number)
    }

    /// Whether the bytes are the journal that is meant.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.bytes && crc32c(bytes) == self.crc
    }

    /// The layer with the length and the checksum of this object.
    #[must_use]
    pub fn with_object(self, bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc: crc32c(bytes), ..self }
    }
}

/// The name of a layer's object.
#[must_use]
pub fn layer_name(owner: u64, number: u64) -> String {
    format!("{LAYER_PREFIX}{owner:016x}.{number:08x}")
}

/// The branch that wrote a layer of this name, and which of its layers it is.
#[must_use]
pub fn parse_layer(name: &str) -> Option<(u64, u64)> {
    let (owner, number) = name.strip_prefix(LAYER_PREFIX)?.split_once('.')?;
    let layer = (u64::from_str_radix(owner, 16).ok()?, u64::from_str_radix(number, 16).ok()?);
    (layer_name(layer.0, layer.1) == name).then_some(layer)
}

/// The parameters of a merge: a process that finishes an interrupted merge uses the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeBegun {
    /// As which client; 0 before there is one.
    pub client: ClientId,
    /// Who wins.
    pub conflict: Conflict,
    /// The object with the journal to merge, once it is stored; empty before.
    pub journal: String,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Chosen when it was made; its layers are called by it.
    pub id: u64,
    /// The branch's state.
    pub state: BranchState,
    /// The id of its snapshot.
    pub snapshot: u64,
    /// The root directory of its subtree.
    pub root: Ino,
    /// When it was made.
    pub time: Timestamp,
    /// Grows with every replacement, so that no two contents are equal.
    pub changes: u64,
    /// The branch that it goes out from; empty for none.
    pub from: String,
    /// How many of the layers are that one's.
    pub inherited: usize,
    /// Its layers, oldest first.
    pub layers: Vec<Layer>,
    /// The inode numbers that its layers may use, those of the branch that it goes out from first.
    pub ranges: Vec<InoRange>,
    /// How it is merged.
    pub merge: MergeBegun,
}

impl Branch {
    /// Position of the next event.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.layers.last().map_or(Seq(1), |layer| Seq(layer.first.0 + layer.events))
    }

    /// The number of the next layer of its own.
    #[must_use]
    pub fn next_layer(&self) -> u64 {
        let own = self.layers.iter().filter(|layer| layer.owner == self.id);
        own.map(|layer| layer.number + 1).max().unwrap_or(0)
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_u64(self.id);
        out.put_u8(self.state as u8);
        out.put_u64(self.snapshot);
        out.put_varint(self.root.0);
        out.put_signed(self.time.0);
        out.put_varint(self.changes);
        out.put_bytes(self.from.as_bytes());
        out.put_varint(self.inherited as u64);
        out.put_varint(self.layers.len() as u64);
        for Layer { owner, number, first, events, bytes, crc } in &self.layers {
            out.put_u64(*owner);
            for value in [*number, first.0, *events, *bytes] {
                out.put_varint(value);
            }
            out.put_u32(*crc);
        }
        out.put_varint(self.ranges.len() as u64);
        for range in &self.ranges {
            out.put_varint(range.start);
            out.put_varint(range.end);
        }
        out.put_varint(self.merge.client.0);
        out.put_u8(self.merge.conflict as u8);
        out.put_bytes(self.merge.journal.as_bytes());
        sealed(out)
    }

    /// Reads the object of this name.
    ///
    /// # Errors
    /// If [`Branch::encode`] cannot have written the bytes.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(name, malformed))
    }
}

/// Whether a branch may have this name: letters, digits, `-`, `_` and `.`, not first a `.`.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=BRANCH_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(legal)
}

fn read(bytes: &[u8]) -> Result<Branch, Malformed> {
    let (_, mut reader) = FRAME.open(bytes)?;
    let id = reader.u64()?;
    let state = one_of(&mut reader, &BranchState::ALL)?;
    let (snapshot, root) = (reader.u64()?, Ino(reader.varint()?));
    let time = Timestamp(reader.signed()?);
    let (changes, from) = (reader.varint()?, text(&mut reader)?);
    let before = reader;
    let inherited = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    let count = counted(&mut reader, LAYER_BYTES_MIN)?;
    let mut layers = Vec::with_capacity(count);
    for _ in 0..count {
        layers.push(Layer {
            owner: reader.u64()?,
            number: reader.varint()?,
            first: Seq(reader.varint()?),
            events: reader.varint()?,
            bytes: reader.varint()?,
            crc: reader.u32()?,
        });
    }
    let follows = |pair: &[Layer]| match pair {
        [one, next] => one.first.0.checked_add(one.events) == Some(next.first.0),
        _ => true,
    };
    let begins = layers.first().is_none_or(|layer| layer.first == Seq(1));
    let ends = layers.last().is_none_or(|layer| layer.first.0.checked_add(layer.events).is_some());
    if inherited > count
        || count > LAYERS_MAX
        || !begins
        || !ends
        || !layers.windows(2).all(follows)
    {
        return Err(before.malformed("layers that follow on each other"));
    }
    let count = counted(&mut reader, RANGE_BYTES_MIN)?;
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        ranges.push(InoRange { start: reader.varint()?, end: reader.varint()? });
    }
    let merge = MergeBegun {
        client: ClientId(reader.varint()?),
        conflict: one_of(&mut reader, &Conflict::ALL)?,
        journal: text(&mut reader)?,
    };
    reader.end()?;
    Ok(Branch { id, state, snapshot, root, time, changes, from, inherited, layers, ranges, merge })
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let start = *reader;
    String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| start.malformed("text"))
}

fn one_of<T: Copy>(reader: &mut Reader<'_>, all: &[T]) -> Result<T, Malformed> {
    let start = *reader;
    all.get(usize::from(reader.u8()?)).copied().ok_or_else(|| start.malformed("a known code"))
}

/// A number of items, each with bytes in the input: checked before memory is allocated for them.
fn counted(reader: &mut Reader<'_>, each: usize) -> Result<usize, Malformed> {
    let start = *reader;
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    let fits = count <= reader.rest().len() / each;
    if fits { Ok(count) } else { Err(start.malformed("as many as there are bytes for")) }
}

#[cfg(test)]
mod tests;
