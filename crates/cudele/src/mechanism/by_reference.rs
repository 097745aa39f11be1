//! Merge by reference at the client: the results of the journal go into the object store as sorted
//! runs, and the metadata server receives their list and the rest of the journal.
//!
//! Objects that were stored here are not deleted again, after any answer: an attempt whose answer
//! was lost may have made a directory of them.

use std::time::Instant;

use client::{ByReference, ByValue, RunThreshold, may_go_by_value};
use journal::SegmentHeader;
use metastore::RunList;
use metastore::request::{proof_name, rest_name};
use objstore::Expect;
use types::{Errno, Ino, Result, Seq};
use wire::{Answer, MergeFlags, MergeReport, Op, UnusedNumbers};

use super::MergedBy;
use crate::Fs;
use crate::fs::unexpected;
use crate::subtree::Written;

/// The journal to merge, and its runs.
pub(crate) struct Whole<'a, B> {
    pub(crate) subtree: Ino,
    pub(crate) header: &'a SegmentHeader,
    pub(crate) blocks: &'a [B],
    /// The object that holds it, if the store does.
    pub(crate) object: Option<&'a str>,
    pub(crate) flags: MergeFlags,
    pub(crate) unused: UnusedNumbers<'a>,
}

/// Merges by reference, with runs that are `written` or still to be, if the journal allows that;
/// otherwise returns the reason. Calls `asked` before the request.
pub(crate) fn merge<B: AsRef<[u8]>>(
    fs: &Fs,
    whole: &Whole<'_, B>,
    written: Option<Written>,
    asked: impl FnOnce(),
) -> Result<std::result::Result<(MergeReport, MergedBy), ByValue>> {
    let Whole { subtree, header, blocks, object, flags, unused } = *whole;
    // The answer shows whether other clients have names in the directory; a restarted server reads
    // the directory for it.
    let root = Fs::attr_answer(fs.call(Op::GetAttr { ino: subtree })?)?;
    let is_empty = root.size == 0;
    let written = written.map(|written| written.finish(header, blocks, is_empty)).transpose()?;
    let reference = match written {
        Some(Ok(reference)) => Ok(reference),
        Some(Err(_)) | None => {
            ByReference::of((header, blocks), (&root, is_empty), RunThreshold::default())
        }
    };
    let reference = match reference {
        Ok(reference) => reference,
        Err(reason) => return Ok(Err(reason)),
    };
    for (name, bytes) in &reference.objects {
        // An existing object of this name has the same content.
        let _ = fs.store().put(name, bytes, Expect::Any)?;
    }
    let rest = match object {
        Some(object) => {
            let rest = rest_name(object);
            let _ = fs.store().put(&rest, &reference.rest(), Expect::Any)?;
            rest
        }
        None => String::new(),
    };
    let message = reference.message();
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
    report.events = reference.list.last.0 + 1 - reference.header.first_seq.0;
    report.created += reference.created;
    if let Some(object) = object {
        // After a crash the server needs the runs and the rest only.
        fs.store().delete(object)?;
    }
    let runs = reference.list.dirs.len() as u64;
    Ok(Ok((report, MergedBy { runs, events: reference.events, seconds, because: None })))
}

/// Merges the journal in an object by the runs that a verifier has written and proved, if one has
/// proved all of it up to `last` and the server trusts it.
pub(crate) fn merge_proved(
    fs: &Fs,
    (subtree, object, last): (Ino, &str, Seq),
    (flags, unused): (MergeFlags, UnusedNumbers<'_>),
    asked: impl FnOnce(),
) -> Result<Option<(MergeReport, MergedBy)>> {
    let proof = proof_name(object);
    let message = match fs.store().get(&proof) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.errno == Errno::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A damaged list, or one of a shorter journal, is useless.
    let Ok((list, rest)) = RunList::decode(&message) else { return Ok(None) };
    let Ok(header) = SegmentHeader::decode(rest) else { return Ok(None) };
    if list.last != last {
        return Ok(None);
    }
    let rest = rest_name(object);
    let op = Op::Merge {
        subtree,
        bytes: message.len() as u64,
        object: rest.as_bytes(),
        flags: MergeFlags { by_reference: true, ..flags },
        unused,
    };
    asked();
    let start = Instant::now();
    let mut report = match fs.call_with_chunks(op, &[&message]) {
        Ok(Answer::Merged(report)) => *report,
        Ok(answer) => return Err(unexpected(&answer)),
        Err(error) if may_go_by_value(error.errno) => return Ok(None),
        Err(error) => return Err(error),
    };
    let seconds = start.elapsed().as_secs_f64();
    let names = list.dirs.iter().map(|run| run.run.rows).sum::<u64>();
    let merged = report.events;
    report.events = list.last.0 + 1 - header.first_seq.0;
    report.created += names;
    for object in [object, &proof] {
        fs.store().delete(object)?;
    }
    let (runs, events) = (list.dirs.len() as u64, report.events.saturating_sub(merged));
    Ok(Some((report, MergedBy { runs, events, seconds, because: None })))
}
