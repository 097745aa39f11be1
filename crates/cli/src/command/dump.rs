//! `cudele dump`: the names and attributes of a directory into a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use branches::Branches;
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use ingest::dump::{DumpEnd, DumpFile, DumpHeader, DumpProgress, DumpSource, dump};
use serde_json::json;
use terminal::context::Context;
use terminal::figures;

use super::branch::{branches, create_of};
use crate::space;
use crate::tree::Faults;

/// The names of branches that are made for dumps, and removed afterwards, begin so.
const TEMPORARY: &str = "dump-";

/// Write the names and attributes of everything in a directory into a file, as they are at one
/// moment, while clients go on working: JSON lines, compressed with zstd. The content of small
/// files, which inodes keep, is in it, other content is not. Needs access to the object store.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele dump /proj proj.dump
  cudele dump --resume /proj proj.dump        continue after an interruption, with the same moment
  cudele dump /proj - | zstdcat | jq -r 'select(.size > 1e9).path'
  cudele dump --branch nightly nightly.dump   the state of a branch
  cudele load proj.dump /copy                 bring it in again")]
pub(crate) struct Args {
    /// The directory; none with --branch
    #[arg(value_name = "PATH", required_unless_present = "branch")]
    path: Option<OsString>,
    /// The file, which must not exist, or - for standard output
    #[arg(value_name = "FILE", required_unless_present = "branch")]
    file: Option<PathBuf>,
    /// Dump this branch instead of the present state
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Continue the file of an interrupted dump of the same directory
    #[arg(long)]
    resume: bool,
    /// Address of the object store: dir:/path or rados://pool [default: the cluster's]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl Args {
    /// The directory, if no branch is named, and the file.
    fn operands(&self) -> Result<(Option<&OsString>, PathBuf)> {
        match (&self.branch, &self.path, &self.file) {
            (None, Some(path), Some(file)) => Ok((Some(path), file.clone())),
            (Some(_), Some(file), None) => Ok((None, PathBuf::from(file))),
            _ => Err(Error::new(Errno::Invalid, "dump", "a directory or a branch, and one file")
                .remedy("write `cudele dump PATH FILE`, or `cudele dump --branch NAME FILE`")),
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let start = Instant::now();
    let (path, file) = args.operands()?;
    let is_stream = file.as_os_str() == "-";
    if args.resume && is_stream {
        let cause = "standard output cannot be continued";
        return Err(Error::new(Errno::Invalid, "-", cause).remedy("name a file"));
    }
    let branches = branches(context, args.store.as_deref())?;
    let progress = if args.resume { Some(DumpProgress::read(&file)?) } else { None };
    if progress.as_ref().is_some_and(|progress| progress.is_complete) {
        let cause = "the dump is complete";
        return Err(Error::new(Errno::Exists, file.display().to_string(), cause)
            .remedy("name another file for a new dump"));
    }
    let (header, mut to) = match &progress {
        Some(progress) => {
            check_same(progress, args.branch.as_deref(), path)?;
            (progress.header.clone(), DumpFile::append(&file, progress)?)
        }
        None => begin(context, args, &branches, path, &file)?,
    };
    let source = DumpSource { branches: branches.clone(), name: header.branch.clone() };
    let (end, skipped) = dump(&source, &mut to, progress.as_ref()).map_err(|error| {
        if is_stream || !header.branch_is_temporary {
            return error;
        }
        let remedy = "`cudele dump --resume` with the same operands continues; or remove the \
                          file, and its snapshot with `cudele branch delete";
        error.remedy(format!("{remedy} {}`", header.branch))
    })?;
    if header.branch_is_temporary {
        branches.remove(&header.branch)?;
        branches.collect(false)?;
    }
    if !is_stream {
        report(context, &file, &header, end, to.bytes, start)?;
    }
    let mut faults = Faults::default();
    skipped.into_iter().for_each(|error| faults.note(error));
    faults.result()
}

/// Takes the snapshot, and writes the first line. Without a file no snapshot stays.
fn begin(
    context: &Context,
    args: &Args,
    branches: &Branches,
    path: Option<&OsString>,
    file: &Path,
) -> Result<(DumpHeader, DumpFile)> {
    let header = header(context, args, branches, path)?;
    let is_stream = file.as_os_str() == "-";
    let to = if is_stream { DumpFile::standard_output() } else { DumpFile::create(file) };
    let begun = to.and_then(|mut to| to.begin(&header).map(|()| to));
    match begun {
        Ok(to) => Ok((header, to)),
        Err(error) => {
            if header.branch_is_temporary {
                let _ = branches.remove(&header.branch);
            }
            Err(error)
        }
    }
}

/// The first line, with the snapshot that it names.
fn header(
    context: &Context,
    args: &Args,
    branches: &Branches,
    path: Option<&OsString>,
) -> Result<DumpHeader> {
    let (name, info) = match (&args.branch, path) {
        (Some(name), _) => (name.clone(), branches.get(name)?),
        (None, Some(path)) => {
            let name = format!("{TEMPORARY}{:016x}", ::branches::random()?);
            let made = create_of(context, args.store.as_deref(), &name, &space::parse(path)?);
            let info = made.inspect_err(|_| {
                // The object of a branch comes before its snapshot.
                let _ = branches.remove(&name);
            })?;
            (name, info)
        }
        (None, None) => return Err(Error::of(Errno::Invalid, "dump")),
    };
    Ok(DumpHeader {
        cudele_dump: ingest::dump::DUMP_VERSION,
        path: info.path.to_string(),
        branch: name,
        branch_is_temporary: args.branch.is_none(),
        time_ns: info.branch.time.0,
    })
}

/// An interrupted dump is continued with the operands that it was begun with.
fn check_same(
    progress: &DumpProgress,
    branch: Option<&str>,
    path: Option<&OsString>,
) -> Result<()> {
    let header = &progress.header;
    let is_same = match (branch, path) {
        (Some(branch), _) => !header.branch_is_temporary && header.branch == branch,
        (None, Some(path)) => {
            // The branch is removed at the end: a forged file must not name one of the user's.
            let is_own = header.branch.starts_with(TEMPORARY);
            let is_temporary = header.branch_is_temporary && is_own;
            is_temporary && space::parse(path)?.to_string() == header.path
        }
        (None, None) => false,
    };
    if is_same {
        return Ok(());
    }
    let of = if header.branch_is_temporary { &header.path } else { &header.branch };
    let cause = format!("the file has a part of a dump of {of}");
    Err(Error::new(Errno::Invalid, "--resume", cause).remedy("name the same again"))
}

fn report(
    context: &Context,
    file: &Path,
    header: &DumpHeader,
    end: DumpEnd,
    bytes: u64,
    start: Instant,
) -> Result<()> {
    let seconds = start.elapsed().as_secs_f64();
    let value = json!({
        "file": file.display().to_string(), "path": header.path, "time_ns": header.time_ns,
        "entries": end.entries, "skipped": end.skipped, "bytes": bytes, "seconds": seconds,
        "entries_per_second": figures::rate(end.entries, seconds),
    });
    context.print(&value, || {
        format!(
            "{} entries of {} are in {}: {}, {}\n",
            figures::count(end.entries),
            header.path,
            file.display(),
            figures::bytes(bytes),
            figures::seconds(seconds)
        )
    })
}
