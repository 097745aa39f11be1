//! `cudele find`: names below a directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Attr, Dir, DirEntry, Error, FileType, Fs, Path, Result};
use serde_json::{Map, Value};
use terminal::context::Context;
use terminal::format;
use terminal::out::Out;

use crate::glob::Glob;
use crate::tree::{Faults, Go, Visitor, When};
use crate::{space, tree};

/// Print PATH and everything below it, a directory before its content, sorted. With --json, one
/// object per line.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele find /src --name '*.[ch]' --type f
  cudele find / -0 --type l | xargs -0 -n 1 cudele stat

In a pattern, * is any bytes, ? a character, [a-z] and [!a-z] one of a set.")]
pub(crate) struct Args {
    /// Only names that match a pattern
    #[arg(long, value_name = "GLOB")]
    name: Option<OsString>,
    /// Only this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// End each path with a NUL byte instead of a newline
    #[arg(short = '0', long = "print0", visible_alias = "null")]
    null: bool,
    /// Where to begin [default: the root]
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Regular files
    F,
    /// Directories
    D,
    /// Symbolic links
    L,
}

struct Search<'a> {
    fs: Arc<Fs>,
    args: &'a Args,
    glob: Option<Glob>,
    json: bool,
    out: Out,
    faults: Faults,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, &args.path)?;
    let attr = place.existing()?;
    let glob = args.name.as_ref().map(|pattern| Glob::new(pattern.as_bytes()));
    let (out, faults) = (Out::open(), Faults::default());
    let mut search = Search { fs: fs.clone(), args, glob, json: context.json, out, faults };
    search.consider(&place.path, &place.name(), &attr)?;
    if attr.is_dir() {
        tree::walk(fs.open_dir(place.path.to_bytes())?, &mut search)?;
    }
    search.out.finish()?;
    search.faults.result()
}

impl Search<'_> {
    fn consider(&mut self, path: &Path, name: &[u8], attr: &Attr) -> Result<()> {
        let wanted = match self.args.kind {
            None => true,
            Some(Kind::F) => attr.file_type() == FileType::Regular,
            Some(Kind::D) => attr.is_dir(),
            Some(Kind::L) => attr.file_type() == FileType::Symlink,
        };
        if !wanted || self.glob.as_ref().is_some_and(|glob| !glob.matches(name)) {
            return Ok(());
        }
        let mut line = if self.json {
            self.to_json(path, name, attr)?.to_string().into_bytes()
        } else if self.args.null {
            path.to_bytes()
        } else {
            self.out.name(&path.to_bytes()).into_owned()
        };
        line.push(if self.args.null && !self.json { 0 } else { b'\n' });
        self.out.write(&line)
    }

    fn to_json(&self, path: &Path, name: &[u8], attr: &Attr) -> Result<Value> {
        let mut object = Map::new();
        format::put_bytes(&mut object, "path", &path.to_bytes());
        format::put_bytes(&mut object, "name", name);
        format::put_attr(&mut object, attr);
        if let Some(target) = space::link_target(&self.fs, path, attr)? {
            format::put_bytes(&mut object, "target", &target);
        }
        Ok(Value::Object(object))
    }
}

impl Visitor for Search<'_> {
    fn visit(&mut self, when: When, dir: &Dir, entry: &DirEntry) -> Result<Go> {
        if when == When::Before {
            self.consider(&dir.path().join(&entry.name), &entry.name, &entry.attr)?;
        }
        Ok(if self.out.is_gone() { Go::Stop } else { Go::On })
    }

    fn fault(&mut self, error: Error) -> Result<()> {
        self.faults.note(error);
        Ok(())
    }
}
