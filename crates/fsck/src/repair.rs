//! Repairs a store at rest.
//!
//! Each repair replaces one manifest or removes one object: after a crash the store has fewer
//! faults, and the next repair continues. The order of repairs keeps the facts that later repairs
//! need: first directories become readable, then names are corrected. Objects without an owner are
//! deleted last, in a store without damage, because they may be the remains of damaged ones.
//!
//! Invariant: nothing that cannot be read is removed without a copy below `lost/`.

mod names;

use std::collections::{BTreeMap, BTreeSet};

use metastore::{
    COPY_PREFIX, InodeRecord, Manifest, ObjectName, RowValue, Rows, RunBuilder, RunId, RunInfo,
    RunReader, is_copied, manifest_name, prefix, run_name,
};
use objstore::{Expect, ObjectStore, PutOutcome, Store, SyncScope};
use types::{DirFragId, Errno, Error, Frag, Ino, Result, Seq, Timestamp};

use crate::finding::{Finding, FindingKind, Severity, Subject};
use crate::fragment::{self, Fragment};
use crate::rebuild;
use crate::survey::LOST;
use crate::{Depth, FsckReport, Scope, check, values};

/// A repair may uncover faults: the directories below one that had no manifest, for example.
const ROUNDS_MAX: usize = 8;

/// What was mended.
#[derive(Clone, Debug, Default)]
pub struct Repairs {
    /// Repaired faults.
    pub mended: Vec<Finding>,
    /// Faults that remain, each with the reason.
    pub left: Vec<(Finding, String)>,
}

/// Repairs the findings of a check, until no repair is left. The store must be [at
/// rest](crate::at_rest). New directories get the time `now`. While a journal has changes that
/// directories lack, only damaged and missing objects are repaired.
///
/// # Errors
/// If the store does not answer, or is full: then repairs so far
/// stays.
pub fn repair(store: &dyn Store, now: Timestamp) -> Result<Repairs> {
    let (mut done, mut tried) = (Repairs::default(), BTreeSet::new());
    let mut damaged = false;
    for round in 0..ROUNDS_MAX {
        // A repair cannot change damaged content, so only the first round reads content.
        let depth = if round == 0 { Depth::Content } else { Depth::Metadata };
        let report = check(store, Scope::AtRest, depth, &mut |_, _| {})?;
        // Directories lack the changes in a journal, so names cannot be compared.
        let may = |finding: &Finding| {
            let is_damage = finding.kind.severity() == Severity::Damage;
            report.incomplete.is_none() || (is_damage && turn(&finding.kind) == 0)
        };
        let is_new = |finding: &&Finding| !tried.contains(*finding) && may(finding);
        let mut findings: Vec<Finding> = report.findings.iter().filter(is_new).cloned().collect();
        findings.sort_by_key(|finding| turn(&finding.kind));
        let Some(first) = findings.first().map(|finding| turn(&finding.kind)) else { break };
        damaged |= findings.iter().any(|finding| {
            let is_content = matches!(finding.kind, FindingKind::Content { .. });
            finding.kind.severity() == Severity::Damage && !is_content
        });
        findings.retain(|finding| turn(&finding.kind) == first);
        for finding in findings {
            tried.insert(finding.clone());
            if finding.kind.severity() == Severity::Leak && damaged {
                let why = "something was damaged: this may be what is left of it".to_owned();
                done.left.push((finding, why));
                continue;
            }
            match (Mending { store, now }).one(&finding)? {
                None => done.mended.push(finding),
                Some(why) => done.left.push((finding, why)),
            }
        }
    }
    store.sync(SyncScope::All)?;
    Ok(done)
}

/// The order of repairs.
fn turn(kind: &FindingKind) -> u8 {
    match kind {
        FindingKind::Unreadable(_)
        | FindingKind::Lost
        | FindingKind::MissingRun
        | FindingKind::NoManifest
        | FindingKind::ContentLost
        | FindingKind::Content { .. }
        | FindingKind::Checksums(_) => 0,
        FindingKind::Uses => 1,
        FindingKind::TwoPlaces(..) => 2,
        FindingKind::NameOfNothing(_) => 3,
        FindingKind::Unreachable(_) | FindingKind::Nameless => 4,
        FindingKind::LinkCount(..) => 5,
        FindingKind::Counts(..) => 6,
        FindingKind::LeftRun | FindingKind::LeftContent(_) => 7,
        FindingKind::NumberNotGiven
        | FindingKind::UnmergedRun
        | FindingKind::LeftJournal
        | FindingKind::Foreign
        | FindingKind::TornEnd(_) => 8,
    }
}

