//! Events to bytes and back, each as a difference to the event before it.
//!
//! A run of creates in one directory is what metadata-heavy jobs do, so that is what is cheapest:
//! one flag byte, one byte for the lengths of the shared and the new part of the name, and the new
//! part. Everything that follows its predecessor's pattern (same directory, next inode, same mode
//! and owner, same coarse time, next request id) takes no space at all.
#![allow(
    clippy::cast_possible_truncation,
    reason = "name lengths are at most 255, and varints put their low seven bits"
)]

use types::bytes::{Malformed, Put, Reader};
use types::{Attr, AttrChange, ClientId, FileType, Ino, NAME_BYTES_MAX, Origin, Tid, Timestamp};

use crate::event::{Create, Event, EventKind, Snapshot};

/// Set in the first byte of a create; the low bits are the flags below.
const CREATE: u8 = 0x80;
/// The directory differs from the previous event's.
const NEW_PARENT: u8 = 0x01;
/// The inode is not the previous one plus one.
const NEW_INO: u8 = 0x02;
/// Mode, owner or group differ.
const NEW_OWNER: u8 = 0x04;
/// The time differs.
const NEW_TIME: u8 = 0x08;
/// A second flag byte follows.
const DETAILS: u8 = 0x10;
/// The origin is not the same client's next request.
const NEW_ORIGIN: u8 = 0x20;
/// Lengths of the shared prefix and of the rest of the name are both below 16: one byte.
const SHORT_NAME: u8 = 0x40;

/// Details of a create: a size other than zero.
const SIZE: u8 = 0x01;
/// An mtime other than the event's time, in nanoseconds.
const MTIME_NANOS: u8 = 0x02;
/// An mtime other than the event's time, in whole seconds.
const MTIME_SECONDS: u8 = 0x04;
/// An atime other than the mtime.
const ATIME: u8 = 0x08;
/// A device number.
const RDEV: u8 = 0x10;
/// Inline data or a link target.
const DATA: u8 = 0x20;
const DETAILS_KNOWN: u8 = SIZE | MTIME_NANOS | MTIME_SECONDS | ATIME | RDEV | DATA;

const NANOS: i64 = 1_000_000_000;

/// What the next event is compared with. Reset at the start of every block, so that a block can
/// be read without those before it.
#[derive(Clone, Debug)]
struct Context {
    parent: u64,
    ino: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    time: i64,
    mtime: i64,
    client: u64,
    tid: u64,
    name: [u8; NAME_BYTES_MAX],
    name_len: usize,
}

impl Context {
    fn new() -> Self {
        Self {
            parent: 0,
            ino: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            time: 0,
            mtime: 0,
            client: 0,
            tid: 0,
            name: [0; NAME_BYTES_MAX],
            name_len: 0,
        }
    }

    fn shared_prefix(&self, name: &[u8]) -> usize {
        let known = &self.name[..self.name_len];
        known.iter().zip(name).take_while(|(a, b)| a == b).count()
    }

    /// Remembers a name of which the first `shared` bytes are already in place.
    fn remember(&mut self, shared: usize, name: &[u8]) {
        self.name[shared..name.len()].copy_from_slice(&name[shared..]);
        self.name_len = name.len();
    }
}

/// Encodes events one after another into a block's payload.
#[derive(Clone, Debug)]
pub struct Encoder {
    context: Context,
    origins: bool,
}

impl Encoder {
    /// An encoder at the start of a block. With `origins`, every event carries the request that
    /// caused it.
    #[must_use]
    pub fn new(origins: bool) -> Self {
        Self { context: Context::new(), origins }
    }

    /// Forgets the previous event, for a new block.
    pub fn reset(&mut self) {
        let Context { parent, ino, mode, uid, gid, time, mtime, client, tid, name_len, name: _ } =
            &mut self.context;
        (*parent, *ino, *client, *tid) = (0, 0, 0, 0);
        (*mode, *uid, *gid) = (0, 0, 0);
        (*time, *mtime, *name_len) = (0, 0, 0);
    }

