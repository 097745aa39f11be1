//! Acts on paths, from the calls of a trace.

use std::collections::BTreeSet;

use crate::process::{Path, Processes, clean};
use crate::strace::{Call, Line, Lines};

/// An act on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActKind {
    /// A name was made; exclusively if an existing name would have been an error.
    Made {
        /// `O_EXCL`, and everything that is not `open`.
        exclusive: bool,
    },
    /// A create failed because the name existed.
    WasThere,
    /// Attributes or content were changed.
    Changed,
    /// A name was removed, or given to something else.
    Removed,
    /// It was looked at: its attributes, its content.
    Looked,
    /// The names of a directory were looked at.
    Listed,
    /// It was made durable.
    Synced,
    /// It was locked.
    Locked,
    /// The client did nothing any more: one of its processes ended.
    Ended,
}

/// An act.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedAct {
    /// Whose: a whole trace, or a process of it.
    pub client: usize,
    /// What.
    pub kind: ActKind,
    /// To which path, below the directory that is looked at.
    pub path: Vec<u8>,
    /// The line of it.
    pub line: TraceLine,
    /// When, in seconds of all traces, if they say.
    pub time: Option<f64>,
}

/// A line of one of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceLine {
    /// The index of the trace.
    pub trace: usize,
    /// The line's number in the trace, counted from 1.
    pub number: usize,
}

/// The output of one `strace`.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    /// The text.
    pub text: &'a str,
    /// Where its first process began, if that is known.
    pub cwd: Option<&'a [u8]>,
}

/// All acts, in order.
#[derive(Clone, Debug, Default)]
pub struct Acts {
    /// The acts.
    pub acts: Vec<TracedAct>,
    /// How many clients there are.
    pub clients: usize,
    /// Lines of the traces.
    pub lines: u64,
    /// Of these, lines that `strace` would not have written.
    pub foreign: u64,
    /// Calls below the directory that changed a name or attributes.
    pub changes: u64,
    /// Calls below the directory that looked at names or attributes.
    pub looks: u64,
    /// Bytes that were written to files below the directory.
    pub written: u64,
    /// The paths of the programs that were executed.
    pub programs: BTreeSet<Vec<u8>>,
}

impl Trace<'_> {
    /// Reads traces, each of one client, or with `each_process` each process of them. Only paths
    /// below `root` count.
    #[must_use]
    pub fn read(traces: &[Trace<'_>], root: &[u8], each_process: bool) -> Acts {
        let mut acts = Acts::default();
        let root = clean(None, root).unwrap_or_else(|| b"/".to_vec());
        for (number, trace) in traces.iter().enumerate() {
            let mut reader = Reader {
                root: &root,
                trace: number,
                line: 0,
                first_client: acts.clients,
                clients: Vec::new(),
                each_process,
                processes: Processes::new(trace.cwd.and_then(|cwd| clean(None, cwd))),
                acts: &mut acts,
            };
            reader.read(trace.text);
            acts.clients += reader.clients.len().max(usize::from(!each_process));
        }
        // Several traces are one story if they say when things happened.
        if acts.acts.iter().all(|act| act.time.is_some()) {
            acts.acts.sort_by(|a, b| a.time.unwrap_or(0.0).total_cmp(&b.time.unwrap_or(0.0)));
        }
        acts
    }
}

/// A path as the arguments of a call name it.
#[derive(Clone, Copy)]
struct PathAt<'a> {
    /// The descriptor of the directory; none for the working directory.
    dir: Option<&'a str>,
    path: Option<&'a str>,
}

impl<'a> PathAt<'a> {
    fn of(dir: Option<&'a str>, path: Option<&'a str>) -> Self {
        Self { dir, path }
    }
}

struct Reader<'a> {
    root: &'a [u8],
    trace: usize,
    line: usize,
    first_client: usize,
    /// The processes that are clients.
    clients: Vec<u64>,
    each_process: bool,
    processes: Processes,
    acts: &'a mut Acts,
}

