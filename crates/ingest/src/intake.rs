//! Bringing a source into the namespace.
//!
//! [`strong()`] makes one request per entry under the policy in force. [`decoupled`] takes the
//! destination for this client, appends everything to its journal and executes the policy. The
//! common part is here: the place of an entry, the attributes that must wait (a directory's times
//! until its content is there), and the measurements.
//!
//! Invariant: nothing is created outside the destination: a parent is always a directory that this
//! intake created or found as a directory, never one that a name leads to by chance.

mod decoupled;
mod dry_run;
mod hollow;
mod late;
mod progress;
mod strong;
mod tally;
mod timed;
mod update;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cudele::{
    Attr, AttrChange, Errno, Error, FileType, Fs, Ino, NewFile, Policy, Result, StripedFile,
};
use types::{Map, Set};

use late::LateAttributes;
use progress::Progress;
pub use tally::{IntakeReport, IntakeTally, LINKS_AND_ATTRIBUTES, Phase};
use timed::Timed;

use crate::source::{EntrySink, Skip, Source, SourceEntry, SourceKind, shown, tree};

/// How to bring something in.
#[derive(Debug, Default)]
pub struct IntakeOptions {
    /// A directory that is left out: the cluster's own.
    pub without: Option<PathBuf>,
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
    /// Leave unchanged entries of the destination.
    pub resume: bool,
    /// Make files whose content the source does not have, with their sizes and one hole.
    pub hollow: bool,
}

/// Where an inode is created.
trait Target {
    /// The destination directory.
    fn root(&self) -> Ino;
    /// Creates; a directory that exists is used.
    fn create(&mut self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<StripedFile>;
    /// The inode of a name; `None` also where the target looks no names up.
    fn existing(&mut self, _: Ino, _: &[u8]) -> Result<Option<Attr>> {
        Ok(None)
    }
    /// The target of a symbolic link that exists.
    fn read_link(&mut self, _: Ino) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// One more name.
    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()>;
    /// Takes a name away again: an archive has it twice.
    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<()>;
    fn set_attr(&mut self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()>;
    /// `home` is the directory of the inode.
    fn set_xattr(&mut self, home: Ino, ino: Ino, name: &[u8], value: &[u8]) -> Result<()>;
    /// How long content in a directory is stored inline.
    fn inline_bytes(&mut self, dir: Ino) -> Result<u32>;
    /// Writes content that is not stored inline.
    fn write(&mut self, made: StripedFile, head: &[u8], rest: &mut dyn Read) -> Result<u64>;
    /// Whether the size is set after the content, because other clients see the file.
    fn size_comes_last(&self) -> bool;
    /// Executes the postponed operations.
    fn flush(&mut self) -> Result<()>;
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Directory(Ino),
    Other(Ino),
}

struct Intake<'t> {
    target: &'t mut dyn Target,
    known: Map<Vec<u8>, Known>,
    /// The directory of the entry before: entries come in runs.
    last: (Vec<u8>, Ino),
    late: LateAttributes,
    /// Attributes of the destination itself, if the source says.
    root: Option<AttrChange>,
    tally: IntakeTally,
    progress: Progress,
    is_root: bool,
    buffer: Vec<u8>,
    /// Whether the destination may have entries already, and the inodes that stay.
    resumes: bool,
    kept: Set<Ino>,
    /// Whether files without their content are made.
    hollow: bool,
}

impl<'t> Intake<'t> {
    fn new(target: &'t mut dyn Target, progress: Progress) -> Self {
        let root = target.root();
        let mut known = Map::default();
        known.insert(Vec::new(), Known::Directory(root));
        Self {
            target,
            known,
            last: (Vec::new(), root),
            late: LateAttributes::default(),
            root: None,
            tally: IntakeTally::default(),
            progress,
            is_root: cudele::own_cred().is_root(),
            buffer: Vec::new(),
            resumes: false,
            kept: Set::default(),
            hollow: false,
        }
    }

