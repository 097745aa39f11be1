//! Requests that list directories.

use std::time::Duration;

use posix::{Caller, Entry, Listed};
use types::{Ino, Result};

use crate::adapter::{Adapter, Given};
use crate::fuse::{Dirent, Out, ReadDir};

impl Adapter {
    pub(crate) fn open_dir(&self, ino: Ino, out: &mut Out) -> Result<Given> {
        let handle = self.fs.open_dir(ino)?;
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
        ReadDir { handle, offset, size }: ReadDir,
        out: &mut Out,
    ) -> Result<Given> {
        let mut take = |listed: &Listed<'_>| out.dirent(&self.dirent(listed), size);
        self.fs.read_dir(caller, handle, false, offset, &mut take)?;
        Ok(Given::Nothing)
    }

    pub(crate) fn read_dir_plus(
        &self,
        caller: &Caller,
        dir: Ino,
        ReadDir { handle, offset, size }: ReadDir,
        out: &mut Out,
    ) -> Result<Given> {
        let mut referred = Vec::new();
        let mut take = |listed: &Listed<'_>| {
            let dirent = self.dirent(listed);
            if listed.is_dot() {
                // The kernel counts no reference for these two.
                return out.dirent_plus(&Entry::new(listed.attr, Duration::ZERO), &dirent, size);
            }
            let entry = self.fs.learn(dir, listed);
            let has_room = out.dirent_plus(&entry, &dirent, size);
            if has_room {
                referred.push(listed.attr.ino);
            } else {
                self.fs.forget(listed.attr.ino, 1);
            }
            has_room
        };
        let read = self.fs.read_dir(caller, handle, true, offset, &mut take);
        if read.is_err() {
            // The error replaces the whole reply.
            referred.drain(..).for_each(|ino| self.fs.forget(ino, 1));
        }
        read.map(|()| Given::References(referred))
    }
}
