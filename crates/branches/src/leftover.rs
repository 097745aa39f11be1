//! Content of a process that died before a layer named its files.
//!
//! The numbers of the inodes are in a range that the branch lists, and no layer makes them: no
//! process will use these numbers again. Content of a branch that is merged, or is being merged,
//! may belong to the trunk and is kept.
//!
//! Invariant: content of inodes that a layer makes, or may still make, is not deleted. Content is
//! listed before the layers are read, and deleted under the lock of a branch that lists its range
//! and has not changed since.

use std::collections::{BTreeMap, BTreeSet};

use journal::SegmentReader;
use metastore::{BranchState, ObjectName, is_of_branch};
use types::{Ino, Result};

use crate::{BranchInfo, Branches, Collected, view};

/// The beginning of the names of content.
const CONTENT: &str = "data/";

impl Branches {
    /// Deletes such content, or only counts it.
    pub(crate) fn collect_leftovers(&self, dry_run: bool, collected: &mut Collected) -> Result<()> {
        let mut content: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
        for name in self.store().list(CONTENT)? {
            if let Some(ObjectName::Data(ino, ..) | ObjectName::Sums(ino, ..)) =
                ObjectName::parse(&name)
                && is_of_branch(ino)
            {
                content.entry(ino).or_default().push(name);
            }
        }
        if content.is_empty() {
            return Ok(());
        }
        let (_, branches) = self.consistent_list()?;
        for ino in self.made(&branches)? {
            content.remove(&ino);
        }
        for info in &branches {
            let lists = |ino: &Ino| info.branch.ranges.iter().any(|range| range.contains(*ino));
            if !may_be_left(info) || !content.keys().any(lists) {
                continue;
            }
            // The process that works on the branch may have written the content.
            let Ok(_lock) = self.lock(&info.name) else { continue };
            if self.read(&info.name)?.0 != info.branch {
                continue;
            }
            let left: Vec<Ino> = content.keys().copied().filter(lists).collect();
            for name in left.iter().filter_map(|ino| content.remove(ino)).flatten() {
                if !dry_run {
                    self.store().delete(&name)?;
                }
            }
            collected.contents += left.len() as u64;
        }
        Ok(())
    }

    /// The inodes that layers of these branches make.
    fn made(&self, branches: &[BranchInfo]) -> Result<BTreeSet<Ino>> {
        let (mut seen, mut made) = (BTreeSet::new(), BTreeSet::new());
        for layer in branches.iter().flat_map(|info| &info.branch.layers) {
            if !seen.insert((layer.owner, layer.number)) {
                continue;
            }
            let bytes = view::read_layer(&**self.store(), layer)?;
            creates(&bytes, &mut made).map_err(|error| error.in_journal(&layer.name()))?;
        }
        Ok(made)
    }
}

/// Whether content that no layer of a branch names has no other owner.
fn may_be_left(info: &BranchInfo) -> bool {
    match info.branch.state {
        BranchState::Open | BranchState::Published => true,
        BranchState::Begun | BranchState::Merging | BranchState::Merged => false,
    }
}

fn creates(
    layer: &[u8],
    made: &mut BTreeSet<Ino>,
) -> std::result::Result<(), journal::JournalError> {
    let mut reader = SegmentReader::open(layer)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            if let journal::Event::Create(create) = record.event {
                made.insert(create.ino);
            }
        }
    }
    Ok(())
}
