//! The cluster that an experiment runs on: started for it, each daemon a process, and removed
//! afterwards. With `--mon`, a cluster that exists.
//!
//! Invariant: dropping it ends its daemons and removes its files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudele::{
    AttrChange, Cluster, Errno, Error, Fs, Ino, Locator, MdsEntry, MdsState, Policy, Result,
};

use wire::ClusterMap;

use super::job::{Job, Task};
use super::process;

/// How long to wait for a daemon to change its state.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(1);
/// A panic's place, its cause and the innermost functions.
const PANIC_LINES: usize = 30;

/// See the module documentation.
pub(crate) struct TestCluster {
    /// Everything of this experiment is below it.
    home: PathBuf,
    /// The clients' local state.
    state: PathBuf,
    /// The cluster's own directory; `None` for one that exists.
    own: Option<PathBuf>,
    cluster: Arc<Cluster>,
    store: String,
    /// A metadata server started from here, in place of the first one.
    mds: Option<Child>,
    /// The key file of its clients, if they do not use the key of the cluster.
    key: Option<PathBuf>,
    /// The user of the clients' processes, if not that of this one.
    user: Option<u32>,
}

/// Where clusters are made.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Below this directory.
    pub(crate) parent: PathBuf,
    /// The object store, if not a directory of the cluster.
    pub(crate) store: Option<String>,
    /// The parent directory of the clients' local state, if not beside the cluster.
    pub(crate) state: Option<PathBuf>,
    /// An existing cluster's monitor.
    pub(crate) mon: Option<String>,
    /// A group whose members may connect, besides the owner of the cluster.
    pub(crate) group: Option<String>,
}

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "the experiment's cluster", cause.into())
}

impl TestCluster {
    /// Starts a cluster with these settings of the metadata server.
    pub(crate) fn start(place: &Place, settings: &[String]) -> Result<Self> {
        Self::start_ranks(place, settings, 1)
    }

    /// Starts a cluster with this many ranks. Nothing moves by default: a benchmark of balancers
    /// puts its policy in force.
    pub(crate) fn start_ranks(place: &Place, settings: &[String], ranks: u16) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = place.parent.join(format!("cudele-bench.{}.{number}", std::process::id()));
        let name = home.file_name().unwrap_or_default().to_owned();
        let elsewhere = |parent: &PathBuf| {
            let mut name = name.clone();
            name.push(".clients");
            parent.join(name)
        };
        let state = place.state.as_ref().map_or(home.join("state"), elsewhere);
        for dir in [&home, &state] {
            let made = fs::create_dir_all(dir);
            made.map_err(|error| terminal::io(dir, &error))?;
        }
        if let Some(mon) = &place.mon {
            if !settings.is_empty() {
                let cause = "this experiment starts servers with settings of its own";
                return Err(Error::new(Errno::NotSupported, "--mon", cause)
                    .remedy("leave --mon and CUDELE_MON out"));
            }
            let cluster = Cluster::connect(&mon.parse()?)?;
            let store = String::new();
            let own = None;
            return Self { home, state, own, cluster, store, mds: None, key: None, user: None }
                .with_store();
        }
        let dir = home.join("c");
        let mut command = program()?;
        command.arg("up").arg("--json").arg("--dir").arg(&dir);
        command.env("CUDELE_STATE", &state);
        if ranks > 1 {
            command.arg("--mds").arg(ranks.to_string());
        }
        if let Some(store) = &place.store {
            command.arg("--store").arg(objstore::beside(store, &name.to_string_lossy()));
        }
        if let Some(group) = &place.group {
            command.arg("--group").arg(group);
        }
        for setting in settings {
            command.arg("--set").arg(setting);
        }
        let done = command.stdin(Stdio::null()).output();
        let done = done.map_err(|error| failed(error.to_string()))?;
        if !done.status.success() {
            return Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        let cluster = Cluster::connect(&Locator::monitor_of(&dir))?;
        let store = String::new();
        let own = Some(dir);
        let it = Self { home, state, own, cluster, store, mds: None, key: None, user: None };
        let it = it.with_store()?;
        if ranks > 1 {
            it.shipped_balancer(balancer::NO_POLICY)?;
        }
        Ok(it)
    }

