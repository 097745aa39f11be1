//! `cudele mds ls|pin|split|join|fail|remove`: the ranks, and the subtrees that they serve.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Subcommand;
use cudele::{ClusterMap, MdsEntry, PinnedSubtree, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use types::Rank;
use types::quote::quoted;

use crate::space;

/// More fragments of a directory than this are counted; with `--json` all are listed.
const FRAGMENTS_SHOWN: usize = 8;

/// What is asked.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List the ranks, their states, and the subtrees that were given to them
    #[command(after_help = "Example:\n  cudele mds ls --json")]
    Ls,
    /// Have a directory and everything below it served by a rank, while clients work there
    #[command(after_help = "Example:\n  cudele mds pin /home/alice 1")]
    Pin {
        /// The directory
        path: OsString,
        /// The rank
        rank: u16,
    },
    /// Leave it to the balancer which rank serves a directory
    #[command(after_help = "Example:\n  cudele mds unpin /home/alice")]
    Unpin {
        /// The directory
        path: OsString,
    },
    /// Split a directory into eight fragments by the hashes of its names, while clients work there
    #[command(after_help = "Examples:\n  cudele mds split /scratch --ranks 0,1,2,3")]
    Split {
        /// The directory
        path: OsString,
        /// The ranks that get the fragments, in turn [default: they stay where they are]
        #[arg(long, value_delimiter = ',')]
        ranks: Vec<u16>,
    },
    /// Put the fragments of a directory together again, while clients work there
    #[command(after_help = "Example:\n  cudele mds join /scratch")]
    Join {
        /// The directory
        path: OsString,
    },
    /// End the server of a rank; a standby takes over, or the next `cudele up`
    #[command(after_help = "Example:\n  cudele mds fail 1")]
    Fail {
        /// The rank
        rank: u16,
    },
    /// Take the last rank out of the cluster while clients work: its subtrees go to rank 0 first.
    /// `cudele up --mds N` adds ranks
    #[command(after_help = "Example:\n  cudele mds remove 2")]
    Remove {
        /// The rank
        rank: u16,
    },
}

pub(super) fn run(context: &Context, action: &Action) -> Result<()> {
    match action {
        Action::Ls => ls(context),
        Action::Pin { path, rank } => pin(context, path, Rank(*rank)),
        Action::Unpin { path } => unpin(context, path),
        Action::Split { path, ranks } => split(context, path, ranks),
        Action::Join { path } => join(context, path),
        Action::Fail { rank } => fail(context, Rank(*rank)),
        Action::Remove { rank } => remove(context, Rank(*rank)),
    }
}

fn ls(context: &Context) -> Result<()> {
    let cluster = context.cluster()?;
    let map = cluster.status()?;
    let pinned = cluster.pinned()?;
    context.print(&to_json(&map, &pinned), || to_text(&map, &pinned))
}

fn counter(entry: &MdsEntry, name: &str) -> u64 {
    entry.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
}

/// The counters of a rank that are shown.
const COUNTERS: [&str; 14] = [
    "requests",
    "hits",
    "forwards",
    "inodes",
    "sessions",
    "exports",
    "imports",
    "sessions_flushed",
    "export_freeze_micros",
    "export_freezes_micros",
    "balancer_version",
    "balancer_moves",
    "balancer_moves_refused",
    "balancer_faults",
];

fn to_json(map: &ClusterMap, pinned: &[PinnedSubtree]) -> Value {
    let path = |pinned: &PinnedSubtree| String::from_utf8_lossy(&pinned.path).into_owned();
    let ranks = map.mds.iter().map(|entry| {
        let of_rank = pinned.iter().filter(|pinned| pinned.rank == entry.rank);
        let mut value = json!({
            "rank": entry.rank.0,
            "state": entry.state.word(),
            "epoch": entry.epoch.0,
            "address": entry.address,
            "pid": entry.pid,
            "subtrees": of_rank.map(|pinned| json!({
                "path": path(pinned), "ino": pinned.root.0, "moves": pinned.moves,
                "seconds_since_move": age(pinned),
                "pinned": pinned.pinned,
                "fragment": pinned.fragment.map(|(dir, frag)| json!({
                    "of": dir.0, "bits": frag.bits, "value": frag.value,
                })),
            })).collect::<Vec<_>>(),
        });
        for name in COUNTERS {
            value[name] = json!(counter(entry, name));
        }
        // How many heartbeats came from which rank.
        let heartbeats = entry.counters.iter().filter_map(|(name, count)| {
            Some((name.strip_prefix("heartbeats_from_")?.to_owned(), json!(count)))
        });
        value["heartbeats_from"] = Value::Object(heartbeats.collect());
        value["heartbeats_sent"] = json!(counter(entry, "heartbeats_sent"));
        value
    });
    json!({ "ranks": ranks.collect::<Vec<_>>() })
}

fn to_text(map: &ClusterMap, pinned: &[PinnedSubtree]) -> String {
    let mut text = String::new();
    let heads = ["RANK", "STATE", "PID", "REQUESTS", "FORWARDS", "INODES", "SUBTREES"];
    let [rank, state, pid, requests, forwards, inodes, subtrees] = heads;
    let _ = writeln!(
        text,
        "{rank:<8}{state:<11}{pid:>8}{requests:>12}{forwards:>10}{inodes:>12}  {subtrees}"
    );
    for entry in &map.mds {
        let of_rank = pinned.iter().filter(|pinned| pinned.rank == entry.rank);
        let everything = (entry.rank == Rank(0)).then(|| "everything else".to_owned());
        let of_rank = of_rank.filter(|it| it.rank != Rank(0) || it.fragment.is_some());
        let paths: Vec<_> = everything.into_iter().chain(all_shown(of_rank)).collect();
        let _ = writeln!(
            text,
            "{:<8}{:<11}{:>8}{:>12}{:>10}{:>12}  {}",
            entry.rank.to_string(),
            entry.state.word(),
            entry.pid,
            counter(entry, "requests"),
            counter(entry, "forwards"),
            counter(entry, "inodes"),
            paths.join(" ")
        );
    }
    text
}

