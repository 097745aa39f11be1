//! The use of quotas, counted from the objects alone. A server must count the same.
//!
//! As the server does, a quota counts each inode below its directory once, wherever the inode has
//! further names, and a removed tree without its root as long as the tree is in the trash.

use std::collections::{BTreeMap, BTreeSet};

use metastore::Row;
use metastore::RowValue;
use namespace::Extra;
use types::quota::{LIMITS, QuotaLimits, Usage};
use types::{DirFragId, Ino, TrashEntry};

use crate::facts::Facts;

/// A directory with limits, and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedQuota {
    /// The path of the directory.
    pub path: String,
    /// The limits.
    pub limits: QuotaLimits,
    /// The inodes and bytes below the directory.
    pub used: Usage,
}

/// The facts that quotas are counted from.
#[derive(Debug, Default)]
pub(crate) struct QuotaFacts {
    limits: BTreeMap<Ino, QuotaLimits>,
    /// The inodes with one name, by directory.
    listed: BTreeMap<Ino, Usage>,
    /// The lengths of inodes with several names.
    linked: BTreeMap<Ino, u64>,
}

impl QuotaFacts {
    pub(crate) fn add(&mut self, dirfrag: DirFragId, row: &Row<'_>) {
        let RowValue::Inode(record) = row.value else { return };
        let attr = record.attr;
        if dirfrag.ino.is_links() {
            self.linked.insert(attr.ino, attr.size);
            return;
        }
        let bytes = if attr.is_dir() { 0 } else { attr.size };
        let listed = self.listed.entry(dirfrag.ino).or_default();
        *listed = listed.plus(Usage { inodes: 1, bytes });
        if attr.is_dir() && !record.extra.is_empty() {
            let extra = Extra::from_parts(&[], record.extra);
            let limits = extra.xattr(LIMITS).and_then(|text| QuotaLimits::parse(text).ok());
            self.limits.extend(limits.map(|limits| (attr.ino, limits)));
        }
    }
}

/// The quotas of a store at rest, by path.
pub(crate) fn count(facts: &Facts) -> Vec<CountedQuota> {
    let quotas = &facts.quotas;
    let mut used: BTreeMap<Ino, Usage> = BTreeMap::new();
    for (dir, listed) in &quotas.listed {
        for root in roots_above(facts, *dir) {
            let sum = used.entry(root).or_default();
            *sum = sum.plus(*listed);
        }
    }
    let mut linked = BTreeSet::new();
    for (ino, dirfrag, _) in &facts.remotes {
        let Some(bytes) = quotas.linked.get(ino) else { continue };
        for root in roots_above(facts, dirfrag.ino) {
            if linked.insert((root, *ino)) {
                let sum = used.entry(root).or_default();
                *sum = sum.plus(Usage { inodes: 1, bytes: *bytes });
            }
        }
    }
    let limited = quotas.limits.iter();
    let mut counted: Vec<CountedQuota> = limited
        .filter_map(|(root, limits)| {
            let (path, used) = (facts.path(*root)?, used.get(root).copied().unwrap_or_default());
            Some(CountedQuota { path, limits: *limits, used })
        })
        .collect();
    counted.sort_by(|a, b| a.path.cmp(&b.path));
    counted
}

/// The directories with limits above the names of a directory.
fn roots_above(facts: &Facts, dir: Ino) -> Vec<Ino> {
    if facts.quotas.limits.is_empty() {
        return Vec::new();
    }
    let (mut at, mut roots) = (dir, Vec::new());
    for _ in 0..=facts.dirs.len() {
        roots.extend(facts.quotas.limits.contains_key(&at).then_some(at));
        let Some((home, name)) = facts.dirs.get(&at) else { break };
        // A removed tree counts where it was.
        at = if *home == Ino::TRASH {
            let Some(entry) = TrashEntry::decode(name) else { break };
            entry.parent
        } else {
            *home
        };
    }
    roots
}
