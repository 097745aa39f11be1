//! `cudele up`: a cluster on this machine with one command and no configuration.

mod wishes;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use cudele::own_file::Folder;
use cudele::{Cluster, ClusterMap, Errno, Error, Locator, MdsEntry, MdsState, Result};
use exporter::MetricsServer;
use httpserver::HttpAddress;
use net::{Address, Connection};
use serde_json::json;
use terminal::context::Context;
use terminal::io;
use terminal::logfile;
use types::{Epoch, Rank};
use wire::{Hello, Message};

use crate::access;
use crate::log_args::LogArgs;
use crate::marker;

/// Start a monitor, metadata servers and the embedded object store, each daemon in a process of its
/// own, and return when they are healthy. Started again on the same directory, it starts the
/// daemons that do not run, and with a larger number more metadata servers.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele up --dir /tmp/try --mds 2 --standby 1")]
pub(crate) struct Args {
    /// Object store [default: a directory of files below the cluster's directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Number of active metadata servers [default: as many as the cluster has, or 1]
    #[arg(long, value_name = "N")]
    mds: Option<u16>,
    /// Number of metadata servers that wait to take over from one that dies
    #[arg(long, default_value_t = 0, value_name = "N")]
    standby: u16,
    /// Let the members of this group connect, besides the owner of the cluster and root. Each of
    /// them can do what the permissions of files and directories allow
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Metadata server settings for experiments, such as `segments_max=30`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Serve a damaged store before its repair, and change nothing in it
    #[arg(long)]
    read_only: bool,
    /// Answer scrapers of metrics on loopback: the monitor at PORT, rank 0 at PORT + 1, and so on.
    /// There is no authentication
    #[arg(long, value_name = "PORT")]
    metrics: Option<u16>,
    /// Show paths of subtrees in the metrics, which are names of users
    #[arg(long, requires = "metrics")]
    metrics_paths: bool,
    /// Show a web page of the cluster at this port of loopback, or at a free port for 0; `cudele
    /// web` prints its address
    #[arg(long, value_name = "PORT")]
    web: Option<u16>,
    #[command(flatten)]
    log: LogArgs,
    /// Requests that take so many milliseconds have a line in the log; 0 for none [default: 1000]
    #[arg(long, value_name = "MS")]
    log_slow_ms: Option<u64>,
}

/// The options of the daemons that `cudele up` starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DaemonOptions<'a> {
    settings: &'a [String],
    read_only: bool,
    /// The port of the monitor's metrics.
    metrics: Option<u16>,
    /// The metrics show paths.
    metrics_paths: bool,
    /// The port of the web page.
    web: Option<u16>,
    log: &'a [String],
    log_slow_ms: Option<u64>,
}

/// The file that says that a directory holds a cluster.
pub(crate) const MARKER: &str = "cudele-cluster";
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a metadata server may take to open a session.
const ANSWER: Duration = Duration::from_secs(5);

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let start = Instant::now();
    let dir = directory(context)?;
    wishes::check(context, &dir, args)?;
    let group = args.group.as_deref().map(access::group_of).transpose()?;
    let mds = args.mds.unwrap_or(1);
    let Args { settings, read_only, metrics, metrics_paths, web, log, log_slow_ms, .. } = args;
    let wishes = DaemonOptions {
        settings,
        read_only: *read_only,
        metrics: *metrics,
        metrics_paths: *metrics_paths,
        web: *web,
        log: &log.arguments(),
        log_slow_ms: *log_slow_ms,
    };
    let Up { map, mut started, .. } = start_ranks(&dir, args.store.as_deref(), group, wishes, mds)?;
    for number in 0..args.standby {
        let name = format!("standby.{number}");
        let options = options(None, 1, wishes);
        spawn(&dir, "mds", &name, &options)?;
        started.push(name);
    }
    Locator::remember(&dir)?;
    let seconds = start.elapsed().as_secs_f64();
    let metrics = metrics.map(|port| scraped(port, &map));
    let value = json!({
        "dir": dir, "mon": Locator::monitor_of(&dir).to_string(), "store": map.store,
        "cluster": map.cluster, "seconds": seconds, "started": started, "metrics": metrics,
        "web": web.and_then(|_| super::web::link(&dir).ok()),
    });
    context.print(&value, || {
        let what = if started.is_empty() { "already runs" } else { "is up" };
        let scraped: String = metrics
            .iter()
            .flatten()
            .map(|(daemon, address)| format!("  metrics    {address} ({daemon})\n"))
            .collect();
        let page: String =
            value["web"].as_str().map(|link| format!("  web page   {link}\n")).unwrap_or_default();
        format!(
            "The cluster {what} ({:.2} s).\n  directory  {}\n  monitor    {}\n  store      {}\n\
             {scraped}{page}\
             Stop it with `cudele down`.\n",
            seconds,
            dir.display(),
            Locator::monitor_of(&dir),
            map.store,
        )
    })
}

