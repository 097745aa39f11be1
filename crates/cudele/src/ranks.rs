//! Several metadata servers: which of them a request is for.
//!
//! A client has one link, and so one session, for each rank that it asks. Its first guess is that
//! the rank that allocated an inode number serves the inode, which is right for every inode that
//! did not move. The answers of servers ([`Elsewhere`]) correct wrong guesses (B-02). A request
//! goes to another rank only after a rank has answered that it did not execute the request and will
//! not.
//!
//! While only rank 0 was heard of, all of this costs two comparisons for a request.

mod across;
mod link;
mod links;
mod pinned;
mod reclaim;
mod remove;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::{ClientId, Cred, Epoch, Errno, Error, Ino, Map, Rank, Result};
use wire::{Answer, Elsewhere, Op, WantsExclusive};

use crate::link::Link;
use crate::{Fs, ServerNotice};

pub(crate) use links::{listen_on, tell_on};
pub use pinned::Pinned;

/// How long a rank that is to serve a subtree may take to notice that.
const NOTICE_WITHIN: Duration = Duration::from_millis(300);
const RETRY: Duration = Duration::from_millis(5);
/// A request asks at least so many ranks before it fails: its subtree may move in that time.
const HOPS_MAX: usize = 64;
/// The time within which the ranks of a move agree on the server of a subtree.
const AGREE_WITHIN: Duration = Duration::from_secs(10);
/// The bits of a term; the bits above hold its rank.
const TERM_BITS: u32 = 48;
/// The number of moved inodes whose rank is remembered.
const PLACES_MAX: usize = 1 << 20;

pub(crate) type Handler = Arc<Mutex<Box<dyn FnMut(ServerNotice) + Send>>>;

/// The state of the ranks other than 0.
#[derive(Default)]
pub(crate) struct Ranks {
    /// Whether anything was found on another rank.
    several: AtomicBool,
    /// Requests that were sent on to another rank.
    redirected: AtomicU64,
    pub(crate) fragments: crate::fragments::KnownFragments,
    known: Mutex<Known>,
    /// Held while open files move from one session to another.
    carrying: Mutex<()>,
}

#[derive(Default)]
struct Known {
    links: BTreeMap<Rank, Arc<Link>>,
    places: Map<Ino, Rank>,
    handler: Option<Handler>,
    /// The handler drops notices: a listener replaces it.
    handler_is_idle: bool,
    wants_alone: WantsExclusive,
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks").field("several", &self.several).finish_non_exhaustive()
    }
}

impl Ranks {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler of notices: the first one that does more than drop them.
    pub(crate) fn handled_by(&self, handler: impl FnMut(ServerNotice) + Send + 'static) -> Handler {
        let mut state = self.lock();
        let is_idle = std::mem::take(&mut state.handler_is_idle);
        if let Some(known) = &state.handler {
            if is_idle {
                *known.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(handler);
            }
            return known.clone();
        }
        let handler: Handler = Arc::new(Mutex::new(Box::new(handler)));
        state.handler.insert(handler).clone()
    }

    /// Notices are heard from now on, if only by the session.
    pub(crate) fn handled_by_nobody(&self) -> Handler {
        let mut state = self.lock();
        if let Some(known) = &state.handler {
            return known.clone();
        }
        state.handler_is_idle = true;
        state.handler.insert(Arc::new(Mutex::new(Box::new(|_| {})))).clone()
    }

    pub(crate) fn want_alone(&self, wants: WantsExclusive) {
        self.lock().wants_alone = wants;
    }

    fn set_place(&self, ino: Ino, rank: Rank) {
        let mut known = self.lock();
        if ino.given_by() == rank {
            known.places.remove(&ino);
            return;
        }
        if known.places.len() >= PLACES_MAX {
            known.places.clear();
        }
        known.places.insert(ino, rank);
    }

    /// The links to other ranks than 0.
    pub(crate) fn others(&self) -> Vec<Arc<Link>> {
        if !self.several.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.lock().links.values().cloned().collect()
    }
}

impl Fs {
    /// The number of requests that a server referred to another rank.
    #[must_use]
    pub fn redirected(&self) -> u64 {
        self.ranks.redirected.load(Ordering::Relaxed)
    }

