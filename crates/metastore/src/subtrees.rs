//! The object that says which rank is the authority of which subtree (B-02).
//!
//! The nearest directory above an inode that the object names decides, and rank 0 where there is
//! none. The object is replaced by compare-and-swap and nothing else, and that is the moment in which
//! a subtree changes hands (B-03): so there is one authority at any time, whatever crashes. With each
//! subtree goes what its new authority needs to begin: its root's inode, and the policy that the
//! root inherits.
//!
//! ```text
//! object  := "CUDLSUBT" format:u16 count:varint subtree* crc:u32
//! subtree := root:varint rank:varint moves:varint flags:u8 path:bytes policy:bytes inode:bytes
//! ```
//!
//! Format 1 has no flags, and is read: who moved something then did so by hand.
//!
//! `docs/formats/rank.md` says it in words.
//!
//! Invariant: whatever the bytes, decoding returns subtrees sorted by their roots, each once, or an
//! error that names the byte.

use crc32c::crc32c;
use types::bytes::{Malformed, Put, Reader};
use types::{Ino, Rank};

use crate::error::{FormatError, KNOWN_VERSION};

/// Name of the object.
pub const SUBTREES_NAME: &str = "mds/subtrees";

const MAGIC: &[u8; 8] = b"CUDLSUBT";
const VERSION: u16 = 2;
const PINNED: u8 = 1;
const CRC_BYTES: usize = 4;
/// How many subtrees there may be: the object stays small, and requests are compared with all.
pub const SUBTREES_MAX: usize = 4096;

/// A subtree that was moved to a rank, or back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtree {
    /// Its root directory.
    pub root: Ino,
    /// Its authority.
    pub rank: Rank,
    /// How often it was moved, this time included.
    pub moves: u64,
    /// Somebody wants it there: the balancer leaves it.
    pub pinned: bool,
    /// The path of the root when it was moved.
    pub path: Vec<u8>,
    /// The policy that the root inherits, canonical text; empty for the default.
    pub policy: String,
    /// The root's inode when it was moved: one block of a journal with one event.
    pub inode: Vec<u8>,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtrees {
    list: Vec<Subtree>,
}

impl Subtrees {
    /// All of them, by root.
    pub fn iter(&self) -> impl Iterator<Item = &Subtree> {
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

    /// The subtree with this root.
    #[must_use]
    pub fn get(&self, root: Ino) -> Option<&Subtree> {
        let at = self.list.binary_search_by_key(&root, |subtree| subtree.root).ok()?;
        self.list.get(at)
    }

    /// Adds a subtree, or replaces what is known of it.
    pub fn put(&mut self, subtree: Subtree) {
        match self.list.binary_search_by_key(&subtree.root, |subtree| subtree.root) {
            Ok(at) => self.list[at] = subtree,
            Err(at) => self.list.insert(at, subtree),
        }
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u16(VERSION);
        out.put_varint(self.list.len() as u64);
        for Subtree { root, rank, moves, pinned, path, policy, inode } in &self.list {
            out.put_varint(root.0);
            out.put_varint(u64::from(rank.0));
            out.put_varint(*moves);
            out.put_u8(if *pinned { PINNED } else { 0 });
            out.put_bytes(path);
            out.put_bytes(policy.as_bytes());
            out.put_bytes(inode);
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but what [`Subtrees::encode`] returns.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(SUBTREES_NAME, malformed))
    }
}

fn read(bytes: &[u8]) -> Result<Subtrees, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Reader::new(bytes).malformed("the magic of a list of subtrees"));
    }
    let before_version = reader;
    let version = reader.u16()?;
    if !(1..=VERSION).contains(&version) {
        return Err(before_version.malformed(KNOWN_VERSION));
    }
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(reader.malformed("more bytes"));
    };
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(reader.malformed("subtrees whose checksum matches"));
    }
    let offset = reader.offset();
    let mut reader = Reader::new(body);
    reader.take(offset)?;
    let before = reader;
    let count = reader.varint()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(subtree(&mut reader, version)?);
    }
    reader.end()?;
    if list.len() > SUBTREES_MAX || !list.is_sorted_by(|a: &Subtree, b| a.root < b.root) {
        return Err(before.malformed("subtrees in order, and not too many"));
    }
    Ok(Subtrees { list })
}

fn subtree(reader: &mut Reader<'_>, version: u16) -> Result<Subtree, Malformed> {
    let root = Ino(reader.varint()?);
    let start = *reader;
    let rank = u16::try_from(reader.varint()?).map_err(|_| start.malformed("a rank"))?;
    let moves = reader.varint()?;
    let start = *reader;
    let pinned = match if version == 1 { PINNED } else { reader.u8()? } {
        0 => false,
        PINNED => true,
        _ => return Err(start.malformed("known flags")),
    };
    let path = reader.bytes()?.to_vec();
    let start = *reader;
    let policy = String::from_utf8(reader.bytes()?.to_vec());
    let policy = policy.map_err(|_| start.malformed("text"))?;
    let inode = reader.bytes()?.to_vec();
    Ok(Subtree { root, rank: Rank(rank), moves, pinned, path, policy, inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtrees() -> Subtrees {
        let mut subtrees = Subtrees::default();
        for (root, rank) in [(1 << 40, 1), (7, 2), (1 << 41, 0)] {
            subtrees.put(Subtree {
                root: Ino(root),
                rank: Rank(rank),
                moves: root,
                pinned: rank == 2,
                path: format!("/{root}").into_bytes(),
                policy: "consistency: rpcs\n".into(),
                inode: vec![3; 40],
            });
        }
        subtrees
    }

    #[test]
    fn what_is_written_is_read() {
        let subtrees = subtrees();
        assert_eq!(Subtrees::decode(&subtrees.encode()), Ok(subtrees));
        let none = Subtrees::default();
        assert_eq!(Subtrees::decode(&none.encode()), Ok(none));
    }

    fn one(pinned: bool) -> Subtrees {
        let mut one = Subtrees::default();
        one.put(Subtree {
            root: Ino(300),
            rank: Rank(1),
            moves: 2,
            pinned,
            path: b"/a".to_vec(),
            ..Subtree::default()
        });
        one
    }

    #[test]
    fn the_bytes_of_version_2() {
        let hex: String = one(false).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4355444c53554254020001ac02010200022f610000276761c7");
    }

    #[test]
    fn version_1_is_read_and_everything_in_it_is_pinned() {
        let hex = "4355444c53554254010001ac020102022f610000139b40b4";
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(Subtrees::decode(&bytes), Ok(one(true)));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_detected() {
        let bytes = subtrees().encode();
        for length in 0..bytes.len() {
            assert!(Subtrees::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Subtrees::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_subtree_is_known_once() {
        let mut subtrees = subtrees();
        subtrees.put(Subtree { root: Ino(7), rank: Rank(5), ..Subtree::default() });
        assert_eq!((subtrees.len(), subtrees.get(Ino(7)).map(|it| it.rank)), (3, Some(Rank(5))));
        assert_eq!(subtrees.get(Ino(8)), None);
    }
}
