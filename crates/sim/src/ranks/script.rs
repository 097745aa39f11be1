//! What clients do.

use client::Route;
use types::{FileType, Ino, Rank, RenameFlags};
use wire::{ChangeOp, NewInode, Op, RankOp, ReadOp};

use super::job::Step;
use super::linking::Link;
use super::register::Place;
use super::tree;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Script {
    MakeDir(Ino, Vec<u8>),
    /// One in a directory that moves.
    MakeInner(Ino, Vec<u8>),
    Create(Place),
    Unlink(Place),
    /// To a name that does not exist, perhaps in another directory.
    Rename(Place, Place),
    /// To a name that does not exist.
    Link(Link),
    Lookup(Place),
    List(Ino),
    /// The one step of the client of one directory.
    Touch(Ino),
    /// A client marks a file, by its number: permissions that no other file ever had.
    Say(Place, Ino, u32),
    Export(Ino, Rank),
    Split(Ino),
    Join(Ino),
    /// How many names it has, its fragments together.
    Stat(Ino),
    /// A step of the client that has decoupled a directory.
    Job(Step),
    /// A step of a client that renames directories.
    Tree(tree::Step),
}

impl Script {
    pub(super) fn op(&self) -> Op<'_> {
        let new =
            |kind: FileType| NewInode { mode: kind.mode_bits() | 0o644, ..NewInode::default() };
        match self {
            Self::Job(step) => step.op(),
            Self::Tree(step) => step.op(),
            Self::Link(link) => link.op(),
            Self::MakeDir(parent, name) | Self::MakeInner(parent, name) => {
                let new = NewInode {
                    mode: FileType::Directory.mode_bits() | 0o755,
                    ..NewInode::default()
                };
                Op::Change(ChangeOp::Create { parent: *parent, name, new })
            }
            Self::Create((parent, name)) => {
                Op::Change(ChangeOp::Create { parent: *parent, name, new: new(FileType::Regular) })
            }
            Self::Unlink((parent, name)) => Op::Change(ChangeOp::Unlink { parent: *parent, name }),
            Self::Rename((parent, name), (new_parent, new_name)) => {
                let flags = RenameFlags::default();
                Op::Change(ChangeOp::Rename {
                    parent: *parent,
                    name,
                    new_parent: *new_parent,
                    new_name,
                    flags,
                })
            }
            Self::Lookup((parent, name)) => Op::Read(ReadOp::Lookup { parent: *parent, name }),
            Self::List(dir) => {
                Op::Read(ReadOp::List { dir: *dir, after: None, limit: 4096, attrs: true })
            }
            Self::Touch(dir) => {
                let change =
                    types::AttrChange { mode: Some(0o755), ..types::AttrChange::default() };
                Op::Change(ChangeOp::SetAttr { ino: *dir, change })
            }
            Self::Say(_, ino, mode) => {
                let change =
                    types::AttrChange { mode: Some(*mode), ..types::AttrChange::default() };
                Op::Change(ChangeOp::SetAttr { ino: *ino, change })
            }
            Self::Export(dir, rank) => Op::Rank(RankOp::Export { dir: *dir, rank: *rank }),
            Self::Split(dir) => Op::Rank(RankOp::Split { dir: *dir }),
            Self::Join(dir) => Op::Rank(RankOp::Join { dir: *dir }),
            Self::Stat(dir) => Op::Read(ReadOp::GetAttr { ino: *dir }),
        }
    }

    /// The route of the step.
    pub(super) fn route(&self) -> Route {
        match self {
            Self::Export(dir, rank) | Self::Tree(tree::Step::Export(dir, rank)) => {
                Route::pin(*dir, *rank)
            }
            Self::Split(dir) => Route::split(*dir, Vec::new()),
            Self::Join(dir) => Route::join(*dir),
            Self::Job(step) if step.has_chunks() => Route::with_chunks(),
            Self::Job(_)
            | Self::Tree(_)
            | Self::Link(_)
            | Self::MakeDir(..)
            | Self::MakeInner(..)
            | Self::List(_)
            | Self::Touch(_)
            | Self::Stat(_)
            | Self::Create(_)
            | Self::Unlink(_)
            | Self::Rename(..)
            | Self::Lookup(_)
            | Self::Say(..) => Route::request(),
        }
    }

    /// The directories that a server must have loaded for the step.
    pub(super) fn inos(&self) -> Vec<Ino> {
        match self {
            Self::Tree(step) => step.dirs(),
            Self::Link(link) => vec![link.from.0, link.to.0],
            Self::Rename(from, to) => vec![from.0, to.0],
            Self::Job(_)
            | Self::MakeDir(..)
            | Self::MakeInner(..)
            | Self::List(_)
            | Self::Touch(_)
            | Self::Export(..)
            | Self::Split(_)
            | Self::Join(_)
            | Self::Stat(_)
            | Self::Create(_)
            | Self::Unlink(_)
            | Self::Lookup(_)
            | Self::Say(..) => vec![self.named()],
        }
    }

    fn named(&self) -> Ino {
        match self {
            Self::Job(step) => step.named(),
            Self::Tree(step) => step.named(),
            Self::Link(link) => link.to.0,
            Self::MakeDir(dir, _)
            | Self::MakeInner(dir, _)
            | Self::List(dir)
            | Self::Touch(dir)
            | Self::Export(dir, _)
            | Self::Split(dir)
            | Self::Join(dir)
            | Self::Stat(dir)
            | Self::Create((dir, _))
            | Self::Unlink((dir, _))
            | Self::Rename((dir, _), _)
            | Self::Lookup((dir, _))
            | Self::Say((dir, _), ..) => *dir,
        }
    }
}
