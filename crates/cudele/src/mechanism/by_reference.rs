//! Merging by reference, seen from the client: what the journal made goes into the object store as
//! sorted runs, and the metadata server is sent their list and what is left of the journal.
//!
//! Nothing that was stored here is deleted again, whatever the server says: an attempt whose answer was
//! lost may have made a directory of it.

use std::time::Instant;

use client::{ByReference, ByValue, Worth, may_go_by_value};
use journal::SegmentHeader;
use metastore::request::rest_name;
use objstore::Expect;
use types::{Ino, Result};
use wire::{Answer, MergeFlags, MergeReport, Op, Unused};

use super::MergedBy;
use crate::Fs;
use crate::fs::unexpected;

/// What is to be merged.
pub(crate) struct Whole<'a, B> {
    pub(crate) subtree: Ino,
    pub(crate) header: &'a SegmentHeader,
    pub(crate) blocks: &'a [B],
    /// The object that holds it, if the store does.
    pub(crate) object: Option<&'a str>,
    pub(crate) flags: MergeFlags,
    pub(crate) unused: Unused<'a>,
}

/// Merges by reference if the journal can be told so; else says why not. `asked` is called before the
/// server is asked.
pub(crate) fn merge<B: AsRef<[u8]>>(
    fs: &Fs,
    whole: &Whole<'_, B>,
    asked: impl FnOnce(),
) -> Result<std::result::Result<(MergeReport, MergedBy), ByValue>> {
    let Whole { subtree, header, blocks, object, flags, unused } = *whole;
    // A directory that others have names in says so, and one that was restarted since is read.
    let root = Fs::attr_answer(fs.call(Op::GetAttr { ino: subtree })?)?;
    let is_empty = root.size == 0;
    let told = match ByReference::of((header, blocks), (&root, is_empty), Worth::default()) {
        Ok(told) => told,
        Err(reason) => return Ok(Err(reason)),
    };
    for (name, bytes) in &told.objects {
        // Nothing is expected of what is there: it would be the same.
        let _ = fs.store().put(name, bytes, Expect::Any)?;
    }
    let rest = match object {
        Some(object) => {
            let rest = rest_name(object);
            let _ = fs.store().put(&rest, &told.rest(), Expect::Any)?;
            rest
        }
        None => String::new(),
    };
    let message = told.message();
    let chunks: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
    let op = Op::Merge {
        subtree,
        bytes: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        object: rest.as_bytes(),
        flags: MergeFlags { by_reference: true, ..flags },
        unused,
    };
    asked();
    let start = Instant::now();
    let mut report = match fs.call_with_chunks(op, &chunks) {
        Ok(Answer::Merged(report)) => *report,
        Ok(answer) => return Err(unexpected(&answer)),
        Err(error) if may_go_by_value(error.errno) => return Ok(Err(ByValue::Refused)),
        Err(error) => return Err(error),
    };
    let seconds = start.elapsed().as_secs_f64();
    report.events = told.list.last.0 + 1 - told.header.first_seq.0;
    report.created += told.created;
    if let Some(object) = object {
        // What the server would need after a crash are the runs and the rest.
        fs.store().delete(object)?;
    }
    let runs = told.list.dirs.len() as u64;
    Ok(Ok((report, MergedBy { runs, events: told.events, seconds, because: None })))
}
