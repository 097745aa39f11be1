//! One directory fragment: its manifest, its runs, and the names that they make together.

use std::collections::{BTreeMap, BTreeSet};

use metastore::{
    Manifest, Rows, RunId, RunInfo, RunReader, manifest_name, merge, run_name, values_name,
};
use objstore::ObjectStore;
use types::{DirFragId, FileType, Result};

use crate::facts::Facts;
use crate::finding::{Finding, FindingKind};
use crate::survey::{self, Objects};
use crate::values::{self, Uses};
use crate::{FsckReport, Scope};

/// So often a manifest may change while its runs are read.
const ATTEMPTS_MAX: usize = 20;

/// The readable parts of a fragment.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) manifest: Manifest,
    /// The rows of the readable runs, merged.
    pub(crate) rows: Rows,
    /// Runs that it lists, and that are not there or cannot be read; why.
    pub(crate) bad: Vec<(RunInfo, FindingKind)>,
    /// The references of the readable runs to value segments.
    pub(crate) uses: BTreeMap<RunId, Uses>,
}

/// Reads a fragment; `None` without a readable manifest. An unreadable manifest is a finding.
pub(crate) fn read(
    store: &dyn ObjectStore,
    dirfrag: DirFragId,
    report: &mut FsckReport,
) -> Result<Option<Fragment>> {
    let name = manifest_name(dirfrag);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Some(bytes) = survey::read(store, &name, report)? else { return Ok(None) };
        let manifest = match Manifest::decode_as(dirfrag, &bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                report
                    .findings
                    .push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
                return Ok(None);
            }
        };
        let mut runs = Vec::with_capacity(manifest.runs.len());
        for info in &manifest.runs {
            runs.push(survey::read(store, &run_name(dirfrag, info.id), report)?);
        }
        let mut missing = runs.iter().any(Option::is_none);
        let fragment = together(manifest, runs);
        let before = report.findings.len();
        missing |= values::check(store, &fragment.manifest, &fragment.rows, report)?;
        // A server may have replaced the manifest and deleted the runs of the old one.
        let changed = missing && store.get(&name).is_ok_and(|(now, _)| now != bytes);
        if !changed || attempt == ATTEMPTS_MAX {
            return Ok(Some(fragment));
        }
        report.findings.truncate(before);
    }
}

/// Overlays the runs that are whole.
fn together(manifest: Manifest, runs: Vec<Option<Vec<u8>>>) -> Fragment {
    let only = |infos: Vec<RunInfo>| Manifest { runs: infos, ..manifest.clone() };
    let (mut good, mut good_bytes, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    let mut uses = BTreeMap::new();
    for (info, bytes) in manifest.runs.iter().zip(runs) {
        let kind = match bytes {
            None => FindingKind::MissingRun,
            Some(bytes) => match merge(&only(vec![*info]), std::slice::from_ref(&bytes)) {
                Ok(_) => {
                    if let Ok(run) = RunReader::open(&bytes) {
                        uses.insert(info.id, values::uses_of(&run));
                    }
                    good.push(*info);
                    good_bytes.push(bytes);
                    continue;
                }
                Err(error) => FindingKind::Unreadable(error.to_string()),
            },
        };
        bad.push((*info, kind));
    }
    // Each of them could be read a moment ago.
    let rows = merge(&only(good), &good_bytes).unwrap_or_default();
    Fragment { manifest, rows, bad, uses }
}

/// How many names there are, and how many of them are directories.
pub(crate) fn counts(rows: &Rows) -> (u64, u64) {
    use metastore::RowValue::{Inode, Remote, Removed};
    let is_dir = |row: &metastore::Row<'_>| match row.value {
        Inode(record) => record.attr.is_dir(),
        Remote { file_type, .. } => file_type == FileType::Directory,
        Removed => false,
    };
    (rows.len() as u64, rows.iter().filter(is_dir).count() as u64)
}

/// The runs and value segments of a fragment that a snapshot keeps.
fn retained_objects(
    store: &dyn ObjectStore,
    dirfrag: DirFragId,
    objects: &Objects,
    report: &mut FsckReport,
) -> Result<(BTreeSet<RunId>, BTreeSet<RunId>)> {
    let (mut runs, mut values) = (BTreeSet::new(), BTreeSet::new());
    for name in &objects.kept {
        let Some(bytes) = survey::read(store, name, report)? else { continue };
        match Manifest::decode_as(dirfrag, &bytes) {
            Ok(manifest) => {
                runs.extend(manifest.runs.iter().map(|info| info.id));
                values.extend(manifest.values.iter().map(|segment| segment.id));
            }
            Err(error) => {
                report
                    .findings
                    .push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
            }
        }
    }
    Ok((runs, values))
}

/// Checks one fragment, and adds its facts.
pub(crate) fn check(
    store: &dyn ObjectStore,
    dirfrag: DirFragId,
    objects: &Objects,
    scope: Scope,
    facts: &mut Facts,
    report: &mut FsckReport,
) -> Result<()> {
    let before = report.findings.len();
    let (kept, kept_values) = retained_objects(store, dirfrag, objects, report)?;
    let Some(fragment) = read(store, dirfrag, report)? else {
        // While servers work it may have been made, or removed, since the names were listed.
        let mut left = objects.runs.iter().filter(|id| !kept.contains(id)).peekable();
        if scope != Scope::AtRest || objects.manifest || report.findings.len() != before {
            return Ok(());
        }
        if left.peek().is_some() {
            let clients = left.all(|id| id.is_clients());
            let kind = if clients { FindingKind::UnmergedRun } else { FindingKind::NoManifest };
            report.findings.push(Finding::object(metastore::prefix(dirfrag), kind));
            return Ok(());
        }
        for id in objects.values.iter().filter(|id| !kept_values.contains(id)) {
            report.findings.push(Finding::object(values_name(dirfrag, *id), FindingKind::LeftRun));
        }
        return Ok(());
    };
    for row in fragment.rows.iter() {
        facts.add(dirfrag, &row);
    }
    facts.positions.extend([fragment.manifest.position, fragment.manifest.touched.seq]);
    report.names += fragment.rows.len() as u64;
    let whole = fragment.bad.is_empty();
    for (info, kind) in fragment.bad {
        report.findings.push(Finding::object(run_name(dirfrag, info.id), kind));
    }
    if scope == Scope::EachByItself {
        return Ok(());
    }
    let (manifest, found) = (&fragment.manifest, counts(&fragment.rows));
    let counted = (manifest.entries, manifest.subdirs);
    if whole && manifest.counts_exact && counted != found {
        let kind = FindingKind::Counts(counted, found);
        report.findings.push(Finding::object(manifest_name(dirfrag), kind));
    }
    if whole && !values::are_counted(manifest, &fragment.uses) {
        report.findings.push(Finding::object(manifest_name(dirfrag), FindingKind::Uses));
    }
    for id in &objects.values {
        if !kept_values.contains(id) && !manifest.values.iter().any(|known| known.id == *id) {
            report.findings.push(Finding::object(values_name(dirfrag, *id), FindingKind::LeftRun));
        }
    }
    for id in &objects.runs {
        if !kept.contains(id) && !manifest.runs.iter().any(|info| info.id == *id) {
            let kind =
                if id.is_clients() { FindingKind::UnmergedRun } else { FindingKind::LeftRun };
            report.findings.push(Finding::object(run_name(dirfrag, *id), kind));
        }
    }
    Ok(())
}
