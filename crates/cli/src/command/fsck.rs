//! `cudele fsck` and `cudele scrub`: whether the store adds up.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use fsck::{
    CountedQuota, Depth, Finding, FindingKind, FsckReport, Repairs, Scope, Severity, StoreSurvey,
    Subject,
};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::figures::{bytes, count};
use terminal::progress::ProgressCounter;
use types::{Ino, Timestamp};

use crate::marker;
use crate::stores;

/// Check the metadata store, the journals and the content of files of a stopped cluster, and mend
/// them.
///
/// Every object is read and held against its checksum; then names, directories, links and content
/// are held against one another. Without --repair nothing is changed. An unreadable object is moved
/// to `lost/` in the store, an inode that has lost its name gets one in /lost+found.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele down && cudele fsck --repair")]
pub(crate) struct Args {
    /// The object store, if no cluster names it: a directory, or rados://POOL
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Mend the faults
    #[arg(long)]
    repair: bool,
    /// Do not read the content of files
    #[arg(long)]
    metadata_only: bool,
    /// With --repair: show the repairs, without doing them
    #[arg(long)]
    dry_run: bool,
}

/// Read the metadata store, the journals and the content of files and compare them with their
/// checksums, while the cluster works.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele scrub --json")]
pub(crate) struct ScrubArgs {
    /// The object store, if no cluster names it: a directory, or rados://POOL
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Do not read the content of files
    #[arg(long)]
    metadata_only: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    if args.repair && !args.dry_run {
        repair_marker(context, args.store.as_deref())?;
    }
    let store = open(context, args.store.as_deref())?;
    let owner = format!("cudele fsck (process {})", std::process::id());
    let locks = fsck::at_rest(&*store, &StoreSurvey::of(&*store)?, &owner)?;
    let report = check(&*store, Scope::AtRest, args.metadata_only)?;
    if args.repair && !args.dry_run && !args.metadata_only {
        list_damaged_files(&*store, &report)?;
    }
    let repairs = if args.repair && !args.dry_run && !report.findings.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Some(fsck::repair(&*store, Timestamp(i64::try_from(now).unwrap_or(i64::MAX)))?)
    } else {
        None
    };
    drop(locks);
    print_report(context, &report, repairs.as_ref(), args.repair)
}

pub(crate) fn scrub(context: &Context, args: &ScrubArgs) -> Result<()> {
    let store = open(context, args.store.as_deref())?;
    let report = check(&*store, Scope::EachByItself, args.metadata_only)?;
    if !args.metadata_only {
        list_damaged_files(&*store, &report)?;
    }
    print_report(context, &report, None, false)
}

/// Writes the marker of the cluster's directory again if it is empty, damaged or gone.
fn repair_marker(context: &Context, store: Option<&str>) -> Result<()> {
    let Some(dir) = context.locator().find().ok().and_then(|found| found.dir) else {
        return Ok(());
    };
    match marker::read(&dir) {
        Ok(None) if dir.is_dir() && marker::foreign(&dir)?.1 => marker::mend(&dir, store).map(drop),
        Err(error) if error.errno == Errno::BadMessage => marker::mend(&dir, store).map(drop),
        _ => Ok(()),
    }
}

fn open(context: &Context, url: Option<&str>) -> Result<std::sync::Arc<dyn objstore::Store>> {
    let store = url.map_or_else(|| stores::of_cluster(context), objstore::open_existing)?;
    // A repair may free room, and must work on a full store.
    store.allow_reserve();
    Ok(store)
}

fn check(store: &dyn objstore::Store, scope: Scope, metadata_only: bool) -> Result<FsckReport> {
    let depth = if metadata_only { Depth::Metadata } else { Depth::Content };
    let mut progress = ProgressCounter::new("directories checked");
    fsck::check(store, scope, depth, &mut |_, _| progress.step())
}

