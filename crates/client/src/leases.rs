//! The client's cache under leases: directories whose policy has `cache: lease`, so that reads need
//! no request.
//!
//! The server never revokes a lease. Each entry is valid until a span after its request was *sent*,
//! by this client's own clock; the server counts from its answer, waits a bit longer, and changes
//! nothing before that. So clocks need not agree, only run equally fast, and a late answer is valid
//! for a shorter time, or not at all. This holds for the client's own changes, too: the server does
//! not know the clients that cache. So entries never change, they only expire.

use types::{Attr, Cred, Errno, Ino, Map, Moment, Path, Tid, check_name};
use wire::{Answer, Grants, Op, ReadOp, Reply};

use crate::cache::may_search;

/// The most names and attributes in the cache; beyond it expired ones are dropped, or all.
const THINGS_MAX: usize = 100_000;

/// Something that was told, and until when it holds.
#[derive(Clone, Copy, Debug)]
struct Until<T> {
    thing: T,
    until: Moment,
}

impl<T: Copy> Until<T> {
    fn at(&self, now: Moment) -> Option<T> {
        (now < self.until).then_some(self.thing)
    }
}

#[derive(Debug)]
enum Asked {
    Lookup { parent: Ino, name: Box<[u8]> },
    Walk { name: Box<[u8]> },
    Attr,
    List { dir: Ino, after: Option<Box<[u8]>>, attrs: bool },
}

/// The cached names of a directory.
#[derive(Debug, Default)]
struct Names {
    /// Their inodes; `None` for names that do not exist.
    names: Map<Box<[u8]>, Until<Option<Ino>>>,
    /// All its names are here.
    complete: Option<Moment>,
    /// How far a listing has come that began at the start, and until when all of that holds.
    listed: Option<(Box<[u8]>, Moment)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The latest time that was said.
    now: Moment,
    /// Questions under way, and when they were sent at the earliest.
    asked: Map<Tid, (Asked, Moment)>,
    attrs: Map<Ino, Until<Attr>>,
    dirs: Map<Ino, Names>,
    things: usize,
}

#[allow(clippy::wildcard_enum_match_arm, reason = "others come without a lease")]
fn asked(op: &Op<'_>) -> Option<Asked> {
    match *op {
        Op::Read(ReadOp::Lookup { parent, name }) => {
            Some(Asked::Lookup { parent, name: name.into() })
        }
        Op::Read(ReadOp::Walk { path, .. }) => {
            let path = Path::parse(path).ok()?;
            let (_, name) = path.split_last()?;
            Some(Asked::Walk { name: name.into() })
        }
        Op::Read(ReadOp::GetAttr { .. }) => Some(Asked::Attr),
        Op::Read(ReadOp::List { dir, after, attrs, .. }) => {
            Some(Asked::List { dir, after: after.map(Into::into), attrs })
        }
        _ => None,
    }
}

