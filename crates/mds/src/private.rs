//! A private server: it works for one job, on the snapshot of a branch (E-01).
//!
//! It is the ordinary server, on a store that shows the snapshot. The differences: all changes are
//! journalled, independent of policies, because the journal becomes a layer of the branch; the
//! server writes no checkpoint when it stops; and it changes nothing outside of the branch.
//!
//! Content is the reason for the rest. Clients write it to the common store, so a file that the job
//! has not made is not opened for writing: `EROFS` makes a client copy the file in its place first.

use types::{Ino, InoRange};

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// The numbers of the inodes that the job makes.
    pub numbers: InoRange,
    /// The directories above the branch's: they are shown, and not changed.
    pub above: Vec<Ino>,
}