    fn with_store(mut self) -> Result<Self> {
        self.store = self.cluster.status()?.store;
        Ok(self)
    }

    /// The object store's address.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// The monitor's address.
    pub(crate) fn address(&self) -> String {
        self.cluster.address().to_string()
    }

    /// The directory of the clients' local state.
    pub(crate) fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// A directory of the store's disk, for writing beside it.
    pub(crate) fn store_disk(&self) -> Option<PathBuf> {
        let dir = self.store.strip_prefix("dir:")?;
        Path::new(dir).parent().map(Path::to_owned)
    }

    /// Work for a client of this cluster.
    pub(crate) fn job(&self, task: Task) -> Job {
        Job { mon: self.address(), key: self.key.clone(), user: self.user, task }
    }

    /// From now on clients are processes of this user, who owns their local state and these
    /// directories of the namespace.
    pub(crate) fn work_as(&mut self, user: u32, dirs: &[&str]) -> Result<()> {
        let fs = self.client()?;
        for dir in dirs {
            let change = AttrChange { uid: Some(user), gid: Some(user), ..AttrChange::default() };
            fs.set_attr(fs.stat(dir)?.ino, &change)?;
        }
        std::os::unix::fs::chown(&self.state, Some(user), Some(user))
            .map_err(|error| terminal::io(&self.state, &error))?;
        self.user = Some(user);
        Ok(())
    }

    /// From now on clients use a new key, made with these options of `cudele auth add`.
    pub(crate) fn use_key(&mut self, options: &[&str]) -> Result<()> {
        let file = self.home.join("key.pem");
        let mut command = program()?;
        command.args(["auth", "add", "client"]).args(options).arg("--out").arg(&file);
        command.arg("--dir").arg(self.own_dir()?).stdin(Stdio::null());
        let done = command.output().map_err(|error| failed(error.to_string()))?;
        if !done.status.success() {
            return Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        self.key = Some(file);
        Ok(())
    }

    /// Makes an empty directory, under a policy if one is given, and returns its path.
    pub(crate) fn directory(&self, policy: Option<&Policy>) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/bench.{}.{number}", std::process::id());
        self.make_dir(&path)?;
        if let Some(policy) = policy {
            self.cluster.set_policy(path.as_bytes(), Some(&policy.to_yaml()))?;
        }
        Ok(path)
    }

    /// Makes an empty directory at a path.
    pub(crate) fn make_dir(&self, path: &str) -> Result<()> {
        self.cluster.mount()?.make_dir(path, 0o755).map(drop)
    }

    /// The inode number of a directory that no client has decoupled yet.
    pub(crate) fn ino(&self, path: &str) -> Result<Ino> {
        Ok(self.cluster.mount()?.stat(path)?.ino)
    }

    /// A client of this process.
    pub(crate) fn client(&self) -> Result<Arc<Fs>> {
        self.cluster.mount()
    }

    /// The processes of all ranks.
    pub(crate) fn pids(&self) -> Result<Vec<u32>> {
        Ok(self.cluster.status()?.mds.into_iter().map(|entry| entry.pid).collect())
    }

    /// A counter of all ranks together, at most half a second old.
    pub(crate) fn counter_of_all(&self, name: &str) -> Result<u64> {
        let counters = self.cluster.status()?.mds.into_iter().flat_map(|entry| entry.counters);
        Ok(counters.filter(|(known, _)| known == name).map(|(_, value)| value).sum())
    }

