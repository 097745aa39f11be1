//! The names of all objects, and the content of the few tables and journals.

use std::collections::BTreeMap;

use journal::segment::{SegmentHeader, Writer, scan};
use mds::RankTable;
use metastore::request::{
    MAP_NAME, client_journal_prefix, client_journals_prefix, journal_prefix, parse_rank_name,
    rank_name,
};
use metastore::{
    BRANCH_PREFIX, Branch, COPY_PREFIX, DAMAGED_FILES_NAME, ObjectName, Removal, RunId,
    SNAPSHOTS_NAME, SUBTREES_NAME, Snapshots, Subtrees, copy_name, decode_copy, is_copied,
    parse_removals_name, parse_retained,
};
use objstore::ObjectStore;
use types::{DirFragId, Errno, Ino, Rank, Result};

use crate::FsckReport;
use crate::facts::Facts;
use crate::finding::{Finding, FindingKind};
use crate::rebuild;

/// Unreadable objects are kept below this prefix; content of files without an inode is not.
pub(crate) const LOST: &str = "lost/";
/// Branches, layers, snapshots, and lists of later deletions: `cudele branch gc` checks these.
const BRANCHES: &str = "branches/";
/// Policies and state of the balancer, on which no part of the namespace depends.
const BALANCER: &str = "balancer/";
const RANK_JOURNALS: &str = "journal/mds.";
const CLIENT_JOURNALS: &str = "journal/client/";
/// Bytes before the events of a block.
const BLOCK_HEADER_BYTES: usize = 28;
/// The rest of a merge by reference, kept for a merge by value. It is deleted with its journal.
const REST_JOURNALS: &str = "journal/rest/";

/// The objects of one directory fragment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) manifest: bool,
    pub(crate) runs: Vec<RunId>,
    pub(crate) values: Vec<RunId>,
    /// Manifests that were replaced, and that a snapshot needs.
    pub(crate) kept: Vec<String>,
}

/// All names of a store, sorted by kind.
#[derive(Clone, Debug, Default)]
pub struct StoreSurvey {
    pub(crate) objects: u64,
    pub(crate) fragments: BTreeMap<DirFragId, Objects>,
    /// Content of files: the objects of each.
    pub(crate) content: BTreeMap<Ino, Vec<String>>,
    pub(crate) tables: Vec<Rank>,
    /// Segments of journals of ranks, in order.
    pub(crate) segments: Vec<String>,
    pub(crate) client_journals: Vec<String>,
    pub(crate) subtrees: bool,
    /// Lists of removed inodes that servers have yet to purge.
    pub(crate) removals: Vec<String>,
    pub(crate) map: bool,
    /// The objects that have second copies.
    pub(crate) copies: Vec<String>,
    /// Objects of branches and snapshots.
    pub(crate) branches: Vec<String>,
    pub(crate) foreign: Vec<String>,
}

/// The fragment of a manifest that was kept for snapshots.
fn retained_of(name: &str) -> Option<DirFragId> {
    let (prefix, _) = parse_retained(name)?;
    match ObjectName::parse(&format!("{prefix}/manifest"))? {
        ObjectName::Manifest(dirfrag) => Some(dirfrag),
        ObjectName::Run(..)
        | ObjectName::Values(..)
        | ObjectName::Data(..)
        | ObjectName::Sums(..) => None,
    }
}

