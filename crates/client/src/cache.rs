//! The client's cache of directories whose capability it holds: reads from it need no request.
//!
//! A reply names the parts of itself that may be cached ([`wire::Grants`]), and the server revokes
//! them before another client makes a change ([`wire::Message::Revoke`]). Replies and revocations
//! arrive in the order in which they were sent, and are processed in that order. A change of the
//! client's own needs no revocation: until its reply arrives, the cache answers nothing about the
//! places that it changes, because other clients may see the change earlier; the reply has the new
//! state of the directory.
//!
//! Callers must make sure that an answer from the cache is not used too long after the last message
//! from the server ([`VALID`]): a server that receives nothing from a client revokes everything
//! without waiting.

mod answer;
mod validate;

pub(crate) use answer::may_search;

use types::{Attr, Errno, Ino, Map, Path, Set, Span, Tid};
use wire::{Answer, ChangeOp, Failure, Grants, Op, ReadOp, Reply, SessionOp};

/// The time for which a client may use a cached reply after its request. Less than
/// `mds::Settings::lease`, by far more than clocks can drift apart in that time.
pub const VALID: Span = Span::from_millis(1000);

/// So many names are remembered, 100 MB at most; then everything is forgotten.
const NAMES_MAX: usize = 500_000;
/// The same of directories: half of the capabilities that a server grants to one client.
const DIRS_MAX: usize = 16_384;
/// After so many names that did not exist it pays to list a small directory, ...
const MISSES_MIN: u64 = 8;
/// ... and a larger one when there is a miss for so many entries.
const ENTRIES_PER_MISS: u64 = 128;
/// Stands for an inode with an unknown number.
const ANY: Ino = Ino(0);

/// See the module documentation. Invariant: a directory is in `dirs` as long as its capability is
/// held.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    dirs: Map<Ino, Dir>,
    /// The directory with which the attributes of a file are remembered.
    homes: Map<Ino, Ino>,
    /// Requests under way whose answers will be cached.
    asked: Map<Tid, Asked>,
    /// Inodes that changes under way are about.
    changing: Vec<(Tid, Ino)>,
    /// Directories whose capability is being returned. A reply from before may mention them, and
    /// must not be cached: its revocation would never come.
    returning: Map<Ino, u32>,
    /// The same of directories that are returned later.
    announced: Set<Ino>,
    names: usize,
}

#[derive(Debug, Default)]
struct Dir {
    attr: Option<Attr>,
    /// The inodes of names; `None` for names that do not exist.
    names: Map<Box<[u8]>, Option<Ino>>,
    /// Attributes of inodes that are no directories.
    files: Map<Ino, Attr>,
    /// All its names are here.
    complete: bool,
    /// How far a listing has come that began at the start.
    listed: Option<Box<[u8]>>,
    /// Names that had to be asked for and did not exist, since it was listed or could not be.
    missed: u64,
}

type Place = (Ino, Box<[u8]>);

