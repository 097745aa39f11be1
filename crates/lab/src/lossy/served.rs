//! The disks as files, for loop devices.
//!
//! Each cut makes a new file with what survived; the file before has no power any more. Invariant:
//! the kernel keeps no content of a file beyond its last closing, and asks for each flush.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cudele::Result;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use types::rng::Rng;

use super::image::{CutFigures, DiskImage};

const VALID: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
/// The inode of the directory; that of disk `n` is `n` behind the first.
const ROOT: u64 = 1;
const FIRST: u64 = 2;

/// The power of the present disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// It fails behind so many more writes.
    OnFor(u64),
    /// It is being cut: the disk answers nothing.
    Failing,
    Off,
}

#[derive(Debug)]
struct Present {
    image: DiskImage,
    number: u64,
    power: Power,
}

/// All disks of one trial, of which one has power.
#[derive(Clone, Debug)]
pub(super) struct Disks {
    bytes: u64,
    present: Arc<Mutex<Present>>,
    /// The disk answers again, or has no power any more.
    answers: Arc<Condvar>,
    /// The power fails.
    failing: Arc<Condvar>,
}

impl Disks {
    pub(super) fn new(bytes: u64) -> Self {
        let present = Present { image: DiskImage::default(), number: 0, power: Power::On };
        Self {
            bytes,
            present: Arc::new(Mutex::new(present)),
            answers: Arc::default(),
            failing: Arc::default(),
        }
    }

    /// The name of a disk.
    pub(super) fn name(number: u64) -> String {
        format!("disk.{number}")
    }

    /// The disk answers nothing any more behind so many more writes, or after this time.
    pub(super) fn freeze_after(&self, writes: u64, patience: Duration) {
        let mut present = self.locked();
        present.power = Power::OnFor(writes);
        let lasts = |present: &mut Present| present.power != Power::Failing;
        let waited = self.failing.wait_timeout_while(present, patience, lasts);
        waited.unwrap_or_else(PoisonError::into_inner).0.power = Power::Failing;
    }

    /// A write is on the disk; the power may fail now.
    fn count_write(&self, present: &mut Present) {
        if let Power::OnFor(left) = &mut present.power {
            *left = left.saturating_sub(1);
            if *left == 0 {
                present.power = Power::Failing;
                self.failing.notify_all();
            }
        }
    }

    /// Cuts the power of the present disk. The next disk has what survived.
    pub(super) fn cut(&self, random: &mut Rng) -> CutFigures {
        let mut present = self.locked();
        let (image, figures) = std::mem::take(&mut present.image).cut(random);
        present.image = image;
        present.number += 1;
        present.power = Power::On;
        self.answers.notify_all();
        figures
    }

    pub(super) fn power_off(&self) {
        self.locked().power = Power::Off;
        self.answers.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present disk, when it answers or has no power.
    fn answering(&self) -> MutexGuard<'_, Present> {
        let is_failing = |present: &mut Present| present.power == Power::Failing;
        let waited = self.answers.wait_while(self.locked(), is_failing);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Something with the content of a disk; `EIO` if it has no power.
    fn with<T>(
        &self,
        ino: INodeNo,
        act: impl FnOnce(&mut DiskImage) -> T,
    ) -> std::result::Result<T, Errno> {
        let mut present = self.answering();
        let has_power = matches!(present.power, Power::On | Power::OnFor(_));
        let is_on = has_power && ino.0 == FIRST + present.number;
        if is_on { Ok(act(&mut present.image)) } else { Err(Errno::EIO) }
    }

    fn attr(&self, ino: u64) -> FileAttr {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o700, 0),
            _ => (FileType::RegularFile, 0o600, self.bytes),
        };
        let now = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size / 512,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// Serves the disks as files of a directory.
///
/// # Errors
/// As `mount(2)`.
pub(super) fn mount(disks: &Disks, at: &Path) -> Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("lossy".to_owned())];
    config.n_threads = Some(2);
    let session = Session::new(disks.clone(), at, &config);
    session.and_then(Session::spawn).map_err(|error| terminal::io(at, &error))
}

impl Filesystem for Disks {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.locked().number;
        let found = (0..=number).find(|number| *name == *Self::name(*number));
        match found {
            Some(number) => reply.entry(&VALID, &self.attr(FIRST + number), GENERATION),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attr(ino.0));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = u64::from(size).min(self.bytes.saturating_sub(offset));
        let length = usize::try_from(length).unwrap_or(0);
        match self.with(ino, |image| image.read(offset, length)) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.with(ino, |image| image.write(offset, data)).and_then(|()| {
            self.count_write(&mut self.locked());
            // If the power fails behind this write, the write has no answer.
            self.with(ino, |_| ())
        });
        match written {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.with(ino, DiskImage::flush) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}
