//! The steps of clients: a request, and its purpose.

use types::{AttrChange, FileType, Ino, Rank, RenameFlags};

use super::register::Place;
use crate::call::CallKind;

/// The purpose of a request, which decides how its answer is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Plain,
    /// The directory in one that moves.
    MakeInner,
    /// About the file with this name: it gets a further name, or a mark.
    File(Place),
    /// Of the client that has decoupled a directory; a journal may follow.
    Job(Option<Vec<u8>>),
    /// Of a client that renames directories.
    Tree,
    /// The file in which locks are, that client 0 makes; and a step about the lock on such a file.
    MakeLocked,
    Lock(usize),
    /// The same about its content.
    Open(usize),
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) call: CallKind,
    pub(super) role: Role,
}

impl From<CallKind> for Script {
    fn from(call: CallKind) -> Self {
        Self { call, role: Role::Plain }
    }
}

impl Script {
    pub(super) fn make_dir(parent: Ino, name: &str) -> Self {
        CallKind::create(parent, name, FileType::Directory, 0o755).into()
    }

    pub(super) fn create((parent, name): &Place) -> Self {
        CallKind::create(*parent, name, FileType::Regular, 0o644).into()
    }

    pub(super) fn look_up((parent, name): Place) -> Self {
        CallKind::Lookup { parent, name }.into()
    }

    pub(super) fn unlink((parent, name): Place) -> Self {
        CallKind::Unlink { parent, name }.into()
    }

    pub(super) fn rename(from: Place, to: Place) -> Self {
        CallKind::Rename { from, to, flags: RenameFlags::default() }.into()
    }

    /// How many names it has, its fragments together.
    pub(super) fn stat(dir: Ino) -> Self {
        CallKind::GetAttr { ino: dir }.into()
    }

    pub(super) fn list(dir: Ino) -> Self {
        CallKind::list(dir).into()
    }

    pub(super) fn export(dir: Ino, rank: Rank) -> Self {
        CallKind::Export { dir, rank }.into()
    }

    pub(super) fn split(dir: Ino) -> Self {
        CallKind::Split { dir }.into()
    }

    pub(super) fn set_mode(ino: Ino, mode: u32, role: Role) -> Self {
        let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
        Self { call: CallKind::SetAttr { ino, change }, role }
    }
}