#[derive(Debug)]
enum Asked {
    Lookup(Place),
    Attr,
    Return(Ino),
    List { dir: Ino, after: Option<Box<[u8]>>, attrs: bool },
    Change { kind: Kind, inos: [Option<Ino>; 2], places: [Option<Place>; 2] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Link(Ino),
    Remove,
    Rename { exchange: bool },
    Other,
}

fn place(parent: Ino, name: &[u8]) -> Place {
    (parent, name.into())
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a new operation teaches nothing")]
fn asked(op: &Op<'_>) -> Option<Asked> {
    let change = |kind, inos, places| Some(Asked::Change { kind, inos, places });
    match *op {
        Op::Read(ReadOp::Lookup { parent, name }) => Some(Asked::Lookup(place(parent, name))),
        Op::Read(ReadOp::GetAttr { .. }) => Some(Asked::Attr),
        Op::Session(SessionOp::Return { dir }) => Some(Asked::Return(dir)),
        Op::Read(ReadOp::List { dir, after, attrs, .. }) => {
            Some(Asked::List { dir, after: after.map(Into::into), attrs })
        }
        Op::Change(ChangeOp::Create { parent, name, .. }) => {
            change(Kind::Create, [None; 2], [Some(place(parent, name)), None])
        }
        Op::Change(
            ChangeOp::Link { ino, parent, name } | ChangeOp::Restore { ino, parent, name },
        ) => change(Kind::Link(ino), [Some(ino), None], [Some(place(parent, name)), None]),
        Op::Change(
            ChangeOp::Unlink { parent, name }
            | ChangeOp::Rmdir { parent, name }
            | ChangeOp::Discard { parent, name },
        ) => change(Kind::Remove, [None; 2], [Some(place(parent, name)), None]),
        Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) => {
            let kind = Kind::Rename { exchange: flags.exchange };
            change(kind, [None; 2], [Some(place(parent, name)), Some(place(new_parent, new_name))])
        }
        Op::Change(
            ChangeOp::SetAttr { ino, .. }
            | ChangeOp::SetXattr { ino, .. }
            | ChangeOp::SetData { ino, .. }
            | ChangeOp::Accessed { ino, .. }
            | ChangeOp::Grow { ino, .. }
            | ChangeOp::Append { ino, .. },
        ) => change(Kind::Other, [Some(ino), None], [None, None]),
        _ => None,
    }
}

impl Cache {
    /// A request is about to be sent.
    pub(crate) fn ask(&mut self, tid: Tid, op: &Op<'_>) {
        let Some(asked) = asked(op) else { return };
        debug_assert!(!self.asked.contains_key(&tid), "{tid} is asked once");
        if let Asked::Return(dir) = asked {
            *self.returning.entry(dir).or_default() += 1;
        }
        if let Asked::Change { kind, inos, places } = &asked {
            for ino in inos.iter().flatten() {
                self.changing.push((tid, *ino));
            }
            for (parent, _) in places.iter().flatten() {
                self.changing.push((tid, *parent));
            }
            for ino in self.moved(*kind, places) {
                self.changing.push((tid, ino));
            }
        }
        self.asked.insert(tid, asked);
    }

    /// No caller waits for a request any more.
    pub(crate) fn give_up(&mut self, tid: Tid) {
        // Whether a change is carried out is not known: it stays under way for ever.
        if !matches!(self.asked.get(&tid), Some(Asked::Change { .. })) {
            self.asked.remove(&tid);
        }
    }

    /// A directory that was forgotten is returned later: replies from before are not cached.
    pub(crate) fn announce_return(&mut self, dir: Ino) {
        self.announced.insert(dir);
    }

    /// The return that was announced is under way, or the connection is gone.
    pub(crate) fn end_announcement(&mut self, dir: Ino) {
        self.announced.remove(&dir);
    }

    /// Whether a directory is being given back.
    pub(crate) fn is_returning(&self, dir: Ino) -> bool {
        self.returning.contains_key(&dir) || self.announced.contains(&dir)
    }

    fn named(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        *self.dirs.get(&parent)?.names.get(name)?
    }

    /// The inodes that lose a name by a change: the new name, or none, is a change of the inode.
    fn moved(&self, kind: Kind, places: &[Option<Place>; 2]) -> Vec<Ino> {
        match kind {
            Kind::Create | Kind::Link(_) | Kind::Other => Vec::new(),
            Kind::Remove | Kind::Rename { .. } => {
                let known = places.iter().flatten().filter_map(|(parent, name)| {
                    let dir = self.dirs.get(parent);
                    match dir.and_then(|dir| dir.names.get(name)) {
                        Some(named) => *named,
                        None if dir.is_some_and(|dir| dir.complete) => None,
                        None => Some(ANY),
                    }
                });
                known.collect()
            }
        }
    }

    /// A reply arrived.
    pub(crate) fn note_reply(&mut self, reply: &Reply) {
        let Reply { tid, time, ref result, grants, .. } = *reply;
        let Some(asked) = self.asked.remove(&tid) else { return };
        self.changing.retain(|(changing, _)| *changing != tid);
        let grants = grants.filter(|grants| !self.is_returning(grants.dir.ino));
        if let Some(Grants { dir, .. }) = grants {
            self.dirs.entry(dir.ino).or_default().attr = Some(dir);
        }
        match asked {
            Asked::Attr => {}
            Asked::Return(dir) => {
                let left = self.returning.remove(&dir).unwrap_or_default().saturating_sub(1);
                if left > 0 {
                    self.returning.insert(dir, left);
                }
            }
            Asked::Lookup((parent, name)) => {
                let Some(grants) = grants else { return };
                match result {
                    Ok(Answer::Attr(attr)) => self.learn(parent, name, attr, grants.inode),
                    Ok(_) => {}
                    Err(_) => {
                        self.set(parent, name, None);
                        if let Some(dir) = self.dirs.get_mut(&parent) {
                            dir.missed += 1;
                        }
                    }
                }
            }
            Asked::List { dir, after, attrs } => {
                if let (Some(grants), Ok(Answer::Entries { entries, more })) = (grants, result) {
                    self.list(dir, after, entries, *more, attrs && grants.inode);
                }
            }
            Asked::Change { kind, inos, places } => {
                // Renaming a name to another name of the same file changes nothing. A rejected
                // change may have taken effect: other clients see it while the journal cannot be
                // written.
                let kind = if time.0 == 0 && result.is_ok() { Kind::Other } else { kind };
                self.changed(kind, inos, places, result, grants);
            }
        }
    }

