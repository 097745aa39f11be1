//! Checks the value segments of a directory fragment against the references of its rows.
//!
//! Invariant: one segment at a time is in memory.

use std::collections::BTreeMap;

use metastore::{Manifest, Pointer, RowValue, Rows, RunId, RunReader, values_name};
use objstore::ObjectStore;
use types::{DirFragId, Result};

use crate::FsckReport;
use crate::finding::{Finding, FindingKind, Subject};
use crate::survey;

/// To how many bytes of which segments a run points.
pub(crate) type Uses = BTreeMap<RunId, u64>;

/// The references of a run to value segments. A run that a client wrote has none.
pub(crate) fn uses_of(run: &RunReader<'_>) -> Uses {
    let mut uses = Uses::new();
    if run.id().is_clients() {
        return uses;
    }
    let mut cursor = run.iter();
    while let Ok(Some(row)) = cursor.next_row() {
        if let Some(pointer) = pointer_of(&row.value) {
            *uses.entry(pointer.segment).or_default() += pointer.bytes();
        }
    }
    uses
}

fn pointer_of(value: &RowValue<'_>) -> Option<Pointer> {
    match value {
        RowValue::Inode(record) => record.pointer,
        RowValue::Remote { .. } | RowValue::Removed => None,
    }
}

/// Checks segments against references. Returns whether a segment is missing.
pub(crate) fn check(
    store: &dyn ObjectStore,
    manifest: &Manifest,
    rows: &Rows,
    report: &mut FsckReport,
) -> Result<bool> {
    let dirfrag = manifest.dirfrag;
    let mut wanted: BTreeMap<RunId, Vec<(Pointer, usize)>> = BTreeMap::new();
    if rows.has_pointers() {
        for (number, row) in rows.iter().enumerate() {
            if let Some(pointer) = pointer_of(&row.value) {
                wanted.entry(pointer.segment).or_default().push((pointer, number));
            }
        }
    }
    for segment in &manifest.values {
        wanted.entry(segment.id).or_default();
    }
    let mut missing = false;
    for (id, pointers) in wanted {
        let name = values_name(dirfrag, id);
        let bytes = survey::read(store, &name, report)?;
        missing |= bytes.is_none();
        let known = manifest.values.iter().find(|segment| segment.id == id);
        let bad = match (&bytes, known) {
            (None, _) => Some(FindingKind::MissingRun),
            (Some(bytes), Some(segment)) => {
                let checked = segment.check(dirfrag, bytes);
                checked.err().map(|error| FindingKind::Unreadable(error.to_string()))
            }
            (Some(_), None) => Some(FindingKind::Uses),
        };
        report.findings.extend(bad.map(|kind| Finding::object(name, kind)));
        let bytes = bytes.unwrap_or_default();
        for (pointer, number) in pointers {
            let start = usize::try_from(pointer.offset).unwrap_or(usize::MAX);
            let value = bytes.get(start..).unwrap_or_default();
            if pointer.read(dirfrag, value).is_err()
                && let Some(row) = rows.iter_from(number).next()
            {
                let subject = Subject::Name(dirfrag.ino, row.name.to_vec());
                report.findings.push(Finding::new(subject, FindingKind::ContentLost));
            }
        }
    }
    Ok(missing)
}

/// Whether the counts of a manifest agree with the references of its runs. Unreadable runs count as
/// stated.
pub(crate) fn are_counted(manifest: &Manifest, uses: &BTreeMap<RunId, Uses>) -> bool {
    let counted = |segment: &metastore::ValueSegment| {
        let points = |(run, bytes): &(RunId, u64)| {
            uses.get(run).is_none_or(|uses| uses.get(&segment.id) == Some(bytes))
        };
        segment.uses.iter().all(points)
    };
    let lists = |run: RunId, segment: RunId| {
        let found = manifest.values.iter().find(|known| known.id == segment);
        found.is_some_and(|known| known.uses.iter().any(|(user, _)| *user == run))
    };
    manifest.values.iter().all(counted)
        && uses.iter().all(|(run, uses)| uses.keys().all(|segment| lists(*run, *segment)))
}

/// Corrects the counts in a manifest, as far as the segments exist.
pub(crate) fn count_again(
    store: &dyn ObjectStore,
    manifest: &mut Manifest,
    uses: &BTreeMap<RunId, Uses>,
) -> Result<()> {
    let dirfrag: DirFragId = manifest.dirfrag;
    let mut segments: BTreeMap<RunId, Vec<(RunId, u64)>> = BTreeMap::new();
    for (run, uses) in uses {
        for (segment, bytes) in uses {
            segments.entry(*segment).or_default().push((*run, *bytes));
        }
    }
    manifest.values.clear();
    for (id, uses) in segments {
        let read = survey::read(store, &values_name(dirfrag, id), &mut FsckReport::default())?;
        let Some(bytes) = read else { continue };
        if uses.iter().all(|(_, used)| *used <= bytes.len() as u64) {
            manifest.values.push(metastore::ValueSegment::of(id, &bytes, uses));
            manifest.next_run = manifest.next_run.max(id.0 + 1);
        }
    }
    Ok(())
}
