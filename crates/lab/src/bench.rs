//! `cudele bench`: the published experiments and the project's own.
//!
//! An experiment is a file in `bench`, named like the command's argument. Each starts a cluster of
//! its own in real processes, with clients in processes of their own, and removes it afterwards.
//! Cases that are compared are measured alternately, repetition by repetition, on the same cluster.

mod arriving;
mod balancers;
mod batch;
mod block_allow;
mod branch;
mod checkpoint;
mod checksums;
mod compile;
mod compositions;
mod creates;
mod dataset;
mod dump;
mod fuse;
mod heat;
mod insert;
mod intercept;
mod interference;
mod journal_size;
mod knee;
mod locality;
mod mechanisms;
mod memory;
mod merge;
mod network;
mod on_paper;
mod overload;
mod persist;
mod placement;
mod policies;
mod policy_change;
mod predict;
mod probe;
mod programs;
mod readdir;
mod recovery;
mod remove;
mod restart;
mod segments;
mod sync;
mod trim;
mod untar;
mod watch;
mod web;
mod workflow;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Errno, Error, Result};
use serde_json::Value;
use terminal::context::Context;

use crate::harness::cluster::Place;
use crate::harness::lab::{Lab, SHARE_PERCENT};
use crate::harness::row;
use crate::worker;

/// Run an experiment and print its rows. Without --mon it runs on a cluster of its own, below
/// --dir or the directory for temporary files, which is removed afterwards.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele bench mechanisms --repeat 5 --json")]
pub(crate) struct Args {
    /// Which experiment
    #[arg(value_name = "NAME", required_unless_present = "worker")]
    name: Option<Name>,
    /// Files of each client, instead of the experiment's own sizes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// Clients at the same time, where the experiment has several
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: Option<u32>,
    /// How often every measurement is repeated [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// Percent of one processor for each rank, where several are compared: so little that ranks
    /// limit, and not the machine
    #[arg(long, value_name = "N", default_value_t = SHARE_PERCENT,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    share: u8,
    /// Object store; given several times, everything is measured on each, and shown side by side
    /// [default: a directory of files below the cluster's directory]
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// Small sizes, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Directory tree with representative names and attributes
    #[arg(long, value_name = "DIR", default_value = "/usr/share")]
    names: PathBuf,
    /// Archive that `fuse`, `untar` and `programs` unpack [default: a part of this machine's files,
    /// packed for it]
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Configuration of a Ceph cluster with a file system that is measured in the same run: by
    /// `creates`, `interference`, `knee`, `mechanisms`, `programs`, `readdir`, `segments`, `untar`
    #[arg(long, value_name = "FILE")]
    cephfs: Option<PathBuf>,
    /// The program of JuiceFS: `untar` and `programs` measure a volume of it in the same run
    #[arg(long, value_name = "FILE")]
    juicefs: Option<PathBuf>,
    /// The program of SeaweedFS: `programs` measures its mount in the same run
    #[arg(long, value_name = "FILE")]
    seaweedfs: Option<PathBuf>,
    /// Be a client process of an experiment
    #[arg(long, hide = true)]
    worker: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The cost of each mechanism alone (Fig 6, left)
    Mechanisms,
    /// Presets and all nine combinations, end to end (Fig 6, right)
    Compositions,
    /// Creates by RPC, one client and several
    Creates,
    /// A client that looks before it creates, alone and with another in its directory (Fig 3b)
    Interference,
    /// How many clients the server carries (Fig 3c)
    Knee,
    /// Twice the load that saturates the server, and the waiting time of a client beside it
    Overload,
    /// Bytes of journal per create (Fig 7)
    JournalSize,
    /// The journal's cost by segment size and dispatch (Fig 3a)
    Segments,
    /// An owner under block and allow beside eight busy clients (Fig 8)
    BlockAllow,
    /// Merging journals of 1K to 10M events, and of 20 clients at once
    Merge,
    /// 1 to 8 batch jobs at once: the gain of each, and the costs that a create must not have
    /// (BF-08, BF-09)
    Batch,
    /// 30 million entries in random order into large directories, beside RocksDB (I-08, I-10)
    Insert,
    /// Merging at an interval while the job works (Fig 9)
    Sync,
    /// Persisting a large journal in a Ceph cluster, beside `rados bench`
    Persist,
    /// Predictions of `cudele policy predict` beside the measured times of jobs, under each of the
    /// nine cells
    Predict,
    /// Restart of a killed metadata server
    Recovery,
    /// The servers of four ranks restarted one by one while clients work
    Restart,
    /// Memory of the metadata server per inode
    Memory,
    /// The names of a directory into a file, and from there into another directory
    Dump,
    /// Creates with and without a watcher of their directory, and the delay of a line
    Watch,
    /// The questions of the web page with a hundred thousand decoupled subtrees
    Web,
    /// Creates over a Unix socket, over TCP without keys, and over TCP with TLS
    Network,
    /// A tree of ten million names removed at once, restored, and its room given back
    Remove,
    /// Waiting while the journal is trimmed
    Trim,
    /// Reading large directories (use case 4)
    Readdir,
    /// Making a branch of a tree of up to 10M files, and opening it
    Branch,
    /// A source tree unpacked, configured, compiled and removed (Fig 2)
    Untar,
    /// Programs that people run, in memory, on the disk, on the mount, decoupled and on peers
    Programs,
    /// Ranks that write checkpoints, each its own files or all one file (U-07)
    Checkpoint,
    /// A file written and read in order, with and without checksums of its content
    Checksums,
    /// A job that renames its output into place beside a checkpoint, in one namespace (F-10)
    Workflow,
    /// Many small files, read in random order
    Dataset,
    /// A large subtree from strong to weak and back, while another client works in it (F-09)
    PolicyChange,
    /// Store and clients' own disks on a disk or in memory (F-12)
    Placement,
    /// Several metadata servers, each with a share of a processor, against one (Mantle Figs 4, 5,
    /// 8)
    Balancers,
    /// The effect of each shipped balancer policy on four such servers (Mantle Figs 4, 7, 8)
    Policies,
    /// The same job ten times under our own balancer policy
    JobSpread,
    /// Clients that compile, under three balancer policies (Mantle Figs 9, 10)
    Compile,
    /// One server that has everything against three that share it (Mantle Fig 3)
    Locality,
    /// Which directories are hot while a source tree is compiled (Mantle Fig 1)
    Heat,
    /// The mount beside a file system that does nothing
    Fuse,
    /// A C program under `cudele run --preload on`, through the mount, and on tmpfs
    Intercept,
    /// The speed of the machine itself
    Probe,
    /// All of them, in small sizes
    All,
}

