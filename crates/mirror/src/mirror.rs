//! The comparison of both trees, and the steps that end their differences.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

use cudele::{Attr, Dir, Errno, Error, FileType, Fs, Path, Result};

use crate::changed::ChangedNames;
use crate::place::{Content, CopyPlace, is_left_over};
use crate::report::{MirrorCounts, MirrorDeed, MirrorObserver, MirrorOptions};
use crate::step::{Item, Step, is_same_time, step};
use crate::streams::is_same_content;

/// A directory that lies deeper is not copied: each level has two open directories.
const LEVELS_MAX: usize = 400;

/// See the module documentation.
#[derive(Debug)]
pub struct Mirror<'a> {
    fs: Arc<Fs>,
    root: Path,
    copy: CopyPlace,
    options: MirrorOptions,
    observer: &'a mut dyn MirrorObserver,
    counts: MirrorCounts,
    /// For each file with several names, the names that were seen, relative to the root.
    linked: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Those of these files that got several names after the last comparison of everything: further
    /// names may be unknown.
    partial: BTreeSet<u64>,
    /// Everything is being compared.
    is_whole: bool,
}

/// A directory of both trees.
struct Pair<'p> {
    source: &'p Dir,
    /// None if it was not made, because nothing is to be changed.
    copy: Option<&'p CopyPlace>,
    /// Relative to the root.
    name: &'p [u8],
    level: usize,
}

/// A name of the source in a directory of both trees.
struct Entry<'p> {
    name: &'p [u8],
    attr: &'p Attr,
    /// The copy, if there is one.
    there: Option<Item>,
}

/// How closely a name is compared.
#[derive(Clone, Copy, Debug)]
struct NameLook {
    /// With everything below it.
    deep: bool,
    /// By content, too: length and time do not tell whether that is the same.
    reads: bool,
}

impl<'a> Mirror<'a> {
    /// A mirror of the directory `root` in `copy`.
    #[must_use]
    pub fn new(
        fs: Arc<Fs>,
        root: Path,
        copy: CopyPlace,
        options: MirrorOptions,
        observer: &'a mut dyn MirrorObserver,
    ) -> Self {
        let counts = MirrorCounts::default();
        let (linked, partial, is_whole) = (BTreeMap::new(), BTreeSet::new(), false);
        Self { fs, root, copy, options, observer, counts, linked, partial, is_whole }
    }

    /// The deeds so far.
    #[must_use]
    pub fn counts(&self) -> MirrorCounts {
        self.counts
    }

    /// Compares everything, and copies the differences. At the return they are durable.
    ///
    /// Names that cannot be read or written are reported to the observer and left as they are.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` or `EACCES` of the root; `ENOSPC`, `EDQUOT` or `EROFS` of the copy;
    /// `ETIMEDOUT` if the cluster does not answer.
    pub fn whole(&mut self) -> Result<()> {
        self.linked.clear();
        self.partial.clear();
        self.is_whole = true;
        let attr = self.fs.stat(self.root.to_bytes())?;
        let source = self.fs.open_dir(self.root.to_bytes())?;
        let copy = self.copy.descend(b"")?;
        let pair = Pair { source: &source, copy: copy.as_ref(), name: b"", level: 0 };
        let compared = self.compare_dir(&pair, self.options.checksum);
        self.is_whole = false;
        compared?;
        self.set_own(copy.as_ref(), &attr, b"")?;
        self.finish()
    }

