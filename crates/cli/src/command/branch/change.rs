//! Changes of branches. The changes of one command become one layer: all of them or none.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path as LocalPath, PathBuf};

use branches::{Branches, Work};
use clap::Args as ClapArgs;
use cudele::{Attr, Errno, Error, FileType, Ino, NewFile, Path, RenameFlags, Result, Timestamp};
use serde_json::json;
use terminal::context::Context;
use terminal::io;
use types::EntryName;

use crate::space;

/// Make directories in a branch.
#[derive(Debug, ClapArgs)]
pub(super) struct Mkdir {
    /// Make those above as well, and do not mind a directory that exists
    #[arg(short, long)]
    parents: bool,
    /// The branch
    branch: String,
    /// What to make
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

pub(super) fn mkdir(context: &Context, branches: &Branches, args: &Mkdir) -> Result<()> {
    let mut work = branches.work_on(&args.branch)?;
    for path in &args.paths {
        let path = space::parse(path)?;
        if args.parents {
            make_all(&mut work, &path)?;
        } else {
            let Target { dir, name } = Target::of(&mut work, &path)?;
            let made = work.create(dir, &name, &NewFile::directory());
            made.map_err(|error| error.about(path.to_string()))?;
        }
    }
    commit(context, work)
}

fn make_all(work: &mut Work, path: &Path) -> Result<()> {
    let mut at = work.path().clone();
    if !path.starts_with(&at) {
        return work.stat(path).map(drop);
    }
    let mut dir = work.root();
    let above = at.components().len();
    for name in path.components().skip(above) {
        at = at.join(name);
        dir = match work.lookup(dir, name) {
            Ok(attr) if attr.is_dir() => attr.ino,
            Ok(_) => return Err(Error::of(Errno::NotDirectory, at.to_string())),
            Err(error) if error.errno == Errno::NotFound => {
                work.create(dir, name, &NewFile::directory())?
            }
            Err(error) => return Err(error.about(at.to_string())),
        };
    }
    Ok(())
}

/// Copy files and directories of this machine into a branch, a directory with everything below; `-`
/// is standard input. Into DEST if that is a directory, else to that name. A file that exists is
/// replaced.
#[derive(Debug, ClapArgs)]
pub(super) struct Put {
    /// Keep mode and times
    #[arg(short, long)]
    preserve: bool,
    /// The branch
    branch: String,
    /// The sources, then the destination
    #[arg(value_names = ["SOURCE", "DEST"], required = true, num_args = 2..)]
    paths: Vec<OsString>,
}

pub(super) fn put(context: &Context, branches: &Branches, args: &Put) -> Result<()> {
    let Some((dest, sources)) = args.paths.split_last() else { return Ok(()) };
    let mut work = branches.work_on(&args.branch)?;
    let dest = space::parse(dest)?;
    let there = work.walk(&dest)?.1;
    let into = there.filter(Attr::is_dir);
    if sources.len() > 1 && into.is_none() {
        let cause = "several sources need a directory to copy into";
        return Err(Error::new(Errno::NotDirectory, dest.to_string(), cause)
            .remedy("make it with `cudele branch mkdir`, or name one source only"));
    }
    for source in sources {
        if source.as_bytes() == b"-" {
            let Target { dir, name } = Target::of(&mut work, &dest)?;
            if into.is_some() {
                return Err(
                    Error::of(Errno::IsDirectory, dest.to_string()).remedy("name a file in it")
                );
            }
            work.put(dir, &name, &NewFile::default(), &mut std::io::stdin())?;
            continue;
        }
        let local = PathBuf::from(source);
        let target = match into {
            Some(dir) => Target { dir: dir.ino, name: last_name(&local)? },
            None => Target::of(&mut work, &dest)?,
        };
        copy(&mut work, &local, target, args.preserve)?;
    }
    commit(context, work)
}

fn last_name(local: &LocalPath) -> Result<Vec<u8>> {
    let name = local.file_name().map(|name| name.as_bytes().to_vec());
    name.ok_or_else(|| {
        Error::new(Errno::Invalid, local.display().to_string(), "it has no name of its own")
            .remedy("name the destination completely")
    })
}

/// Copies a file, or a directory with everything below it.
fn copy(work: &mut Work, local: &LocalPath, target: Target, preserve: bool) -> Result<()> {
    let mut pending = vec![(local.to_owned(), target)];
    while let Some((local, Target { dir: parent, name })) = pending.pop() {
        let meta = local.symlink_metadata().map_err(|error| io(&local, &error))?;
        let new = new_of(&meta, preserve);
        match new.file_type {
            FileType::Regular => {
                let mut file = File::open(&local).map_err(|error| io(&local, &error))?;
                let source: &mut dyn Read = &mut file;
                work.put(parent, &name, &new, source)
                    .map_err(|error| error.about(local.display().to_string()))?;
            }
            FileType::Directory => {
                let dir = match work.create(parent, &name, &new) {
                    Err(error) if error.errno == Errno::Exists => {
                        let there = work.lookup(parent, &name)?;
                        if !there.is_dir() {
                            return Err(Error::of(
                                Errno::NotDirectory,
                                String::from_utf8_lossy(&name),
                            ));
                        }
                        there.ino
                    }
                    made => made?,
                };
                let mut children: Vec<OsString> = Vec::new();
                for entry in local.read_dir().map_err(|error| io(&local, &error))? {
                    children.push(entry.map_err(|error| io(&local, &error))?.file_name());
                }
                children.sort_unstable_by(|a, b| b.cmp(a));
                let child =
                    |name: OsString| (local.join(&name), Target { dir, name: name.into_vec() });
                pending.extend(children.into_iter().map(child));
            }
            FileType::Symlink => {
                let target = local.read_link().map_err(|error| io(&local, &error))?;
                let target = target.into_os_string().into_vec();
                remove_file(work, parent, &name)?;
                work.create(
                    parent,
                    &name,
                    &NewFile { mtime: new.mtime, ..NewFile::symlink(&target) },
                )?;
            }
            FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
                remove_file(work, parent, &name)?;
                work.create(parent, &name, &new)?;
            }
        }
    }
    Ok(())
}

