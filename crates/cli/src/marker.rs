//! The marker `cudele-cluster` of a cluster's directory: the id of the cluster, the address of its
//! store, and the group of the users who may connect.
//!
//! Invariant: the marker is written durably and by rename. An empty, damaged or missing marker is
//! rebuilt from the store beside it, whose map has the id.

use std::fs;
use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use metastore::request::MAP_NAME;
use terminal::io;

use crate::command::up::{MARKER, field};

/// The fields of the marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) cluster: String,
    pub(crate) store: String,
    /// The group whose members may connect, besides the owner of the cluster and root.
    pub(crate) group: Option<u32>,
}

/// The marker while it is being written.
const MARKER_NEW: &str = "cudele-cluster.new";

/// The file in a store (a directory) that has its id.
const STORE_ID: &str = "cudele-store";

/// The default store of a cluster.
pub(crate) fn default_store(dir: &Path) -> String {
    format!("dir:{}", dir.join("store").display())
}

/// Reads the marker; nothing if there is none.
///
/// # Errors
/// `EBADMSG` if it is empty or damaged.
pub(crate) fn read(dir: &Path) -> Result<Option<Marker>> {
    let file = dir.join(MARKER);
    let text = match fs::read(&file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(&file, &error)),
    };
    let is_id = |id: &String| id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_graphic());
    let known = (field(&text, "cluster").filter(is_id), field(&text, "store"));
    // The last line is whole only with its end.
    match known {
        (Some(cluster), Some(store)) if text.ends_with('\n') => {
            let group = field(&text, "group").and_then(|group| group.parse().ok());
            let store = moved_store(dir, &store).unwrap_or(store);
            Ok(Some(Marker { cluster, store, group }))
        }
        _ => {
            let what = if text.is_empty() { "is empty" } else { "is damaged" };
            Err(Error::new(
                Errno::BadMessage,
                file.display().to_string(),
                format!("the marker {what}"),
            )
            .remedy("`cudele up` or `cudele fsck --repair` writes it again"))
        }
    }
}

/// The store in the cluster's directory, if that directory was moved or copied with it since: the
/// named store is gone then, or has the same id.
fn moved_store(dir: &Path, named: &str) -> Option<String> {
    let named = Path::new(named.strip_prefix("dir:")?);
    let beside = dir.join("store");
    let id = fs::read(beside.join(STORE_ID)).ok()?;
    let is_same = |known: PathBuf| beside.canonicalize().is_ok_and(|beside| beside == known);
    if named.canonicalize().is_ok_and(is_same) {
        return None;
    }
    let other = fs::read(named.join(STORE_ID));
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let is_moved = other.as_ref().map_or_else(is_gone, |known| *known == id);
    is_moved.then(|| default_store(dir))
}

/// Writes the marker, durably with its directory.
pub(crate) fn write(dir: &Path, marker: &Marker) -> Result<()> {
    let Marker { cluster, store, group } = marker;
    let mut text = format!("cluster={cluster}\nstore={store}\n");
    if let Some(group) = group {
        text.push_str(&format!("group={group}\n"));
    }
    cudele::write_durably(&dir.join(MARKER), text.as_bytes())?;
    // The directory itself may be new.
    let parent = dir.parent().unwrap_or(dir);
    let sync = fs::File::open(parent).and_then(|parent| parent.sync_all());
    sync.map_err(|error| io(parent, &error))
}

/// Rebuilds an empty, damaged or missing marker. `store` is the address that the caller knows.
///
/// # Errors
/// `EBADMSG` if nothing says where the store is.
pub(crate) fn mend(dir: &Path, store: Option<&str>) -> Result<Marker> {
    let beside = is_store(&dir.join("store")).then(|| default_store(dir));
    let Some(store) = store.map(str::to_owned).or(beside) else {
        let file = dir.join(MARKER).display().to_string();
        return Err(Error::new(
            Errno::BadMessage,
            file,
            "the marker is damaged or gone, and there is no store beside it",
        )
        .remedy("name the store: `cudele up --store URL`"));
    };
    let opened = objstore::open_existing(&store)?;
    let map = match opened.get(MAP_NAME) {
        Ok((bytes, _)) => mon::read_map(&bytes).ok(),
        Err(error) if error.errno == Errno::NotFound => None,
        Err(error) => return Err(error),
    };
    let cluster = match map.map(|map| map.cluster).filter(|cluster| !cluster.is_empty()) {
        Some(cluster) => cluster,
        None => new_id()?,
    };
    let marker = Marker { cluster, store, group: None };
    write(dir, &marker)?;
    Ok(marker)
}

/// An id for a cluster.
pub(crate) fn new_id() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(Errno::Io, "the id of a new cluster", format!("no random number: {error}"))
    })?;
    Ok(types::hex::uuid(random))
}

fn is_store(dir: &Path) -> bool {
    dir.join(STORE_ID).exists()
}

/// An entry that a cluster's directory cannot have, and whether a cluster was started here.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn foreign(dir: &Path) -> Result<(Option<PathBuf>, bool)> {
    let has_store = is_store(&dir.join("store"));
    let (mut foreign, mut started) = (None, has_store);
    for entry in fs::read_dir(dir).map_err(|error| io(dir, &error))? {
        let entry = entry.map_err(|error| io(dir, &error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sock") {
            started = true;
        } else if !(["log", keys::FOLDER, MARKER_NEW].contains(&&*name)
            || (name == "store" && has_store))
        {
            foreign.get_or_insert(entry.path());
        }
    }
    Ok((foreign, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_a_marker_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let marker =
            Marker { cluster: new_id().unwrap(), store: "dir:/x/store".into(), group: None };
        assert_eq!(read(dir.path()).unwrap(), None);
        write(dir.path(), &marker).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(marker));
        let file = dir.path().join(MARKER);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(read(dir.path()).unwrap_err().errno, Errno::BadMessage, "{length}");
        }
    }
}
