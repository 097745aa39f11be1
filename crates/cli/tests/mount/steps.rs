//! One step of the model test: an operation of a program on a file system, and the answer as far as
//! two file systems must agree about it.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result};

/// A path below the directory of the test.
pub(crate) type Name = &'static str;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Create(Name, u32),
    MakeDir(Name, u32),
    Symlink(Name, Name),
    Fifo(Name),
    Link(Name, Name),
    Unlink(Name),
    RemoveDir(Name),
    Rename(Name, Name),
    Move(Name, Name),
    Exchange(Name, Name),
    Mode(Name, u32),
    Owner(Name, u32),
    Times(Name, i64),
    Truncate(Name, u64),
    Read(Name),
    Stat(Name),
    List(Name),
    Open(usize, Name, How),
    /// With a file that was opened there.
    With(usize, Use),
}

/// An operation on an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Close,
    Write(u64, usize, u8),
    Read(u64, usize),
    Resize(u64),
    Sync,
    Stat,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Read,
    Write,
    Create,
    Truncate,
    Append,
}

/// Files that are open in one place.
pub(crate) type Files = [Option<File>; OPEN_MAX];
pub(crate) const OPEN_MAX: usize = 4;

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    /// Mode, links, user, group, length (of directories 0).
    Stat(u32, u64, u32, u32, u64),
    /// Of the last modification.
    Time(i64, i64),
}

/// Takes the step in one place.
pub(crate) fn take(root: &Path, files: &mut Files, step: Step) -> Result<Answer> {
    let at = |name: Name| root.join(name);
    let bits = Mode::from_raw_mode;
    let result = match step {
        Step::Open(slot, name, how) => {
            // A handle on a directory is dropped: no step uses one, and its state after a removal
            // is not promised.
            let is_file = |file: &File| file.metadata().is_ok_and(|of| of.is_file());
            open(&at(name), flags(how), 0o644).map(|file| files[slot] = Some(file).filter(is_file))
        }
        Step::Read(name) => return read(&at(name)).map(Answer::Bytes),
        Step::List(name) => return list(&at(name)).map(Answer::Names),
        Step::Stat(name) => return io(std::fs::symlink_metadata(at(name))).map(|of| stat(&of)),
        Step::Times(name, seconds) => return set_times(&at(name), seconds),
        Step::Create(name, mode) => {
            open(&at(name), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode).map(drop)
        }
        Step::MakeDir(name, mode) => rustix::fs::mkdir(at(name), bits(mode)),
        Step::Symlink(target, name) => rustix::fs::symlink(target, at(name)),
        Step::Fifo(name) => rustix::fs::mknodat(CWD, at(name), FileType::Fifo, bits(0o640), 0),
        Step::Link(old, new) => rustix::fs::link(at(old), at(new)),
        Step::Unlink(name) => rustix::fs::unlink(at(name)),
        Step::RemoveDir(name) => rustix::fs::rmdir(at(name)),
        Step::Rename(old, new) => rename(&at(old), &at(new), RenameFlags::empty()),
        Step::Move(old, new) => rename(&at(old), &at(new), RenameFlags::NOREPLACE),
        Step::Exchange(old, new) => rename(&at(old), &at(new), RenameFlags::EXCHANGE),
        Step::Mode(name, mode) => rustix::fs::chmod(at(name), bits(mode)),
        Step::Owner(name, user) => {
            let user = Some(Uid::from_raw(user));
            rustix::fs::chownat(CWD, at(name), user, None, AtFlags::SYMLINK_NOFOLLOW)
        }
        Step::Truncate(name, length) => {
            open(&at(name), OFlags::WRONLY, 0).and_then(|file| io(file.set_len(length)))
        }
        Step::With(slot, how) => return take_open(&mut files[slot], how),
    };
    result.map(|()| Answer::Done)
}

/// With an open file.
fn take_open(place: &mut Option<File>, how: Use) -> Result<Answer> {
    let Some(file) = place else { return Ok(Answer::Done) };
    let result = match how {
        Use::Write(offset, length, byte) => file.write_all_at(&vec![byte; length], offset),
        Use::Read(offset, length) => {
            let mut bytes = vec![0; length];
            let read = io(file.read_at(&mut bytes, offset))?;
            bytes.truncate(read);
            return Ok(Answer::Bytes(bytes));
        }
        Use::Resize(length) => file.set_len(length),
        Use::Sync => file.sync_all(),
        Use::Stat => return io(file.metadata()).map(|of| stat(&of)),
        Use::Close => {
            *place = None;
            Ok(())
        }
    };
    io(result).map(|()| Answer::Done)
}

/// Everything below a directory: names, attributes, and content; without content where the test
/// demands that.
pub(crate) fn tree(root: &Path, skip: &dyn Fn(&Metadata) -> bool) -> Vec<(String, Answer, Answer)> {
    let mut all = Vec::new();
    for entry in walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name() {
        let entry = entry.expect("a tree that nobody changes");
        let found = std::fs::symlink_metadata(entry.path()).expect("there");
        let name = entry.path().strip_prefix(root).expect("below").display().to_string();
        let content = if found.is_symlink() {
            let target = std::fs::read_link(entry.path()).expect("a link");
            Answer::Bytes(target.as_os_str().as_bytes().to_vec())
        } else if found.is_file() {
            read(entry.path()).map_or_else(|error| panic!("{name}: {error}"), Answer::Bytes)
        } else {
            Answer::Done
        };
        let kept = !skip(&found);
        let unknown = (Answer::Done, Answer::Done);
        let (stat, content) = if kept { (stat(&found), content) } else { unknown };
        all.push((name, stat, content));
    }
    all
}

fn io<T>(result: std::io::Result<T>) -> Result<T> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Without waiting for the other end of a FIFO.
fn open(path: &Path, flags: OFlags, mode: u32) -> Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(mode)).map(File::from)
}

fn flags(how: How) -> OFlags {
    match how {
        How::Read => OFlags::RDONLY,
        How::Write => OFlags::RDWR,
        How::Create => OFlags::RDWR | OFlags::CREATE,
        How::Truncate => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        How::Append => OFlags::RDWR | OFlags::APPEND,
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io(open(path, OFlags::RDONLY, 0)?.read_to_end(&mut bytes))?;
    Ok(bytes)
}

fn list(path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in io(std::fs::read_dir(path))? {
        let entry = io(entry)?;
        let file_type = io(entry.file_type())?;
        names.push(format!("{} {file_type:?}", entry.file_name().display()));
    }
    names.sort();
    Ok(names)
}

fn set_times(path: &Path, seconds: i64) -> Result<Answer> {
    let time = Timespec { tv_sec: seconds, tv_nsec: 7 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    let found = io(std::fs::symlink_metadata(path))?;
    Ok(Answer::Time(found.mtime(), found.mtime_nsec()))
}

fn rename(old: &Path, new: &Path, flags: RenameFlags) -> Result<()> {
    rustix::fs::renameat_with(CWD, old, CWD, new, flags)
}

fn stat(found: &Metadata) -> Answer {
    let length = if found.is_dir() { 0 } else { found.len() };
    Answer::Stat(found.mode(), found.nlink(), found.uid(), found.gid(), length)
}