/// The daemons of a cluster with the addresses of their metrics.
fn scraped(port: u16, map: &ClusterMap) -> BTreeMap<String, String> {
    let ranks = map.mds.iter().map(|entry| (entry.rank.to_string(), entry.rank.0 + 1));
    let all = std::iter::once(("mon".to_owned(), 0)).chain(ranks);
    let address = |offset| MetricsServer::page(&HttpAddress::port(port.saturating_add(offset)));
    all.map(|(daemon, offset)| (daemon, address(offset))).collect()
}

/// A cluster that runs.
pub(crate) struct Up {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) map: ClusterMap,
    /// The daemons that had to be started.
    pub(crate) started: Vec<String>,
}

/// How many ranks there are at most.
const RANKS_MAX: u16 = mon::RANKS_MAX;

/// Starts the missing daemons of a cluster with one metadata server, or with as many as it has.
///
/// # Errors
/// As [`start_ranks`].
pub(crate) fn start(dir: &Path, store: Option<&str>, settings: &[String]) -> Result<Up> {
    let wishes = DaemonOptions { settings, ..DaemonOptions::default() };
    start_ranks(dir, store, None, wishes, 1)
}

/// Starts the missing daemons of the cluster in a directory, and waits until it is healthy.
///
/// # Errors
/// `EEXIST` if the directory holds something else; the last message of a daemon that ended.
pub(crate) fn start_ranks(
    dir: &Path,
    store: Option<&str>,
    group: Option<u32>,
    wishes: DaemonOptions<'_>,
    mds: u16,
) -> Result<Up> {
    let _private = access::keep_private();
    super::init::prepare(dir, store)?;
    access::protect(dir, group)?;
    if !wishes.read_only {
        lend_room(dir);
    }
    let mut started = Vec::new();
    if Cluster::connect(&Locator::monitor_of(dir)).is_err() {
        super::mds::standby::forget(dir);
        started.push(("mon".to_owned(), spawn(dir, "mon", "mon", &options_of_monitor(wishes))?));
        await_monitor(dir, &mut started)?;
    }
    let cluster = Cluster::connect(&Locator::monitor_of(dir))?;
    let known = cluster.status()?.mds;
    // Existing ranks may serve subtrees, so they are started even beyond the requested number.
    let ranks = known.iter().map(|entry| entry.rank.0 + 1).max().unwrap_or(0).max(mds);
    let mut servers = Vec::new();
    for rank in (0..ranks).map(Rank) {
        let runs = known.iter().any(|entry| entry.rank == rank && runs(&cluster, entry));
        if !runs {
            let name = rank.to_string();
            let log = if rank == Rank(0) { "mds" } else { &name };
            let child = spawn(dir, "mds", log, &options(Some(rank), ranks, wishes))?;
            servers.push((rank, Some(child.id())));
            started.push((name, child));
        } else {
            servers.push((rank, None));
        }
    }
    await_active(dir, &cluster, &servers, &mut started)?;
    let map = cluster.status()?;
    let started = started.into_iter().map(|(name, _)| name).collect();
    Ok(Up { cluster, map, started })
}

