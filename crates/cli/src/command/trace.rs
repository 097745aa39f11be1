//! `cudele trace`: one request, with all its steps at client, server, journal and store.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Errno, Error, Fs, Ino, Path, RequestHop, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use wire::{ChangeOp, NewInode, Op, ReadOp, SessionOp};

use crate::space;

/// Modes of new inodes.
const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;
/// Names that a listing asks for.
const LIST_LIMIT: u32 = 1000;

/// Carry one request out and print its course: at the client, at each server on the way, in the
/// journal and the object store, each step with its time. The request goes to the server even if a
/// client could answer from its cache. Root and the owner of the cluster may trace.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele trace create /proj/new            until the new name is durable
  cudele trace list /proj
  cudele trace sync                        at the server of the root
  cudele trace stat /proj/new --json")]
pub(crate) struct Args {
    /// The request
    request: Kind,
    /// The name that it is about
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
}

/// A request that can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The attributes of a name
    Stat,
    /// The first names of a directory
    List,
    /// A new file
    Create,
    /// A new directory
    Mkdir,
    /// The removal of a name that is no directory
    Unlink,
    /// The removal of an empty directory
    Rmdir,
    /// Wait until all that this client was told is durable
    Sync,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let path = space::parse(&args.path)?;
    let hops = fs.trace(&op(&fs, args.request, &path)?)?;
    context.print(&to_json(&hops), || to_text(&hops))?;
    hops.into_iter().last().map_or(Ok(()), |hop| hop.answer.map(drop))
}

/// The request about a path, whose directories are in the memory of their servers afterwards.
fn op<'a>(fs: &Arc<Fs>, kind: Kind, path: &'a Path) -> Result<Op<'a>> {
    let ino_of = |path: Path| -> Result<Ino> { Ok(space::at(fs, path)?.existing()?.ino) };
    let parent = || {
        let root = || Error::new(Errno::Invalid, "/", "the root is neither made nor removed");
        let (above, name) = path.split_last().ok_or_else(root)?;
        ino_of(above).map(|parent| (parent, name))
    };
    let create = |mode| {
        let (parent, name) = parent()?;
        let new = NewInode { mode, ..NewInode::default() };
        Ok(Op::Change(ChangeOp::Create { parent, name, new }))
    };
    match kind {
        Kind::Sync => Ok(Op::Session(SessionOp::Sync)),
        Kind::Stat => Ok(Op::Read(ReadOp::GetAttr { ino: ino_of(path.clone())? })),
        Kind::List => {
            let (dir, after, limit) = (ino_of(path.clone())?, None, LIST_LIMIT);
            Ok(Op::Read(ReadOp::List { dir, after, limit, attrs: true }))
        }
        Kind::Create => create(FILE),
        Kind::Mkdir => create(DIR),
        Kind::Unlink => {
            parent().map(|(parent, name)| Op::Change(ChangeOp::Unlink { parent, name }))
        }
        Kind::Rmdir => parent().map(|(parent, name)| Op::Change(ChangeOp::Rmdir { parent, name })),
    }
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

fn outcome(hop: &RequestHop) -> &'static str {
    match &hop.answer {
        Ok(wire::Answer::Redirect(_)) => "sent on to another rank",
        Ok(_) => "done",
        Err(error) => error.errno.symbol(),
    }
}

fn to_json(hops: &[RequestHop]) -> Value {
    let hop = |hop: &RequestHop| {
        let steps = hop.steps.iter();
        let steps: Vec<Value> = steps
            .map(|step| json!({ "us": micros(step.at), "part": step.part, "text": step.text }))
            .collect();
        json!({ "rank": hop.rank.0, "outcome": outcome(hop), "steps": steps })
    };
    json!({ "hops": hops.iter().map(hop).collect::<Vec<_>>() })
}

fn to_text(hops: &[RequestHop]) -> String {
    let mut text = String::new();
    for hop in hops {
        let _ = writeln!(text, "{}: {}", hop.rank, outcome(hop));
        for step in &hop.steps {
            let (at, said) = (micros(step.at), step.text.escape_debug());
            let _ = writeln!(text, "{at:>9} us  {:<8} {said}", step.part);
        }
    }
    text
}
