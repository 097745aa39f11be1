//! The files of a client on its own disk: the owners of decoupled subtrees, and the journals of
//! Local Persist. A subtree without local durability writes none (P-05).

mod share;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use client::OwnerNote;
use serde::{Deserialize, Serialize};
pub(crate) use share::Share;
use types::{ClientId, Epoch, Errno, Error, Ino, InoRange, Result, Seq};

/// The local state of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    dir: PathBuf,
}

/// Says that this machine owns a decoupled subtree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtreeOwner {
    /// The cluster.
    pub cluster: String,
    /// The subtree's path when it was decoupled.
    pub path: String,
    /// Its root inode.
    pub ino: u64,
    /// As which client.
    pub client: u64,
    /// Start and end of the ranges of inode numbers.
    pub ranges: Vec<(u64, u64)>,
    /// The term of the decoupling.
    pub epoch: u64,
    /// The policy, canonical text.
    pub policy: String,
    /// Position of the next event.
    pub next_seq: u64,
    /// Events before this position may have been merged from journals that are gone.
    #[serde(default)]
    pub reached: u64,
    /// The server's term in which the subtree was merged and released. The merge may have to be
    /// repeated in a later one.
    #[serde(default)]
    pub merged_in: Option<u64>,
    /// Whether the subtree was empty when it was decoupled.
    pub empty: bool,
    /// Journal objects in the store.
    pub objects: Vec<String>,
    /// The number used last, in the order of the ranges; 0 for none. Journals may have used more.
    #[serde(default)]
    pub used: u64,
    /// Whether journals name all other numbers in use: no process was interrupted after it had
    /// written content for more, and no other client had the subtree before.
    #[serde(default)]
    pub exact: bool,
    /// The ends of ranges that were given up unused: start and end.
    #[serde(default)]
    pub unused: Vec<(u64, u64)>,
    /// Objects of a dead client whose journals were taken over: deleted at the end.
    #[serde(default)]
    pub adopted: Vec<String>,
}

impl SubtreeOwner {
    /// The client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(self.client)
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Ino {
        Ino(self.ino)
    }

    /// The term.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// The ranges.
    pub fn ranges(&self) -> impl Iterator<Item = InoRange> {
        self.ranges.iter().map(|(start, end)| InoRange { start: *start, end: *end })
    }

    /// The ranges that were given up.
    pub fn unused(&self) -> impl Iterator<Item = InoRange> {
        self.unused.iter().map(|(start, end)| InoRange { start: *start, end: *end })
    }

    /// The owner of the subtree at a path of a cluster. The numbers in use are not known exactly.
    pub(crate) fn new(
        cluster: String,
        path: String,
        root: Ino,
        policy: String,
        note: OwnerNote,
    ) -> Self {
        let empty = Self {
            cluster,
            path,
            ino: root.0,
            client: 0,
            ranges: Vec::new(),
            epoch: 0,
            policy,
            next_seq: 0,
            reached: 0,
            merged_in: None,
            empty: false,
            objects: Vec::new(),
            used: 0,
            exact: false,
            unused: Vec::new(),
            adopted: Vec::new(),
        };
        empty.with(note, false)
    }

    /// The part of the file that the job decides about.
    pub(crate) fn note(&self) -> OwnerNote {
        OwnerNote {
            client: self.client(),
            ranges: self.ranges().collect(),
            epoch: self.epoch(),
            next_seq: Seq(self.next_seq),
            reached: Seq(self.reached),
            merged_in: self.merged_in.map(Epoch),
            empty: self.empty,
            objects: self.objects.clone(),
            used: Ino(self.used),
            unused: self.unused().collect(),
            adopted: self.adopted.clone(),
        }
    }

    /// The same file with another note.
    pub(crate) fn with(&self, note: OwnerNote, exact: bool) -> Self {
        let pairs =
            |ranges: Vec<InoRange>| ranges.into_iter().map(|it| (it.start, it.end)).collect();
        Self {
            client: note.client.0,
            ranges: pairs(note.ranges),
            epoch: note.epoch.0,
            next_seq: note.next_seq.0,
            reached: note.reached.0,
            merged_in: note.merged_in.map(|epoch| epoch.0),
            empty: note.empty,
            objects: note.objects,
            used: note.used.0,
            unused: pairs(note.unused),
            adopted: note.adopted,
            exact,
            ..self.clone()
        }
    }
}

/// The error of an operation on a file of this machine.
#[must_use]
pub fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let errno = match error.raw_os_error() {
        Some(code) => u16::try_from(code).map_or(Errno::Io, Errno::from_code),
        None => Errno::Io,
    };
    Error::new(errno, path.display().to_string(), error.to_string())
}

