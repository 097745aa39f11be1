//! The clients of `soak`, and the records that they keep outside the cluster.
//!
//! A writer appends a line to its record before each operation, and one after the answer. The lines
//! are in the page cache when the operation begins, so they survive a kill of the writer.
//! Invariant: a number is used once by a writer, so that an old answer never means a new name.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// See [`super::job::Task::Soak`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SoakJob {
    /// The number of the client among those of its role.
    pub(crate) number: u32,
    pub(crate) role: SoakRole,
    /// The directories in which the client works.
    pub(crate) dirs: Vec<String>,
    /// The file that the client appends to; unused by readers and hoarders.
    pub(crate) record: PathBuf,
    /// From one operation to the next.
    pub(crate) pace: Duration,
}

/// The work of a client of `soak`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SoakRole {
    /// Create, rename and unlink files, with a record of each answer.
    Write,
    /// List the directories, and look names up.
    Read,
    /// Measure the slowest answer of each second.
    Probe,
    /// Open many files, hold them, and do nothing.
    Hoard { files: u64 },
    /// Create in a decoupled subtree, and note how many names are durable on the machine.
    Decouple,
    /// Merge the decoupled subtree of an earlier client of the machine.
    Resume,
}

/// The name of a writer's file.
pub(crate) fn soak_name(writer: u32, number: u64) -> String {
    format!("w{writer}.{number}")
}

/// The writer and the number of a name.
pub(crate) fn soak_number(name: &[u8]) -> Option<(u32, u64)> {
    let (writer, number) = std::str::from_utf8(name).ok()?.strip_prefix('w')?.split_once('.')?;
    Some((writer.parse().ok()?, number.parse().ok()?))
}

/// A line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordLine {
    /// A new process: the operations of the one before that were not synced may be lost.
    Process,
    Create(u64),
    Unlink(u64),
    Rename(u64, u64),
    Sync,
    /// The answer to the line before: done.
    Done,
    /// The answer to the line before: an error, by its symbol.
    Failed(String),
}

impl fmt::Display for RecordLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("k"),
            Self::Create(number) => write!(f, "c {number}"),
            Self::Unlink(number) => write!(f, "u {number}"),
            Self::Rename(from, to) => write!(f, "r {from} {to}"),
            Self::Sync => f.write_str("s"),
            Self::Done => f.write_str("="),
            Self::Failed(symbol) => write!(f, "! {symbol}"),
        }
    }
}

impl RecordLine {
    /// Reads a line; `None` for one that is no line of a record.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match kind {
            "k" => Self::Process,
            "c" => Self::Create(number()?),
            "u" => Self::Unlink(number()?),
            "r" => Self::Rename(number()?, number()?),
            "s" => Self::Sync,
            "=" => Self::Done,
            "!" => Self::Failed(line.get(2..)?.to_owned()),
            _ => return None,
        })
    }
}

/// A line of the probe about one second of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeLine {
    /// The end of the slowest operation, on the monotonic clock of the machine.
    pub(crate) end_ns: u64,
    /// How long the slowest operation took.
    pub(crate) slowest_ms: f64,
    /// How late the machine itself woke a thread during that time.
    pub(crate) machine_ms: f64,
    /// Operations with an answer.
    pub(crate) answers: u64,
    /// Operations with an error.
    pub(crate) failed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_names_are_read_as_they_were_written() {
        let lines = [
            RecordLine::Process,
            RecordLine::Create(7),
            RecordLine::Unlink(8),
            RecordLine::Rename(7, 9),
            RecordLine::Sync,
            RecordLine::Done,
            RecordLine::Failed("ENOSPC".to_owned()),
        ];
        for line in lines {
            assert_eq!(RecordLine::parse(&line.to_string()), Some(line));
        }
        assert_eq!(RecordLine::parse("c seven"), None);
        assert_eq!(soak_number(soak_name(3, 12).as_bytes()), Some((3, 12)));
        assert_eq!(soak_number(b"file.1"), None);
    }
}
