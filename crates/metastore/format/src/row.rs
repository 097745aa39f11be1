//! A row: one name of a directory fragment and its target.
//!
//! Directory entry and inode are one record (J-01), so that one object read answers `readdir`
//! with attributes. Not here: how rows are ordered, blocked and checked.
//!
//! Invariant: decoding an encoded row with the same [`Base`] gives the same row, bit by bit.

use types::bytes::{Malformed, Put, Reader, unzigzag, zigzag};
use types::{Attr, FileType, Ino, Seq, Timestamp, device_and_stripe, device_or_stripe};

use crate::object::RunId;
use crate::values::Pointer;

/// A name and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The target.
    pub value: RowValue<'a>,
}

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowValue<'a> {
    /// Nothing any more: hides the name in older runs.
    Removed,
    /// An inode that is stored apart because it has several names (see `Ino::LINKS`).
    Remote {
        /// Which inode.
        ino: Ino,
        /// Its type, so that `readdir` needs no second read.
        file_type: FileType,
    },
    /// The inode itself.
    Inode(InodeRecord<'a>),
}

/// An inode, stored with its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeRecord<'a> {
    /// What `stat` reports.
    pub attr: Attr,
    /// The journal position of the last change, which orders this record against a journal.
    pub version: Seq,
    /// The content of a small file or the target of a symbolic link.
    pub data: &'a [u8],
    /// Opaque: extended attributes, policy.
    pub extra: &'a [u8],
    /// Where `data` and `extra` are if they are not here: then both are empty.
    pub pointer: Option<Pointer>,
}

impl InodeRecord<'_> {
    /// Whether its data belongs into a value segment, together with values of `least` bytes and
    /// more. A link's target does not: every listing of the directory needs it.
    pub(crate) fn is_large(&self, least: usize) -> bool {
        self.data.len() + self.extra.len() >= least && self.attr.file_type() != FileType::Symlink
    }
}

/// The common values of the rows of one run, from its first inode. Rows hold their difference from
/// it, so that a row is short yet needs no other row to be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    ino: u64,
    version: u64,
    mtime: i64,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Base {
    /// How many bytes [`Base::put`] appends.
    pub(crate) const BYTES: usize = 36;

    /// The base that makes `record` shortest.
    pub(crate) fn of(record: &InodeRecord<'_>) -> Self {
        let Attr { ino, mode, uid, gid, mtime, .. } = record.attr;
        Self { ino: ino.0, version: record.version.0, mtime: mtime.0, mode, uid, gid }
    }

    /// Appends it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.ino);
        out.put_u64(self.version);
        out.put_u64(self.mtime.cast_unsigned());
        out.put_u32(self.mode);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
    }

    /// Reads it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            ino: reader.u64()?,
            version: reader.u64()?,
            mtime: reader.u64()?.cast_signed(),
            mode: reader.u32()?,
            uid: reader.u32()?,
            gid: reader.u32()?,
        })
    }
}

// A value starts with a varint tag: two bits of kind, then bits with a meaning that depends on the
// kind.
const KIND_BITS: u32 = 2;
const KIND_REMOVED: u64 = 0;
const KIND_REMOTE: u64 = 1;
const KIND_INODE: u64 = 2;

// For an inode: the fields that are stored because they differ from the usual values. The five that
// ordinary files set come first, so that an ordinary file's tag is one byte.
const SIZE: u64 = 1 << 2;
const DATA: u64 = 1 << 3;
const CTIME: u64 = 1 << 4;
const ATIME: u64 = 1 << 5;
const BTIME: u64 = 1 << 6;
const OWNER: u64 = 1 << 7;
const MODE: u64 = 1 << 8;
const NLINK: u64 = 1 << 9;
const RDEV: u64 = 1 << 10;
const EXTRA: u64 = 1 << 11;
const POINTER: u64 = 1 << 12;
const TAG_END: u64 = 1 << 13;