    /// The rank that serves an inode, as far as this client has heard.
    #[must_use]
    pub fn rank_of(&self, ino: Ino) -> Rank {
        self.place(ino)
    }

    /// The link to the rank that serves an inode.
    pub(crate) fn link_of(&self, ino: Ino) -> Arc<Link> {
        let rank = self.place(ino);
        self.link_to(rank).unwrap_or_else(|_| self.shared_link())
    }

    fn place(&self, ino: Ino) -> Rank {
        let given_by = ino.given_by();
        if !self.ranks.several.load(Ordering::Acquire) {
            return given_by;
        }
        self.ranks.lock().places.get(&ino).copied().unwrap_or(given_by)
    }

    fn link_to(&self, rank: Rank) -> Result<Arc<Link>> {
        self.ranks.link_to(&self.link, rank)
    }

    /// Requests that were sent on are counted.
    pub(crate) fn note_redirected(&self) {
        self.ranks.redirected.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes a request of the rank that serves the directory that it names, split or not.
    pub(crate) fn request_whole(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        match self.request_one(cred, op) {
            Err(error) => self.across(cred, &op, error),
            answer => answer,
        }
    }

    fn request_one(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        let several = self.ranks.several.load(Ordering::Acquire);
        if !several && named(&op).is_none_or(|ino| ino.given_by() == Rank(0)) {
            return match self.request_of(self.link(), cred, op) {
                Ok(Answer::Elsewhere(elsewhere)) => {
                    self.request_ranked(cred, op, &[], Some(*elsewhere))
                }
                Err(error) if error.errno == Errno::Stale && is_of_subtree(&op) => {
                    // Another rank may have it, of which nothing was heard yet.
                    if !self.ranks_are_several()? {
                        return Err(error);
                    }
                    self.request_ranked(cred, op, &[], None)
                }
                answer => answer,
            };
        }
        self.request_ranked(cred, op, &[], None)
    }

    /// A request that is followed by a journal in chunks.
    pub(crate) fn call_with_chunks(&self, op: Op<'_>, chunks: &[&[u8]]) -> Result<Answer> {
        self.request_ranked(self.cred(), op, chunks, None)
    }

    /// Whether the cluster has more than one rank.
    pub(crate) fn ranks_are_several(&self) -> Result<bool> {
        Ok(self.cluster().status()?.mds.len() > 1)
    }

    /// The term and the rank of the server of a directory: while it is the same, no server was
    /// restarted.
    pub(crate) fn term_at(&self, dir: Ino) -> Epoch {
        let rank = self.place(dir);
        let link = self.link_of(dir);
        let mut epoch = link.lock().session.epoch();
        if epoch == Epoch(0) && link.request(self.cred(), Op::Sync, &[]).is_ok() {
            epoch = link.lock().session.epoch();
        }
        Epoch(epoch.0 | u64::from(rank.0) << TERM_BITS)
    }

    /// The client that has decoupled a subtree with this root, or received this inode number with
    /// one, by the answers of all ranks; 0 for none.
    pub(crate) fn holder(&self, ino: Ino) -> Result<ClientId> {
        let ranks = self.cluster().status()?.mds.into_iter().map(|entry| entry.rank);
        for rank in ranks {
            let answer = self.link_to(rank)?.request(self.cred(), Op::Held { ino }, &[])?;
            let bytes = crate::fs::bytes_answer(answer)?;
            // A malformed answer counts as a client.
            let holder = bytes.try_into().map_or(u64::MAX, u64::from_le_bytes);
            if holder != 0 {
                return Ok(ClientId(holder));
            }
        }
        Ok(ClientId(0))
    }

    /// Asks one rank after the other, until one executes the request.
    fn request_ranked(
        &self,
        cred: &Cred,
        op: Op<'_>,
        chunks: &[&[u8]],
        mut told: Option<Elsewhere>,
    ) -> Result<Answer> {
        if matches!(op, Op::Sync | Op::Checkpoint) {
            for link in self.ranks.others() {
                match link.request(cred, op, &[]) {
                    // The rank was removed, and everything it had is in the store.
                    Err(error) if error.errno == Errno::Stale && self.forget_removed()? => {}
                    answer => drop(answer?),
                }
            }
        }
        let mut rank = named(&op).map_or(Rank(0), |ino| self.place(ino));
        // A number names the rank that allocated it, which may have been removed.
        let mut asked = Vec::new();
        let mut told_at = None;
        let mut visited = std::collections::BTreeSet::from([rank]);
        let (start, mut hops) = (Instant::now(), 0);
        while hops < HOPS_MAX || start.elapsed() < AGREE_WITHIN {
            hops += 1;
            if let Some(elsewhere) = told.take() {
                self.ranks.redirected.fetch_add(1, Ordering::Relaxed);
                if elsewhere.root != Ino(0) && matches!(op, Op::Export { .. }) {
                    self.set_place(elsewhere.root, elsewhere.rank);
                    return Ok(Answer::Elsewhere(Box::new(elsewhere)));
                }
                if elsewhere.root != Ino(0) {
                    return self.follow(cred, op, elsewhere);
                }
                if !visited.insert(elsewhere.rank) {
                    // The inode moved on: the receiving rank may not know yet.
                    std::thread::sleep(RETRY);
                }
                rank = elsewhere.rank;
                // The rank learns of open files before this request changes the file.
                self.note_found(&op, rank, true);
                told_at = Some(Instant::now());
                asked.clear();
            }
            let result = match self.link_to(rank) {
                Ok(link) if chunks.is_empty() => self.request_of(&link, cred, op),
                Ok(link) => link.request(cred, op, chunks),
                Err(error) => Err(error),
            };
            match result {
                Ok(Answer::Elsewhere(elsewhere)) => told = Some(*elsewhere),
                Err(error) if error.errno == Errno::Stale && named(&op).is_some() => {
                    // A rank referred to this one a moment ago, which may not know yet.
                    if told_at.is_some_and(|at| at.elapsed() < NOTICE_WITHIN) {
                        std::thread::sleep(RETRY);
                        continue;
                    }
                    if let Some(other) = second(&op)
                        && self.request_ranked(cred, Op::GetAttr { ino: other }, &[], None).is_ok()
                        && self.place(other) != rank
                    {
                        let cause = "the two are served by different metadata servers";
                        return Err(Error::new(Errno::CrossDevice, op.name(), cause));
                    }
                    asked.push(rank);
                    match self.next_rank(&asked)? {
                        Some(next) => rank = next,
                        None => return Err(error),
                    }
                }
                Ok(answer) => {
                    self.note_found(&op, rank, !asked.is_empty());
                    self.learn(rank, &answer);
                    return Ok(answer);
                }
                Err(error) => return Err(error),
            }
        }
        let cause = "every metadata server says that another one serves it";
        Err(Error::new(Errno::Io, op.name(), cause).remedy("`cudele mds ls` shows who serves what"))
    }

    /// Forgets the ranks that the cluster has no more. Says whether there was one.
    fn forget_removed(&self) -> Result<bool> {
        let ranks = self.cluster().status()?.mds;
        let is_there = |rank: &Rank| ranks.iter().any(|entry| entry.rank == *rank);
        let mut known = self.ranks.lock();
        let before = known.links.len();
        known.links.retain(|rank, _| is_there(rank));
        known.places.retain(|_, rank| is_there(rank));
        Ok(known.links.len() < before)
    }

    /// A rank that was not asked yet.
    fn next_rank(&self, asked: &[Rank]) -> Result<Option<Rank>> {
        let ranks = self.cluster().status()?.mds.into_iter().map(|entry| entry.rank);
        Ok(ranks.into_iter().find(|rank| !asked.contains(rank)))
    }

    /// Continues a walk below the root of a subtree of another rank.
    fn follow(&self, cred: &Cred, op: Op<'_>, elsewhere: Elsewhere) -> Result<Answer> {
        let Elsewhere { rank, root, parent, rest } = elsewhere;
        self.set_place(root, rank);
        self.ranks.several.store(true, Ordering::Release);
        if matches!(op, Op::Walk { .. }) && !rest.is_empty() {
            return self.request_ranked(cred, Op::Walk { base: root, path: &rest }, &[], None);
        }
        let answer = self.request_ranked(cred, Op::GetAttr { ino: root }, &[], None)?;
        match (op, answer) {
            (Op::Walk { .. }, Answer::Attr(attr)) => {
                Ok(Answer::Walked { parent, attr: Some(attr) })
            }
            (_, answer) => Ok(answer),
        }
    }

    /// Notes the rank of the subject of a request.
    fn note_place(&self, op: &Op<'_>, rank: Rank) {
        if let Some(ino) = named(op) {
            self.set_place(ino, rank);
        }
    }

    /// As [`Fs::note_place`]; with `is_news`, another rank was expected.
    fn note_found(&self, op: &Op<'_>, rank: Rank, is_news: bool) {
        self.note_place(op, rank);
        if is_news && let Some(ino) = named(op) {
            self.reclaim_found(ino, rank);
        }
    }

    pub(crate) fn set_place(&self, ino: Ino, rank: Rank) {
        self.ranks.set_place(ino, rank);
    }

    /// Notes the rank of the inodes in an answer.
    fn learn(&self, rank: Rank, answer: &Answer) {
        let learn = |ino: Ino| {
            if ino.given_by() != rank {
                self.set_place(ino, rank);
            }
        };
        if let Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. } = answer {
            self.set_place(attr.ino, rank);
        }
        // The rank with a name of a split directory may not have the directory.
        if let Answer::Walked { parent, .. } = answer
            && !self.ranks.fragments.is_split(*parent)
        {
            learn(*parent);
        }
        if let Answer::Entries { entries, .. } = answer {
            entries.iter().for_each(|(_, attr)| learn(attr.ino));
        }
    }
}

