//! `cudele run --branch`: a batch job in a branch, given only the object store.

use std::os::unix::process::ExitStatusExt;
use std::path::Path as FilePath;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use branches::{BranchFiles, BranchFs};
use cudele::{Errno, Error, Result};
use mount::MountOptions;
use serde_json::json;
use terminal::context::Context;
use terminal::io;
use terminal::mount_point::MountPoint;

use super::place::JobMountPoint;
use super::{Args, OnFailure, Surroundings, exit_code, start, wait};
use crate::command::branch;
use crate::private;

/// Runs the command in a branch, which is mounted for it alone.
pub(super) fn run(context: &Context, args: &Args, name: &str) -> Result<ExitCode> {
    // Before any thread is started.
    let entered = private::enter();
    let branches = branch::branches(context, args.store.as_deref())?;
    let work = branches.work_on(name)?;
    let path = work.path().to_string();
    let plan = super::plan(args, work.path(), entered)?;
    let at = MountPoint::new()?;
    let files = Arc::new(BranchFs::new(BranchFiles::new(work)));
    let is_root = rustix::process::getuid().is_root();
    let options = MountOptions { allow_other: is_root, set_id: is_root, ..MountOptions::default() };
    let source = format!("cudele-branch:{name}");
    let mounted = mount::mount(files.clone(), at.path(), &source, &options)?;
    let place = match plan {
        // As in a subtree of the job's own, it is also where the directory is called so here.
        Some(plan) if path != "/" || args.at.is_some() => {
            plan.show(at.path(), FilePath::new(""))?
        }
        _ => JobMountPoint::plain(at.path().to_owned()),
    };
    let status =
        start(args, &place.dir, &Surroundings::default()).and_then(|child| Ok(wait(child)?));
    place.hide(true);
    // A process of the job that is still at work keeps the mount until it ends.
    let _ = mounted.unmount();
    let status = match status {
        Ok(status) => status,
        Err(failure) => return failure.end(context),
    };
    let keeps = keeps(args, status);
    let events = if keeps { files.commit()? } else { 0 };
    report(context, name, &path, status, keeps.then_some(events))?;
    Ok(exit_code(status))
}

/// Runs the command beside a metadata server of its own, which serves the branch to the command and
/// the processes that it starts.
pub(super) fn serve(context: &Context, args: &Args, name: &str) -> Result<ExitCode> {
    let url = match &args.store {
        Some(url) => url.clone(),
        None => branch::store_of(context)?,
    };
    let branches = branch::branches(context, Some(&url))?;
    let sockets = tempfile::Builder::new().prefix("cudele-").tempdir();
    let sockets = sockets.map_err(|error| io(&std::env::temp_dir(), &error))?;
    let server = jobserver::serve(&branches, name, &everywhere(&url)?, sockets.path())?;
    let path = server.path().to_string();
    let monitor = server.address().to_string();
    let surroundings = Surroundings { monitor: Some(&monitor), ..Surroundings::default() };
    // If it cannot be started, nothing was done, and the branch stays as it was.
    let status = match start(args, FilePath::new(&path), &surroundings) {
        Ok(child) => wait(child)?,
        Err(failure) => return failure.end(context),
    };
    let keeps = keeps(args, status);
    let events = if keeps { server.finish()? } else { 0 };
    report(context, name, &path, status, keeps.then_some(events))?;
    Ok(exit_code(status))
}

/// The address of a store, valid in any working directory.
fn everywhere(url: &str) -> Result<String> {
    let Some(dir) = url.strip_prefix("dir:") else { return Ok(url.to_owned()) };
    let dir = std::path::absolute(dir).map_err(|error| io(FilePath::new(dir), &error))?;
    let dir = dir.to_str().ok_or_else(|| Error::of(Errno::Invalid, url))?;
    Ok(format!("dir:{dir}"))
}

fn keeps(args: &Args, status: ExitStatus) -> bool {
    status.success() || args.on_failure != OnFailure::Discard
}

/// Reports the result of the job; `kept` is the number of its events in the branch, unless they
/// were thrown away.
fn report(
    context: &Context,
    name: &str,
    path: &str,
    status: ExitStatus,
    kept: Option<u64>,
) -> Result<()> {
    let events = kept.unwrap_or(0);
    let value = json!({
        "branch": name, "path": path, "exit_code": status.code(), "signal": status.signal(),
        "committed": kept.is_some(), "events": events,
    });
    if context.json {
        return context.print(&value, String::new);
    }
    // Standard output is the command's.
    let fate = if kept.is_some() { "committed" } else { "thrown away" };
    eprintln!("cudele: branch {name}: {events} events {fate}");
    Ok(())
}
