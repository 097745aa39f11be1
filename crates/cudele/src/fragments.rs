//! Directories that are split by the hashes of their names (B-04): finds the fragment for a
//! request, and joins the answers of all fragments.
//!
//! Callers name the directory only. The client learns its fragments from the answers of servers
//! ([`client::FragmentMap`]). While no directory is known to be split, a request costs one
//! comparison more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::FragmentMap;
use types::{Attr, AttrChange, Cred, Errno, Error, Ino, Rank, Result};
use wire::{Answer, Fragments, Op};

use crate::Fs;
use crate::fs::unexpected;

/// How often one request may find out that something was split or joined since.
const TRIES_MAX: usize = 64;
/// How long fragments that came back may take to be served, once there is no other to wait for.
const ARRIVE_WITHIN: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_millis(5);

/// The known fragments of split directories.
#[derive(Debug, Default)]
pub(crate) struct KnownFragments {
    /// Whether anything is.
    any: AtomicBool,
    map: Mutex<FragmentMap>,
}

impl KnownFragments {
    fn lock(&self) -> MutexGuard<'_, FragmentMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aim<'a>(&self, op: Op<'a>) -> Op<'a> {
        if self.any.load(Ordering::Acquire) { self.lock().aim(op) } else { op }
    }

    /// Whether a directory is known to be split.
    pub(crate) fn is_split(&self, dir: Ino) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().parts(dir).is_some()
    }

    /// Forgets the fragments of each directory with one of these. Returns whether there were any.
    fn forget_parts(&self, parts: impl IntoIterator<Item = Ino>) -> bool {
        let mut map = self.lock();
        let mut any = false;
        for part in parts {
            any |= map.whole_of(part).is_some() && map.forget(part);
        }
        any
    }
}

impl Fs {
    /// Splits a directory, or a fragment of one, into eight fragments by the hashes of its names,
    /// while clients work there, and moves them to these ranks in turn; without ranks they stay. A
    /// split directory keeps its fragments and their fragments, which move to the ranks.
    ///
    /// # Errors
    /// `EBUSY` with the reason if the directory cannot be split; `EPERM` except for root and the
    /// owner of the namespace; the errors of [`Fs::pin`].
    pub fn split(&self, dir: Ino, ranks: &[Rank]) -> Result<()> {
        let until = Instant::now() + ARRIVE_WITHIN;
        while let Err(error) = self.call(Op::Split { dir }) {
            // The server splits or moves another directory.
            if error.errno != Errno::Again || Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(RETRY);
        }
        let parts = self.all_fragments(dir)?;
        for ((part, at), rank) in parts.into_iter().zip(ranks.iter().cycle()) {
            if at != *rank {
                self.pin(part, *rank)?;
            }
        }
        Ok(())
    }

    /// Joins the fragments of a directory while clients work there. Fragments on other ranks return
    /// first.
    ///
    /// # Errors
    /// `EBUSY` with the reason if they cannot be joined; `EPERM` except for root and the owner of
    /// the namespace, unless the directory is empty.
    pub fn join(&self, dir: Ino) -> Result<()> {
        let (mut waits, mut until) = (usize::MAX, Instant::now());
        loop {
            let parts = self.fragments(dir)?;
            let home = self.rank_of(dir);
            let elsewhere = parts.iter().filter(|(_, rank)| *rank != home).count();
            if elsewhere != waits {
                (waits, until) = (elsewhere, Instant::now() + ARRIVE_WITHIN);
            }
            let joined = self.bring_back(dir, parts).and_then(|()| self.call(Op::Join { dir }));
            // Where fragments are may be out of date, or they are still on their way.
            let early = |errno| matches!(errno, Errno::Again | Errno::Stale);
            match joined {
                Err(error) if early(error.errno) && Instant::now() < until => {
                    std::thread::sleep(RETRY);
                }
                result => {
                    self.ranks.fragments.lock().forget(dir);
                    return result.map(drop);
                }
            }
        }
    }

    /// Has the fragments of a directory served where the directory is, each in one piece.
    fn bring_back(&self, dir: Ino, parts: Vec<(Ino, Rank)>) -> Result<()> {
        let home = self.rank_of(dir);
        for (part, rank) in parts {
            if !self.fragments(part)?.is_empty() {
                self.join(part)?;
            }
            if rank != home {
                self.pin(part, home)?;
            }
        }
        Ok(())
    }