    /// Caches a name and its inode.
    fn learn(&mut self, parent: Ino, name: Box<[u8]>, attr: &Attr, inode: bool) {
        self.set(parent, name, Some(attr.ino));
        if !inode {
            return;
        }
        if attr.is_dir() {
            if !self.is_returning(attr.ino) {
                self.dirs.entry(attr.ino).or_default().attr = Some(*attr);
            }
        } else if let Some(dir) = self.dirs.get_mut(&parent) {
            dir.files.insert(attr.ino, *attr);
            let home = self.homes.insert(attr.ino, parent).filter(|home| *home != parent);
            // A file that had several names, and has one now, may be in another directory than
            // before.
            if let Some(dir) = home.and_then(|home| self.dirs.get_mut(&home)) {
                dir.files.remove(&attr.ino);
            }
        }
    }

    fn list(
        &mut self,
        dir: Ino,
        after: Option<Box<[u8]>>,
        entries: &[(Vec<u8>, Attr)],
        more: bool,
        inode: bool,
    ) {
        for (name, attr) in entries {
            let inode = inode && !attr.is_dir() && attr.nlink == 1;
            self.learn(dir, name.as_slice().into(), attr, inode);
        }
        let Some(dir) = self.dirs.get_mut(&dir) else { return };
        // Only a listing from the start to the end, all of it while the capability was held.
        let goes_on = after.is_none() || after == dir.listed;
        let last = entries.last().map(|(name, _)| name.as_slice().into());
        dir.listed = last.or(after).filter(|_| goes_on && more);
        dir.complete |= goes_on && !more;
    }

    /// Whether a directory is to be listed: many names were asked for in vain, one by one.
    pub(crate) fn is_worth_listing(&mut self, ino: Ino) -> bool {
        let Some(dir) = self.dirs.get_mut(&ino) else { return false };
        let entries = dir.attr.map_or(u64::MAX, |attr| attr.size);
        let worth = !dir.complete
            && dir.missed >= MISSES_MIN
            && entries <= NAMES_MAX as u64 / 4
            && entries / ENTRIES_PER_MISS <= dir.missed;
        if worth {
            // Once: a client without the right to list the directory must not retry for ever.
            dir.missed = 0;
        }
        worth
    }

    fn set(&mut self, parent: Ino, name: Box<[u8]>, ino: Option<Ino>) {
        let Some(dir) = self.dirs.get_mut(&parent) else { return };
        self.names += usize::from(dir.names.insert(name, ino).is_none());
    }

    /// Nothing is known of a name any more.
    fn unset(&mut self, parent: Ino, name: &[u8]) {
        let Some(dir) = self.dirs.get_mut(&parent) else { return };
        self.names -= usize::from(dir.names.remove(name).is_some());
        dir.complete = false;
        dir.listed = None;
    }

    /// The attributes of an inode have changed, or the server is to be asked for them.
    pub(crate) fn drop_attr(&mut self, ino: Ino) {
        if ino == ANY {
            self.homes.clear();
            for dir in self.dirs.values_mut() {
                dir.attr = None;
                dir.files.clear();
            }
            return;
        }
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.attr = None;
        }
        if let Some(home) = self.homes.remove(&ino)
            && let Some(dir) = self.dirs.get_mut(&home)
        {
            dir.files.remove(&ino);
        }
    }

