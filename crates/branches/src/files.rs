//! A branch as programs work in it: files that are open, by numbers that stay.
//!
//! The first write copies a file to a scratch file of this machine. The last close, or a sync,
//! makes that the content of the branch. If the trunk or a layer may refer to the old content, the
//! file gets a new inode number; programs keep the number that they know, the *node*.
//!
//! Invariant: committed content is never overwritten.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path as LocalPath;

use cudele::{DirEntry, NewFile, io_error};
use types::{
    Attr, AttrChange, EntryName, Errno, Error, Ino, Map, RenameFlags, Result, Timestamp,
    XattrChange,
};

use crate::Work;

/// See the module documentation.
#[derive(Debug)]
pub struct BranchFiles {
    work: Work,
    /// The inodes that nodes stand for, if they are other numbers; and back.
    inodes: Map<Ino, Ino>,
    nodes: Map<Ino, Ino>,
    open: Map<Ino, Open>,
    scratch: u64,
}

/// An open file.
#[derive(Debug, Default)]
struct Open {
    count: u64,
    /// Its content, if it was written to or has no name any more.
    scratch: Option<File>,
    /// The time of the first write that the branch lacks.
    changed: Option<Timestamp>,
    /// The attributes at the loss of the last name.
    nameless: Option<Attr>,
}

impl BranchFiles {
    /// The files of a branch.
    #[must_use]
    pub fn new(work: Work) -> Self {
        let (inodes, nodes, open) = (Map::default(), Map::default(), Map::default());
        Self { work, inodes, nodes, open, scratch: 0 }
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.work.root()
    }

    /// Events that are not committed.
    #[must_use]
    pub fn pending_events(&self) -> u64 {
        self.work.pending_events()
    }

    fn inode(&self, node: Ino) -> Ino {
        self.inodes.get(&node).copied().unwrap_or(node)
    }

    /// Attributes as programs see them.
    fn seen(&self, attr: Attr) -> Attr {
        let ino = self.nodes.get(&attr.ino).copied().unwrap_or(attr.ino);
        let mut attr = Attr { ino, ..attr };
        if let Some(open) = self.open.get(&ino)
            && let Some(scratch) = &open.scratch
        {
            attr.size = scratch.metadata().map_or(attr.size, |meta| meta.len());
            if let Some(time) = open.changed {
                (attr.mtime, attr.ctime) = (attr.mtime.max(time), attr.ctime.max(time));
            }
        }
        attr
    }