impl Leases {
    /// The present time. Later questions are not older than this.
    pub(crate) fn at(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// The present time.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// A request is about to be sent.
    pub(crate) fn ask(&mut self, tid: Tid, op: &Op<'_>) {
        if let Some(asked) = asked(op) {
            self.asked.insert(tid, (asked, self.now));
        }
    }

    /// No caller waits for a request any more.
    pub(crate) fn give_up(&mut self, tid: Tid) {
        self.asked.remove(&tid);
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.things == 0
    }

    /// The inode of a name, if that is cached.
    pub(crate) fn look(
        &self,
        now: Moment,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Option<Result<Option<Ino>, Errno>> {
        // The server reports the error if an element of the path is no directory.
        let dir = self.attr(now, parent).filter(Attr::is_dir)?;
        check_name(name).ok()?;
        if !may_search(cred, &dir) {
            return Some(Err(Errno::Access));
        }
        let names = self.dirs.get(&parent)?;
        match names.names.get(name) {
            Some(known) => known.at(now).map(Ok),
            None => names.complete.is_some_and(|until| now < until).then_some(Ok(None)),
        }
    }

    /// The attributes of an inode, if they are known.
    pub(crate) fn attr(&self, now: Moment, ino: Ino) -> Option<Attr> {
        self.attrs.get(&ino)?.at(now)
    }

    /// A reply arrived, with its leases if it has any.
    pub(crate) fn note_reply(&mut self, reply: &Reply) {
        let Some((asked, sent)) = self.asked.remove(&reply.tid) else { return };
        let Some(Grants { dir, inode, lease: Some(span), .. }) = reply.grants else { return };
        debug_assert!(sent <= self.now, "a request was sent before its reply");
        let until = sent + span;
        if until <= self.now {
            return;
        }
        self.learn_attr(&dir, until);
        let place = dir.ino;
        match (asked, &reply.result) {
            (Asked::Lookup { parent, name }, result) if parent == place => match result {
                Ok(Answer::Attr(attr)) => self.learn(parent, name, attr, inode, until),
                Ok(_) => {}
                Err(_) => self.learn_name(parent, name, None, until),
            },
            (Asked::Walk { name }, Ok(Answer::Walked { parent, attr })) if *parent == place => {
                match attr {
                    Some(attr) => self.learn(*parent, name, attr, inode, until),
                    None => self.learn_name(*parent, name, None, until),
                }
            }
            (Asked::Attr, Ok(Answer::Attr(attr))) if inode => self.learn_attr(attr, until),
            (Asked::List { dir, after, attrs }, Ok(Answer::Entries { entries, more })) => {
                for (name, attr) in entries {
                    let inode = attrs && inode && !attr.is_dir() && attr.nlink == 1;
                    self.learn(dir, name.as_slice().into(), attr, inode, until);
                }
                let last = entries.last().map(|(name, _)| name.as_slice().into());
                self.listed(dir, after, last, *more, until);
            }
            _ => {}
        }
        self.shrink();
    }

    fn learn(&mut self, parent: Ino, name: Box<[u8]>, attr: &Attr, inode: bool, until: Moment) {
        self.learn_name(parent, name, Some(attr.ino), until);
        if inode {
            self.learn_attr(attr, until);
        }
    }

    /// Of two answers the later one is valid for longer, and both are true as long as both are
    /// valid.
    fn learn_name(&mut self, parent: Ino, name: Box<[u8]>, named: Option<Ino>, until: Moment) {
        let names = &mut self.dirs.entry(parent).or_default().names;
        let known = names.entry(name).or_insert_with(|| {
            self.things += 1;
            Until { thing: named, until }
        });
        if known.until < until {
            *known = Until { thing: named, until };
        }
    }

    fn learn_attr(&mut self, attr: &Attr, until: Moment) {
        let known = self.attrs.entry(attr.ino).or_insert_with(|| {
            self.things += 1;
            Until { thing: *attr, until }
        });
        if known.until < until {
            *known = Until { thing: *attr, until };
        }
    }

    /// A listing behind a name came up to `last`.
    fn listed(
        &mut self,
        dir: Ino,
        after: Option<Box<[u8]>>,
        last: Option<Box<[u8]>>,
        more: bool,
        until: Moment,
    ) {
        let dir = self.dirs.entry(dir).or_default();
        // Only a listing from the start to the end, as long as its first part holds.
        let before = match (&after, dir.listed.take()) {
            (None, _) => Some(until),
            (Some(after), Some((last, before))) if *after == last && self.now < before => {
                Some(before)
            }
            (Some(_), _) => None,
        };
        let Some(before) = before.map(|before| before.min(until)) else { return };
        if !more {
            dir.complete = dir.complete.max(Some(before));
            return;
        }
        dir.listed = last.or(after).map(|last| (last, before));
    }

    /// Drops expired entries if the cache is large, and everything if that is not enough.
    fn shrink(&mut self) {
        if self.things <= THINGS_MAX {
            return;
        }
        let now = self.now;
        self.attrs.retain(|_, known| now < known.until);
        self.dirs.retain(|_, dir| {
            dir.names.retain(|_, known| now < known.until);
            !dir.names.is_empty() || dir.complete.is_some_and(|until| now < until)
        });
        let names: usize = self.dirs.values().map(|dir| dir.names.len()).sum();
        self.things = self.attrs.len() + names;
        if self.things > THINGS_MAX / 2 {
            self.clear();
        }
    }

    /// Forgets everything that was told.
    pub(crate) fn clear(&mut self) {
        self.attrs.clear();
        self.dirs.clear();
        self.things = 0;
    }
}

mod validate;

#[cfg(test)]
mod tests;
