//! `cudele journal import`: an export back in its place.

mod server;

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use objstore::{Expect, ObjectStore, PutOutcome, Version};
use serde_json::json;
use terminal::context::Context;

use super::backup::BackupArgs;
use super::files::{self, Over};
use super::rework::{self, Damage, Surveys};
use super::{select, source};
use crate::stores;

/// Put an exported journal in its place: a client's journal as a file or a journal object, the
/// journal of a metadata server that is stopped into the store. Without --force an existing journal
/// is not replaced, and a damaged journal not imported.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal import --dry-run mds.tar mds.0
  cudele journal import job.journal ~/.local/state/cudele/subtrees/…/journal.0000000000000001")]
pub(super) struct Args {
    /// A file that `cudele journal export` wrote
    file: PathBuf,
    /// mds.0, the name of a journal object, or a file
    dest: String,
    /// Replace an existing journal, and import a damaged journal
    #[arg(long)]
    force: bool,
    /// Print the changes, without making them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    backup: BackupArgs,
}

/// The changes that were made, or would be.
#[derive(Debug, Default)]
struct Done {
    /// The objects that differ from the earlier ones.
    written: Vec<String>,
    removed: Vec<String>,
    /// Journals or segments that are as imported.
    unchanged: usize,
    damage: Vec<Damage>,
    kept: Option<PathBuf>,
    /// The next position, because the replaced journal had come so far.
    goes_on: Option<u64>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let bytes = select::file(&args.file)?.bytes;
    let done = match source::server(&args.dest) {
        Some(rank) => server::import(context, args, rank, &bytes)?,
        None => client(context, args, &bytes)?,
    };
    let value = json!({
        "file": args.file, "dest": args.dest, "dry_run": args.dry_run,
        "written": done.written, "removed": done.removed, "unchanged": done.unchanged,
        "damage": rework::json(&done.damage), "backup": done.kept, "goes_on": done.goes_on,
    });
    context.print(&value, || text(args, &done))
}

fn text(args: &Args, done: &Done) -> String {
    let would = if args.dry_run { "this would be done: " } else { "" };
    let mut text = format!(
        "{}: {would}written {}, removed {}, there already {}\n",
        args.dest,
        done.written.len(),
        done.removed.len(),
        done.unchanged
    );
    if let Some(seq) = done.goes_on {
        text.push_str(&format!("  positions go on at {seq}, where they had been\n"));
    }
    text.push_str(&super::backup::line(done.kept.as_ref()));
    text + &rework::text(&done.damage)
}

/// Rejects a damaged journal without --force.
fn check(args: &Args, damage: &[Damage]) -> Result<()> {
    let remedy = "recover what is intact with `cudele journal event recover`, or import it as it \
                  is with --force";
    rework::error(damage, remedy).filter(|_| !args.force).map_or(Ok(()), Err)
}

/// One journal, to a file or an object.
fn client(context: &Context, args: &Args, bytes: &[u8]) -> Result<Done> {
    let name = args.file.display().to_string();
    let surveys = Surveys::of_pieces(std::iter::once((name.as_str(), bytes)), false);
    let damage = surveys.damage();
    check(args, &damage)?;
    let store = match source::is_object(&args.dest) {
        true => Some(stores::of_cluster(context)?),
        false => None,
    };
    // Held until the end.
    let _lease = match (&store, source::rank_of(&args.dest)) {
        (Some(store), Some(rank)) if !args.dry_run => Some(source::lease(&**store, rank)?),
        _ => None,
    };
    let there = match &store {
        Some(store) => absent(store.get(&args.dest).map(|(bytes, _)| bytes))?,
        None => absent(select::file(Path::new(&args.dest)).map(|found| found.bytes))?,
    };
    let mut done = Done { damage, ..Done::default() };
    if there.as_deref() == Some(bytes) {
        done.unchanged = 1;
        return Ok(done);
    }
    if there.is_some() && !args.force {
        return Err(files::exists(&args.dest));
    }
    done.written.push(args.dest.clone());
    if args.dry_run {
        return Ok(done);
    }
    if there.is_some() {
        let before = source::Source::open(context, &args.dest, source::Access::Read)?;
        done.kept = args.backup.keep(&before)?;
    }
    match &store {
        Some(store) => put(&**store, &args.dest, bytes, there.as_deref())?,
        None => {
            let over = if there.is_some() { Over::Anything } else { Over::Nothing };
            files::write(Path::new(&args.dest), bytes, over)?;
        }
    }
    Ok(done)
}

fn put(store: &dyn ObjectStore, name: &str, bytes: &[u8], there: Option<&[u8]>) -> Result<()> {
    let expect = there.map_or(Expect::Absent, |there| Expect::Is(Version::of(there)));
    match store.put(name, bytes, expect)? {
        PutOutcome::Done(_) => Ok(()),
        PutOutcome::Conflict(_) => {
            Err(Error::new(Errno::Stale, name, "it changed meanwhile and was not replaced"))
        }
    }
}

/// The existing bytes, if there are any.
fn absent(found: Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    match found {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
