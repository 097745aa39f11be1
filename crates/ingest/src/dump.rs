//! The dump of a directory: names and attributes of everything in it at one moment.
//!
//! A dump is text in frames of zstd: a line of JSON for each name, between a first line that says
//! where the names come from and a last line that counts them (`docs/formats/dump.md`). `zstdcat`
//! and `jq` read it, and a dump that was cut off keeps its whole frames, from which a second
//! process continues.
//!
//! Invariant: a line ends in the frame that it begins in; only the last line is a [`DumpEnd`].

mod file;
mod line;
mod walk;

pub(crate) use file::next_line;
pub use file::{DumpFile, DumpProgress};
pub use line::{DumpEnd, DumpHeader, DumpLine, DumpSkip, DumpedXattr, XattrList};
pub(crate) use line::{damaged, parse};
pub use walk::{DumpSource, dump};

/// The version of the format that this program writes, and the only one that it reads.
pub const DUMP_VERSION: u32 = 1;

/// The longest line: content that an inode keeps as digits, its attributes and its path.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests;