impl Reader<'_> {
    fn read(&mut self, text: &str) {
        let mut lines = Lines::default();
        for line in text.lines() {
            self.line += 1;
            self.acts.lines += 1;
            match lines.next(line) {
                Line::Call(thread, time, text) => match Call::parse(thread, time, &text) {
                    Some(call) => self.call(&call),
                    // It does not return: `exit_group(0) = ?`.
                    None if text.trim_end().ends_with('?') => {}
                    None => self.acts.foreign += 1,
                },
                Line::Ended(thread, time) => self.ended(thread, time),
                Line::Other => {}
                Line::Foreign => self.acts.foreign += 1,
            }
        }
    }

    fn ended(&mut self, thread: u64, time: Option<f64>) {
        let client = self.client(thread);
        let line = TraceLine { trace: self.trace, number: self.line };
        self.acts.acts.push(TracedAct {
            client,
            kind: ActKind::Ended,
            path: Vec::new(),
            line,
            time,
        });
    }

    fn client(&mut self, thread: u64) -> usize {
        if !self.each_process {
            return self.first_client;
        }
        let process = self.processes.of(thread);
        let known = self.clients.iter().position(|known| *known == process);
        self.first_client
            + known.unwrap_or_else(|| {
                self.clients.push(process);
                self.clients.len() - 1
            })
    }

    fn is_below(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.root);
        rest.is_some_and(|rest| self.root == b"/" || rest.is_empty() || rest.starts_with(b"/"))
    }

    fn act(&mut self, call: &Call<'_>, kind: ActKind, path: Option<Path>) {
        let Some(path) = path.filter(|path| self.is_below(path)) else { return };
        match kind {
            ActKind::Made { .. } | ActKind::Changed | ActKind::Removed => self.acts.changes += 1,
            ActKind::Looked | ActKind::Listed | ActKind::WasThere => self.acts.looks += 1,
            ActKind::Synced | ActKind::Locked | ActKind::Ended => {}
        }
        let client = self.client(call.thread);
        let (line, time) = (TraceLine { trace: self.trace, number: self.line }, call.time);
        self.acts.acts.push(TracedAct { client, kind, path, line, time });
    }

    fn call(&mut self, call: &Call<'_>) {
        let argument = |number| call.argument(number);
        let done = call.result >= 0;
        let thread = call.thread;
        let made = ActKind::Made { exclusive: true };
        match call.name {
            "open" | "creat" | "openat" | "openat2" => self.open(call),
            "mkdir" | "mknod" => self.made(call, None, argument(0), made),
            "mkdirat" | "mknodat" => self.made(call, argument(0), argument(1), made),
            "symlink" => self.made(call, None, argument(1), made),
            "symlinkat" => self.made(call, argument(1), argument(2), made),
            "link" => self.made(call, None, argument(1), made),
            "linkat" => self.made(call, argument(2), argument(3), made),
            "unlink" | "rmdir" if done => {
                let path = self.processes.get(thread).at(None, argument(0));
                self.act(call, ActKind::Removed, path);
            }
            "unlinkat" if done => {
                let path = self.processes.get(thread).at(argument(0), argument(1));
                self.act(call, ActKind::Removed, path);
            }
            "rename" => {
                let from = PathAt::of(None, argument(0));
                self.rename(call, from, PathAt::of(None, argument(1)));
            }
            "renameat" | "renameat2" => {
                let from = PathAt::of(argument(0), argument(1));
                self.rename(call, from, PathAt::of(argument(2), argument(3)));
            }
            "stat" | "lstat" | "access" | "readlink" | "getxattr" | "lgetxattr" | "statfs"
                if done =>
            {
                let path = self.processes.get(thread).at(None, argument(0));
                self.act(call, ActKind::Looked, path);
            }
            "newfstatat" | "fstatat64" | "statx" | "faccessat" | "faccessat2" | "readlinkat"
                if done =>
            {
                let path = self.processes.get(thread).at(argument(0), argument(1));
                self.act(call, ActKind::Looked, path);
            }
            "chmod" | "chown" | "lchown" | "utime" | "utimes" | "truncate" | "setxattr" if done => {
                let path = self.processes.get(thread).at(None, argument(0));
                self.act(call, ActKind::Changed, path);
            }
            "fchmodat" | "fchownat" | "utimensat" | "fchmodat2" if done => {
                let process = self.processes.get(thread);
                let path = process.at(argument(0), argument(1));
                let path = path.or_else(|| process.path_of(argument(0)?));
                self.act(call, ActKind::Changed, path);
            }
            "clone" | "fork" | "vfork" | "clone3" if call.result > 0 => {
                let is_thread = call.arguments.iter().any(|text| text.contains("CLONE_THREAD"));
                let child = call.result.unsigned_abs();
                self.processes.begins(thread, child, is_thread);
            }
            "execve" if done => self.executed(thread, None, argument(0)),
            "execveat" if done => self.executed(thread, argument(0), argument(1)),
            "chdir" if done => {
                let process = self.processes.get(thread);
                let path = process.at(None, argument(0));
                process.moves_to(path);
            }
            "fchdir" if done => {
                let process = self.processes.get(thread);
                let path = argument(0).and_then(|dir| process.path_of(dir));
                process.moves_to(path);
            }
            _ => self.with_descriptor(call),
        }
    }

    fn executed(&mut self, thread: u64, dir: Option<&str>, path: Option<&str>) {
        let path = self.processes.get(thread).at(dir, path);
        self.acts.programs.extend(path);
    }

    /// Calls with a descriptor as first argument.
    fn with_descriptor(&mut self, call: &Call<'_>) {
        let Some(first) = call.argument(0) else { return };
        if call.result < 0 {
            return;
        }
        let process = self.processes.get(call.thread);
        let path = process.path_of(first);
        let kind = match call.name {
            "close" => return process.closed(first),
            "dup" | "dup2" | "dup3" => return process.duplicated(first, call.result),
            "fcntl" | "fcntl64" => match call.argument(1) {
                Some("F_DUPFD" | "F_DUPFD_CLOEXEC") => {
                    return process.duplicated(first, call.result);
                }
                Some("F_SETLK" | "F_SETLKW" | "F_OFD_SETLK" | "F_OFD_SETLKW") => ActKind::Locked,
                Some(_) | None => return,
            },
            "flock" => ActKind::Locked,
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" => ActKind::Synced,
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "copy_file_range"
            | "sendfile" => {
                let durable = process.is_durable(first);
                if path.as_deref().is_some_and(|path| self.is_below(path)) {
                    self.acts.written += call.result.unsigned_abs();
                }
                // One change for all that is written between an open and a close.
                if durable { ActKind::Synced } else { return }
            }
            "fchmod" | "fchown" | "ftruncate" | "fallocate" | "fsetxattr" | "futimens" => {
                ActKind::Changed
            }
            "getdents" | "getdents64" => ActKind::Listed,
            _ => return,
        };
        self.act(call, kind, path);
    }

    fn made(&mut self, call: &Call<'_>, dir: Option<&str>, path: Option<&str>, kind: ActKind) {
        let path = self.processes.get(call.thread).at(dir, path);
        match call.error {
            None => self.act(call, kind, path),
            Some("EEXIST") => self.act(call, ActKind::WasThere, path),
            Some(_) => {}
        }
    }

    fn open(&mut self, call: &Call<'_>) {
        let process = self.processes.get(call.thread);
        let (path, flags) = match call.name {
            "open" => (process.at(None, call.argument(0)), call.argument(1)),
            "creat" => (process.at(None, call.argument(0)), Some("O_CREAT|O_TRUNC|O_WRONLY")),
            _ => (process.at(call.argument(0), call.argument(1)), call.argument(2)),
        };
        let flags = flags.unwrap_or_default();
        let has = |flag: &str| {
            flags.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|it| it == flag)
        };
        let (creates, exclusive) = (has("O_CREAT"), has("O_EXCL"));
        if call.result < 0 {
            if exclusive && call.error == Some("EEXIST") {
                self.act(call, ActKind::WasThere, path);
            }
            return;
        }
        let durable = has("O_SYNC") || has("O_DSYNC");
        if let Some(path) = &path {
            process.opened(call.result, path.clone(), durable);
        }
        let kind = if creates {
            ActKind::Made { exclusive }
        } else if has("O_TRUNC") || has("O_WRONLY") {
            ActKind::Changed
        } else if has("O_DIRECTORY") {
            // Looking at its names is another call.
            return;
        } else {
            ActKind::Looked
        };
        self.act(call, kind, path);
    }

    fn rename(&mut self, call: &Call<'_>, from: PathAt<'_>, to: PathAt<'_>) {
        let process = self.processes.get(call.thread);
        let (from, to) = (process.at(from.dir, from.path), process.at(to.dir, to.path));
        match call.error {
            None => {
                self.act(call, ActKind::Removed, from);
                let exclusive = call.argument(4).is_some_and(|flags| flags.contains("NOREPLACE"));
                self.act(call, ActKind::Made { exclusive }, to);
            }
            Some("EEXIST") => self.act(call, ActKind::WasThere, to),
            Some(_) => {}
        }
    }
}
