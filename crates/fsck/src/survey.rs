//! What objects there are, by their names; and those that are few: tables and journals.

use std::collections::BTreeMap;

use journal::segment::scan;
use mds::RankTable;
use metastore::request::{MAP_NAME, client_journal_prefix, rank_name};
use metastore::{
    BRANCH_PREFIX, Branch, ObjectName, RunId, SNAPSHOTS_NAME, SUBTREES_NAME, Snapshots, Subtrees,
    parse_kept,
};
use objstore::ObjectStore;
use types::{DirFragId, Errno, Ino, Rank, Result};

use crate::Report;
use crate::facts::Facts;
use crate::finding::{Finding, Kind};

/// What cannot be read is kept here; content that nobody refers to is not.
pub(crate) const LOST: &str = "lost/";
/// Branches, their layers, snapshots, and notes of what is to be deleted later: `cudele branch gc` is for these.
const BRANCHES: &str = "branches/";
/// Policies of the balancer, and what they remember: nothing of the namespace depends on them.
const BALANCER: &str = "balancer/";
const RANK_JOURNALS: &str = "journal/mds.";
const CLIENT_JOURNALS: &str = "journal/client/";
/// What merges by reference leave for a merge by value. They go with their journals.
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

/// All names of a store, sorted by what they are names of.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub(crate) objects: u64,
    pub(crate) fragments: BTreeMap<DirFragId, Objects>,
    /// Content of files: the objects of each.
    pub(crate) content: BTreeMap<Ino, Vec<String>>,
    pub(crate) tables: Vec<Rank>,
    /// Segments of journals of ranks, in order.
    pub(crate) segments: Vec<String>,
    pub(crate) client_journals: Vec<String>,
    pub(crate) subtrees: bool,
    /// What is of branches and snapshots.
    pub(crate) branches: Vec<String>,
    pub(crate) foreign: Vec<String>,
}

fn rank_of(name: &str) -> Option<Rank> {
    let rank = u16::from_str_radix(name.strip_prefix("rank/")?, 16).ok().map(Rank)?;
    (rank_name(rank) == name).then_some(rank)
}

/// The fragment of a manifest that was kept for snapshots.
fn kept_of(name: &str) -> Option<DirFragId> {
    let (prefix, _) = parse_kept(name)?;
    match ObjectName::parse(&format!("{prefix}/manifest"))? {
        ObjectName::Manifest(dirfrag) => Some(dirfrag),
        ObjectName::Run(..) | ObjectName::Values(..) | ObjectName::Data(..) => None,
    }
}

impl Survey {
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
            Some(ObjectName::Data(ino, _, _)) => self.content.entry(ino).or_default().push(name),
            None => self.add_other(name),
        }
    }

    fn add_other(&mut self, name: String) {
        if let Some(rank) = rank_of(&name) {
            self.tables.push(rank);
        } else if name.starts_with(RANK_JOURNALS) {
            self.segments.push(name);
        } else if name.starts_with(CLIENT_JOURNALS) {
            self.client_journals.push(name);
        } else if let Some(dirfrag) = kept_of(&name) {
            self.fragments.entry(dirfrag).or_default().kept.push(name);
        } else if name.starts_with(BRANCHES) {
            self.branches.push(name);
        } else if name == SUBTREES_NAME {
            self.subtrees = true;
        } else if !(name == MAP_NAME
            || [REST_JOURNALS, LOST, BALANCER].iter().any(|known| name.starts_with(known)))
        {
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
    report: &mut Report,
) -> Result<Option<Vec<u8>>> {
    match store.get(name) {
        Ok((bytes, _)) => {
            report.bytes += bytes.len() as u64;
            Ok(Some(bytes))
        }
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        // The store as a whole does not answer, or lets nobody in.
        Err(error) if matches!(error.errno, Errno::TimedOut | Errno::Access | Errno::Stale) => {
            Err(error)
        }
        Err(error) => {
            report.findings.push(Finding::object(name, Kind::Unreadable(error.to_string())));
            Ok(None)
        }
    }
}

/// Reads what ranks must never forget.
pub(crate) fn read_tables(
    store: &dyn ObjectStore,
    survey: &Survey,
    facts: &mut Facts,
    report: &mut Report,
) -> Result<()> {
    for rank in survey.ranks() {
        let name = rank_name(rank);
        let Some(bytes) = read(store, &name, report)? else { continue };
        match RankTable::decode(rank, &bytes) {
            Ok(table) => facts.tables.push(table),
            Err(error) => {
                report.findings.push(Finding::object(name, Kind::Unreadable(error.to_string())));
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
            report.findings.push(Finding::object(name, Kind::Unreadable(error.to_string())));
        }
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
            report.findings.push(Finding::object(SUBTREES_NAME, Kind::Unreadable(cause)));
        }
    }
    Ok(())
}

/// Verifies journals. That the last segment ends in the middle of a write is what a crash leaves.
pub(crate) fn read_journals(
    store: &dyn ObjectStore,
    survey: &Survey,
    facts: &Facts,
    report: &mut Report,
) -> Result<()> {
    for name in survey.segments.iter().chain(&survey.client_journals) {
        let Some(bytes) = read(store, name, report)? else { continue };
        match scan(&bytes) {
            Ok(scan) => {
                report.events += scan.events;
                let hole = scan.damage.filter(|damage| damage.resumes.is_some());
                if let Some(damage) = hole {
                    let kind = Kind::Unreadable(damage.error.to_string());
                    report.findings.push(Finding::object(name, kind));
                }
            }
            // It was begun, and nothing was written yet.
            Err(_) if bytes.is_empty() => {}
            Err(error) => {
                report.findings.push(Finding::object(name, Kind::Unreadable(error.to_string())));
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
            report.findings.push(Finding::object(name, Kind::LeftJournal));
        }
    }
    Ok(())
}
