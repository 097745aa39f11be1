//! Where cases take place: a cluster of real processes, the disks of clients, and power cuts.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::Locator;
use objstore::{Expect, Store};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::{JOB, Job, Task};
use crate::disk::Disk;
use crate::tree::Tree;

#[path = "../it/states.rs"]
mod states;

use states::are_in_state;

const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a condition that other processes bring about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A running cluster, and the machines of its users. Dropping it ends every process of it.
pub(crate) struct Site {
    home: TempDir,
    dir: PathBuf,
    /// Where the object store is, if its disk can lose power.
    store: Option<Disk>,
}

impl Site {
    /// A cluster with its store in a directory.
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// A cluster with its store on a disk of its own; None if this machine forbids such a disk.
    pub(crate) fn on_a_disk() -> Option<Self> {
        Some(Self::with(Some(Disk::new("store")?)))
    }

    fn with(store: Option<Disk>) -> Self {
        let home = tempfile::Builder::new().prefix("cudele-matrix.").tempdir().unwrap();
        let dir = home.path().join("c");
        let site = Self { home, dir, store };
        site.up();
        site
    }

    /// A place on the machine on which the test runs, which no power cut takes.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The address of the object store: on its own disk, in the pool that `CUDELE_TEST_STORE`
    /// names, or in the cluster's directory.
    fn store_url(&self) -> String {
        match (&self.store, std::env::var("CUDELE_TEST_STORE")) {
            (Some(disk), _) => format!("dir:{}", disk.path().join("store").display()),
            (None, Ok(url)) => {
                let home = self.home.path().file_name().unwrap_or_default();
                objstore::beside(&url, &home.to_string_lossy())
            }
            (None, Err(_)) => format!("dir:{}", self.dir.join("store").display()),
        }
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
        self.away_from_the_user(&mut command, &self.path("nobody"));
        command.arg("--dir").arg(&self.dir).args(arguments);
        command
    }

    fn away_from_the_user(&self, command: &mut Command, state: &Path) {
        command.env_remove("CUDELE_MON").env_remove("CUDELE_DIR").env_remove("XDG_DATA_HOME");
        command.env("HOME", self.home.path()).env("CUDELE_STATE", state);
        command.stdin(Stdio::null()).current_dir("/");
    }

    /// Starts the daemons that do not run. Recovery does not wait for dead clients.
    pub(crate) fn up(&self) {
        self.up_and_wait_for_clients(0);
    }

    /// Starts the daemons that do not run. A server waits this long for clients of its predecessor
    /// with changes to repeat. The journal is written late: many changes are unsafe at any time.
    pub(crate) fn up_and_wait_for_clients(&self, millis: u64) {
        let url = self.store_url();
        let (late, large) = ("commit_interval_ms=200", "commit_bytes=100000000");
        let wait = format!("reconnect_ms={millis}");
        let arguments = ["up", "--store", &url, "--set", late, "--set", large, "--set", &wait];
        let output = self.command(&arguments).output().unwrap();
        assert!(output.status.success(), "up: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a command of another client, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }

    /// The processes that run a daemon of this cluster.
    fn daemons(&self, daemon: &str) -> Vec<Pid> {
        let wanted = [daemon.as_bytes(), b"--dir", self.dir.as_os_str().as_bytes()];
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
            let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let program = env!("CARGO_BIN_EXE_cudele").as_bytes();
            if arguments.len() > 3 && arguments[0] == program && arguments[1..4] == wanted {
                found.extend(Pid::from_raw(pid));
            }
        }
        found
    }

    /// Kills a daemon, and waits until nothing of it is left: its locks go with its last thread.
    fn kill(&self, daemon: &str) {
        for pid in self.daemons(daemon) {
            let _ = kill_process(pid, Signal::KILL);
            eventually("the killed daemon is gone", || are_in_state(pid, "ZX"));
        }
    }

    /// Stops a daemon; its present system call ends first.
    fn stop(&self, daemon: &str) {
        for pid in self.daemons(daemon) {
            kill_process(pid, Signal::STOP).unwrap();
            eventually("the daemon has stopped", || are_in_state(pid, "Tt"));
        }
    }

    /// `kill -9` of the metadata server, by the process id that the cluster says.
    pub(crate) fn kill_mds(&self) {
        let map = cudele::Cluster::connect(&self.monitor()).and_then(|cluster| cluster.status());
        let pid = i32::try_from(map.unwrap().mds[0].pid).ok().and_then(Pid::from_raw).unwrap();
        assert_eq!(self.daemons("mds"), [pid], "the server that the cluster names is the one");
        self.kill("mds");
    }

    /// The power of the servers' machine fails: the daemons are gone, and the store's disk has the
    /// durable data of that moment.
    pub(crate) fn cut_power(&mut self, killed: impl FnOnce()) {
        // The copy of a disk takes a while, in which no process may write to it.
        self.stop("mds");
        self.stop("mon");
        self.store.as_mut().expect("the store of this site has a disk").freeze();
        killed();
        self.kill("mds");
        self.kill("mon");
        self.store.as_mut().expect("it has one").reboot();
    }

    fn monitor(&self) -> net::Address {
        Locator::monitor_of(&self.dir)
    }

    fn open_store(&self) -> Arc<dyn Store> {
        objstore::open_existing(&self.store_url()).unwrap()
    }

    /// The objects of the store with this prefix.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<String> {
        self.open_store().list(prefix).unwrap()
    }

    /// Takes the end of an object away: all behind so many of its bytes.
    pub(crate) fn tear_object(&self, name: &str, length: impl FnOnce(usize) -> usize) {
        let store = self.open_store();
        let (bytes, _) = store.get(name).unwrap();
        let _ = store.put(name, &bytes[..length(bytes.len())], Expect::Any).unwrap();
    }

    /// Starts a client process on the machine with this directory on its disk.
    pub(crate) fn client(&self, task: Task, path: &str, state: &Path, stops: &[&str]) -> Client {
        let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let job = Job { mon: self.monitor().to_string(), path: path.to_owned(), task, stops };
        let mut command = Command::new(std::env::current_exe().unwrap());
        self.away_from_the_user(&mut command, state);
        command.args(["client::the_client", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(JOB, serde_json::to_string(&job).unwrap());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Client { input: child.stdin.take(), child, output }
    }

    /// The view of a client on a machine of its own.
    pub(crate) fn look(&self, path: &str) -> Tree {
        self.client(Task::Look, path, &self.path("elsewhere"), &[]).result().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill("mds");
        self.kill("mon");
    }
}

/// A client process. Dropping it kills it.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Waits until it says something: `@` a place, `=` its result.
    fn said(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if line.starts_with(['@', '=']) {
                return Some(line.trim_end().to_owned());
            }
        }
    }

    /// Waits until it is at a place.
    #[track_caller]
    pub(crate) fn await_place(&mut self, place: &str) {
        assert_eq!(self.said(), Some(format!("@{place}")));
    }

    /// Lets it go on from where it waits.
    pub(crate) fn go(&mut self) {
        writeln!(self.input.as_mut().unwrap(), "go").unwrap();
    }

    /// Lets it go on, and waits for its end.
    pub(crate) fn go_to_the_end(mut self) -> Result<Tree, String> {
        self.go();
        self.result()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end. An error is the library's message.
    pub(crate) fn result(mut self) -> Result<Tree, String> {
        let said = self.said().unwrap_or_default();
        let text = said.strip_prefix('=').ok_or_else(|| format!("it ended with `{said}`"))?;
        serde_json::from_str(text).map_err(|_| text.to_owned())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}
