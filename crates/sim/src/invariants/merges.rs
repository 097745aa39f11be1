//! Promise: a merge applies the journal event by event, except for events about inodes that other
//! clients moved or removed, or rejects it and changes nothing; merging twice is merging once
//! (M-04, A-07, J-09).

use std::collections::{BTreeMap, BTreeSet};

use journal::{Event, SegmentReader};
use model::{Model, Node};
use types::bytes::Reader;
use types::{Ino, Seq};

/// Applies a client's journal of the subtree at `root` to the model.
///
/// # Errors
/// If the journal is damaged: then it must not have been merged.
pub fn apply(model: &mut Model, root: Ino, journal: &[u8]) -> Result<(), String> {
    let left_out = left_out(model, root, journal)?;
    for_each(journal, |seq, event| {
        if !left_out.contains(&seq) {
            model.apply(event, decode_extra);
        }
    })
}

/// The events that are about a directory which is not in the subtree (any more), or about an inode
/// that such an event creates.
fn left_out(model: &Model, root: Ino, journal: &[u8]) -> Result<BTreeSet<Seq>, String> {
    let (mut new, mut absent, mut left_out) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for_each(journal, |seq, event| {
        let mut dirs: Vec<Ino> = event.dentry().map(|(dir, _)| dir).into_iter().collect();
        let mut inodes = Vec::new();
        match *event {
            Event::Rename { new_parent, moved, exchanged, .. } => {
                dirs.push(new_parent);
                inodes.push(moved.attr.ino);
                inodes.extend(exchanged.map(|back| back.attr.ino));
            }
            Event::Link { ino, .. }
            | Event::SetAttr { ino, .. }
            | Event::SetXattr { ino, .. }
            | Event::SetData { ino, .. } => inodes.push(ino),
            _ => {}
        }
        let outside = |dir: &Ino| !new.contains(dir) && !model.is_within(*dir, root);
        let gone = dirs.iter().any(outside) || inodes.iter().any(|ino| absent.contains(ino));
        if let Event::Create(create) = event {
            if gone {
                absent.insert(create.ino)
            } else {
                new.insert(create.ino)
            };
        }
        if gone {
            left_out.insert(seq);
        }
    })?;
    Ok(left_out)
}

fn for_each(journal: &[u8], mut each: impl FnMut(Seq, &Event<'_>)) -> Result<(), String> {
    let damaged = |error: journal::JournalError| format!("a damaged journal was merged: {error:?}");
    let mut reader = SegmentReader::open(journal).map_err(damaged)?;
    while let Some(block) = reader.next_block().map_err(damaged)? {
        let mut events = block.events();
        while let Some(record) = events.next_event().map_err(damaged)? {
            each(record.seq, &record.event);
        }
    }
    Ok(())
}

/// Applying the journal that was merged last changes no name.
///
/// # Errors
/// If it does: then part of it is missing.
pub fn complete(model: &Model, root: Ino, journal: &[u8]) -> Result<(), String> {
    let mut again = model.clone();
    apply(&mut again, root, journal)?;
    let (before, after) = (names(model, root), names(&again, root));
    if before == after {
        return Ok(());
    }
    let missing: Vec<_> =
        after.iter().filter(|(path, ino)| before.get(*path) != Some(ino)).collect();
    Err(format!("a merge is not complete: {missing:?}"))
}

/// A merge that recovery can repeat exists as a whole or not at all, also if its client is gone.
///
/// # Errors
/// If a part of it exists.
pub fn all_or_nothing(
    (before, after): (&Model, &Model),
    root: Ino,
    journal: &[u8],
) -> Result<(), String> {
    if names(before, root) == names(after, root) {
        return Ok(());
    }
    // A journal that replaces an inode of its own may not be applied to what it made: the inode
    // would come back.
    let mut merged = before.clone();
    apply(&mut merged, root, journal)?;
    if names(&merged, root) == names(after, root) {
        return Ok(());
    }
    complete(after, root, journal)
}

fn names(model: &Model, root: Ino) -> BTreeMap<(Ino, Vec<u8>), Ino> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root];
    while let Some(dir) = todo.pop() {
        for (name, ino) in model.entries(dir) {
            all.insert((dir, name.to_vec()), ino);
            if model.is_dir(ino) {
                todo.push(ino);
            }
        }
    }
    all
}

/// Extended attributes in a snapshot: a tag (1), then name and value, each with its length.
fn decode_extra(bytes: &[u8], node: &mut Node) {
    let mut reader = Reader::new(bytes);
    while let (Ok(tag), Ok(name), Ok(value)) = (reader.u8(), reader.bytes(), reader.bytes()) {
        match tag {
            1 => node.load_xattr(name, value),
            _ => node.policy = value.to_vec(),
        }
    }
}
