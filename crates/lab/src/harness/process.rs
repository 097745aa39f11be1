//! A process as the kernel sees it: its memory, its written bytes, its end.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use cudele::{Errno, Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Tells a process of ours to end, also one that is not a child of this process.
pub(crate) fn terminate(pid: u32) -> Result<()> {
    send(pid, Signal::TERM).map(drop)
}

/// Stops a process of ours until [`resume`].
pub(crate) fn suspend(pid: u32) -> Result<()> {
    send(pid, Signal::STOP).map(drop)
}

/// Lets a stopped process of ours continue.
pub(crate) fn resume(pid: u32) -> Result<()> {
    send(pid, Signal::CONT).map(drop)
}

/// The open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> Result<u64> {
    let dir = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = fs::read_dir(&dir).map_err(|error| terminal::io(&dir, &error))?;
    Ok(entries.count() as u64)
}

/// Kills a process of ours, also one that is not a child of this process, and waits until it
/// has ended: only then are its files closed and its locks free. A peer that sees its connection
/// closed knows less, because the kernel closes the files of a process one after the other.
pub(crate) fn kill(pid: u32, patience: Duration) -> Result<()> {
    await_end(pid, &send(pid, Signal::KILL)?, patience)
}

/// The same for several processes at once. `between` runs when all are killed, and before the wait.
pub(crate) fn kill_all(pids: &[u32], patience: Duration, between: impl FnOnce()) -> Result<()> {
    let killed: Result<Vec<OwnedFd>> = pids.iter().map(|pid| send(*pid, Signal::KILL)).collect();
    between();
    pids.iter().zip(killed?).try_for_each(|(pid, process)| await_end(*pid, &process, patience))
}

fn await_end(pid: u32, process: &OwnedFd, patience: Duration) -> Result<()> {
    let failed = |cause: String| failed(pid, cause);
    let timeout = patience.try_into().map_err(|_| failed("the patience is too long".to_owned()))?;
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout))
        .map_err(|error| failed(error.to_string()))?;
    if ended == 0 { Err(failed("it was killed and does not end".to_owned())) } else { Ok(()) }
}

/// Sends a signal. The descriptor is the process's, even if its number has another process by then.
fn send(pid: u32, signal: Signal) -> Result<OwnedFd> {
    let failed = |cause: String| failed(pid, cause);
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| failed("this is no process id".to_owned()))?;
    let process = pidfd_open(id, PidfdFlags::empty()).map_err(|error| failed(error.to_string()))?;
    pidfd_send_signal(&process, signal).map_err(|error| failed(error.to_string()))?;
    Ok(process)
}

fn failed(pid: u32, cause: String) -> Error {
    Error::new(Errno::Io, format!("the process {pid}"), cause)
}

/// Resident memory in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    Ok(field(pid, "status", "VmRSS:")? * 1024)
}

/// The most resident memory that it had so far, in bytes.
pub(crate) fn peak_bytes(pid: u32) -> Result<u64> {
    Ok(field(pid, "status", "VmHWM:")? * 1024)
}

/// Bytes that it wrote to disks so far: whole pages, counted when they become dirty.
pub(crate) fn written_bytes(pid: u32) -> Result<u64> {
    field(pid, "io", "write_bytes:")
}

/// Bytes that it handed over to the kernel so far, for files and sockets alike.
pub(crate) fn handed_over_bytes(pid: u32) -> Result<u64> {
    field(pid, "io", "wchar:")
}

/// Processor time that it used so far, all its threads.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = fs::read_dir(&tasks).map_err(|error| terminal::io(&tasks, &error))?;
    let nanos = entries.filter_map(std::result::Result::ok).filter_map(|task| {
        // Without scheduler statistics in the kernel it stays unknown, as zero.
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Ok(super::stats::real(nanos.sum()) / 1e9)
}

fn field(pid: u32, file: &str, name: &str) -> Result<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    let text = fs::read_to_string(&path).map_err(|error| terminal::io(&path, &error))?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    let missing = || Error::new(Errno::Io, path.display().to_string(), format!("no {name}"));
    value.ok_or_else(missing)
}
