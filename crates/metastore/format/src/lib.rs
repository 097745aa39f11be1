//! The formats of the metadata store: the namespace as objects.
//!
//! A directory fragment is stored as one small *manifest* and the immutable sorted *runs* it lists
//! (J-01, I-02), with *value segments* for the long values of rows (I-09). Changing the fragment
//! means writing a new run and replacing the manifest by compare-and-swap; an object that no
//! manifest lists is garbage. The page `docs/formats/metastore.md` gives the grammar.
//!
//! This crate turns values into bytes and bytes into values. It reads and writes no object, and
//! decides nothing about when to flush, compact or delete: the metadata server does.
//!
//! Invariant: a decoder given arbitrary bytes returns a value or a [`FormatError`]; it never
//! panics, and never allocates more than a fixed multiple of the bytes it was given.

mod attach;
mod branch;
mod compaction;
mod copy;
mod damaged;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod load;
mod manifest;
mod moved_name;
mod name;
mod object;
mod proof;
mod removals;
pub mod request;
mod row;
mod rows;
mod run;
mod scan;
mod snapshots;
mod subtrees;
mod sums;
mod values;
mod watch;

pub use attach::{ATTACHED_DIRS_MAX, Attached, DirRun, RunList};
pub use branch::{
    BRANCH_NAME_BYTES_MAX, BRANCH_PREFIX, Branch, BranchState, Conflict, LAYER_PREFIX, LAYERS_MAX,
    Layer, MergeBegun, is_branch_name, layer_name, parse_layer,
};
pub use compaction::Tiers;
pub use copy::{COPY_PREFIX, copy_name, decode_copy, encode_copy, is_copied};
pub use damaged::{DAMAGED_FILES_MAX, DAMAGED_FILES_NAME, DamagedFiles};
pub use error::FormatError;
pub use load::{Slice, cuts, merge, merge_slice, overlay};
pub use manifest::{DirTouch, MANIFEST_VERSION, Manifest, RunInfo};
pub use moved_name::{CROSS_RENAMES_PREFIX, MovedName};
pub use object::{
    ObjectName, RunId, data_name, data_prefix, manifest_name, prefix, run_name, sums_name,
    values_name,
};
pub use proof::{Proof, ProofKey, ProofStatement};
pub use removals::{
    REMOVALS_MAX, REMOVALS_PREFIX, Removal, parse_removals_name, removals_name, removals_prefix,
};
pub use row::{InodeRecord, Row, RowValue};
pub use rows::Rows;
pub use run::{
    BLOCK_BYTES_TARGET, Columns, RESTART_ROWS, RUN_VERSION, RunBuilder, RunCursor, RunEnds,
    RunIndex, RunRange, RunReader, encode_clients_run, encode_columns, encode_run,
};
pub use scan::{Scan, WantedRange};
pub use snapshots::{
    PURGE_PREFIX, Purge, SNAPSHOTS_MAX, SNAPSHOTS_NAME, Snapshot, Snapshots, is_of_branch,
    parse_retained, retained_name, retained_prefix,
};
pub use subtrees::{FragmentOf, MovedSubtree, PartState, SUBTREES_MAX, SUBTREES_NAME, Subtrees};
pub use sums::{
    SUM_BLOCK_BYTES, SUM_BYTES, SUMS_PER_OBJECT, Sum, SumEntry, content_crc, content_crc_append,
};
pub use values::{Pointer, VALUE_BYTES_MIN, VALUES_VERSION, ValueSegment};
pub use watch::{StoreNotice, StoreWatch};

#[cfg(test)]
mod tests;