impl StoreSurvey {
    /// Lists a store.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn of(store: &dyn ObjectStore) -> Result<Self> {
        let mut survey = Self::default();
        for name in store.list("")? {
            survey.objects += 1;
            survey.add(name);
        }
        Ok(survey)
    }

    fn add(&mut self, name: String) {
        match ObjectName::parse(&name) {
            Some(ObjectName::Manifest(dirfrag)) => {
                self.fragments.entry(dirfrag).or_default().manifest = true;
            }
            Some(ObjectName::Run(dirfrag, id)) => {
                self.fragments.entry(dirfrag).or_default().runs.push(id);
            }
            Some(ObjectName::Values(dirfrag, id)) => {
                self.fragments.entry(dirfrag).or_default().values.push(id);
            }
            Some(ObjectName::Data(ino, ..) | ObjectName::Sums(ino, ..)) => {
                self.content.entry(ino).or_default().push(name)
            }
            None => self.add_other(name),
        }
    }

    fn add_other(&mut self, name: String) {
        if let Some(rank) = parse_rank_name(&name) {
            self.tables.push(rank);
        } else if name.starts_with(RANK_JOURNALS) {
            self.segments.push(name);
        } else if name.starts_with(CLIENT_JOURNALS) {
            self.client_journals.push(name);
        } else if let Some(dirfrag) = retained_of(&name) {
            self.fragments.entry(dirfrag).or_default().kept.push(name);
        } else if name.starts_with(BRANCHES) {
            self.branches.push(name);
        } else if name == SUBTREES_NAME {
            self.subtrees = true;
        } else if parse_removals_name(&name).is_some() {
            self.removals.push(name);
        } else if name == MAP_NAME {
            self.map = true;
        } else if name == DAMAGED_FILES_NAME {
            // A check of the content replaces the list.
        } else if let Some(object) = name.strip_prefix(COPY_PREFIX).filter(|it| is_copied(it)) {
            self.copies.push(object.to_owned());
        } else if !([REST_JOURNALS, LOST, BALANCER].iter().any(|known| name.starts_with(known))) {
            self.foreign.push(name);
        }
    }

    /// The ranks that have a table.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.tables.iter().copied()
    }

    pub(crate) fn has_rank_journals(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// An object's content, or a finding that it cannot be read. Nothing if it is not there (any more).
pub(crate) fn read(
    store: &dyn ObjectStore,
    name: &str,
    report: &mut FsckReport,
) -> Result<Option<Vec<u8>>> {
    match store.get(name) {
        Ok((bytes, _)) => {
            report.bytes += bytes.len() as u64;
            Ok(Some(bytes))
        }
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        // The whole store does not answer, or denies access.
        Err(error) if matches!(error.errno, Errno::TimedOut | Errno::Access | Errno::Stale) => {
            Err(error)
        }
        Err(error) => {
            report.findings.push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
            Ok(None)
        }
    }
}

/// Reads the tables of all ranks and the lists of branches.
pub(crate) fn read_tables(
    store: &dyn ObjectStore,
    survey: &StoreSurvey,
    facts: &mut Facts,
    report: &mut FsckReport,
) -> Result<()> {
    for rank in survey.ranks() {
        let name = rank_name(rank);
        let Some(bytes) = read(store, &name, report)? else { continue };
        match RankTable::decode(rank, &bytes) {
            Ok(table) => facts.tables.push(table),
            Err(error) => {
                report
                    .findings
                    .push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
            }
        }
    }
    for name in &survey.branches {
        let is_branch = name.starts_with(BRANCH_PREFIX);
        if !is_branch && name != SNAPSHOTS_NAME {
            continue;
        }
        let Some(bytes) = read(store, name, report)? else { continue };
        let error = match is_branch {
            true => Branch::decode(name, &bytes).err(),
            false => Snapshots::decode(&bytes).err(),
        };
        if let Some(error) = error {
            report.findings.push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
        }
    }
    read_copies(store, survey, report)?;
    if survey.map
        && let Some(bytes) = read(store, MAP_NAME, report)?
        && let Err(cause) = rebuild::read_map(&bytes)
    {
        report.findings.push(Finding::object(MAP_NAME, FindingKind::Unreadable(cause)));
    }
    if survey.subtrees
        && let Some(bytes) = read(store, SUBTREES_NAME, report)?
    {
        let list = Subtrees::decode(&bytes).map_err(|error| error.to_string());
        let taken = list.and_then(|list| {
            let mut handed = list.iter().filter(|subtree| !subtree.inode.is_empty());
            handed.try_for_each(|subtree| facts.add_handed_over(&subtree.inode))
        });
        if let Err(cause) = taken {
            report.findings.push(Finding::object(SUBTREES_NAME, FindingKind::Unreadable(cause)));
        }
    }
    Ok(())
}

/// Reads the lists of removed inodes that servers have yet to purge.
pub(crate) fn read_removals(
    store: &dyn ObjectStore,
    survey: &StoreSurvey,
    facts: &mut Facts,
    report: &mut FsckReport,
) -> Result<()> {
    for name in &survey.removals {
        let Some(bytes) = read(store, name, report)? else { continue };
        match Removal::decode_list(name, &bytes) {
            Ok(list) => facts.removed.extend(list.iter().map(Removal::ino)),
            Err(error) => {
                report
                    .findings
                    .push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
            }
        }
    }
    Ok(())
}

fn read_copies(
    store: &dyn ObjectStore,
    survey: &StoreSurvey,
    report: &mut FsckReport,
) -> Result<()> {
    for object in &survey.copies {
        let name = copy_name(object);
        let Some(bytes) = read(store, &name, report)? else { continue };
        if let Err(error) = decode_copy(object, &bytes) {
            report.findings.push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
        }
    }
    Ok(())
}

/// Whether a journal is not the one that its name states.
fn is_of_another(name: &str, bytes: &[u8]) -> Option<String> {
    let known = match SegmentHeader::decode(bytes).ok()?.writer {
        Writer::Mds { rank } => name.starts_with(&journal_prefix(rank)),
        Writer::Client { client, subtree } => {
            name.starts_with(&client_journals_prefix(subtree, client))
        }
    };
    (!known).then(|| "expected the journal that its name states".to_owned())
}

/// Whether the header of a block gives exactly this length: then the write was not interrupted.
fn is_whole_block(bytes: &[u8]) -> bool {
    let length = bytes.get(8..12).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let length = length.and_then(|length| usize::try_from(length).ok());
    length.and_then(|length| length.checked_add(BLOCK_HEADER_BYTES)) == Some(bytes.len())
}

/// Verifies journals. A crash leaves an incomplete write at the end of the last segment, which is
/// no fault.
pub(crate) fn read_journals(
    store: &dyn ObjectStore,
    survey: &StoreSurvey,
    facts: &Facts,
    report: &mut FsckReport,
) -> Result<()> {
    for name in survey.segments.iter().chain(&survey.client_journals) {
        let Some(bytes) = read(store, name, report)? else { continue };
        let is_clients = name.starts_with(CLIENT_JOURNALS);
        match scan(&bytes) {
            Ok(scan) => {
                report.events += scan.events;
                if let Some(why) = is_of_another(name, &bytes) {
                    report.findings.push(Finding::object(name, FindingKind::Unreadable(why)));
                }
                let Some(damage) = scan.damage else { continue };
                let is_hole = damage.resumes.is_some()
                    || (is_clients && is_whole_block(&bytes[scan.intact..]));
                let kind = if is_hole {
                    FindingKind::Unreadable(damage.error.to_string())
                } else {
                    FindingKind::TornEnd(damage.error.to_string())
                };
                report.findings.push(Finding::object(name, kind));
            }
            // It was begun, and nothing was written yet.
            Err(_) if bytes.is_empty() => {}
            Err(error) => {
                report
                    .findings
                    .push(Finding::object(name, FindingKind::Unreadable(error.to_string())));
            }
        }
    }
    let known: Vec<String> = facts
        .tables
        .iter()
        .flat_map(|table| &table.decoupled)
        .flat_map(|(subtree, client, ranges)| {
            ranges.iter().map(|range| client_journal_prefix(*subtree, *client, *range))
        })
        .collect();
    for name in &survey.client_journals {
        if !known.iter().any(|prefix| name.starts_with(prefix)) {
            report.findings.push(Finding::object(name, FindingKind::LeftJournal));
        }
    }
    Ok(())
}
