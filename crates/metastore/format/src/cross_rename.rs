//! A name that moves from the directory of one rank to that of another: a rename between two
//! authorities (F-13).
//!
//! The rank that has the name offers it in an object of its own, and stops serving the name. The
//! other rank takes it by replacing the object, on condition that the offer still holds; the first
//! may withdraw it in the same way. The first of the two replacements decides, whichever rank
//! crashes. The taker replaces the object again when its journal has the name, and then the object
//! is deleted.
//!
//! ```text
//! object := "CUDLPASS" format:u16 state:u8 from:varint to:varint ino:varint parent:varint
//!           name:bytes new_parent:varint new_name:bytes no_replace:u8 time:signed inode:bytes
//!           uid:varint gid:varint count:varint group:varint* kind:u8 client:varint tid:varint
//!           crc:u32
//! ```
//!
//! `inode` is one block of a journal with one event, as in the list of subtrees.
//! `docs/formats/rank.md` describes it in words.
//!
//! Only the name of a directory moves: the old rank keeps serving the directory, as a subtree with
//! its name on the other rank. `client` and `tid` are the request that renames, so that a server
//! that recovers does not execute it again; 0 for an offer that a client carries itself. Format 2
//! does not have them; format 1 has no `kind` either, and knows only files.

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Cred, Ino, Rank, Tid, Timestamp};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};

/// The prefix of these objects.
pub const CROSS_RENAMES_PREFIX: &str = "mds/passage/";

const FRAME: Frame = Frame {
    magic: b"CUDLPASS",
    versions: VERSION_FILES..=3,
    is_magic: "the magic of a cross-rank rename",
};
/// The version that knows only files.
const VERSION_FILES: u16 = 1;
/// The version that does not name the request.
const VERSION_CARRIED: u16 = 2;
const FILE: u8 = 1;
const DIRECTORY: u8 = 2;

/// Name of the object of a cross-rank rename: `id` is the rank's own count.
#[must_use]
pub fn cross_rename_name(from: Rank, id: u64) -> String {
    format!("{CROSS_RENAMES_PREFIX}{:04x}/{id:016x}", from.0)
}

/// The rank and the number in the name of such an object.
#[must_use]
pub fn parse_cross_rename_name(name: &str) -> Option<(Rank, u64)> {
    let (rank, id) = name.strip_prefix(CROSS_RENAMES_PREFIX)?.split_once('/')?;
    let found = (Rank(u16::from_str_radix(rank, 16).ok()?), u64::from_str_radix(id, 16).ok()?);
    (cross_rename_name(found.0, found.1) == name).then_some(found)
}

/// The state of an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossRenameState {
    /// It stands.
    #[default]
    Offered,
    /// It was withdrawn: the name stays where it was.
    Withdrawn,
    /// It was taken: the name is the other rank's, which may have yet to write that down.
    Taken,
    /// It was taken, and the other rank's journal has it.
    Done,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrossRename {
    /// The state of the offer.
    pub state: CrossRenameState,
    /// The rank that has the name.
    pub from: Rank,
    /// The rank that gets it.
    pub to: Rank,
    /// The inode of the name.
    pub ino: Ino,
    /// The directory that it leaves.
    pub parent: Ino,
    /// The name there.
    pub name: Vec<u8>,
    /// The directory that it goes to.
    pub new_parent: Ino,
    /// The name there.
    pub new_name: Vec<u8>,
    /// Nothing may have that name.
    pub no_replace: bool,
    /// When it was asked for.
    pub time: Timestamp,
    /// The inode: one block of a journal with one event.
    pub inode: Vec<u8>,
    /// On whose behalf.
    pub cred: Cred,
    /// It is the name of a directory.
    pub is_dir: bool,
    /// The request that renames; client 0 for an offer that a client carries itself.
    pub request: (ClientId, Tid),
}

impl CrossRename {
    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_u8(match self.state {
            CrossRenameState::Offered => 1,
            CrossRenameState::Withdrawn => 2,
            CrossRenameState::Taken => 3,
            CrossRenameState::Done => 4,
        });
        out.put_varint(u64::from(self.from.0));
        out.put_varint(u64::from(self.to.0));
        out.put_varint(self.ino.0);
        out.put_varint(self.parent.0);
        out.put_bytes(&self.name);
        out.put_varint(self.new_parent.0);
        out.put_bytes(&self.new_name);
        out.put_u8(u8::from(self.no_replace));
        out.put_signed(self.time.0);
        out.put_bytes(&self.inode);
        out.put_varint(u64::from(self.cred.uid));
        out.put_varint(u64::from(self.cred.gid));
        out.put_varint(self.cred.groups.len() as u64);
        self.cred.groups.iter().for_each(|gid| out.put_varint(u64::from(*gid)));
        out.put_u8(if self.is_dir { DIRECTORY } else { FILE });
        out.put_varint(self.request.0.0);
        out.put_varint(self.request.1.0);
        sealed(out)
    }

    /// Reads the object with this name.
    ///
    /// # Errors
    /// If [`CrossRename::encode`] cannot have written the bytes.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(name, malformed))
    }
}

