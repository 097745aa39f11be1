//! The kinds of directories that suites run in.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::case::{self, Case, Verdict};
use super::cluster::Cluster;
use super::options::Options;
use crate::run::Failure;

/// How a cell comes to its directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ground {
    /// A directory of the machine's.
    Machine(&'static str),
    /// A directory of a mount with these options, with so many servers.
    Mount { options: &'static str, servers: &'static str },
    /// The same, decoupled under a policy; its work is merged at the end.
    Decoupled,
    /// The same, with its names spread over the servers.
    Spread,
    /// Each case is a job with the library in its programs.
    Job,
}

const CELLS: [(&str, Ground); 7] = [
    ("tmpfs", Ground::Machine("/dev/shm")),
    ("local", Ground::Machine("")),
    ("posix", Ground::Mount { options: ",wsync", servers: "1" }),
    ("nowsync", Ground::Mount { options: "", servers: "1" }),
    ("decoupled", Ground::Decoupled),
    ("ranks", Ground::Spread),
    ("preload", Ground::Job),
];
/// The policy of decoupled directories.
const POLICY: &str = "batchfs";
/// The directory of the suites in the namespace.
const SUITE: &str = "/suite";

/// Whether there is such a cell.
pub(super) fn is_known(name: &str) -> bool {
    names().contains(&name)
}

/// The names of all cells.
pub(super) fn names() -> Vec<&'static str> {
    CELLS.iter().map(|(name, _)| *name).collect()
}

/// A cell in use.
#[derive(Debug)]
pub(super) struct Cell {
    name: String,
    ground: Ground,
    /// The directory of the run, which ends with it.
    home: PathBuf,
    /// The directory for the cases' directories.
    at: PathBuf,
    cluster: Option<Cluster>,
    /// The number of the last case.
    last: u32,
}

impl Cell {
    /// Makes a cell.
    ///
    /// # Errors
    /// The cluster or the mount does not start, or this machine cannot mount.
    pub(super) fn begin(name: &str, program: &Path, options: &Options) -> Result<Cell, Failure> {
        let ground = CELLS.iter().find(|(known, _)| *known == name).map(|(_, ground)| *ground);
        let ground = ground.ok_or_else(|| Failure::Usage(format!("there is no cell {name:?}")))?;
        let base = match ground {
            Ground::Machine(base) if !base.is_empty() => PathBuf::from(base),
            Ground::Machine(_)
            | Ground::Mount { .. }
            | Ground::Decoupled
            | Ground::Spread
            | Ground::Job => std::env::temp_dir(),
        };
        let home = home(&base)?;
        let mut cell =
            Cell { name: name.into(), ground, at: home.join("d"), home, cluster: None, last: 0 };
        let servers_and_options = match ground {
            Ground::Machine(_) => None,
            Ground::Mount { options, servers } => Some((servers, options)),
            Ground::Decoupled | Ground::Job => Some(("1", "")),
            Ground::Spread => Some(("3", "")),
        };
        if let Some((servers, mount)) = servers_and_options {
            let store = options.store.as_deref();
            let cluster = Cluster::start(program, &cell.home, servers, mount, store)?;
            cell.at = cluster.at().join("suite");
            cell.cluster = Some(cluster);
        }
        open_directory(&cell.at)?;
        open_directory(&cell.local())?;
        cell.prepare()?;
        Ok(cell)
    }