    /// Appends one event.
    ///
    /// Names must be at most 255 bytes long, which [`types::check_name`] ensures where they enter
    /// the system; longer ones are a bug of the caller.
    #[inline]
    pub fn encode(&mut self, origin: Origin, event: &Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Create(create) => self.encode_create(origin, create, out),
            Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. } => self.encode_other(origin, event, out),
        }
    }

    #[inline]
    fn encode_create(&mut self, origin: Origin, create: &Create<'_>, out: &mut Vec<u8>) {
        let context = &mut self.context;
        let shared = context.shared_prefix(create.name);
        let rest = create.name.len() - shared;
        let details = details_of(create);
        let mut flags = CREATE;
        flags |= if create.parent.0 == context.parent { 0 } else { NEW_PARENT };
        flags |= if create.ino.0 == context.ino.wrapping_add(1) { 0 } else { NEW_INO };
        let same_owner =
            (create.mode, create.uid, create.gid) == (context.mode, context.uid, context.gid);
        flags |= if same_owner { 0 } else { NEW_OWNER };
        flags |= if create.time.0 == context.time { 0 } else { NEW_TIME };
        flags |= if details == 0 { 0 } else { DETAILS };
        flags |= if shared < 16 && rest < 16 { SHORT_NAME } else { 0 };
        let next = (origin.client.0, origin.tid.0) == (context.client, context.tid.wrapping_add(1));
        flags |= if self.origins && !next { NEW_ORIGIN } else { 0 };

        out.push(flags);
        if flags & SHORT_NAME != 0 {
            out.push((shared << 4 | rest) as u8);
        } else {
            out.push(shared as u8);
            out.push(rest as u8);
        }
        out.extend_from_slice(&create.name[shared..]);
        context.remember(shared, create.name);
        if flags & NEW_PARENT != 0 {
            out.put_signed(create.parent.0.wrapping_sub(context.parent).cast_signed());
            context.parent = create.parent.0;
        }
        if flags & NEW_INO != 0 {
            out.put_signed(create.ino.0.wrapping_sub(context.ino).cast_signed());
        }
        context.ino = create.ino.0;
        if flags & NEW_OWNER != 0 {
            out.put_varint(u64::from(create.mode));
            out.put_varint(u64::from(create.uid));
            out.put_varint(u64::from(create.gid));
            (context.mode, context.uid, context.gid) = (create.mode, create.uid, create.gid);
        }
        if flags & NEW_TIME != 0 {
            out.put_signed(create.time.0.wrapping_sub(context.time));
            context.time = create.time.0;
        }
        if flags & NEW_ORIGIN != 0 {
            put_origin(context, origin, out);
        } else if self.origins {
            context.tid = origin.tid.0;
        }
        if details != 0 {
            encode_details(context, create, details, out);
        }
    }

    fn encode_other(&mut self, origin: Origin, event: &Event<'_>, out: &mut Vec<u8>) {
        out.push(event.kind() as u8);
        if self.origins {
            put_origin(&mut self.context, origin, out);
        }
        let context = &mut self.context;
        match *event {
            Event::Create(_) => unreachable!("encode sends creates elsewhere"),
            Event::Link { parent, name, ino, home, inode, time } => {
                put_dentry(context, parent, name, time, out);
                put_ino(context, ino, out);
                out.put_signed(home.0.wrapping_sub(parent.0).cast_signed());
                put_snapshot(&inode, out);
            }
            Event::Unlink { parent, name, time } | Event::Rmdir { parent, name, time } => {
                put_dentry(context, parent, name, time, out);
            }
            Event::Rename { parent, name, new_parent, new_name, moved, exchanged, time } => {
                put_dentry(context, parent, name, time, out);
                out.put_signed(new_parent.0.wrapping_sub(parent.0).cast_signed());
                out.put_bytes(new_name);
                put_snapshot(&moved, out);
                out.put_u8(u8::from(exchanged.is_some()));
                if let Some(exchanged) = exchanged {
                    put_snapshot(&exchanged, out);
                }
            }
            Event::SetAttr { ino, home, change, time } => {
                put_inode(context, ino, home, time, out);
                put_change(&change, out);
            }
            Event::SetXattr { ino, home, name, value, time } => {
                put_inode(context, ino, home, time, out);
                out.put_bytes(name);
                out.put_u8(u8::from(value.is_some()));
                out.put_bytes(value.unwrap_or_default());
            }
            Event::SetData { ino, home, data, size, time } => {
                put_inode(context, ino, home, time, out);
                out.put_varint(size);
                out.put_bytes(data);
            }
            Event::SetPolicy { ino, home, policy, time } => {
                put_inode(context, ino, home, time, out);
                out.put_bytes(policy);
            }
            Event::Session { client, tid } => {
                out.put_varint(client.0);
                out.put_varint(tid.0);
            }
            Event::Merged { subtree, client, object, events } => {
                put_ino(context, subtree, out);
                out.put_varint(client.0);
                out.put_bytes(object);
                out.put_varint(events);
            }
        }
    }
}

