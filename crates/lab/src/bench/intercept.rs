//! `intercept`: a C program that was not written for this file system makes, looks at and removes
//! files: with its system calls answered in its own process (`cudele run --preload on`), through
//! the mount of the same kind of job, and on tmpfs. The three are measured in turn, repetition by
//! repetition.
//!
//! Ratios named `of_…` are speeds, larger is better.

use std::path::{Path, PathBuf};
use std::process::Command;

use cudele::{Errno, Error, Result};
use terminal::io;

use crate::harness::cluster::{self, TestCluster};
use crate::harness::lab::Lab;
use crate::harness::mounting;
use crate::harness::row::PER_SECOND;
use crate::harness::sheet::Sheet;
use crate::harness::stats::real;

const BENCH: &str = "intercept";
const SOURCE: &str = include_str!("intercept/loop.c");
const MEMORY: &str = "/dev/shm";
/// Bytes of a file of mdtest-hard.
const HARD_BYTES: u64 = 3901;

const PHASES: [&str; 3] = ["create", "stat", "delete"];
const OF_TMPFS: &str = "of_tmpfs";
const OF_ONE: &str = "of_one_process";
const OF_MOUNT: &str = "of_mount";

/// A kind of run: its name, the processes, and the bytes of each file.
const RUNS: [(&str, u32, u64); 3] = [("easy", 1, 0), ("two", 2, 0), ("hard", 1, HARD_BYTES)];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    mounting::possible()?;
    let files = lab.files(500_000, 2_000);
    let few = files.min(20_000);
    let dir = tempfile::tempdir().map_err(|error| io(&std::env::temp_dir(), &error))?;
    let program = compiled(dir.path())?;
    let mut sheet = Sheet::new(BENCH);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        for (name, processes, bytes) in RUNS {
            lab.progress(BENCH, repetition, name);
            let files = if bytes > 0 { files / 5 } else { files };
            let work = Work { program: &program, processes, files, bytes };
            let ours = work.in_job(&cluster, "on")?;
            let theirs = work.in_memory()?;
            let mounted = Work { files: few, ..work }.in_job(&cluster, "off")?;
            for (at, phase) in PHASES.iter().enumerate() {
                // Of each process: a row counts those of all its clients.
                let row = sheet.row(&format!("{name}_{phase}"), files);
                row.clients = processes;
                row.push(ours[at]);
                row.note(OF_TMPFS, theirs[at] / ours[at]);
                let scaled = mounted[at] * real(files) / real(few);
                row.note(OF_MOUNT, scaled / ours[at]);
            }
        }
        scaling(&mut sheet);
        cluster.store().clone_into(&mut store);
    }
    goals(&mut sheet);
    lab.report(&store, sheet.rows);
    Ok(())
}

/// Two processes in one directory, beside one.
fn scaling(sheet: &mut Sheet) {
    for phase in PHASES {
        let seconds = |name: &str| {
            let found = sheet.rows.iter().find(|row| row.name == format!("{name}_{phase}"));
            found.and_then(|row| row.seconds.last().copied()).unwrap_or(f64::NAN)
        };
        let ratio = 2.0 * seconds("easy") / seconds("two");
        if let Some(row) = sheet.rows.iter_mut().find(|row| row.name == format!("two_{phase}")) {
            row.note(OF_ONE, ratio);
        }
    }
}

/// The rates that a program is to reach, and what a second process is to add.
fn goals(sheet: &mut Sheet) {
    for row in &mut sheet.rows {
        match row.name.as_str() {
            "easy_create" | "easy_delete" => row.goal(PER_SECOND, 2e6),
            "easy_stat" => row.goal(PER_SECOND, 3e6),
            "hard_create" => row.goal(PER_SECOND, 120e3),
            "two_create" | "two_stat" | "two_delete" => row.goal(OF_ONE, 1.5),
            _ => {}
        }
    }
}

fn compiled(dir: &Path) -> Result<PathBuf> {
    let (source, program) = (dir.join("loop.c"), dir.join("loop"));
    std::fs::write(&source, SOURCE).map_err(|error| io(&source, &error))?;
    let mut compiler = Command::new("cc");
    let done = compiler.args(["-O2", "-o"]).arg(&program).arg(&source).status();
    match done {
        Ok(status) if status.success() => Ok(program),
        Ok(_) | Err(_) => Err(Error::new(Errno::NotFound, "cc", "the C program is not compiled")
            .remedy("install a C compiler named `cc`")),
    }
}

/// The work of the program.
#[derive(Clone, Copy)]
struct Work<'a> {
    program: &'a Path,
    processes: u32,
    files: u64,
    bytes: u64,
}

impl Work<'_> {
    /// The processes, started together by a shell in a directory.
    fn script(&self, dir: &str) -> String {
        let Self { program, processes, files, bytes } = self;
        let one = |number| format!("{} {dir} p{number} {files} {bytes} & ", program.display());
        let all: String = (0..*processes).map(one).collect();
        format!("{all} wait")
    }

    /// Seconds of each phase in a job.
    fn in_job(&self, cluster: &TestCluster, preload: &str) -> Result<[f64; 3]> {
        let path = cluster.directory(None)?;
        let mut command = cluster::program()?;
        command.args(["--mon", &cluster.address(), "run", "--policy", "batchfs", "--preload"]);
        command.args([preload, &path, "--", "sh", "-c", &self.script("$CUDELE_JOB")]);
        command.env("CUDELE_STATE", cluster.state());
        self.seconds(command)
    }

    /// Seconds of each phase in a directory of tmpfs.
    fn in_memory(&self) -> Result<[f64; 3]> {
        let at = Path::new(MEMORY);
        let dir = tempfile::tempdir_in(at).map_err(|error| io(at, &error))?;
        let mut command = Command::new("sh");
        command.args(["-c", &self.script(&dir.path().display().to_string())]);
        self.seconds(command)
    }

    /// The seconds that the slowest process says of each phase.
    fn seconds(&self, mut command: Command) -> Result<[f64; 3]> {
        let output = command.output().map_err(|error| io(self.program, &error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut slowest = [0.0_f64; 3];
        let mut count = 0;
        for line in said.lines() {
            let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [create, stat, delete] = numbers[..] {
                count += 1;
                for (slowest, seconds) in slowest.iter_mut().zip([create, stat, delete]) {
                    *slowest = slowest.max(seconds);
                }
            }
        }
        if count != self.processes {
            let cause = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::new(Errno::Io, "intercept", cause));
        }
        Ok(slowest)
    }
}
