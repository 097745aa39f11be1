//! `cudele mds`: a metadata server in the foreground; and requests to the ranks of a cluster.

mod ranks;
pub(crate) mod standby;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Locator, Result};
use daemon::{MdsOptions, MetricsOptions};
use httpserver::HttpAddress;
use mds::{CHOSEN, Settings};
use net::Address;
use terminal::context::Context;
use types::{Rank, Span};

use super::mon::marker;
use crate::log_args::LogArgs;

/// Run a metadata server in the foreground, for service managers; or list the ranks of a cluster,
/// and choose which of them serves which subtree.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  cudele mds --dir /srv/cudele --rank 0\n  cudele mds ls\n  \
                  cudele mds pin /home/alice 1"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<ranks::Action>,
    /// Its rank
    #[arg(long, default_value_t = 0)]
    rank: u16,
    /// Wait until a rank has lost its server, and take over
    #[arg(long, conflicts_with = "rank")]
    standby: bool,
    /// If another process serves the rank, wait as a standby: a server that was restarted finds its
    /// rank taken over
    #[arg(long, conflicts_with = "standby")]
    or_standby: bool,
    /// Where to listen [default: a socket in the cluster's directory]; a standby uses the address
    /// after it has taken over
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// A setting for experiments: segment_bytes_max, dispatch, commit_interval_ms, commit_bytes,
    /// segments_max, inodes_max, split_entries, pass_directories, reconnect_ms, recall_ms,
    /// evict_ms, dir_lease_ms, balance_interval_ms, balance_half_life_ms, reserve_bytes,
    /// watch_bytes, watch_ms
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Change nothing in the store, and refuse changes with EROFS
    #[arg(long)]
    read_only: bool,
    /// Answer scrapers of metrics at PORT (of loopback), HOST:PORT or unix:PATH; there is no
    /// authentication
    #[arg(long, value_name = "ADDR")]
    metrics: Option<HttpAddress>,
    /// The same at a port of loopback that grows with the rank, also of a standby
    #[arg(long, value_name = "PORT", hide = true, conflicts_with = "metrics")]
    metrics_from: Option<u16>,
    /// Show paths of subtrees in the metrics, which are names of users
    #[arg(long)]
    metrics_paths: bool,
    #[command(flatten)]
    log: LogArgs,
    /// Requests that take so many milliseconds have a line in the log; 0 for none
    #[arg(long, value_name = "MS", default_value_t = LOG_SLOW_MS)]
    log_slow_ms: u64,
    /// Memory to have ready before it is needed, in bytes; useful if the allocator keeps freed
    /// memory
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    warm_bytes: usize,
}

/// The default of `--log-slow-ms`.
pub(crate) const LOG_SLOW_MS: u64 = 1_000;

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    if let Some(action) = &args.action {
        return ranks::run(context, action);
    }
    if !args.standby {
        match serve(context, args, Rank(args.rank)) {
            Err(error) if error.errno == Errno::Busy && args.or_standby => {}
            ended => return ended,
        }
    }
    standby::run(context, &args.log, |rank| serve(context, args, rank))
}

fn serve(context: &Context, args: &Args, rank: Rank) -> Result<()> {
    let (dir, marker) = marker(context)?;
    let _private = crate::access::keep_private();
    let address = match &args.listen {
        Some(address) => address.parse()?,
        None => Address::Unix(dir.join(format!("mds.{}.sock", rank.0))),
    };
    if let Address::Tcp(host) = &address
        && ["0.0.0.0:", "[::]:"].iter().any(|any| host.starts_with(any))
    {
        let cause = "clients are told this address, and it is none that they can connect to";
        return Err(Error::new(Errno::Invalid, format!("--listen {address}"), cause)
            .remedy("name the host, or its address in the network of the clients"));
    }
    // The user that makes a cluster owns its root directory, or could not use it.
    let cred = cudele::own_cred();
    let mut settings = Settings { root_owner: (cred.uid, cred.gid), ..Settings::default() };
    settings.proof_key = super::verify::key_of(&dir)?;
    settings.read_only = args.read_only;
    for setting in &args.settings {
        apply(&mut settings, setting)?;
    }
    let monitor = match &context.mon {
        Some(address) => address.parse()?,
        None => Locator::monitor_of(&dir),
    };
    daemon::run_mds(MdsOptions {
        rank,
        address,
        keys: context.locator().keys(Some(&dir)),
        audit: Some(dir.join("log")),
        group: marker.group,
        monitor,
        store: objstore::open_existing(&marker.store)?,
        settings,
        metrics: metrics(args, rank),
        warm_bytes: args.warm_bytes,
        terminate: None,
        slow: Some(Span::from_millis(args.log_slow_ms)).filter(|slow| slow.0 > 0),
        log: args.log.log(rank.to_string()),
    })
}

/// Where scrapers find the metrics of a rank.
fn metrics(args: &Args, rank: Rank) -> Option<MetricsOptions> {
    let own = args.metrics_from.map(|port| HttpAddress::port(port.saturating_add(rank.0)));
    let address = args.metrics.clone().or(own)?;
    Some(MetricsOptions { address, paths: args.metrics_paths })
}

/// The name and the value of a setting that a metadata server knows.
///
/// # Errors
/// `EINVAL` if it knows none of this name, or the value is none.
pub(crate) fn setting(text: &str) -> Result<(String, u64)> {
    let mut settings = Settings::default();
    apply(&mut settings, text)?;
    Ok(settings.chosen.swap_remove(0))
}

/// The name of the counter in which a metadata server reports a setting that it was started with.
pub(crate) fn reported_as(setting: &str) -> String {
    format!("{CHOSEN}{setting}")
}

fn apply(settings: &mut Settings, text: &str) -> Result<()> {
    let invalid = |cause: &str| {
        Error::new(Errno::Invalid, format!("--set {text}"), cause)
            .remedy("`cudele mds --help` lists the settings")
    };
    let (name, value) = text.split_once('=').ok_or_else(|| invalid("not NAME=VALUE"))?;
    let value: u64 = value.parse().map_err(|_| invalid("the value is not a number"))?;
    let count = usize::try_from(value).map_err(|_| invalid("the value is too large"))?;
    match name {
        "segment_bytes_max" => settings.segment_bytes_max = value,
        "dispatch" => settings.dispatch = count.max(1),
        "commit_interval_ms" => settings.commit_interval = Span::from_millis(value),
        "commit_bytes" => settings.commit_bytes = value,
        "segments_max" => settings.segments_max = count.max(2),
        "split_entries" => settings.split_entries = value,
        "pass_directories" => settings.pass_directories = value != 0,
        "reserve_bytes" => settings.reserve_bytes = value,
        "watch_bytes" => settings.watch_bytes = count,
        "watch_ms" => settings.watch = Span::from_millis(value),
        "inodes_max" => settings.inodes_max = value,
        "reconnect_ms" => settings.reconnect = Span::from_millis(value),
        "recall_ms" => settings.recall = Span::from_millis(value),
        "evict_ms" => settings.evict = Span::from_millis(value),
        "balance_interval_ms" => settings.balance_interval = Span::from_millis(value.max(20)),
        "balance_half_life_ms" => settings.balance_half_life = Span::from_millis(value),
        "dir_lease_ms" => settings.dir_lease = Span::from_millis(value),
        _ => return Err(invalid("unknown setting")),
    }
    settings.chosen.retain(|(chosen, _)| chosen != name);
    settings.chosen.push((name.to_owned(), value));
    Ok(())
}
