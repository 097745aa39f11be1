//! `cudele health`: the conditions of the cluster that need an administrator, each with its remedy.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use cudele::{Result, Warning};
use metastore::DAMAGED_FILES_MAX;
pub(crate) use mon::conditions as checks;
use serde_json::{Value, json};
use terminal::context::Context;
use types::quote::printable;

use super::mds::standby;

/// Show the faults of the cluster: a code for each finding, its meaning, and a remedy.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  cudele health --json\n  cudele health --check || logger -p daemon.err cudele"
)]
pub(crate) struct Args {
    /// Exit with 1 if there are warnings, and with 2 if something does not work or is damaged
    #[arg(long)]
    check: bool,
}

fn is_error(warning: &Warning) -> bool {
    mon::is_error(&warning.code)
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let map = context.cluster()?.status()?;
    let mut found = checks(&map);
    found.extend(context.locator().find()?.dir.and_then(|dir| no_standby(&dir)));
    found.extend(content_damaged(&map.store));
    let (state, code) = match found.iter().any(is_error) {
        true => ("error", 2),
        false if found.is_empty() => ("ok", 0),
        false => ("warning", 1),
    };
    let value = json!({ "health": state, "checks": to_json(&found) });
    context.print(&value, || {
        let mut text = String::new();
        if found.is_empty() {
            text.push_str("All is well.\n");
        }
        found.iter().for_each(|warning| to_text(&mut text, warning));
        text
    })?;
    Ok(if args.check { ExitCode::from(code) } else { ExitCode::SUCCESS })
}

/// A cluster that was started with standbys, here, and has none any more.
fn no_standby(dir: &Path) -> Option<Warning> {
    let (waiting, all) = standby::count(dir);
    (waiting == 0 && all > 0).then(|| Warning {
        code: "NO_STANDBY".into(),
        text: "no metadata server waits to take over".into(),
        remedy: "`cudele up --standby 1` starts one".into(),
    })
}

/// Files whose content was found damaged. A store that this machine cannot read, or a damaged list,
/// is no finding about content: the servers warn about the store.
fn content_damaged(store: &str) -> Option<Warning> {
    let store = objstore::open_existing(store).ok()?;
    let files = cudele::damaged_files(&*store).ok()?;
    let (ino, cause) = files.all().next()?;
    let more = match files.all().len() {
        1 => String::new(),
        DAMAGED_FILES_MAX => " (and at least 255 more files)".into(),
        many => format!(" (and {} more files)", many - 1),
    };
    Some(Warning {
        code: "CONTENT_DAMAGED".into(),
        text: format!("inode {}{more}: {cause}", ino.0),
        remedy: "restore the files from a copy or remove them; `cudele scrub` lists their paths, and ends \
                 this warning when no file is damaged"
            .into(),
    })
}

/// All findings, as JSON.
pub(crate) fn to_json(found: &[Warning]) -> Value {
    let rows = found.iter().map(|warning| {
        json!({
            "code": warning.code, "severity": if is_error(warning) { "error" } else { "warning" },
            "text": warning.text, "remedy": warning.remedy,
        })
    });
    Value::Array(rows.collect())
}

/// One finding, for people.
pub(crate) fn to_text(text: &mut String, warning: &Warning) {
    let Warning { code, text: what, remedy } = warning;
    let _ = writeln!(text, "{}", printable(&format!("{code}  {what}; {remedy}")));
}

#[cfg(test)]
mod tests {
    use cudele::{ClusterMap, MdsEntry, MdsState};

    use super::*;

    fn codes(found: &[Warning]) -> Vec<(&str, bool)> {
        found.iter().map(|warning| (&*warning.code, is_error(warning))).collect()
    }

    #[test]
    fn a_lost_server_is_an_error_and_a_slow_store_a_warning() {
        let mut map = ClusterMap::default();
        assert_eq!(codes(&checks(&map)), [("NO_SERVER", true)]);
        map.mds = vec![MdsEntry { state: MdsState::Active, ..MdsEntry::default() }];
        assert_eq!(codes(&checks(&map)), []);
        let (code, text, remedy) = ("STORE_SLOW".into(), "slow".into(), "wait".into());
        map.warnings = vec![(map.mds[0].rank, Warning { code, text, remedy })];
        assert_eq!(codes(&checks(&map)), [("STORE_SLOW", false)]);
        map.mds[0].state = MdsState::Lost;
        assert_eq!(codes(&checks(&map)), [("MDS_LOST", true), ("STORE_SLOW", false)]);
    }
}
