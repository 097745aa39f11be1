//! Taking a directory up that the server has given: all its names are read before it is used.

use types::{Attr, FileType, Ino, Seq, Stripe, Tid};
use wire::{Answer, Failure, Grants, Op, ReadOp};

use super::ExclusiveDirs;

/// Larger directories are not taken up: reading them costs more than it saves.
const ENTRIES_MAX: u64 = 100_000;
/// Names that are asked for at a time.
const PAGE: u32 = 4_096;
/// So many directories are remembered as not worth having.
const UNWANTED_MAX: usize = 1_024;

/// A directory that is being read.
#[derive(Debug)]
pub(super) struct Loading {
    attr: Attr,
    stripe: Stripe,
    entries: Vec<(Vec<u8>, Attr)>,
}

/// The next step for a directory that the server has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// It is to be read, from behind this name on.
    List(Ino, Option<Vec<u8>>),
    /// It is to be given back.
    Return(Ino),
}

impl Next {
    /// The request to make, of a directory that is read.
    pub(crate) fn page<'a>(dir: Ino, after: Option<&'a [u8]>) -> Op<'a> {
        Op::Read(ReadOp::List { dir, after, limit: PAGE, attrs: true })
    }
}

impl ExclusiveDirs {
    /// Whether a directory is wanted, should it be given.
    pub(crate) fn wants_dir(&self, dir: Ino) -> bool {
        !self.unwanted.contains(&dir)
    }

    /// The server gives directories.
    pub(crate) fn given(&mut self, grants: &Grants, created: Option<&Attr>) -> Next {
        // One that was just created has nothing in it.
        if let (Some(stripe), Some(attr)) = (grants.new_exclusive, created)
            && attr.is_dir()
            && !self.has(attr.ino)
        {
            self.take_up(attr, stripe, &[]);
            self.bare.remove(&attr.ino);
        }
        let dir = grants.dir.ino;
        let Some(stripe) = grants.exclusive.filter(|_| !self.has(dir)) else {
            return Next::Nothing;
        };
        if grants.dir.size > ENTRIES_MAX {
            self.does_not_want(dir);
            return Next::Return(dir);
        }
        if grants.dir.size == 0 {
            self.take_up(&grants.dir, stripe, &[]);
            return Next::Nothing;
        }
        self.loading.insert(dir, Loading { attr: grants.dir, stripe, entries: Vec::new() });
        Next::List(dir, None)
    }

    fn does_not_want(&mut self, dir: Ino) {
        if self.unwanted.len() >= UNWANTED_MAX {
            self.unwanted.clear();
        }
        self.unwanted.insert(dir);
    }

    /// A page of a directory is being asked for.
    pub(crate) fn lists(&mut self, tid: Tid, dir: Ino) {
        self.listing.insert(tid, dir);
    }

    /// The next step after an answer to a request of this module's own, if it is one; `whole` means
    /// that all attributes in it may be cached.
    pub(crate) fn listed(
        &mut self,
        tid: Tid,
        result: &Result<Answer, Failure>,
        whole: bool,
    ) -> Option<Next> {
        let dir = self.listing.remove(&tid)?;
        let Some(loading) = self.loading.get_mut(&dir) else { return Some(Next::Nothing) };
        let (Ok(Answer::Entries { entries, more }), true) = (result, whole) else {
            self.loading.remove(&dir);
            self.does_not_want(dir);
            return Some(Next::Return(dir));
        };
        loading.entries.extend_from_slice(entries);
        if *more && loading.entries.len() as u64 <= ENTRIES_MAX {
            return Some(Next::List(dir, entries.last().map(|(name, _)| name.clone())));
        }
        let more = *more;
        let Some(Loading { attr, stripe, entries }) = self.loading.remove(&dir) else {
            return Some(Next::Nothing);
        };
        if more {
            return Some(Next::Return(dir));
        }
        self.take_up(&attr, stripe, &entries);
        Some(Next::Nothing)
    }

    /// From now on the directory is in the view.
    fn take_up(&mut self, attr: &Attr, stripe: Stripe, entries: &[(Vec<u8>, Attr)]) {
        self.view.store().adopt_root(attr, entries.is_empty());
        for (name, entry) in entries {
            if self.dirs.contains_key(&entry.ino) {
                // It is known better than that.
                self.view.store().load_name(attr.ino, name, entry);
                continue;
            }
            self.view.store().load_entry(attr.ino, name, entry, &[]);
            if entry.file_type() != FileType::Directory {
                self.bare.insert(entry.ino);
            }
        }
        if !entries.is_empty() {
            self.view.store().finish_load(attr.ino, Seq(0), Default::default());
        }
        debug_assert!(!self.loading.contains_key(&attr.ino), "{} is read", attr.ino);
        // It may have extended attributes, also if nothing is in it.
        self.bare.insert(attr.ino);
        self.dirs.insert(attr.ino, stripe);
    }
}
