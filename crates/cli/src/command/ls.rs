//! `cudele ls`: the entries of a directory.

use std::ffi::OsString;
use std::sync::Arc;

use clap::Args as ClapArgs;
use cudele::{Attr, Dir, DirEntry, Errno, Fs, Path, Result};
use serde_json::{Map, Value};
use terminal::context::Context;
use terminal::format;
use terminal::out::Out;

use crate::tree::Faults;
use crate::{space, tree};

/// List directories, or show the files named. Names are sorted by their bytes; those that begin
/// with a dot are shown, too.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele ls -l /src           one line per name, times in UTC
  cudele ls -R --json /       every name, as an array of objects

On a terminal, names that are not plain text are quoted as a shell reads them; into a pipe they are
written as they are. Directories have the number of their entries as their size.")]
pub(crate) struct Args {
    /// Mode, links, owner, group, size, time of last change and target
    #[arg(short)]
    long: bool,
    /// Accepted out of habit: nothing is hidden
    #[arg(short)]
    all: bool,
    /// Everything below as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The paths to list [default: the root]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// A line of the listing.
struct Row {
    path: Path,
    name: Vec<u8>,
    attr: Attr,
    target: Option<Vec<u8>>,
}

/// The entries that are listed together, under a heading if there are several groups.
struct Group {
    heading: Option<Path>,
    rows: Vec<Row>,
}

struct Listing<'a> {
    fs: Arc<Fs>,
    args: &'a Args,
    /// Whether attributes matter, not only names.
    details: bool,
    faults: Faults,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let details = args.long || context.json;
    let mut listing = Listing { fs, args, details, faults: Faults::default() };
    let groups = listing.groups()?;
    let mut out = Out::open();
    if context.json {
        let rows = groups.iter().flat_map(|group| &group.rows).map(to_json).collect();
        out.write(format!("{:#}\n", Value::Array(rows)).as_bytes())?;
    } else {
        let headings = groups.len() > 1;
        for (number, group) in groups.iter().enumerate() {
            print(&mut out, group, number, headings, args.long)?;
        }
    }
    out.finish()?;
    listing.faults.result()
}

impl Listing<'_> {
    fn groups(&mut self) -> Result<Vec<Group>> {
        let root = [OsString::from("/")];
        let paths = if self.args.paths.is_empty() { &root[..] } else { &self.args.paths };
        let mut files = Vec::new();
        let mut groups = Vec::new();
        for path in paths {
            let place = space::find(&self.fs, path)?;
            let attr = place.existing()?;
            if attr.is_dir() {
                let dir = self.fs.open_dir(place.path.to_bytes())?;
                self.directory(dir, &mut groups)?;
            } else {
                let name = place.path.to_bytes();
                let target = space::link_target(&self.fs, &place.path, &attr)?;
                files.push(Row { path: place.path, name, attr, target });
            }
        }
        if !files.is_empty() {
            groups.insert(0, Group { heading: None, rows: files });
        }
        Ok(groups)
    }

    /// A directory, and with `-R` those below it, parents first.
    fn directory(&mut self, start: Dir, groups: &mut Vec<Group>) -> Result<()> {
        let mut pending = vec![start];
        while let Some(dir) = pending.pop() {
            let entries = match tree::sorted(&dir) {
                Ok(entries) => entries,
                Err(error) if groups.is_empty() => return Err(error),
                Err(error) => {
                    self.faults.note(error);
                    continue;
                }
            };
            let mut rows = Vec::with_capacity(entries.len());
            let mut below = Vec::new();
            for entry in entries {
                if self.args.recursive && entry.attr.is_dir() {
                    match dir.enter(&entry.name, entry.attr.ino) {
                        Ok(dir) => below.push(dir),
                        Err(error) => self.faults.note(error),
                    }
                }
                rows.push(self.row(&dir, entry)?);
            }
            pending.extend(below.into_iter().rev());
            groups.push(Group { heading: Some(dir.path().clone()), rows });
        }
        Ok(())
    }

    fn row(&self, dir: &Dir, entry: DirEntry) -> Result<Row> {
        let DirEntry { name, mut attr } = entry;
        let path = dir.path().join(&name);
        let mut target = None;
        if self.details {
            target = space::link_target(&self.fs, &path, &attr)?;
            if attr.is_dir() && attr.size == 0 {
                // A directory that the server has not in memory looks empty in a listing.
                attr = match dir.lookup(&name) {
                    Err(error) if error.errno == Errno::NotFound => attr,
                    found => found?,
                };
            }
        }
        Ok(Row { path, name, attr, target })
    }
}

fn to_json(row: &Row) -> Value {
    let mut object = Map::new();
    let name = row.path.split_last().map_or(&row.name[..], |(_, name)| name).to_vec();
    format::put_bytes(&mut object, "name", &name);
    format::put_bytes(&mut object, "path", &row.path.to_bytes());
    format::put_attr(&mut object, &row.attr);
    match &row.target {
        Some(target) => format::put_bytes(&mut object, "target", target),
        None => {
            object.insert("target".to_owned(), Value::Null);
        }
    }
    Value::Object(object)
}

fn print(out: &mut Out, group: &Group, number: usize, headings: bool, long: bool) -> Result<()> {
    if headings && let Some(heading) = &group.heading {
        if number > 0 {
            out.write(b"\n")?;
        }
        let heading = heading.to_bytes();
        let heading = out.name(&heading).into_owned();
        out.write(&heading)?;
        out.write(b":\n")?;
    }
    let widths = if long { widths(&group.rows) } else { [0; 4] };
    for row in &group.rows {
        let mut line = Vec::new();
        if long {
            line.extend_from_slice(details(row, widths).as_bytes());
        }
        line.extend_from_slice(&out.name(&row.name));
        if let Some(target) = row.target.as_ref().filter(|_| long) {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&out.name(target));
        }
        line.push(b'\n');
        out.write(&line)?;
    }
    Ok(())
}

fn numbers(row: &Row) -> [String; 4] {
    let Attr { nlink, uid, gid, size, .. } = row.attr;
    [nlink.to_string(), uid.to_string(), gid.to_string(), size.to_string()]
}

fn widths(rows: &[Row]) -> [usize; 4] {
    rows.iter().fold([0; 4], |widths, row| {
        let numbers = numbers(row);
        std::array::from_fn(|at| widths[at].max(numbers[at].len()))
    })
}

fn details(row: &Row, widths: [usize; 4]) -> String {
    let [nlink, uid, gid, size] = numbers(row);
    let [a, b, c, d] = widths;
    let (mode, time) = (format::mode(&row.attr), format::minute(row.attr.mtime));
    format!("{mode} {nlink:>a$} {uid:>b$} {gid:>c$} {size:>d$} {time} ")
}
