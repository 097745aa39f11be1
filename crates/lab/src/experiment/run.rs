//! Running the commands of an experiment: bounded, with progress, one after the other.
//!
//! Invariant: a command that takes longer than its bound is ended together with the processes that
//! it started, and is an error.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use types::{Errno, Error, Result};

use super::describe::{Description, Run};
use super::machine::{self, Machine};
use super::results::{Done, Results};

/// How often a command is looked at.
const STEP: Duration = Duration::from_millis(50);
/// The time for a command to remove its cluster.
const GRACE: Duration = Duration::from_secs(20);
/// In small sizes, nothing may take longer.
const QUICK_SECONDS_MAX: u64 = 120;
/// The pool of a Ceph cluster for stores beside its CephFS; `cargo xtask ceph up` makes it.
const POOL: &str = "test";
/// Rows of Cudele on the OSDs of a CephFS have this behind their name.
const ON_OSDS: &str = "osds";

/// How to run.
pub(crate) struct Runner<'a> {
    pub(crate) program: &'a Path,
    pub(crate) quick: bool,
    pub(crate) cephfs: Option<&'a Path>,
    pub(crate) juicefs: Option<&'a Path>,
    pub(crate) root: &'a Path,
}

impl Runner<'_> {
    /// Runs all commands of an experiment.
    ///
    /// # Errors
    /// A command that fails, prints no rows, or takes too long.
    pub(crate) fn experiment(&self, one: &Description) -> Result<Results> {
        let mut results = Results {
            experiment: one.name.clone(),
            quick: self.quick,
            at: machine::now(),
            machine: Machine::here(self.root),
            runs: Vec::new(),
        };
        for run in &one.run {
            results.runs.push(self.one(run, None)?);
            if let Some(conf) = self.cephfs.filter(|_| run.cephfs) {
                results.runs.push(self.one(run, Some(conf))?);
            }
        }
        Ok(results)
    }

    /// With a Ceph cluster, the run is of its CephFS and of Cudele on the same OSDs.
    fn arguments(&self, run: &Run, ceph: Option<&Path>) -> Vec<String> {
        let mut arguments = match (&run.quick, self.quick) {
            (Some(quick), true) => quick.clone(),
            (None, true) => run.arguments.iter().cloned().chain(["--quick".to_owned()]).collect(),
            (_, false) => run.arguments.clone(),
        };
        if let Some(conf) = ceph {
            let conf = conf.display().to_string();
            let store = format!("rados://{POOL}?conf={conf}");
            arguments.extend(["--cephfs".to_owned(), conf, "--store".to_owned(), store]);
        } else if let Some(program) = self.juicefs.filter(|_| run.juicefs) {
            arguments.extend(["--juicefs".to_owned(), program.display().to_string()]);
        }
        arguments
    }

    fn one(&self, run: &Run, ceph: Option<&Path>) -> Result<Done> {
        let arguments = self.arguments(run, ceph);
        let command = shown(&arguments);
        let load_before = machine::load();
        eprintln!("   {command} (load {load_before:.1})");
        let seconds_max = if self.quick { QUICK_SECONDS_MAX } else { run.seconds_max };
        let start = Instant::now();
        let output = self.output(&command, &arguments, Duration::from_secs(seconds_max))?;
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("   {seconds:.1} s");
        let printed: Value = serde_json::from_slice(&output).map_err(|error| {
            Error::new(Errno::Invalid, &command, format!("it printed no rows: {error}"))
        })?;
        let rows = printed.as_array().or_else(|| printed["rows"].as_array());
        let rows =
            rows.ok_or_else(|| Error::new(Errno::Invalid, &command, "it printed no rows"))?;
        let mut rows: Vec<Value> =
            rows.iter().cloned().map(without_places).map(simulated).collect();
        for row in &mut rows {
            if let Some(tag) = &run.tag {
                tagged(row, tag);
            }
            if ceph.is_some() && !is_of_cephfs(row) {
                tagged(row, ON_OSDS);
            }
        }
        Ok(Done { command, seconds, load_before, load_after: machine::load(), rows })
    }

    fn output(&self, shown: &str, arguments: &[String], limit: Duration) -> Result<Vec<u8>> {
        let mut child = Command::new(self.program)
            .arg("--json")
            .args(arguments)
            .env_remove("CUDELE_MON")
            .env_remove("CUDELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| terminal::io(self.program, &error))?;
        let Some(mut pipe) = child.stdout.take() else {
            return Err(Error::new(Errno::Io, shown, "it has no pipe"));
        };
        // Read while the command runs: its output may be more than a pipe holds.
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        });
        let status = wait(&mut child, limit).map_err(|error| terminal::io(self.program, &error))?;
        let Some(status) = status else {
            let cause = format!("it took longer than {} s, and was ended", limit.as_secs());
            return Err(Error::new(Errno::TimedOut, shown, cause)
                .remedy("run it alone on an idle machine, or raise seconds_max"));
        };
        if !status.success() {
            let cause = format!("{status}; its message is above");
            return Err(Error::new(Errno::Io, shown, cause));
        }
        let read = reader.join().map_err(|_| Error::new(Errno::Io, shown, "reading it failed"))?;
        read.map_err(|error| terminal::io(self.program, &error))
    }
}

