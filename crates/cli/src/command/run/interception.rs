//! `--preload`: the command's programs work in memory that they share with this process.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use clap::ValueEnum;
use cudele::{Errno, Error, Ino, Result};
use intercept::{JobFs, Keeper};
use vfs::{Ending, Vfs};

use super::place::JobMountPoint;

/// The variable in which the dynamic linker finds libraries to load first.
const LINKER_VARIABLE: &str = "LD_PRELOAD";

/// When the command's system calls are answered in its own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preload {
    /// Where it is possible.
    Auto,
    /// Always: otherwise the command is not run.
    On,
    /// Never.
    Off,
}

/// The memory of the job, and the library for its programs.
#[derive(Debug)]
pub(super) struct Preloaded {
    keeper: Arc<Keeper>,
    library: PathBuf,
}

impl Preloaded {
    /// The memory for a job in a decoupled subtree. `None` if there is to be none.
    ///
    /// # Errors
    /// Why there can be none, if there must be.
    pub(super) fn new(when: Preload, vfs: &Arc<Vfs>, root: Ino) -> Result<Option<Self>> {
        let made = match when {
            Preload::Off => return Ok(None),
            Preload::Auto | Preload::On => Self::make(vfs, root),
        };
        match made {
            Err(_) if when == Preload::Auto => Ok(None),
            made => made.map(Some),
        }
    }

    fn make(vfs: &Arc<Vfs>, root: Ino) -> Result<Self> {
        let refused = |cause: &str, remedy: &str| {
            Error::new(Errno::NotSupported, "--preload on", cause).remedy(remedy)
        };
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return Err(refused("the library is for glibc on Linux", "use `--preload off`"));
        }
        let library = intercept::library().ok_or_else(|| {
            refused(
                "there is no libcudele-preload.so beside this program or in ../lib/cudele",
                "install it (`cargo build --release -p preload`), or use `--preload off`",
            )
        })?;
        let keeper = Keeper::new(vfs, root, intercept::memory()).map_err(|error| {
            let remedy = if error.errno == Errno::NotEmpty {
                "run in an empty directory, or use `--preload off`"
            } else {
                "use `--preload off`, or a $TMPDIR in which this user may make files"
            };
            Error { subject: "--preload on".to_owned(), ..error }.remedy(remedy)
        })?;
        Ok(Self { keeper, library })
    }

    /// The file system to mount for the job.
    pub(super) fn file_system(&self, vfs: &Arc<Vfs>) -> Arc<JobFs> {
        Arc::new(JobFs::new(vfs.clone(), self.keeper.clone()))
    }

    /// Says where programs find the job's directory.
    pub(super) fn show_at(&self, place: &JobMountPoint) -> Result<()> {
        let paths: Vec<_> = std::iter::once(&place.dir).chain(&place.also).cloned().collect();
        self.keeper.show_at(&paths)
    }

    /// Says to a command where the memory and the library are.
    pub(super) fn introduce(&self, command: &mut Command) {
        let mut libraries = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os(LINKER_VARIABLE).filter(|it| !it.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        command.env(LINKER_VARIABLE, libraries);
        command.env(intercept::VARIABLE, self.keeper.address());
    }

    /// Why the programs went through the mount before the end of the job, if they did.
    pub(super) fn passed_on(&self) -> Option<&'static str> {
        self.keeper.closed_because()
    }

    /// Puts what the programs did into the subtree, unless it is thrown away.
    ///
    /// # Errors
    /// Those of the store: the files of the job are in a local directory then, and the error names
    /// it.
    pub(super) fn finish(&self, ending: Ending) -> Result<()> {
        if ending == Ending::Discard {
            self.keeper.discard();
            return Ok(());
        }
        self.keeper.finish().map_err(|error| match self.keeper.rescue() {
            Ok((dir, names)) => error.remedy(format!(
                "the {names} names of the job are in {0}; bring them in with \
                     `cudele ingest {0} PATH` when the store works again",
                dir.display()
            )),
            Err(rescued) => error.remedy(format!(
                "the files of the job are lost, because they could not be saved either \
                     ({rescued}); repeat the job with TMPDIR in a file system with room"
            )),
        })
    }
}

/// This process keeps files open for the programs of the job: as many as the system allows.
pub(super) fn allow_descriptors() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limits.maximum, ..limits };
    // Without it, fewer files can be open.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted);
}
