//! Reading branches.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use branches::{Branches, SnapshotView};
use clap::Args as ClapArgs;
use cudele::{Attr, DirEntry, Errno, Error, Ino, Path, Result};
use serde_json::{Map, Value};
use terminal::context::Context;
use terminal::format;
use terminal::out::Out;

use super::{split, to_json};
use crate::glob::Glob;
use crate::space;

/// List the branches. With BRANCH: list a directory in it. Of several branches, as in `a,b,c`, the
/// later ones are on top of the earlier: a name in several of them counts as the last one has it.
#[derive(Debug, ClapArgs)]
pub(super) struct Ls {
    /// Mode, links, owner, group, size, time of last change and target
    #[arg(short)]
    long: bool,
    /// One branch, or several on top of each other
    #[arg(value_name = "BRANCH[,BRANCH...]")]
    names: Option<String>,
    /// The path to list [default: the directory that the branch is of]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
}

pub(super) fn ls(context: &Context, branches: &Branches, args: &Ls) -> Result<()> {
    let Some(names) = &args.names else { return list(context, branches) };
    let mut view = branches.view(&split(names))?;
    let path = match &args.path {
        Some(path) => space::parse(path)?,
        None => view.path().clone(),
    };
    let attr = view.stat(&path)?;
    let entries = if attr.is_dir() {
        let entries = view.list(attr.ino)?;
        entries.into_iter().map(|entry| (path.join(&entry.name), entry)).collect()
    } else {
        let name = path.to_bytes();
        vec![(path.clone(), DirEntry { name, attr })]
    };
    let mut out = Out::open();
    let mut rows = Vec::new();
    for (path, entry) in entries {
        let target = view.link_target(&entry.attr)?;
        if context.json {
            rows.push(object(&path, &entry.attr, target.as_deref()));
            continue;
        }
        let mut line = Vec::new();
        if args.long {
            let Attr { nlink, uid, gid, size, mtime, .. } = entry.attr;
            let (mode, time) = (format::mode(&entry.attr), format::minute(mtime));
            write!(line, "{mode} {nlink} {uid} {gid} {size:>8} {time} ").map_err(io)?;
        }
        line.extend_from_slice(&out.name(&entry.name));
        if let Some(target) = target.filter(|_| args.long) {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&out.name(&target));
        }
        line.push(b'\n');
        out.write(&line)?;
    }
    if context.json {
        out.write(format!("{:#}\n", Value::Array(rows)).as_bytes())?;
    }
    out.finish()
}

fn list(context: &Context, branches: &Branches) -> Result<()> {
    let all = branches.list()?;
    let value = all.iter().map(to_json).collect();
    context.print(&value, || {
        let width = all.iter().map(|info| info.name.len()).max().unwrap_or(0);
        let lines = all.iter().map(|info| {
            let events: u64 = info.branch.layers.iter().map(|layer| layer.events).sum();
            let (name, state) = (&info.name, info.branch.state.word());
            let time = format::minute(info.branch.time);
            // Without a snapshot its directory is unknown.
            let path = info.snapshot.map_or("-".to_owned(), |_| info.path.quoted());
            format!("{name:<width$}  {state:<9}  {events:>9} events  {time}  {path}\n")
        });
        lines.collect()
    })
}

/// Print PATH and everything below it, a directory before its content, sorted. With --json, one
/// object per line.
#[derive(Debug, ClapArgs)]
pub(super) struct Find {
    /// Only names that match a pattern
    #[arg(long, value_name = "GLOB")]
    name: Option<OsString>,
    /// One branch, or several on top of each other
    #[arg(value_name = "BRANCH[,BRANCH...]")]
    names: String,
    /// Where to begin [default: the directory that the branch is of]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
}

pub(super) fn find(context: &Context, branches: &Branches, args: &Find) -> Result<()> {
    let mut view = branches.view(&split(&args.names))?;
    let path = match &args.path {
        Some(path) => space::parse(path)?,
        None => view.path().clone(),
    };
    let glob = args.name.as_ref().map(|pattern| Glob::new(pattern.as_bytes()));
    let attr = view.stat(&path)?;
    let mut out = Out::open();
    let mut pending = vec![(path, attr)];
    while let Some((path, attr)) = pending.pop() {
        let name = path.split_last().map(|(_, name)| name.to_vec()).unwrap_or_default();
        if glob.as_ref().is_none_or(|glob| glob.matches(&name)) {
            let mut line = if context.json {
                let target = view.link_target(&attr)?;
                object(&path, &attr, target.as_deref()).to_string().into_bytes()
            } else {
                out.name(&path.to_bytes()).into_owned()
            };
            line.push(b'\n');
            out.write(&line)?;
        }
        if out.is_gone() {
            break;
        }
        if attr.is_dir() {
            let below = below(&mut view, &path, attr.ino)?;
            pending.extend(below.into_iter().rev());
        }
    }
    out.finish()
}

/// The entries of a directory, sorted.
pub(super) fn below(view: &mut SnapshotView, path: &Path, dir: Ino) -> Result<Vec<(Path, Attr)>> {
    let entries = view.list(dir)?.into_iter();
    Ok(entries.map(|entry| (path.join(&entry.name), entry.attr)).collect())
}

/// Print the content of files to standard output.
#[derive(Debug, ClapArgs)]
pub(super) struct Cat {
    /// One branch, or several on top of each other
    #[arg(value_name = "BRANCH[,BRANCH...]")]
    names: String,
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

pub(super) fn cat(branches: &Branches, args: &Cat) -> Result<()> {
    let mut view = branches.view(&split(&args.names))?;
    let mut out = std::io::stdout().lock();
    for path in &args.paths {
        let path = space::parse(path)?;
        let attr = view.stat(&path)?;
        if attr.is_dir() {
            return Err(Error::of(Errno::IsDirectory, path.to_string()));
        }
        view.read(&attr, &mut |bytes| out.write_all(bytes).map_err(io))?;
    }
    out.flush().map_err(io)
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn io(error: std::io::Error) -> Error {
    Error::new(Errno::Io, "standard output", error.to_string())
}

fn object(path: &Path, attr: &Attr, target: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    let name = path.split_last().map(|(_, name)| name.to_vec()).unwrap_or_default();
    format::put_bytes(&mut object, "name", &name);
    format::put_bytes(&mut object, "path", &path.to_bytes());
    format::put_attr(&mut object, attr);
    match target {
        Some(target) => format::put_bytes(&mut object, "target", target),
        None => {
            object.insert("target".to_owned(), Value::Null);
        }
    }
    Value::Object(object)
}
