//! Reads one branch or several, from the objects of the snapshot and the layers, without a server.

use std::borrow::Cow;
use std::sync::Arc;

use client::{BranchView, Composed, LayerError, MadeDirs};
use cudele::{ContentStore, DirEntry};
use engine::load_dir_at;
use metastore::{Layer, Snapshot};
use namespace::{ListedEntry, Refusal};
use objstore::{ObjectStore, Store};
use policy::Policy;
use types::{Attr, Cred, Errno, Error, FileType, INLINE_BYTES_MAX, Ino, Path, Result, Seq};

/// See the module documentation. Directories are read when they are looked into, and kept.
#[derive(Debug)]
pub struct SnapshotView {
    store: Arc<dyn Store>,
    number: u64,
    path: Path,
    inherited: Policy,
    pub(crate) inner: BranchView,
    pub(crate) cred: Cred,
    fetched: u64,
    pub(crate) content: ContentStore,
}

impl SnapshotView {
    pub(crate) fn new(store: Arc<dyn Store>, snapshot: &Snapshot, next: Seq) -> Result<Self> {
        let inherited = match snapshot.policy.as_str() {
            "" => Policy::default(),
            text => Policy::parse(text)?.policy,
        };
        Ok(Self {
            content: ContentStore::new(store.clone()),
            store,
            number: snapshot.number,
            path: cudele::parse_path(&snapshot.path)?,
            inherited,
            inner: BranchView::new(&snapshot.root, next),
            cred: cudele::own_cred(),
            fetched: 0,
        })
    }

