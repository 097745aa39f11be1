//! `cudele mount`: the namespace as a file system of this machine.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clap::Args as ClapArgs;
use cudele::{ConnectionChange, Errno, Error, Fs, Locator, Result, WantsExclusive};
use exporter::{Feed, MetricsServer};
use httpserver::HttpAddress;
use mount::{MountMeter, MountOptions, Mounted};
use serde_json::json;
use terminal::context::{Context, say};
use terminal::io;
use terminal::logfile;
use types::quote::quoted;
use vfs::Vfs;

use crate::log_args::LogArgs;

/// Mount the namespace, or the part of it below a path, on a directory. Programs use it like any
/// other file system; each subtree keeps the promise of its policy.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  cudele mount /mnt/cudele
  cudele mount --root /home -o ro,allow_other /mnt/homes")]
pub(crate) struct Args {
    /// Directory of this machine to mount on
    at: PathBuf,
    /// Directory in the namespace to show
    #[arg(long, default_value = "/", value_name = "PATH")]
    root: String,
    /// Mount options: ro, allow_other, dev, suid, noexec, noatime, strictatime, valid=SECONDS,
    /// timeout=SECONDS, hard, wsync, nowsync, noacl, uidmap=HERE:CLUSTER:COUNT, gidmap=...,
    /// all_squash=UID:GID, threads=N, latency=MICROSECONDS, io_uring, noio_uring; remount changes
    /// ro, dev, suid, noexec and noatime of a mount in use
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Answer scrapers of metrics at PORT (of loopback), HOST:PORT or unix:PATH; there is no
    /// authentication
    #[arg(long, value_name = "ADDR")]
    metrics: Option<HttpAddress>,
    /// Stay in the foreground until it is unmounted
    #[arg(long, short)]
    foreground: bool,
    /// The log of a mount in the background [default: a file in the directory `log` of
    /// $CUDELE_STATE, else of ~/.local/state/cudele]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    events: LogArgs,
    /// Print nothing on success, as a helper of `mount(8)`.
    #[arg(long, hide = true)]
    quiet: bool,
    /// Say when it is mounted, then speak to the log.
    #[arg(long, hide = true)]
    announce: bool,
}

/// The message of the process in the background when it has mounted.
const READY: &str = "mounted";

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let at = std::path::absolute(&args.at).map_err(|error| io(&args.at, &error))?;
    let mut options = MountOptions::default();
    args.options.iter().try_for_each(|list| options.parse(list))?;
    if options.remount {
        return mount::remount(&at, &args.options);
    }
    let log = args.log.clone().unwrap_or_else(|| logfile::of_mount(&at));
    let log = std::path::absolute(&log).map_err(|error| io(&log, &error))?;
    if !args.foreground && !args.announce {
        start(context, args, &at, &log)?;
        if args.quiet {
            return Ok(());
        }
        let value = json!({ "mounted": at, "root": args.root, "log": log });
        return context.print(&value, || {
            let shown = |path: &Path| quoted(path.as_os_str().as_bytes()).into_owned();
            let (at, log, root) = (shown(&at), shown(&log), quoted(args.root.as_bytes()));
            format!(
                "{root} is mounted on {at}. Unmount it with `cudele umount {at}`. Its log is {log}.\n"
            )
        });
    }
    // Every open file of every program on it may need one.
    net::descriptors::raise();
    let meter = args.metrics.as_ref().map(|_| Arc::new(MountMeter::default()));
    let (mounted, fs) = here(context, args, &at, &options, meter.clone())?;
    let scrapers = scrapers(args.metrics.as_ref(), meter, &fs)?;
    let file = args.announce.then(|| logfile::open(&log)).transpose()?;
    if let Some(file) = &file {
        rustix::stdio::dup2_stderr(file).map_err(|error| io(&log, &error.into()))?;
    }
    let events = args.events.log("mount");
    let way = if mounted.uses_io_uring() { ", with requests over io_uring" } else { "" };
    events.info("mount.mounted", format_args!("{} is mounted on {}{way}", args.root, at.display()));
    if let Some(scrapers) = &scrapers {
        events.info(
            "metrics.at",
            format_args!("metrics are at {}", MetricsServer::page(scrapers.address())),
        );
    }
    if let Some(file) = &file {
        say(&format!("{READY}\n"))?;
        rustix::stdio::dup2_stdout(file).map_err(|error| io(&log, &error.into()))?;
    }
    let ended = until_unmounted(mounted);
    drop(scrapers);
    // Threads of the mount may outlive this one, and keep their references.
    fs.close();
    match &ended {
        Ok(()) => events.info("mount.unmounted", format_args!("{} is unmounted", at.display())),
        Err(error) => {
            events.error("mount.unmounted", format_args!("{} is unmounted: {error}", at.display()));
        }
    }
    ended
}

