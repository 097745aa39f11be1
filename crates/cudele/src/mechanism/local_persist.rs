//! Local Persist (M-06): the journal goes to a file on the client's own disk.
//!
//! The file is complete and durable, its name included, when this returns. A journal that grew
//! since the last time is appended to.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::path::Path;

use policy::Mechanism;
use types::Result;

use super::Material;
use crate::Stage;
use crate::state::{io_error, sync_parent};

/// Slices handed to the kernel at a time.
const SLICES: usize = 256;

pub(crate) fn local_persist(material: &Material<'_>) -> Result<u64> {
    let path = material.state.journal_file(material.first_seq());
    let fresh = material.persisted_locally == 0;
    let written = write(&path, material, fresh).map_err(|error| io_error(&path, &error))?;
    if fresh {
        sync_parent(&path)?;
        if let Some(dir) = path.parent() {
            sync_parent(dir)?;
        }
    }
    Ok(written)
}

fn write(path: &Path, material: &Material<'_>, fresh: bool) -> std::io::Result<u64> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file =
        if fresh { File::create(path)? } else { OpenOptions::new().append(true).open(path)? };
    let note = |stage| material.fs.observed().note(Mechanism::LocalPersist, stage);
    note(Stage::Opened);
    let mut written = 0;
    if fresh {
        let header = material.header.encode();
        file.write_all(&header)?;
        written += header.len() as u64;
    }
    for blocks in material.blocks[material.persisted_locally..].chunks(SLICES) {
        let mut slices: Vec<_> = blocks.iter().map(|block| IoSlice::new(block)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let count = file.write_vectored(slices)?;
            if count == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            written += count as u64;
            IoSlice::advance_slices(&mut slices, count);
        }
    }
    note(Stage::Written);
    file.sync_all()?;
    note(Stage::Synced);
    Ok(written)
}