/// The most bytes of a value without its data and extra: a tag, and thirteen numbers and a pointer.
const FIXED_BYTES_MAX: usize = 2 + 17 * 10;

/// Appends `value`, stated against `base`.
#[inline]
pub(crate) fn put_value(out: &mut Vec<u8>, base: &Base, value: &RowValue<'_>) {
    match value {
        RowValue::Removed => out.put_varint(KIND_REMOVED),
        RowValue::Remote { ino, file_type } => {
            out.put_varint(KIND_REMOTE | u64::from(*file_type as u8) << KIND_BITS);
            out.put_varint(ino.0);
        }
        RowValue::Inode(record) => put_inode(out, base, record),
    }
}

#[inline]
fn put_inode(out: &mut Vec<u8>, base: &Base, record: &InodeRecord<'_>) {
    let attr = &record.attr;
    let mtime = attr.mtime.0;
    let tag = tag_of(base, record);
    out.reserve(FIXED_BYTES_MAX);
    out.put_varint(tag);
    out.put_varint(difference(attr.ino.0, base.ino));
    out.put_varint(difference(record.version.0, base.version));
    out.put_signed(mtime.wrapping_sub(base.mtime));
    if tag & CTIME != 0 {
        out.put_signed(attr.ctime.0.wrapping_sub(mtime));
    }
    if tag & ATIME != 0 {
        out.put_signed(attr.atime.0.wrapping_sub(mtime));
    }
    if tag & BTIME != 0 {
        out.put_signed(attr.btime.0.wrapping_sub(mtime));
    }
    if tag & SIZE != 0 {
        out.put_varint(attr.size);
    }
    if tag & OWNER != 0 {
        out.put_varint(u64::from(attr.uid));
        out.put_varint(u64::from(attr.gid));
    }
    if tag & MODE != 0 {
        out.put_varint(u64::from(attr.mode));
    }
    if tag & NLINK != 0 {
        out.put_varint(u64::from(attr.nlink));
    }
    if tag & RDEV != 0 {
        out.put_varint(u64::from(device_of(attr)));
    }
    if tag & DATA != 0 {
        out.put_bytes(record.data);
    }
    if tag & EXTRA != 0 {
        out.put_bytes(record.extra);
    }
    if let Some(pointer) = &record.pointer {
        debug_assert!(tag & (DATA | EXTRA) == 0, "what is pointed to is not here, too");
        out.put_varint(pointer.segment.0);
        out.put_varint(pointer.offset);
        out.put_varint(u64::from(pointer.data));
        out.put_varint(u64::from(pointer.extra));
    }
}

/// The tag of an inode: its kind and the fields that must be stored.
#[inline]
fn tag_of(base: &Base, record: &InodeRecord<'_>) -> u64 {
    let attr = &record.attr;
    let flag = |stored: bool, bit: u64| if stored { bit } else { 0 };
    let length = record.pointer.map_or(record.data.len() as u64, |at| u64::from(at.data));
    KIND_INODE
        | flag(attr.size != length, SIZE)
        | flag(!record.data.is_empty(), DATA)
        | flag(attr.ctime != attr.mtime, CTIME)
        | flag(attr.atime != attr.mtime, ATIME)
        | flag(attr.btime != attr.mtime, BTIME)
        | flag((attr.uid, attr.gid) != (base.uid, base.gid), OWNER)
        | flag(attr.mode != base.mode, MODE)
        | flag(attr.nlink != 1, NLINK)
        | flag(device_of(attr) != 0, RDEV)
        | flag(!record.extra.is_empty(), EXTRA)
        | flag(record.pointer.is_some(), POINTER)
}

/// A device number, or a file's striping: the field of the flag [`RDEV`].
#[inline]
fn device_of(attr: &Attr) -> u32 {
    device_or_stripe(attr.mode, attr.rdev, attr.stripe)
}

