//! The kernel's figures of a process: its memory, and its written bytes.

use std::fs;
use std::path::PathBuf;

use cudele::{Errno, Error, Result};

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