    /// Compares the names that changed, and copies the differences. At the return they are durable.
    ///
    /// # Errors
    /// As [`Mirror::whole`].
    pub fn take(&mut self, changed: &ChangedNames) -> Result<()> {
        let mut moved = BTreeSet::new();
        for (from, to) in changed.moves() {
            if self.repeat_move(from, to)? && changed.is_only_binding(to) {
                moved.insert(&**to);
            }
        }
        for (name, change) in changed.names() {
            let is_moved = moved.contains(name);
            let reads = self.options.checksum || (change.bindings > 0 && !is_moved);
            self.compare_name(name, NameLook { deep: change.is_tree, reads })?;
        }
        // After the names: a comparison of everything does not know which content to read.
        let is_known = |ino: &u64| self.linked.contains_key(ino) && !self.partial.contains(ino);
        if changed.is_everything() || !changed.inodes().iter().all(|ino| is_known(&ino.0)) {
            return self.whole();
        }
        for ino in changed.inodes() {
            for name in self.linked.get(&ino.0).cloned().unwrap_or_default() {
                self.compare_name(&name, NameLook { deep: false, reads: self.options.checksum })?;
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        if self.options.dry_run { Ok(()) } else { self.copy.sync() }
    }

    fn path(&self, name: &[u8]) -> Path {
        let names = name.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.fold(self.root.clone(), |path, name| path.join(name))
    }

    /// Gives a directory its attributes, after its entries have their own.
    fn set_own(&mut self, copy: Option<&CopyPlace>, attr: &Attr, name: &[u8]) -> Result<()> {
        let Some(copy) = copy else { return Ok(()) };
        let (wanted, there) = (self.wanted(attr), copy.own()?);
        let is_same = step(&wanted, Some(&there), copy.keeps_owner()) == Step::Nothing;
        if is_same && is_same_time(wanted.mtime, there.mtime) {
            return Ok(());
        }
        self.note(MirrorDeed::Attributes, name);
        if self.options.dry_run { Ok(()) } else { copy.set_own(&wanted) }
    }

    /// Compares the entries of a directory.
    fn compare_dir(&mut self, pair: &Pair<'_>, reads: bool) -> Result<()> {
        let mut wanted = pair.source.list()?;
        wanted.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let present = pair.copy.map_or_else(|| Ok(Vec::new()), CopyPlace::list)?;
        let mut present = present.into_iter().peekable();
        for entry in &wanted {
            while let Some((name, item)) = present.next_if(|(name, _)| *name < entry.name) {
                self.extra(pair, &name, &item)?;
            }
            let there = present.next_if(|(name, _)| *name == entry.name).map(|(_, item)| item);
            let entry = Entry { name: &entry.name, attr: &entry.attr, there };
            self.compare_entry(pair, &entry, NameLook { deep: true, reads })?;
        }
        for (name, item) in present {
            self.extra(pair, &name, &item)?;
        }
        Ok(())
    }

    /// A name of the copy that the source does not have.
    fn extra(&mut self, pair: &Pair<'_>, name: &[u8], item: &Item) -> Result<()> {
        let Some(copy) = pair.copy else { return Ok(()) };
        if !self.options.delete && !is_left_over(name) {
            return Ok(());
        }
        self.note(MirrorDeed::Remove, &below(pair.name, name));
        let done = if self.options.dry_run { Ok(()) } else { copy.remove(name, item.file_type) };
        self.survive(done)
    }

    /// Makes a name of the copy equal to that of the source. A fault of the name is no error.
    fn compare_entry(&mut self, pair: &Pair<'_>, entry: &Entry<'_>, look: NameLook) -> Result<()> {
        self.counts.compared += 1;
        self.observer.compared();
        let done = if entry.attr.is_dir() {
            self.compare_child(pair, entry, look)
        } else {
            self.compare_file(pair, entry, look)
        };
        match done {
            Err(error) if is_gone(&error) && has_vanished(pair.source, entry) => {
                self.counts.vanished += 1;
                Ok(())
            }
            done => self.survive(done),
        }
    }

    fn compare_child(&mut self, pair: &Pair<'_>, entry: &Entry<'_>, look: NameLook) -> Result<()> {
        let name = below(pair.name, entry.name);
        if pair.level >= LEVELS_MAX {
            let cause = format!("lies more than {LEVELS_MAX} directories deep");
            return Err(Error::new(Errno::NameTooLong, self.path(&name).quoted(), cause)
                .remedy("mirror a directory further down"));
        }
        let wanted = self.wanted(entry.attr);
        // Opened first: nothing is changed if it cannot be read.
        let source = pair.source.enter(entry.name, entry.attr.ino)?;
        let is_there = entry.there.is_some_and(|there| there.is_dir());
        if !is_there {
            self.clear_way(pair, entry)?;
            let deed = if entry.there.is_some() { MirrorDeed::Replace } else { MirrorDeed::Make };
            self.note(deed, &name);
            if let Some(copy) = pair.copy.filter(|_| !self.options.dry_run) {
                copy.make_dir(entry.name, &wanted)?;
            }
        }
        let exists = is_there || !self.options.dry_run;
        let copy = pair.copy.filter(|_| exists).map(|copy| copy.enter(entry.name)).transpose()?;
        if look.deep || !is_there {
            let level = pair.level + 1;
            let below = Pair { source: &source, copy: copy.as_ref(), name: &name, level };
            self.compare_dir(&below, look.reads)?;
        }
        match copy {
            Some(copy) if is_there => self.set_own(Some(&copy), entry.attr, &name),
            // Its attributes are a part of the new name.
            Some(copy) => copy.set_own(&wanted),
            None => Ok(()),
        }
    }

    fn compare_file(&mut self, pair: &Pair<'_>, entry: &Entry<'_>, look: NameLook) -> Result<()> {
        let wanted = self.wanted(entry.attr);
        let name = below(pair.name, entry.name);
        if wanted.is_linked() && self.compare_linked(pair, entry, &name)? {
            return Ok(());
        }
        match self.file_step(pair, entry, look)? {
            Step::Nothing => Ok(()),
            Step::Attributes => {
                self.note(MirrorDeed::Attributes, &name);
                let copy = pair.copy.filter(|_| !self.options.dry_run);
                copy.map_or(Ok(()), |copy| copy.set(entry.name, &wanted))
            }
            step @ (Step::Make | Step::Replace) => {
                self.clear_way(pair, entry)?;
                let deed = if step == Step::Make { MirrorDeed::Make } else { MirrorDeed::Replace };
                self.note(deed, &name);
                if let Some(copy) = pair.copy.filter(|_| !self.options.dry_run) {
                    self.counts.bytes += self.write(pair, copy, entry)?;
                }
                Ok(())
            }
        }
    }

    /// The step that makes the copy of a file equal to the file.
    fn file_step(&self, pair: &Pair<'_>, entry: &Entry<'_>, look: NameLook) -> Result<Step> {
        let wanted = &self.wanted(entry.attr);
        let step = step(wanted, entry.there.as_ref(), self.copy.keeps_owner());
        let Some(copy) = pair.copy.filter(|_| look.reads) else { return Ok(step) };
        let is_equal = match (step, wanted.file_type) {
            (Step::Make | Step::Replace, _) => return Ok(step),
            (_, FileType::Regular) => {
                is_same_content(&mut *self.content(pair, entry)?, &mut *copy.read(entry.name)?)?
            }
            (_, FileType::Symlink) => self.target(pair, entry)? == copy.read_link(entry.name)?,
            _ => true,
        };
        Ok(if is_equal { step } else { Step::Replace })
    }

    /// The content of a regular file.
    fn content(&self, pair: &Pair<'_>, entry: &Entry<'_>) -> Result<Box<dyn Read>> {
        let path = pair.source.path().join(entry.name);
        let file = self.fs.walked(&[(&path, entry.attr.ino)], || self.fs.open_file(entry.attr));
        file.map(|file| -> Box<dyn Read> { Box::new(file) })
            .map_err(|error| error.about(path.to_string()))
    }

    /// The target of a symbolic link.
    fn target(&self, pair: &Pair<'_>, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let path = pair.source.path().join(entry.name);
        let ino = entry.attr.ino;
        let target = self.fs.walked(&[(&path, ino)], || self.fs.read_link(ino));
        target.map_err(|error| error.about(path.to_string()))
    }

    /// Gives the copy of a file one more name, if the copy of another name of the file exists.
    fn compare_linked(&mut self, pair: &Pair<'_>, entry: &Entry<'_>, name: &[u8]) -> Result<bool> {
        let ino = entry.attr.ino.0;
        if !self.is_whole && !self.linked.contains_key(&ino) {
            self.partial.insert(ino);
        }
        let names = self.linked.entry(ino).or_default();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_vec());
        }
        let Some(first) = names.first().filter(|first| *first != name).cloned() else {
            return Ok(false);
        };
        // The name may be a former one of the file.
        if self.fs.stat(self.path(&first).to_bytes()).map(|attr| attr.ino) != Ok(entry.attr.ino) {
            return Ok(false);
        }
        let (above, last) = split(&first);
        let wanted = self.wanted(entry.attr);
        let Some(place) = self.copy.descend(above)? else { return Ok(false) };
        let Some(present) = place.look(last)? else { return Ok(false) };
        // Its copy may have failed.
        if step(&wanted, Some(&present), place.keeps_owner()) != Step::Nothing {
            return Ok(false);
        }
        if entry.there.is_some_and(|there| there.inode == present.inode) {
            return Ok(true);
        }
        self.clear_way(pair, entry)?;
        self.note(MirrorDeed::Link, name);
        if let Some(copy) = pair.copy.filter(|_| !self.options.dry_run) {
            copy.link(entry.name, &place, last)?;
        }
        Ok(true)
    }

