//! Opens and closes files, also those that lose their last name while they are open.
//!
//! The metadata server knows the open files of each client ([`cudele::Fs::open_as`]). Files of a
//! decoupled subtree are open at its client only.

use std::sync::Arc;

use cudele::{Attr, Errno, Error, FileType, Fs, Ino, Opened, Result, StripedFile};
use posix::{Atime, Caching, Caller, OpenMode};

use crate::VfsOptions;
use crate::caller::OnBehalf;
use crate::content::ContentCx;
use crate::file::{Body, File};
use crate::nodes::ContentVersion;
use crate::outdated::Outdated;
use crate::tree::{Tree, Trees};

/// A file that was opened.
struct OpenedFile {
    file: Arc<File>,
    /// What was answered.
    attr: Attr,
    body: Body,
    /// Nothing was told to its inode from here since that was asked.
    current: bool,
}

/// Open files, with all that opening and closing may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilesCx<'a> {
    pub(crate) fs: &'a Arc<Fs>,
    pub(crate) options: &'a VfsOptions,
    pub(crate) trees: &'a Trees,
    pub(crate) content: ContentCx<'a>,
    pub(crate) outdated: &'a Outdated,
}

impl FilesCx<'_> {
    /// Opens a file. Returns the content that a kernel may cache.
    ///
    /// # Errors
    /// `ESTALE`, also if a copy took the place of the file (module `names` then opens the copy);
    /// `EISDIR`, `EROFS`; not `EACCES`: the caller has checked permissions.
    pub(crate) fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        if !mode.write {
            return self.open_there(caller, ino, mode);
        }
        self.trees.check_writable()?;
        self.or_copy_up(ino, self.open_there(caller, ino, mode))
    }

    fn open_there(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        let OpenedFile { file, attr, body, current } = self.open_known(caller, ino, mode.write)?;
        let seen = current && self.trees.nodes().see(ino, ContentVersion::of(&attr));
        let mut content = file.held();
        // Reads from the cache of a kernel do not reach this process.
        let strict = self.options.atime == Atime::Always;
        let mut same = seen || matches!(self.trees.tree(ino), Tree::Owned(_)) || content.dirty;
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
            let known = self.trees.nodes().file(ino).cloned();
            // Not under the lock of the nodes: a thread with the lock of the file may wait for it.
            let nameless = known.and_then(|file| file.nameless());
            let times_sent = self.trees.nodes().times_sent(ino);
            let (attr, body) = match nameless {
                Some(attr) => (attr, Body::Unread),
                None => self.open_stored(caller, ino, write)?,
            };
            let mut nodes = self.trees.nodes();
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
            if nameless.is_none() && matches!(self.trees.tree(ino), Tree::Server) {
                self.fs.close_file(ino, write);
            }
        }
    }

    /// Closes a file that was opened once.
    ///
    /// # Errors
    /// The errors of [`ContentCx::flush`], if no flush has returned them.
    pub(crate) fn close(&self, ino: Ino, write: bool) -> Result<()> {
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        let result = self.content.write_back(ino, &mut content).and_then(|()| content.lost.check());
        self.content.seal(ino, &mut content);
        self.content.send_access_time(ino, &mut content);
        drop(content);
        let owned = matches!(self.trees.tree(ino), Tree::Owned(_));
        drop(file);
        let Some(file) = self.close_here(ino, write) else { return result };
        let content = file.held();
        if owned && content.nameless.is_some() && content.body == Body::Striped {
            self.fs.delete_data(StripedFile::new(ino, content.stripe), content.size)?;
        }
        result
    }

    /// Closes it once, without anything else. Returns its content if that was the last time.
    fn close_here(&self, ino: Ino, write: bool) -> Option<Arc<File>> {
        if !matches!(self.trees.tree(ino), Tree::Server) {
            return self.close_node(ino);
        }
        let file = self.trees.nodes().file(ino).cloned();
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
        let mut nodes = self.trees.nodes();
        let last = nodes.close(ino);
        if last.is_some() {
            self.fs.forget_sums(ino);
        }
        last
    }

    /// Opens a file where it is kept: its attributes, and its content as far as it came along.
    fn open_stored(&self, caller: &Caller, ino: Ino, write: bool) -> Result<(Attr, Body)> {
        match self.trees.tree(ino) {
            Tree::Server => {
                let opened =
                    self.trees.ask(ino, |cred| self.fs.open_as(cred, ino, write), caller)?;
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
                let attr = self.trees.stored_attr(ino)?;
                check_file(&attr)?;
                Ok((attr, Body::Unread))
            }
        }
    }

    /// A name of an open file is about to go: its content is brought here if it is in the inode.
    pub(crate) fn keep(&self, ino: Ino, file: &File, attr: Attr) -> Result<()> {
        let mut content = file.held();
        if attr.nlink > 1 || content.nameless.is_some() {
            return Ok(());
        }
        self.content.load(ino, &mut content)
    }

    /// It has gone.
    pub(crate) fn lose_name(&self, lost: Option<Attr>) {
        let Some(attr) = lost else { return };
        let Some(file) = self.trees.nodes().file(attr.ino).cloned() else { return };
        if attr.nlink < 2 {
            file.held().lose_name(attr);
            self.trees.nodes().renamed(attr.ino, Ino(0), b"");
        }
    }

    /// Removes the content of files of a decoupled subtree that have no name and are not open. For
    /// other files, the server does this.
    pub(crate) fn drop_freed(&self, dir: Ino) -> Result<()> {
        let Tree::Owned(owned) = self.trees.tree(dir) else { return Ok(()) };
        let freed = owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.take_freed()))?;
        for (ino, stripe, size) in freed {
            if self.trees.nodes().file(ino).is_none() {
                self.fs.delete_data(StripedFile::new(ino, stripe), size)?;
            }
        }
        Ok(())
    }
}

/// Checks that an inode is a file.
pub(crate) fn check_file(attr: &Attr) -> Result<()> {
    let errno = if attr.is_dir() { Errno::IsDirectory } else { Errno::Invalid };
    if attr.file_type() == FileType::Regular {
        return Ok(());
    }
    Err(Error::of(errno, attr.ino.to_string()))
}

/// Inline content of a file of this length: bytes that were never written are zeros.
fn fitted(mut data: Vec<u8>, size: u64) -> Vec<u8> {
    data.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
    data
}
