//! `cudele audit`: the requests that took more than the rights to read and write.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::Value;
use terminal::context::Context;
use terminal::io;
use types::quote::printable;

/// Show the audit log of the cluster in a directory: the requests to decouple, merge or take over a
/// subtree, to set a policy, to move a directory, to take a snapshot and to command the cluster,
/// with user, address, key and result. Hashes chain the lines: the exit status is 1 if a line was
/// changed, added or removed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele audit
  cudele audit --json /backup/audit.mon.jsonl     a copy of a file")]
pub(crate) struct Args {
    /// Files to read instead
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let files = if args.files.is_empty() {
        let (dir, _) = super::mon::marker(context)?;
        of_cluster(&dir.join("log"))?
    } else {
        args.files.clone()
    };
    let (mut lines, mut altered) = (Vec::new(), Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|error| io(file, &error))?;
        let (found, fault) = daemon::verify_audit(&text, None);
        lines.extend(found);
        altered.extend(fault.map(|line| format!("{} line {line}", file.display())));
    }
    lines.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
    context.print(&Value::Array(lines.clone()), || lines.iter().map(to_text).collect())?;
    if altered.is_empty() {
        return Ok(());
    }
    let cause = "the line does not follow from the line before it: lines were changed, added or \
                 removed, or the daemon was killed while it wrote";
    Err(Error::new(Errno::BadMessage, altered.join(", "), cause))
}

/// The files of all daemons, the renamed ones too.
fn of_cluster(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| io(folder, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io(folder, &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("audit.") && name.ends_with(".jsonl") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn to_text(line: &Value) -> String {
    let field = |name: &str| printable(line[name].as_str().unwrap_or("?")).to_string();
    let uid = line["uid"].as_u64().map_or_else(|| "?".to_owned(), |uid| uid.to_string());
    format!(
        "{}  {:<6} {:<9} {} {}: {} (as {uid}, {}, {})\n",
        field("time"),
        field("daemon"),
        field("op"),
        field("result"),
        field("about"),
        line["cause"]
            .as_str()
            .map_or_else(|| "done".to_owned(), |cause| printable(cause).to_string()),
        field("peer"),
        field("from"),
    )
}
