//! `untar`: a source tree is unpacked, configured, compiled and removed by ordinary programs (Fig
//! 2, U-06): through a mount under `posix`, in a decoupled subtree under `batchfs`, and on local
//! file systems in the same repetition.
//!
//! Of each phase: its time, requests, processor time of the server and of the mount, and bytes that
//! both wrote to disks. Network traffic is not measured: everything is on one machine, and the
//! number of requests is the number of crossings.

pub(super) mod tree;

use std::ffi::OsString;
use std::path::Path;

use cudele::Result;
use terminal::io;

use crate::harness::cluster::TestCluster;
use crate::harness::job::{Served, Task};
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::mounting::{self, Mount};
use crate::harness::peers::Fuse;
use crate::harness::peers::cephfs::Peer;
use crate::harness::peers::juicefs::{self, Metadata};
use crate::harness::process;
use crate::harness::row::Row;
use crate::harness::stats::real;
use tree::Tree;

const BENCH: &str = "untar";
/// The inodes of the job's subtree.
const INODES: u64 = 200_000;

/// A phase, and its shell commands: `$0` is the archive, `$1` the directory.
const PHASES: [(&str, &str); 4] = [
    ("untar", "tar xf \"$0\" -C \"$1\""),
    (
        "configure",
        "cd \"$1\"/* && if [ -x configure ]; then ./configure; \
         elif [ -f Kconfig ]; then make allnoconfig; fi",
    ),
    ("compile", "cd \"$1\"/* && make -j2"),
    ("remove", "rm -r \"$1\"/*"),
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    mounting::possible()?;
    let tree = Tree::of(lab)?;
    let row = |phase: &str, way: &str| Row::new(BENCH, format!("{phase}_{way}"), tree.entries());
    let rows = |way: &str| PHASES.map(|(phase, _)| row(phase, way));
    let (mut posix, mut batchfs) = (rows("posix"), rows("batchfs"));
    let peer = lab.cephfs.as_deref().map(Peer::new);
    let mut of_juicefs = rows("juicefs");
    let mut cephfs =
        PHASES.map(|(phase, _)| Peer::row(BENCH, format!("{phase}_cephfs"), tree.entries()));
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        let mut others = vec![("local", locally(lab, &cluster, &tree, &lab.place.parent)?)];
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            others.push(("tmpfs", locally(lab, &cluster, &tree, memory)?));
        }
        for rows in [&mut posix, &mut batchfs] {
            phases(lab, &cluster, &tree, repetition, rows)?;
            for (at, row) in rows.iter_mut().enumerate() {
                for (name, seconds) in &others {
                    beside(row, name, seconds[at]);
                }
            }
        }
        if let Some(peer) = &peer {
            let beside = Beside { mount: peer.mount()?, peer: Some(peer) };
            beside.phases(lab, &cluster, &tree, repetition, &mut cephfs)?;
        }
        if let Some(program) = &lab.juicefs {
            let mount = juicefs::mount(program, &lab.place.parent, Metadata::Badger)?;
            let beside = Beside { mount, peer: None };
            beside.phases(lab, &cluster, &tree, repetition, &mut of_juicefs)?;
        }
        cluster.store().clone_into(&mut store);
    }
    let peers = cephfs.into_iter().chain(of_juicefs).filter(|row| !row.seconds.is_empty());
    lab.report(&store, posix.into_iter().chain(batchfs).chain(peers));
    Ok(())
}

/// A peer's file system, mounted.
struct Beside<'a> {
    mount: Fuse,
    /// The peer with the server that counts requests.
    peer: Option<&'a Peer>,
}

