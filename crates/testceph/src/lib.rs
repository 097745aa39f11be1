//! A real Ceph cluster on this machine, for tests and benchmarks: one monitor and a few OSDs on
//! loopback, in a directory of their own, up in seconds and gone without a trace.
//!
//! Not for data that must last, and no other machine can reach the cluster. Users are checked as on
//! any cluster (cephx), because the tests cover that check.
//!
//! Invariant: signals go only to processes that this crate started, as their command lines show.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: starts and stops the daemons of a cluster"
)]

mod config;
mod daemon;
mod socket;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;

use daemon::Daemon;

/// How long anything here may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which a condition outside this process is polled.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Programs that a cluster needs, each with its Debian package.
const PROGRAMS: &[(&str, &str)] = &[
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("monmaptool", "ceph-base"),
    ("ceph", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
    ("rados", "ceph-common"),
];

/// The error is a text for people.
pub type CephResult<T> = std::result::Result<T, String>;

/// The storage of the OSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsdStore {
    /// In memory: quick, and gone when the OSD is killed.
    Memory,
    /// In a file, as a real OSD does on a disk: it outlives the OSD.
    File,
}

/// The cluster to make.
#[derive(Clone, Debug)]
pub struct CephSettings {
    /// Its directory, which must be missing or empty.
    pub dir: PathBuf,
    /// The address of this machine, or of the network namespace of this thread, at which the
    /// daemons listen.
    pub address: IpAddr,
    /// How many OSDs, 1 to 9.
    pub osds: u32,
    /// Copies that every pool keeps; the cluster works as long as one of them is available.
    pub copies: u32,
    /// Where OSDs keep data.
    pub store: OsdStore,
    /// Bytes that each OSD can hold.
    pub bytes: u64,
    /// Pools to make.
    pub pools: Vec<String>,
    /// Whether there is a CephFS, with one metadata server: a peer to compare with.
    pub cephfs: bool,
    /// More settings of Ceph's, for all daemons and clients.
    pub options: Vec<(String, String)>,
}

impl CephSettings {
    /// One OSD in memory with 4 GiB, on loopback, and one pool, `test`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            osds: 1,
            copies: 1,
            store: OsdStore::Memory,
            bytes: 4 << 30,
            pools: vec!["test".to_owned()],
            cephfs: false,
            options: Vec::new(),
        }
    }
}

/// A cluster. It keeps running when this value is dropped; see [`Running`].
#[derive(Clone, Debug)]
pub struct CephCluster {
    dir: PathBuf,
}

/// A cluster that is killed and removed when this is dropped, for tests.
#[derive(Debug)]
pub struct Running(pub CephCluster);

impl std::ops::Deref for Running {
    type Target = CephCluster;

    fn deref(&self) -> &CephCluster {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Leftovers of a test must not make the next one fail.
        let _ = self.0.remove();
    }
}

/// Programs that a CephFS needs besides.
const PROGRAMS_CEPHFS: &[(&str, &str)] = &[("ceph-mds", "ceph-mds")];
/// The pools of a CephFS.
const POOLS_CEPHFS: [&str; 2] = ["cephfs.metadata", "cephfs.data"];

/// Says which packages have to be installed, if any.
///
/// # Errors
/// The command that installs them.
pub fn check_installed() -> CephResult<()> {
    check(PROGRAMS)
}

fn check(programs: &[(&str, &str)]) -> CephResult<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Err(format!(
        "not installed: {}. As root: apt-get install --no-install-recommends librados2 {}",
        programs.join(", "),
        packages.join(" ")
    ))
}

impl CephCluster {
    /// Makes a cluster and waits until it serves all its pools.
    ///
    /// # Errors
    /// Names the missing packages, or has the output of a failed daemon.
    pub fn up(settings: &CephSettings) -> CephResult<Self> {
        check_installed()?;
        if settings.cephfs {
            check(PROGRAMS_CEPHFS)?;
        }
        if fs::read_dir(&settings.dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(format!("{} is not empty", settings.dir.display()));
        }
        let cluster = Self { dir: settings.dir.clone() };
        let made = cluster.make(settings);
        if made.is_err() {
            // The logs say why, but nothing may go on running.
            cluster.daemons().iter().for_each(|daemon| daemon.signal(Signal::KILL));
        }
        made.map(|()| cluster)
    }

    /// As [`CephCluster::up`], for a test.
    ///
    /// # Errors
    /// As there.
    pub fn running(settings: &CephSettings) -> CephResult<Running> {
        Self::up(settings).map(Running)
    }

