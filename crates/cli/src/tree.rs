//! Walking a directory tree of the namespace.
//!
//! Names of a directory are visited in their order as bytes, a directory before its content and
//! again after it. The walk keeps its place itself, so depth costs no stack.
//!
//! Invariant: a directory is skipped only if the directory above it, or one further up, shows that
//! the name is gone or names another inode. Every other fault either ends the walk or, if that was
//! asked for, is reported to the caller, which continues.

use std::vec::IntoIter;

use cudele::{Dir, DirEntry, Errno, Error, Result};

/// When a visit happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the content of the entry; the only visit of an entry that is no directory.
    Before,
    /// After the content of the directory.
    After,
}

/// The next step after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    /// Go on.
    On,
    /// End the walk.
    Stop,
}

/// A directory that is being walked.
struct Level {
    dir: Dir,
    entries: IntoIter<DirEntry>,
    /// Its own entry in the level above; none for the start.
    own: Option<DirEntry>,
}

impl Level {
    fn open(dir: Dir) -> Result<Self> {
        let entries = sorted(&dir)?.into_iter();
        Ok(Self { dir, entries, own: None })
    }

    /// Opens the directory under an entry of this one.
    fn enter(&self, entry: &DirEntry) -> Result<Self> {
        Self::open(self.dir.enter(&entry.name, entry.attr.ino)?)
    }

    /// Whether a name was removed since this directory was listed, or was given to another inode.
    fn lost(&self, entry: &DirEntry) -> Result<bool> {
        match self.dir.lookup(&entry.name) {
            Ok(attr) => Ok(attr.ino != entry.attr.ino),
            Err(error) if error.errno == Errno::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether a directory could not be opened because it, or one above it, was removed or renamed
/// since it was listed. A directory that was not found is not absent for that alone: the server
/// may have evicted it.
///
/// # Errors
/// If no directory of the walk can say so: then the start itself is gone, or a server does not
/// answer.
fn is_gone(levels: &[Level], entry: &DirEntry, error: &Error) -> Result<bool> {
    if !matches!(error.errno, Errno::NotFound | Errno::Stale) {
        return Ok(false);
    }
    let mut entry = entry;
    for level in levels.iter().rev() {
        match level.lost(entry) {
            Err(error) if error.errno == Errno::Stale => {}
            lost => return lost,
        }
        let Some(own) = &level.own else { break };
        entry = own;
    }
    Ok(false)
}

/// The entries of a directory, sorted by name.
pub(crate) fn sorted(dir: &Dir) -> Result<Vec<DirEntry>> {
    let mut entries = dir.list()?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Receives entries and faults.
pub(crate) trait Visitor {
    /// An entry of a directory.
    ///
    /// # Errors
    /// Ends the walk with the error.
    fn visit(&mut self, when: When, dir: &Dir, entry: &DirEntry) -> Result<Go>;

    /// A directory that could not be read. Returning it ends the walk, which is the default.
    ///
    /// # Errors
    /// As it decides.
    fn fault(&mut self, error: Error) -> Result<()> {
        Err(error)
    }
}

/// Visits everything below a directory, but not the directory itself.
///
/// # Errors
/// Those of the visitor; `EACCES`, `EBUSY` and so on of the directory itself.
pub(crate) fn walk(start: Dir, visitor: &mut impl Visitor) -> Result<()> {
    let mut levels = vec![Level::open(start)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.next() else {
            let own = levels.pop().and_then(|level| level.own);
            if let (Some(above), Some(own)) = (levels.last(), own)
                && visitor.visit(When::After, &above.dir, &own)? == Go::Stop
            {
                return Ok(());
            }
            continue;
        };
        if visitor.visit(When::Before, &level.dir, &entry)? == Go::Stop {
            return Ok(());
        }
        if !entry.attr.is_dir() {
            continue;
        }
        match level.enter(&entry) {
            Ok(below) => levels.push(Level { own: Some(entry), ..below }),
            Err(error) => {
                if !is_gone(&levels, &entry, &error)? {
                    visitor.fault(error)?;
                }
            }
        }
    }
    Ok(())
}

/// Remembers that directories could not be read, having said so: for walks that go on.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    count: u64,
    first: Option<Error>,
}

impl Faults {
    /// Reports a fault on standard error.
    pub(crate) fn note(&mut self, error: Error) {
        if self.count > 0 {
            eprintln!("cudele: {error}");
        }
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// The first fault, which the command fails with in the end.
    pub(crate) fn result(self) -> Result<()> {
        self.first.map_or(Ok(()), Err)
    }
}
