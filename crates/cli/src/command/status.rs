//! `cudele status`: the cluster at a glance.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{ClusterMap, Policy, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use types::quote::quoted;

use super::health;

/// Show the cluster map, the metadata servers with their counters, and the decoupled subtrees.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele status --json")]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context, _: &Args) -> Result<()> {
    let map = context.cluster()?.status()?;
    context.print(&to_json(&map), || to_text(&map))
}

fn to_json(map: &ClusterMap) -> Value {
    let path = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let counters = |counters: &[(String, u64)]| {
        Value::Object(counters.iter().map(|(name, value)| (name.clone(), json!(value))).collect())
    };
    json!({
        "cluster": map.cluster,
        "epoch": map.epoch.0,
        "store": map.store,
        "mds": map.mds.iter().map(|entry| json!({
            "rank": entry.rank.0,
            "state": entry.state.word(),
            "epoch": entry.epoch.0,
            "address": entry.address,
            "pid": entry.pid,
            "counters": counters(&entry.counters),
        })).collect::<Vec<_>>(),
        "balancer": {
            "version": map.balancer().version,
            "policy": map.balancer().name,
            "why": map.balancer().why,
        },
        "decoupled_count": map.decoupled_count(),
        "health": health::to_json(&health::checks(map)),
        "policies": map.policies.iter().map(|entry| json!({
            "path": path(&entry.path),
            "version": entry.version,
            "policy": entry.policy,
        })).collect::<Vec<_>>(),
        "decoupled": map.decoupled.iter().map(|entry| json!({
            "path": path(&entry.path),
            "ino": entry.ino.0,
            "client": entry.client.0,
            "inodes": [entry.range.start, entry.range.end],
            "policy": entry.policy,
            "next_policy": entry.next,
            "cell": cell(&entry.policy),
            "state": "pending",
        })).collect::<Vec<_>>(),
    })
}

/// The promise to a subtree once its client has completed its policy.
fn cell(policy: &str) -> Option<String> {
    Some(Policy::parse(policy).ok()?.policy.cell()?.to_string())
}

fn to_text(map: &ClusterMap) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "cluster   {} (map {})\nstore     {}", map.cluster, map.epoch, map.store);
    for entry in &map.mds {
        let _ = writeln!(
            text,
            "{}     {} at {}, pid {}",
            entry.rank,
            entry.state.word(),
            entry.address,
            entry.pid
        );
        let value = |name: &str| {
            entry.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
        };
        let _ = writeln!(
            text,
            "          {} inodes, {} sessions, {} requests, {} journal segments, {} merges",
            value("inodes"),
            value("sessions"),
            value("requests"),
            value("journal_segments"),
            value("merges"),
        );
    }
    if map.mds.len() > 1 {
        let entry = map.balancer();
        let _ = writeln!(text, "balancer  {} (version {})", entry.name, entry.version);
    }
    for warning in health::checks(map) {
        text.push_str("warning   ");
        health::to_text(&mut text, &warning);
    }
    for entry in &map.decoupled {
        let path = quoted(&entry.path);
        let waits = if entry.next.is_some() { "; another policy waits until it ends" } else { "" };
        let cell = cell(&entry.policy).unwrap_or_else(|| "no single promise".to_owned());
        let _ = writeln!(text, "decoupled {path} by {}, {cell}, pending{waits}", entry.client);
    }
    let more = map.decoupled_count().saturating_sub(map.decoupled.len() as u64);
    if more > 0 {
        let _ =
            writeln!(text, "          and {more} more decoupled subtrees, which do not fit here");
    }
    for entry in &map.policies {
        let path = quoted(&entry.path);
        let _ = writeln!(text, "policy    {path} (version {})", entry.version);
    }
    text
}

#[cfg(test)]
mod tests {
    use cudele::MdsEntry;

    use super::*;

    #[test]
    fn subtrees_that_the_monitor_does_not_list_are_counted() {
        let counters = vec![("decoupled_subtrees".to_owned(), 5)];
        let mds = vec![MdsEntry { counters, ..MdsEntry::default() }];
        let decoupled = vec![wire::DecoupledSubtree::default(); 2];
        let map = ClusterMap { mds, decoupled, ..ClusterMap::default() };
        assert!(to_text(&map).contains("and 3 more decoupled subtrees"), "{}", to_text(&map));
        assert_eq!(to_json(&map)["decoupled_count"], 5);
    }
}