    /// As [`CephCluster::running`]; nothing where `CUDELE_TEST_RADOS=skip`.
    ///
    /// # Errors
    /// As there, and how to leave such tests out.
    pub fn unless_skipped(settings: &CephSettings) -> CephResult<Option<Running>> {
        if std::env::var_os("CUDELE_TEST_RADOS").is_some_and(|value| value == "skip") {
            return Ok(None);
        }
        let running = Self::running(settings);
        let running = running
            .map_err(|error| format!("{error}\nor leave these tests out: CUDELE_TEST_RADOS=skip"));
        running.map(Some)
    }

    /// A cluster that was made earlier.
    ///
    /// # Errors
    /// If there is none.
    pub fn at(dir: &Path) -> CephResult<Self> {
        let cluster = Self { dir: dir.to_owned() };
        if !cluster.conf().is_file() {
            return Err(format!("there is no cluster in {}", dir.display()));
        }
        Ok(cluster)
    }

    fn make(&self, settings: &CephSettings) -> CephResult<()> {
        let uuids = config::write(settings)?;
        // OSDs are prepared while the monitor starts.
        let mut preparing = Vec::new();
        for (number, uuid) in uuids.iter().enumerate() {
            let mut osd = self.program("ceph-osd");
            osd.args(["-i", &number.to_string(), "--mkfs", "--osd-uuid", uuid]);
            preparing.push(osd.spawn().map_err(|error| format!("ceph-osd: {error}"))?);
        }
        let monmap = self.dir.join("monmap");
        let mut mon = self.program("ceph-mon");
        mon.args(["-i", "a", "--mkfs", "--monmap"]).arg(&monmap);
        mon.arg("--keyring").arg(self.dir.join("keyring"));
        self.finish(mon)?;
        self.start("mon.a")?;
        let mut commands = String::new();
        for (number, uuid) in uuids.iter().enumerate() {
            let _ = writeln!(commands, "osd new {uuid} {number}");
        }
        for pool in &settings.pools {
            let _ = writeln!(commands, "osd pool create {pool}");
            let _ = writeln!(commands, "osd pool application enable {pool} cudele");
        }
        if settings.cephfs {
            for pool in POOLS_CEPHFS {
                let _ = writeln!(commands, "osd pool create {pool}");
            }
            let _ = writeln!(commands, "fs new cephfs {} {}", POOLS_CEPHFS[0], POOLS_CEPHFS[1]);
        }
        self.ask_monitor(&commands)?;
        for (number, mut osd) in preparing.into_iter().enumerate() {
            let ended = osd.wait().map_err(|error| format!("ceph-osd: {error}"))?;
            if !ended.success() {
                return Err(self.said(&format!("preparing OSD {number} ended with {ended}")));
            }
            self.launch(&format!("osd.{number}"))?;
        }
        (0..settings.osds).try_for_each(|number| self.await_daemon(&format!("osd.{number}")))?;
        for pool in &settings.pools {
            // A list comes from every placement group, so it waits for all of them.
            let mut list = self.program("rados");
            list.args(["-p", pool, "ls"]);
            self.finish(list)?;
        }
        if settings.cephfs { self.start("mds.a") } else { Ok(()) }
    }

    /// The configuration file, for clients.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Where everything is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The address of a store in a pool.
    #[must_use]
    pub fn url(&self, pool: &str) -> String {
        format!("rados://{pool}?conf={}", self.conf().display())
    }

    /// Starts a daemon (`mon.a`, `osd.0`, …) and waits until it serves.
    ///
    /// # Errors
    /// What it said.
    pub fn start(&self, daemon: &str) -> CephResult<()> {
        self.launch(daemon)?;
        self.await_daemon(daemon)
    }

    fn launch(&self, daemon: &str) -> CephResult<()> {
        let (kind, id) = daemon.split_once('.').ok_or("no such daemon")?;
        let mut program = self.program(&format!("ceph-{kind}"));
        program.args(["-i", id]);
        self.finish(program)
    }

    /// Waits until a daemon serves.
    fn await_daemon(&self, daemon: &str) -> CephResult<()> {
        let kind = daemon.split('.').next().unwrap_or_default();
        let socket = self.dir.join(format!("{daemon}.asok"));
        let serves = |answer: &serde_json::Value| match kind {
            "mon" => answer["state"] == "leader",
            "mds" => answer["state"] == "up:active",
            _ => answer["state"] == "active",
        };
        let command = if kind == "mon" { "mon_status" } else { "status" };
        self.eventually(&format!("{daemon} serves"), || {
            socket::ask(&socket, command).is_ok_and(|answer| serves(&answer))
        })
    }

