//! `cudele diff`: the changes that a merge would make.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::figures::count;

use crate::command::merge;
use crate::journals::{Names, Story};
use crate::owned;

/// Show the events that wait in the journals of a decoupled subtree, and the changes that merging
/// them would make.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele diff /scratch/job")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
    /// Show so many events at most
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    limit: u64,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let mut subtree = owned::attach(context, &args.path)?;
    let path = subtree.path().clone();
    let mut names = Names::default();
    names.know_root(subtree.root(), &path);
    let mut lines = String::new();
    let mut values: Vec<Value> = Vec::new();
    let mut events = 0_u64;
    for journal in subtree.journals() {
        let mut show = |story: &Story<'_>| {
            events += 1;
            if events > args.limit {
                return;
            }
            if context.json {
                values.push(story.to_json());
            } else {
                let _ = writeln!(lines, "{}", story.line());
            }
        };
        crate::journals::each_event(&journal, &mut names, &mut show)
            .map_err(|error| error.in_journal(&path.to_string()))?;
    }
    let report = subtree.dry_run()?;
    let value = json!({
        "path": path.to_string(), "events": events, "shown": values.len(),
        "changes": values, "merge": merge::to_json(&report),
    });
    context.print(&value, || {
        if events > args.limit {
            let _ = writeln!(lines, "... {} more", count(events - args.limit));
        }
        let (path, merged) = (path.quoted(), merge::to_text(&report));
        let _ = write!(lines, "A merge of {path} would do this:\n{merged}");
        lines
    })
}