    /// The directory at a path; those that the source did not mention are made.
    fn directory_at(&mut self, path: &[u8]) -> Result<Ino> {
        if self.last.0 == path {
            return Ok(self.last.1);
        }
        let ino = match self.known.get(path) {
            Some(Known::Directory(ino)) => *ino,
            Some(Known::Other(_)) => {
                let cause = "an entry would stand below it, but it is no directory";
                return Err(Error::new(Errno::NotDirectory, shown(path), cause));
            }
            None => {
                let (parent, name) = split(path);
                let dir = self.directory_at(parent)?;
                self.create(dir, name, path, &NewFile::directory())?.ino
            }
        };
        self.last = (path.to_vec(), ino);
        Ok(ino)
    }

    fn create(
        &mut self,
        dir: Ino,
        name: &[u8],
        path: &[u8],
        new: &NewFile<'_>,
    ) -> Result<StripedFile> {
        let start = Instant::now();
        let made = self.target.create(dir, name, new);
        self.tally.create += start.elapsed();
        let made = made.map_err(|error| Error { subject: shown(path), ..error })?;
        let ino = made.ino;
        let directory = new.file_type == FileType::Directory;
        let known = if directory { Known::Directory(ino) } else { Known::Other(ino) };
        self.known.insert(path.to_vec(), known);
        self.tally.count(new.file_type);
        Ok(made)
    }

