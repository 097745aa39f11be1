//! The inodes and names of a request: by them it is routed, and admitted.

use types::{EntryName, Ino};

use super::{AdminOp, ChangeOp, JobOp, Op, ReadOp};

/// The inodes and names that an operation is about. Not here: paths, which are known only where
/// they are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About<'a> {
    /// The inode that decides which rank executes the operation: of a name the directory.
    pub inode: Option<Ino>,
    /// The new directory of a rename; the inode of a link.
    pub second: Option<Ino>,
    /// The names that it reads or changes.
    pub names: [Option<EntryName<'a>>; 2],
}

impl<'a> About<'a> {
    #[inline]
    pub(super) fn inode(ino: Ino) -> Self {
        Self { inode: Some(ino), ..Self::default() }
    }

    #[inline]
    pub(super) fn name(entry: EntryName<'a>) -> Self {
        Self { inode: Some(entry.dir), second: None, names: [Some(entry), None] }
    }

    /// The inodes.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + use<> {
        // Not a flattened array: compilers inline that into hundreds of instructions.
        self.inode.into_iter().chain(self.second)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = EntryName<'a>> + use<'a> {
        let [first, second] = self.names;
        first.into_iter().chain(second)
    }
}

impl<'a> Op<'a> {
    /// The path of the operation, and the directory in which it begins.
    #[must_use]
    pub fn path(&self) -> Option<(Ino, &'a [u8])> {
        match *self {
            Op::Read(ReadOp::Walk { base, path }) => Some((base, path)),
            Op::Change(ChangeOp::SetPolicy { path, .. })
            | Op::Job(JobOp::Decouple { path, .. }) => Some((Ino::ROOT, path)),
            Op::Read(_)
            | Op::Change(_)
            | Op::Session(_)
            | Op::Job(_)
            | Op::Rank(_)
            | Op::Admin(_) => None,
        }
    }
}

impl Op<'_> {
    /// The directories that have the names of the operation, or in which its path begins.
    pub fn dirs_mut(&mut self) -> [Option<&mut Ino>; 2] {
        match self {
            Op::Change(ChangeOp::Rename { parent, new_parent, .. }) => {
                [Some(parent), Some(new_parent)]
            }
            Op::Read(ReadOp::Lookup { parent: dir, .. } | ReadOp::Walk { base: dir, .. })
            | Op::Change(
                ChangeOp::Create { parent: dir, .. }
                | ChangeOp::Link { parent: dir, .. }
                | ChangeOp::Unlink { parent: dir, .. }
                | ChangeOp::Rmdir { parent: dir, .. }
                | ChangeOp::Discard { parent: dir, .. }
                | ChangeOp::Restore { parent: dir, .. },
            )
            | Op::Admin(AdminOp::WriteDown { parent: dir, .. }) => [Some(dir), None],
            Op::Read(_)
            | Op::Change(_)
            | Op::Session(_)
            | Op::Job(_)
            | Op::Rank(_)
            | Op::Admin(_) => [None, None],
        }
    }
}
