//! Events to bytes.

use types::bytes::Put;
use types::{Attr, AttrChange, Ino, Origin, Timestamp, device_or_stripe};

use super::*;
use crate::event::{Create, Event, InodeSnapshot};

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
            | Event::Merged { .. }
            | Event::Stored { .. } => self.encode_other(origin, event, out),
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
            Event::Unlink { parent, name, ino, time }
            | Event::Rmdir { parent, name, ino, time } => {
                put_dentry(context, parent, name, time, out);
                put_ino(context, ino, out);
            }
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                replaced,
                time,
            } => {
                put_dentry(context, parent, name, time, out);
                out.put_signed(new_parent.0.wrapping_sub(parent.0).cast_signed());
                out.put_bytes(new_name);
                put_snapshot(&moved, out);
                out.put_u8(u8::from(exchanged.is_some()));
                if let Some(exchanged) = exchanged {
                    put_snapshot(&exchanged, out);
                }
                out.put_varint(replaced.0);
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
            Event::Merged { .. } => put_merged(context, event, out),
            Event::Stored { dir } => put_ino(context, dir, out),
        }
    }
}

fn put_merged(context: &mut Context, event: &Event<'_>, out: &mut Vec<u8>) {
    let Event::Merged { subtree, client, object, first, events, last, losses } = *event else {
        return;
    };
    put_ino(context, subtree, out);
    out.put_varint(client.0);
    out.put_bytes(object);
    out.put_varint(first);
    out.put_varint(events);
    out.put_u8(u8::from(last));
    out.put_bytes(losses);
}

fn details_of(create: &Create<'_>) -> u8 {
    let mut details = if create.size != 0 { SIZE } else { 0 };
    if create.mtime != create.time {
        details |= if create.mtime.0 % NANOS == 0 { MTIME_SECONDS } else { MTIME_NANOS };
    }
    details |= if create.atime == create.mtime { 0 } else { ATIME };
    details |= if device_of(create) == 0 { 0 } else { RDEV };
    details |= if create.extra.is_empty() { 0 } else { EXTRA };
    details | if create.data.is_empty() { 0 } else { DATA }
}

#[inline]
fn device_of(create: &Create<'_>) -> u32 {
    device_or_stripe(create.mode, create.rdev, create.stripe)
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
        out.put_varint(u64::from(device_of(create)));
    }
    if details & DATA != 0 {
        out.put_bytes(create.data);
    }
    if details & EXTRA != 0 {
        out.put_bytes(create.extra);
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

fn put_snapshot(snapshot: &InodeSnapshot<'_>, out: &mut Vec<u8>) {
    let Attr { ino, mode, uid, gid, nlink, rdev, stripe, size, atime, mtime, ctime, btime } =
        snapshot.attr;
    out.put_varint(ino.0);
    for value in [mode, uid, gid, nlink, device_or_stripe(mode, rdev, stripe)] {
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
