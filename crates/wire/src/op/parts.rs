//! The parts of operations, as bytes.

use types::Ino;
use types::bytes::{Malformed, Put, Reader};

use super::{MergeFlags, NewInode};
use crate::codec::{option, put_option, timestamp};

/// Flags of a new inode.
const OPEN: u8 = 1;
const HAS_UMASK: u8 = 2;

pub(super) fn merge_bits(flags: MergeFlags) -> u8 {
    let MergeFlags { dry_run, release, check, strong_log, store, by_reference, in_term: _ } = flags;
    let bits = [dry_run, release, check, strong_log, store, by_reference];
    bits.into_iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(flag))
}

pub(super) fn put_ino(out: &mut Vec<u8>, code: u8, ino: Ino) {
    out.put_u8(code);
    out.put_varint(ino.0);
}

pub(super) fn put_number(out: &mut Vec<u8>, code: u8, ino: Ino, number: u64) {
    put_ino(out, code, ino);
    out.put_varint(number);
}

pub(super) fn put_name(out: &mut Vec<u8>, code: u8, ino: Ino, name: &[u8]) {
    put_ino(out, code, ino);
    out.put_bytes(name);
}

pub(super) fn put_new(out: &mut Vec<u8>, new: &NewInode<'_>) {
    out.put_varint(u64::from(new.mode));
    put_option(out, new.owner, |out, (uid, gid)| {
        out.put_varint(u64::from(uid));
        out.put_varint(u64::from(gid));
    });
    out.put_varint(u64::from(new.rdev));
    out.put_varint(new.size);
    put_option(out, new.mtime, |out, time| out.put_signed(time.0));
    put_option(out, new.atime, |out, time| out.put_signed(time.0));
    out.put_bytes(new.data);
    let has_umask = if new.umask == 0 { 0 } else { HAS_UMASK };
    out.put_u8(if new.open { OPEN } else { 0 } | has_umask);
    if has_umask != 0 {
        out.put_varint(u64::from(new.umask));
    }
}

pub(crate) fn ino(reader: &mut Reader<'_>) -> Result<Ino, Malformed> {
    Ok(Ino(reader.varint()?))
}

pub(crate) fn flags(reader: &mut Reader<'_>, known: u32) -> Result<[bool; 6], Malformed> {
    let start = *reader;
    let bits = reader.u8()?;
    if u32::from(bits) >> known != 0 {
        return Err(start.malformed("known flags"));
    }
    Ok([0, 1, 2, 3, 4, 5].map(|bit| bits & (1 << bit) != 0))
}

pub(super) fn new<'a>(reader: &mut Reader<'a>) -> Result<NewInode<'a>, Malformed> {
    let mut new = NewInode {
        mode: reader.varint_u32()?,
        umask: 0,
        owner: option(reader, |reader| Ok((reader.varint_u32()?, reader.varint_u32()?)))?,
        rdev: reader.varint_u32()?,
        size: reader.varint()?,
        mtime: option(reader, timestamp)?,
        atime: option(reader, timestamp)?,
        data: reader.bytes()?,
        open: false,
    };
    let start = *reader;
    let bits = reader.u8()?;
    if bits & !(OPEN | HAS_UMASK) != 0 {
        return Err(start.malformed("known flags"));
    }
    new.open = bits & OPEN != 0;
    if bits & HAS_UMASK != 0 {
        new.umask = reader.varint_u32()?;
    }
    Ok(new)
}
