//! Operations that change the namespace.

use types::bytes::{Malformed, Put, Reader};
use types::{AttrChange, ClientId, EntryName, Ino, RenameFlags, Timestamp, XattrFlags};

use super::parts::{flags, ino, new, put_ino, put_name, put_new, put_number};
use super::{About, NewInode};
use crate::codec::{change, option, put_change, put_option, timestamp};

/// Operations that change the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum ChangeOp<'a> {
    /// `create`, `mkdir`, `symlink`, `mknod`.
    Create { parent: Ino, name: &'a [u8], new: NewInode<'a> },
    /// One more name for an inode.
    Link { ino: Ino, parent: Ino, name: &'a [u8] },
    /// Removes a name of anything but a directory.
    Unlink { parent: Ino, name: &'a [u8] },
    /// Removes an empty directory.
    Rmdir { parent: Ino, name: &'a [u8] },
    /// Moves or swaps names.
    Rename { parent: Ino, name: &'a [u8], new_parent: Ino, new_name: &'a [u8], flags: RenameFlags },
    /// Changes attributes.
    SetAttr { ino: Ino, change: AttrChange },
    /// Content was read then: the time of the last access, unless a later one is known. Nothing
    /// else changes.
    Accessed { ino: Ino, at: Timestamp },
    /// Sets or, without a value, removes an extended attribute.
    SetXattr { ino: Ino, name: &'a [u8], value: Option<&'a [u8]>, flags: XattrFlags },
    /// Replaces inline content, and sets the size.
    SetData { ino: Ino, data: &'a [u8], size: u64 },
    /// Stores a policy in a directory, or removes it; sent by the monitor on behalf of a client (0
    /// for one that owns no subtree).
    SetPolicy { path: &'a [u8], policy: &'a [u8], client: ClientId },
    /// Makes a file at least this long.
    Grow { ino: Ino, size: u64 },
    /// Makes a file so many bytes longer: the caller writes there, before the new end.
    Append { ino: Ino, length: u64 },
    /// Removes a directory with everything below it, however much that is.
    Discard { parent: Ino, name: &'a [u8] },
    /// Gives a removed tree a name again; `ino` is its root. The rank that removed it must serve
    /// the directory.
    Restore { ino: Ino, parent: Ino, name: &'a [u8] },
    /// Gives the room of a removed tree back before its time; `ino` is its root.
    EmptyTrash { ino: Ino },
}

impl ChangeOp<'_> {
    /// See [`super::Op::may_be_async`].
    pub(super) fn may_be_async(&self) -> bool {
        !matches!(
            self,
            Self::Grow { .. }
                | Self::Append { .. }
                | Self::SetPolicy { .. }
                | Self::Discard { .. }
                | Self::Restore { .. }
                | Self::EmptyTrash { .. }
        )
    }

    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Link { .. } => "link",
            Self::Unlink { .. } => "unlink",
            Self::Rmdir { .. } => "rmdir",
            Self::Rename { .. } => "rename",
            Self::SetAttr { .. } => "setattr",
            Self::Accessed { .. } => "accessed",
            Self::SetXattr { .. } => "setxattr",
            Self::SetData { .. } => "setdata",
            Self::SetPolicy { .. } => "setpolicy",
            Self::Grow { .. } => "grow",
            Self::Append { .. } => "append",
            Self::Discard { .. } => "discard",
            Self::Restore { .. } => "restore",
            Self::EmptyTrash { .. } => "emptytrash",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Create { parent, name, ref new } => {
                put_name(out, 4, parent, name);
                put_new(out, new);
            }
            Self::Link { ino, parent, name } => {
                put_name(out, 5, parent, name);
                out.put_varint(ino.0);
            }
            Self::Unlink { parent, name } => put_name(out, 6, parent, name),
            Self::Rmdir { parent, name } => put_name(out, 7, parent, name),
            Self::Rename { parent, name, new_parent, new_name, flags } => {
                put_name(out, 8, parent, name);
                out.put_varint(new_parent.0);
                out.put_bytes(new_name);
                out.put_u8(u8::from(flags.no_replace) | u8::from(flags.exchange) << 1);
            }
            Self::SetAttr { ino, ref change } => {
                put_ino(out, 9, ino);
                put_change(out, change);
            }
            Self::Accessed { ino, at } => {
                put_ino(out, 34, ino);
                out.put_signed(at.0);
            }
            Self::SetXattr { ino, name, value, flags } => {
                put_name(out, 12, ino, name);
                put_option(out, value, |out, value| out.put_bytes(value));
                out.put_u8(u8::from(flags.create) | u8::from(flags.replace) << 1);
            }
            Self::SetData { ino, data, size } => {
                put_name(out, 14, ino, data);
                out.put_varint(size);
            }
            Self::SetPolicy { path, policy, client } => {
                out.put_u8(18);
                out.put_bytes(path);
                out.put_bytes(policy);
                out.put_varint(client.0);
            }
            Self::Grow { ino, size } => put_number(out, 29, ino, size),
            Self::Append { ino, length } => put_number(out, 30, ino, length),
            Self::Discard { parent, name } => put_name(out, 54, parent, name),
            Self::Restore { ino, parent, name } => {
                put_name(out, 55, parent, name);
                out.put_varint(ino.0);
            }
            Self::EmptyTrash { ino } => put_ino(out, 56, ino),
        }
    }
}

impl<'a> ChangeOp<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'a> {
        match *self {
            Self::Create { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::Rmdir { parent, name }
            | Self::Discard { parent, name }
            | Self::Restore { parent, name, .. } => About::name(EntryName::new(parent, name)),
            Self::Link { ino, parent, name } => {
                About { second: Some(ino), ..About::name(EntryName::new(parent, name)) }
            }
            Self::Rename { parent, name, new_parent, new_name, .. } => {
                let (from, to) =
                    (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
                About {
                    inode: Some(parent),
                    second: Some(new_parent),
                    names: [Some(from), Some(to)],
                }
            }
            Self::SetAttr { ino, .. }
            | Self::Accessed { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::SetData { ino, .. }
            | Self::Grow { ino, .. }
            | Self::Append { ino, .. }
            | Self::EmptyTrash { ino } => About::inode(ino),
            Self::SetPolicy { .. } => About::default(),
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            4 => Self::Create { parent: ino(reader)?, name: reader.bytes()?, new: new(reader)? },
            5 => {
                let (parent, name) = (ino(reader)?, reader.bytes()?);
                Self::Link { ino: ino(reader)?, parent, name }
            }
            6 => Self::Unlink { parent: ino(reader)?, name: reader.bytes()? },
            7 => Self::Rmdir { parent: ino(reader)?, name: reader.bytes()? },
            8 => Self::Rename {
                parent: ino(reader)?,
                name: reader.bytes()?,
                new_parent: ino(reader)?,
                new_name: reader.bytes()?,
                flags: {
                    let [no_replace, exchange, ..] = flags(reader, 2)?;
                    RenameFlags { no_replace, exchange }
                },
            },
            9 => Self::SetAttr { ino: ino(reader)?, change: change(reader)? },
            34 => Self::Accessed { ino: ino(reader)?, at: timestamp(reader)? },
            12 => Self::SetXattr {
                ino: ino(reader)?,
                name: reader.bytes()?,
                value: option(reader, Reader::bytes)?,
                flags: {
                    let [create, replace, ..] = flags(reader, 2)?;
                    XattrFlags { create, replace }
                },
            },
            14 => {
                Self::SetData { ino: ino(reader)?, data: reader.bytes()?, size: reader.varint()? }
            }
            18 => Self::SetPolicy {
                path: reader.bytes()?,
                policy: reader.bytes()?,
                client: ClientId(reader.varint()?),
            },
            29 => Self::Grow { ino: ino(reader)?, size: reader.varint()? },
            30 => Self::Append { ino: ino(reader)?, length: reader.varint()? },
            54 => Self::Discard { parent: ino(reader)?, name: reader.bytes()? },
            55 => {
                let (parent, name) = (ino(reader)?, reader.bytes()?);
                Self::Restore { ino: ino(reader)?, parent, name }
            }
            56 => Self::EmptyTrash { ino: ino(reader)? },
            _ => return Ok(None),
        }))
    }
}