/// None if the child had to be ended.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            break;
        }
        thread::sleep(STEP);
    }
    // Asked first, so that it removes its cluster.
    let _ = child.id().try_into().ok().and_then(Pid::from_raw).map(|pid| {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    });
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        thread::sleep(STEP);
    }
    if let Some(group) = child.id().try_into().ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    Ok(None)
}

/// A command as results show it: the places of peers are this machine's business.
fn shown(arguments: &[String]) -> String {
    let mut command = "cudele".to_owned();
    for (at, argument) in arguments.iter().enumerate() {
        let of = at.checked_sub(1).map(|before| arguments[before].as_str());
        command.push(' ');
        command.push_str(match of {
            Some("--cephfs" | "--juicefs") => "FILE",
            Some("--store") => argument.split('?').next().unwrap_or_default(),
            _ => argument,
        });
    }
    command
}

fn tagged(row: &mut Value, tag: &str) {
    if let Some(name) = row["name"].as_str() {
        row["name"] = format!("{name}.{tag}").into();
    }
}

/// CephFS has no other store than its OSDs.
fn is_of_cephfs(row: &Value) -> bool {
    row["name"].as_str().is_some_and(|name| name.contains("cephfs"))
}

/// Rows of the simulator are called after their policies, and their spread is that of the seeds.
fn simulated(mut row: Value) -> Value {
    let Some(policy) = row["policy"].as_str().filter(|_| row.get("name").is_none()) else {
        return row;
    };
    let policy = policy.to_owned();
    let figures = ["per_second_least", "per_second", "per_second_most", "speedup"];
    if let [Some(least), Some(median), Some(most), Some(speedup)] =
        figures.map(|figure| row[figure].as_f64())
    {
        let rates = [least, median, most];
        let speedups = rates.map(|rate| rate * speedup / median);
        row["each"] = serde_json::json!({"per_second": rates, "speedup": speedups});
    }
    row["name"] = policy.into();
    row
}

/// Which kind of store it was is a result; where it was is not.
fn without_places(mut row: Value) -> Value {
    if let Some(store) = row["store"].as_str() {
        let kind = store.split(':').next().unwrap_or_default().to_owned();
        row["store"] = kind.into();
    }
    row
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_of_cephfs, shown, simulated, tagged, without_places};

    #[test]
    fn commands_and_names_say_on_which_store_but_not_where() {
        let arguments = ["bench", "creates", "--cephfs", "/a/c", "--store", "rados://test?conf=/a"];
        let command = shown(&arguments.map(str::to_owned));
        assert_eq!(command, "cudele bench creates --cephfs FILE --store rados://test");
        let mut row = json!({"name": "sync_1_client"});
        assert!(!is_of_cephfs(&row) && is_of_cephfs(&json!({"name": "cephfs_1_client"})));
        tagged(&mut row, "osds");
        assert_eq!(row["name"], "sync_1_client.osds");
    }

    #[test]
    fn rows_say_nothing_of_places_and_all_have_names() {
        assert_eq!(without_places(json!({"store": "dir:/tmp/x"})), json!({"store": "dir"}));
        let row = json!({"policy": "a", "per_second_least": 1.0, "per_second": 2.0,
                         "per_second_most": 4.0, "speedup": 3.0});
        let row = simulated(row);
        assert_eq!(row["name"], "a");
        assert_eq!(row["each"], json!({"per_second": [1.0, 2.0, 4.0], "speedup": [1.5, 3.0, 6.0]}));
        assert_eq!(simulated(json!({"name": "b"})), json!({"name": "b"}));
    }
}
