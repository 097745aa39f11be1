//! Which journals are inspected, and which of their events.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudele::{ClientId, Errno, Error, Ino, Path as NamespacePath, Result, StateDir};
use journal::EventKind;
use objstore::ObjectStore;

use crate::command::up;
use crate::context::Context;
use crate::glob::Glob;
use crate::journals::Story;
use crate::owned;

/// What the names of all journals of metadata servers, and of clients, start with.
const MDS_PREFIX: &str = "journal/mds.";
const CLIENT_PREFIX: &str = "journal/client/";

/// One journal.
pub(super) struct Found {
    /// Where it is.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// The subtree's root and path, if they are known.
    pub(super) root: Option<(Ino, NamespacePath)>,
}

/// Which events are wanted: those for which everything that is asked holds.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) kinds: Vec<EventKind>,
    pub(super) path: Option<Vec<u8>>,
    pub(super) name: Option<Glob>,
    pub(super) ino: Option<Ino>,
    pub(super) client: Option<ClientId>,
    pub(super) range: Option<(u64, u64)>,
}

impl Filter {
    pub(super) fn admits(&self, story: &Story<'_>) -> bool {
        let event = &story.record.event;
        let below = |path: &[u8], root: &[u8]| {
            let rest = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let path = |root: &Vec<u8>| {
            below(&story.path, root) || story.to.as_ref().is_some_and(|to| below(to, root))
        };
        let name = |glob: &Glob| event.dentry().is_some_and(|(_, name)| glob.matches(name));
        let ino = |wanted: &Ino| {
            event.inode() == Some(*wanted) || event.dentry().is_some_and(|(dir, _)| dir == *wanted)
        };
        let seq = story.record.seq.0;
        (self.kinds.is_empty() || self.kinds.contains(&event.kind()))
            && self.path.as_ref().is_none_or(path)
            && self.name.as_ref().is_none_or(name)
            && self.ino.as_ref().is_none_or(ino)
            && self.client.is_none_or(|client| story.client() == Some(client))
            && self.range.is_none_or(|(first, end)| first <= seq && seq < end)
    }
}

/// Reads `create,unlink`.
pub(super) fn kinds(text: &str) -> std::result::Result<Vec<EventKind>, String> {
    let one = |word: &str| {
        let known = EventKind::ALL.into_iter().find(|kind| kind.name() == word);
        known.ok_or_else(|| {
            let all: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("`{word}` is no type of event; the types are {}", all.join(", "))
        })
    };
    text.split(',').map(|word| one(word.trim())).collect()
}

/// Reads `A..B`, either end left out at will.
pub(super) fn range(text: &str) -> std::result::Result<(u64, u64), String> {
    let number = |text: &str, default| {
        if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| ()) }
    };
    let parts = text.split_once("..").ok_or(());
    parts
        .and_then(|(first, end)| Ok((number(first, 0)?, number(end, u64::MAX)?)))
        .map_err(|()| "a range of positions is written A..B, without B".to_owned())
}

/// The store of the cluster, also if the cluster does not run.
fn store(context: &Context) -> Result<Arc<dyn ObjectStore>> {
    let found = context.locator().find()?;
    let marker = found.dir.map(|dir| dir.join(up::MARKER));
    let text = marker.and_then(|marker| std::fs::read_to_string(marker).ok());
    match text.and_then(|text| up::field(&text, "store")) {
        Some(url) => objstore::open_existing(&url),
        None => objstore::open_existing(&context.cluster()?.status()?.store),
    }
}

fn objects(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for name in store.list(prefix)? {
        match store.get(&name) {
            Ok((bytes, _)) => all.push(Found { name, bytes, root: None }),
            // Trimmed since it was listed.
            Err(error) if error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn file(path: &Path) -> Result<Found> {
    let bytes = std::fs::read(path).map_err(|error| up::io(path, &error))?;
    Ok(Found { name: path.display().to_string(), bytes, root: None })
}

/// Files as they are; else objects of the store of that name.
pub(super) fn named(context: &Context, names: &[PathBuf]) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for name in names {
        match file(name) {
            Ok(found) => all.push(found),
            Err(error) if error.errno == Errno::NotFound => {
                let object = name.to_string_lossy();
                let store = store(context).map_err(|_| error.clone())?;
                let (bytes, _) = store.get(&object).map_err(|_| {
                    error.remedy(
                        "name a file, or a journal object as `cudele journal inspect` \
                                  lists them",
                    )
                })?;
                all.push(Found { name: object.into_owned(), bytes, root: None });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The segments of the metadata servers' journals.
pub(super) fn of_servers(context: &Context) -> Result<Vec<Found>> {
    objects(&*store(context)?, MDS_PREFIX)
}

/// The journals of a decoupled subtree: on this disk, and in the store.
pub(super) fn of_subtree(context: &Context, text: &str) -> Result<Vec<Found>> {
    let path = owned::path(text)?;
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
    all.extend(objects(&*store(context)?, &format!("{CLIENT_PREFIX}{:016x}.", ino.0))?);
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