impl Beside<'_> {
    fn requests(&self) -> Result<Option<f64>> {
        self.peer.map(|peer| Ok(peer.counted()?.requests)).transpose()
    }

    /// The phases in a directory of its own.
    fn phases(
        &self,
        lab: &Lab,
        cluster: &TestCluster,
        tree: &Tree,
        repetition: u32,
        rows: &mut [Row],
    ) -> Result<()> {
        let dir = self.mount.dir().join(format!("{BENCH}.{}.{repetition}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| io(&dir, &error))?;
        let pid = self.mount.pid();
        for (row, (_, script)) in rows.iter_mut().zip(&PHASES) {
            lab.progress(BENCH, repetition, &row.name);
            let (before, cpu) = (self.requests()?, process::cpu_seconds(pid)?);
            let seconds = alone(cluster, task(script, tree, &dir))?.seconds();
            row.push(seconds);
            if let (Some(before), Some(after)) = (before, self.requests()?) {
                row.note("requests", after - before);
                row.note("requests_per_second", (after - before) / seconds);
            }
            row.note("mount_cpu_share", (process::cpu_seconds(pid)? - cpu) / seconds);
        }
        std::fs::remove_dir(&dir).map_err(|error| io(&dir, &error))
    }
}

/// Another file system's seconds, and how many times as long the mount takes.
fn beside(row: &mut Row, name: &str, seconds: f64) {
    let ours = row.seconds.last().copied().unwrap_or_default();
    let (figure, times) = match name {
        "local" => ("local_seconds", "times_local"),
        _ => ("tmpfs_seconds", "times_tmpfs"),
    };
    row.note(figure, seconds);
    row.note(times, ours / seconds.max(1e-9));
}

/// The task of a shell script with the archive as `$0` and the directory as `$1`.
pub(super) fn task(script: &str, tree: &Tree, dir: &Path) -> Task {
    let arguments: [OsString; 5] =
        ["sh".into(), "-c".into(), script.into(), tree.archive().into(), dir.into()];
    Task::Program { arguments: arguments.into() }
}

/// The phases in a directory of this machine, without us; returns the seconds of each.
fn locally(lab: &Lab, cluster: &TestCluster, tree: &Tree, at: &Path) -> Result<Vec<f64>> {
    lab.progress(BENCH, 0, &format!("beside: {}", at.display()));
    let dir = tempfile::tempdir_in(at).map_err(|error| io(at, &error))?;
    let seconds = PHASES.iter().map(|(_, script)| {
        let outcome = alone(cluster, task(script, tree, dir.path()))?;
        Ok(outcome.seconds())
    });
    seconds.collect()
}

/// The phases through a mount, decoupled where the rows are called so.
fn phases(
    lab: &Lab,
    cluster: &TestCluster,
    tree: &Tree,
    repetition: u32,
    rows: &mut [Row],
) -> Result<()> {
    let decoupled = rows.iter().any(|row| row.name.ends_with("batchfs"));
    let (mount, dir) = if decoupled {
        mounting::decoupled(cluster, INODES, true)?
    } else {
        let path = cluster.directory(Some(&policy("posix", INODES)?))?;
        let mount = Mount::new(cluster, Served::Namespace)?;
        let dir = mount.dir(&path);
        (mount, dir)
    };
    // A phase begins with the counters from the end of the one before.
    let mut before = Used::now(cluster, &mount)?;
    for (row, (_, script)) in rows.iter_mut().zip(&PHASES) {
        lab.progress(BENCH, repetition, &row.name);
        let outcome = alone(cluster, task(script, tree, &dir))?;
        let after = Used::now(cluster, &mount)?;
        let used = after.since(&before);
        before = after;
        let seconds = outcome.seconds();
        row.push(seconds);
        row.note("requests", used.requests);
        row.note("requests_per_second", used.requests / seconds);
        row.note("server_cpu_share", used.server_cpu / seconds);
        row.note("mount_cpu_share", used.mount_cpu / seconds);
        row.note("disk_mb", used.disk_bytes / 1e6);
        row.note("disk_mb_per_second", used.disk_bytes / 1e6 / seconds);
    }
    let merge = mount.end()?.part("merge");
    if let (true, Some(last)) = (decoupled, rows.last_mut()) {
        last.note("merge_seconds", merge);
    }
    Ok(())
}

/// The counters so far.
struct Used {
    requests: f64,
    server_cpu: f64,
    mount_cpu: f64,
    disk_bytes: f64,
}

impl Used {
    fn now(cluster: &TestCluster, mount: &Mount) -> Result<Self> {
        let pid = mount.pid();
        Ok(Self {
            requests: real(cluster.counter_now("requests")?),
            server_cpu: cluster.server_cpu_seconds()?,
            mount_cpu: process::cpu_seconds(pid)?,
            disk_bytes: real(cluster.disk_bytes()? + process::written_bytes(pid)?),
        })
    }

    /// The requests include the few that asking for them takes.
    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            server_cpu: self.server_cpu - before.server_cpu,
            mount_cpu: self.mount_cpu - before.mount_cpu,
            disk_bytes: self.disk_bytes - before.disk_bytes,
        }
    }
}