/// The options of the monitor.
fn options_of_monitor(wishes: DaemonOptions<'_>) -> Vec<String> {
    let metrics = wishes.metrics.map(|port| ["--metrics".to_owned(), port.to_string()]);
    let web = wishes.web.map(|port| ["--web".to_owned(), port.to_string()]);
    let options = read_only(wishes.read_only).into_iter().chain(metrics.into_iter().flatten());
    options.chain(web.into_iter().flatten()).chain(wishes.log.iter().cloned()).collect()
}

/// The option of a daemon that changes nothing.
fn read_only(is_read_only: bool) -> Vec<String> {
    is_read_only.then(|| "--read-only".to_owned()).into_iter().collect()
}

/// The options of a metadata server: of a rank, or one that waits for a rank.
fn options(rank: Option<Rank>, ranks: u16, wishes: DaemonOptions<'_>) -> Vec<String> {
    let warm = (warm_bytes() / usize::from(ranks.max(1))).to_string();
    let mut options = vec!["--warm-bytes".to_owned(), warm];
    match rank {
        Some(rank) => options.extend(["--rank".to_owned(), rank.0.to_string()]),
        None => options.push("--standby".to_owned()),
    }
    options.extend(read_only(wishes.read_only));
    if let Some(port) = wishes.metrics {
        options.extend(["--metrics-from".to_owned(), port.saturating_add(1).to_string()]);
    }
    if wishes.metrics_paths {
        options.push("--metrics-paths".to_owned());
    }
    options.extend(wishes.log.iter().cloned());
    options.extend(wishes.log_slow_ms.map(|slow| format!("--log-slow-ms={slow}")));
    options.extend(wishes.settings.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    options
}

/// `--dir`, `$CUDELE_DIR`, else `$XDG_DATA_HOME/cudele`, else `~/.local/share/cudele`.
pub(crate) fn directory(context: &Context) -> Result<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = context
        .dir
        .clone()
        .or_else(|| var("CUDELE_DIR"))
        .or_else(|| Some(var("XDG_DATA_HOME")?.join("cudele")))
        .or_else(|| Some(var("HOME")?.join(".local/share/cudele")))
        .ok_or_else(|| {
            Error::new(Errno::Invalid, "up", "no directory for the cluster is known")
                .remedy("name one with --dir")
        })?;
    std::path::absolute(&dir).map_err(|error| io(&dir, &error))
}

/// The bytes that a start needs beside the store, for logs and sockets.
const START_BYTES: u64 = 1 << 20;

/// A store that is full to the last byte is often on the disk that the cluster's directory is on.
fn lend_room(dir: &Path) {
    // If it cannot be opened, a daemon says why.
    let local = store_of(dir).filter(|url| !url.starts_with("rados:"));
    if let Some(Ok(store)) = local.map(|url| objstore::open_existing(&url)) {
        store.allow_reserve();
        store.lend_reserve(START_BYTES);
    }
}

/// The address of the store of a cluster that was started in this directory.
pub(crate) fn store_of(dir: &Path) -> Option<String> {
    Some(marker::read(dir).ok()??.store)
}

/// A field of the marker file.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// Where the C library looks for the settings of its allocator.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The tables of a namespace are large and visited at random: with pages of 4 KiB most visits miss
/// the processor's table of pages too. Replay is a third faster with huge pages, which the kernel
/// gives to processes that ask; for that, memory must be taken in large pieces from one place. The
/// allocator keeps freed memory, because it will be needed again.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:\
    glibc.malloc.top_pad=67108864:glibc.malloc.trim_threshold=4294967296";

/// Memory that a metadata server has ready: that of a million files.
const WARM_BYTES: usize = 160 << 20;

/// Memory that a metadata server has ready here. Nothing on a small machine: an idle server must
/// not take memory that other processes need.
fn warm_bytes() -> usize {
    let spare = crate::memory::available().unwrap_or(0) / 16;
    if spare < WARM_BYTES { 0 } else { WARM_BYTES }
}

