//! `cudele trash`: trees that `cudele rm -r` removed with one request, and that a policy keeps for
//! a while.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use cudele::{Errno, Error, Fs, Path, RemovedTree, Result, Timestamp};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;

use crate::space;

/// Look into the trash, and restore or empty it. A tree comes here if `cudele rm -r` removes it
/// with one request and the policy of the directory above has the key `trash`, such as `trash: 1d`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele trash ls                          what can be restored
  cudele trash restore /scratch/job        the last tree that was removed from there
  cudele trash empty                       give the room back now")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: TrashCommand,
}

#[derive(Debug, Subcommand)]
enum TrashCommand {
    /// List removed trees
    Ls(List),
    /// Give a removed tree a name again
    Restore(Restore),
    /// Give the room of removed trees back before their time
    Empty(Empty),
}

/// List removed trees: number, time of the removal, end of the time to restore, user and path, in
/// UTC. A tree whose room is being given back has no such end.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele trash ls
  cudele trash ls /scratch --json      those that were below a directory")]
struct List {
    /// Only trees that were here or below
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
}

/// Give a removed tree a name again, with everything in it: its own name, or TO.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele trash restore /scratch/job
  cudele trash restore 1099511627781 /scratch/again")]
struct Restore {
    /// The number of `cudele trash ls`, or the path; of several with one path, the last
    entry: OsString,
    /// The new path, which must not exist
    to: Option<OsString>,
}

/// Give the room of removed trees back before their time: of one, or of all that are this user's
/// to restore.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele trash empty
  cudele trash empty 1099511627781")]
struct Empty {
    /// The number of `cudele trash ls`, or the path; of several with one path, the last
    entry: Option<OsString>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    match &args.command {
        TrashCommand::Ls(list) => ls(context, &fs, list),
        TrashCommand::Restore(args) => restore(context, &fs, args),
        TrashCommand::Empty(args) => empty(context, &fs, args),
    }
}

fn ls(context: &Context, fs: &Fs, list: &List) -> Result<()> {
    let below = list.path.as_deref().map(space::parse).transpose()?;
    let mut trees = fs.trash()?;
    if let Some(below) = &below {
        trees.retain(|tree| tree.path().is_some_and(|path| path.starts_with(below)));
    }
    let value = Value::Array(trees.iter().map(to_json).collect());
    context.print(&value, || trees.iter().map(to_text).collect())
}

fn restore(context: &Context, fs: &Arc<Fs>, args: &Restore) -> Result<()> {
    let to = args.to.as_deref().map(space::parse).transpose()?;
    let tree = find(fs, &args.entry)?;
    let path = space::sync_after(fs, fs.restore(&tree, to.as_ref()))?;
    let mut object = Map::new();
    format::put_bytes(&mut object, "path", &path.to_bytes());
    object.insert("entry".to_owned(), tree.entry.ino.0.into());
    context.print(&Value::Object(object), || format!("{} is back\n", path.quoted()))
}

fn empty(context: &Context, fs: &Arc<Fs>, args: &Empty) -> Result<()> {
    let trees = match &args.entry {
        Some(entry) => vec![find(fs, entry)?],
        None => fs.trash()?.into_iter().filter(|tree| tree.entry.is_kept()).collect(),
    };
    let mut emptied = Vec::new();
    let result = trees.iter().try_for_each(|tree| match fs.empty_trash(tree) {
        // Its time ended since it was listed.
        Err(error) if error.errno == Errno::NotFound && args.entry.is_none() => Ok(()),
        result => result.map(|()| emptied.push(Value::from(tree.entry.ino.0))),
    });
    space::sync_after(fs, result)?;
    let count = emptied.len();
    context.print(&json!({ "emptied": emptied }), || {
        let trees = if count == 1 { "tree" } else { "trees" };
        format!("the room of {count} removed {trees} is being given back\n")
    })
}

/// The removed tree that an argument means.
fn find(fs: &Fs, entry: &OsStr) -> Result<RemovedTree> {
    let number: Option<u64> = entry.to_str().and_then(|text| text.parse().ok());
    let path = match number {
        None => Some(space::parse(entry)?),
        Some(_) => None,
    };
    let means = |tree: &RemovedTree| match (number, &path) {
        (Some(number), _) => tree.entry.ino.0 == number,
        (None, Some(path)) => tree.path().as_ref() == Some(path),
        (None, None) => false,
    };
    let mut found: Vec<_> = fs.trash()?.into_iter().filter(means).collect();
    // One that is being removed is not meant if another can be restored.
    found.sort_by_key(|tree| (tree.entry.is_kept(), tree.attr.ctime));
    found.pop().ok_or_else(|| {
        let shown = format::quoted(entry.as_bytes()).into_owned();
        Error::new(Errno::NotFound, shown, "no such tree is in the trash")
            .remedy("`cudele trash ls` lists the removed trees that you may restore")
    })
}

fn shown_path(tree: &RemovedTree) -> String {
    tree.path()
        .as_ref()
        .map_or_else(|| format!(".../{}", format::quoted(tree.entry.name())), Path::quoted)
}

fn to_text(tree: &RemovedTree) -> String {
    let RemovedTree { entry, attr, .. } = tree;
    let removed = format::minute(attr.ctime);
    let until = if entry.is_kept() { format::minute(entry.until) } else { "being removed".into() };
    let (ino, uid, path) = (entry.ino.0, entry.uid, shown_path(tree));
    format!("{ino}  {removed}  {until:<16}  {uid:>5}  {path}\n")
}

fn to_json(tree: &RemovedTree) -> Value {
    let RemovedTree { entry, rank, attr } = tree;
    let time = |time: Timestamp| Value::from(format::instant(time));
    let mut object = Map::new();
    object.insert("entry".to_owned(), entry.ino.0.into());
    format::put_bytes(&mut object, "path", &entry.path);
    object.insert("removed".to_owned(), time(attr.ctime));
    let until = if entry.is_kept() { time(entry.until) } else { Value::Null };
    object.insert("until".to_owned(), until);
    object.insert("uid".to_owned(), entry.uid.into());
    object.insert("gid".to_owned(), entry.gid.into());
    object.insert("rank".to_owned(), rank.0.into());
    Value::Object(object)
}
