//! Bytes to events.

use types::bytes::{Malformed, Reader};
use types::{
    Attr, AttrChange, ClientId, FileType, Ino, NAME_BYTES_MAX, Origin, Tid, Timestamp,
    device_and_stripe,
};

use super::*;
use crate::event::{Create, Event, EventKind, InodeSnapshot};

/// Where a decoder is in its payload.
#[derive(Clone, Debug)]
pub(crate) struct State {
    offset: usize,
    context: Context,
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

    /// A decoder that continues at the state of an earlier decoder of the same payload.
    pub(crate) fn resumed(payload: &'a [u8], origins: bool, state: &State) -> Self {
        let mut reader = Reader::new(payload);
        // A mark of another payload may lie behind the end of this one: then there is nothing left.
        let _ = reader.take(state.offset.min(payload.len()));
        Self { reader, context: state.context.clone(), origins }
    }

    /// Where the decoder is.
    pub(crate) fn state(&self) -> State {
        State { offset: self.reader.offset(), context: self.context.clone() }
    }

    /// Whether the next event is a create.
    #[inline]
    pub(crate) fn is_at_create(&self) -> bool {
        self.reader.rest().first().is_some_and(|tag| tag & CREATE != 0)
    }

    /// The next event, which is a create.
    #[inline]
    pub(crate) fn next_create(&mut self) -> Result<(Origin, Create<'_>), Malformed> {
        let flags = self.reader.u8()?;
        self.create(flags)
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
        let (mut data, mut extra): (&'a [u8], &'a [u8]) = (&[], &[]);
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
            (data, extra) = decode_details(&mut self.context, &mut self.reader, &mut create)?;
        }
        (create.data, create.extra) = (data, extra);
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
                let ino = read_ino(context, reader)?;
                Event::Unlink { parent, name: &context.name[..name_len], ino, time }
            }
            EventKind::Rmdir => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                let ino = read_ino(context, reader)?;
                Event::Rmdir { parent, name: &context.name[..name_len], ino, time }
            }
            EventKind::Rename => {
                let (parent, name_len, time) = read_dentry(context, reader)?;
                let new_parent = Ino(parent.0.wrapping_add(reader.signed()?.cast_unsigned()));
                let new_name = read_raw_name(reader)?;
                let moved = read_snapshot(reader)?;
                let exchanged =
                    if read_bool(reader)? { Some(read_snapshot(reader)?) } else { None };
                let replaced = Ino(reader.varint()?);
                let name = &context.name[..name_len];
                Event::Rename {
                    parent,
                    name,
                    new_parent,
                    new_name,
                    moved,
                    exchanged,
                    replaced,
                    time,
                }
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
            EventKind::Merged => read_merged(context, reader)?,
            EventKind::Stored => Event::Stored { dir: read_ino(context, reader)? },
        })
    }
}

/// Reads everything but the data and the extended attributes into `create`, and returns these two.
fn decode_details<'a>(
    context: &mut Context,
    reader: &mut Reader<'a>,
    create: &mut Create<'_>,
) -> Result<(&'a [u8], &'a [u8]), Malformed> {
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
        (create.rdev, create.stripe) = device_and_stripe(create.mode, reader.varint_u32()?);
    }
    let data = if details & DATA != 0 { reader.bytes()? } else { &[] };
    let extra = if details & EXTRA != 0 { reader.bytes()? } else { &[] };
    Ok((data, extra))
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

fn read_merged<'a>(context: &mut Context, reader: &mut Reader<'a>) -> Result<Event<'a>, Malformed> {
    let subtree = read_ino(context, reader)?;
    let client = ClientId(reader.varint()?);
    let object = reader.bytes()?;
    let (first, events) = (reader.varint()?, reader.varint()?);
    let last = read_bool(reader)?;
    let losses = reader.bytes()?;
    Ok(Event::Merged { subtree, client, object, first, events, last, losses })
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

fn read_snapshot<'a>(reader: &mut Reader<'a>) -> Result<InodeSnapshot<'a>, Malformed> {
    let start = *reader;
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
    if FileType::from_mode(attr.mode).is_none() {
        return Err(start.malformed("an inode with a file type"));
    }
    Ok(InodeSnapshot { attr, data: reader.bytes()?, extra: reader.bytes()? })
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