    /// Removes a directory of the copy where a file is wanted, or a file where a directory is.
    fn clear_way(&mut self, pair: &Pair<'_>, entry: &Entry<'_>) -> Result<()> {
        let (Some(copy), Some(there)) = (pair.copy, entry.there) else { return Ok(()) };
        if there.is_dir() && !self.options.delete {
            let cause = "a directory of the copy is in the way of a file";
            let name = self.path(&below(pair.name, entry.name));
            return Err(Error::new(Errno::IsDirectory, name.quoted(), cause)
                .remedy("remove it, or let --delete do so"));
        }
        if self.options.dry_run || there.is_dir() == entry.attr.is_dir() {
            return Ok(());
        }
        copy.remove(entry.name, there.file_type)
    }

    fn write(&self, pair: &Pair<'_>, copy: &CopyPlace, entry: &Entry<'_>) -> Result<u64> {
        let wanted = self.wanted(entry.attr);
        match wanted.file_type {
            FileType::Regular => {
                let mut content = self.content(pair, entry)?;
                copy.write(entry.name, &wanted, Content::Bytes(&mut *content))
            }
            FileType::Symlink => {
                let target = self.target(pair, entry)?;
                copy.write(entry.name, &wanted, Content::Target(target))
            }
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => copy.write(entry.name, &wanted, Content::Nothing),
        }
    }