/// One change of a directory.
enum Edit<'a> {
    Remove(&'a [u8]),
    Put(&'a [u8], InodeRecord<'a>),
}

struct Mending<'a> {
    store: &'a dyn ObjectStore,
    now: Timestamp,
}

fn whole(dir: Ino) -> DirFragId {
    DirFragId { ino: dir, frag: Frag::WHOLE }
}

impl Mending<'_> {
    /// Mends one thing; says why not if it cannot.
    fn one(&self, finding: &Finding) -> Result<Option<String>> {
        match (&finding.kind, &finding.subject) {
            (FindingKind::Unreadable(_) | FindingKind::Lost, Subject::Object(name))
                if is_copied(name) =>
            {
                self.set_aside(name)?;
                rebuild::make(self.store, name)
            }
            (FindingKind::Unreadable(_), Subject::Object(name))
                if name.starts_with(COPY_PREFIX) =>
            {
                rebuild::copy_again(self.store, name)
            }
            (FindingKind::Unreadable(_) | FindingKind::MissingRun, Subject::Object(name)) => {
                self.unlist(name)
            }
            (FindingKind::NoManifest, Subject::Object(prefix)) => self.new_manifest(prefix),
            (FindingKind::TwoPlaces(older, _), Subject::Inode(ino)) => self.leave(*older, *ino),
            (FindingKind::NameOfNothing(_), Subject::Name(dir, name)) => {
                self.amend(whole(*dir), &[Edit::Remove(name)])
            }
            (FindingKind::Unreachable(dirfrag), _) => self.name_again(dirfrag.ino),
            (FindingKind::Nameless, Subject::Inode(ino)) => self.one_name(*ino),
            (FindingKind::LinkCount(_, has), Subject::Inode(ino)) => self.count_names(*ino, *has),
            (FindingKind::Counts(..), Subject::Object(name)) => match of_manifest(name) {
                Some(dirfrag) => self.amend(dirfrag, &[]),
                None => Ok(Some("it is not a manifest".to_owned())),
            },
            (FindingKind::ContentLost, Subject::Name(dir, _)) => self.empty_lost(whole(*dir)),
            (FindingKind::Uses, Subject::Object(name)) => self.count_uses(name),
            (FindingKind::LeftRun, Subject::Object(name)) => self.remove(name),
            (FindingKind::LeftContent(_), Subject::Inode(ino)) => self.remove_content(*ino),
            _ => Ok(Some(finding.kind.remedy().to_owned())),
        }
    }

    fn remove(&self, name: &str) -> Result<Option<String>> {
        self.store.delete(name).map(|_| None)
    }

    fn remove_content(&self, ino: Ino) -> Result<Option<String>> {
        let survey = crate::StoreSurvey::of(self.store)?;
        for name in survey.content.get(&ino).into_iter().flatten() {
            self.store.delete(name)?;
        }
        Ok(None)
    }

    /// Keeps a copy of an object below `lost/`, as far as it can be read, and removes it.
    fn set_aside(&self, name: &str) -> Result<()> {
        if let Ok((bytes, _)) = self.store.get(name) {
            let mut copy = format!("{LOST}{name}");
            while self.store.put(&copy, &bytes, Expect::Absent)? != done(&bytes) {
                copy.push('~');
            }
            self.store.delete(name)?;
        }
        Ok(())
    }

    /// Removes an unreadable run from the manifest of its directory, or makes a new manifest.
    fn unlist(&self, name: &str) -> Result<Option<String>> {
        if let Some(dirfrag) = of_manifest(name) {
            self.set_aside(name)?;
            return self.new_manifest(&prefix(dirfrag));
        }
        if let Some(ObjectName::Values(dirfrag, _)) = ObjectName::parse(name) {
            if let Some(why) = self.empty_lost(dirfrag)? {
                return Ok(Some(why));
            }
            self.set_aside(name)?;
            return Ok(None);
        }
        let Some((dirfrag, id)) = of_run(name) else {
            return Ok(Some(
                "only directories can be mended; `cudele journal` is for journals".to_owned(),
            ));
        };
        let mut report = FsckReport::default();
        let Some(Fragment { mut manifest, rows, .. }) =
            fragment::read(self.store, dirfrag, &mut report)?
        else {
            return Ok(Some("its manifest cannot be read".to_owned()));
        };
        if let Some(place) = manifest.runs.iter().position(|info| info.id == id) {
            // Value segments that nothing points into any more are left, and found as such.
            let _left = manifest.replace_runs(place..place + 1, None);
        }
        // Replay must apply all events of the journal to this directory.
        manifest.position = Seq(0);
        self.replace(manifest, &rows)?;
        self.set_aside(name)?;
        Ok(None)
    }

    /// A manifest for runs that have none. A run's number does not tell for sure which is newer.
    fn new_manifest(&self, prefix: &str) -> Result<Option<String>> {
        let Some(dirfrag) = of_manifest(&format!("{prefix}manifest")) else {
            return Ok(Some("it is not a directory".to_owned()));
        };
        let mut manifest = Manifest::new(dirfrag);
        let mut ids: Vec<RunId> = self
            .store
            .list(prefix)?
            .iter()
            .filter_map(|name| of_run(name).map(|(_, id)| id).filter(|id| !id.is_clients()))
            .collect();
        ids.sort_unstable_by(|left, right| right.cmp(left));
        let (mut bytes, mut uses) = (Vec::new(), BTreeMap::new());
        for id in ids {
            let name = run_name(dirfrag, id);
            let (run, _) = self.store.get(&name)?;
            match RunReader::open_as(dirfrag, id, &run) {
                Ok(reader) => {
                    manifest.runs.push(RunInfo::of(&reader));
                    uses.insert(id, values::uses_of(&reader));
                }
                Err(_) => {
                    self.set_aside(&name)?;
                    continue;
                }
            }
            bytes.push(run);
            manifest.next_run = manifest.next_run.max(id.0 + 1);
        }
        values::count_again(self.store, &mut manifest, &uses)?;
        let Ok(rows) = metastore::merge(&manifest, &bytes) else {
            return Ok(Some("its runs cannot be read together".to_owned()));
        };
        (manifest.entries, manifest.subdirs) = fragment::counts(&rows);
        let name = manifest_name(dirfrag);
        match self.store.put(&name, &manifest.encode(), Expect::Absent)? {
            PutOutcome::Done(_) => Ok(None),
            PutOutcome::Conflict(_) => Ok(Some("somebody else made one meanwhile".to_owned())),
        }
    }

    /// Replaces a manifest, with counts that are right.
    fn replace(&self, mut manifest: Manifest, rows: &Rows) -> Result<()> {
        let name = manifest_name(manifest.dirfrag);
        (manifest.entries, manifest.subdirs) = fragment::counts(rows);
        manifest.counts_exact = true;
        manifest.generation += 1;
        let (_, version) = self.store.get(&name)?;
        match self.store.put(&name, &manifest.encode(), Expect::Is(version))? {
            PutOutcome::Done(_) => Ok(()),
            PutOutcome::Conflict(_) => {
                Err(Error::new(Errno::Busy, name, "somebody else changed it")
                    .remedy("stop the cluster, and everything that works in the store"))
            }
        }
    }

    /// Changes names of a directory by a run of its own.
    fn amend(&self, dirfrag: DirFragId, edits: &[Edit<'_>]) -> Result<Option<String>> {
        let mut report = FsckReport::default();
        let Some(Fragment { mut manifest, .. }) = fragment::read(self.store, dirfrag, &mut report)?
        else {
            return Ok(Some("its directory cannot be read".to_owned()));
        };
        if !edits.is_empty() {
            let mut id = RunId(manifest.next_run);
            let info = loop {
                let mut rows = Rows::new();
                for edit in edits {
                    match edit {
                        Edit::Remove(name) => rows.push(name, RowValue::Removed),
                        Edit::Put(name, record) => rows.push(name, RowValue::Inode(*record)),
                    }
                }
                let bytes = rows.into_run(dirfrag, id);
                let put = self.store.put(&run_name(dirfrag, id), &bytes, Expect::Absent)?;
                if let (PutOutcome::Done(_), Ok(reader)) = (put, RunReader::open(&bytes)) {
                    break RunInfo::of(&reader);
                }
                // Left by a writer that died.
                id.0 += 1;
            };
            manifest.next_run = id.0 + 1;
            manifest.runs.insert(0, info);
        }
        let mut runs = Vec::new();
        for info in &manifest.runs {
            runs.push(self.store.get(&run_name(dirfrag, info.id))?.0);
        }
        let Ok(rows) = metastore::merge(&manifest, &runs) else {
            return Ok(Some("its directory cannot be read".to_owned()));
        };
        self.replace(manifest, &rows)?;
        Ok(None)
    }

    /// Empties the files whose content is lost with a value segment. All runs become one run, so
    /// that no older run refers to the segment.
    fn empty_lost(&self, dirfrag: DirFragId) -> Result<Option<String>> {
        let mut report = FsckReport::default();
        let Some(Fragment { mut manifest, rows, bad, .. }) =
            fragment::read(self.store, dirfrag, &mut report)?
        else {
            return Ok(Some("its directory cannot be read".to_owned()));
        };
        if !bad.is_empty() {
            return Ok(Some("runs of its directory cannot be read".to_owned()));
        }
        let (mut lost, mut damaged) = (BTreeSet::new(), BTreeSet::new());
        for finding in report.findings {
            match finding.subject {
                Subject::Name(_, name) if finding.kind == FindingKind::ContentLost => {
                    lost.insert(name);
                }
                Subject::Object(name) => damaged.extend(ObjectName::parse(&name)),
                Subject::Name(..) | Subject::Inode(_) => {}
            }
        }
        let id = RunId(manifest.next_run);
        let mut builder = RunBuilder::new(dirfrag, id);
        for row in rows.iter() {
            let (mut value, mut saved) = (row.value, Vec::new());
            if let RowValue::Inode(record) = &mut value
                && let Some(pointer) = record.pointer
            {
                let segment = ObjectName::Values(dirfrag, pointer.segment);
                if lost.contains(row.name) {
                    (record.pointer, record.attr.size) = (None, 0);
                } else if damaged.contains(&segment) {
                    let length = usize::try_from(pointer.bytes()).unwrap_or(usize::MAX);
                    let name = segment.to_string();
                    saved = self.store.read_range(&name, pointer.offset, length)?;
                    (record.data, record.extra) = pointer.read(dirfrag, &saved)?;
                    record.pointer = None;
                }
            }
            builder.push(row.name, &value);
            drop(saved);
        }
        let (run, info, columns) = builder.finish_columns();
        let all = 0..manifest.runs.len();
        let _left = manifest.replace_runs(all, Some((info, &columns)));
        manifest.next_run = id.0 + 1;
        self.store.put(&run_name(dirfrag, id), &run, Expect::Any).map(drop)?;
        self.replace(manifest, &rows)?;
        Ok(None)
    }

    /// Corrects the counts of values in a manifest.
    fn count_uses(&self, name: &str) -> Result<Option<String>> {
        let Some(ObjectName::Manifest(dirfrag) | ObjectName::Values(dirfrag, _)) =
            ObjectName::parse(name)
        else {
            return Ok(Some("it is not of a directory".to_owned()));
        };
        let mut report = FsckReport::default();
        let Some(Fragment { mut manifest, rows, bad, uses }) =
            fragment::read(self.store, dirfrag, &mut report)?
        else {
            return Ok(Some("its manifest cannot be read".to_owned()));
        };
        if !bad.is_empty() {
            return Ok(Some("runs of its directory cannot be read".to_owned()));
        }
        values::count_again(self.store, &mut manifest, &uses)?;
        self.replace(manifest, &rows)?;
        Ok(None)
    }
}

fn done(bytes: &[u8]) -> PutOutcome {
    PutOutcome::Done(objstore::Version::of(bytes))
}

fn of_manifest(name: &str) -> Option<DirFragId> {
    match ObjectName::parse(name)? {
        ObjectName::Manifest(dirfrag) => Some(dirfrag),
        ObjectName::Run(..)
        | ObjectName::Values(..)
        | ObjectName::Data(..)
        | ObjectName::Sums(..) => None,
    }
}

fn of_run(name: &str) -> Option<(DirFragId, RunId)> {
    match ObjectName::parse(name)? {
        ObjectName::Run(dirfrag, id) => Some((dirfrag, id)),
        ObjectName::Manifest(_)
        | ObjectName::Values(..)
        | ObjectName::Data(..)
        | ObjectName::Sums(..) => None,
    }
}
