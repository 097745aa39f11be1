//! The state of a process: its directory, its descriptors, and the process of which it is a thread.
//!
//! Paths are joined and cleaned of `.` and `..` as text: a trace does not show symbolic links.

use std::collections::BTreeMap;

use crate::strace::{descriptor, string};

/// A path from the root, cleaned.
pub(crate) type Path = Vec<u8>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Where it works; nothing if the trace has not shown it.
    cwd: Option<Path>,
    /// The file of each descriptor, and whether every write to it is durable.
    open: BTreeMap<i64, (Path, bool)>,
}

/// All processes of a trace.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: BTreeMap<u64, Process>,
    /// The process that a thread belongs to, if it is not called like it.
    of_thread: BTreeMap<u64, u64>,
    /// Where processes begin that the trace has not seen begin.
    start: Option<Path>,
}

pub(crate) fn clean(base: Option<&[u8]>, path: &[u8]) -> Option<Path> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let base = if path.first() == Some(&b'/') { &b""[..] } else { base? };
    for part in base.split(|b| *b == b'/').chain(path.split(|b| *b == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    let mut joined = Vec::new();
    for part in parts {
        joined.push(b'/');
        joined.extend_from_slice(part);
    }
    if joined.is_empty() {
        joined.push(b'/');
    }
    Some(joined)
}

impl Processes {
    pub(crate) fn new(start: Option<Path>) -> Self {
        Self { start, ..Self::default() }
    }

    /// The process that a thread is part of.
    pub(crate) fn of(&self, thread: u64) -> u64 {
        self.of_thread.get(&thread).copied().unwrap_or(thread)
    }

    pub(crate) fn get(&mut self, thread: u64) -> &mut Process {
        let process = self.of(thread);
        let start = &self.start;
        let begins = || Process { cwd: start.clone(), ..Process::default() };
        self.all.entry(process).or_insert_with(begins)
    }

    /// A thread or process was made by another.
    pub(crate) fn begins(&mut self, parent: u64, child: u64, is_thread: bool) {
        let parent = self.of(parent);
        if is_thread {
            self.of_thread.insert(child, parent);
            return;
        }
        let copy = self.get(parent).clone();
        self.all.insert(child, copy);
    }
}

impl Process {
    /// The path that a directory descriptor and a string mean, as `openat` takes them.
    pub(crate) fn at(&self, dir: Option<&str>, path: Option<&str>) -> Option<Path> {
        let path = string(path?)?;
        let base = match dir {
            None => self.cwd.clone(),
            Some(dir) if dir.starts_with("AT_FDCWD") => self.cwd.clone(),
            Some(dir) => self.path_of(dir),
        };
        clean(base.as_deref(), &path)
    }

    /// The file of a descriptor.
    pub(crate) fn path_of(&self, argument: &str) -> Option<Path> {
        let number = descriptor(argument)?;
        if let Some((path, _)) = self.open.get(&number) {
            return Some(path.clone());
        }
        // `-y` says it.
        let path = argument.split_once('<')?.1.strip_suffix('>')?;
        path.starts_with('/').then(|| path.as_bytes().to_vec())
    }

    /// Whether every write to a descriptor is durable when it returns.
    pub(crate) fn is_durable(&self, argument: &str) -> bool {
        let number = descriptor(argument);
        number.and_then(|number| self.open.get(&number)).is_some_and(|(_, durable)| *durable)
    }

    pub(crate) fn opened(&mut self, number: i64, path: Path, durable: bool) {
        self.open.insert(number, (path, durable));
    }

    pub(crate) fn closed(&mut self, argument: &str) {
        if let Some(number) = descriptor(argument) {
            self.open.remove(&number);
        }
    }

    pub(crate) fn duplicated(&mut self, argument: &str, new: i64) {
        let known = descriptor(argument).and_then(|number| self.open.get(&number)).cloned();
        if let Some(known) = known {
            self.open.insert(new, known);
        }
    }

    pub(crate) fn moves_to(&mut self, path: Option<Path>) {
        self.cwd = path;
    }
}
