//! A name that moves from the directory of one rank to that of another: the record of a rename
//! between two authorities (F-13), in the list of subtrees and in the question of the giver.
//!
//! ```text
//! name := from:varint number:varint to:varint flags:u8 ino:varint parent:varint name:bytes
//!         new_parent:varint new_name:bytes time:signed inode:bytes client:varint tid:varint
//! ```
//!
//! `inode` is one block of a journal with one event, as in a subtree of the list. Only the name of
//! a directory moves: the giver keeps serving the directory, as a subtree with its name on the
//! other rank. `client` and `tid` are the request that renames, so that a server that recovers does
//! not execute it again. `docs/formats/rank.md` describes the record in words.

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Ino, Rank, Tid, Timestamp};

use crate::error::FormatError;

/// The prefix of the objects by which a server of an earlier version carried out such a rename.
pub const CROSS_RENAMES_PREFIX: &str = "mds/passage/";

const DIRECTORY: u8 = 1;
const NO_REPLACE: u8 = 2;
const GIVEN: u8 = 4;
const TAKEN: u8 = 8;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedName {
    /// The giver: the rank that has the name before.
    pub from: Rank,
    /// The giver's number of the transfer.
    pub number: u64,
    /// The taker: the rank that has the name afterwards.
    pub to: Rank,
    /// It is the name of a directory.
    pub is_dir: bool,
    /// Nothing may have the new name.
    pub no_replace: bool,
    /// The giver's journal has its part.
    pub is_given: bool,
    /// The taker's journal has its part.
    pub is_taken: bool,
    /// The inode of the name.
    pub ino: Ino,
    /// The directory that the name leaves.
    pub parent: Ino,
    /// The name there.
    pub name: Vec<u8>,
    /// The directory that it goes to.
    pub new_parent: Ino,
    /// The name there.
    pub new_name: Vec<u8>,
    /// The time of the rename.
    pub time: Timestamp,
    /// The inode: one block of a journal with one event.
    pub inode: Vec<u8>,
    /// The request that renames.
    pub request: (ClientId, Tid),
}

impl MovedName {
    /// The giver and its number: a transfer has one record.
    #[must_use]
    pub fn key(&self) -> (Rank, u64) {
        (self.from, self.number)
    }

    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Reads the bytes of [`MovedName::encode`].
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        let name = Self::read(&mut reader).and_then(|name| reader.end().map(|()| name));
        name.map_err(|malformed| FormatError::new("the record of a name", malformed))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.from.0));
        out.put_varint(self.number);
        out.put_varint(u64::from(self.to.0));
        let flags = [
            (DIRECTORY, self.is_dir),
            (NO_REPLACE, self.no_replace),
            (GIVEN, self.is_given),
            (TAKEN, self.is_taken),
        ];
        out.put_u8(flags.iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
        out.put_varint(self.ino.0);
        out.put_varint(self.parent.0);
        out.put_bytes(&self.name);
        out.put_varint(self.new_parent.0);
        out.put_bytes(&self.new_name);
        out.put_signed(self.time.0);
        out.put_bytes(&self.inode);
        out.put_varint(self.request.0.0);
        out.put_varint(self.request.1.0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (from, number, to) = (rank(reader)?, reader.varint()?, rank(reader)?);
        let start = *reader;
        let flags = reader.u8()?;
        if flags & !(DIRECTORY | NO_REPLACE | GIVEN | TAKEN) != 0 {
            return Err(start.malformed("known flags"));
        }
        let is = |flag| flags & flag != 0;
        Ok(Self {
            from,
            number,
            to,
            is_dir: is(DIRECTORY),
            no_replace: is(NO_REPLACE),
            is_given: is(GIVEN),
            is_taken: is(TAKEN),
            ino: Ino(reader.varint()?),
            parent: Ino(reader.varint()?),
            name: reader.bytes()?.to_vec(),
            new_parent: Ino(reader.varint()?),
            new_name: reader.bytes()?.to_vec(),
            time: Timestamp(reader.signed()?),
            inode: reader.bytes()?.to_vec(),
            request: (ClientId(reader.varint()?), Tid(reader.varint()?)),
        })
    }
}

pub(crate) fn rank(reader: &mut Reader<'_>) -> Result<Rank, Malformed> {
    let start = *reader;
    let rank = u16::try_from(reader.varint()?).map_err(|_| start.malformed("a rank"))?;
    Ok(Rank(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> MovedName {
        MovedName {
            from: Rank(1),
            number: 1 << 33,
            to: Rank(2),
            ino: Ino(77),
            parent: Ino(5),
            name: b"old".to_vec(),
            new_parent: Ino(6),
            new_name: b"new".to_vec(),
            time: Timestamp(-3),
            inode: vec![1, 2, 3],
            request: (ClientId(300), Tid(7)),
            ..MovedName::default()
        }
    }

    #[test]
    fn encoding_and_decoding_give_the_same_value() {
        for flags in 0..16 {
            let is = |flag: u8| flags & flag != 0;
            let name = MovedName {
                is_dir: is(1),
                no_replace: is(2),
                is_given: is(4),
                is_taken: is(8),
                ..name()
            };
            assert_eq!(MovedName::decode(&name.encode()), Ok(name));
        }
    }

    #[test]
    fn an_unknown_flag_and_every_truncation_are_refused() {
        let bytes = name().encode();
        for at in 0..bytes.len() {
            assert!(MovedName::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        // Behind two ranks of one byte, and a number of five.
        let mut unknown = bytes.clone();
        unknown[7] = 16;
        let text = MovedName::decode(&unknown).unwrap_err().to_string();
        assert!(text.contains("known flags"), "{text}");
        assert!(MovedName::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
