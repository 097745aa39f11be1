//! The keeper of a region: the job's own process.
//!
//! The programs of a job work in memory that they share (crate `jobtree`), through the library that
//! `cudele run` starts them with (crate `preload`). This crate makes that memory, answers the
//! requests of the library, and is the file system behind the job's mount ([`JobFs`]). The first
//! request of the mount for a change *closes* the region: no thread is in it any more, its tree is
//! placed in the decoupled subtree, and from then on the mount answers. The end of the job closes
//! it as well.
//!
//! A file that is open when the region closes, or that the kernel must know before, has its content
//! in a *stand-in* from then on: a file of this machine that programs and mount both use, written
//! back at the end (module `stand_ins`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: shares memory with other processes, and answers their requests"
)]

mod drain;
mod filesystem;
mod known;
mod listings;
mod locks;
mod machine;
mod programs;
mod reads;
mod requests;
mod rescue;
mod stand_ins;

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudele::{Errno, Error, Ino, MergeTrigger, Result};
use jobtree::{Format, Inode, JobRegion, JobStat, Note, Visit};
use types::{Attr, Cred};
use vfs::Vfs;

pub use filesystem::JobFs;
pub use programs::Reach;

use drain::Drain;
use known::KnownFiles;
use machine::Machine;
use stand_ins::StandIns;

/// The variable in which programs find the region.
pub const VARIABLE: &str = "CUDELE_PRELOAD";

/// Inode numbers that the region gets at once.
const NUMBERS: u64 = 1 << 20;

/// The region of a job, and the means of its keeper to close it.
#[derive(Debug)]
pub struct Keeper {
    vfs: Arc<Vfs>,
    root: Ino,
    region: JobRegion,
    file: OwnedFd,
    socket: String,
    /// One thread of the keeper after the other is in the region, with the slot of this session.
    state: Mutex<State>,
    stand_ins: StandIns,
}

#[derive(Debug)]
struct State {
    slot: u32,
    drain: Drain,
    /// Files that the kernel knows.
    known: KnownFiles,
    /// The tree is in the subtree.
    closed: bool,
    /// Why that was before the end of the job.
    because: Option<&'static str>,
}

/// Locks a mutex also after a panic of its holder: the data changes in single steps.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io(what: &str, error: impl Into<std::io::Error>) -> Error {
    let error = error.into();
    let is_full = matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::StorageFull);
    let errno = if is_full { Errno::NoSpace } else { Errno::Io };
    Error::new(errno, what, error.to_string())
}

impl Keeper {
    /// Makes the memory of a job in a decoupled subtree that is empty.
    ///
    /// # Errors
    /// `ENOTEMPTY` if the subtree is not; without memory or numbers.
    pub fn new(vfs: &Arc<Vfs>, root: Ino, bytes: u64) -> Result<Arc<Self>> {
        let policy = vfs.owned_policy(root);
        if policy.as_ref().is_none_or(|policy| policy.merge != MergeTrigger::AtEnd) {
            let cause =
                "the policy merges while the job works, and shared memory is merged at its end";
            return Err(Error::new(Errno::NotSupported, "preload", cause));
        }
        let (attr, numbers) = vfs.in_owned(root, &Cred::root(), |subtree| {
            if !subtree.list_from(root, None, 1, false)?.is_empty() {
                return Err(Error::new(
                    Errno::NotEmpty,
                    "preload",
                    "the directory has entries already",
                ));
            }
            if subtree.has_lists() {
                let cause = "the directory has an access control list, and shared memory has none";
                return Err(Error::new(Errno::NotSupported, "preload", cause));
            }
            Ok((subtree.attr(root)?, subtree.reserve_numbers(NUMBERS)?))
        })?;
        let persists = policy.is_some_and(|policy| policy.persists());
        let (file, region) = machine::shared_memory(bytes)?;
        let format = Format {
            keeper: std::process::id(),
            root: stat(&attr),
            numbers: (numbers.start, numbers.end),
        };
        region.format(&format);
        let note = |note, value: u64| region.note(note).store(value, Ordering::SeqCst);
        note(Note::Persists, u64::from(persists));
        note(Note::StandInDevice, machine::device(stand_ins::nameless(Inode(0))?)?);
        note(Note::PidNamespace, machine::pid_namespace()?);
        let socket = format!("cudele-job-{}-{}", std::process::id(), root.0);
        let slot = machine::claim(&region)?;
        let (drain, known) = (Drain::default(), KnownFiles::default());
        let state = State { slot, drain, known, closed: false, because: None };
        let keeper = Arc::new(Self {
            vfs: vfs.clone(),
            root,
            region,
            file,
            socket,
            state: Mutex::new(state),
            stand_ins: StandIns::default(),
        });
        requests::listen(&keeper)?;
        Ok(keeper)
    }