/// The server for scrapers of the mount's metrics, if there is to be one.
fn scrapers(
    address: Option<&HttpAddress>,
    meter: Option<Arc<MountMeter>>,
    fs: &Arc<Fs>,
) -> Result<Option<MetricsServer>> {
    let (Some(address), Some(meter)) = (address, meter) else { return Ok(None) };
    // The file system ends with the mount, not with the last scraper.
    let fs = Arc::downgrade(fs);
    let feed = Feed::of_threads(Box::new(move || {
        let fs = fs.upgrade();
        let sent = fs.as_ref().map_or(0, |fs| fs.requests());
        meter.page(sent, fs.map_or(0, |fs| fs.unsafe_requests() as u64))
    }));
    MetricsServer::start(address, feed).map(Some)
}

/// Mounts with this process behind it.
fn here(
    context: &Context,
    args: &Args,
    at: &Path,
    options: &MountOptions,
    meter: Option<Arc<MountMeter>>,
) -> Result<(Mounted, Arc<Fs>)> {
    let cluster = context.cluster()?;
    let place = at.display().to_string();
    let events = args.events.log("mount");
    cluster.watch_contact(move |news| {
        let text = format!("{place}: {news}");
        match news {
            ConnectionChange::Lost { .. } => events.warning("rank.lost", text),
            ConnectionChange::Restored { .. } => events.info("rank.restored", text),
        }
    });
    let fs = cluster.mount()?;
    fs.set_patience(options.timeout);
    let root = cudele::Path::parse(args.root.as_bytes())?;
    let MountOptions { valid, read_only, atime, no_access_lists, .. } = *options;
    let ahead = if options.synchronous { WantsExclusive::Never } else { WantsExclusive::Always };
    let settings = vfs::VfsOptions { valid, read_only, atime, ahead, no_access_lists };
    let source = format!("cudele:{root}");
    let vfs = Arc::new(Vfs::new(fs.clone(), &root, settings)?);
    Ok((mount::mount_measured(vfs, at, &source, options, meter)?, fs))
}

/// Waits until a user unmounts it, or a signal ends this process.
fn until_unmounted(mounted: Mounted) -> Result<()> {
    let wanted = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    let at = mounted.at().to_owned();
    let mut signals =
        signal_hook::iterator::Signals::new(wanted).map_err(|error| io(&at, &error))?;
    let handle = signals.handle();
    let stopper = std::thread::Builder::new().name("stopper".to_owned());
    let place = at.clone();
    let stopper = stopper.spawn(move || {
        if signals.forever().next().is_some() {
            // Files that are open are left to their programs; the directory is free at once.
            let _ = mount::unmount(&at, true);
        }
    });
    let stopper = stopper.map_err(|error| io(&place, &error))?;
    let result = mounted.wait();
    handle.close();
    let _ = stopper.join();
    result
}

/// Starts a process that mounts and stays in the background, and waits until it has mounted.
fn start(context: &Context, args: &Args, at: &Path, log: &Path) -> Result<()> {
    let program = std::env::current_exe().map_err(|error| io(at, &error))?;
    let mut command = Command::new(&program);
    command.arg("mount").arg("--announce").arg("--log").arg(log);
    command.arg("--root").arg(&args.root);
    for option in &args.options {
        command.arg("-o").arg(option);
    }
    if let Some(metrics) = &args.metrics {
        command.arg("--metrics").arg(metrics.argument());
    }
    command.args(args.events.arguments());
    let Locator { mon, dir, key } = context.locator();
    if let Some(mon) = mon {
        command.arg("--mon").arg(mon);
    }
    if let Some(dir) = dir {
        command.arg("--dir").arg(std::path::absolute(&dir).map_err(|error| io(&dir, &error))?);
    }
    if let Some(key) = key.or_else(|| std::env::var_os("CUDELE_KEY").map(PathBuf::from)) {
        command.arg("--key").arg(std::path::absolute(&key).map_err(|error| io(&key, &error))?);
    }
    command.arg("--").arg(at).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| io(&program, &error))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // Nothing but the one word, or the end.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim_end() == READY { Ok(()) } else { Err(failed(child, at)) }
}

fn failed(mut child: Child, at: &Path) -> Error {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    let said = said.trim().trim_start_matches("cudele: ").to_owned();
    Error::new(Errno::Io, at.display().to_string(), format!("it is not mounted: {said}"))
}