/// Makes the entry of a file in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let sync = fs::File::open(parent).and_then(|dir| dir.sync_all());
    sync.map_err(|error| io_error(parent, &error))
}

/// Replaces a file atomically and durably.
///
/// # Errors
/// The error of the file system.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            crate::own_file::make_dirs(parent)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let temporary = PathBuf::from(name);
        let mut file = crate::own_file::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| io_error(path, &error))?;
    sync_parent(path)
}

impl StateDir {
    /// `$CUDELE_STATE`, else `$XDG_STATE_HOME/cudele`, else `~/.local/state/cudele`.
    #[must_use]
    pub fn root() -> Option<PathBuf> {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(dir) = var("CUDELE_STATE") {
            return Some(dir.into());
        }
        if let Some(dir) = var("XDG_STATE_HOME") {
            return Some(PathBuf::from(dir).join("cudele"));
        }
        Some(PathBuf::from(var("HOME")?).join(".local/state/cudele"))
    }

    /// The local state of a decoupled subtree.
    ///
    /// # Errors
    /// `ENOENT` if no home directory is known.
    pub fn of(cluster: &str, subtree: Ino) -> Result<Self> {
        let root = Self::root().ok_or_else(|| {
            Error::new(Errno::NotFound, "state directory", "neither HOME nor CUDELE_STATE is set")
                .remedy("set CUDELE_STATE to a directory on a local disk")
        })?;
        Ok(Self { dir: root.join("subtrees").join(cluster).join(format!("{:016x}", subtree.0)) })
    }

    /// The local state in the directory of another user.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Everything that this user owns, or owned, in a cluster.
    ///
    /// # Errors
    /// `EIO`.
    pub fn all(cluster: &str) -> Result<Vec<Self>> {
        let Some(root) = Self::root() else { return Ok(Vec::new()) };
        let dir = root.join("subtrees").join(cluster);
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&dir, &error)),
        };
        let mut all: Vec<_> =
            entries.filter_map(|entry| Some(Self { dir: entry.ok()?.path() })).collect();
        all.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(all)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn owner_file(&self) -> PathBuf {
        self.dir.join("owner.json")
    }

    /// The owner of the subtree, if it is on this machine.
    ///
    /// # Errors
    /// `EBADMSG` if the file is damaged, `EIO`.
    pub fn owner(&self) -> Result<Option<SubtreeOwner>> {
        let file = self.owner_file();
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&file, &error)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            Error::new(Errno::BadMessage, file.display().to_string(), error.to_string())
                .remedy("remove the file; the subtree can then be discarded by root")
        })
    }

    /// The owner of the decoupled subtree at a path of a cluster, if it is on this machine.
    ///
    /// # Errors
    /// As [`StateDir::owner`].
    pub fn owner_at(cluster: &str, path: &types::Path) -> Result<Option<SubtreeOwner>> {
        let path = path.to_string();
        for state in Self::all(cluster)? {
            if let Some(owner) = state.owner()?
                && owner.merged_in.is_none()
                && owner.path == path
            {
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }

    /// Records the owner, durably.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn set_owner(&self, owner: &SubtreeOwner) -> Result<()> {
        let text = serde_json::to_vec_pretty(owner)
            .map_err(|error| Error::new(Errno::Io, "owner.json", error.to_string()))?;
        write_durably(&self.owner_file(), &text)
    }

    /// The local journal that starts with the event of this position.
    #[must_use]
    pub fn journal_file(&self, first_seq: types::Seq) -> PathBuf {
        self.dir.join(format!("journal.{:016x}", first_seq.0))
    }

    /// The same while it is being written for the first time.
    pub(crate) fn unfinished_journal_file(&self, first_seq: types::Seq) -> PathBuf {
        self.dir.join(format!("new.journal.{:016x}", first_seq.0))
    }

    /// All local journals of the subtree, oldest first.
    ///
    /// # Errors
    /// `EIO`.
    pub fn journals(&self) -> Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&self.dir, &error)),
        };
        let mut journals = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| io_error(&self.dir, &error))?;
            if entry.file_name().to_string_lossy().starts_with("journal.") {
                journals.push(entry.path());
            }
        }
        journals.sort();
        Ok(journals)
    }

    /// Forgets the subtree. The logs of requests in it stay.
    ///
    /// # Errors
    /// `EIO`.
    pub fn remove(&self) -> Result<()> {
        let remove = || -> std::io::Result<()> {
            let mut empty = true;
            for entry in fs::read_dir(&self.dir)? {
                let entry = entry?;
                if crate::strong_log::is_log(&entry.file_name()) {
                    empty = false;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            if empty { fs::remove_dir(&self.dir) } else { Ok(()) }
        };
        match remove() {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error(&self.dir, &error)),
        }
    }
}