type Experiment = fn(&mut Lab) -> Result<()>;

/// The experiments of `all`.
const ALL: [Experiment; 25] = [
    mechanisms::run,
    compositions::run,
    creates::run,
    interference::run,
    knee::run,
    overload::run,
    journal_size::run,
    segments::run,
    block_allow::run,
    merge::run,
    batch::run,
    insert::run,
    sync::run,
    recovery::run,
    memory::run,
    trim::run,
    readdir::run,
    branch::run,
    balancers::run_where_possible,
    checkpoint::run,
    workflow::run,
    dataset::run,
    policy_change::run,
    placement::run,
    fuse::run_where_possible,
];

impl Name {
    fn experiments(self) -> Vec<Experiment> {
        // The machine's own figures come first: all later ones are read beside them.
        let mut experiments: Vec<Experiment> = vec![probe::run];
        match self {
            Self::Mechanisms => experiments.push(mechanisms::run),
            Self::Compositions => experiments.push(compositions::run),
            Self::Creates => experiments.push(creates::run),
            Self::Interference => experiments.push(interference::run),
            Self::Knee => experiments.push(knee::run),
            Self::Overload => experiments.push(overload::run),
            Self::JournalSize => experiments.push(journal_size::run),
            Self::Segments => experiments.push(segments::run),
            Self::BlockAllow => experiments.push(block_allow::run),
            Self::Merge => experiments.push(merge::run),
            Self::Batch => experiments.push(batch::run),
            Self::Insert => experiments.push(insert::run),
            Self::Sync => experiments.push(sync::run),
            Self::Persist => experiments.push(persist::run),
            Self::Predict => experiments.push(predict::run),
            Self::Recovery => experiments.push(recovery::run),
            Self::Restart => experiments.push(restart::run),
            Self::Memory => experiments.push(memory::run),
            Self::Network => experiments.push(network::run),
            Self::Remove => experiments.push(remove::run),
            Self::Trim => experiments.push(trim::run),
            Self::Readdir => experiments.push(readdir::run),
            Self::Branch => experiments.push(branch::run),
            Self::Untar => experiments.push(untar::run),
            Self::Programs => experiments.push(programs::run),
            Self::Checkpoint => experiments.push(checkpoint::run),
            Self::Checksums => experiments.push(checksums::run),
            Self::Dump => experiments.push(dump::run),
            Self::Watch => experiments.push(watch::run),
            Self::Web => experiments.push(web::run),
            Self::Workflow => experiments.push(workflow::run),
            Self::Placement => experiments.push(placement::run),
            Self::Dataset => experiments.push(dataset::run),
            Self::PolicyChange => experiments.push(policy_change::run),
            Self::Balancers => experiments.push(balancers::run),
            Self::Policies => experiments.push(policies::run),
            Self::JobSpread => experiments.push(policies::run_spread),
            Self::Compile => experiments.push(compile::run),
            Self::Locality => experiments.push(locality::run),
            Self::Heat => experiments.push(heat::run),
            Self::Fuse => experiments.push(fuse::run),
            Self::Intercept => experiments.push(intercept::run),
            Self::Probe => {}
            Self::All => experiments.extend(ALL),
        }
        experiments
    }
}