fn read(bytes: &[u8]) -> Result<CrossRename, Malformed> {
    let (version, mut reader) = FRAME.open(bytes)?;
    let start = reader;
    let state = match reader.u8()? {
        1 => CrossRenameState::Offered,
        2 => CrossRenameState::Withdrawn,
        3 => CrossRenameState::Taken,
        4 => CrossRenameState::Done,
        _ => return Err(start.malformed("what became of an offer")),
    };
    let (from, to) = (rank(&mut reader)?, rank(&mut reader)?);
    let ino = Ino(reader.varint()?);
    let (parent, name) = (Ino(reader.varint()?), reader.bytes()?.to_vec());
    let (new_parent, new_name) = (Ino(reader.varint()?), reader.bytes()?.to_vec());
    let no_replace = reader.u8()? != 0;
    let time = Timestamp(reader.signed()?);
    let inode = reader.bytes()?.to_vec();
    let (uid, gid) = (reader.varint_u32()?, reader.varint_u32()?);
    let count = reader.length()?;
    let groups = (0..count).map(|_| reader.varint_u32()).collect::<Result<_, _>>()?;
    let start = reader;
    let is_dir = match if version == VERSION_FILES { FILE } else { reader.u8()? } {
        FILE => false,
        DIRECTORY => true,
        _ => return Err(start.malformed("what it is the name of")),
    };
    let request = if version > VERSION_CARRIED {
        (ClientId(reader.varint()?), Tid(reader.varint()?))
    } else {
        (ClientId(0), Tid(0))
    };
    reader.end()?;
    Ok(CrossRename {
        state,
        from,
        to,
        ino,
        parent,
        name,
        new_parent,
        new_name,
        no_replace,
        time,
        inode,
        cred: Cred { uid, gid, groups },
        is_dir,
        request,
    })
}

fn rank(reader: &mut Reader<'_>) -> Result<Rank, Malformed> {
    let start = *reader;
    let rank = u16::try_from(reader.varint()?).map_err(|_| start.malformed("a rank"))?;
    Ok(Rank(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cross_rename(state: CrossRenameState) -> CrossRename {
        CrossRename {
            state,
            from: Rank(1),
            to: Rank(2),
            ino: Ino(77),
            parent: Ino(5),
            name: b"old".to_vec(),
            new_parent: Ino(6),
            new_name: b"new".to_vec(),
            no_replace: true,
            time: Timestamp(-3),
            inode: vec![1, 2, 3],
            cred: Cred { uid: 7, gid: 8, groups: vec![9, 10] },
            is_dir: false,
            request: (ClientId(0), Tid(0)),
        }
    }

    /// The same with another body, and a checksum that matches.
    fn with_body(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = bytes[..bytes.len() - crate::frame::CRC_BYTES].to_vec();
        change(&mut body);
        sealed(body)
    }

    #[test]
    fn version_1_is_read_and_is_about_a_file() {
        let cross_rename = cross_rename(CrossRenameState::Done);
        let version_1 = with_body(&cross_rename.encode(), |body| {
            body[FRAME.magic.len()] = 1;
            body.truncate(body.len() - 3);
        });
        assert_eq!(CrossRename::decode("x", &version_1).unwrap(), cross_rename);
    }

    #[test]
    fn version_2_is_read_and_names_no_request() {
        let cross_rename = CrossRename { is_dir: true, ..cross_rename(CrossRenameState::Taken) };
        let version_2 = with_body(&cross_rename.encode(), |body| {
            body[FRAME.magic.len()] = 2;
            body.truncate(body.len() - 2);
        });
        assert_eq!(CrossRename::decode("x", &version_2).unwrap(), cross_rename);
    }

    #[test]
    fn an_unknown_file_type_or_version_is_refused() {
        for kind in [0, 3, 255] {
            let bytes = with_body(&cross_rename(CrossRenameState::Offered).encode(), |body| {
                let at = body.len() - 3;
                body[at] = kind;
            });
            let text = CrossRename::decode("x", &bytes).unwrap_err().to_string();
            assert!(text.contains("what it is the name of"), "{text}");
        }
        let newer =
            with_body(&cross_rename(CrossRenameState::Offered).encode(), |body| body[8] = 4);
        assert!(CrossRename::decode("x", &newer).is_err());
    }

    #[test]
    fn encoding_and_decoding_give_the_same_value() {
        use CrossRenameState::{Done, Offered, Taken, Withdrawn};
        for state in [Offered, Withdrawn, Taken, Done] {
            for is_dir in [false, true] {
                let request = (ClientId(300), Tid(7));
                let cross_rename = CrossRename { is_dir, request, ..cross_rename(state) };
                assert_eq!(CrossRename::decode("x", &cross_rename.encode()).unwrap(), cross_rename);
            }
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_detected() {
        let bytes = cross_rename(CrossRenameState::Taken).encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(CrossRename::decode("x", &damaged).is_err(), "byte {at}");
            assert!(CrossRename::decode("x", &bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn the_name_of_a_record_has_its_rank_and_number() {
        let name = cross_rename_name(Rank(3), 1 << 40);
        assert_eq!(parse_cross_rename_name(&name), Some((Rank(3), 1 << 40)));
        for other in ["mds/subtrees", "mds/passage/3/1", "mds/passage/0003/", "mds/passage/0003/zz"]
        {
            assert_eq!(parse_cross_rename_name(other), None, "{other}");
        }
    }
}
