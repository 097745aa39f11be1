//! Path resolution for calls by path: the kernel does this for a mount.
//!
//! One look-up per name of the path, as in a kernel without a cache. The way into an open subtree
//! is known ([`Mount::inside`]), and look-ups inside it need no request. Symbolic links on the way
//! are followed.

use std::collections::VecDeque;
use std::sync::Arc;

use cudele::{Attr, Errno, Error, FileType, Ino, Result};
use posix::FileSystem;

use crate::mount::Mount;

/// Symbolic links that are followed at most.
const LINKS_MAX: usize = 40;
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 4095;

/// The treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is followed.
    Last,
    /// The call concerns the link itself.
    Not,
}

/// The object at the end of a path. The inodes on the way stay known while this lives.
#[derive(Debug)]
pub(crate) struct Place {
    /// The object; of a parent, the directory.
    pub(crate) ino: Ino,
    /// Its attributes; of a parent, nothing.
    pub(crate) attr: Attr,
    /// Of a parent, the last name.
    pub(crate) name: Vec<u8>,
    _refs: Refs,
}

/// Inodes that are known from the root on.
#[derive(Debug)]
struct Refs {
    fs: Arc<dyn FileSystem>,
    /// The root of an open subtree, from which the walk began.
    base: Option<Arc<Place>>,
    chain: Vec<Attr>,
}

impl Refs {
    fn pop(&mut self) {
        if let Some(attr) = self.chain.pop() {
            self.fs.forget(attr.ino, 1);
        }
    }

    fn dir(&self) -> Ino {
        let base = self.base.as_ref().map_or(self.fs.root(), |place| place.ino);
        self.chain.last().map_or(base, |attr| attr.ino)
    }
}

impl Drop for Refs {
    fn drop(&mut self) {
        while !self.chain.is_empty() {
            self.pop();
        }
    }
}

impl Mount {
    /// The object at a path.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EINVAL` for a relative path,
    /// `EBUSY` in another client's subtree.
    pub(crate) fn object(&self, path: &[u8], follow: Follow) -> Result<Place> {
        let mut todo = names(path)?;
        let refs = self.walk(&mut todo, follow, 0)?;
        let attr = match refs.chain.last() {
            Some(attr) => *attr,
            None => self.fs.attr(refs.dir())?.attr,
        };
        Ok(Place { ino: attr.ino, attr, name: Vec::new(), _refs: refs })
    }

    /// The directory of a path's last name, and that name, which need not exist.
    ///
    /// # Errors
    /// As [`Mount::object`]; `EINVAL` if the last name is none, as in `/` and `/a/..`.
    pub(crate) fn parent(&self, path: &[u8]) -> Result<Place> {
        let mut todo = names(path)?;
        let refs = self.walk(&mut todo, Follow::Last, 1)?;
        let name = todo.pop_front().filter(|name| name != b"." && name != b"..");
        let name = name.ok_or_else(|| {
            Error::new(Errno::Invalid, "", "the path does not end in a name")
                .remedy("end it in the name of what is meant, not in `/`, `.` or `..`")
        })?;
        Ok(Place { ino: refs.dir(), attr: Attr::default(), name, _refs: refs })
    }

    /// Follows names until so many are left.
    fn walk(&self, todo: &mut VecDeque<Vec<u8>>, follow: Follow, left: usize) -> Result<Refs> {
        if let Some((root, count)) = self.inside(todo)
            && todo.len() >= count + left
        {
            let mut inside: VecDeque<_> = todo.iter().skip(count).cloned().collect();
            if let Some(refs) = self.walk_from(Some(root), &mut inside, follow, left)? {
                *todo = inside;
                return Ok(refs);
            }
        }
        let refs = self.walk_from(None, todo, follow, left)?;
        // From the root of the namespace nothing leads out.
        refs.ok_or_else(|| Error::of(Errno::Loop, ""))
    }

    /// The same from the root of an open subtree; nothing if the names lead out of it again.
    fn walk_from(
        &self,
        base: Option<Arc<Place>>,
        todo: &mut VecDeque<Vec<u8>>,
        follow: Follow,
        left: usize,
    ) -> Result<Option<Refs>> {
        let mut refs = Refs { fs: self.fs.clone(), base, chain: Vec::new() };
        let mut links = 0;
        while todo.len() > left
            && let Some(name) = todo.pop_front()
        {
            match &name[..] {
                b"." => continue,
                b".." => {
                    if refs.base.is_some() && refs.chain.is_empty() {
                        return Ok(None);
                    }
                    refs.pop();
                    continue;
                }
                _ => {}
            }
            let dir = refs.dir();
            let attr = self.fs.lookup(&self.caller, dir, &name)?.attr;
            refs.chain.push(attr);
            if attr.file_type() != FileType::Symlink || (todo.is_empty() && follow == Follow::Not) {
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::of(Errno::Loop, ""));
            }
            let target = self.fs.read_link(attr.ino)?;
            refs.pop();
            if target.starts_with(b"/") {
                if refs.base.is_some() {
                    return Ok(None);
                }
                refs.chain.drain(..).rev().for_each(|attr| self.fs.forget(attr.ino, 1));
            }
            for name in split(&target).rev() {
                todo.push_front(name);
            }
        }
        Ok(Some(refs))
    }
}

fn names(path: &[u8]) -> Result<VecDeque<Vec<u8>>> {
    if path.is_empty() {
        return Err(Error::new(Errno::NotFound, "", "the path is empty"));
    }
    if !path.starts_with(b"/") {
        return Err(Error::new(Errno::Invalid, "", "the path does not begin with `/`")
            .remedy("name it from the root of the namespace on"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(Error::of(Errno::NameTooLong, ""));
    }
    Ok(split(path).collect())
}

fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}
