//! Paths: from a directory to a name, over symbolic links, with the permissions of POSIX.

use std::mem::MaybeUninit;

use crate::inode::{Inode, Kind};
use crate::names::NameEntry;
use crate::region::{Denied, EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ErrorNumber, JobRegion};

/// Bytes of the longest path.
pub const PATH_BYTES_MAX: usize = 4096;
const LINKS_MAX: u32 = 40;

/// The identity for which permissions count.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// The other groups.
    pub groups: &'a [u32],
}

/// Whether an identity has these permissions of 4 (read), 2 (write) and 1 (execute).
#[must_use]
pub fn may(region: &JobRegion, inode: Inode, wanted: u32, cred: &Identity<'_>) -> bool {
    let mode = region.mode(inode);
    if cred.uid == 0 {
        // Root may execute a file if any class of users may.
        return wanted & 1 == 0 || mode & 0o111 != 0 || Kind::of_mode(mode) == Kind::Directory;
    }
    let (uid, gid) = region.owner(inode);
    let granted = if cred.uid == uid {
        mode >> 6
    } else if cred.gid == gid || cred.groups.contains(&gid) {
        mode >> 3
    } else {
        mode
    };
    granted & wanted == wanted
}

/// Bytes that the targets of links may add to a path during a walk.
const LINK_BYTES: usize = 1024;
const ROOM: usize = PATH_BYTES_MAX + LINK_BYTES;

/// Room for a path during a walk: the targets of links take the place of their names. A zero byte
/// follows the path, so that the kernel can read it.
#[derive(Debug)]
pub struct PathBuffer {
    /// Initialised from `start` on: filling it with zeros would cost more than the walk.
    bytes: [MaybeUninit<u8>; ROOM],
    start: usize,
}

impl PathBuffer {
    /// An empty one.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        let mut bytes = [MaybeUninit::uninit(); ROOM];
        bytes[ROOM - 1].write(0);
        Self { bytes, start: ROOM - 1 }
    }

    /// Takes this path in.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    #[inline]
    pub fn fill(&mut self, path: &[u8]) -> Result<(), Denied> {
        if path.len() >= PATH_BYTES_MAX {
            return Err(ENAMETOOLONG.into());
        }
        self.start = ROOM - 1;
        Ok(self.prepend(path, false)?)
    }

    /// The rest of the path.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &[u8] {
        let rest = &self.bytes[self.start..ROOM - 1];
        // SAFETY: initialised from `start` on.
        unsafe { std::slice::from_raw_parts(rest.as_ptr().cast(), rest.len()) }
    }

    /// The rest of the path, with a zero byte behind it.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes[self.start..].as_ptr().cast()
    }

    /// The last name of a path that was walked.
    #[must_use]
    #[inline]
    pub fn name(&self, place: &WalkPlace) -> &[u8] {
        let rest = self.rest();
        &rest[..place.name_len.min(rest.len())]
    }

    /// Leaves bytes at the front out.
    pub fn skip(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(ROOM - 1);
    }

    /// Puts bytes, and a slash, in front of the rest of the path.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    #[inline]
    pub fn prepend(&mut self, bytes: &[u8], slash: bool) -> Result<(), ErrorNumber> {
        let needed = bytes.len() + usize::from(slash);
        let start = self.start.checked_sub(needed).ok_or(ENAMETOOLONG)?;
        // SAFETY: the range is in the array, by the line above, and the source is other memory.
        unsafe {
            let to = self.bytes.as_mut_ptr().add(start).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        if slash {
            self.bytes[start + bytes.len()].write(b'/');
        }
        self.start = start;
        Ok(())
    }
}

impl Default for PathBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    /// Where a relative path begins.
    pub from: Inode,
    /// Whether a symbolic link at the end of the path is followed.
    pub follow: bool,
    /// For whom.
    pub cred: Identity<'a>,
}

/// The end of a path.
#[derive(Clone, Copy, Debug)]
pub struct WalkPlace {
    /// The directory of the last name.
    pub dir: Inode,
    /// Bytes of the last name ([`PathBuffer::name`]); 0 if the path ends with `.` or `..`, or names
    /// the root.
    name_len: usize,
    /// The inode with the name, if the name exists.
    pub inode: Option<Inode>,
    /// Its entry.
    pub entry: Option<NameEntry>,
    /// Whether a slash follows.
    pub must_be_dir: bool,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug)]
