//! Operations that read the namespace.

use types::bytes::{Malformed, Put, Reader};
use types::{EntryName, Ino};

use super::About;
use super::parts::{ino, put_ino, put_name};
use crate::codec::{boolean, option, put_option};
use crate::watch::{WatchPoint, point, put_point};

/// Operations that read the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum ReadOp<'a> {
    /// Attributes of a name in a directory.
    Lookup { parent: Ino, name: &'a [u8] },
    /// Where a path leads from a directory.
    Walk { base: Ino, path: &'a [u8] },
    /// Attributes of an inode.
    GetAttr { ino: Ino },
    /// An extended attribute.
    GetXattr { ino: Ino, name: &'a [u8] },
    /// The names of all extended attributes.
    ListXattr { ino: Ino },
    /// Inline content or link target.
    GetData { ino: Ino },
    /// Up to `limit` entries after a name.
    List { dir: Ino, after: Option<&'a [u8]>, limit: u32, attrs: bool },
    /// The effective policy of a directory.
    GetPolicy { dir: Ino },
    /// Up to `limit` removed trees after a name of the trash, of the rank that is asked. The names
    /// are those of [`types::TrashEntry`].
    ListTrash { after: Option<&'a [u8]>, limit: u32 },
    /// The changes at a path and below it behind a point, of the rank that is asked; without a
    /// point the present one. The server keeps changes for this watcher from then on, and answers
    /// when there is a change, at the latest after `wait` milliseconds.
    Watch { path: &'a [u8], after: Option<WatchPoint>, wait: u32 },
}

impl ReadOp<'_> {
    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Lookup { .. } => "lookup",
            Self::Walk { .. } => "walk",
            Self::GetAttr { .. } => "getattr",
            Self::GetXattr { .. } => "getxattr",
            Self::ListXattr { .. } => "listxattr",
            Self::GetData { .. } => "getdata",
            Self::List { .. } => "list",
            Self::GetPolicy { .. } => "getpolicy",
            Self::ListTrash { .. } => "listtrash",
            Self::Watch { .. } => "watch",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Lookup { parent, name } => put_name(out, 1, parent, name),
            Self::Walk { base, path } => put_name(out, 2, base, path),
            Self::GetAttr { ino } => put_ino(out, 3, ino),
            Self::GetXattr { ino, name } => put_name(out, 10, ino, name),
            Self::ListXattr { ino } => put_ino(out, 11, ino),
            Self::GetData { ino } => put_ino(out, 13, ino),
            Self::List { dir, after, limit, attrs } => {
                put_ino(out, 15, dir);
                put_option(out, after, |out, after| out.put_bytes(after));
                out.put_varint(u64::from(limit));
                out.put_u8(u8::from(attrs));
            }
            Self::GetPolicy { dir } => put_ino(out, 17, dir),
            Self::ListTrash { after, limit } => {
                out.put_u8(57);
                put_option(out, after, |out, after| out.put_bytes(after));
                out.put_varint(u64::from(limit));
            }
            Self::Watch { path, after, wait } => {
                out.put_u8(58);
                out.put_bytes(path);
                put_option(out, after, put_point);
                out.put_varint(u64::from(wait));
            }
        }
    }
}

impl<'a> ReadOp<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'a> {
        match *self {
            Self::Lookup { parent, name } => About::name(EntryName::new(parent, name)),
            Self::Walk { base: ino, .. }
            | Self::GetAttr { ino }
            | Self::GetXattr { ino, .. }
            | Self::ListXattr { ino }
            | Self::GetData { ino }
            | Self::List { dir: ino, .. }
            | Self::GetPolicy { dir: ino } => About::inode(ino),
            Self::ListTrash { .. } | Self::Watch { .. } => About::default(),
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            1 => Self::Lookup { parent: ino(reader)?, name: reader.bytes()? },
            2 => Self::Walk { base: ino(reader)?, path: reader.bytes()? },
            3 => Self::GetAttr { ino: ino(reader)? },
            10 => Self::GetXattr { ino: ino(reader)?, name: reader.bytes()? },
            11 => Self::ListXattr { ino: ino(reader)? },
            13 => Self::GetData { ino: ino(reader)? },
            15 => Self::List {
                dir: ino(reader)?,
                after: option(reader, Reader::bytes)?,
                limit: reader.varint_u32()?,
                attrs: boolean(reader)?,
            },
            17 => Self::GetPolicy { dir: ino(reader)? },
            57 => Self::ListTrash {
                after: option(reader, Reader::bytes)?,
                limit: reader.varint_u32()?,
            },
            58 => Self::Watch {
                path: reader.bytes()?,
                after: option(reader, point)?,
                wait: reader.varint_u32()?,
            },
            _ => return Ok(None),
        }))
    }
}
