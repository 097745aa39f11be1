//! One case: a shell script in namespaces of its own, with a time limit and a verdict.
//!
//! Invariant: no process of a case outlives it. The processes are in a PID namespace, which the
//! kernel ends with its first process.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::run::Failure;

/// The exit code of a script that has no use here.
pub(super) const SKIPPED: i32 = 32;
/// The message of LTP where a test needs a device for a file system of its own.
const NO_DEVICE: &str = "Failed to acquire device";
/// How long killed processes may take to end: a FUSE request ends with its process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at a process.
const PAUSE: Duration = Duration::from_millis(10);
/// Characters of a reason.
const REASON_MAX: usize = 160;

/// One test of a suite.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Its name, unique in the suite.
    pub(super) name: String,
    /// Shell commands: `$1` is the directory to test, `$2` one on a local file system. Exit code 0
    /// is a success, `SKIPPED` says that the machine cannot run the case.
    pub(super) script: String,
    /// The limit.
    pub(super) time_max: Duration,
    /// How the output says more than the exit code.
    pub(super) reading: Reading,
}

/// Facts in an output that the exit code has not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reading {
    /// None.
    Code,
    /// LTP fails where it has no device.
    Ltp,
    /// stress-ng ends with success although a stressor was skipped.
    Stress,
    /// `prove` reports numbers of failed tests.
    Prove,
    /// `check` of xfstests says why it did not run a test.
    Xfstests,
}

/// How a case ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Passed,
    /// With the reason.
    Skipped(String),
    /// With the reason.
    Failed(String),
    /// The run ended before, with the reason.
    NotRun(String),
}

/// Runs a program with its arguments, in namespaces of its own, with all output in a file.
pub(super) fn carry_out(
    program: &[String],
    variables: &[(String, String)],
    case: &Case,
    log: &Path,
) -> Result<Verdict, Failure> {
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", log.display()));
    let out = File::create(log).map_err(failed)?;
    let error = out.try_clone().map_err(failed)?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
        .args(program)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(error);
    let start = |error| Failure::Failed(format!("cannot start unshare: {error}"));
    let ended = wait(&mut command.spawn().map_err(start)?, case.time_max);
    let text = fs::read(log).map_err(failed)?;
    Ok(judge(&ended, case, &String::from_utf8_lossy(&text)))
}

/// How the processes of a case ended.
enum Ended {
    /// By themselves.
    With(ExitStatus),
    /// The limit was over, and they were killed.
    Late,
    /// They cannot be killed.
    Stuck,
}

fn wait(child: &mut Child, time_max: Duration) -> Ended {
    if let Some(status) = until_ended(child, time_max) {
        return Ended::With(status);
    }
    // The kernel kills the first process of the namespace with its parent, and with it the rest.
    let _ = child.kill();
    if until_ended(child, PATIENCE).is_some() { Ended::Late } else { Ended::Stuck }
}

/// Waits, but not longer than this.
pub(super) fn until_ended(child: &mut Child, time_max: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < time_max => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => return None,
        }
    }
}

fn judge(ended: &Ended, case: &Case, text: &str) -> Verdict {
    let status = match ended {
        Ended::With(status) => status,
        Ended::Late => {
            return Verdict::Failed(format!("not ended after {} s", case.time_max.as_secs()));
        }
        Ended::Stuck => return Verdict::Failed("its processes cannot be killed".into()),
    };
    judge_text(status.code(), case, text)
}

/// The verdict of an exit code (none for a process that a signal ended) and an output.
pub(super) fn judge_text(code: Option<i32>, case: &Case, text: &str) -> Verdict {
    match (case.reading, code) {
        (_, Some(SKIPPED)) => Verdict::Skipped(telling_line(text, &["TCONF", "skip"])),
        (Reading::Ltp, _) if text.contains(NO_DEVICE) => {
            Verdict::Skipped(telling_line(text, &[NO_DEVICE]))
        }
        (Reading::Stress, Some(0)) if text.contains("skipped: ") && !text.contains("passed: ") => {
            Verdict::Skipped(telling_line(text, &["skipp"]))
        }
        (Reading::Stress, Some(0)) if text.contains("fail: ") => {
            Verdict::Failed(telling_line(text, &["fail: "]))
        }
        (Reading::Stress, Some(3 | 4)) => Verdict::Skipped(telling_line(text, &["skipp", "not "])),
        (Reading::Xfstests, Some(0)) if text.contains("[not run]") => {
            Verdict::Skipped(telling_line(text, &["[not run]"]))
        }
        (_, Some(0)) => Verdict::Passed,
        (Reading::Code | Reading::Ltp, code) => {
            failure(code, text, &["TFAIL", "TBROK", "FAIL", "fail", "rror"])
        }
        (Reading::Stress, code) => failure(code, text, &["fail: ", "error", "rror"]),
        (Reading::Prove, code) => failure(code, text, &["Failed test", "not ok", "Dubious"]),
        (Reading::Xfstests, code) => failure(code, text, &["output mismatch", "failed", "_check"]),
    }
}

fn failure(code: Option<i32>, text: &str, words: &[&str]) -> Verdict {
    let code = code.map_or_else(|| "killed".to_owned(), |code| format!("exit code {code}"));
    Verdict::Failed(format!("{code}: {}", telling_line(text, words)))
}

/// The first line with one of the words, in the order of the words, or the last line.
fn telling_line(text: &str, words: &[&str]) -> String {
    let with = |word: &&str| text.lines().find(|line| line.contains(*word));
    let line = words.iter().find_map(with);
    let line = line.or_else(|| text.lines().rev().find(|line| !line.trim().is_empty()));
    line.unwrap_or_default().trim().chars().take(REASON_MAX).collect()
}
