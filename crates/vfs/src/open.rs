//! Opens and closes files, also those that lose their last name while they are open.
//!
//! The metadata server knows the open files of each client ([`cudele::Fs::open_as`]). Files of a
//! decoupled subtree are open at its client only.

use std::sync::Arc;

use cudele::{Attr, Errno, Ino, NewFile, Opened, Result};
use posix::{Atime, Caching, Caller, Entry, OpenMode};
use types::EntryName;

use crate::Vfs;
use crate::caller::OnBehalf;
use crate::file::{Body, File};
use crate::nodes::ContentVersion;
use crate::tree::Tree;

/// A file that was opened.
struct OpenedFile {
    file: Arc<File>,
    /// What was answered.
    attr: Attr,
    body: Body,
    /// Nothing was told to its inode from here since that was asked.
    current: bool,
}

impl Vfs {
    /// Opens a file. Returns the content that a kernel may cache.
    ///
    /// # Errors
    /// `ESTALE`, also if a copy took the place of the file ([`Vfs::create`] then opens the copy);
    /// `EISDIR`, `EROFS`; not `EACCES`: the caller has checked permissions.
    pub(crate) fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        if !mode.write {
            return self.open_there(caller, ino, mode);
        }
        self.check_writable()?;
        self.or_copy_up(ino, self.open_there(caller, ino, mode))
    }

    fn open_there(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        let OpenedFile { file, attr, body, current } = self.open_known(caller, ino, mode.write)?;
        let seen = current && self.nodes().see(ino, ContentVersion::of(&attr));
        let mut content = file.held();
        // Reads from the cache of a kernel do not reach this process.
        let strict = self.options.atime == Atime::Always;
        let mut same = seen || matches!(self.tree(ino), Tree::Owned(_)) || content.dirty;
        // This process knows its own writes best, however old the answer is.
        if current && !same && !content.changed && content.nameless.is_none() {
            (content.size, content.body) = (attr.size, body);
        }
        if current {
            content.last = content.over(attr);
        }
        drop(content);
        let direct = self.join(ino, &file);
        if mode.truncate {
            let emptied = self.truncate(caller, ino, 0, true);
            if let Err(error) = emptied {
                self.close_here(ino, mode.write);
                return Err(error);
            }
            same = false;
        }
        Ok(if direct {
            Caching::None
        } else if same && !strict {
            Caching::Keep
        } else {
            Caching::Afresh
        })
    }

    /// Opens a file, and finds it here or makes it known.
    fn open_known(&self, caller: &Caller, ino: Ino, write: bool) -> Result<OpenedFile> {
        loop {
            let known = self.nodes().file(ino).cloned();
            // Not under the lock of the nodes: a thread with the lock of the file may wait for it.
            let nameless = known.and_then(|file| file.nameless());
            let times_sent = self.nodes().times_sent(ino);
            let (attr, body) = match nameless {
                Some(attr) => (attr, Body::Unread),
                None => self.open_stored(caller, ino, write)?,
            };
            let mut nodes = self.nodes();
            let current = nodes.times_sent(ino) == times_sent;
            if current || nodes.file(ino).is_some() {
                if nodes.file(ino).is_none() {
                    // Other clients may have written the file since the last close here.
                    self.fs.forget_sums(ino);
                }
                let file = nodes.open(ino, || File::new(&attr, body.clone()));
                return Ok(OpenedFile { file, attr, body, current });
            }
            drop(nodes);
            // A write and a close here may have overtaken the answer, which is then old.
            if nameless.is_none() && matches!(self.tree(ino), Tree::Server) {
                self.fs.close_file(ino, write);
            }
        }
    }

    /// Makes a file and opens it; opens an existing file unless that is forbidden.
    ///
    /// # Errors
    /// As [`Vfs::make`] and [`Vfs::open`].
    pub(crate) fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        mode: u32,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        match self.make_open(caller, place, mode, open) {
            Ok(entry) => {
                let ino = entry.attr.ino;
                if !open.write && matches!(self.tree(ino), Tree::Server) {
                    // Another process may have opened the file already. The mode applies to later
                    // opens.
                    return self.open_entry(&Caller::SELF, entry, open);
                }
                self.fs.begin_sums(ino);
                let file = self.nodes().open(ino, || File::empty(&entry.attr));
                self.nodes().see(ino, ContentVersion { ctime: entry.attr.ctime, size: 0 });
                let shared = self.join(ino, &file);
                Ok((entry, if shared { Caching::None } else { Caching::Afresh }))
            }
            Err(error) if error.errno == Errno::Exists && !open.exclusive => {
                let entry = self.lookup(caller, place.dir, place.name)?;
                match self.open_entry(caller, entry, open) {
                    Err(error) if error.errno == Errno::Stale => {
                        let entry = self.lookup(caller, place.dir, place.name)?;
                        self.open_entry(caller, entry, open)
                    }
                    opened => opened,
                }
            }
            Err(error) => Err(error),
        }
    }

    fn open_entry(
        &self,
        caller: &Caller,
        entry: Entry,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        let opened = self.open(caller, entry.attr.ino, open);
        let caching = opened.inspect_err(|_| self.forget(entry.attr.ino, 1))?;
        Ok((entry, caching))
    }

    /// Closes a file that was opened once.
    ///
    /// # Errors
    /// The errors of [`Vfs::flush`], if no flush has returned them.
    pub(crate) fn close(&self, ino: Ino, write: bool) -> Result<()> {
        let file = self.file(ino)?;
        let mut content = file.held();
        let result = self.write_back(ino, &mut content).and_then(|()| content.lost.check());
        self.seal(ino, &mut content);
        self.send_access_time(ino, &mut content);
        drop(content);
        let owned = matches!(self.tree(ino), Tree::Owned(_));
        drop(file);
        let Some(file) = self.close_here(ino, write) else { return result };
        let content = file.held();
        if owned && content.nameless.is_some() && content.body == Body::Striped {
            self.fs.delete_data((ino, content.stripe), content.size)?;
        }
        result
    }

    /// Closes it once, without anything else. Returns its content if that was the last time.
    fn close_here(&self, ino: Ino, write: bool) -> Option<Arc<File>> {
        if !matches!(self.tree(ino), Tree::Server) {
            return self.close_node(ino);
        }
        let file = self.nodes().file(ino).cloned();
        // Before the message to the server: a later open must not find the old content.
        let last = self.close_node(ino);
        let Some(file) = file else { return last };
        let mut content = file.held();
        if content.nameless.is_none() {
            drop(content);
            self.fs.close_file_soon(ino, write);
            return last;
        }
        // The server keeps the content of a file without a name until the close. It does not count
        // later opens of such a file, which had no name to ask for.
        content.unclosed[usize::from(write)] += 1;
        if last.is_some() {
            let [reading, writing] = std::mem::take(&mut content.unclosed);
            (0..reading).for_each(|_| self.fs.close_file(ino, false));
            (0..writing).for_each(|_| self.fs.close_file(ino, true));
        }
        drop(content);
        last
    }

    fn close_node(&self, ino: Ino) -> Option<Arc<File>> {
        let mut nodes = self.nodes();
        let last = nodes.close(ino);
        if last.is_some() {
            self.fs.forget_sums(ino);
        }
        last
    }

    /// Opens a file where it is kept: its attributes, and its content as far as it came along.
    fn open_stored(&self, caller: &Caller, ino: Ino, write: bool) -> Result<(Attr, Body)> {
        match self.tree(ino) {
            Tree::Server => {
                let opened = self.ask(ino, |cred| self.fs.open_as(cred, ino, write), caller)?;
                let Opened { attr, data, shared } = opened;
                let body = if shared {
                    Body::Striped
                } else if attr.size == 0 || !data.is_empty() {
                    Body::Inline(fitted(data, attr.size))
                } else {
                    Body::Striped
                };
                Ok((attr, body))
            }
            Tree::Owned(_) => {
                let attr = self.stored_attr(ino)?;
                Self::check_file(&attr)?;
                Ok((attr, Body::Unread))
            }
        }
    }

    fn make_open(
        &self,
        caller: &Caller,
        EntryName { dir: parent, name }: EntryName<'_>,
        mode: u32,
        open: OpenMode,
    ) -> Result<Entry> {
        self.check_writable()?;
        let new = NewFile { permissions: mode & 0o7777, ..NewFile::default() };
        let attr = self.run(
            parent,
            caller,
            |user| {
                if open.write {
                    return user.create_open(parent, name, &new);
                }
                user.create(parent, name, &new)
            },
            |subtree| {
                let ino = subtree.make(parent, name, &new)?;
                subtree.attr(ino)
            },
        )?;
        self.entry(parent, name, attr)
    }

    /// A name of an open file is about to go: its content is brought here if it is in the inode.
    pub(crate) fn keep(&self, ino: Ino, file: &File, attr: Attr) -> Result<()> {
        let mut content = file.held();
        if attr.nlink > 1 || content.nameless.is_some() {
            return Ok(());
        }
        self.load(ino, &mut content)
    }

    /// It has gone.
    pub(crate) fn lose_name(&self, lost: Option<Attr>) {
        let Some(attr) = lost else { return };
        let Some(file) = self.nodes().file(attr.ino).cloned() else { return };
        if attr.nlink < 2 {
            file.held().lose_name(attr);
            self.nodes().renamed(attr.ino, Ino(0), b"");
        }
    }

    /// Removes the content of files of a decoupled subtree that have no name and are not open. For
    /// other files, the server does this.
    pub(crate) fn drop_freed(&self, dir: Ino) -> Result<()> {
        let Tree::Owned(owned) = self.tree(dir) else { return Ok(()) };
        let freed = owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.take_freed()))?;
        for (ino, stripe, size) in freed {
            if self.nodes().file(ino).is_none() {
                self.fs.delete_data((ino, stripe), size)?;
            }
        }
        Ok(())
    }
}

/// Inline content of a file of this length: bytes that were never written are zeros.
fn fitted(mut data: Vec<u8>, size: u64) -> Vec<u8> {
    data.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
    data
}