/// Starts a daemon of this binary in the background, with its output in a log file.
fn spawn(dir: &Path, daemon: &str, log: &str, options: &[String]) -> Result<Child> {
    let file = Folder::make(dir, "log")?.append(&format!("{log}.log"))?;
    let copy = file.try_clone().map_err(|error| io(dir, &error))?;
    let program = std::env::current_exe().map_err(|error| io(dir, &error))?;
    let mut command = Command::new(&program);
    if std::env::var_os(TUNABLES).is_none() {
        command.env(TUNABLES, HUGE_PAGES);
    }
    command
        .arg(daemon)
        .arg("--dir")
        .arg(dir)
        .args(options)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(copy)
        .stderr(file)
        .process_group(0)
        .spawn()
        .map_err(|error| io(&program, &error))
}

/// Waits until `ready` returns true, or until a daemon that was started has ended.
fn wait(
    dir: &Path,
    started: &mut [(String, Child)],
    mut ready: impl FnMut() -> bool,
) -> Result<()> {
    let start = Instant::now();
    while !ready() {
        for (name, child) in started.iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(failed(dir, name, &format!("ended with {status}")));
            }
        }
        if start.elapsed() > PATIENCE {
            let name = started.last().map_or("mds.0", |(name, _)| name.as_str());
            return Err(failed(dir, name, "is not ready after 20 seconds"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn failed(dir: &Path, name: &str, what: &str) -> Error {
    let file = if name == "mds.0" { "mds" } else { name };
    let log = logfile::of_daemon(dir, file);
    let text = fs::read_to_string(&log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(no output)");
    // A log in JSON has the sentence in a field.
    let event = serde_json::from_str::<serde_json::Value>(last).unwrap_or_default();
    let last = event["text"].as_str().unwrap_or(last).trim_start_matches("cudele: ");
    Error::new(Errno::Io, name, format!("{what}: {last}")).remedy(format!("see {}", log.display()))
}

fn await_monitor(dir: &Path, started: &mut [(String, Child)]) -> Result<()> {
    wait(dir, started, || Cluster::connect(&Locator::monitor_of(dir)).is_ok())
}

/// Waits until a metadata server of each rank is active: the one that was started, if one was. The
/// map's entry of an earlier one may be out of date.
fn await_active(
    dir: &Path,
    cluster: &Cluster,
    servers: &[(Rank, Option<u32>)],
    started: &mut [(String, Child)],
) -> Result<()> {
    wait(dir, started, || {
        let is_active = |map: &ClusterMap, (rank, pid): &(Rank, Option<u32>)| {
            let is_it =
                |entry: &&MdsEntry| entry.rank == *rank && pid.is_none_or(|pid| entry.pid == pid);
            map.mds.iter().find(is_it).is_some_and(|entry| entry.state == MdsState::Active)
        };
        let all = |map: ClusterMap| servers.iter().all(|server| is_active(&map, server));
        cluster.status().is_ok_and(all)
    })
}

/// Whether a server runs. The monitor may know only its state from before a crash of all daemons,
/// and a socket may be that of a process that is just dying, so the server itself is asked.
fn runs(cluster: &Cluster, entry: &MdsEntry) -> bool {
    let Ok(address) = entry.address.parse::<Address>() else { return false };
    match entry.state {
        MdsState::Active => answers(cluster, &address).unwrap_or(false),
        // It answers when it is active.
        MdsState::Replaying | MdsState::Stopping => address.is_served(cluster.keys()),
        MdsState::Lost => false,
    }
}

/// Whether a metadata server opens a session.
fn answers(cluster: &Cluster, address: &Address) -> Result<bool> {
    let hello = Hello { client: cluster.register()?, epoch: Epoch(0), unsafe_requests: 0 };
    let mut connection = Connection::open(address, cluster.keys())?;
    connection.set_timeout(Some(ANSWER))?;
    connection.send(&Message::Hello(hello).to_frame())?;
    Ok(matches!(Message::decode(connection.receive()?)?, Message::Welcome(_)))
}
