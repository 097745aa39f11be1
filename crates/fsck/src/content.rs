//! Comparison of file content with its checksums. A block without a checksum is not verified.
//!
//! Clients may write during the check: a block is damaged only if its entry is the same before and
//! after the check reads the block.

use std::collections::BTreeMap;

use metastore::{
    ObjectName, SUM_BLOCK_BYTES, SUM_BYTES, SUMS_PER_OBJECT, Sum, SumEntry, data_name,
};
use objstore::Store;
use types::{Errno, Ino, Pool, Result};

use crate::FsckReport;
use crate::facts::Facts;
use crate::finding::{Finding, FindingKind, Subject};
use crate::survey::StoreSurvey;

/// The number of entries that one read fetches.
const ENTRIES_AT_ONCE: u64 = 1024;
/// The number of bytes of content that one read fetches from one object.
const WINDOW_BYTES: u64 = 1 << 20;
/// The number of changes of content and entry that a comparison tolerates.
const ATTEMPTS_MAX: usize = 8;

/// The damage of the content of one file.
#[derive(Default)]
struct Damage {
    blocks: u64,
    /// The first block, and its object.
    first: Option<(u64, String)>,
    /// The number of damaged entries.
    entries: u64,
}

/// A part of an object, read once for several blocks.
#[derive(Default)]
struct Window {
    object: String,
    start: u64,
    bytes: Vec<u8>,
}

/// The content of one file.
struct Content<'a> {
    store: &'a dyn Store,
    ino: Ino,
    pool: Pool,
}

/// Reads all content that has checksums. Registers damaged files in `sought`, so that the survey
/// finds their names.
pub(crate) fn check(
    store: &dyn Store,
    survey: &StoreSurvey,
    facts: &mut Facts,
    report: &mut FsckReport,
) -> Result<()> {
    for (ino, names) in &survey.content {
        let mut damage = Damage::default();
        for name in names {
            if let Some(ObjectName::Sums(ino, pool, number)) = ObjectName::parse(name) {
                let content = Content { store, ino, pool };
                content.check(name, number, &mut damage, &mut report.bytes)?;
            }
        }
        if let Some((block, object)) = damage.first {
            facts.sought.insert(*ino, None);
            let kind = FindingKind::Content { blocks: damage.blocks, first: block, object };
            report.findings.push(Finding::new(Subject::Inode(*ino), kind));
        }
        if damage.entries > 0 {
            facts.sought.insert(*ino, None);
            let kind = FindingKind::Checksums(damage.entries);
            report.findings.push(Finding::new(Subject::Inode(*ino), kind));
        }
    }
    Ok(())
}

/// Adds the paths of damaged files to the findings, if the check saw their names.
pub(crate) fn name(facts: &Facts, report: &mut FsckReport) {
    let mut paths: BTreeMap<Ino, String> = BTreeMap::new();
    for (ino, home) in &facts.sought {
        let remote = || facts.remotes.iter().find(|(other, ..)| other == ino);
        let home = home.clone().filter(|(dir, _)| !dir.is_links());
        let home = home.or_else(|| remote().map(|(_, dir, name)| (dir.ino, name.clone())));
        let Some((dir, name)) = home else { continue };
        let Some(path) = facts.path(dir) else { continue };
        let slash = if path == "/" { "" } else { "/" };
        paths.insert(*ino, format!("{path}{slash}{}", name.escape_ascii()));
    }
    for finding in &mut report.findings {
        if let (FindingKind::Content { .. } | FindingKind::Checksums(_), Subject::Inode(ino)) =
            (&finding.kind, &finding.subject)
        {
            finding.path = paths.get(ino).cloned();
        }
    }
}

fn absent<T: Default>(result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error.errno == Errno::NotFound => Ok(T::default()),
        result => result,
    }
}

impl Content<'_> {
    fn check(&self, name: &str, number: u64, damage: &mut Damage, bytes: &mut u64) -> Result<()> {
        let mut first = number * SUMS_PER_OBJECT;
        let mut window = Window::default();
        while first / SUMS_PER_OBJECT == number {
            let entries = self.entries(name, first, ENTRIES_AT_ONCE)?;
            if entries.is_empty() {
                return Ok(());
            }
            for (block, entry) in (first..).zip(&entries) {
                match entry {
                    SumEntry::None => {}
                    SumEntry::Sum(sum) if !self.holds(sum) => {}
                    SumEntry::Sum(sum) => {
                        *bytes += u64::from(sum.length);
                        if !self.fits(block, sum, &mut window)?
                            && self.stays(name, block, damage)?
                        {
                            damage.blocks += 1;
                        }
                    }
                    // A client may have been writing the entry.
                    SumEntry::Damaged => {
                        let again = self.entries(name, block, 1)?;
                        damage.entries += u64::from(again == [SumEntry::Damaged]);
                    }
                }
            }
            first += entries.len() as u64;
        }
        Ok(())
    }

    fn entries(&self, name: &str, first: u64, count: u64) -> Result<Vec<SumEntry>> {
        let at = first % SUMS_PER_OBJECT * SUM_BYTES as u64;
        let length = usize::try_from(count).unwrap_or_default() * SUM_BYTES;
        let bytes = absent(self.store.read_range(name, at, length))?;
        let each = (first..).zip(bytes.chunks(SUM_BYTES));
        Ok(each.map(|(block, bytes)| Sum::decode(self.ino, block, bytes)).collect())
    }

    /// Whether an entry is valid: unsynced content of an earlier period may be lost.
    fn holds(&self, sum: &Sum) -> bool {
        sum.period == 0 || sum.period == self.store.period()
    }

    fn object(&self, block: u64, sum: &Sum) -> String {
        data_name(self.ino, self.pool, block * SUM_BLOCK_BYTES / sum.stripe.bytes())
    }

    fn fits(&self, block: u64, sum: &Sum, window: &mut Window) -> Result<bool> {
        let (at, object) = (block * SUM_BLOCK_BYTES % sum.stripe.bytes(), self.object(block, sum));
        let start = at / WINDOW_BYTES * WINDOW_BYTES;
        if window.object != object || window.start != start {
            let length = usize::try_from(WINDOW_BYTES).unwrap_or(usize::MAX);
            let bytes = match absent(self.store.read_range(&object, start, length)) {
                // The medium reports an error in this block or in another block of the window.
                Err(error) if error.errno == Errno::Io => {
                    return self.fits_alone(&object, at, sum);
                }
                bytes => bytes?,
            };
            *window = Window { object, start, bytes };
        }
        let from = usize::try_from(at - start).unwrap_or(usize::MAX).min(window.bytes.len());
        Ok(sum.fits(&window.bytes[from..]))
    }

    fn fits_alone(&self, object: &str, at: u64, sum: &Sum) -> Result<bool> {
        let length = usize::try_from(sum.length).unwrap_or_default();
        match absent(self.store.read_range(object, at, length)) {
            Ok(bytes) => Ok(sum.fits(&bytes)),
            Err(error) if error.errno == Errno::Io => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a mismatch of a block and its entry is permanent.
    fn stays(&self, name: &str, block: u64, damage: &mut Damage) -> Result<bool> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.entries(name, block, 1)?;
            let [SumEntry::Sum(sum)] = before.as_slice() else { return Ok(false) };
            if !self.holds(sum) || self.fits(block, sum, &mut Window::default())? {
                return Ok(false);
            }
            if self.entries(name, block, 1)? == before {
                damage.first.get_or_insert_with(|| (block, self.object(block, sum)));
                return Ok(true);
            }
        }
        Ok(false)
    }
}