    /// The hidden directories with the names of a split directory, in the order of hashes, each
    /// with its rank; none if it is not split.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn fragments(&self, dir: Ino) -> Result<Vec<(Ino, Rank)>> {
        let answer = self.request_whole(self.cred(), Op::GetAttr { ino: dir })?;
        let Answer::Fragments(fragments) = answer else { return Ok(Vec::new()) };
        self.note_fragments(&fragments);
        Ok(fragments.parts.to_vec())
    }

    /// The fragments of a directory that are not split themselves.
    fn all_fragments(&self, dir: Ino) -> Result<Vec<(Ino, Rank)>> {
        let mut leaves = Vec::new();
        for (part, rank) in self.fragments(dir)? {
            let inner = self.all_fragments(part)?;
            if inner.is_empty() {
                leaves.push((part, rank));
            }
            leaves.extend(inner);
        }
        Ok(leaves)
    }

    /// Sends a request to the rank and the fragment of its subject.
    pub(crate) fn request(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        if self.ranks.fragments.any.load(Ordering::Acquire) {
            return self.request_fragment(cred, op, None);
        }
        let answer = self.request_whole(cred, op)?;
        if let Answer::Fragments(told) = answer {
            return self.request_fragment(cred, op, Some(*told));
        }
        self.completed(cred, &op, answer)
    }

    fn note_fragments(&self, fragments: &Fragments) {
        self.ranks.fragments.lock().note(fragments);
        self.ranks.fragments.any.store(true, Ordering::Release);
        for (part, rank) in fragments.parts {
            self.set_place(part, rank);
        }
    }

    fn request_fragment(
        &self,
        cred: &Cred,
        op: Op<'_>,
        mut told: Option<Fragments>,
    ) -> Result<Answer> {
        for _ in 0..TRIES_MAX {
            let aimed = self.ranks.fragments.aim(op);
            if let Some(fragments) = told.take() {
                self.note_redirected();
                self.note_fragments(&fragments);
                let dir = fragments.attr.ino;
                if op == (Op::GetAttr { ino: dir }) {
                    return self.add_up(cred, &fragments);
                }
                if matches!(op, Op::Walk { .. }) {
                    let op = Op::Walk { base: dir, path: &fragments.rest };
                    return self.request_fragment(cred, op, None);
                }
                let removes = matches!(op, Op::Rmdir { .. } | Op::Rename { .. });
                if removes && places_of(&aimed).all(|it| it != dir) {
                    self.join_empty(cred, dir)?;
                }
                continue;
            }
            if let Op::List { dir, after, limit, attrs } = op {
                let after = after.map(<[u8]>::to_vec);
                let answer = self.list_fragments(cred, (dir, after), limit, attrs)?;
                return self.completed(cred, &op, answer);
            }
            match self.request_whole(cred, aimed) {
                Ok(Answer::Fragments(fragments)) => told = Some(*fragments),
                Ok(answer) => {
                    self.set_times(cred, &op)?;
                    return self.completed(cred, &op, answer);
                }
                // The directory was put together.
                Err(error)
                    if error.errno == Errno::Stale
                        && self.ranks.fragments.forget_parts(places_of(&aimed)) => {}
                Err(error) => return Err(error),
            }
        }
        let cause = "a directory is split and joined all the time";
        Err(Error::new(Errno::Io, op.name(), cause))
    }

    /// Attributes of directories that are split are those of their fragments together.
    fn completed(&self, cred: &Cred, op: &Op<'_>, mut answer: Answer) -> Result<Answer> {
        let wants = !matches!(op, Op::List { attrs: false, .. } | Op::WriteDown { .. });
        if let Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. } = &mut answer
            && wants
        {
            self.complete(cred, attr)?;
        }
        if let Answer::Entries { entries, .. } = &mut answer
            && wants
        {
            for (_, attr) in entries {
                self.complete(cred, attr)?;
            }
        }
        Ok(answer)
    }

    /// For an empty list there is no link: the answer of the server names the fragments.
    #[inline]
    fn complete(&self, cred: &Cred, attr: &mut Attr) -> Result<()> {
        if attr.nlink != 0 || !attr.is_dir() {
            return Ok(());
        }
        match self.request(cred, Op::GetAttr { ino: attr.ino }) {
            Ok(Answer::Attr(whole)) => *attr = whole,
            // It was removed since.
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => {}
            Ok(answer) => return Err(unexpected(&answer)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add_up(&self, cred: &Cred, fragments: &Fragments) -> Result<Answer> {
        let mut whole = Attr { size: 0, nlink: 2, ..fragments.attr };
        for (part, _) in fragments.parts {
            let answer = match self.request(cred, Op::GetAttr { ino: part }) {
                // The directory was joined, or split again, during the request.
                Err(error) if error.errno == Errno::Stale => {
                    self.ranks.fragments.lock().forget(whole.ino);
                    return self.request(cred, Op::GetAttr { ino: whole.ino });
                }
                answer => answer?,
            };
            let Answer::Attr(attr) = answer else { return Err(unexpected(&answer)) };
            whole.size += attr.size;
            whole.nlink += attr.nlink.saturating_sub(2);
            whole.mtime = whole.mtime.max(attr.mtime);
            whole.ctime = whole.ctime.max(attr.ctime);
            whole.atime = whole.atime.max(attr.atime);
        }
        Ok(Answer::Attr(whole))
    }

    /// Sets the times of all fragments, because the answer is the latest time of any.
    fn set_times(&self, cred: &Cred, op: &Op<'_>) -> Result<()> {
        let Op::SetAttr { ino, ref change } = *op else { return Ok(()) };
        let Some(parts) = self.ranks.fragments.lock().parts(ino) else { return Ok(()) };
        if change.mtime.is_none() && change.atime.is_none() {
            return Ok(());
        }
        let (mtime, atime) = (change.mtime, change.atime);
        let change = AttrChange { mtime, atime, ..AttrChange::default() };
        for part in parts {
            self.request(cred, Op::SetAttr { ino: part, change })?;
        }
        Ok(())
    }

    /// Lists a directory through its fragments, which together are in the order of one directory.
    fn list_fragments(
        &self,
        cred: &Cred,
        (dir, mut after): (Ino, Option<Vec<u8>>),
        limit: u32,
        attrs: bool,
    ) -> Result<Answer> {
        let mut all = Vec::new();
        // The fragment that is to be listed from its start.
        let mut next = None;
        for _ in 0..usize::MAX {
            let limit = limit.saturating_sub(u32::try_from(all.len()).unwrap_or(u32::MAX));
            let from = after.as_deref().filter(|_| next.is_none());
            let mut op = Op::List { dir, after: from, limit, attrs };
            op = match next {
                Some(leaf) => Op::List { dir: leaf, after: None, limit, attrs },
                None => self.ranks.fragments.aim(op),
            };
            let Op::List { dir: leaf, .. } = op else { break };
            match self.request_whole(cred, op) {
                Ok(Answer::Entries { entries, more }) => {
                    if let Some((last, _)) = entries.last() {
                        after = Some(last.clone());
                    }
                    all.extend(entries);
                    next =
                        if more { None } else { self.ranks.fragments.lock().leaf_after(dir, leaf) };
                    let done = !more && next.is_none();
                    if done || all.len() >= limit as usize {
                        return Ok(Answer::Entries { entries: all, more: !done });
                    }
                }
                Ok(Answer::Fragments(fragments)) => {
                    self.note_redirected();
                    self.note_fragments(&fragments);
                    next = next.map(|leaf| self.ranks.fragments.lock().leaves(leaf)[0]);
                }
                Err(error)
                    if error.errno == Errno::Stale && self.ranks.fragments.forget_parts([leaf]) =>
                {
                    next = None;
                }
                Ok(answer) => return Err(unexpected(&answer)),
                Err(error) => return Err(error),
            }
        }
        Err(Error::of(Errno::Io, "list"))
    }

    /// A directory that is to be removed is put together, if it has no names.
    fn join_empty(&self, cred: &Cred, dir: Ino) -> Result<()> {
        let answer = self.request(cred, Op::GetAttr { ino: dir })?;
        let Answer::Attr(attr) = answer else { return Err(unexpected(&answer)) };
        if attr.size != 0 {
            return Err(Error::of(Errno::NotEmpty, "directory"));
        }
        self.join(dir)
    }
}

/// The directories that have the names that a request is about.
fn places_of(op: &Op<'_>) -> impl Iterator<Item = Ino> {
    let first = if let Op::Lookup { parent: dir, .. }
    | Op::Create { parent: dir, .. }
    | Op::Link { parent: dir, .. }
    | Op::Unlink { parent: dir, .. }
    | Op::Rmdir { parent: dir, .. }
    | Op::Rename { parent: dir, .. }
    | Op::WriteDown { parent: dir, .. }
    | Op::Walk { base: dir, .. } = *op
    {
        Some(dir)
    } else {
        None
    };
    let second = if let Op::Rename { new_parent, .. } = *op { Some(new_parent) } else { None };
    first.into_iter().chain(second)
}
