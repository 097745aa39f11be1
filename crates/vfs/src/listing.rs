//! Reading directories.
//!
//! A listing is read from the server page by page, in the directory's own order, in which a page
//! begins after the last name of the one before: names that exist throughout are seen exactly once,
//! even while other names are created and removed, and one page is in memory at a time. Positions
//! count entries; the starts of pages are kept, so that a reader can go back to any position it
//! saw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cudele::{Attr, DirEntry, Errno, Error, FileType, Ino, Result};
use posix::{Caller, Entry, Listed};
use types::{EntryName, Map};

use crate::held;
use crate::tree::Trees;

/// Entries read at a time.
const PAGE: u32 = 2048;
/// `.` and `..`.
const DOTS: u64 = 2;

/// The open directories.
#[derive(Debug, Default)]
pub(crate) struct OpenDirs {
    by_handle: Mutex<Map<u64, OpenDir>>,
    last_handle: AtomicU64,
}

/// Has its inode number beside the listing, so that a search does not wait for a reader.
#[derive(Clone, Debug)]
struct OpenDir {
    dir: Ino,
    listing: Arc<Mutex<Listing>>,
}

/// An open directory.
#[derive(Debug)]
struct Listing {
    dir: Ino,
    /// Position of the first entry of each page so far, and the name it begins after.
    pages: Vec<(u64, Vec<u8>)>,
    /// Position of the first entry of the page in memory.
    first: u64,
    page: Vec<DirEntry>,
    /// Whether its entries have all their attributes, and not only number and type.
    attrs: bool,
    /// Whether there is something behind the page in memory.
    more: bool,
}

/// Open directories, with all that reading them may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListingsCx<'a> {
    pub(crate) trees: &'a Trees,
    pub(crate) open: &'a OpenDirs,
}

impl ListingsCx<'_> {
    /// Opens a directory for reading and returns a handle of it.
    ///
    /// # Errors
    /// None today; reading it may be refused.
    pub(crate) fn open_dir(&self, dir: Ino) -> Result<u64> {
        let handle = 1 + self.open.last_handle.fetch_add(1, Ordering::Relaxed);
        let (pages, page) = (Vec::new(), Vec::new());
        let listing = Listing { dir, pages, first: 0, page, attrs: false, more: true };
        held(&self.open.by_handle)
            .insert(handle, OpenDir { dir, listing: Arc::new(Mutex::new(listing)) });
        Ok(handle)
    }

    /// Closes a directory.
    pub(crate) fn close_dir(&self, handle: u64) {
        held(&self.open.by_handle).remove(&handle);
    }

    /// The attributes of open directories under a name that is about to be removed. A request is
    /// made only if there are any.
    pub(crate) fn open_dirs_under(&self, parent: Ino, name: &[u8]) -> Vec<Attr> {
        let mut open: Vec<Ino> = held(&self.open.by_handle).values().map(|open| open.dir).collect();
        open.sort_unstable();
        open.dedup();
        open.retain(|dir| self.trees.nodes().is_named(*dir, EntryName::new(parent, name)));
        open.into_iter().filter_map(|dir| self.trees.stored_attr(dir).ok()).collect()
    }

    /// The name has gone, and with it most likely they.
    pub(crate) fn lose_dirs(&self, open: Vec<Attr>) {
        for attr in open {
            let ctime = cudele::now_coarse();
            self.trees.nodes().set_gone(Attr { nlink: 0, size: 0, ctime, ..attr });
        }
    }

    /// Hands out the entries from a position on, until `take` has enough (then it returns false,
    /// and the entry counts as not taken). Without `attrs` entries have only number and type.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`, `EINVAL` for a position that was never handed out.
    pub(crate) fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let listing = held(&self.open.by_handle).get(&handle).cloned();
        let OpenDir { listing, .. } =
            listing.ok_or_else(|| Error::of(Errno::Stale, "directory"))?;
        let mut listing = held(&listing);
        let mut at = from;
        if from == 0 {
            // Reading restarts, and must show later changes.
            listing.pages.clear();
            listing.page.clear();
            listing.more = true;
        }
        if listing.attrs != attrs {
            // The page is read again from its old start.
            listing.attrs = attrs;
            listing.more |= !listing.page.is_empty();
            listing.page.clear();
        }
        while at < DOTS {
            let (name, ino): (&[u8], _) = if at == 0 {
                (b".", listing.dir)
            } else {
                (b"..", self.trees.nodes().parent(listing.dir))
            };
            let mode = FileType::Directory.mode_bits();
            let attr = Attr { ino, mode, ..Attr::default() };
            at += 1;
            if !take(&Listed { next: at, name, attr }) {
                return Ok(());
            }
        }
        while self.turn_to(caller, &mut listing, at)? {
            let index = usize::try_from(at - listing.first).unwrap_or(usize::MAX);
            // Not once for each entry.
            let any_open = attrs && self.trees.nodes().any_open();
            for entry in listing.page.get(index..).unwrap_or_default() {
                at += 1;
                let attr = if any_open { self.trees.as_open(entry.attr) } else { entry.attr };
                if !take(&Listed { next: at, name: &entry.name, attr }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Brings the page with a position into memory; false at the end.
    fn turn_to(&self, caller: &Caller, listing: &mut Listing, at: u64) -> Result<bool> {
        if listing.pages.is_empty() {
            self.read_page(caller, listing, DOTS, None)?;
        }
        if at < listing.first || (listing.page.is_empty() && listing.more) {
            let page = listing.pages.partition_point(|(first, _)| *first <= at).saturating_sub(1);
            let (first, after) = listing.pages[page].clone();
            listing.pages.truncate(page);
            let after = (first > DOTS).then_some(after);
            self.read_page(caller, listing, first, after.as_deref())?;
        }
        loop {
            let end = listing.first + listing.page.len() as u64;
            if at < end {
                return Ok(true);
            }
            if !listing.more {
                return Ok(false);
            }
            let Some(last) = listing.page.last() else { return Ok(false) };
            let after = last.name.clone();
            self.read_page(caller, listing, end, Some(&after))?;
        }
    }

    fn read_page(
        &self,
        caller: &Caller,
        listing: &mut Listing,
        first: u64,
        after: Option<&[u8]>,
    ) -> Result<()> {
        let (dir, limit) = (listing.dir, PAGE as usize);
        let read = self.trees.run(
            dir,
            caller,
            |user| user.list(dir, after, PAGE, listing.attrs),
            |subtree| {
                let page = subtree.list_from(dir, after, limit, listing.attrs)?;
                let more = page.len() == limit;
                Ok((page, more))
            },
        );
        let (page, more) = match read {
            Err(error) if error.errno == Errno::Stale && self.trees.nodes().gone(dir).is_some() => {
                (Vec::new(), false)
            }
            read => read?,
        };
        listing.pages.push((first, after.unwrap_or_default().to_vec()));
        (listing.first, listing.page, listing.more) = (first, page, more);
        Ok(())
    }

    /// The kernel learns of an entry of a directory that was listed.
    #[must_use]
    pub(crate) fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry {
        let owner = self.trees.owner_in(dir, listed.attr.ino);
        self.trees.nodes().refer(dir, listed.name, listed.attr.ino, owner);
        self.trees.lent_name(EntryName::new(dir, listed.name), listed.attr)
    }
}