    /// Says under which paths programs name the job's directory, before the first one starts.
    ///
    /// # Errors
    /// If the first path cannot be looked at.
    pub fn show_at(&self, paths: &[PathBuf]) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let first = paths.first().ok_or_else(|| Error::of(Errno::Invalid, "preload"))?;
        let found = rustix::fs::stat(first).map_err(|errno| io("preload", errno))?;
        self.region.note(Note::Device).store(found.st_dev, Ordering::SeqCst);
        let mut texts = vec![self.socket.as_bytes()];
        texts.extend(paths.iter().map(|path| path.as_os_str().as_bytes()));
        self.region.set_texts(&texts);
        Ok(())
    }

    /// The value of [`VARIABLE`].
    #[must_use]
    pub fn address(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Whether programs still work in the region.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !held(&self.state).closed
    }

    fn session(&self, state: &State) -> Visit<'_, Machine> {
        Visit::at(&self.region, &machine::MACHINE, state.slot)
    }

    /// Closes the region: afterwards its tree is in the subtree.
    ///
    /// # Errors
    /// Those of the store and of the policy; a further call continues where this one failed.
    fn close(&self, because: Option<&'static str>) -> Result<()> {
        let mut state = held(&self.state);
        if state.closed {
            return Ok(());
        }
        state.because = because;
        let stand_ins = &self.stand_ins;
        let session = self.session(&state);
        session.close();
        state.known.release(&session, stand_ins)?;
        stand_ins.replace_open(&session)?;
        self.vfs
            .in_owned(self.root, &Cred::root(), |subtree| state.drain.run(&self.region, subtree))?;
        state.closed = true;
        Ok(())
    }

    /// Closes the region, and gives the content of stand-ins to their files. The job is over.
    ///
    /// # Errors
    /// Those of the store and of the policy; a further call continues where this one failed.
    pub fn finish(&self) -> Result<()> {
        self.close(None)?;
        self.stand_ins.write_back(&self.vfs, self.root, &self.region)
    }

    /// Why the programs went through the mount before the end of the job, if they did.
    #[must_use]
    pub fn closed_because(&self) -> Option<&'static str> {
        held(&self.state).because
    }

    /// Closes the region for its programs, and discards its tree.
    pub fn discard(&self) {
        let mut state = held(&self.state);
        self.session(&state).close();
        state.closed = true;
    }

    /// Gives the content of one file's stand-in to the file.
    fn write_back_of(&self, ino: Ino) -> Result<()> {
        self.stand_ins.write_back_of(&self.vfs, self.root, ino)
    }

    /// More inode numbers for the region, if it has none left.
    fn grant_numbers(&self) -> Result<()> {
        let _state = held(&self.state);
        let (start, end) = self.region.numbers_left();
        if start < end {
            return Ok(());
        }
        let numbers = self
            .vfs
            .in_owned(self.root, &Cred::root(), |subtree| subtree.reserve_numbers(NUMBERS))?;
        self.region.grant_numbers(numbers.start, numbers.end);
        Ok(())
    }
}

fn stat(attr: &Attr) -> JobStat {
    JobStat {
        ino: attr.ino.0,
        mode: attr.mode,
        nlink: u64::from(attr.nlink),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        ctime: attr.ctime.0,
    }
}

/// Bytes that a region may have: half of the memory that is free on this machine, and in the
/// control group of this process.
#[must_use]
pub fn memory() -> u64 {
    const LEAST: u64 = 256 << 20;
    const MOST: u64 = 1 << 40;
    const MIB: u64 = 1 << 20;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = free.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let free = (kilobytes.unwrap_or(0) << 10).min(free_in_control_group().unwrap_or(u64::MAX));
    (free / 2 / MIB * MIB).clamp(LEAST, MOST)
}

/// The distance to the memory limit of the control group (version 2), if it has a limit.
fn free_in_control_group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |name: &str| {
        let path = Path::new("/sys/fs/cgroup").join(group).join(name);
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

/// Where the library is: beside the program or, of an installation, in `lib/cudele` beside its
/// directory.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let dir = program.parent()?;
    let installed = dir.parent().map(|above| above.join("lib/cudele/libcudele-preload.so"));
    // Cargo rebuilds the one in `deps` for tests, and copies it only for `cargo build`.
    let built = ["libcudele-preload.so", "deps/libpreload.so", "libpreload.so"];
    let beside = built.map(|name| dir.join(name));
    beside.into_iter().chain(installed).find(|path| Path::is_file(path))
}
