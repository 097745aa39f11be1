//! From a branch to the lines of its dump.
//!
//! Invariant: the memory that a walk takes is bounded by its largest directory and
//! [`VIEW_ENTRIES_MAX`], not by the size of the tree.

use branches::{Branches, SnapshotView};
use cudele::{Attr, DirEntry, Errno, Error, FileType, Ino, Path, Result};
use terminal::progress::ProgressCounter;
use types::{INLINE_BYTES_MAX, Map};

use super::file::DumpProgress;
use super::line::text;
use super::{DumpEnd, DumpFile, DumpLine, DumpSkip, DumpedXattr};
use crate::source::shown;

/// Entries of a directory that are listed at once.
const PAGE_ENTRIES: usize = 4096;
/// A view remembers each directory that it reads. A new view follows after so many entries.
const VIEW_ENTRIES_MAX: usize = 1 << 20;

/// The branch that a dump is of.
#[derive(Clone, Debug)]
pub struct DumpSource {
    /// The branches of the store.
    pub branches: Branches,
    /// The name of the branch.
    pub name: String,
}

/// A directory in the middle of its entries.
struct Open {
    path: Vec<u8>,
    ino: Ino,
    /// The view in which it was seen.
    view: u64,
    /// The last entry of the page.
    after: Option<Vec<u8>>,
    page: std::vec::IntoIter<DirEntry>,
    is_last_page: bool,
}

struct Walk<'s> {
    source: &'s DumpSource,
    root: Path,
    view: SnapshotView,
    /// Counts the views; and the entries that the present one has listed.
    views: u64,
    listed: usize,
    /// How often the branch was changed: the walk fails after a change.
    changes: u64,
    open: Vec<Open>,
    links: Map<Ino, Vec<u8>>,
    entries: u64,
    /// Lines of names that could not be read, those of an earlier process included.
    skip_lines: u64,
    /// The faults of this process, of which the file has the first so many.
    skipped: Vec<Error>,
    noted: usize,
}

/// Writes the names of a branch behind those that the file has. Returns what could not be read.
///
/// # Errors
/// The system's about the file; `ESTALE` if the branch is changed during the walk.
pub fn dump(
    source: &DumpSource,
    to: &mut DumpFile,
    progress: Option<&DumpProgress>,
) -> Result<(DumpEnd, Vec<Error>)> {
    let mut walk = Walk::new(source)?;
    match progress {
        Some(progress) => walk.continue_behind(progress)?,
        None => walk.begin(to)?,
    }
    let mut bar = ProgressCounter::new("dumped");
    while let Some(entry) = walk.next() {
        bar.step();
        walk.write(to, &entry)?;
        walk.note_skipped(to)?;
    }
    drop(bar);
    walk.note_skipped(to)?;
    walk.check()?;
    let end = DumpEnd { entries: walk.entries, skipped: walk.skip_lines, end: true };
    to.finish(end)?;
    Ok((end, walk.skipped))
}

impl<'s> Walk<'s> {
    fn new(source: &'s DumpSource) -> Result<Self> {
        let info = source.branches.get(&source.name)?;
        let view = source.branches.view(&[&source.name])?;
        let root = view.path().clone();
        Ok(Self {
            source,
            root,
            view,
            views: 0,
            listed: 0,
            changes: info.branch.changes,
            open: Vec::new(),
            links: Map::default(),
            entries: 0,
            skip_lines: 0,
            skipped: Vec::new(),
            noted: 0,
        })
    }

    /// Writes the line of the root.
    fn begin(&mut self, to: &mut DumpFile) -> Result<()> {
        let root = self.view.root();
        let attr = self.view.attr(root)?;
        self.push(Vec::new(), root, None);
        let line = DumpLine::new(b"", &attr);
        self.entries += 1;
        to.push(&line)
    }

    fn push(&mut self, path: Vec<u8>, ino: Ino, after: Option<Vec<u8>>) {
        let page = Vec::new().into_iter();
        self.open.push(Open { path, ino, view: self.views, after, page, is_last_page: false });
    }

    /// Opens the directories on the way to the last entry of an interrupted dump, each behind the
    /// entry that leads there.
    fn continue_behind(&mut self, progress: &DumpProgress) -> Result<()> {
        (self.entries, self.skip_lines) = (progress.entries, progress.skipped);
        self.links = progress.links.clone();
        let Some(last) = &progress.last else {
            let root = self.view.root();
            self.push(Vec::new(), root, None);
            return Ok(());
        };
        let names: Vec<&[u8]> =
            last.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut path = Vec::new();
        for (depth, name) in names.iter().enumerate() {
            let ino = self.seen(&path)?;
            self.push(path.clone(), ino, Some(name.to_vec()));
            if depth > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        if last.is_directory {
            let ino = self.seen(&path)?;
            self.push(path, ino, None);
        }
        Ok(())
    }

    /// The inode at a path, which the present view has seen then.
    fn seen(&mut self, path: &[u8]) -> Result<Ino> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let whole = names.fold(self.root.clone(), |path, name| path.join(name));
        self.view.stat(&whole).map(|attr| attr.ino)
    }

