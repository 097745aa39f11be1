//! `cudele rm`: names, and with `-r` whole trees: with one request where a server does that, else
//! from the leaves up.

use std::ffi::OsString;
use std::sync::Arc;

use clap::Args as ClapArgs;
use cudele::{Dir, DirEntry, Errno, Error, Fs, Path, Result};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;
use terminal::out::Out;
use terminal::progress::ProgressCounter;

use crate::tree::{Go, Visitor, When};
use crate::{space, tree};

/// Remove names. When the command ends, the removal is as durable as the policy promises. A
/// symbolic link is removed itself, not its target.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele rm /tmp/old.txt
  cudele rm -r /scratch/job        root removes the tree with one request, whatever its size
  cudele rm -r --dry-run /tmp      print what would go, in the order in which it would

A tree that was removed with one request can be kept for a while: see `cudele trash --help`.")]
pub(crate) struct Args {
    /// Directories as well, with everything below
    #[arg(short, long)]
    recursive: bool,
    /// Ignore names that do not exist
    #[arg(short, long)]
    force: bool,
    /// Only print the names
    #[arg(long)]
    dry_run: bool,
    /// What to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Removes names, or prints them.
struct Removal {
    /// Where to print; nothing is removed then.
    out: Option<Out>,
    json: bool,
    progress: ProgressCounter,
    listed: Vec<Value>,
    files: u64,
    directories: u64,
    /// Trees that went with one request each.
    trees: u64,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let mut removal = Removal {
        out: args.dry_run.then(Out::open),
        json: context.json,
        progress: ProgressCounter::new("removed"),
        listed: Vec::new(),
        files: 0,
        directories: 0,
        trees: 0,
    };
    let result = args.paths.iter().try_for_each(|path| one(&fs, args, path, &mut removal));
    let Removal { out, listed, files, directories, trees, .. } = removal;
    match out {
        Some(out) => out.finish().and(result)?,
        None => space::sync_after(&fs, result)?,
    }
    let mut value = json!({
        "dry_run": args.dry_run,
        "files": files,
        "directories": directories,
        "trees": trees,
    });
    if args.dry_run {
        value["would_remove"] = Value::Array(listed);
    }
    context.print(&value, String::new)
}

fn one(fs: &Arc<Fs>, args: &Args, path: &std::ffi::OsStr, removal: &mut Removal) -> Result<()> {
    let path = space::parse(path)?;
    let (above, name) = path.split_last().ok_or_else(|| {
        Error::new(Errno::Invalid, "/", "the root cannot be removed")
            .remedy("name what is in it; `cudele ls /` shows that")
    })?;
    let place = match space::at(fs, path.clone()).and_then(|place| place.existing()) {
        Ok(attr) => attr,
        Err(error) if args.force && error.errno == Errno::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if place.is_dir() && !args.recursive {
        return Err(Error::of(Errno::IsDirectory, path.to_string())
            .remedy("remove it with everything below by `cudele rm -r`"));
    }
    let dir = fs.open_dir(above.to_bytes())?;
    let entry = DirEntry { name: name.to_vec(), attr: place };
    if entry.attr.is_dir() && removal.out.is_none() && dir.discard(name)? {
        removal.progress.step();
        removal.trees += 1;
        return Ok(());
    }
    if entry.attr.is_dir() {
        tree::walk(dir.enter(name, entry.attr.ino)?, removal)?;
        removal.remove(&dir, &entry)
    } else {
        removal.remove(&dir, &entry)
    }
}

impl Removal {
    fn remove(&mut self, dir: &Dir, entry: &DirEntry) -> Result<()> {
        let is_dir = entry.attr.is_dir();
        if self.out.is_some() {
            self.list(&dir.path().join(&entry.name))?;
        } else {
            let removed = if is_dir { dir.rmdir(&entry.name) } else { dir.unlink(&entry.name) };
            match removed {
                // Another client was faster.
                Err(error) if error.errno == Errno::NotFound => {}
                result => result?,
            }
            self.progress.step();
        }
        *(if is_dir { &mut self.directories } else { &mut self.files }) += 1;
        Ok(())
    }

    fn list(&mut self, path: &Path) -> Result<()> {
        let bytes = path.to_bytes();
        if self.json {
            let mut object = Map::new();
            format::put_bytes(&mut object, "path", &bytes);
            self.listed.push(Value::Object(object));
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let mut line = out.name(&bytes).into_owned();
        line.push(b'\n');
        out.write(&line)
    }
}

impl Visitor for Removal {
    fn visit(&mut self, when: When, dir: &Dir, entry: &DirEntry) -> Result<Go> {
        if !entry.attr.is_dir() || when == When::After {
            self.remove(dir, entry)?;
        }
        Ok(if self.out.as_ref().is_some_and(Out::is_gone) { Go::Stop } else { Go::On })
    }
}