    /// The attributes of a node.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn attr(&mut self, node: Ino) -> Result<Attr> {
        if let Some(attr) = self.open.get(&node).and_then(|open| open.nameless) {
            return Ok(self.seen(attr));
        }
        let inode = self.inode(node);
        let attr = self.work.attr(inode)?;
        Ok(self.seen(attr))
    }

    /// An extended attribute of a node.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    pub fn xattr(&mut self, node: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(node);
        self.work.xattr(inode, name)
    }

    /// The names of all extended attributes of a node, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn xattrs(&mut self, node: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(node);
        self.work.xattrs(inode)
    }

    /// Sets or, without a value, removes an extended attribute of a node.
    ///
    /// # Errors
    /// As [`Work::set_xattr`].
    pub fn set_xattr(&mut self, node: Ino, change: XattrChange<'_>) -> Result<()> {
        let inode = self.inode(node);
        self.work.set_xattr(inode, change)
    }

    /// The attributes of the inode under a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = self.work.lookup(parent, name)?;
        Ok(self.seen(attr))
    }

    /// The entries of a directory, by name.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn list(&mut self, dir: Ino) -> Result<Vec<DirEntry>> {
        let entries = self.work.list(dir)?.into_iter();
        Ok(entries.map(|it| DirEntry { attr: self.seen(it.attr), ..it }).collect())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn read_link(&mut self, node: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(node);
        let attr = self.work.attr(inode)?;
        self.work.link_target(&attr)?.ok_or_else(|| Error::of(Errno::Invalid, "readlink"))
    }

    /// Creates a file, directory, symbolic link or device.
    ///
    /// # Errors
    /// As [`Work::create`].
    pub fn create(&mut self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Attr> {
        let ino = self.work.create(parent, name, new)?;
        let attr = self.work.attr(ino)?;
        Ok(self.seen(attr))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As [`Work::unlink`].
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.keep_content(parent, name)?;
        self.work.unlink(parent, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Work::rmdir`].
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.work.rmdir(parent, name)
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        if !flags.exchange && !flags.no_replace && from != to {
            self.keep_content(to.dir, to.name)?;
        }
        self.work.rename(from, to, flags)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As [`Work::link`].
    pub fn link(&mut self, node: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        // The written content goes to the inode while it has one name; afterwards it has two.
        self.store(node)?;
        let inode = self.inode(node);
        self.work.link(inode, parent, name)?;
        self.attr(node)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`Work::set_attr`].
    pub fn set_attr(&mut self, node: Ino, change: &AttrChange) -> Result<Attr> {
        if let Some(size) = change.size {
            self.truncate(node, size)?;
        }
        let change = AttrChange { size: None, ..*change };
        let nameless = self.open.get(&node).is_some_and(|open| open.nameless.is_some());
        if nameless {
            return self.attr(node);
        }
        if change.mtime.is_some() {
            // Storing it later would change the time again.
            self.store(node)?;
        }
        if !change.is_empty() {
            let inode = self.inode(node);
            self.work.set_attr(inode, &change)?;
        }
        self.attr(node)
    }

    /// Counts an open of a file.
    ///
    /// # Errors
    /// `ESTALE`; `EIO`, `ENOSPC` if it is cut off.
    pub fn open(&mut self, node: Ino, truncate: bool) -> Result<()> {
        self.attr(node)?;
        self.open.entry(node).or_default().count += 1;
        if truncate { self.truncate(node, 0) } else { Ok(()) }
    }

    /// Reads at most so many bytes from an offset on.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn read(&mut self, node: Ino, offset: u64, length: usize) -> Result<Vec<u8>> {
        if let Some(scratch) = self.open.get(&node).and_then(|open| open.scratch.as_ref()) {
            let mut bytes = vec![0; length];
            let read = read_full(scratch, &mut bytes, offset).map_err(scratch_error)?;
            bytes.truncate(read);
            return Ok(bytes);
        }
        let inode = self.inode(node);
        let attr = self.work.attr(inode)?;
        self.work.read_at(&attr, offset, length)
    }

    /// Writes.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`; `ENOSPC` if this machine has no room for it.
    pub fn write(&mut self, node: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let scratch = self.scratch_of(node)?;
        scratch.write_all_at(data, offset).map_err(scratch_error)?;
        self.note_changed(node);
        Ok(())
    }

    fn truncate(&mut self, node: Ino, size: u64) -> Result<()> {
        self.scratch_of(node)?.set_len(size).map_err(scratch_error)?;
        self.note_changed(node);
        if self.open.get(&node).is_some_and(|open| open.count == 0) {
            self.store(node)?;
            self.open.remove(&node);
        }
        Ok(())
    }

    fn note_changed(&mut self, node: Ino) {
        if let Some(open) = self.open.get_mut(&node) {
            open.changed = Some(cudele::now());
        }
    }

    /// A program closes a file, and gets the errors: if it was the only one with the file open, the
    /// content is stored now.
    ///
    /// # Errors
    /// The errors of the store; the content then stays here.
    pub fn flush(&mut self, node: Ino) -> Result<()> {
        let is_last = self.open.get(&node).is_some_and(|open| open.count <= 1);
        if is_last { self.store(node) } else { Ok(()) }
    }

    /// Counts a close of a file.
    ///
    /// # Errors
    /// The errors of storing its content.
    pub fn close(&mut self, node: Ino) -> Result<()> {
        let Some(open) = self.open.get_mut(&node) else { return Ok(()) };
        open.count = open.count.saturating_sub(1);
        if open.count > 0 {
            return Ok(());
        }
        self.store(node)?;
        self.open.remove(&node);
        Ok(())
    }

    /// Makes all changes so far durable, and a part of the branch.
    ///
    /// # Errors
    /// As [`Work::commit`], and those of writing to the store.
    pub fn sync(&mut self) -> Result<u64> {
        let nodes: Vec<Ino> = self.open.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| self.store(node))?;
        self.work.commit()
    }

    /// The file of this machine that holds the content of a node.
    fn scratch_of(&mut self, node: Ino) -> Result<&File> {
        let inode = self.inode(node);
        let open = self.open.entry(node).or_default();
        if open.scratch.is_none() {
            let attr = self.work.attr(inode)?;
            self.scratch += 1;
            let mut file = scratch_file(self.scratch)?;
            self.work.read(&attr, &mut |bytes| file.write_all(bytes).map_err(scratch_error))?;
            // Holes at the end.
            file.set_len(attr.size).map_err(scratch_error)?;
            open.scratch = Some(file);
        }
        open.scratch.as_ref().ok_or_else(|| Error::of(Errno::Io, "scratch file"))
    }

    /// A name is about to be removed: programs with the file open keep its content.
    fn keep_content(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let attr = match self.work.lookup(parent, name) {
            Ok(attr) => attr,
            Err(error) if error.errno == Errno::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let node = self.nodes.get(&attr.ino).copied().unwrap_or(attr.ino);
        let is_open = self.open.get(&node).is_some_and(|open| open.count > 0);
        if !is_open || attr.is_dir() || attr.nlink > 1 {
            return Ok(());
        }
        self.scratch_of(node)?;
        let attr = Attr { nlink: 0, ..self.seen(attr) };
        if let Some(open) = self.open.get_mut(&node) {
            open.nameless = Some(attr);
        }
        Ok(())
    }

    /// Makes the written content of a file content of the branch.
    fn store(&mut self, node: Ino) -> Result<()> {
        let inode = self.inode(node);
        let Some(open) = self.open.get_mut(&node) else { return Ok(()) };
        let Some(scratch) = open.scratch.as_mut().filter(|_| open.changed.is_some()) else {
            return Ok(());
        };
        if open.nameless.is_some() {
            return Ok(());
        }
        scratch.seek(SeekFrom::Start(0)).map_err(scratch_error)?;
        let now = self.work.set_content(inode, scratch)?;
        open.changed = None;
        if now != inode {
            self.nodes.remove(&inode);
            self.nodes.insert(now, node);
            self.inodes.insert(node, now);
        }
        Ok(())
    }
}

fn read_full(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// A file without a name, which ends with this process.
fn scratch_file(number: u64) -> Result<File> {
    let name = format!("cudele-branch.{}.{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let about = |error: std::io::Error| io_error(&path, &error);
    // One of this name was left behind by a process of this number that died between the two steps.
    let _ = std::fs::remove_file(&path);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(about)?;
    std::fs::remove_file(&path).map_err(about)?;
    Ok(file)
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn scratch_error(error: std::io::Error) -> Error {
    io_error(LocalPath::new("scratch file"), &error)
}
