//! The tree of a region as files of this machine, when the subtree cannot take it.
//!
//! Invariant: a rescued tree differs from the region's in owners only, and only where this process
//! may not set them.

use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use cudele::{Error, Ino, Result};
use jobtree::{Inode, JobStat, Kind, ListedName};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use types::Map;

use crate::{Keeper, held, io};

const SECOND: i64 = 1_000_000_000;

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error { subject: path.display().to_string(), ..io("preload", error) }
}

/// Sets owner, permissions and times.
fn set(path: &Path, kind: Kind, stat: &JobStat) -> Result<()> {
    let done = std::os::unix::fs::lchown(path, Some(stat.uid), Some(stat.gid));
    if let Err(error) = done
        && error.kind() != std::io::ErrorKind::PermissionDenied
    {
        return Err(failed(path, error));
    }
    if kind != Kind::Symlink {
        let permissions = fs::Permissions::from_mode(stat.mode & 0o7777);
        fs::set_permissions(path, permissions).map_err(|error| failed(path, error))?;
    }
    let time =
        |time: i64| Timespec { tv_sec: time.div_euclid(SECOND), tv_nsec: time.rem_euclid(SECOND) };
    let times = Timestamps { last_access: time(stat.atime), last_modification: time(stat.mtime) };
    let done = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    done.map_err(|errno| failed(path, errno.into()))
}

/// A new file that other users cannot read before it has its owner.
fn create(path: &Path) -> Result<File> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| failed(path, error))
}

impl Keeper {
    /// Writes the tree into a new directory, in that for temporary files. Returns the directory and
    /// the number of names. The region must be closed.
    ///
    /// # Errors
    /// Those of the file system for temporary files.
    pub fn rescue(&self) -> Result<(PathBuf, u64)> {
        // No thread of this process may close the region, or write, meanwhile.
        let _state = held(&self.state);
        let private = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("cudele-job-").permissions(private).tempdir();
        let to = made.map_err(|error| failed(&std::env::temp_dir(), error))?.keep();
        let mut dirs = vec![(self.region.root(), to.clone())];
        let mut first_names = Map::default();
        let (mut at, mut count) = (0, 0);
        while let Some((dir, path)) = dirs.get(at).cloned() {
            at += 1;
            let mut from = 0;
            while let Some(listed) = self.region.list(dir, from) {
                from = listed.next;
                count += 1;
                let path = path.join(std::ffi::OsStr::from_bytes(listed.name()));
                self.rescue_one(&listed, &path, &mut first_names)?;
                if self.region.kind(listed.inode) == Kind::Directory {
                    dirs.push((listed.inode, path));
                }
            }
        }
        // Names change the times of their directory.
        for (dir, path) in dirs.into_iter().rev() {
            set(&path, Kind::Directory, &self.region.stat(dir))?;
        }
        // Once for all files.
        let synced = File::open(&to).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
        synced.map_err(|error| failed(&to, error))?;
        Ok((to, count))
    }

    fn rescue_one(
        &self,
        listed: &ListedName,
        path: &Path,
        first_names: &mut Map<u64, PathBuf>,
    ) -> Result<()> {
        let Inode(at) = listed.inode;
        let (kind, stat) = (self.region.kind(listed.inode), self.region.stat(listed.inode));
        if let Some(first) = first_names.get(&at) {
            return fs::hard_link(first, path).map_err(|error| failed(path, error));
        }
        match kind {
            Kind::Directory => {
                let made = DirBuilder::new().mode(0o700).create(path);
                // Its attributes follow after its names.
                return made.map_err(|error| failed(path, error));
            }
            Kind::Symlink => {
                let target = std::ffi::OsStr::from_bytes(self.region.content(listed.inode));
                symlink(target, path).map_err(|error| failed(path, error))?;
            }
            Kind::File => {
                let file = create(path)?;
                match self.stand_ins.of(Ino(stat.ino)) {
                    Some(stand_in) => {
                        let write = |at, bytes: &[u8]| {
                            file.write_all_at(bytes, at).map_err(|error| failed(path, error))
                        };
                        stand_in.pieces(write)?;
                        file.set_len(stand_in.size()).map_err(|error| failed(path, error))?;
                    }
                    None => {
                        let written = file.write_all_at(self.region.content(listed.inode), 0);
                        written.map_err(|error| failed(path, error))?;
                    }
                }
            }
        }
        first_names.insert(at, path.to_owned());
        set(path, kind, &stat)
    }
}
