//! A cluster for a test, and the program run against it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Fs, Locator};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[path = "states.rs"]
mod states;

use states::are_in_state;

const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a condition that other processes bring about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that may hold a cluster. Dropping it ends every daemon that serves it.
pub(crate) struct Cluster {
    _home: TempDir,
    pub(crate) home: PathBuf,
    pub(crate) dir: PathBuf,
    /// Options for every `up`.
    options: Vec<String>,
}

impl Cluster {
    /// A running cluster.
    pub(crate) fn up() -> Self {
        Self::up_with(&[])
    }

    /// A running cluster, started with these options now and later.
    pub(crate) fn up_with(options: &[&str]) -> Self {
        let mut cluster = Self::down();
        cluster.options = options.iter().map(|option| (*option).to_owned()).collect();
        cluster.start();
        cluster
    }

    /// The same without a balancer that moves subtrees: a test of several servers chooses their
    /// ranks.
    pub(crate) fn by_hand(options: &[&str]) -> Self {
        let cluster = Self::up_with(options);
        cluster.run(&["balancer", "set", "static"]);
        cluster
    }

    /// A place for a cluster that does not run.
    pub(crate) fn down() -> Self {
        let home = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
        let path = home.path().to_owned();
        let dir = path.join("c");
        Self { _home: home, home: path, dir, options: Vec::new() }
    }

    /// The same with the cluster in another directory.
    pub(crate) fn down_in(dir: &Path) -> Self {
        let mut cluster = Self::down();
        cluster.dir = dir.to_owned();
        cluster
    }

    /// The same with these options for every `up`.
    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
        self
    }

    /// `cudele up`. Returns its output, as JSON.
    #[track_caller]
    pub(crate) fn start(&self) -> Value {
        let mut arguments: Vec<OsString> = vec!["up".into(), "--json".into()];
        arguments.extend(self.options.iter().map(OsString::from));
        let output = self.command(&arguments).output().unwrap();
        assert!(output.status.success(), "up: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The program with these arguments, on this cluster, away from the user's own files.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
        command.env_remove("CUDELE_MON").env_remove("CUDELE_DIR").env_remove("XDG_DATA_HOME");
        command.env("HOME", &self.home).env("CUDELE_STATE", self.home.join("state"));
        // The machine may have a file of its own.
        command.env("CUDELE_CONFIG", "/dev/null");
        command.arg("--dir").arg(&self.dir).args(arguments);
        command.stdin(Stdio::null()).current_dir(&self.home);
        command
    }

    /// The conditions of `cudele health --check`, and its exit status. The disk of the machine that
    /// runs the tests may be nearly full, which is no condition of theirs.
    pub(crate) fn health(&self) -> (Vec<Value>, i32) {
        let output = self.command(&["health", "--json", "--check"]).output().unwrap();
        let health: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = health["checks"].as_array().unwrap().clone();
        checks.retain(|check| check["code"] != "STORE_NEAR_FULL");
        let status = output.status.code().unwrap();
        let is_fine = status == 1 && checks.is_empty();
        (checks, if is_fine { 0 } else { status })
    }

    /// Whether `cudele health` names this condition.
    pub(crate) fn has_condition(&self, code: &str) -> bool {
        self.health().0.iter().any(|check| check["code"] == code)
    }

    /// Runs the program, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Vec<u8> {
        let output = self.command(arguments).output().unwrap();
        self.check(arguments, output)
    }

    /// The same with something on standard input.
    #[track_caller]
    pub(crate) fn run_with_input<S: AsRef<OsStr>>(&self, arguments: &[S], input: &[u8]) -> Vec<u8> {
        let output = self.output_with_input(arguments, input);
        self.check(arguments, output)
    }

    pub(crate) fn output_with_input<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        input: &[u8],
    ) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A program that refuses its arguments reads nothing.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    #[track_caller]
    fn check<S: AsRef<OsStr>>(&self, arguments: &[S], output: Output) -> Vec<u8> {
        let shown: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        let said = (text(&output.stderr), text(&output.stdout));
        assert!(output.status.success(), "{shown:?}: {}{}", said.0, said.1);
        output.stdout
    }

    /// Runs the program, which must succeed. Returns its output as text.
    #[track_caller]
    pub(crate) fn say(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.run(arguments)).unwrap()
    }

    /// Runs the program with `--json`, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        serde_json::from_slice(&self.run(&arguments)).unwrap()
    }

    /// Runs the program, which must end with this code. Returns its error, without its name.
    #[track_caller]
    pub(crate) fn fails<S: AsRef<OsStr>>(&self, code: i32, arguments: &[S]) -> String {
        let output = self.command(arguments).output().unwrap();
        let shown: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{shown:?}: {said}");
        said.trim_end().trim_start_matches("cudele: ").to_owned()
    }

    /// Names in a directory.
    #[track_caller]
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        self.say(&["ls", path]).lines().map(str::to_owned).collect()
    }

    /// A client in this process.
    pub(crate) fn mount(&self) -> Arc<Fs> {
        cudele::Cluster::connect(&Locator::monitor_of(&self.dir)).unwrap().mount().unwrap()
    }

    /// The processes that run a daemon of this cluster.
    pub(crate) fn daemons(&self, daemon: &str) -> Vec<Pid> {
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

    /// Kills a daemon as a crash does, and waits until it is gone.
    #[track_caller]
    pub(crate) fn kill(&self, daemon: &str) {
        let found = self.daemons(daemon);
        assert_eq!(found.len(), 1, "one {daemon} runs");
        self.kill_all(daemon);
    }

    /// Kills a process, and waits until nothing of it is left: its locks go with its last thread.
    pub(crate) fn kill_process(pid: Pid) {
        let _ = kill_process(pid, Signal::KILL);
        eventually("the killed process is gone", || are_in_state(pid, "ZX"));
    }

    fn kill_all(&self, daemon: &str) {
        for pid in self.daemons(daemon) {
            Self::kill_process(pid);
        }
    }

    /// The objects of the store with this prefix.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<String> {
        let store = format!("dir:{}", self.dir.join("store").display());
        objstore::open_existing(&store).unwrap().list(prefix).unwrap()
    }
}

impl Cluster {
    /// Prints the logs that explain a failed test.
    fn explain(&self) {
        for daemon in ["mon", "mds"] {
            let log = std::fs::read(self.dir.join("log").join(format!("{daemon}.log")));
            let (count, said) = (self.daemons(daemon).len(), text(&log.unwrap_or_default()));
            println!("{daemon}: {count} running; its log: {said}");
        }
        if let Ok(output) = self.command(&["status"]).output() {
            println!("{}{}", text(&output.stdout), text(&output.stderr));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.explain();
        }
        self.kill_all("mds");
        self.kill_all("mon");
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
