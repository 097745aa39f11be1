//! Which journal is meant, and how it is changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudele::{Errno, Error, Ino, Path as NamespacePath, Result};
use metastore::request::{journal_prefix, rank_name, segment_name};
use objstore::{Expect, LockGuard, ObjectStore, PutOutcome, Store, SyncScope, Version};
use terminal::context::Context;
use types::Rank;

use super::files::{self, Over};
use super::select::{self, MDS_PREFIX};
use crate::journals::Names;
use crate::stores;

/// The intended use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Change,
}

/// A segment of a journal: all of it, if it is a client's.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// The file, if it is none of the store's objects.
    file: Option<PathBuf>,
}

/// A journal.
#[derive(Debug)]
pub(super) struct Source {
    /// As it was asked for.
    pub(super) name: String,
    /// The rank, if this is the whole journal of a metadata server.
    pub(super) rank: Option<Rank>,
    pub(super) pieces: Vec<Piece>,
    /// The subtree's root and path, if they are known.
    root: Option<(Ino, NamespacePath)>,
    store: Option<Arc<dyn Store>>,
    /// Keeps metadata servers of the rank from starting.
    _lease: Option<Box<dyn LockGuard>>,
}

impl Source {
    /// Finds a journal: `mds.N`, a file, a journal object, or the path of a decoupled subtree.
    ///
    /// # Errors
    /// `ENOENT` if nothing of that name is a journal, `EBUSY` if it is to be changed and its server
    /// runs.
    pub(super) fn open(context: &Context, text: &str, access: Access) -> Result<Self> {
        if let Some(rank) = server(text) {
            return Self::of_server(context, rank, access);
        }
        let source = |name: String, bytes, file, root| Self {
            name: name.clone(),
            rank: None,
            pieces: vec![Piece { name, bytes, file }],
            root,
            store: None,
            _lease: None,
        };
        let path = Path::new(text);
        if path.is_file() {
            let found = select::file(path)?;
            return Ok(source(found.name, found.bytes, Some(path.to_owned()), None));
        }
        if is_object(text) {
            let store = stores::of_cluster(context)?;
            let lease = match (rank_of(text), access) {
                (Some(rank), Access::Change) => Some(lease(&*store, rank)?),
                (Some(_), Access::Read) | (None, _) => None,
            };
            let (bytes, _) = store.get(text).map_err(nowhere)?;
            let found = source(text.to_owned(), bytes, None, None);
            return Ok(Self { store: Some(store), _lease: lease, ..found });
        }
        if !text.starts_with('/') {
            return Err(nowhere(Error::new(Errno::NotFound, text, "no such file or journal")));
        }
        let mut found = select::of_subtree(context, text).map_err(nowhere)?;
        if found.len() > 1 {
            let names: Vec<_> = found.iter().map(|found| found.name.as_str()).collect();
            let cause = format!("this subtree has {} journals: {}", names.len(), names.join(", "));
            return Err(Error::new(Errno::Invalid, text, cause).remedy("name one of them"));
        }
        let Some(found) = found.pop() else {
            return Err(nowhere(Error::new(Errno::NotFound, text, "it has no journal")));
        };
        let file = Some(PathBuf::from(&found.name)).filter(|file| file.is_absolute());
        let store = if file.is_none() { Some(stores::of_cluster(context)?) } else { None };
        Ok(Self { store, ..source(found.name, found.bytes, file, found.root) })
    }

