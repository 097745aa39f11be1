//! The changes of a subtree, as a server reports them to a watcher.

use types::bytes::{Malformed, Put, Reader};
use types::{Epoch, FileType, Ino, Timestamp};

use crate::codec::{boolean, list, option, put_list, put_option};
use crate::op::ino;

/// A place in the changes of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchPoint {
    /// The term of the server. The changes of another term are lost.
    pub term: Epoch,
    /// The number of the next change.
    pub next: u64,
}

/// What changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChangeKind {
    /// A new file, symbolic link, device, FIFO or socket.
    #[default]
    Create = 0,
    /// A new directory.
    Mkdir = 1,
    /// One more name of an inode.
    Link = 2,
    /// A name of anything but a directory was removed.
    Unlink = 3,
    /// An empty directory was removed.
    Rmdir = 4,
    /// A name moved, both ends are visible.
    Rename = 5,
    /// A name moved to a place that the watcher does not see, or to another rank.
    MovedFrom = 6,
    /// A name came from such a place.
    MovedTo = 7,
    /// Two names swapped their inodes.
    Exchange = 8,
    /// Attributes changed, but not the size.
    SetAttr = 9,
    /// Content or size changed.
    Content = 10,
    /// An extended attribute was set.
    SetXattr = 11,
    /// An extended attribute was removed.
    RemoveXattr = 12,
    /// The policy of a directory changed.
    Policy = 13,
    /// A directory was removed at once with everything below it.
    RemoveTree = 14,
    /// A tree came back from the trash.
    Restore = 15,
    /// A client decoupled a subtree.
    Decouple = 16,
    /// The work of a client in a decoupled subtree, or of a branch, was merged.
    Merge = 17,
    /// A client gave a decoupled subtree back.
    Release = 18,
    /// A subtree left this rank. Clients order the changes of ranks by it.
    Departed = 19,
    /// A subtree came to this rank. Clients order the changes of ranks by it.
    Arrived = 20,
}

impl ChangeKind {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 21] = [
        Self::Create,
        Self::Mkdir,
        Self::Link,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::MovedFrom,
        Self::MovedTo,
        Self::Exchange,
        Self::SetAttr,
        Self::Content,
        Self::SetXattr,
        Self::RemoveXattr,
        Self::Policy,
        Self::RemoveTree,
        Self::Restore,
        Self::Decouple,
        Self::Merge,
        Self::Release,
        Self::Departed,
        Self::Arrived,
    ];

    /// The word in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::MovedFrom => "moved_from",
            Self::MovedTo => "moved_to",
            Self::Exchange => "exchange",
            Self::SetAttr => "setattr",
            Self::Content => "content",
            Self::SetXattr => "setxattr",
            Self::RemoveXattr => "removexattr",
            Self::Policy => "policy",
            Self::RemoveTree => "remove_tree",
            Self::Restore => "restore",
            Self::Decouple => "decouple",
            Self::Merge => "merge",
            Self::Release => "release",
            Self::Departed => "departed",
            Self::Arrived => "arrived",
        }
    }

    /// Whether the change is one of a whole tree: it also concerns a watcher below its path.
    #[must_use]
    pub fn is_of_tree(self) -> bool {
        match self {
            Self::Mkdir
            | Self::Rmdir
            | Self::Rename
            | Self::MovedFrom
            | Self::MovedTo
            | Self::Exchange
            | Self::RemoveTree
            | Self::Restore
            | Self::Decouple
            | Self::Merge
            | Self::Release
            | Self::Departed
            | Self::Arrived => true,
            Self::Create
            | Self::Link
            | Self::Unlink
            | Self::SetAttr
            | Self::Content
            | Self::SetXattr
            | Self::RemoveXattr
            | Self::Policy => false,
        }
    }
}