    /// The next entry in depth-first order, or `None` at the end of the root.
    fn next(&mut self) -> Option<DumpedName> {
        loop {
            let open = self.open.last_mut()?;
            if let Some(entry) = open.page.next() {
                let mut path = open.path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&entry.name);
                let found = DumpedName { path, attr: entry.attr, view: open.view };
                if found.attr.is_dir() {
                    self.push(found.path.clone(), found.attr.ino, None);
                }
                return Some(found);
            }
            if open.is_last_page {
                self.open.pop();
            } else if let Err(error) = self.turn() {
                let path = self.open.pop().map(|open| open.path).unwrap_or_default();
                self.skip(&path, error);
            }
        }
    }

    fn skip(&mut self, path: &[u8], error: Error) {
        self.skipped.push(Error { subject: shown(path), ..error });
    }

    /// Writes the faults that the file does not have yet.
    fn note_skipped(&mut self, to: &mut DumpFile) -> Result<()> {
        for error in &self.skipped[self.noted..] {
            let (not_dumped, reason) = (error.subject.clone(), error.cause.clone());
            to.push(&DumpSkip { not_dumped, reason })?;
            self.skip_lines += 1;
        }
        self.noted = self.skipped.len();
        Ok(())
    }

    /// Lists the next page of the innermost directory.
    fn turn(&mut self) -> Result<()> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        let result = self.list(&mut open);
        self.open.push(open);
        result
    }

    fn list(&mut self, open: &mut Open) -> Result<()> {
        if open.after.is_none() && self.listed >= VIEW_ENTRIES_MAX {
            self.renew()?;
        }
        if open.view != self.views {
            (open.ino, open.view) = (self.seen(&open.path)?, self.views);
        }
        let page = self.view.page(open.ino, open.after.as_deref(), PAGE_ENTRIES)?;
        self.listed += page.len();
        open.is_last_page = page.len() < PAGE_ENTRIES;
        open.after = page.last().map(|entry| entry.name.clone());
        open.page = page.into_iter();
        Ok(())
    }

    /// Makes the view anew, because it remembers too much.
    fn renew(&mut self) -> Result<()> {
        self.check()?;
        self.view = self.source.branches.view(&[&self.source.name])?;
        self.views += 1;
        self.listed = 0;
        Ok(())
    }

    fn write(&mut self, to: &mut DumpFile, entry: &DumpedName) -> Result<()> {
        // The page is of an older view: the present one must see the inode before a question.
        let seen = if entry.view == self.views { Ok(()) } else { self.seen(&entry.path).map(drop) };
        match seen.and_then(|()| self.line(entry)) {
            Ok(line) => {
                to.push(&line)?;
                self.entries += 1;
            }
            Err(error) => {
                // A further name must not refer to a line that is not there.
                self.links.retain(|_, first| *first != entry.path);
                self.skip(&entry.path, error);
            }
        }
        Ok(())
    }

    /// Whether the branch is still the same.
    fn check(&self) -> Result<()> {
        let now = self.source.branches.get(&self.source.name)?.branch.changes;
        if now == self.changes {
            return Ok(());
        }
        let cause = "the branch was changed while it was dumped";
        Err(Error::new(Errno::Stale, self.source.name.clone(), cause)
            .remedy("dump a branch of it: `cudele branch create NAME --from BRANCH`"))
    }

    fn line<'e>(&mut self, entry: &'e DumpedName) -> Result<DumpLine<'e>> {
        let DumpedName { path, attr, .. } = entry;
        let ino = attr.ino;
        let mut line = DumpLine::new(path, attr);
        if !attr.is_dir() && attr.nlink > 1 {
            match self.links.get(&ino) {
                Some(first) => {
                    let (first, digits) = text(first);
                    (line.same_as, line.same_as_hex) = (Some(first.into_owned().into()), digits);
                    return Ok(line);
                }
                None => {
                    self.links.insert(ino, path.clone());
                }
            }
        }
        match attr.file_type() {
            FileType::Regular if attr.size > 0 && attr.size <= INLINE_BYTES_MAX as u64 => {
                let data = self.view.inline(ino)?;
                line.data_hex = (!data.is_empty()).then(|| types::hex::encode(&data).into());
            }
            FileType::Symlink => {
                let target = self.view.inline(ino)?;
                let (target, digits) = text(&target);
                (line.target, line.target_hex) = (Some(target.into_owned().into()), digits);
            }
            FileType::Directory => {
                line.policy = self.view.own_policy(ino)?.map(Into::into);
            }
            FileType::Regular
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => {}
        }
        for name in self.view.xattrs(ino)? {
            let value_hex = types::hex::encode(&self.view.xattr(ino, &name)?);
            match String::from_utf8(name) {
                Ok(name) => line.xattrs.push(DumpedXattr { name, value_hex }),
                Err(name) => {
                    let name = shown(name.as_bytes());
                    let cause = format!("the name of its attribute {name} is not UTF-8");
                    self.skip(path, Error::new(Errno::Invalid, "", cause));
                }
            }
        }
        Ok(line)
    }
}

/// A name and its inode.
struct DumpedName {
    path: Vec<u8>,
    attr: Attr,
    /// The view that listed it.
    view: u64,
}