fn details_of(create: &Create<'_>) -> u8 {
    let mut details = if create.size != 0 { SIZE } else { 0 };
    if create.mtime != create.time {
        details |= if create.mtime.0 % NANOS == 0 { MTIME_SECONDS } else { MTIME_NANOS };
    }
    details |= if create.atime == create.mtime { 0 } else { ATIME };
    details |= if create.rdev == 0 { 0 } else { RDEV };
    details | if create.data.is_empty() { 0 } else { DATA }
}

fn encode_details(context: &mut Context, create: &Create<'_>, details: u8, out: &mut Vec<u8>) {
    out.push(details);
    if details & SIZE != 0 {
        out.put_varint(create.size);
    }
    if details & MTIME_SECONDS != 0 {
        out.put_signed((create.mtime.0 / NANOS).wrapping_sub(context.mtime / NANOS));
        context.mtime = create.mtime.0;
    }
    if details & MTIME_NANOS != 0 {
        out.put_signed(create.mtime.0.wrapping_sub(context.mtime));
        context.mtime = create.mtime.0;
    }
    if details & ATIME != 0 {
        out.put_signed(create.atime.0.wrapping_sub(create.mtime.0));
    }
    if details & RDEV != 0 {
        out.put_varint(u64::from(create.rdev));
    }
    if details & DATA != 0 {
        out.put_bytes(create.data);
    }
}

fn put_origin(context: &mut Context, origin: Origin, out: &mut Vec<u8>) {
    out.put_signed(origin.client.0.wrapping_sub(context.client).cast_signed());
    out.put_signed(origin.tid.0.wrapping_sub(context.tid).cast_signed());
    (context.client, context.tid) = (origin.client.0, origin.tid.0);
}

fn put_dentry(context: &mut Context, parent: Ino, name: &[u8], time: Timestamp, out: &mut Vec<u8>) {
    out.put_signed(parent.0.wrapping_sub(context.parent).cast_signed());
    context.parent = parent.0;
    let shared = context.shared_prefix(name);
    out.push(shared as u8);
    out.push((name.len() - shared) as u8);
    out.extend_from_slice(&name[shared..]);
    context.remember(shared, name);
    put_time(context, time, out);
}

fn put_ino(context: &mut Context, ino: Ino, out: &mut Vec<u8>) {
    out.put_signed(ino.0.wrapping_sub(context.ino).cast_signed());
    context.ino = ino.0;
}

fn put_inode(context: &mut Context, ino: Ino, home: Ino, time: Timestamp, out: &mut Vec<u8>) {
    put_ino(context, ino, out);
    out.put_signed(home.0.wrapping_sub(context.parent).cast_signed());
    context.parent = home.0;
    put_time(context, time, out);
}

fn put_time(context: &mut Context, time: Timestamp, out: &mut Vec<u8>) {
    out.put_signed(time.0.wrapping_sub(context.time));
    context.time = time.0;
}