/// A name in a directory, by the path that led there when it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedName {
    /// The directory that has the name.
    pub dir: Ino,
    /// The path of the name.
    pub path: Vec<u8>,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedChange {
    /// When the server executed the change.
    pub time: Timestamp,
    /// What changed.
    pub kind: ChangeKind,
    /// The type of the inode.
    pub file_type: FileType,
    /// The inode.
    pub ino: Ino,
    /// The name; `None` for an inode with several names, which the server does not know.
    pub at: Option<ChangedName>,
    /// The new name, of a rename or an exchange.
    pub to: Option<ChangedName>,
    /// The inode that a rename replaced, or that moved the other way; 0 for none.
    pub other: Ino,
    /// Of [`ChangeKind::Content`] the size in bytes, of [`ChangeKind::Merge`] the new names, of
    /// [`ChangeKind::Exchange`] the `d_type` of the other inode, of [`ChangeKind::Departed`] and
    /// [`ChangeKind::Arrived`] how often the subtree has moved.
    pub number: u64,
    /// The name of the extended attribute.
    pub xattr: Vec<u8>,
}

impl WatchedChange {
    /// About how many bytes the change takes in memory and in an answer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let names = [&self.at, &self.to].into_iter().flatten();
        size_of::<Self>() + names.map(|name| name.path.len()).sum::<usize>() + self.xattr.len()
    }
}

/// Changes of one rank, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPage {
    /// The place behind the last change.
    pub next: WatchPoint,
    /// The server does not have all changes since the point of the request. `next` is the present
    /// point then, and the watch goes on there.
    pub lost: bool,
    /// Further changes are there already.
    pub more: bool,
    /// The rank serves a subtree there whose name another rank has.
    pub serves: bool,
    /// The changes, each with its number.
    pub changes: Vec<(u64, WatchedChange)>,
}

fn put_name(out: &mut Vec<u8>, name: &ChangedName) {
    out.put_varint(name.dir.0);
    out.put_bytes(&name.path);
}

fn name(reader: &mut Reader<'_>) -> Result<ChangedName, Malformed> {
    Ok(ChangedName { dir: ino(reader)?, path: reader.bytes()?.to_vec() })
}

pub(crate) fn put_point(out: &mut Vec<u8>, point: WatchPoint) {
    out.put_varint(point.term.0);
    out.put_varint(point.next);
}

pub(crate) fn point(reader: &mut Reader<'_>) -> Result<WatchPoint, Malformed> {
    Ok(WatchPoint { term: Epoch(reader.varint()?), next: reader.varint()? })
}

fn put_change(out: &mut Vec<u8>, number: u64, change: &WatchedChange) {
    let WatchedChange { time, kind, file_type, ino, at, to, other, number: amount, xattr } = change;
    out.put_varint(number);
    out.put_signed(time.0);
    out.put_u8(*kind as u8);
    out.put_u8(*file_type as u8);
    out.put_varint(ino.0);
    put_option(out, at.as_ref(), put_name);
    put_option(out, to.as_ref(), put_name);
    out.put_varint(other.0);
    out.put_varint(*amount);
    out.put_bytes(xattr);
}

fn change(reader: &mut Reader<'_>) -> Result<(u64, WatchedChange), Malformed> {
    let number = reader.varint()?;
    let time = Timestamp(reader.signed()?);
    let start = *reader;
    let kind = ChangeKind::ALL.get(usize::from(reader.u8()?)).copied();
    let kind = kind.ok_or(start.malformed("a known kind of change"))?;
    let start = *reader;
    let code = Some(reader.u8()?).filter(|code| *code < 16);
    let file_type = code.and_then(|code| FileType::from_mode(u32::from(code) << 12));
    let change = WatchedChange {
        time,
        kind,
        file_type: file_type.ok_or(start.malformed("a file type"))?,
        ino: ino(reader)?,
        at: option(reader, name)?,
        to: option(reader, name)?,
        other: ino(reader)?,
        number: reader.varint()?,
        xattr: reader.bytes()?.to_vec(),
    };
    Ok((number, change))
}

pub(crate) fn put_page(out: &mut Vec<u8>, page: &WatchPage) {
    let WatchPage { next, lost, more, serves, changes } = page;
    put_point(out, *next);
    for flag in [lost, more, serves] {
        out.put_u8(u8::from(*flag));
    }
    put_list(out, changes, |out, (number, change)| put_change(out, *number, change));
}

pub(crate) fn page(reader: &mut Reader<'_>) -> Result<WatchPage, Malformed> {
    Ok(WatchPage {
        next: point(reader)?,
        lost: boolean(reader)?,
        more: boolean(reader)?,
        serves: boolean(reader)?,
        changes: list(reader, change)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_kind_is_its_code() {
        for (code, kind) in ChangeKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, code, "{}", kind.name());
        }
    }
}