fn new_of(meta: &Metadata, preserve: bool) -> NewFile<'static> {
    let file_type = FileType::from_mode(meta.mode()).unwrap_or_default();
    let mask = if preserve { 0o7777 } else { 0o777 };
    let mtime = preserve.then(|| Timestamp::from_parts(meta.mtime(), meta.mtime_nsec()));
    let rdev = u32::try_from(meta.rdev()).unwrap_or_default();
    NewFile { file_type, permissions: meta.mode() & mask, mtime, rdev, ..NewFile::default() }
}

fn remove_file(work: &mut Work, parent: Ino, name: &[u8]) -> Result<()> {
    match work.lookup(parent, name) {
        Ok(there) if !there.is_dir() => work.unlink(parent, name),
        Ok(_) => Err(Error::of(Errno::IsDirectory, String::from_utf8_lossy(name))),
        Err(error) if error.errno == Errno::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Move or rename in a branch: into DEST if it is a directory, else to that name, which is
/// replaced.
#[derive(Debug, ClapArgs)]
pub(super) struct Mv {
    /// Fail if the new name exists
    #[arg(short = 'n', long)]
    no_replace: bool,
    /// The branch
    branch: String,
    /// What to move
    source: OsString,
    /// Where to
    dest: OsString,
}

pub(super) fn mv(context: &Context, branches: &Branches, args: &Mv) -> Result<()> {
    let mut work = branches.work_on(&args.branch)?;
    let (from, mut to) = (space::parse(&args.source)?, space::parse(&args.dest)?);
    if work.walk(&to)?.1.is_some_and(|attr| attr.is_dir())
        && let Some((_, name)) = from.split_last()
    {
        to = to.join(name);
    }
    let (from, to) = (Target::of(&mut work, &from)?, Target::of(&mut work, &to)?);
    let flags = RenameFlags { no_replace: args.no_replace, exchange: false };
    work.rename(from.as_name(), to.as_name(), flags)?;
    commit(context, work)
}

/// Remove names in a branch. (`cudele branch delete` removes a branch.)
#[derive(Debug, ClapArgs)]
pub(super) struct Rm {
    /// Directories as well, with everything below
    #[arg(short, long)]
    recursive: bool,
    /// The branch
    branch: String,
    /// What to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

pub(super) fn rm(context: &Context, branches: &Branches, args: &Rm) -> Result<()> {
    let mut work = branches.work_on(&args.branch)?;
    for path in &args.paths {
        let path = space::parse(path)?;
        let attr = work.stat(&path)?;
        let target = Target::of(&mut work, &path)?;
        if !attr.is_dir() {
            work.unlink(target.dir, &target.name)?;
            continue;
        }
        if !args.recursive {
            return Err(Error::of(Errno::IsDirectory, path.to_string())
                .remedy("remove it with everything below by `cudele branch rm -r`"));
        }
        remove_tree(&mut work, target, attr.ino)?;
    }
    commit(context, work)
}

/// From the leaves up.
fn remove_tree(work: &mut Work, top: Target, dir: Ino) -> Result<()> {
    let entries = |work: &mut Work, dir| work.list(dir).map(Vec::into_iter);
    let mut levels = vec![(top.dir, top.name, dir, entries(work, dir)?)];
    while let Some((parent, name, dir, left)) = levels.last_mut() {
        let (parent, dir) = (*parent, *dir);
        match left.next() {
            Some(entry) if entry.attr.is_dir() => {
                let below = entries(work, entry.attr.ino)?;
                levels.push((dir, entry.name, entry.attr.ino, below));
            }
            Some(entry) => work.unlink(dir, &entry.name)?,
            None => {
                let name = std::mem::take(name);
                work.rmdir(parent, &name)?;
                levels.pop();
            }
        }
    }
    Ok(())
}

/// The name that a command changes: the last one of a path.
struct Target {
    dir: Ino,
    name: Vec<u8>,
}

impl Target {
    fn of(work: &mut Work, path: &Path) -> Result<Self> {
        let (above, name) = path.split_last().filter(|_| path != work.path()).ok_or_else(|| {
            Error::new(Errno::Invalid, path.to_string(), "the directory that a branch is of stays")
                .remedy("name something in it")
        })?;
        let attr = work.stat(&above)?;
        if attr.is_dir() {
            Ok(Self { dir: attr.ino, name: name.to_vec() })
        } else {
            Err(Error::of(Errno::NotDirectory, above.to_string()))
        }
    }

    fn as_name(&self) -> EntryName<'_> {
        EntryName::new(self.dir, &self.name)
    }
}

fn commit(context: &Context, mut work: Work) -> Result<()> {
    let events = work.commit()?;
    context.print(&json!({ "events": events }), String::new)
}
