//! Requests that list directories.

use std::time::Duration;

use cudele::{Ino, Result};
use vfs::{Caller, Listed};

use crate::filesystem::{Filesystem, Given};
use crate::fuse::{Dirent, Out};

impl Filesystem {
    pub(crate) fn open_dir(&self, ino: Ino, out: &mut Out) -> Result<Given> {
        let handle = self.vfs.open_dir(ino)?;
        out.opened(handle, 0);
        Ok(Given::Directory(handle))
    }

    fn dirent<'a>(&self, listed: &Listed<'a>) -> Dirent<'a> {
        let Listed { next, name, attr } = *listed;
        Dirent { number: self.number(attr.ino), next, mode: attr.mode, name }
    }

    pub(crate) fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        (offset, size): (u64, u32),
        out: &mut Out,
    ) -> Result<Given> {
        let mut take = |listed: &Listed<'_>| out.dirent(&self.dirent(listed), size);
        self.vfs.read_dir(caller, (handle, false), offset, &mut take)?;
        Ok(Given::Nothing)
    }

    pub(crate) fn read_dir_plus(
        &self,
        caller: &Caller,
        (dir, handle): (Ino, u64),
        (offset, size): (u64, u32),
        out: &mut Out,
    ) -> Result<Given> {
        let mut referred = Vec::new();
        let mut take = |listed: &Listed<'_>| {
            let dirent = self.dirent(listed);
            if listed.is_dot() {
                // The kernel counts no reference for these two.
                return out.dirent_plus((&listed.attr, Duration::ZERO), &dirent, size);
            }
            let entry = self.vfs.learn(dir, listed);
            let has_room = out.dirent_plus((&listed.attr, entry.valid), &dirent, size);
            if has_room {
                referred.push(listed.attr.ino);
            } else {
                self.vfs.forget(listed.attr.ino, 1);
            }
            has_room
        };
        let read = self.vfs.read_dir(caller, (handle, true), offset, &mut take);
        if read.is_err() {
            // The error replaces the whole reply.
            referred.drain(..).for_each(|ino| self.vfs.forget(ino, 1));
        }
        read.map(|()| Given::References(referred))
    }
}