/// Reads a value that [`put_value`] wrote with the same base.
#[inline]
pub(crate) fn read_value<'a>(
    reader: &mut Reader<'a>,
    base: &Base,
) -> Result<RowValue<'a>, Malformed> {
    let start = *reader;
    let tag = reader.varint()?;
    match tag & ((1 << KIND_BITS) - 1) {
        KIND_INODE if tag < TAG_END => Ok(RowValue::Inode(read_inode(reader, base, tag)?)),
        KIND_REMOTE => {
            let bits = u32::try_from(tag >> KIND_BITS).ok().filter(|bits| *bits < 16);
            let file_type = bits.and_then(|bits| FileType::from_mode(bits << 12));
            let Some(file_type) = file_type else {
                return Err(start.malformed("a file type"));
            };
            Ok(RowValue::Remote { ino: Ino(reader.varint()?), file_type })
        }
        KIND_REMOVED if tag == KIND_REMOVED => Ok(RowValue::Removed),
        _ => Err(start.malformed("a kind of row")),
    }
}

/// Whether an encoded value is a removal.
#[inline]
pub(crate) fn is_removed(value: &[u8]) -> bool {
    value.first().is_some_and(|tag| u64::from(*tag) == KIND_REMOVED)
}

#[inline]
fn read_inode<'a>(
    reader: &mut Reader<'a>,
    base: &Base,
    tag: u64,
) -> Result<InodeRecord<'a>, Malformed> {
    let mut attr = Attr { mode: base.mode, uid: base.uid, gid: base.gid, ..Attr::default() };
    attr.ino = Ino(apply_difference(base.ino, reader.varint()?));
    let version = Seq(apply_difference(base.version, reader.varint()?));
    let mtime = base.mtime.wrapping_add(reader.signed()?);
    let mut time = |bit| -> Result<Timestamp, Malformed> {
        let relative = if tag & bit != 0 { reader.signed()? } else { 0 };
        Ok(Timestamp(mtime.wrapping_add(relative)))
    };
    attr.mtime = Timestamp(mtime);
    attr.ctime = time(CTIME)?;
    attr.atime = time(ATIME)?;
    attr.btime = time(BTIME)?;
    let size = if tag & SIZE != 0 { Some(reader.varint()?) } else { None };
    if tag & OWNER != 0 {
        attr.uid = reader.varint_u32()?;
        attr.gid = reader.varint_u32()?;
    }
    if tag & MODE != 0 {
        attr.mode = reader.varint_u32()?;
    }
    attr.nlink = if tag & NLINK != 0 { reader.varint_u32()? } else { 1 };
    let device = if tag & RDEV != 0 { reader.varint_u32()? } else { 0 };
    (attr.rdev, attr.stripe) = device_and_stripe(attr.mode, device);
    let data = if tag & DATA != 0 { reader.bytes()? } else { &[] };
    let extra = if tag & EXTRA != 0 { reader.bytes()? } else { &[] };
    let pointer = if tag & POINTER != 0 { Some(read_pointer(reader, tag)?) } else { None };
    let length = pointer.map_or(data.len() as u64, |at| u64::from(at.data));
    attr.size = size.unwrap_or(length);
    Ok(InodeRecord { attr, version, data, extra, pointer })
}

fn read_pointer(reader: &mut Reader<'_>, tag: u64) -> Result<Pointer, Malformed> {
    if tag & (DATA | EXTRA) != 0 {
        return Err(reader.malformed("content in a row or a pointer to it"));
    }
    Ok(Pointer {
        segment: RunId(reader.varint()?),
        offset: reader.varint()?,
        data: reader.varint_u32()?,
        extra: reader.varint_u32()?,
    })
}

/// `value - base` as a number that is short when they are close. Wraps, hence loses nothing.
fn difference(value: u64, base: u64) -> u64 {
    zigzag(value.wrapping_sub(base).cast_signed())
}

/// The inverse of [`difference`].
fn apply_difference(base: u64, difference: u64) -> u64 {
    base.wrapping_add(unzigzag(difference).cast_unsigned())
}

#[cfg(test)]
mod tests;