/// An interrupt ends the client processes directly; this one runs just long enough to end the
/// daemons and remove their files.
pub(crate) fn interrupts() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| Error::new(Errno::Io, "signals", error.to_string()))?;
    }
    Ok(flag)
}

/// Where the experiments' own clusters are.
fn place(context: &Context) -> Result<Place> {
    let parent = context.dir.clone().unwrap_or_else(std::env::temp_dir);
    let parent = std::path::absolute(&parent).map_err(|error| terminal::io(&parent, &error))?;
    Ok(Place { parent, store: None, state: None, mon: context.mon.clone(), group: None })
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    if args.worker {
        return worker::run();
    }
    let Some(name) = args.name else {
        return Err(Error::new(Errno::Invalid, "bench", "no experiment is named"));
    };
    let quick = args.quick || name == Name::All;
    let mut lab = Lab {
        files: args.files,
        clients: args.clients,
        repeat: args.repeat.unwrap_or(if quick { 1 } else { 3 }),
        share: f64::from(args.share) / 100.0,
        quick,
        names: args.names.clone(),
        archive: args.archive.clone(),
        cephfs: args.cephfs.clone(),
        juicefs: args.juicefs.clone(),
        seaweedfs: args.seaweedfs.clone(),
        ..Lab::new(place(context)?, interrupts()?)
    };
    let stores: Vec<Option<String>> = args.store.iter().cloned().map(Some).collect();
    let stores = if stores.is_empty() { vec![None] } else { stores };
    for experiment in name.experiments() {
        let mut starts = Vec::new();
        for store in &stores {
            lab.place.store.clone_from(store);
            let start = lab.rows.len();
            experiment(&mut lab)?;
            starts.push(start);
            if !context.json {
                // A long run prints each result as soon as it has it.
                let rows = &lab.rows[start..];
                let title = row::title(rows, stores.len() > 1);
                terminal::context::say(&format!("{title}\n{}\n", row::table(rows)))?;
            }
        }
        let stored = lab.rows.last().is_some_and(|row| !row.store.is_empty());
        if stores.len() > 1 && stored && !context.json {
            let ends = starts.iter().skip(1).copied().chain([lab.rows.len()]);
            let on: Vec<_> =
                starts.iter().zip(ends).map(|(start, end)| &lab.rows[*start..end]).collect();
            terminal::context::say(&format!("side by side\n{}\n", row::side_by_side(&on)))?;
        }
    }
    let rows: Vec<Value> = lab.rows.iter().map(row::Row::to_json).collect();
    context.print(&Value::Array(rows), String::new)
}