/// Notes the files with damaged content for `cudele health`. A store that cannot be written keeps
/// the list that it has.
fn list_damaged_files(store: &dyn objstore::ObjectStore, report: &FsckReport) -> Result<()> {
    let found: Vec<(Ino, String)> = report
        .findings
        .iter()
        .filter_map(|finding| match (&finding.kind, &finding.subject) {
            (FindingKind::Content { .. }, Subject::Inode(ino)) => Some((*ino, finding.to_string())),
            _ => None,
        })
        .collect();
    let found = found.iter().map(|(ino, cause)| (*ino, &**cause));
    match cudele::replace_damaged_files(store, found) {
        Err(error) if [Errno::ReadOnly, Errno::Access].contains(&error.errno) => Ok(()),
        done => done,
    }
}

fn about(finding: &Finding) -> Value {
    let subject = match &finding.subject {
        Subject::Object(name) => json!({ "object": name }),
        Subject::Inode(ino) => json!({ "inode": ino.0 }),
        Subject::Name(dir, name) => {
            json!({ "directory": dir.0, "name": String::from_utf8_lossy(name) })
        }
    };
    json!({
        "gravity": finding.kind.severity().as_str(),
        "code": finding.kind.code(),
        "about": subject,
        "path": finding.path,
        "says": finding.to_string(),
        "remedy": finding.kind.remedy(),
    })
}

fn quota_json(quota: &CountedQuota) -> Value {
    let CountedQuota { path, limits, used } = quota;
    json!({
        "path": path,
        "inodes": { "used": used.inodes, "limit": limits.inodes },
        "bytes": { "used": used.bytes, "limit": limits.bytes },
    })
}

/// Prints the findings, and fails if something is damaged and stays so.
fn print_report(
    context: &Context,
    report: &FsckReport,
    repairs: Option<&Repairs>,
    repair: bool,
) -> Result<()> {
    let left = |repairs: &Repairs| {
        let left = repairs
            .left
            .iter()
            .map(|(finding, why)| json!({ "finding": about(finding), "why": why }));
        left.collect::<Vec<_>>()
    };
    let value = json!({
        "objects": report.objects,
        "fragments": report.fragments,
        "names": report.names,
        "bytes": report.bytes,
        "events": report.events,
                "incomplete": report.incomplete,
        "quotas": report.quotas.iter().map(quota_json).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(about).collect::<Vec<_>>(),
        "mended": repairs.map(|repairs| repairs.mended.iter().map(about).collect::<Vec<_>>()),
        "left": repairs.map(left),
    });
    context.print(&value, || text(report, repairs, repair))?;
    let damaged = match repairs {
        None => report.worst() == Some(Severity::Damage),
        Some(repairs) => {
            repairs.left.iter().any(|(finding, _)| finding.kind.severity() == Severity::Damage)
        }
    };
    if !damaged {
        return Ok(());
    }
    let (cause, remedy) = match repairs {
        Some(_) => {
            ("something is damaged and could not be mended", "see what is said about it above")
        }
        None => {
            ("something is damaged", "`cudele fsck --repair`, with the cluster stopped, mends it")
        }
    };
    Err(Error::new(Errno::BadMessage, "store", cause).remedy(remedy))
}

fn text(report: &FsckReport, repairs: Option<&Repairs>, repair: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&format!("{finding}\n"));
        if repair && repairs.is_none() {
            text.push_str(&format!("  {}\n", finding.kind.remedy()));
        }
    }
    for (finding, why) in repairs.iter().flat_map(|repairs| &repairs.left) {
        text.push_str(&format!("not mended: {finding}: {why}\n"));
    }
    text.push_str(&format!(
        "{} objects, {} directories with {} names, {} events of journals; {} read\n",
        count(report.objects),
        count(report.fragments),
        count(report.names),
        count(report.events),
        bytes(report.bytes),
    ));
    for CountedQuota { path, used, .. } in &report.quotas {
        let (inodes, bytes) = (count(used.inodes), bytes(used.bytes));
        text.push_str(&format!("quota of {path}: {inodes} inodes, {bytes}\n"));
    }
    if let Some(why) = report.incomplete {
        text.push_str(&format!("{why}\n"));
    }
    match repairs {
        None if report.findings.is_empty() => text.push_str("Everything adds up.\n"),
        None => {}
        Some(repairs) => {
            text.push_str(&format!("{} mended\n", count(repairs.mended.len() as u64)));
        }
    }
    text
}
