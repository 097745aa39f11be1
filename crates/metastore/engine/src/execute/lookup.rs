//! Finding single names of a directory without reading all of it.
//!
//! Of each run, the newest first, the index names the block that could have the name, the filter
//! mostly excludes it, and the block has the rest. The pieces stay in the
//! [`Cache`](super::cache::Cache). The manifest does not: it decides which runs count.

use std::sync::Arc;

use metastore::request::{LoadedDir, StoreResult};
use metastore::{
    Attached, Manifest, RowValue, Rows, RunEnds, RunIndex, RunInfo, RunRange, run_name,
};
use objstore::ObjectStore;
use types::{DirFragId, Errno, Error, Ino, Result};

use super::cache::{INDEX, Piece};
use super::{Executor, load_manifest, read_manifest, whole};

/// A larger index is no honest writer's.
const TAIL_BYTES_MAX: usize = 64 << 20;

/// Looks names up.
pub(super) fn look_up(
    store: &dyn ObjectStore,
    executor: &Executor,
    ino: Ino,
    names: &[Vec<u8>],
) -> Result<StoreResult> {
    super::while_runs_go(|| {
        let Some((manifest, _)) = read_manifest(store, whole(ino))? else {
            return Ok(StoreResult::Missing);
        };
        if manifest.bytes() <= executor.tuning.whole_bytes {
            return load_manifest(store, manifest);
        }
        let mut rows = Rows::new();
        for name in names {
            let mut buffer = None;
            let value = find(store, executor, &manifest, name, &mut buffer)?;
            rows.push(name, value.unwrap_or(RowValue::Removed));
        }
        let rows = super::resolve(store, manifest.dirfrag, rows)?;
        Ok(StoreResult::Found(Box::new(LoadedDir { manifest, rows })))
    })
}

/// The entry for a name in the newest run that has it. The block is lent from `buffer`.
fn find<'a>(
    store: &dyn ObjectStore,
    executor: &Executor,
    manifest: &Manifest,
    name: &[u8],
    buffer: &'a mut Option<Arc<Vec<u8>>>,
) -> Result<Option<RowValue<'a>>> {
    for info in &manifest.runs {
        let attached = manifest.attached.iter().find(|attached| attached.run == info.id);
        let run = Run { store, executor, dirfrag: manifest.dirfrag, info, attached };
        let Some((index, block, bytes)) = run.block(name)? else { continue };
        if run.value(&index, block, &bytes, name)?.is_none() {
            continue;
        }
        let bytes = buffer.insert(bytes);
        return run.value(&index, block, bytes, name);
    }
    Ok(None)
}

/// The index of a run, the number of a block of it, and the block.
type Block = (Arc<RunIndex>, usize, Arc<Vec<u8>>);

/// A run of a directory.
struct Run<'a> {
    store: &'a dyn ObjectStore,
    executor: &'a Executor,
    dirfrag: DirFragId,
    info: &'a RunInfo,
    attached: Option<&'a Attached>,
}

impl Run<'_> {
    /// The block that may have a name.
    fn block(&self, name: &[u8]) -> Result<Option<Block>> {
        let index = self.index()?;
        let Some(block) = index.block_of(name) else { return Ok(None) };
        if let Some(span) = index.filter_span(block)
            && !index.may_have(block, &self.bytes(span)?, name)?
        {
            return Ok(None);
        }
        let bytes = self.bytes(index.span(block..block + 1))?;
        Ok(Some((index, block, bytes)))
    }

    fn value<'b>(
        &self,
        index: &RunIndex,
        block: usize,
        bytes: &'b [u8],
        name: &[u8],
    ) -> Result<Option<RowValue<'b>>> {
        Ok(match self.attached {
            None => index.get(block, bytes, name)?,
            Some(attached) => {
                let value = index.get_admitted(block, bytes, name)?;
                value.and_then(|value| attached.admit(value))
            }
        })
    }

    fn index(&self) -> Result<Arc<RunIndex>> {
        let key = (self.dirfrag.ino, self.info.id, INDEX);
        if let Some(Piece::Index(index)) = self.executor.cached(key) {
            return Ok(index);
        }
        let index = Arc::new(read_index(self.store, self.dirfrag, self.info)?);
        self.executor.cache(key, Piece::Index(index.clone()));
        Ok(index)
    }

    fn bytes(&self, span: RunRange) -> Result<Arc<Vec<u8>>> {
        let key = (self.dirfrag.ino, self.info.id, span.offset);
        if let Some(Piece::Bytes(bytes)) = self.executor.cached(key) {
            return Ok(bytes);
        }
        let name = run_name(self.dirfrag, self.info.id);
        let bytes = Arc::new(self.store.read_range(&name, span.offset, span.length)?);
        self.executor.cache(key, Piece::Bytes(bytes.clone()));
        Ok(bytes)
    }
}

/// Reads the ends of a run, which must be the one that a manifest means.
pub(super) fn read_index(
    store: &dyn ObjectStore,
    dirfrag: DirFragId,
    info: &RunInfo,
) -> Result<RunIndex> {
    let name = run_name(dirfrag, info.id);
    let about = |error: metastore::FormatError| Error::from(error.about(name.clone()));
    let (header, footer) = (RunEnds::HEADER_BYTES, RunEnds::FOOTER_BYTES);
    let other = || {
        let cause = "it is not the run that the manifest of its directory means";
        Error::new(Errno::BadMessage, name.clone(), cause)
            .remedy("run `cudele fsck` to find what is damaged and what can be rebuilt")
    };
    let Some(footer_start) = info.bytes.checked_sub(footer as u64) else { return Err(other()) };
    let first = store.read_range(&name, 0, header)?;
    let last = store.read_range(&name, footer_start, footer)?;
    if last.len() < footer {
        return Err(other());
    }
    let tail = RunEnds::tail_bytes(info.bytes, &last).map_err(about)?;
    if tail > TAIL_BYTES_MAX {
        return Err(other());
    }
    let tail = store.read_range(&name, info.bytes - tail as u64, tail)?;
    let index = RunIndex::read(info.bytes, &first, &tail).map_err(about)?;
    let is_meant = (index.id(), index.dirfrag()) == (info.id, dirfrag)
        && (index.rows(), index.removed_rows()) == (info.rows, info.removed);
    if is_meant { Ok(index) } else { Err(other()) }
}
