//! A cluster in a temporary directory, with a mount: the ground of a cell.
//!
//! Invariant: at the end of a cell, also after an error, the mount ends before the cluster.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::case::until_ended;
use crate::run::Failure;

/// How long a mount may take to appear and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Words in a log that show a fault of a daemon or of the mount.
const FAULTS: [&str; 4] = ["panicked at", "assertion", "internal error", " aborted"];

/// A running cluster and its mount.
#[derive(Debug)]
pub(super) struct Cluster {
    program: PathBuf,
    home: PathBuf,
    mount: Option<Child>,
    /// The first report of the servers' processes.
    servers: Vec<u64>,
}

impl Cluster {
    /// Starts so many servers, and mounts with these options besides those that all suites need.
    pub(super) fn start(
        program: &Path,
        home: &Path,
        servers: &str,
        options: &str,
        store: Option<&str>,
    ) -> Result<Cluster, Failure> {
        let mut cluster = Cluster {
            program: program.to_owned(),
            home: home.to_owned(),
            mount: None,
            servers: Vec::new(),
        };
        let url = store.map(|store| beside(store, home));
        let mut up = vec!["up", "--mds", servers];
        up.extend(url.iter().flat_map(|url| ["--store", url]));
        cluster.run(&up)?;
        cluster.servers = cluster.pids()?;
        cluster.mount(options)?;
        Ok(cluster)
    }

    fn mount(&mut self, options: &str) -> Result<(), Failure> {
        let at = self.at();
        let made = fs::create_dir(&at).and_then(|()| File::create(self.home.join("mount.log")));
        let log = made.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, error) = log.map_err(|error| failed("cannot prepare the mount", &error))?;
        let mut command = self.command(&["mount", "--foreground", "-o"]);
        command.arg(format!("allow_other,suid,dev{options}")).arg(&at).stdout(out).stderr(error);
        let child = command.spawn().map_err(|error| failed("cannot start cudele mount", &error))?;
        self.mount = Some(child);
        let start = Instant::now();
        while !is_mounted(&at) {
            if start.elapsed() > PATIENCE || !self.is_alive() {
                let log = fs::read_to_string(self.home.join("mount.log")).unwrap_or_default();
                return Err(Failure::Failed(format!("cudele mount does not mount: {log}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The directory of the mount.
    pub(super) fn at(&self) -> PathBuf {
        self.home.join("m")
    }

    /// The program's path.
    pub(super) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// The program, of this cluster.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .envs(self.variables())
            .env_remove("CUDELE_MON")
            .stdin(Stdio::null());
        command
    }

    /// The environment of programs that use this cluster.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.home.join(name).display().to_string();
        vec![("CUDELE_DIR".into(), path("c")), ("CUDELE_STATE".into(), path("state"))]
    }

    /// Runs the program, which must succeed, and returns its output.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String, Failure> {
        let output = self.command(arguments).output();
        let output = output.map_err(|error| failed("cannot start cudele", &error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let (out, error) = (output.stdout, output.stderr);
        let said = [out, error].concat();
        let (words, said) = (arguments.join(" "), String::from_utf8_lossy(&said));
        Err(Failure::Failed(format!("`cudele {words}` failed: {}", said.trim())))
    }

    /// The processes of the servers, in the order of their ranks.
    fn pids(&self) -> Result<Vec<u64>, Failure> {
        let text = self.run(&["--json", "status"])?;
        let status = serde_json::from_str::<serde_json::Value>(&text);
        let status = status.map_err(|error| failed("cannot read the status", &error))?;
        let servers = status["mds"].as_array();
        Ok(servers.into_iter().flatten().filter_map(|server| server["pid"].as_u64()).collect())
    }

    /// Whether the mount's process runs.
    pub(super) fn is_alive(&mut self) -> bool {
        self.mount.as_mut().is_some_and(|mount| matches!(mount.try_wait(), Ok(None)))
    }

    /// Ends everything, and returns all faults that show: of the mount, the servers, their logs and
    /// the store.
    pub(super) fn end(mut self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut note = |result: Result<String, Failure>| {
            if let Err(failure) = result {
                faults.push(failure.text());
            }
        };
        match self.pids() {
            Ok(now) if now == self.servers => {}
            Ok(_) => note(Err(Failure::Failed("a metadata server has ended".into()))),
            Err(failure) => note(Err(failure)),
        }
        note(self.unmount());
        let health = self.run(&["--json", "health"]).and_then(|text| {
            let is_well = serde_json::from_str::<serde_json::Value>(&text)
                .is_ok_and(|value| value["health"] == "ok");
            if is_well { Ok(text) } else { Err(Failure::Failed(format!("health: {text}"))) }
        });
        note(health);
        note(self.run(&["down"]));
        note(self.run(&["fsck"]));
        faults.extend(self.faults_in_logs());
        faults
    }

    fn unmount(&mut self) -> Result<String, Failure> {
        let Some(mut mount) = self.mount.take() else { return Ok(String::new()) };
        let at = self.at().display().to_string();
        let mut result = self.run(&["umount", &at]);
        if result.is_err() {
            let _ = self.run(&["umount", "--lazy", &at]);
        }
        let ended = until_ended(&mut mount, PATIENCE);
        if ended.is_none() {
            let _ = mount.kill();
            let _ = mount.wait();
        }
        if !ended.is_some_and(|status| status.success()) {
            let ended = ended.map_or_else(|| "killed".into(), |status| status.to_string());
            result = result.and(Err(Failure::Failed(format!("the mount ended with {ended}"))));
        }
        result
    }

    fn faults_in_logs(&self) -> Vec<String> {
        let daemons = fs::read_dir(self.home.join("c/log")).into_iter().flatten().flatten();
        let logs = daemons.map(|entry| entry.path()).chain([self.home.join("mount.log")]);
        let faults = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let is_fault = |line: &&str| FAULTS.iter().any(|word| line.contains(word));
            text.lines().filter(is_fault).map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        logs.flat_map(faults).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.mount.is_some() {
            let _ = self.unmount();
            let _ = self.run(&["down"]);
        }
    }
}

/// A store for this cluster alone, beside the store at an address: a namespace of the pool, or a
/// directory.
fn beside(store: &str, home: &Path) -> String {
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    match store.split_once('?') {
        Some(_) => format!("{store}&namespace={name}"),
        None if store.starts_with("rados:") => format!("{store}?namespace={name}"),
        None => format!("{}/{name}", store.trim_end_matches('/')),
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{what}: {error}"))
}

fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|place| Path::new(place) == at))
}