    /// Sends a signal to a daemon; waits until it has ended of it, or stands still.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, daemon: &str, signal: Signal) -> CephResult<()> {
        let daemon = Daemon::find(&self.dir, daemon)
            .ok_or_else(|| format!("{daemon} does not run in {}", self.dir.display()))?;
        daemon.signal(signal);
        if matches!(signal, Signal::KILL | Signal::TERM) {
            self.eventually("the daemon has ended", || !daemon.runs())?;
        } else if signal == Signal::STOP {
            self.eventually("the daemon stands still", || daemon.stands_still())?;
        }
        Ok(())
    }

    /// Asks the monitors, with the words of the `ceph` program.
    ///
    /// # Errors
    /// What it said.
    pub fn ceph(&self, arguments: &[&str]) -> CephResult<String> {
        let mut ceph = self.program("ceph");
        ceph.args(["--connect-timeout", "20"]).args(arguments);
        ceph.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = ceph.output().map_err(|error| format!("ceph: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("ceph {}: {}", arguments.join(" "), text(&output.stderr)))
    }

    /// Many commands in one process: starting the program takes longer than a command.
    fn ask_monitor(&self, commands: &str) -> CephResult<()> {
        let mut ceph = self.program("ceph");
        ceph.args(["--connect-timeout", "20"]).stdin(Stdio::piped());
        let mut child = ceph.spawn().map_err(|error| format!("ceph: {error}"))?;
        let mut stdin = child.stdin.take().ok_or("ceph takes no commands")?;
        let written = stdin.write_all(commands.as_bytes());
        drop(stdin);
        let ended = child.wait().map_err(|error| format!("ceph: {error}"))?;
        if written.is_err() || !ended.success() {
            return Err(self.said(&format!("`ceph` ended with {ended}")));
        }
        Ok(())
    }

    /// Makes a user with these rights, and a keyring with its key; returns the keyring's path.
    ///
    /// # Errors
    /// Has the output of the monitor.
    pub fn user(&self, name: &str, rights: &[&str]) -> CephResult<PathBuf> {
        let path = self.dir.join(format!("client.{name}.keyring"));
        let entity = format!("client.{name}");
        let text = self.ceph(&[&["auth", "get-or-create", &*entity], rights].concat())?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// The daemons that run.
    fn daemons(&self) -> Vec<Daemon> {
        let names = ["mon.a".to_owned(), "mds.a".to_owned()]
            .into_iter()
            .chain((0..10).map(|n| format!("osd.{n}")));
        names.filter_map(|name| Daemon::find(&self.dir, &name)).collect()
    }

    /// Bytes that clients and metadata servers have sent to the OSDs so far, copies not counted.
    ///
    /// # Errors
    /// If an OSD does not say.
    pub fn written(&self) -> CephResult<u64> {
        let osds = self.daemons().into_iter().filter(|daemon| daemon.name.starts_with("osd."));
        let bytes = osds.map(|osd| {
            let socket = self.dir.join(format!("{}.asok", osd.name));
            let counters = socket::ask(&socket, "perf dump");
            let counters = counters.map_err(|error| format!("{}: {error}", socket.display()))?;
            let bytes = counters["osd"]["op_in_bytes"].as_u64();
            bytes.ok_or_else(|| format!("{} does not count what it is sent", osd.name))
        });
        bytes.sum()
    }

    /// Kills all daemons and removes the directory.
    ///
    /// # Errors
    /// If a daemon survives, or something cannot be removed.
    pub fn remove(&self) -> CephResult<()> {
        let daemons = self.daemons();
        daemons.iter().for_each(|daemon| daemon.signal(Signal::KILL));
        self.eventually("all daemons have ended", || daemons.iter().all(|d| !d.runs()))?;
        fs::remove_dir_all(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))
    }

    /// The running daemons, one line each.
    #[must_use]
    pub fn status(&self) -> String {
        let mut out = String::new();
        for daemon in self.daemons() {
            let _ = writeln!(out, "{:<6} {}", daemon.name, daemon.pid.as_raw_nonzero());
        }
        out
    }

    /// A program of Ceph's for this cluster; its output goes to a file.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_remove("CEPH_ARGS").env_remove("CEPH_CONF").arg("-c").arg(self.conf());
        command.stdin(Stdio::null()).current_dir("/");
        let said = fs::OpenOptions::new().append(true).create(true).open(self.dir.join("said"));
        if let Ok(said) = said {
            let copy = said.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
            command.stdout(copy).stderr(said);
        }
        command
    }

    fn finish(&self, mut command: Command) -> CephResult<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let ended = command.status().map_err(|error| format!("{program}: {error}"))?;
        if ended.success() {
            return Ok(());
        }
        Err(self.said(&format!("`{program}` ended with {ended}")))
    }

    /// An error with the last thing that a program said.
    fn said(&self, what: &str) -> String {
        let said = fs::read_to_string(self.dir.join("said")).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        format!("{what}:\n{last}\nsee {}", self.dir.display())
    }

    fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) -> CephResult<()> {
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > PATIENCE {
                return Err(self.said(&format!("waited in vain until {what}")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}
