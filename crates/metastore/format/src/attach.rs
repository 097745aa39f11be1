//! Runs that clients write, and the metadata server's notes about them (merge by reference).
//!
//! A client that merges by reference puts the directories that its journal made into the store as
//! runs, and sends a [`RunList`] in front of the rest of its journal. The server does not look at
//! the rows: it records the run's client in the manifest, as an [`Attached`], and every reader of
//! the run leaves out rows with numbers that are not the client's.
//!
//! Invariant: a result of [`Attached::admit`] names an inode of the client's own ranges, and is a
//! row that a server could have written.

use crc32c::crc32c;
use types::bytes::{Malformed, Put, Reader};
use types::{FILE_BYTES_MAX, FileType, INLINE_BYTES_MAX, Ino, InoRange, Seq, Timestamp};

use crate::error::malformed;
use crate::manifest::RunInfo;
use crate::object::RunId;
use crate::proof::Proof;
use crate::row::{InodeRecord, RowValue};

/// The most runs of one list: each directory is a manifest to be written.
pub const ATTACHED_DIRS_MAX: usize = 4096;
/// A directory of a list takes at least so many bytes.
const DIR_BYTES_MIN: usize = 10;

/// The server's note about a client's run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Which run of the manifest.
    pub run: RunId,
    /// The position of the rank's journal at which it was attached. All its inodes have this
    /// version, with any version in the rows ignored.
    pub position: Seq,
    /// The inode numbers that its rows may have: those that its client had been given.
    pub ranges: Vec<InoRange>,
}

impl Attached {
    /// The row as it counts; `None` if the client had no right to it. A client's run holds inodes
    /// with one name, of its own numbers, without extended attributes and policies, and with no
    /// more inline content than readers ask for.
    #[must_use]
    pub fn admit<'a>(&self, value: RowValue<'a>) -> Option<RowValue<'a>> {
        let RowValue::Inode(record) = value else { return None };
        let attr = record.attr;
        let is_own = self.ranges.iter().any(|range| range.contains(attr.ino));
        let fits = record.data.len() <= INLINE_BYTES_MAX && attr.size <= FILE_BYTES_MAX;
        let is_legal = FileType::from_mode(attr.mode).is_some() && record.extra.is_empty();
        // The owner of a pointer's target is unknown.
        let is_here = record.pointer.is_none();
        (is_own && fits && is_legal && is_here).then(|| {
            let attr = types::Attr { nlink: 1, ..attr };
            RowValue::Inode(InodeRecord { attr, version: self.position, ..record })
        })
    }
}

/// A run of a directory that a client wrote. A directory may have several, which follow each other
/// in a list: a client writes them while it works. No name is in two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirRun {
    /// Which directory.
    pub dir: Ino,
    /// Its run.
    pub run: RunInfo,
    /// How many of its names are directories.
    pub subdirs: u64,
    /// When the directory's content changed last.
    pub touched: Timestamp,
}

/// The runs of a merge by reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunList {
    /// A checksum of the first block of the journal that the runs and the rest replace: so the
    /// server recognises that journal when it is merged again, by value or by reference.
    pub journal: u32,
    /// The position of the last event of that journal.
    pub last: Seq,
    /// The runs; those of one directory follow each other.
    pub dirs: Vec<DirRun>,
    /// A verifier's word for all of this ([`ProofStatement`](crate::ProofStatement)), if there is
    /// one.
    pub proof: Option<Proof>,
}

impl RunList {
    /// The list as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.put_u32(self.journal);
        out.put_varint(self.last.0);
        out.put_varint(self.dirs.len() as u64);
        for DirRun { dir, run, subdirs, touched } in &self.dirs {
            out.put_varint(dir.0);
            out.put_varint(run.id.0);
            out.put_varint(run.rows);
            out.put_varint(run.removed);
            out.put_varint(run.bytes);
            out.put_u32(run.crc);
            out.put_varint(*subdirs);
            out.put_signed(touched.0);
        }
        out.put_u8(u8::from(self.proof.is_some()));
        out.extend_from_slice(self.proof.as_ref().map_or(&[][..], |proof| &proof[..]));
        let length = u32::try_from(out.len() + 4).expect("a list is bounded by its directories");
        out[..4].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Reads a list from the start of `bytes`; returns the bytes behind it.
    ///
    /// # Errors
    /// If there is no intact list, or one of more than [`ATTACHED_DIRS_MAX`] directories.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let length = Reader::new(bytes).u32()? as usize;
        let Some((list, rest)) = bytes.split_at_checked(length) else {
            return Err(malformed(bytes.len(), "more bytes"));
        };
        let Some((body, crc)) = list.split_last_chunk::<4>() else {
            return Err(malformed(0, "the length of a list of runs"));
        };
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(malformed(body.len(), "a checksum that matches"));
        }
        let mut reader = Reader::new(body);
        reader.take(4)?;
        let (journal, last) = (reader.u32()?, Seq(reader.varint()?));
        let start = reader;
        let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        // Checked before anything is allocated for it.
        if count > ATTACHED_DIRS_MAX || count > body.len() / DIR_BYTES_MIN {
            return Err(start.malformed("as many directories as there are bytes for"));
        }
        let mut dirs = Vec::with_capacity(count);
        for _ in 0..count {
            dirs.push(read_dir(&mut reader)?);
        }
        let start = reader;
        let proof = match reader.u8()? {
            0 => None,
            1 => Some(reader.take(32)?.try_into().map_err(|_| start.malformed("a proof"))?),
            _ => return Err(start.malformed("whether there is a proof")),
        };
        reader.end()?;
        Ok((Self { journal, last, dirs, proof }, rest))
    }
}

fn read_dir(reader: &mut Reader<'_>) -> Result<DirRun, Malformed> {
    Ok(DirRun {
        dir: Ino(reader.varint()?),
        run: RunInfo {
            id: RunId(reader.varint()?),
            rows: reader.varint()?,
            removed: reader.varint()?,
            bytes: reader.varint()?,
            crc: reader.u32()?,
        },
        subdirs: reader.varint()?,
        touched: Timestamp(reader.signed()?),
    })
}

#[cfg(test)]
mod tests;
