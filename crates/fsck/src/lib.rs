//! Checks and repairs an object store: `cudele fsck` and `cudele scrub`.
//!
//! A check has three steps. [`StoreSurvey`] sorts the names of all objects. `fragment` reads each
//! directory fragment: the manifest, the runs, and the names of the merged runs. `tree` compares
//! the facts of all fragments: every directory is in one place, every inode has as many names as it
//! counts, and every object has an owner. The last step needs a store at rest: while servers work,
//! or while a journal has changes that the directories lack, names and objects differ without a
//! fault.
//!
//! The formats are in `metastore`, `journal` and `mds`. `content` compares file content with its
//! checksums.
//!
//! Invariants: a check changes nothing; a repair (`repair`) moves unreadable objects to `lost/`,
//! and deletes an object without an owner only in a store without damage.

mod content;
mod facts;
mod finding;
mod fragment;
mod quotas;
mod rebuild;
mod repair;

mod survey;
mod tree;
mod values;

use metastore::request::rank_name;
use objstore::{LockGuard, Store};
use types::{Errno, Error, Rank, Result};

pub use finding::{Finding, FindingKind, Severity, Subject};
pub use quotas::CountedQuota;
pub use repair::{Repairs, repair};
pub use survey::StoreSurvey;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// Objects in the store.
    pub objects: u64,
    /// Directory fragments that were read.
    pub fragments: u64,
    /// Names in them.
    pub names: u64,
    /// Bytes that were read and held against their checksums.
    pub bytes: u64,
    /// Events of journals that were read.
    pub events: u64,
    /// Why names and objects were not held against one another, if they were not.
    pub incomplete: Option<&'static str>,
    /// The directories with limits and their use, if names and objects were compared.
    pub quotas: Vec<CountedQuota>,
    /// All faults.
    pub findings: Vec<Finding>,
}

impl FsckReport {
    /// The gravity of the worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.kind.severity()).max()
    }
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everything, of a store that is at rest.
    #[default]
    AtRest,
    /// Each object alone, while servers work.
    EachByItself,
}

/// Whether a check reads the content of files, which takes time in proportion to the store's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// The check reads all content that has checksums.
    #[default]
    Content,
    /// The check reads no content.
    Metadata,
}

/// Checks a store. `progress` receives the number of checked fragments and the number of all.
///
/// # Errors
/// If the store cannot be listed or does not answer. An object that cannot be read is a finding.
pub fn check(
    store: &dyn Store,
    scope: Scope,
    depth: Depth,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FsckReport> {
    let survey = StoreSurvey::of(store)?;
    let mut facts = facts::Facts::default();
    let mut report = FsckReport { objects: survey.objects, ..FsckReport::default() };
    if depth == Depth::Content {
        content::check(store, &survey, &mut facts, &mut report)?;
    }
    report.findings.extend(survey.foreign.iter().cloned().map(Finding::foreign));
    survey::read_tables(store, &survey, &mut facts, &mut report)?;
    survey::read_removals(store, &survey, &mut facts, &mut report)?;
    survey::read_journals(store, &survey, &facts, &mut report)?;
    let count = survey.fragments.len() as u64;
    for (done, (dirfrag, objects)) in survey.fragments.iter().enumerate() {
        progress(done as u64, count);
        let before = report.findings.len();
        fragment::check(store, *dirfrag, objects, scope, &mut facts, &mut report)?;
        // A server that died while it purged a removed directory left a part of the objects, and
        // the next one deletes them by its list.
        if facts.removed.contains(&dirfrag.ino) {
            report.findings.truncate(before);
        }
    }
    if scope == Scope::AtRest {
        let missing = rebuild::missing(&survey, &facts).into_iter();
        report.findings.extend(missing.map(|name| Finding::object(name, FindingKind::Lost)));
    }
    progress(count, count);
    report.fragments = count;
    report.incomplete = match scope {
        Scope::EachByItself => Some("servers work in it: each object was checked by itself"),
        Scope::AtRest if survey.has_rank_journals() => Some(
            "a journal holds what directories do not say yet: each object was checked by itself; \
             `cudele up` and `cudele down` carry it out",
        ),
        Scope::AtRest => None,
    };
    if report.incomplete.is_none() {
        tree::check(&survey, &mut facts, &mut report);
        report.quotas = quotas::count(&facts);
    }
    content::name(&facts, &mut report);
    report.findings.sort();
    Ok(report)
}

/// Locks monitors and metadata servers out until the guards are dropped; their errors name `owner`.
///
/// # Errors
/// `EBUSY` if one runs.
pub fn at_rest(
    store: &dyn Store,
    survey: &StoreSurvey,
    owner: &str,
) -> Result<Vec<Box<dyn LockGuard>>> {
    let ranks = survey.ranks().map(|rank| format!("{}.lock", rank_name(rank)));
    let mut names = vec!["mon/lock".to_owned(), format!("{}.lock", rank_name(Rank(0)))];
    names.extend(ranks.filter(|name| *name != names[1]).collect::<Vec<_>>());
    let lock = |name: &String| {
        store.lock(name, owner).map_err(|error| {
            if error.errno != Errno::Busy {
                return error;
            }
            Error::new(Errno::Busy, name, error.cause)
                .remedy("stop the cluster with `cudele down`; `cudele scrub` checks one that runs")
        })
    };
    names.iter().map(lock).collect()
}

#[cfg(test)]
mod tests;