pub enum WalkEnd {
    /// Into the region.
    Inside(WalkPlace),
    /// Above the root: the rest of the path is to be walked from the directory above the root.
    Above,
    /// To the absolute path that is left, from a symbolic link.
    Absolute,
}

impl JobRegion {
    /// Walks the path of a buffer, for a thread that is inside.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`.
    #[inline]
    pub fn walk(&self, how: &Walk<'_>, buffer: &mut PathBuffer) -> Result<WalkEnd, Denied> {
        let mut dir = how.from;
        let mut links = 0;
        loop {
            let rest = buffer.rest();
            let skip = rest.iter().take_while(|byte| **byte == b'/').count();
            buffer.start += skip;
            let rest = buffer.rest();
            let len = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let behind = rest[len..].iter().take_while(|byte| **byte == b'/').count();
            let is_last = len + behind == rest.len();
            if self.kind(dir) != Kind::Directory {
                return Err(ENOTDIR.into());
            }
            if len > 0 && !may(self, dir, 1, &how.cred) {
                return Err(EACCES.into());
            }
            match &rest[..len] {
                b"" | b"." if is_last => return Ok(WalkEnd::Inside(WalkPlace::of_dir(dir))),
                b"" | b"." => {}
                b".." if dir == self.root() => {
                    buffer.start += len + behind;
                    return Ok(WalkEnd::Above);
                }
                b".." => {
                    if !self.is_linked(dir) {
                        return Err(ENOENT.into());
                    }
                    dir = self.parent(dir);
                    if is_last {
                        return Ok(WalkEnd::Inside(WalkPlace::of_dir(dir)));
                    }
                }
                name => {
                    let entry = self.lookup(dir, name);
                    let inode = entry.map(|entry| self.inode_of(entry));
                    let is_link = inode.is_some_and(|it| self.kind(it) == Kind::Symlink);
                    if let (true, Some(link)) =
                        (is_link && self.goes_on(how, is_last, behind), inode)
                    {
                        links += 1;
                        if links > LINKS_MAX {
                            return Err(ELOOP.into());
                        }
                        let target = self.content(link);
                        buffer.start += len;
                        let absolute = target.first() == Some(&b'/');
                        buffer.prepend(target, false)?;
                        if absolute {
                            return Ok(WalkEnd::Absolute);
                        }
                        continue;
                    }
                    if is_last {
                        let (name_len, must_be_dir) = (len, behind > 0);
                        let place = WalkPlace { dir, name_len, inode, entry, must_be_dir };
                        return Ok(WalkEnd::Inside(place));
                    }
                    dir = inode.ok_or(ENOENT)?;
                }
            }
            buffer.start += len;
        }
    }

    /// Whether a symbolic link is followed: in the middle of a path, before a slash, or if asked.
    fn goes_on(&self, how: &Walk<'_>, is_last: bool, behind: usize) -> bool {
        !is_last || behind > 0 || how.follow
    }

    /// The path of a directory from the root, without a slash at its beginning. `None` if it was
    /// removed, or the path is too long.
    pub fn path_of<'p>(&self, dir: Inode, buffer: &'p mut PathBuffer) -> Option<&'p [u8]> {
        buffer.start = ROOM - 1;
        let mut at = dir;
        let mut name = [0; crate::names::NAME_BYTES_MAX];
        while at != self.root() {
            if !self.is_linked(at) {
                return None;
            }
            let slash = at != dir;
            buffer.prepend(self.name_of(self.entry_of(at)?, &mut name), slash).ok()?;
            at = self.parent(at);
        }
        Some(buffer.rest())
    }
}

impl WalkPlace {
    fn of_dir(dir: Inode) -> Self {
        Self { dir, name_len: 0, inode: Some(dir), entry: None, must_be_dir: true }
    }

    /// Whether the last name is a real one, that can be made or removed.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.name_len > 0
    }
}
