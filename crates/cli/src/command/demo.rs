//! `cudele demo`: the main job on real input, with proof.

mod cluster;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Fs, Preset, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::figures::{count, seconds};

use ingest::intake::{self, IntakeOptions, IntakeReport};
use ingest::source::Source;
use ingest::verify::{self, Difference, Facts};

use cluster::DemoCluster;

/// Start a cluster, bring a real tree in twice (under `posix`: one synchronous request per entry;
/// under `batchfs`: decouple, append, persist, merge), prove by an independent walk that both
/// copies equal the source, print the table, and take the cluster away again.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele demo
  cudele demo linux-6.1.tar.xz --keep --dir /tmp/try")]
pub(crate) struct Args {
    /// A directory or a tar archive [default: a tree that every machine has]
    #[arg(value_name = "SRC")]
    source: Option<PathBuf>,
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
}

/// Trees that machines have, and how many entries make one worth showing.
const TREES: [&str; 4] = ["/usr/share", "/usr/lib", "/usr", "/etc"];
const ENTRIES_MIN: u64 = 20_000;
/// Differences that are printed.
const DIFFERENCES_SHOWN: usize = 20;

/// The result of one way of bringing the source in.
struct DemoResult {
    preset: &'static str,
    path: String,
    report: IntakeReport,
    differences: Vec<Difference>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let start = Instant::now();
    let source = match &args.source {
        Some(path) => Source::open(path)?,
        None => Source::Tree(default_tree()?),
    };
    if source == Source::StandardInput {
        return Err(Error::new(Errno::Invalid, "-", "the source is read several times")
            .remedy("name a file or a directory"));
    }
    say(context, &format!("The source is {}.", source.name()));
    let cluster = DemoCluster::start(context.dir.as_deref(), args.keep)?;
    let (outcomes, store) = job(context, &cluster, &source)?;
    let equal = outcomes.iter().all(|outcome| outcome.differences.is_empty());
    let elapsed = start.elapsed().as_secs_f64();
    let value = json!({
        "source": source.name(), "store": store, "equal": equal, "seconds": elapsed,
        "rows": outcomes.iter().flat_map(|outcome| {
            table::rows(&outcome.report, outcome.preset, &outcomes[1].report)
        }).collect::<Vec<_>>(),
        "trees": outcomes.iter().map(tree_json).collect::<Vec<_>>(),
        "kept": args.keep.then(|| cluster.dir()),
    });
    context.print(&value, || text(&outcomes, &source, elapsed))?;
    if !args.keep {
        say(context, "Stopping the cluster and removing its files ...");
    }
    cluster.end(context)?;
    if equal {
        return Ok(());
    }
    let number: usize = outcomes.iter().map(|outcome| outcome.differences.len()).sum();
    let cause = format!("{} differences to the copies in the namespace", count(number as u64));
    Err(Error::new(Errno::BadMessage, source.name(), cause)
        .remedy("if something else writes to the source, choose one that stays as it is"))
}

/// Brings the source in both ways and verifies them.
fn job(
    context: &Context,
    cluster: &DemoCluster,
    source: &Source,
) -> Result<(Vec<DemoResult>, String)> {
    let fs = cluster.cluster().mount()?;
    let (without, stop) = (Some(cluster.dir().to_owned()), cluster.stop_flag());
    let options = IntakeOptions { without, stop, ..IntakeOptions::default() };
    let preset = |name: &str| {
        let found = Preset::by_name(name).map(Preset::policy);
        found.ok_or_else(|| Error::new(Errno::NotFound, name, "no such preset"))
    };
    say(context, "Bringing it in under posix: one synchronous request per entry ...");
    fs.cluster().set_policy(b"/", Some(&preset("posix")?.to_yaml()))?;
    let posix = intake::strong(&fs, "/posix", source, &options)?;
    // The server's pending checkpoints must not slow the other one.
    fs.checkpoint()?;
    say(context, "Bringing it in under batchfs: decouple, append, persist, merge ...");
    let policy = preset("batchfs")?;
    let batch = intake::decoupled(&fs, "/batchfs", &policy, source, &options)?;
    say(context, "Reading everything back and comparing ...");
    let store = fs.cluster().status()?.store;
    let ways = [("posix", "/posix", posix), ("batchfs", "/batchfs", batch)];
    let outcomes = verified(cluster, source, &fs, ways)?;
    Ok((outcomes, store))
}