/// The paths of subtrees; of a directory with many fragments how many there are.
fn all_shown<'a>(subtrees: impl Iterator<Item = &'a PinnedSubtree>) -> Vec<String> {
    let mut fragments: BTreeMap<&[u8], Vec<&PinnedSubtree>> = BTreeMap::new();
    let mut paths = Vec::new();
    for pinned in subtrees {
        match pinned.fragment {
            Some(_) => fragments.entry(pinned.path.as_slice()).or_default().push(pinned),
            None => paths.push(shown(pinned)),
        }
    }
    for (path, of_path) in fragments {
        if of_path.len() > FRAGMENTS_SHOWN {
            let path = quoted(path);
            paths.push(format!("{path} ({} fragments)", of_path.len()));
        } else {
            paths.extend(of_path.into_iter().map(shown));
        }
    }
    paths
}

/// The path of a subtree; of a fragment with the bits with which the hashes of its names begin.
fn shown(pinned: &PinnedSubtree) -> String {
    let path = quoted(&pinned.path);
    match pinned.fragment {
        Some((_, frag)) => {
            let bits = frag.value.unbounded_shr(32 - u32::from(frag.bits));
            format!("{path}#{bits:0width$b}", width = usize::from(frag.bits))
        }
        None => match age(pinned) {
            Some(age) => format!("{path} (moved {} ago)", rounded(age)),
            None => path.into_owned(),
        },
    }
}

/// How long ago a subtree was moved, in seconds, if that is known. Clocks of machines differ.
fn age(pinned: &PinnedSubtree) -> Option<i64> {
    let nanos = cudele::now().0.saturating_sub(pinned.moved.0).max(0);
    (pinned.moved.0 != 0).then_some(nanos / 1_000_000_000)
}

fn rounded(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn split(context: &Context, path: &OsString, ranks: &[u16]) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, path)?;
    let dir = place.existing()?;
    let start = std::time::Instant::now();
    let ranks: Vec<Rank> = ranks.iter().map(|rank| Rank(*rank)).collect();
    let about = |error: cudele::Error| error.about(place.path.to_string());
    fs.split(dir.ino, &ranks).map_err(about)?;
    let parts = fs.fragments(dir.ino).map_err(about)?;
    let seconds = start.elapsed().as_secs_f64();
    let shown = place.path.to_string();
    let fragments = parts.iter().map(|(ino, rank)| json!({ "ino": ino.0, "rank": rank.0 }));
    let fragments: Vec<_> = fragments.collect();
    let value = json!({
        "path": shown, "ino": dir.ino.0, "fragments": fragments, "seconds": seconds,
    });
    context.print(&value, || {
        let shown = place.path.quoted();
        let ranks: Vec<_> = parts.iter().map(|(_, rank)| rank.to_string()).collect();
        format!("{shown} is split; its fragments are on {} ({seconds:.3} s).\n", ranks.join(" "))
    })
}

fn join(context: &Context, path: &OsString) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, path)?;
    let dir = place.existing()?;
    let start = std::time::Instant::now();
    fs.join(dir.ino).map_err(|error| error.about(place.path.to_string()))?;
    let seconds = start.elapsed().as_secs_f64();
    let shown = place.path.to_string();
    let value = json!({ "path": shown, "ino": dir.ino.0, "seconds": seconds });
    context.print(&value, || format!("{} is in one piece ({seconds:.3} s).\n", place.path.quoted()))
}

fn pin(context: &Context, path: &OsString, rank: Rank) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, path)?;
    let dir = place.existing()?;
    let before = fs.rank_of(dir.ino);
    let start = std::time::Instant::now();
    fs.pin(dir.ino, rank).map_err(|error| error.about(place.path.to_string()))?;
    let seconds = start.elapsed().as_secs_f64();
    let shown = place.path.to_string();
    let value = json!({
        "path": shown, "ino": dir.ino.0, "from": before.0, "rank": rank.0, "seconds": seconds,
    });
    context.print(&value, || format!("{rank} serves {} ({seconds:.3} s).\n", place.path.quoted()))
}

fn unpin(context: &Context, path: &OsString) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, path)?;
    let dir = place.existing()?;
    fs.unpin(dir.ino).map_err(|error| error.about(place.path.to_string()))?;
    let shown = place.path.to_string();
    context.print(&json!({ "path": shown, "ino": dir.ino.0, "pinned": false }), || {
        format!("The balancer may move {}.\n", place.path.quoted())
    })
}

fn fail(context: &Context, rank: Rank) -> Result<()> {
    context.cluster()?.fail(rank)?;
    context.print(&json!({ "rank": rank.0, "failed": true }), || {
        format!("The server of {rank} ends. A standby takes over, or the next `cudele up`.\n")
    })
}

fn remove(context: &Context, rank: Rank) -> Result<()> {
    let moved = context.mount()?.remove_rank(rank)?;
    context.print(&json!({ "rank": rank.0, "removed": true, "moved": moved }), || {
        format!("{rank} is removed; {moved} subtrees went to mds.0.\n")
    })
}