    fn wanted(&self, attr: &Attr) -> Item {
        let item = Item::of(attr);
        if self.copy.keeps_owner() { item } else { item.without_owner() }
    }

    /// Moves a name of the copy, if only the source was moved, and returns whether. The comparison
    /// follows.
    fn repeat_move(&mut self, from: &[u8], to: &[u8]) -> Result<bool> {
        let ((from_dir, old), (to_dir, new)) = (split(from), split(to));
        let places = self.copy.descend(from_dir)?.zip(self.copy.descend(to_dir)?);
        let Some((from_place, to_place)) = places else { return Ok(false) };
        if from_place.look(old)?.is_none() || to_place.look(new)?.is_some() {
            return Ok(false);
        }
        self.note(MirrorDeed::Move, to);
        if self.options.dry_run {
            return Ok(false);
        }
        let moved = from_place.rename(old, &to_place, new);
        let is_moved = moved.is_ok();
        self.survive(moved).map(|()| is_moved)
    }

    /// Compares one name, which the source or the copy may have.
    fn compare_name(&mut self, name: &[u8], look: NameLook) -> Result<()> {
        if name.is_empty() {
            return if look.deep { self.whole() } else { self.compare_root() };
        }
        let (above, last) = split(name);
        let path = self.path(above);
        let opened = self.fs.stat(path.to_bytes()).and_then(|attr| {
            let source = self.fs.open_dir(path.to_bytes())?;
            Ok((attr, source))
        });
        let (attr, source) = match opened {
            // The watch reports that change of the directory above.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return self.survive(Err(error)),
            Ok(opened) => opened,
        };
        let Some(copy) = self.copy.descend(above)? else {
            // The directory above is new, too, or could not be copied before.
            return self.compare_name(above, NameLook { deep: true, ..look });
        };
        let level = path.components().count() - self.root.components().count();
        let pair = Pair { source: &source, copy: Some(&copy), name: above, level };
        let there = copy.look(last)?;
        match source.lookup(last) {
            Ok(attr) => {
                let entry = Entry { name: last, attr: &attr, there };
                self.compare_entry(&pair, &entry, look)?;
            }
            Err(error) if is_gone(&error) => {
                if let Some(item) = there {
                    self.extra(&pair, last, &item)?;
                }
            }
            Err(error) => self.survive(Err(error))?,
        }
        self.set_own(Some(&copy), &attr, above)
    }

    /// Compares the attributes of the root.
    fn compare_root(&mut self) -> Result<()> {
        let attr = self.fs.stat(self.root.to_bytes())?;
        let copy = self.copy.descend(b"")?;
        self.set_own(copy.as_ref(), &attr, b"")
    }

    fn note(&mut self, deed: MirrorDeed, name: &[u8]) {
        match deed {
            MirrorDeed::Make | MirrorDeed::Replace | MirrorDeed::Link => self.counts.copied += 1,
            MirrorDeed::Attributes => self.counts.attributes += 1,
            MirrorDeed::Move => self.counts.moved += 1,
            MirrorDeed::Remove => self.counts.removed += 1,
        }
        self.observer.done(deed, name);
    }

    /// Reports the fault of one name, and goes on, unless all further names have the same fault.
    fn survive(&mut self, done: Result<()>) -> Result<()> {
        match done {
            Err(error)
                if !matches!(
                    error.errno,
                    Errno::NoSpace | Errno::Quota | Errno::ReadOnly | Errno::TimedOut
                ) =>
            {
                self.counts.failed += 1;
                self.observer.failed(error);
                Ok(())
            }
            done => done,
        }
    }
}

/// The directory of a relative name, and its last name.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (b"", name),
    }
}

fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Whether a name, or a directory above it, does not exist.
fn is_gone(error: &Error) -> bool {
    matches!(error.errno, Errno::NotFound | Errno::NotDirectory | Errno::Stale)
}

/// Whether a name was removed since it was read, or names another inode.
fn has_vanished(dir: &Dir, entry: &Entry<'_>) -> bool {
    match dir.lookup(entry.name) {
        Ok(attr) => attr.ino != entry.attr.ino,
        Err(error) => is_gone(&error),
    }
}