/// Compares both trees with the source. The source and the namespace are read at the same time.
fn verified(
    cluster: &DemoCluster,
    source: &Source,
    fs: &Arc<Fs>,
    ways: [(&'static str, &'static str, IntakeReport); 2],
) -> Result<Vec<DemoResult>> {
    let (expected, found) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("source".to_owned());
        let expected = thread.spawn_scoped(scope, || facts_of(source));
        let found: Result<Vec<Facts>> =
            ways.iter().map(|(_, path, _)| verify::of_namespace(fs, path)).collect();
        let panicked = |_| Err(Error::new(Errno::Io, source.name(), "the reading thread panicked"));
        let expected = match expected {
            Ok(thread) => thread.join().unwrap_or_else(panicked),
            // There can be no more threads: one is read after the other.
            Err(_) => facts_of(source),
        };
        (expected, found)
    });
    let (mut expected, found) = (expected?, found?);
    leave_out(&mut expected, source, cluster.dir());
    let root = cudele::own_cred().is_root();
    if !root {
        expected.values_mut().for_each(|fact| fact.owner = None);
    }
    Ok(ways
        .into_iter()
        .zip(found)
        .map(|((preset, path, report), found)| {
            let skipped: BTreeSet<&[u8]> =
                report.tally.skipped.iter().map(|skip| skip.path.as_slice()).collect();
            // A directory that could not be read exists, but its content is unknown.
            let skipped = |path: &[u8]| skipped.contains(path) && !found.contains_key(path);
            let differences = verify::compare(&expected, &found, &skipped);
            DemoResult { preset, path: path.to_owned(), report, differences }
        })
        .collect())
}

fn facts_of(source: &Source) -> Result<Facts> {
    match source {
        Source::Tree(path) => verify::of_tree(path),
        Source::Archive(path) => verify::of_archive(path),
        Source::StandardInput | Source::Dump(_) | Source::DumpOnStandardInput => {
            Err(Error::of(Errno::NotSupported, source.name()))
        }
    }
}

/// The demo's own cluster may be below the source.
fn leave_out(facts: &mut Facts, source: &Source, dir: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let Source::Tree(root) = source else { return };
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (root, dir) = (whole(root), whole(dir));
    let Ok(below) = dir.strip_prefix(&root) else { return };
    let own = below.as_os_str().as_bytes();
    let inside = |path: &[u8]| {
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    facts.retain(|path, _| !inside(path));
}

/// The first of the trees that has enough entries.
fn default_tree() -> Result<PathBuf> {
    let mut best: Option<(u64, PathBuf)> = None;
    for tree in TREES {
        let path = PathBuf::from(tree);
        let entries = Source::Tree(path.clone()).count().unwrap_or(0);
        if entries >= ENTRIES_MIN {
            return Ok(path);
        }
        if best.as_ref().is_none_or(|(most, _)| entries > *most) {
            best = Some((entries, path));
        }
    }
    best.map(|(_, path)| path).ok_or_else(|| {
        Error::new(Errno::NotFound, "demo", "no tree to bring in was found").remedy("name one")
    })
}

/// Reports the progress on standard error.
fn say(context: &Context, text: &str) {
    if !context.json {
        eprintln!("{text}");
    }
}

fn tree_json(outcome: &DemoResult) -> Value {
    let shown = outcome.differences.iter().take(DIFFERENCES_SHOWN);
    json!({
        "preset": outcome.preset, "path": outcome.path, "equal": outcome.differences.is_empty(),
        "differences": outcome.differences.len(),
        "first_differences": shown.map(ToString::to_string).collect::<Vec<_>>(),
        "ingest": outcome.report.to_json(),
    })
}

fn text(outcomes: &[DemoResult], source: &Source, elapsed: f64) -> String {
    let mut text = table::text(outcomes[0].report.clone(), outcomes[1].report.clone());
    for DemoResult { path, report, differences, .. } in outcomes {
        let skipped = report.tally.skipped.len() as u64;
        if skipped > 0 {
            let first = &report.tally.skipped[0];
            text.push_str(&format!(
                "{} entries of {} were skipped, the first: {}: {}\n",
                count(skipped),
                source.name(),
                ingest::source::shown(&first.path),
                first.reason
            ));
        }
        if differences.is_empty() {
            text.push_str(&format!(
                "{path:<9} equals the source: {} names with types, modes, sizes, times, targets, \
                 hard links and content hashes\n",
                count(report.tally.entries())
            ));
            continue;
        }
        text.push_str(&format!("{path:<9} DIFFERS from the source:\n"));
        for difference in differences.iter().take(DIFFERENCES_SHOWN) {
            text.push_str(&format!("  {difference}\n"));
        }
    }
    text.push_str(&format!("All of it took {}.\n", seconds(elapsed)));
    text
}
