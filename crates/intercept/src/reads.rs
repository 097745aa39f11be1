//! The mount reads an open region.
//!
//! Programs that do without the library (static ones, those with another libc, the kernel itself
//! when it executes a file of the job) see the files of the region through these functions. The
//! functions change nothing but times of access, so the region stays open.

use cudele::{Attr, Ino, Result};
use jobtree::{Inode, JobRegion, Kind, Visit};
use types::{Errno, Error, FileType, Timestamp};

use crate::machine::Machine;
use crate::{Keeper, State, held};

/// A name of a directory of the region.
#[derive(Clone, Debug)]
pub(crate) struct RegionName {
    pub(crate) name: Vec<u8>,
    pub(crate) attr: Attr,
}

/// The attributes of an inode of the region.
pub(crate) fn attr(region: &JobRegion, inode: Inode) -> Attr {
    let stat = region.stat(inode);
    Attr {
        ino: Ino(stat.ino),
        mode: stat.mode,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        atime: Timestamp(stat.atime),
        mtime: Timestamp(stat.mtime),
        ctime: Timestamp(stat.ctime),
        ..Attr::default()
    }
}

impl Keeper {
    /// Runs inside the region; `None` if it is closed.
    fn inside<T>(&self, work: impl FnOnce(&mut State, &Visit<'_, Machine>) -> T) -> Option<T> {
        let mut state = held(&self.state);
        if state.closed {
            return None;
        }
        let session = self.session(&state);
        let _inside = session.enter().ok()?;
        Some(work(&mut state, &session))
    }

    /// The inode under a name of a directory, which the kernel refers to from now on. `None` if the
    /// region is closed.
    pub(crate) fn look_up(&self, dir: Inode, name: &[u8]) -> Option<Result<Attr>> {
        self.inside(|state, session| {
            let region = session.region();
            let missing = || Error::of(Errno::NotFound, "preload");
            let inode = region.inode_of(region.lookup(dir, name).ok_or_else(missing)?);
            if region.kind(inode) != Kind::Directory {
                state.known.refer(session, inode)?;
            }
            Ok(attr(region, inode))
        })
    }

    /// The kernel gives references to a file up.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        // The references of a closed region have ended.
        let _ = self.inside(|state, session| state.known.forget(session, ino, count));
    }

    /// Whether a file is in the open region.
    pub(crate) fn has_file(&self, ino: Ino) -> bool {
        self.inside(|state, _| state.known.inode(ino).is_some()).unwrap_or(false)
    }

    /// The attributes of a file of the open region.
    pub(crate) fn file_attr(&self, ino: Ino) -> Option<Attr> {
        self.inside(|state, session| {
            let inode = state.known.inode(ino)?;
            Some(attr(session.region(), inode))
        })?
    }

    /// Counts an open of a file of the open region. False if it is not one.
    pub(crate) fn open_file(&self, ino: Ino) -> bool {
        let opened = self.inside(|state, _| {
            let known = state.known.inode(ino).is_some();
            if known {
                state.known.open(ino);
            }
            known
        });
        opened.unwrap_or(false)
    }

    /// Whether a file is open through the mount since before the region closed.
    pub(crate) fn was_opened(&self, ino: Ino) -> bool {
        held(&self.state).known.is_open(ino)
    }

    /// Takes an open of [`Keeper::open_file`] back. False if there is none.
    pub(crate) fn close_file(&self, ino: Ino) -> bool {
        let mut state = held(&self.state);
        let session = self.session(&state);
        // A closed region has no references any more.
        let inside = session.enter();
        state.known.close(inside.is_ok().then_some(&session), ino)
    }

    /// Reads content of a file of the open region. `None` if it is not one.
    pub(crate) fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        self.inside(|state, session| {
            let inode = state.known.inode(ino)?;
            session.note_access(inode, cudele::now_coarse().0);
            Some(session.region().read(inode, offset, buffer))
        })?
    }

    /// The target of a symbolic link of the open region.
    pub(crate) fn target(&self, ino: Ino) -> Option<Vec<u8>> {
        self.inside(|state, session| {
            let inode = state.known.inode(ino)?;
            // A link's target never changes.
            Some(session.region().content(inode).to_vec())
        })?
    }

    /// The names of a directory, `.` and `..` first. `None` if the region is closed.
    pub(crate) fn names(&self, dir: Inode) -> Option<Vec<RegionName>> {
        self.inside(|_, session| {
            let region = session.region();
            let above = if dir == region.root() { dir } else { region.parent(dir) };
            let dots = [(".", dir), ("..", above)].map(|(name, inode)| RegionName {
                name: name.into(),
                attr: Attr {
                    ino: Ino(region.ino(inode)),
                    mode: FileType::Directory.mode_bits(),
                    ..Attr::default()
                },
            });
            let mut names = dots.to_vec();
            let mut from = 0;
            while let Some(listed) = region.list(dir, from) {
                from = listed.next;
                names.push(RegionName {
                    name: listed.name().to_vec(),
                    attr: attr(region, listed.inode),
                });
            }
            names
        })
    }
}
