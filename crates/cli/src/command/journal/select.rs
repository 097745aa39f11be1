//! Where journals are: files on this disk, objects in the store.

use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Ino, Path as NamespacePath, Result, StateDir};
use objstore::ObjectStore;
use terminal::context::Context;

use crate::owned;
use crate::stores;

/// The prefixes of all journals of metadata servers, and of clients.
pub(super) const MDS_PREFIX: &str = "journal/mds.";
const CLIENT_PREFIX: &str = "journal/client/";

/// One journal.
pub(super) struct SelectedJournal {
    /// Where it is.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// The subtree's root and path, if they are known.
    pub(super) root: Option<(Ino, NamespacePath)>,
}

fn objects(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<SelectedJournal>> {
    let mut all = Vec::new();
    for name in store.list(prefix)? {
        match store.get(&name) {
            Ok((bytes, _)) => all.push(SelectedJournal { name, bytes, root: None }),
            // Trimmed since it was listed.
            Err(error) if error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

pub(super) fn file(path: &Path) -> Result<SelectedJournal> {
    let bytes = std::fs::read(path).map_err(|error| terminal::io(path, &error))?;
    Ok(SelectedJournal { name: path.display().to_string(), bytes, root: None })
}

/// Files as they are; else objects of the store of that name.
pub(super) fn named(context: &Context, names: &[PathBuf]) -> Result<Vec<SelectedJournal>> {
    let mut all = Vec::new();
    for name in names {
        match file(name) {
            Ok(found) => all.push(found),
            Err(error) if error.errno == Errno::NotFound => {
                let object = name.to_string_lossy();
                let store = stores::of_cluster(context).map_err(|_| error.clone())?;
                let (bytes, _) = store.get(&object).map_err(|_| {
                    error.remedy(
                        "name a file, or a journal object as `cudele journal inspect` \
                                  lists them",
                    )
                })?;
                all.push(SelectedJournal { name: object.into_owned(), bytes, root: None });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The segments of the metadata servers' journals.
pub(super) fn of_servers(context: &Context) -> Result<Vec<SelectedJournal>> {
    objects(&*stores::of_cluster(context)?, MDS_PREFIX)
}

/// The journals of a decoupled subtree: on this disk, and in the store.
pub(super) fn of_subtree(context: &Context, text: &str) -> Result<Vec<SelectedJournal>> {
    let path = cudele::parse_path(text)?;
    let cluster = context.cluster()?;
    let ino = match (owned::owner(&cluster, &path)?, owned::holder(&cluster, &path)?) {
        (Some(owner), _) => owner.root(),
        (None, Some(known)) => known.ino,
        (None, None) => return Err(owned::not_ours(&cluster, &path)?),
    };
    let state = StateDir::of(&cluster.status()?.cluster, ino)?;
    let mut all = Vec::new();
    for local in state.journals()? {
        all.push(file(&local)?);
    }
    all.extend(objects(
        &*stores::of_cluster(context)?,
        &format!("{CLIENT_PREFIX}{:016x}.", ino.0),
    )?);
    for found in &mut all {
        found.root = Some((ino, path.clone()));
    }
    if all.is_empty() {
        let cause = "no journal of it is on this disk or in the store";
        return Err(Error::new(Errno::NotFound, path.to_string(), cause)
            .remedy("a journal is in its owner's memory until the policy is completed"));
    }
    Ok(all)
}