fn put_snapshot(snapshot: &Snapshot<'_>, out: &mut Vec<u8>) {
    let Attr { ino, mode, uid, gid, nlink, rdev, size, atime, mtime, ctime, btime } = snapshot.attr;
    out.put_varint(ino.0);
    for value in [mode, uid, gid, nlink, rdev] {
        out.put_varint(u64::from(value));
    }
    out.put_varint(size);
    out.put_signed(mtime.0);
    for time in [atime, ctime, btime] {
        out.put_signed(time.0.wrapping_sub(mtime.0));
    }
    out.put_bytes(snapshot.data);
    out.put_bytes(snapshot.extra);
}

fn put_change(change: &AttrChange, out: &mut Vec<u8>) {
    let AttrChange { mode, uid, gid, size, atime, mtime } = *change;
    let present = [
        mode.is_some(),
        uid.is_some(),
        gid.is_some(),
        size.is_some(),
        atime.is_some(),
        mtime.is_some(),
    ];
    out.push(present.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum());
    for value in [mode, uid, gid].into_iter().flatten() {
        out.put_varint(u64::from(value));
    }
    if let Some(size) = size {
        out.put_varint(size);
    }
    for time in [atime, mtime].into_iter().flatten() {
        out.put_signed(time.0);
    }
}