    /// All segments of a metadata server's journal, oldest first.
    fn of_server(context: &Context, rank: Rank, access: Access) -> Result<Self> {
        let store = stores::of_cluster(context)?;
        let lease = match access {
            Access::Change => Some(lease(&*store, rank)?),
            Access::Read => None,
        };
        let mut pieces = Vec::new();
        for name in store.list(&journal_prefix(rank))? {
            match store.get(&name) {
                Ok((bytes, _)) => pieces.push(Piece { name, bytes, file: None }),
                // Trimmed since it was listed.
                Err(error) if error.errno == Errno::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let (name, store) = (rank.to_string(), Some(store));
        Ok(Self { name, rank: Some(rank), pieces, root: None, store, _lease: lease })
    }

    /// There is something to work on.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(super) fn some(self) -> Result<Self> {
        if self.pieces.is_empty() {
            return Err(Error::new(Errno::NotFound, self.name, "there is no journal").remedy(
                "a metadata server that stops cleanly stores everything and leaves no journal",
            ));
        }
        Ok(self)
    }

    /// The known paths.
    pub(super) fn names(&self) -> Names {
        let mut names = Names::default();
        if let Some((ino, path)) = &self.root {
            names.know_root(*ino, path);
        }
        names
    }

    /// Asks the cluster for the path of the subtree, if it runs.
    pub(super) fn learn_root(&mut self, context: &Context) {
        let Some(piece) = self.pieces.first().filter(|_| self.root.is_none()) else { return };
        let Ok(journal::SegmentHeader { writer: journal::Writer::Client { subtree, .. }, .. }) =
            journal::SegmentHeader::decode(&piece.bytes)
        else {
            return;
        };
        let Ok(map) = context.cluster().and_then(|cluster| cluster.status()) else { return };
        let known = map.decoupled.into_iter().find(|known| known.ino == subtree);
        let path = known.and_then(|known| NamespacePath::parse(&known.path).ok());
        self.root = path.map(|path| (subtree, path));
    }

    /// Replaces a segment, if it is unchanged since it was read.
    ///
    /// # Errors
    /// `ESTALE` if it changed since.
    pub(super) fn replace(&self, piece: &Piece, bytes: &[u8]) -> Result<()> {
        if let Some(file) = &piece.file {
            if select::file(file)?.bytes != piece.bytes {
                return Err(changed(&piece.name));
            }
            return files::write(file, bytes, Over::Anything);
        }
        self.put(&piece.name, bytes, Expect::Is(Version::of(&piece.bytes)))
    }

    /// Writes a segment of a metadata server's journal.
    ///
    /// # Errors
    /// `ESTALE` if the object is not the expected one.
    pub(super) fn put(&self, name: &str, bytes: &[u8], expect: Expect) -> Result<()> {
        let Some(store) = &self.store else { return Err(changed(name)) };
        match store.put(name, bytes, expect)? {
            PutOutcome::Done(_) => Ok(()),
            PutOutcome::Conflict(_) => Err(changed(name)),
        }
    }

    /// Removes segments of a metadata server's journal, in this order.
    ///
    /// # Errors
    /// `EIO`.
    pub(super) fn remove<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        for name in names {
            store.delete(name)?;
            store.sync(SyncScope::Object(name))?;
        }
        Ok(())
    }

    /// The name for a segment behind all existing ones.
    pub(super) fn next_name(&self) -> String {
        let used = self.pieces.iter().map(|piece| index_of(&piece.name) + 1).max();
        segment_name(self.rank.unwrap_or_default(), used.unwrap_or(0))
    }
}

/// The rank that `mds.N` names.
pub(super) fn server(text: &str) -> Option<Rank> {
    text.strip_prefix("mds.")?.parse().ok().map(Rank)
}

/// Whether this names a journal object of the store.
pub(super) fn is_object(text: &str) -> bool {
    text.starts_with("journal/")
}

/// The rank of a segment.
pub(super) fn rank_of(object: &str) -> Option<Rank> {
    let (rank, _) = object.strip_prefix(MDS_PREFIX)?.split_once('/')?;
    u16::from_str_radix(rank, 16).ok().map(Rank)
}

/// The number in a segment's name.
fn index_of(name: &str) -> u64 {
    let hex = name.rsplit('/').next().unwrap_or_default();
    u64::from_str_radix(hex, 16).unwrap_or_default()
}

/// Takes the place of a rank's server, so that none can run.
///
/// # Errors
/// `EBUSY` if one does.
pub(super) fn lease(store: &dyn Store, rank: Rank) -> Result<Box<dyn LockGuard>> {
    let owner = format!("cudele journal (process {})", std::process::id());
    store.lock(&format!("{}.lock", rank_name(rank)), &owner).map_err(|error| {
        if error.errno != Errno::Busy {
            return error;
        }
        let cause = format!("its journal can be changed only while it is stopped: {}", error.cause);
        Error::new(Errno::Busy, rank.to_string(), cause)
            .remedy("stop it with `cudele down`, then run this again")
    })
}

fn changed(name: &str) -> Error {
    Error::new(Errno::Stale, name, "it changed while this command worked on it")
        .remedy("nothing of it was overwritten; run the command again")
}

fn nowhere(error: Error) -> Error {
    if error.errno != Errno::NotFound || !error.remedy.is_empty() {
        return error;
    }
    error.remedy(
        "name a journal file, a journal object as `cudele journal inspect` lists them, mds.0, or \
         the path of a decoupled subtree",
    )
}