    /// Attributes for a new inode; the owner only root can choose.
    fn new_file<'a>(&self, entry: &SourceEntry<'_>, file_type: FileType) -> NewFile<'a> {
        NewFile {
            file_type,
            permissions: entry.permissions,
            owner: self.is_root.then_some(entry.owner),
            mtime: Some(entry.mtime),
            atime: entry.atime,
            ..NewFile::default()
        }
    }

    fn attributes(&self, entry: &SourceEntry<'_>) -> AttrChange {
        AttrChange {
            mode: Some(entry.permissions),
            uid: self.is_root.then_some(entry.owner.0),
            gid: self.is_root.then_some(entry.owner.1),
            mtime: Some(entry.mtime),
            atime: entry.atime,
            size: None,
        }
    }

    fn directory(&mut self, entry: &SourceEntry<'_>) -> Result<()> {
        let change = self.attributes(entry);
        if entry.path.is_empty() {
            self.root = Some(change);
            let root = self.target.root();
            return self.xattrs(root, root, entry);
        }
        let (parent, name) = split(entry.path);
        let home = self.directory_at(parent)?;
        let ino = match self.known.get(entry.path) {
            Some(Known::Directory(ino)) => *ino,
            Some(Known::Other(_)) => {
                let cause = "the source has it twice, as a directory and as something else";
                return Err(Error::new(Errno::Exists, shown(entry.path), cause));
            }
            None => {
                let mut new = self.new_file(entry, FileType::Directory);
                // Until its content is there, its owner must be able to write to it.
                new.permissions |= 0o700;
                let ino = self.create(home, name, entry.path, &new)?.ino;
                if self.resumes && new.permissions != entry.permissions {
                    // The same for one that was there.
                    let mode = Some(new.permissions);
                    self.set_attr(home, ino, &AttrChange { mode, ..AttrChange::default() })?;
                }
                ino
            }
        };
        self.late.change(home, ino, change);
        self.xattrs(home, ino, entry)
    }

    /// Makes room for an entry that is no directory: its directory, and its name free.
    fn place(&mut self, path: &[u8]) -> Result<Ino> {
        let (parent, name) = split(path);
        let dir = self.directory_at(parent)?;
        match self.known.get(path) {
            None => {}
            Some(Known::Directory(_)) => {
                let cause = "the source has it twice, as a directory and as something else";
                return Err(Error::new(Errno::IsDirectory, shown(path), cause));
            }
            Some(Known::Other(_)) => {
                // Of two entries with one name, the later one counts.
                self.target.unlink(dir, name)?;
                self.known.remove(path);
                self.tally.replaced += 1;
            }
        }
        Ok(dir)
    }

    fn file(&mut self, entry: &SourceEntry<'_>, size: u64, content: &mut dyn Read) -> Result<()> {
        let dir = self.place(entry.path)?;
        let (_, name) = split(entry.path);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut content = Timed { inner: content, spent: Duration::ZERO };
        let limit = u64::from(self.target.inline_bytes(dir)?);
        let head = (&mut content).take(limit + 1).read_to_end(&mut buffer);
        head.map_err(|error| tree::failed(entry.path, &error))?;
        let new = self.new_file(entry, FileType::Regular);
        let ino = if buffer.len() as u64 <= limit {
            let size = buffer.len() as u64;
            let new = NewFile { size, data: &buffer, ..new };
            let made = self.create(dir, name, entry.path, &new)?;
            self.tally.content_bytes += size;
            self.tally.inline_bytes += size;
            made.ino
        } else {
            self.large(entry, dir, &buffer, &NewFile { size, ..new }, &mut content)?
        };
        self.buffer = buffer;
        self.xattrs(dir, ino, entry)
    }

    fn large(
        &mut self,
        entry: &SourceEntry<'_>,
        dir: Ino,
        head: &[u8],
        new: &NewFile<'_>,
        content: &mut Timed<'_>,
    ) -> Result<Ino> {
        let announced = if self.target.size_comes_last() { 0 } else { new.size };
        let new = NewFile { size: announced, ..*new };
        let made = self.create(dir, split(entry.path).1, entry.path, &new)?;
        let ino = made.ino;
        content.spent = Duration::ZERO;
        let start = Instant::now();
        let written = self.target.write(made, head, content);
        let written = written.map_err(|error| error.about(shown(entry.path)))?;
        self.tally.data += start.elapsed().saturating_sub(content.spent);
        self.tally.content_bytes += written;
        self.tally.large += 1;
        if written != announced {
            let change = AttrChange {
                size: Some(written),
                mtime: Some(entry.mtime),
                ..AttrChange::default()
            };
            self.set_attr(dir, ino, &change)?;
        }
        Ok(ino)
    }

    fn set_attr(&mut self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        let start = Instant::now();
        let result = self.target.set_attr(home, ino, change);
        self.tally.attributes += start.elapsed();
        result
    }

    fn xattrs(&mut self, home: Ino, ino: Ino, entry: &SourceEntry<'_>) -> Result<()> {
        for (name, value) in entry.xattrs {
            if entry.kind == SourceKind::Directory && self.late.takes(home, ino, name, value) {
                continue;
            }
            let start = Instant::now();
            self.target.set_xattr(home, ino, name, value)?;
            self.tally.attributes += start.elapsed();
            self.tally.xattrs += 1;
        }
        Ok(())
    }

    fn hard_link(&mut self, entry: &SourceEntry<'_>, first: &[u8]) -> Result<()> {
        let ino = match self.known.get(first) {
            Some(Known::Other(ino)) => *ino,
            Some(Known::Directory(_)) => {
                let cause = format!("is a hard link to {}, which is a directory", shown(first));
                return Err(Error::new(Errno::BadMessage, shown(entry.path), cause));
            }
            None => {
                let cause = format!(
                    "is a hard link to {}, which the source does not contain before it",
                    shown(first)
                );
                return Err(Error::new(Errno::BadMessage, shown(entry.path), cause));
            }
        };
        if first == entry.path {
            return Ok(());
        }
        let dir = self.place(entry.path)?;
        let start = Instant::now();
        let linked = self.target.link(ino, dir, split(entry.path).1);
        self.tally.attributes += start.elapsed();
        linked.map_err(|error| error.about(shown(entry.path)))?;
        self.known.insert(entry.path.to_vec(), Known::Other(ino));
        self.tally.hard_links += 1;
        Ok(())
    }

    /// Everything is created: now sets the postponed attributes. Returns the destination's own
    /// attributes.
    fn finish(&mut self) -> Result<Option<AttrChange>> {
        let start = Instant::now();
        self.tally.xattrs += std::mem::take(&mut self.late).set(self.target)?;
        self.tally.attributes += start.elapsed();
        self.progress.finish();
        Ok(self.root)
    }
}