    fn prepare(&self) -> Result<(), Failure> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        match self.ground {
            Ground::Decoupled => {
                self.set("cudele.dir.policy", POLICY)?;
                self.set("cudele.dir.state", "decouple")
            }
            Ground::Spread => {
                cluster.run(&["balancer", "set", "static"])?;
                cluster.run(&["mds", "split", SUITE]).map(drop)
            }
            Ground::Machine(_) | Ground::Mount { .. } | Ground::Job => Ok(()),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<(), Failure> {
        let mut command = Command::new("setfattr");
        command.args(["-n", name, "-v", value]).arg(&self.at);
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Failure::Failed(format!("{name} of {} is not set", self.at.display()))),
            Err(error) => Err(Failure::Failed(format!("cannot start setfattr: {error}"))),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its directory is of Cudele.
    pub(super) fn is_ours(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether each case is a job.
    pub(super) fn has_jobs(&self) -> bool {
        self.ground == Ground::Job
    }

    /// Whether other mounts see its directory.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.ground, Ground::Mount { .. })
    }

    /// Whether cases can run in it.
    pub(super) fn is_alive(&mut self) -> bool {
        self.cluster.as_mut().is_none_or(Cluster::is_alive)
    }

    fn local(&self) -> PathBuf {
        self.home.join("local")
    }

    /// Runs a case in a directory of its own, which is removed: the file system must be able to.
    pub(super) fn carry_out(&mut self, case: &Case, log: &Path) -> Result<Verdict, Failure> {
        self.last += 1;
        let (local, name) = (self.local().join(self.last.to_string()), format!("c{}", self.last));
        open_directory(&local)?;
        let local_text = local.display().to_string();
        let script = ["sh", "-euc", &case.script, "sh"].map(str::to_owned);
        let (program, directory) = if let (true, Some(cluster)) = (self.has_jobs(), &self.cluster) {
            let run = cluster.command(&["run", "--preload", "on", "--on-failure", "discard"]);
            let words = [run.get_program()].into_iter().chain(run.get_args());
            let mut words: Vec<String> =
                words.map(|word| word.to_string_lossy().into_owned()).collect();
            words.extend(["--policy", POLICY, &format!("/{name}"), "--"].map(str::to_owned));
            words.extend(script);
            words.extend(["{}".to_owned(), local_text]);
            (words, cluster.at().join(&name))
        } else {
            let directory = self.at.join(&name);
            open_directory(&directory)?;
            let text = directory.display().to_string();
            (script.into_iter().chain([text, local_text]).collect(), directory)
        };
        let mut variables = self.cluster.as_ref().map(Cluster::variables).unwrap_or_default();
        if let (Ground::Mount { options, .. }, Some(cluster)) = (self.ground, &self.cluster) {
            variables.push(("SUITES_OPTIONS".into(), options.into()));
            variables.push(("SUITES_PROGRAM".into(), cluster.program()));
        }
        let verdict = case::carry_out(&program, &variables, case, log)?;
        let removed = remove(&directory);
        let _ = remove(&local);
        Ok(match (verdict, removed) {
            (Verdict::Passed | Verdict::Skipped(_), Err(reason)) => Verdict::Failed(reason),
            (verdict, _) => verdict,
        })
    }

    /// Ends the cell: all work is merged, and the cluster is checked.
    pub(super) fn end(mut self) -> Verdict {
        let mut faults = Vec::new();
        if self.ground == Ground::Decoupled && self.is_alive() {
            faults.extend(self.set("cudele.dir.state", "merge").err().map(|error| error.text()));
        }
        faults.extend(self.cluster.take().map(Cluster::end).unwrap_or_default());
        if faults.is_empty() {
            return Verdict::Passed;
        }
        // The logs stay for the reader of the report.
        faults.push(format!("its directory is {}", self.home.display()));
        self.home = PathBuf::new();
        Verdict::Failed(faults.join("; "))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        drop(self.cluster.take());
        // Never below a mount that is still there: `rm` stays on one file system.
        if !self.home.as_os_str().is_empty() {
            let _ = remove(&self.home);
        }
    }
}

/// A new directory for a cell, short: addresses of sockets are in it. Process ids do not tell runs
/// apart, because each run has namespaces of its own.
fn home(base: &Path) -> Result<PathBuf, Failure> {
    let mut number = 0;
    loop {
        let home = base.join(format!("cudele-s{number}"));
        match fs::create_dir(&home) {
            Ok(()) => return open_to_all(&home).map(|()| home),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(cannot_make(&home, &error)),
        }
    }
}

/// A new directory that all users may look into: cases act as several users.
fn open_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir(path).map_err(|error| cannot_make(path, &error))?;
    open_to_all(path)
}

fn open_to_all(path: &Path) -> Result<(), Failure> {
    let opened = fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    opened.map_err(|error| cannot_make(path, &error))
}

fn cannot_make(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot make {}: {error}", path.display()))
}

fn remove(path: &Path) -> Result<(), String> {
    let mut command = Command::new("rm");
    let output = command.args(["-rf", "--one-file-system", "--"]).arg(path).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = said.lines().next().unwrap_or_default();
            Err(format!("{} cannot be removed: {first}", path.display()))
        }
        Err(error) => Err(format!("cannot start rm: {error}")),
    }
}
