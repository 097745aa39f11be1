//! `cudele mv`: move, rename, swap.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Path, RenameFlags, Result};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;
use terminal::out::Out;

use crate::space;
use crate::space::ResolvedPath;

/// Move or rename. Into DEST if it is a directory, else to that name, which is replaced if it
/// exists; readers see the old or the new at any time.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele mv /draft.txt /final.txt
  cudele mv /a /b /c /archive            into a directory
  cudele mv --exchange /current /next    swap two names at once")]
pub(crate) struct Args {
    /// Fail if the new name exists
    #[arg(short = 'n', long, conflicts_with = "exchange")]
    no_replace: bool,
    /// Swap the two names, which must both exist
    #[arg(long)]
    exchange: bool,
    /// DEST is the new name, even if a directory has that name
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Only print the moves, after all checks that are possible without moving
    #[arg(long)]
    dry_run: bool,
    /// The sources, then the destination
    #[arg(value_names = ["SOURCE", "DEST"], required = true, num_args = 2..)]
    paths: Vec<OsString>,
}

/// One move.
struct Move {
    from: Path,
    to: Path,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let Some((dest, sources)) = args.paths.split_last() else { return Ok(()) };
    let dest = space::find(&fs, dest)?;
    let into = !args.exchange && !args.no_target_directory && dest.is_dir();
    if sources.len() > 1 && !into {
        let cause = "several sources need a directory to move into";
        return Err(Error::new(Errno::NotDirectory, dest.path.to_string(), cause)
            .remedy("make it with `cudele mkdir`, or name one source only"));
    }
    let flags = RenameFlags { no_replace: args.no_replace, exchange: args.exchange };
    let mut moves = Vec::new();
    let result = sources.iter().try_for_each(|source| -> Result<()> {
        let from = space::find(&fs, source)?;
        let to = if into { dest.path.join(&named(&from)?) } else { dest.path.clone() };
        if args.dry_run {
            check(&from, &space::at(&fs, to.clone())?, flags)?;
        } else {
            fs.rename(from.path.to_bytes(), to.to_bytes(), flags).map_err(|e| explain(e, &to))?;
        }
        moves.push(Move { from: from.path, to });
        Ok(())
    });
    if args.dry_run {
        result?
    } else {
        space::sync_after(&fs, result)?
    };
    report(context, args, &moves)
}

fn named(from: &ResolvedPath) -> Result<Vec<u8>> {
    from.existing()?;
    let root = || Error::new(Errno::Invalid, "/", "the root cannot be moved");
    from.path.split_last().map(|(_, name)| name.to_vec()).ok_or_else(root)
}

/// Explains the server's rejection for this command.
fn explain(error: Error, to: &Path) -> Error {
    let about_target = |error: Error| Error { subject: to.to_string(), ..error };
    if error.errno == Errno::Invalid {
        error.remedy("neither the root nor a directory into itself can be moved")
    } else if error.errno == Errno::Exists {
        about_target(error).remedy("choose another name, or leave -n out to replace it")
    } else if error.errno == Errno::NotEmpty {
        about_target(error).remedy("a directory replaces only an empty one: empty it first")
    } else {
        error
    }
}

/// Checks that are possible before a rename: the rules of rename(2).
fn check(from: &ResolvedPath, to: &ResolvedPath, flags: RenameFlags) -> Result<()> {
    let moved = from.existing()?;
    let fail = |errno, place: &ResolvedPath| {
        Err(explain(Error::of(errno, place.path.to_string()), &to.path))
    };
    if from.path.is_root() || to.path.is_root() {
        return fail(Errno::Invalid, from);
    }
    let Some(over) = to.attr else {
        if flags.exchange {
            return fail(Errno::NotFound, to);
        }
        let below = moved.is_dir() && to.path.starts_with(&from.path);
        return if below { fail(Errno::Invalid, from) } else { Ok(()) };
    };
    if flags.no_replace {
        return fail(Errno::Exists, to);
    }
    if over.ino == moved.ino {
        return Ok(());
    }
    let nested = |outer: &ResolvedPath, inner: &ResolvedPath| {
        outer.is_dir() && inner.path.starts_with(&outer.path)
    };
    if nested(from, to) || (flags.exchange && nested(to, from)) {
        return fail(Errno::Invalid, from);
    }
    match (moved.is_dir(), over.is_dir()) {
        _ if flags.exchange => Ok(()),
        (false, true) => fail(Errno::IsDirectory, to),
        (true, false) => fail(Errno::NotDirectory, to),
        (true, true) if over.size > 0 => fail(Errno::NotEmpty, to),
        (true, true) | (false, false) => Ok(()),
    }
}

fn report(context: &Context, args: &Args, moves: &[Move]) -> Result<()> {
    if context.json {
        let rows = moves.iter().map(|Move { from, to }| {
            let mut object = Map::new();
            format::put_bytes(&mut object, "from", &from.to_bytes());
            format::put_bytes(&mut object, "to", &to.to_bytes());
            Value::Object(object)
        });
        let rows: Vec<_> = rows.collect();
        let value = json!({ "dry_run": args.dry_run, "exchange": args.exchange, "moved": rows });
        return context.print(&value, String::new);
    }
    if !args.dry_run {
        return Ok(());
    }
    let mut out = Out::open();
    let arrow: &[u8] = if args.exchange { b" <-> " } else { b" -> " };
    for Move { from, to } in moves {
        let (from, to) = (from.to_bytes(), to.to_bytes());
        let line = [&out.name(&from)[..], arrow, &out.name(&to), b"\n"].concat();
        out.write(&line)?;
    }
    out.finish()
}
