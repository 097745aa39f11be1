//! Answers that list a directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use cudele::Ino;
use fuser::{ReplyDirectory, ReplyDirectoryPlus};
use vfs::Caller;

use crate::answer;
use crate::filesystem::{Filesystem, GENERATION, number};

impl Filesystem {
    pub(crate) fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let root = self.vfs.root();
        let read = self.vfs.read_dir(caller, (handle, false), offset, &mut |listed| {
            let number = number(root, listed.attr.ino);
            let kind = answer::kind(listed.attr.file_type());
            !reply.add(number, listed.next, kind, OsStr::from_bytes(listed.name))
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    pub(crate) fn read_dir_plus(
        &self,
        caller: &Caller,
        (dir, handle): (Ino, u64),
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let read = self.vfs.read_dir(caller, (handle, true), offset, &mut |listed| {
            let name = OsStr::from_bytes(listed.name);
            let attr = self.attr(&listed.attr);
            if listed.is_dot() {
                // The kernel knows these, and does not count a reference for them.
                return !reply.add(attr.ino, listed.next, name, &Duration::ZERO, &attr, GENERATION);
            }
            let entry = self.vfs.learn(dir, listed);
            let full = reply.add(attr.ino, listed.next, name, &entry.valid, &attr, GENERATION);
            if full {
                self.vfs.forget(listed.attr.ino, 1);
            }
            !full
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }
}
