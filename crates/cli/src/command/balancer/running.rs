//! `cudele balancer set|get|ls|revert`: the policy that the servers of a cluster run.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{BalancerEntry, Errno, Error, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::format;

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele balancer set mine.lua")]
pub(super) struct Set {
    /// A policy file, `-` for standard input, or a shipped policy
    #[arg(value_name = "FILE|PRESET")]
    policy: OsString,
    /// Skip the trial on synthetic clusters. A policy that fails in force moves nothing, and the
    /// earlier policy returns after three ticks
    #[arg(long)]
    unchecked: bool,
}

pub(super) fn set(context: &Context, args: &Set) -> Result<()> {
    let policy = super::read(&args.policy)?;
    if !args.unchecked {
        super::try_out(&policy)?;
    }
    let entry = context.cluster()?.set_balancer(policy.name(), policy.text())?;
    say(context, &entry)
}

pub(super) fn revert(context: &Context) -> Result<()> {
    let entry = context.cluster()?.revert_balancer()?;
    say(context, &entry)
}

fn say(context: &Context, entry: &BalancerEntry) -> Result<()> {
    context.print(&to_json(entry, true), || {
        format!("{} is in force on all ranks (version {}).\n", entry.name, entry.version)
    })
}

pub(super) fn get(context: &Context) -> Result<()> {
    let cluster = context.cluster()?;
    let map = cluster.status()?;
    let entry = map.balancer();
    let text = match cluster.balancer_text(&map, &entry)? {
        Some(text) => text,
        None => {
            let preset = balancer::PRESETS.iter().find(|preset| preset.name == entry.name);
            let missing = || {
                let cause = "the cluster runs a shipped policy that this program does not have";
                Error::new(Errno::NotFound, entry.name.as_str(), cause)
                    .remedy("use the program of the cluster's release")
            };
            preset.ok_or_else(missing)?.text.to_owned()
        }
    };
    let mut value = to_json(&entry, true);
    value["text"] = json!(text);
    context.print(&value, || text)
}

pub(super) fn ls(context: &Context) -> Result<()> {
    let map = context.cluster()?.status()?;
    let current = map.balancer().version;
    let rows = map.balancers.iter().map(|entry| to_json(entry, entry.version == current));
    context.print(&Value::Array(rows.collect()), || {
        let mut text = format!("{:>7}  {:<24} {:<17} {}\n", "VERSION", "POLICY", "SINCE", "STATE");
        for entry in &map.balancers {
            let state = match (entry.version == current, entry.failed) {
                (true, _) => "in force",
                (false, true) => "failed",
                (false, false) => "",
            };
            let why = if entry.why.is_empty() { "" } else { "; " };
            let since = format::minute(entry.time);
            let BalancerEntry { version, name, why: reason, .. } = entry;
            let _ = writeln!(text, "{version:>7}  {name:<24} {since:<17} {state}{why}{reason}");
        }
        text
    })
}

fn to_json(entry: &BalancerEntry, in_force: bool) -> Value {
    json!({
        "version": entry.version, "policy": entry.name, "object": entry.object,
        "shipped": entry.object == 0, "since": format::instant(entry.time), "why": entry.why,
        "failed": entry.failed, "in_force": in_force,
    })
}