    /// A counter of one rank, at most half a second old.
    pub(crate) fn counter_of(&self, rank: u16, name: &str) -> Result<u64> {
        let ranks = self.cluster.status()?.mds;
        let entry = ranks.into_iter().find(|entry| entry.rank.0 == rank);
        let counters = entry.map(|entry| entry.counters).unwrap_or_default();
        let found = counters.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| failed(format!("no counter {name}")))
    }

    /// Waits until a counter of a rank has a value, or more.
    pub(crate) fn await_counter(&self, rank: u16, name: &str, least: u64) -> Result<()> {
        let start = Instant::now();
        while self.counter_of(rank, name)? < least {
            if start.elapsed() > PATIENCE {
                return Err(failed(format!("{name} of mds.{rank} is not {least}")));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Puts a shipped balancer policy in force.
    pub(crate) fn shipped_balancer(&self, name: &str) -> Result<()> {
        let policy = balancer::preset(name)
            .ok_or_else(|| Error::new(Errno::NotFound, name, "no shipped policy"))?;
        self.cluster.set_balancer(name, policy.text()).map(drop)
    }

    /// The metadata server, as the monitor knows it.
    pub(crate) fn mds(&self) -> Result<MdsEntry> {
        let map = self.cluster.status()?;
        map.mds.into_iter().next().ok_or_else(|| failed("it has no metadata server"))
    }

    /// A counter of the metadata server, at most half a second old.
    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let counters = self.mds()?.counters;
        let found = counters.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| failed(format!("no counter {name}")))
    }

    /// The same, counted after this was asked.
    pub(crate) fn counter_now(&self, name: &str) -> Result<u64> {
        // This request is counted in a later beacon.
        let requests = self.counter("requests")?;
        self.settle()?;
        let start = Instant::now();
        while self.counter("requests")? == requests && start.elapsed() < PATIENCE {
            std::thread::sleep(STEP);
        }
        self.counter(name)
    }

    /// Waits until the metadata store has everything.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.cluster.mount()?.checkpoint()
    }

    /// Resident memory of the metadata server in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        process::resident_bytes(self.mds()?.pid)
    }

    /// The most resident memory that the metadata server had so far, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        process::peak_bytes(self.mds()?.pid)
    }

    /// Bytes that the metadata server wrote to disks so far, in whole pages.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        process::written_bytes(self.mds()?.pid)
    }

    /// Processor time that the metadata server used so far, all its threads.
    pub(crate) fn server_cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(self.mds()?.pid)
    }

    fn await_state(&self, wanted: &str, is: impl Fn(&MdsEntry) -> bool) -> Result<()> {
        let start = Instant::now();
        while !self.mds().is_ok_and(|entry| is(&entry)) {
            if start.elapsed() > PATIENCE {
                return Err(failed(format!("the metadata server is not {wanted}")));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Kills the metadata server without warning and waits until the monitor knows.
    pub(crate) fn kill_mds(&mut self) -> Result<()> {
        process::kill(self.mds()?.pid, PATIENCE)?;
        if let Some(mut child) = self.mds.take() {
            let _ = child.wait();
        }
        self.await_state("lost", |entry| entry.state == MdsState::Lost)
    }

    /// Stops the metadata server's process and everything else cleanly, and starts the cluster
    /// again: nothing is in the server's memory.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let dir = self.own_dir()?.to_owned();
        self.stop()?;
        self.up(&[])?;
        self.cluster = Cluster::connect(&Locator::monitor_of(&dir))?;
        Ok(())
    }

    /// Starts the daemons of the cluster that do not run, with these options of `cudele up`.
    pub(crate) fn up(&self, options: &[&str]) -> Result<()> {
        let mut command = program()?;
        command.args(["up", "--json"]).args(options).arg("--dir").arg(self.own_dir()?);
        command.env("CUDELE_STATE", self.state()).stdin(Stdio::null());
        let done = command.output().map_err(|error| failed(error.to_string()))?;
        if !done.status.success() {
            return Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        Ok(())
    }

    /// The map of the cluster.
    pub(crate) fn status(&self) -> Result<ClusterMap> {
        self.cluster.status()
    }

    /// Puts a balancer policy in force.
    pub(crate) fn set_balancer(&self, name: &str, text: &str) -> Result<()> {
        self.cluster.set_balancer(name, text).map(drop)
    }

    /// The directory of a cluster that the experiment has made.
    pub(crate) fn own_dir(&self) -> Result<&Path> {
        self.own.as_deref().ok_or_else(|| {
            Error::new(Errno::NotSupported, "--mon", "this experiment restarts servers")
                .remedy("leave --mon and CUDELE_MON out")
        })
    }

    /// Starts the metadata server's process and returns the seconds until it is active.
    pub(crate) fn start_mds(&mut self, settings: &[String]) -> Result<f64> {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        self.start_mds_with(&settings.collect::<Vec<_>>())
    }

    /// The same with these options.
    pub(crate) fn start_mds_with(&mut self, options: &[&str]) -> Result<f64> {
        let mut command = program()?;
        command.arg("mds").arg("--dir").arg(self.own_dir()?).args(["--rank", "0"]);
        command.args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        self.mds = Some(command.spawn().map_err(|error| failed(error.to_string()))?);
        self.await_state("active", |entry| entry.state == MdsState::Active)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Waits until everything that was streamed is in the journal.
    pub(crate) fn settle(&self) -> Result<()> {
        self.cluster.mount()?.sync().map(|_| ())
    }

    /// Stops the daemons cleanly: the store has everything then.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.cluster.stop()?;
        if let Some(mut child) = self.mds.take() {
            let _ = child.wait();
        }
        let start = Instant::now();
        while Cluster::connect(self.cluster.address()).is_ok() {
            if start.elapsed() > PATIENCE {
                return Err(failed("it does not stop"));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// The logs go with the cluster: what a daemon said when it panicked is told before.
    fn tell_panics(&self) {
        let Some(dir) = &self.own else { return };
        for daemon in ["mds", "mon"] {
            let log = fs::read(terminal::logfile::of_daemon(dir, daemon)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if let Some(at) = log.find("panicked at") {
                let lines: Vec<&str> = log[at..].lines().take(PANIC_LINES).collect();
                // Without a standard error, no one reads it.
                let _ = writeln!(std::io::stderr(), "{daemon} {}", lines.join("\n  "));
            }
        }
    }

    /// Ends the daemons at once: their unstored state is lost.
    fn end(&mut self) {
        let Some(dir) = &self.own else { return };
        let mut pids = Vec::new();
        if let Ok(entry) = self.mds() {
            pids.push(entry.pid);
        }
        pids.extend(daemons_of(dir));
        for pid in pids {
            let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid {
                // One that has ended needs no end.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        if let Some(mut child) = self.mds.take() {
            let _ = child.wait();
        }
        // They write no more once they are gone; a process that has ended has no command line.
        let start = Instant::now();
        while !daemons_of(dir).is_empty() && start.elapsed() < PATIENCE {
            std::thread::sleep(STEP);
        }
    }
}

/// The daemons with this directory in their command line.
fn daemons_of(dir: &Path) -> Vec<u32> {
    use std::os::unix::ffi::OsStrExt;
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.filter_map(std::result::Result::ok).map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let daemon = words.clone().nth(1).is_some_and(|word| word == b"mon" || word == b"mds");
        daemon && words.any(|word| word == dir.as_os_str().as_bytes())
    };
    pids.filter(ours).collect()
}

/// The names and processes of the daemons of a cluster, also of those that the monitor does not
/// know.
pub(crate) fn daemons_in(dir: &Path) -> Vec<(String, u32)> {
    daemons_of(dir).into_iter().map(|pid| (daemon_name(pid), pid)).collect()
}

/// `mon`, or `mds` with the process: a standby serves a rank after a takeover.
fn daemon_name(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let monitor = line.split(|byte| *byte == 0).nth(1) == Some(b"mon");
    if monitor { "mon".to_owned() } else { format!("mds[{pid}]") }
}

pub(crate) fn program() -> Result<Command> {
    Ok(Command::new(terminal::program::find(terminal::program::PRODUCT)?))
}

/// Removes an experiment's objects from a store that has other users.
fn remove_objects(url: &str) -> Result<()> {
    let store = objstore::open_existing(url)?;
    store.list("")?.iter().try_for_each(|name| store.delete(name).map(|_| ()))
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.end();
        self.tell_panics();
        // Leftover files do not affect the figures of the experiment.
        if let Some(dir) = self.store.strip_prefix("dir:") {
            if self.own.is_some() {
                let _ = fs::remove_dir_all(dir);
            }
        } else if self.own.is_some() {
            let _ = remove_objects(&self.store);
        }
        let _ = fs::remove_dir_all(&self.state);
        let _ = fs::remove_dir_all(&self.home);
    }
}
