//! Local Persist (M-06): the journal goes to a file on the client's own disk.
//!
//! The file is complete and durable, its name included, when this returns. A journal that grew
//! since the last time is written on. Invariant: at every moment the file has all that an earlier
//! persist completed for, also if this one repeats it or does not end.

use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::path::Path;

use policy::Mechanism;
use types::{Result, Seq};

use super::Workplace;
use crate::state::{io_error, sync_parent};
use crate::{Stage, StateDir, own_file};

/// Slices handed to the kernel at a time.
const SLICES: usize = 256;

/// Writes the journal from a block on.
pub(super) fn write_journal(place: &Workplace<'_>, from: usize) -> Result<u64> {
    let first = place.material.header.first_seq;
    let path = place.state.journal_file(first);
    if from > 0 {
        return write(&path, place, from).map_err(|error| io_error(&path, &error));
    }
    // A composition that did not complete may have left the file: it stays until there is another.
    let unfinished = place.state.unfinished_journal_file(first);
    let written = write(&unfinished, place, 0).map_err(|e| io_error(&unfinished, &e))?;
    finish(&unfinished, &path)?;
    Ok(written)
}

/// The same for a journal that is not held in blocks.
pub(crate) fn keep_part(state: &StateDir, first: Seq, bytes: &[u8]) -> Result<()> {
    let (path, unfinished) = (state.journal_file(first), state.unfinished_journal_file(first));
    let write = || {
        if let Some(dir) = path.parent() {
            crate::own_file::make_dirs(dir)?;
        }
        let mut file = own_file::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| io_error(&unfinished, &error))?;
    finish(&unfinished, &path)
}

/// Gives a journal that is completely written its name.
fn finish(unfinished: &Path, path: &Path) -> Result<()> {
    std::fs::rename(unfinished, path).map_err(|error| io_error(path, &error))?;
    sync_parent(path)?;
    match path.parent() {
        Some(dir) => sync_parent(dir),
        None => Ok(()),
    }
}

fn write(path: &Path, place: &Workplace<'_>, from: usize) -> std::io::Result<u64> {
    let (material, fresh) = (&place.material, from == 0);
    if let Some(dir) = path.parent() {
        crate::own_file::make_dirs(dir)?;
    }
    let mut file = if fresh { own_file::create(path)? } else { own_file::open_existing(path)? };
    let note = |stage| place.fs.observed().note(Mechanism::LocalPersist, stage);
    note(Stage::Opened);
    let header = material.header.encode();
    let mut start = 0;
    if fresh {
        file.write_all(&header)?;
    } else {
        // Overwrites the file of an attempt that did not complete, instead of appending to it.
        start = material.offset_of(from);
        file.seek(SeekFrom::Start(start))?;
    }
    for blocks in material.blocks[from..].chunks(SLICES) {
        let mut slices: Vec<_> = blocks.iter().map(|block| IoSlice::new(block)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let count = file.write_vectored(slices)?;
            if count == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut slices, count);
        }
    }
    let end = file.stream_position()?;
    note(Stage::Written);
    file.sync_all()?;
    note(Stage::Synced);
    Ok(end - start)
}