/// Decodes the payload of one block.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'a> {
    pub(crate) reader: Reader<'a>,
    context: Context,
    origins: bool,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(payload: &'a [u8], origins: bool) -> Self {
        Self { reader: Reader::new(payload), context: Context::new(), origins }
    }

    /// The next event and its origin, or `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(Origin, Event<'_>)>, Malformed> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let start = self.reader;
        let tag = self.reader.u8()?;
        if tag & CREATE != 0 {
            let (origin, create) = self.create(tag)?;
            return Ok(Some((origin, Event::Create(create))));
        }
        let Some(kind) = EventKind::from_code(tag) else {
            return Err(start.malformed("a known event type"));
        };
        let origin = if self.origins { self.origin()? } else { Origin::default() };
        Ok(Some((origin, self.other(kind, start)?)))
    }

    #[inline]
    fn create(&mut self, flags: u8) -> Result<(Origin, Create<'_>), Malformed> {
        let reader = &mut self.reader;
        let start = *reader;
        let (shared, rest) = if flags & SHORT_NAME != 0 {
            let both = usize::from(reader.u8()?);
            (both >> 4, both & 15)
        } else {
            (usize::from(reader.u8()?), usize::from(reader.u8()?))
        };
        read_name(&mut self.context, reader, shared, rest, start)?;
        let context = &mut self.context;
        if flags & NEW_PARENT != 0 {
            context.parent = context.parent.wrapping_add(reader.signed()?.cast_unsigned());
        }
        let step = if flags & NEW_INO != 0 { reader.signed()?.cast_unsigned() } else { 1 };
        context.ino = context.ino.wrapping_add(step);
        if flags & NEW_OWNER != 0 {
            context.mode = reader.varint_u32()?;
            context.uid = reader.varint_u32()?;
            context.gid = reader.varint_u32()?;
            if FileType::from_mode(context.mode).is_none() {
                return Err(start.malformed("a mode with a file type"));
            }
        }
        if flags & NEW_TIME != 0 {
            context.time = context.time.wrapping_add(reader.signed()?);
        }
        let origin = match (self.origins, flags & NEW_ORIGIN != 0) {
            (true, true) => self.origin()?,
            (true, false) => {
                self.context.tid = self.context.tid.wrapping_add(1);
                Origin { client: ClientId(self.context.client), tid: Tid(self.context.tid) }
            }
            (false, false) => Origin::default(),
            (false, true) => return Err(start.malformed("a create without an origin")),
        };
        let mut data: &'a [u8] = &[];
        let mut create = Create {
            parent: Ino(self.context.parent),
            name: &[],
            ino: Ino(self.context.ino),
            mode: self.context.mode,
            uid: self.context.uid,
            gid: self.context.gid,
            time: Timestamp(self.context.time),
            mtime: Timestamp(self.context.time),
            atime: Timestamp(self.context.time),
            ..Create::default()
        };
        if flags & DETAILS != 0 {
            data = decode_details(&mut self.context, &mut self.reader, &mut create)?;
        }
        create.data = data;
        create.name = &self.context.name[..self.context.name_len];
        Ok((origin, create))
    }

    fn origin(&mut self) -> Result<Origin, Malformed> {
        let client = self.reader.signed()?.cast_unsigned();
        let tid = self.reader.signed()?.cast_unsigned();
        self.context.client = self.context.client.wrapping_add(client);
        self.context.tid = self.context.tid.wrapping_add(tid);
        Ok(Origin { client: ClientId(self.context.client), tid: Tid(self.context.tid) })
    }

    fn other(&mut self, kind: EventKind, start: Reader<'a>) -> Result<Event<'_>, Malformed> {
        let Self { reader, context, .. } = self;
        Ok(match kind {
            EventKind::Create => return Err(start.malformed("a create with its flags")),
            EventKind::Link => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                let ino = read_ino(context, reader)?;
                let home = Ino(parent.0.wrapping_add(reader.signed()?.cast_unsigned()));
                let inode = read_snapshot(reader)?;
                let name = &context.name[..name_len];
                Event::Link { parent, name, ino, home, inode, time }
            }
            EventKind::Unlink => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                Event::Unlink { parent, name: &context.name[..name_len], time }
            }
            EventKind::Rmdir => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                Event::Rmdir { parent, name: &context.name[..name_len], time }
            }
            EventKind::Rename => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                let new_parent = Ino(parent.0.wrapping_add(reader.signed()?.cast_unsigned()));
                let new_name = read_raw_name(reader)?;
                let moved = read_snapshot(reader)?;
                let exchanged =
                    if read_bool(reader)? { Some(read_snapshot(reader)?) } else { None };
                let name = &context.name[..name_len];
                Event::Rename { parent, name, new_parent, new_name, moved, exchanged, time }
            }
            EventKind::SetAttr => {
                let (ino, home, time) = read_inode(context, reader)?;
                Event::SetAttr { ino, home, change: read_change(reader)?, time }
            }
            EventKind::SetXattr => {
                let (ino, home, time) = read_inode(context, reader)?;
                let name = reader.bytes()?;
                let present = read_bool(reader)?;
                let value = reader.bytes()?;
                Event::SetXattr { ino, home, name, value: present.then_some(value), time }
            }
            EventKind::SetData => {
                let (ino, home, time) = read_inode(context, reader)?;
                let size = reader.varint()?;
                Event::SetData { ino, home, data: reader.bytes()?, size, time }
            }
            EventKind::SetPolicy => {
                let (ino, home, time) = read_inode(context, reader)?;
                Event::SetPolicy { ino, home, policy: reader.bytes()?, time }
            }
            EventKind::Session => {
                Event::Session { client: ClientId(reader.varint()?), tid: Tid(reader.varint()?) }
            }
            EventKind::Merged => {
                let subtree = read_ino(context, reader)?;
                let client = ClientId(reader.varint()?);
                let object = reader.bytes()?;
                Event::Merged { subtree, client, object, events: reader.varint()? }
            }
        })
    }
}

/// Reads everything but the data into `create`, and returns the data.
fn decode_details<'a>(
    context: &mut Context,
    reader: &mut Reader<'a>,
    create: &mut Create<'_>,
) -> Result<&'a [u8], Malformed> {
    let start = *reader;
    let details = reader.u8()?;
    if details & !DETAILS_KNOWN != 0 {
        return Err(start.malformed("known detail flags"));
    }
    if details & SIZE != 0 {
        create.size = reader.varint()?;
    }
    if details & MTIME_SECONDS != 0 {
        let seconds = (context.mtime / NANOS).wrapping_add(reader.signed()?);
        context.mtime = seconds.wrapping_mul(NANOS);
        create.mtime = Timestamp(context.mtime);
    }
    if details & MTIME_NANOS != 0 {
        context.mtime = context.mtime.wrapping_add(reader.signed()?);
        create.mtime = Timestamp(context.mtime);
    }
    create.atime = create.mtime;
    if details & ATIME != 0 {
        create.atime = Timestamp(create.mtime.0.wrapping_add(reader.signed()?));
    }
    if details & RDEV != 0 {
        create.rdev = reader.varint_u32()?;
    }
    if details & DATA != 0 { reader.bytes() } else { Ok(&[]) }
}