impl EntrySink for Intake<'_> {
    fn take(&mut self, entry: &SourceEntry<'_>, content: &mut dyn Read) -> Result<()> {
        self.progress.step()?;
        if !matches!(entry.kind, SourceKind::Directory) && self.is_there(entry)? {
            return Ok(());
        }
        match entry.kind {
            SourceKind::Directory => self.directory(entry),
            SourceKind::File { size } => self.file(entry, size, content),
            SourceKind::Hollow { size } => self.hollow(entry, size),
            SourceKind::HardLink(first) => self.hard_link(entry, first),
            SourceKind::Symlink(target) => {
                let dir = self.place(entry.path)?;
                let mut new = self.new_file(entry, FileType::Symlink);
                (new.size, new.data) = (target.len() as u64, target);
                self.create(dir, split(entry.path).1, entry.path, &new).map(|_| ())
            }
            SourceKind::Special { file_type, rdev } => {
                let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
                if device && !self.is_root {
                    let reason = "only root creates devices".to_owned();
                    self.skip(Skip { path: entry.path.to_vec(), reason });
                    return Ok(());
                }
                let dir = self.place(entry.path)?;
                let new = NewFile { rdev, ..self.new_file(entry, file_type) };
                self.create(dir, split(entry.path).1, entry.path, &new).map(|_| ())
            }
        }
    }

    fn skip(&mut self, skip: Skip) {
        self.tally.skipped.push(skip);
    }

    fn policy(&mut self, path: &[u8], text: &str) {
        self.tally.policies.push((path.to_vec(), text.to_owned()));
    }
}

/// The path of the directory, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Brings a source in with one request per entry, under the policy in force at the destination.
///
/// # Errors
/// The first of the source or the namespace, saying how much was done before.
pub fn strong(
    fs: &Arc<Fs>,
    destination: &str,
    source: &Source,
    options: &IntakeOptions,
) -> Result<IntakeReport> {
    let start = Instant::now();
    let mut target = strong::Strong::open(fs, destination)?;
    let progress = Progress::new(Progress::total(source), &options.stop);
    let mut intake = Intake::new(&mut target, progress);
    (intake.resumes, intake.hollow) = (options.resume, options.hollow);
    let read = source.read(options.without.as_deref(), &mut intake);
    let root = read.and_then(|()| intake.finish());
    let tally = intake.tally;
    let root = root.map_err(|error| {
        let done = terminal::figures::count(tally.entries());
        let cause = format!("{} ({done} entries were brought in before)", error.cause);
        let resume = "`cudele ingest --resume` goes on where this ended";
        let remedy = if error.remedy.is_empty() { resume.to_owned() } else { error.remedy };
        Error { cause, remedy, ..error }
    })?;
    if let Some(change) = root {
        target.set_root(&change)?;
    }
    target.finish(tally, start)
}

/// Brings a source in as a job of its own: decouple, append to a journal, carry out the policy. A
/// policy that makes updates visible is completed with the merge and the subtree is released; one
/// that does not leaves it decoupled.
///
/// # Errors
/// The first of the source, the namespace or a mechanism. Before the mechanisms run nothing is
/// visible, and the subtree is given up.
pub fn decoupled(
    fs: &Arc<Fs>,
    destination: &str,
    policy: &Policy,
    source: &Source,
    options: &IntakeOptions,
) -> Result<IntakeReport> {
    let start = Instant::now();
    let total = source.count();
    let mut policy = policy.clone();
    if let Some(total) = total.filter(|_| !policy.hard_limit) {
        policy.allocated_inodes = total.clamp(1, policy::ALLOCATED_INODES_MAX);
    }
    let mut target = decoupled::DecoupledTarget::decouple(fs, destination, &policy)?;
    let progress = Progress::new(total, &options.stop);
    let mut intake = Intake::new(&mut target, progress);
    intake.hollow = options.hollow;
    let read = source.read(options.without.as_deref(), &mut intake);
    let root = read.and_then(|()| intake.finish());
    let tally = intake.tally;
    match root {
        Ok(root) => target.finish(root, tally, start),
        Err(error) => {
            target.give_up()?;
            let cause = format!("{} (nothing was brought in)", error.cause);
            Err(Error { cause, ..error })
        }
    }
}

/// Reads a source and reports the entries that would be brought in.
///
/// # Errors
/// As the real thing, except those that need the namespace.
pub fn nowhere(source: &Source, options: &IntakeOptions) -> Result<IntakeReport> {
    let start = Instant::now();
    let mut target = dry_run::DryRunTarget::default();
    let progress = Progress::new(Progress::total(source), &options.stop);
    let mut intake = Intake::new(&mut target, progress);
    intake.hollow = options.hollow;
    source.read(options.without.as_deref(), &mut intake)?;
    intake.finish()?;
    Ok(IntakeReport::new(intake.tally, start))
}

#[cfg(test)]
mod tests;