    /// A change of the client's own is done, or was refused.
    fn changed(
        &mut self,
        kind: Kind,
        inos: [Option<Ino>; 2],
        places: [Option<Place>; 2],
        result: &Result<Answer, Failure>,
        grants: Option<Grants>,
    ) {
        let before = places.each_ref().map(|at| {
            let (parent, name) = at.as_ref()?;
            self.named(*parent, name)
        });
        let parents = places.iter().flatten().map(|(parent, _)| *parent);
        let moved = self.moved(kind, &places);
        for ino in inos.iter().flatten().copied().chain(parents).chain(moved) {
            self.drop_attr(ino);
        }
        // The reply has the present state of a directory.
        if let Some(Grants { dir, .. }) = grants {
            self.dirs.entry(dir.ino).or_default().attr = Some(dir);
        }
        let (Ok(answer), Some(grants)) = (result, grants) else {
            // The capability may have been revoked, and granted again, since the request took
            // effect.
            for (parent, name) in places.iter().flatten() {
                self.unset(*parent, name);
            }
            return;
        };
        match (kind, places) {
            (Kind::Create, [Some((parent, name)), _]) => {
                let Answer::Attr(attr) = answer else { return };
                self.learn(parent, name, attr, grants.inode);
                if attr.is_dir()
                    && grants.inode
                    && let Some(dir) = self.dirs.get_mut(&attr.ino)
                {
                    // A new directory is empty, and only this client can reach it.
                    dir.complete = true;
                }
            }
            (Kind::Link(ino), [Some((parent, name)), _]) => self.set(parent, name, Some(ino)),
            (Kind::Remove, [Some((parent, name)), _]) => self.set(parent, name, None),
            (Kind::Rename { exchange }, [Some((from, old)), Some((to, new))]) => {
                self.renamed(exchange, (from, old), (to, new), before);
            }
            _ => {}
        }
    }

    fn renamed(
        &mut self,
        exchange: bool,
        (from, old): Place,
        (to, new): Place,
        [moved, other]: [Option<Ino>; 2],
    ) {
        match moved {
            Some(_) if (from, &old) == (to, &new) => {}
            Some(_) if exchange && other.is_none() => {
                self.unset(from, &old);
                self.unset(to, &new);
            }
            // Two names of one file: nothing happened.
            Some(_) if moved == other => {}
            Some(_) => {
                self.set(from, old, if exchange { other } else { None });
                self.set(to, new, moved);
            }
            None => {
                self.unset(from, &old);
                self.unset(to, &new);
            }
        }
    }

    /// Another client may now change a directory.
    pub(crate) fn forget(&mut self, ino: Ino) {
        let Some(dir) = self.dirs.remove(&ino) else { return };
        assert!(self.names >= dir.names.len(), "{ino}: cached names are counted");
        self.names -= dir.names.len();
        for file in dir.files.keys() {
            self.homes.remove(file);
        }
    }

    /// Everything is: the connection is gone.
    pub(crate) fn clear(&mut self) {
        self.dirs.clear();
        self.homes.clear();
        self.names = 0;
    }

    /// Empties the cache if it has become too large. Returns the capabilities to return.
    pub(crate) fn shrink(&mut self) -> Vec<Ino> {
        if self.names <= NAMES_MAX && self.dirs.len() <= DIRS_MAX {
            return Vec::new();
        }
        self.give_back()
    }

    /// Empties the cache. Returns the capabilities to return.
    pub(crate) fn give_back(&mut self) -> Vec<Ino> {
        let held = self.dirs.keys().copied().collect();
        self.clear();
        held
    }
}

/// Follows a path whose directories are all cached: `look` finds the inode of a name.
pub(crate) fn walk(
    base: Ino,
    path: &[u8],
    look: impl Fn(Ino, &[u8]) -> Option<Result<Option<Ino>, Errno>>,
    attr: impl Fn(Ino) -> Option<Attr>,
) -> Option<Result<Answer, Failure>> {
    // The server reports faults of the path as a whole first.
    let path = Path::parse(path).ok()?;
    let mut names = path.components().peekable();
    let (mut parent, mut at) = (base, base);
    while let Some(name) = names.next() {
        let found = match look(at, name)? {
            Ok(found) => found,
            Err(errno) => return Some(Err(errno.into())),
        };
        parent = at;
        match (found, names.peek()) {
            (Some(ino), _) => at = ino,
            (None, None) => return Some(Ok(Answer::Walked { parent, attr: None })),
            (None, Some(_)) => return Some(Err(Errno::NotFound.into())),
        }
    }
    let attr = Some(attr(at)?);
    Some(Ok(Answer::Walked { parent, attr }))
}

#[cfg(test)]
mod tests;
