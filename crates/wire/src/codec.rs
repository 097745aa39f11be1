//! How values shared by several messages are written.

use types::bytes::{Malformed, Put, Reader};
use types::{
    Attr, AttrChange, Cred, Errno, Ino, InoRange, Lock, LockKind, LockMode, Timestamp,
    device_and_stripe, device_or_stripe,
};

use crate::Failure;

pub(crate) fn put_attr(out: &mut Vec<u8>, attr: &Attr) {
    let Attr { ino, mode, uid, gid, nlink, rdev, stripe, size, atime, mtime, ctime, btime } = *attr;
    out.put_varint(ino.0);
    for value in [mode, uid, gid, nlink, device_or_stripe(mode, rdev, stripe)] {
        out.put_varint(u64::from(value));
    }
    out.put_varint(size);
    out.put_signed(mtime.0);
    for time in [atime, ctime, btime] {
        out.put_signed(time.0.wrapping_sub(mtime.0));
    }
}

pub(crate) fn attr(reader: &mut Reader<'_>) -> Result<Attr, Malformed> {
    let mut attr = Attr { ino: Ino(reader.varint()?), ..Attr::default() };
    attr.mode = reader.varint_u32()?;
    attr.uid = reader.varint_u32()?;
    attr.gid = reader.varint_u32()?;
    attr.nlink = reader.varint_u32()?;
    (attr.rdev, attr.stripe) = device_and_stripe(attr.mode, reader.varint_u32()?);
    attr.size = reader.varint()?;
    attr.mtime = Timestamp(reader.signed()?);
    attr.atime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    attr.ctime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    attr.btime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    Ok(attr)
}

pub(crate) fn put_lock(out: &mut Vec<u8>, lock: &Lock) {
    let Lock { kind, mode, owner, pid, start, end } = *lock;
    out.put_u8(u8::from(kind == LockKind::Posix));
    out.put_u8(mode as u8);
    for value in [owner, u64::from(pid), start, end] {
        out.put_varint(value);
    }
}

pub(crate) fn lock(reader: &mut Reader<'_>) -> Result<Lock, Malformed> {
    let kind = if boolean(reader)? { LockKind::Posix } else { LockKind::Flock };
    let start = *reader;
    let mode = match reader.u8()? {
        0 => LockMode::Read,
        1 => LockMode::Write,
        2 => LockMode::Unlock,
        _ => return Err(start.malformed("a mode of locks")),
    };
    let (owner, pid) = (reader.varint()?, reader.varint_u32()?);
    Ok(Lock { kind, mode, owner, pid, start: reader.varint()?, end: reader.varint()? })
}

pub(crate) fn put_option<T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.put_u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(crate) fn option<'a, T>(
    reader: &mut Reader<'a>,
    get: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    if boolean(reader)? { Ok(Some(get(reader)?)) } else { Ok(None) }
}

pub(crate) fn boolean(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    let start = *reader;
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(start.malformed("0 or 1")),
    }
}

pub(crate) fn put_change(out: &mut Vec<u8>, change: &AttrChange) {
    let AttrChange { mode, uid, gid, size, atime, mtime } = *change;
    for value in [mode, uid, gid] {
        put_option(out, value, |out, value| out.put_varint(u64::from(value)));
    }
    put_option(out, size, Put::put_varint);
    for time in [atime, mtime] {
        put_option(out, time, |out, time| out.put_signed(time.0));
    }
}

pub(crate) fn change(reader: &mut Reader<'_>) -> Result<AttrChange, Malformed> {
    Ok(AttrChange {
        mode: option(reader, Reader::varint_u32)?,
        uid: option(reader, Reader::varint_u32)?,
        gid: option(reader, Reader::varint_u32)?,
        size: option(reader, Reader::varint)?,
        atime: option(reader, timestamp)?,
        mtime: option(reader, timestamp)?,
    })
}

pub(crate) fn timestamp(reader: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    Ok(Timestamp(reader.signed()?))
}

pub(crate) fn put_range(out: &mut Vec<u8>, range: InoRange) {
    out.put_varint(range.start);
    out.put_varint(range.len());
}

pub(crate) fn range(reader: &mut Reader<'_>) -> Result<InoRange, Malformed> {
    let start = reader.varint()?;
    Ok(InoRange { start, end: start.saturating_add(reader.varint()?) })
}

/// A list: its length, then its elements. Every element takes at least one byte, so a length
/// that exceeds the bytes at hand is refused before anything is allocated.
pub(crate) fn list<'a, T>(
    reader: &mut Reader<'a>,
    mut get: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let start = *reader;
    let count = reader.length()?;
    if count > reader.rest().len() {
        return Err(start.malformed("a list that fits the message"));
    }
    (0..count).map(|_| get(reader)).collect()
}

pub(crate) fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    out.put_varint(list.len() as u64);
    for element in list {
        put(out, element);
    }
}

pub(crate) fn string(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let start = *reader;
    let bytes = reader.bytes()?;
    let text = std::str::from_utf8(bytes).map_err(|_| start.malformed("UTF-8 text"))?;
    Ok(text.into())
}

pub(crate) fn put_cred(out: &mut Vec<u8>, cred: &Cred) {
    out.put_varint(u64::from(cred.uid));
    out.put_varint(u64::from(cred.gid));
    put_list(out, &cred.groups, |out, group| out.put_varint(u64::from(*group)));
}

pub(crate) fn cred(reader: &mut Reader<'_>) -> Result<Cred, Malformed> {
    Ok(Cred {
        uid: reader.varint_u32()?,
        gid: reader.varint_u32()?,
        groups: list(reader, Reader::varint_u32)?,
    })
}

pub(crate) fn put_result<T>(
    out: &mut Vec<u8>,
    result: &Result<T, Failure>,
    put: impl FnOnce(&T, &mut Vec<u8>),
) {
    out.put_u8(u8::from(result.is_ok()));
    match result {
        Ok(value) => put(value, out),
        Err(Failure { errno, text }) => {
            out.put_u16(errno.code());
            out.put_bytes(text.as_bytes());
        }
    }
}

pub(crate) fn result<'a, T>(
    reader: &mut Reader<'a>,
    get: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Result<T, Failure>, Malformed> {
    if boolean(reader)? {
        return Ok(Ok(get(reader)?));
    }
    let errno = Errno::from_code(reader.u16()?);
    Ok(Err(Failure { errno, text: string(reader)? }))
}