#[inline]
fn read_name(
    context: &mut Context,
    reader: &mut Reader<'_>,
    shared: usize,
    rest: usize,
    start: Reader<'_>,
) -> Result<(), Malformed> {
    let length = shared + rest;
    if shared > context.name_len || length > NAME_BYTES_MAX || length == 0 {
        return Err(start.malformed("a name of 1 to 255 bytes"));
    }
    let suffix = reader.take(rest)?;
    context.name[shared..length].copy_from_slice(suffix);
    context.name_len = length;
    Ok(())
}

fn read_raw_name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let start = *reader;
    let name = reader.bytes()?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(start.malformed("a name of 1 to 255 bytes"));
    }
    Ok(name)
}

fn read_dentry(
    context: &mut Context,
    reader: &mut Reader<'_>,
) -> Result<(Ino, usize, Timestamp), Malformed> {
    context.parent = context.parent.wrapping_add(reader.signed()?.cast_unsigned());
    let start = *reader;
    let (shared, rest) = (usize::from(reader.u8()?), usize::from(reader.u8()?));
    read_name(context, reader, shared, rest, start)?;
    let time = read_time(context, reader)?;
    Ok((Ino(context.parent), context.name_len, time))
}

fn read_ino(context: &mut Context, reader: &mut Reader<'_>) -> Result<Ino, Malformed> {
    context.ino = context.ino.wrapping_add(reader.signed()?.cast_unsigned());
    Ok(Ino(context.ino))
}

fn read_inode(
    context: &mut Context,
    reader: &mut Reader<'_>,
) -> Result<(Ino, Ino, Timestamp), Malformed> {
    let ino = read_ino(context, reader)?;
    context.parent = context.parent.wrapping_add(reader.signed()?.cast_unsigned());
    let time = read_time(context, reader)?;
    Ok((ino, Ino(context.parent), time))
}

fn read_snapshot<'a>(reader: &mut Reader<'a>) -> Result<Snapshot<'a>, Malformed> {
    let start = *reader;
    let mut attr = Attr { ino: Ino(reader.varint()?), ..Attr::default() };
    attr.mode = reader.varint_u32()?;
    attr.uid = reader.varint_u32()?;
    attr.gid = reader.varint_u32()?;
    attr.nlink = reader.varint_u32()?;
    attr.rdev = reader.varint_u32()?;
    attr.size = reader.varint()?;
    attr.mtime = Timestamp(reader.signed()?);
    attr.atime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    attr.ctime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    attr.btime = Timestamp(attr.mtime.0.wrapping_add(reader.signed()?));
    if FileType::from_mode(attr.mode).is_none() {
        return Err(start.malformed("an inode with a file type"));
    }
    Ok(Snapshot { attr, data: reader.bytes()?, extra: reader.bytes()? })
}

fn read_time(context: &mut Context, reader: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    context.time = context.time.wrapping_add(reader.signed()?);
    Ok(Timestamp(context.time))
}

fn read_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    let start = *reader;
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(start.malformed("0 or 1")),
    }
}

fn read_change(reader: &mut Reader<'_>) -> Result<AttrChange, Malformed> {
    let start = *reader;
    let present = reader.u8()?;
    if present & !0x3f != 0 {
        return Err(start.malformed("known attributes"));
    }
    let has = |bit: u8| present & (1 << bit) != 0;
    Ok(AttrChange {
        mode: if has(0) { Some(reader.varint_u32()?) } else { None },
        uid: if has(1) { Some(reader.varint_u32()?) } else { None },
        gid: if has(2) { Some(reader.varint_u32()?) } else { None },
        size: if has(3) { Some(reader.varint()?) } else { None },
        atime: if has(4) { Some(Timestamp(reader.signed()?)) } else { None },
        mtime: if has(5) { Some(Timestamp(reader.signed()?)) } else { None },
    })
}
