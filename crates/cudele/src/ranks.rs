//! Several metadata servers: carries out the decisions of [`client::Router`].
//!
//! A client has one link, and so one session, for each rank that it asks. The router decides which
//! rank a request is for, and the steps after each answer. While this client knows of rank 0 only,
//! a request costs two comparisons and does not lock the router.

mod links;
mod pinned;
mod reclaim;
mod remove;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::{Route, RouteEffect, RouteInput, Router};
use types::{ClientId, Cred, Epoch, Ino, Rank, Result};
use wire::{Answer, Op, SessionOp, WantsExclusive};

use crate::link::Link;
use crate::{Fs, ServerNotice};

pub(crate) use links::{lend_on, listen_on, send_async_on};
pub use pinned::PinnedSubtree;

pub(crate) type Handler = Arc<Mutex<Box<dyn FnMut(ServerNotice) + Send>>>;

/// The state of the ranks other than 0.
#[derive(Default)]
pub(crate) struct Ranks {
    /// [`Router::is_several`], readable without the lock.
    several: AtomicBool,
    /// [`Router::is_needed`], readable without the lock.
    routed: AtomicBool,
    known: Mutex<Known>,
    /// Held while open files move from one session to another.
    reclaiming: Mutex<()>,
}

#[derive(Default)]
struct Known {
    router: Router,
    links: BTreeMap<Rank, Arc<Link>>,
    handler: Option<Handler>,
    /// The handler drops notices: a listener replaces it.
    handler_is_idle: bool,
    wants_exclusive: WantsExclusive,
    /// Answers are passed on to a kernel.
    lends: bool,
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

    pub(crate) fn want_exclusive(&self, wants: WantsExclusive) {
        self.lock().wants_exclusive = wants;
    }

    pub(crate) fn lend(&self) {
        self.lock().lends = true;
    }

    /// The link to the rank that serves an inode, if there is one.
    pub(crate) fn present_link(&self, zero: &Arc<Link>, ino: Ino) -> Option<Arc<Link>> {
        if !self.several.load(Ordering::Acquire) {
            return (ino.given_by() == Rank(0)).then(|| zero.clone());
        }
        let known = self.lock();
        let rank = known.router.place(ino);
        if rank == Rank(0) { Some(zero.clone()) } else { known.links.get(&rank).cloned() }
    }

    fn note_moved(&self, files: &[Ino], to: Rank) {
        self.lock().router.note_moved(files, to);
    }

    fn set_place(&self, ino: Ino, rank: Rank) {
        self.lock().router.set_place(ino, rank);
    }

    /// The next effect of a route, after the result of the last one.
    fn handle<'a>(&self, route: &'a mut Route, op: &Op<'a>, input: RouteInput) -> RouteEffect<'a> {
        let mut known = self.lock();
        let effect = route.handle(&mut known.router, crate::moment(), op, input);
        self.publish(&known.router);
        effect
    }

    fn publish(&self, router: &Router) {
        self.several.store(router.is_several(), Ordering::Release);
        self.routed.store(router.is_needed(), Ordering::Release);
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
        self.ranks.lock().router.redirected()
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
        if !self.ranks.several.load(Ordering::Acquire) {
            return ino.given_by();
        }
        self.ranks.lock().router.place(ino)
    }

    pub(crate) fn link_to(&self, rank: Rank) -> Result<Arc<Link>> {
        self.ranks.link_to(&self.link, rank)
    }

    /// Makes a request of the rank, or the fragment, that serves its subject.
    pub(crate) fn request(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        let cred = &*self.served_as(cred);
        if self.ranks.routed.load(Ordering::Acquire) || !client::is_direct(&op) {
            return self.drive(Route::request(), RouteInput::Start, cred, op, &[]);
        }
        let result = self.request_of(self.link(), cred, op);
        if client::is_final(&op, false, &result) {
            return result;
        }
        self.drive(Route::sent(Rank(0)), RouteInput::Answer(result), cred, op, &[])
    }

    /// A request that is followed by a journal in chunks.
    pub(crate) fn call_with_chunks(&self, op: Op<'_>, chunks: &[&[u8]]) -> Result<Answer> {
        self.drive(Route::with_chunks(), RouteInput::Start, self.cred(), op, chunks)
    }

    /// A route of this client itself, which has no request of a caller.
    fn drive_own(&self, route: Route) -> Result<Answer> {
        self.drive(route, RouteInput::Start, self.cred(), Op::Session(SessionOp::AwaitAsync), &[])
    }

    /// Carries the effects of a route out, until it ends.
    fn drive(
        &self,
        mut route: Route,
        mut input: RouteInput,
        cred: &Cred,
        op: Op<'_>,
        chunks: &[&[u8]],
    ) -> Result<Answer> {
        loop {
            input = match self.ranks.handle(&mut route, &op, input) {
                RouteEffect::Done(result) => return result,
                RouteEffect::Send { rank, op, own, chunks: chunked } => {
                    let link = self.ranks.open_link(&self.link, rank);
                    let cred = if own { self.cred() } else { cred };
                    RouteInput::Answer(link.and_then(|link| match chunked {
                        true => link.request(cred, op, chunks),
                        false => self.request_of(&link, cred, op),
                    }))
                }
                RouteEffect::Ranks => RouteInput::Ranks(self.present_ranks()),
                RouteEffect::Wait(span) => {
                    crate::pause(span);
                    RouteInput::Done
                }
                RouteEffect::Reclaim { rank, ino } => {
                    RouteInput::Reclaimed(self.reclaim_found(ino, rank))
                }
                RouteEffect::Close(ranks) => {
                    self.ranks.lock().links.retain(|rank, _| !ranks.contains(rank));
                    RouteInput::Done
                }
            };
        }
    }

    pub(crate) fn present_ranks(&self) -> Result<Vec<Rank>> {
        Ok(self.cluster().status()?.mds.into_iter().map(|entry| entry.rank).collect())
    }

    /// Whether the cluster has more than one rank.
    pub(crate) fn ranks_are_several(&self) -> Result<bool> {
        Ok(self.present_ranks()?.len() > 1)
    }

    /// The term and the rank of the server of a directory: while it is the same, no server was
    /// restarted.
    pub(crate) fn term_at(&self, dir: Ino) -> Epoch {
        let rank = self.place(dir);
        let link = self.link_of(dir);
        let mut epoch = link.lock().session.epoch();
        if epoch == Epoch(0) && link.request(self.cred(), Op::Session(SessionOp::Sync), &[]).is_ok()
        {
            epoch = link.lock().session.epoch();
        }
        epoch.at(rank)
    }

    /// The client that has decoupled a subtree with this root, or received this inode number with
    /// one, by the answers of all ranks; 0 for none.
    pub(crate) fn holder(&self, ino: Ino) -> Result<ClientId> {
        for rank in self.present_ranks()? {
            let answer = self.link_to(rank)?.request(
                self.cred(),
                Op::Session(SessionOp::Held { ino }),
                &[],
            )?;
            let bytes = crate::fs::bytes_answer(answer)?;
            // A malformed answer counts as a client.
            let holder = bytes.try_into().map_or(u64::MAX, u64::from_le_bytes);
            if holder != 0 {
                return Ok(ClientId(holder));
            }
        }
        Ok(ClientId(0))
    }

    pub(crate) fn set_place(&self, ino: Ino, rank: Rank) {
        self.ranks.set_place(ino, rank);
    }
}
