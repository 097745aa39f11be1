//! What clients do.

use types::{FileType, Ino, Rank, RenameFlags};
use wire::{NewInode, Op};

use super::job::Step;
use super::linking::{Colocation, Link};
use super::passing::Passing;
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
    Gather(Colocation),
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
    /// A step of a rename between two ranks.
    Pass(Passing),
    /// A step of a client that renames directories.
    Tree(tree::Step),
}

impl Script {
    pub(super) fn op(&self) -> Op<'_> {
        let new =
            |kind: FileType| NewInode { mode: kind.mode_bits() | 0o644, ..NewInode::default() };
        match self {
            Self::Job(step) => step.op(),
            Self::Pass(passing) => passing.op(),
            Self::Tree(step) => step.op(),
            Self::Link(link) => link.op(),
            Self::Gather(gathering) => gathering.op(),
            Self::MakeDir(parent, name) | Self::MakeInner(parent, name) => {
                let new = NewInode {
                    mode: FileType::Directory.mode_bits() | 0o755,
                    ..NewInode::default()
                };
                Op::Create { parent: *parent, name, new }
            }
            Self::Create((parent, name)) => {
                Op::Create { parent: *parent, name, new: new(FileType::Regular) }
            }
            Self::Unlink((parent, name)) => Op::Unlink { parent: *parent, name },
            Self::Rename((parent, name), (new_parent, new_name)) => {
                let flags = RenameFlags::default();
                Op::Rename { parent: *parent, name, new_parent: *new_parent, new_name, flags }
            }
            Self::Lookup((parent, name)) => Op::Lookup { parent: *parent, name },
            Self::List(dir) => Op::List { dir: *dir, after: None, limit: 4096, attrs: true },
            Self::Touch(dir) => {
                let change =
                    types::AttrChange { mode: Some(0o755), ..types::AttrChange::default() };
                Op::SetAttr { ino: *dir, change }
            }
            Self::Say(_, ino, mode) => {
                let change =
                    types::AttrChange { mode: Some(*mode), ..types::AttrChange::default() };
                Op::SetAttr { ino: *ino, change }
            }
            Self::Export(dir, rank) => Op::Export { dir: *dir, rank: *rank },
            Self::Split(dir) => Op::Split { dir: *dir },
            Self::Join(dir) => Op::Join { dir: *dir },
            Self::Stat(dir) => Op::GetAttr { ino: *dir },
        }
    }

    pub(super) fn named(&self) -> Ino {
        match self {
            Self::Job(step) => step.named(),
            Self::Pass(passing) => passing.named(),
            Self::Tree(step) => step.named(),
            Self::Link(link) => link.to.0,
            Self::Gather(gathering) => gathering.named(),
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