    /// The path of its root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.inner.root()
    }

    /// Directories that were read from the store so far.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// The report of putting several branches on top of each other.
    #[must_use]
    pub fn composed(&self) -> Composed {
        self.inner.composed()
    }

    pub(crate) fn replay(&mut self, layer: &Layer) -> Result<()> {
        let bytes = read_layer(&*self.store, layer)?;
        let (store, number, fetched) = (&*self.store, self.number, &mut self.fetched);
        let result = self.inner.replay(&bytes, |dir| {
            *fetched += 1;
            load_dir_at(store, dir, number)
        });
        result.map_err(|error| layer_error(layer, error))
    }

    /// Applies the events of a layer behind a position.
    pub(crate) fn compose(&mut self, layer: &Layer, known: Seq, made: &mut MadeDirs) -> Result<()> {
        let bytes = read_layer(&*self.store, layer)?;
        let (store, number, fetched) = (&*self.store, self.number, &mut self.fetched);
        let result = self.inner.compose(&bytes, known, made, |dir| {
            *fetched += 1;
            load_dir_at(store, dir, number)
        });
        result.map_err(|error| layer_error(layer, error))
    }

    /// Runs an operation, bringing the directories that it needs into the view.
    pub(crate) fn on<T>(
        &mut self,
        subject: &[u8],
        mut operation: impl FnMut(&mut BranchView) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        loop {
            match operation(&mut self.inner) {
                Ok(value) => return Ok(value),
                Err(Refusal::Errno(errno)) => {
                    return Err(Error::of(errno, String::from_utf8_lossy(subject)));
                }
                Err(Refusal::Cold(dir)) => {
                    self.fetched += 1;
                    let loaded = load_dir_at(&*self.store, dir, self.number)?;
                    self.inner.load(dir, loaded.as_ref());
                }
            }
        }
    }

    /// The part of a path below the root.
    fn below(&self, path: &Path) -> Result<Path> {
        if !path.starts_with(&self.path) {
            let cause = format!("the branch is of {}", self.path);
            return Err(Error::new(Errno::NotFound, path.to_string(), cause)
                .remedy("name a path in the directory that the branch is of"));
        }
        let names = path.components().skip(self.path.components().len());
        Ok(names.fold(Path::root(), |path, name| path.join(name)))
    }

    /// Follows a path of the namespace: returns the directory of the last name, and the inode.
    ///
    /// # Errors
    /// `ENOENT` outside of the branch's directory, or if anything but the last name is missing;
    /// `ENOTDIR`, `EACCES`, `ELOOP`.
    pub fn walk(&mut self, path: &Path) -> Result<(Ino, Option<Attr>)> {
        let below = self.below(path)?;
        let (root, cred) = (self.root(), self.cred.clone());
        let subject = path.to_string();
        let walked =
            self.on(subject.as_bytes(), |inner| inner.namespace().walk(&cred, root, &below))?;
        Ok((walked.parent, walked.attr))
    }

    /// The attributes of the inode at a path.
    ///
    /// # Errors
    /// As [`SnapshotView::walk`], and `ENOENT`.
    pub fn stat(&mut self, path: &Path) -> Result<Attr> {
        self.walk(path)?.1.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))
    }

    /// The attributes of an inode that was seen.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn attr(&mut self, ino: Ino) -> Result<Attr> {
        self.on(b"", |inner| inner.namespace().getattr(ino))
    }

    /// An extended attribute of an inode that was seen.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    pub fn xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.on(name, |inner| inner.namespace().xattr(ino, name).map(Cow::into_owned))
    }

    /// The names of all extended attributes of an inode that was seen, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn xattrs(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.on(b"", |inner| {
            let names = inner.namespace().xattr_names(ino)?;
            Ok(names.into_iter().map(<[u8]>::to_vec).collect())
        })
    }

    /// The entries of a directory that was seen, by name.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ESTALE`.
    pub fn list(&mut self, dir: Ino) -> Result<Vec<DirEntry>> {
        let mut entries = self.page(dir, None, usize::MAX)?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// The next entries of a directory that was seen, in its own order, at most so many after a
    /// name.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ESTALE`.
    pub fn page(&mut self, dir: Ino, after: Option<&[u8]>, limit: usize) -> Result<Vec<DirEntry>> {
        let cred = self.cred.clone();
        let entries = self.on(b"", |inner| inner.namespace().list(&cred, dir, after, limit, true));
        let entry = |entry: ListedEntry| DirEntry { name: entry.name, attr: entry.attr };
        Ok(entries?.into_iter().map(entry).collect())
    }

    /// The content that an inode that was seen keeps itself: a small file, or the target of a
    /// symbolic link; empty if there is none. Checks no permission.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn inline(&mut self, ino: Ino) -> Result<Vec<u8>> {
        self.on(b"", |inner| inner.namespace().data(ino).map(<[u8]>::to_vec))
    }

    /// The text of the policy of a directory that was seen, if it has one of its own.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn own_policy(&mut self, dir: Ino) -> Result<Option<String>> {
        self.on(b"", |inner| {
            let policy = inner.namespace().own_policy(dir)?;
            Ok(policy.map(|text| String::from_utf8_lossy(text).into_owned()))
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn link_target(&mut self, attr: &Attr) -> Result<Option<Vec<u8>>> {
        if attr.file_type() != FileType::Symlink {
            return Ok(None);
        }
        self.inline(attr.ino).map(Some)
    }

    /// Reads the content of a file, handing it out piece by piece.
    ///
    /// # Errors
    /// `EACCES`, `EIO`, and the errors of `take`.
    pub fn read(&mut self, attr: &Attr, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let cred = self.cred.clone();
        self.on(b"", |inner| inner.namespace().access(&cred, attr.ino, 4))?;
        if attr.size <= INLINE_BYTES_MAX as u64 {
            let inline = self.inline(attr.ino)?;
            if !inline.is_empty() {
                return take(&inline);
            }
        }
        let span = self.content.span_bytes(attr.stripe);
        let mut at = 0;
        while at < attr.size {
            let length = (attr.size - at).min(span);
            let bytes = usize::try_from(length).unwrap_or(usize::MAX);
            let piece = self.content.read_at(attr.striped(), at, bytes)?;
            at += length;
            take(&piece)?;
        }
        Ok(())
    }

    /// Reads at most so many bytes of a file from an offset. Checks no permission.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub(crate) fn read_at(&mut self, attr: &Attr, offset: u64, length: usize) -> Result<Vec<u8>> {
        let left = attr.size.saturating_sub(offset);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if attr.size <= INLINE_BYTES_MAX as u64 {
            let inline = self.inline(attr.ino)?;
            if !inline.is_empty() {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(inline.len());
                return Ok(inline[from..inline.len().min(from + length)].to_vec());
            }
        }
        self.content.read_at(attr.striped(), offset, length)
    }

    /// The policy in force in a directory, as the snapshot and the layers say it.
    pub fn policy(&mut self, dir: Ino) -> Policy {
        self.inner.policy(dir).unwrap_or_else(|| self.inherited.clone())
    }
}

/// A layer, which must be the one that is meant.
pub(crate) fn read_layer(store: &dyn ObjectStore, layer: &Layer) -> Result<Vec<u8>> {
    let name = layer.name();
    let (bytes, _) = store.get(&name)?;
    if layer.is(&bytes) {
        return Ok(bytes);
    }
    Err(Error::new(Errno::BadMessage, name, "it is not the layer that its branch lists")
        .remedy("restore this object from a copy of the store, or remove the branch"))
}

fn layer_error(layer: &Layer, error: LayerError<Error>) -> Error {
    match error {
        LayerError::Damaged(error) => error.in_journal(&layer.name()),
        LayerError::Fetch(error) => error,
    }
}
