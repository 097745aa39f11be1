//! Promise: a merge applies the journal as a whole, event by event as the journal says, or refuses
//! it and changes nothing; merging twice is merging once (M-04, A-07, J-09).

use std::collections::{BTreeMap, BTreeSet};

use journal::{Event, SegmentReader};
use model::{Model, Node};
use types::Ino;
use types::bytes::Reader;

/// Applies a client's journal to the model.
///
/// # Errors
/// If the journal is damaged: then it must not have been merged.
pub fn apply(model: &mut Model, journal: &[u8]) -> Result<(), String> {
    let damaged = |error: journal::JournalError| format!("a damaged journal was merged: {error:?}");
    let mut reader = SegmentReader::open(journal).map_err(damaged)?;
    while let Some(block) = reader.next_block().map_err(damaged)? {
        let mut events = block.events();
        while let Some(record) = events.next_event().map_err(damaged)? {
            let event: Event<'_> = record.event;
            model.apply(&event, decode_extra);
        }
    }
    Ok(())
}

/// Whether a journal must be refused because it is about a directory that is gone: somebody else
/// removed it, or it was lost.
#[must_use]
pub fn must_be_refused(model: &Model, root: Ino, journal: &[u8]) -> bool {
    let mut new = BTreeSet::new();
    let Ok(mut reader) = SegmentReader::open(journal) else { return true };
    while let Ok(Some(block)) = reader.next_block() {
        let mut events = block.events();
        while let Ok(Some(record)) = events.next_event() {
            let mut dirs: Vec<Ino> =
                record.event.dentry().map(|(dir, _)| dir).into_iter().collect();
            match record.event {
                Event::Create(create) => drop(new.insert(create.ino)),
                Event::Rename { new_parent, .. } => dirs.push(new_parent),
                _ => {}
            }
            if dirs.iter().any(|dir| !new.contains(dir) && !model.is_within(*dir, root)) {
                return true;
            }
        }
    }
    false
}

/// Applying the journal that was merged last changes no name.
///
/// # Errors
/// If it does: then part of it is missing.
pub fn complete(model: &Model, root: Ino, journal: &[u8]) -> Result<(), String> {
    let mut again = model.clone();
    apply(&mut again, journal)?;
    let (before, after) = (names(model, root), names(&again, root));
    if before == after {
        return Ok(());
    }
    let missing: Vec<_> =
        after.iter().filter(|(path, ino)| before.get(*path) != Some(ino)).collect();
    Err(format!("a merge is not complete: {missing:?}"))
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
            1 => drop(node.xattrs.insert(name.to_vec(), value.to_vec())),
            _ => node.policy = value.to_vec(),
        }
    }
}