/// The other directory, or the inode, that a request is about.
pub(crate) fn second(op: &Op<'_>) -> Option<Ino> {
    if let Op::Rename { parent, new_parent, .. } = *op {
        (parent != new_parent).then_some(new_parent)
    } else if let Op::Link { ino, .. } = *op {
        Some(ino)
    } else {
        None
    }
}

/// The inode that decides which rank a request is for.
pub(crate) fn named(op: &Op<'_>) -> Option<Ino> {
    match *op {
        Op::Lookup { parent, .. }
        | Op::Create { parent, .. }
        | Op::Link { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::WriteDown { parent, .. }
        | Op::Rename { parent, .. } => Some(parent),
        Op::Walk { base: ino, .. }
        | Op::GetAttr { ino }
        | Op::SetAttr { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::GetXattr { ino, .. }
        | Op::ListXattr { ino }
        | Op::SetXattr { ino, .. }
        | Op::GetData { ino }
        | Op::SetData { ino, .. }
        | Op::List { dir: ino, .. }
        | Op::GetPolicy { dir: ino }
        | Op::Open { ino, .. }
        | Op::Close { ino, .. }
        | Op::Reopen { ino, .. }
        | Op::Yield { ino }
        | Op::Grow { ino, .. }
        | Op::Append { ino, .. }
        | Op::Lock { ino, .. }
        | Op::CancelLock { ino, .. }
        | Op::GetLock { ino, .. }
        | Op::Export { dir: ino, .. }
        | Op::Gather { ino, .. }
        | Op::Split { dir: ino }
        | Op::Join { dir: ino }
        | Op::Depart { parent: ino, .. }
        | Op::Arrive { dir: ino, .. }
        | Op::Passed { dir: ino, .. }
        | Op::Snapshot { dir: ino, .. }
        | Op::Return { dir: ino } => Some(ino),
        Op::Extend { subtree, .. }
        | Op::Merge { subtree, .. }
        | Op::Release { subtree, .. }
        | Op::TakeOver { subtree } => Some(subtree),
        // Requests about a path or a branch go to rank 0; the rest is about no inode.
        Op::Held { .. }
        | Op::Sync
        | Op::Settle
        | Op::Checkpoint
        | Op::SetPolicy { .. }
        | Op::Decouple { .. }
        | Op::Adopt { .. } => None,
    }
}

/// Whether a server was restarted between two terms. The state of a subtree is stored before it
/// moves to another rank.
pub(crate) fn is_restarted(before: Epoch, now: Epoch) -> bool {
    before != now && before.0 >> TERM_BITS == now.0 >> TERM_BITS
}

/// Whether a request is about a decoupled subtree as a whole.
fn is_of_subtree(op: &Op<'_>) -> bool {
    matches!(op, Op::Extend { .. } | Op::Merge { .. } | Op::Release { .. } | Op::TakeOver { .. })
}
