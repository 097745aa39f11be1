//! The formats of the metadata store: the namespace as objects.
//!
//! A directory fragment is stored as one small *manifest* and the immutable sorted *runs* it
//! lists (J-01, I-02). Changing the fragment means writing a new run and replacing the manifest
//! by compare-and-swap; an object that no manifest lists is garbage. The page
//! `docs/formats/metastore.md` gives the grammar.
//!
//! This crate turns values into bytes and bytes into values. It reads and writes no object, and
//! decides nothing about when to flush, compact or delete: the metadata server does.
//!
//! Invariant: a decoder given arbitrary bytes returns a value or a [`FormatError`]; it never
//! panics, and never allocates more than a fixed multiple of the bytes it was given.

mod attach;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod load;
mod manifest;
mod name;
mod object;
pub mod request;
mod row;
mod rows;
mod run;
mod subtrees;

pub use attach::{ATTACHED_DIRS_MAX, Attached, DirRun, RunList};
pub use error::FormatError;
pub use load::merge;
pub use manifest::{MANIFEST_VERSION, Manifest, RunInfo};
pub use object::{
    ObjectName, RunId, data_name, data_prefix, manifest_name, pool_of, prefix, run_name,
};
pub use row::{InodeRecord, Row, RowValue};
pub use rows::Rows;
pub use run::{
    BLOCK_BYTES_TARGET, RESTART_ROWS, RUN_VERSION, RunCursor, RunEnds, RunReader, encode_run,
};
pub use subtrees::{SUBTREES_MAX, SUBTREES_NAME, Subtree, Subtrees};

#[cfg(test)]
mod tests;
