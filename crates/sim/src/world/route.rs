//! The requests of clients on their way: a route of crate `client` each, and the walks to inodes
//! that a server does not know by their numbers.

use client::{FileState, Route, RouteEffect, RouteInput, Sessions, WalkStep, Walks, leads_to};
use types::{Cred, Errno, Error, Ino, Rank, Result, Tid};
use wire::{Answer, Message, Op, ReadOp};

use super::{Drive, Event, MS, Workload};
use crate::call::{Call, CallKind};

/// A request, and the event for which its route waits.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) call: Call,
    /// The journal that follows the request.
    pub(crate) journal: Option<Vec<u8>>,
    /// When it began.
    pub(crate) at: u64,
    route: Route,
    waits: Waits,
    /// The paths of the inodes of the request, and the walks to them.
    paths: Vec<(String, Ino)>,
    walks: Walks,
    walking: Option<usize>,
    /// The result of the last request, while the client walks.
    result: Option<Result<Answer>>,
}

#[derive(Debug)]
enum Waits {
    Nothing,
    /// The flag says that a journal follows the request.
    Answer(Rank, Tid, bool),
    /// This input comes in a while.
    Input(RouteInput),
    /// The session with a rank is to get the open state of a file, when it is connected.
    Reclaim(Rank, Ino),
}

impl Routed {
    fn new(call: Call, journal: Option<Vec<u8>>, paths: Vec<(String, Ino)>, at: u64) -> Self {
        let mut walks = Walks::new(paths.len());
        let _ = walks.next(false);
        let route = Self::route_of(&call.what, journal.is_some());
        let (waits, walking, result) = (Waits::Nothing, None, None);
        Self { call, journal, at, route, waits, paths, walks, walking, result }
    }

    fn route_of(what: &CallKind, chunks: bool) -> Route {
        match what {
            CallKind::Export { dir, rank } => Route::pin(*dir, *rank),
            CallKind::Split { dir } => Route::split(*dir, Vec::new()),
            CallKind::Join { dir } => Route::join(*dir),
            _ if chunks => Route::with_chunks(),
            _ => Route::request(),
        }
    }

    /// The request, or the walk that is under way.
    pub(crate) fn sent(&self) -> Call {
        match self.walking {
            Some(at) => {
                Call::root(CallKind::Walk { base: Ino::ROOT, path: self.paths[at].0.clone() })
            }
            None => self.call.clone(),
        }
    }

    pub(super) fn waits_for(&self, rank: Rank, tid: Tid) -> bool {
        matches!(self.waits, Waits::Answer(at, of, _) if (at, of) == (rank, tid))
    }

    /// The request whose journal is lost with the connection to a rank.
    pub(super) fn is_cut(&self, rank: Rank) -> Option<Tid> {
        match self.waits {
            Waits::Answer(at, tid, true) if at == rank => Some(tid),
            _ => None,
        }
    }

    /// The route ended. Returns the result if that is the end of the request.
    fn ended(&mut self, result: Result<Answer>) -> Option<Result<Answer>> {
        let good = match self.walking.take() {
            Some(at) => match leads_to(self.paths[at].1, result) {
                Ok(good) => good,
                Err(error) => return Some(Err(error)),
            },
            None => {
                let good = !matches!(&result, Err(error) if error.errno == Errno::Stale);
                self.result = Some(result);
                good
            }
        };
        self.route = match self.walks.next(good) {
            WalkStep::Request => Self::route_of(&self.call.what, self.journal.is_some()),
            WalkStep::Walk(at) => {
                self.walking = Some(at);
                Route::request()
            }
            WalkStep::End => return self.result.take(),
        };
        None
    }
}

/// The connection broke.
pub(super) fn connection_lost() -> RouteInput {
    RouteInput::Answer(Err(Error::of(Errno::Io, "connection")))
}

fn append_chunks(tid: Tid, journal: &[u8], size: usize, frames: &mut Vec<u8>) {
    for bytes in journal.chunks(size) {
        Message::Chunk { tid, bytes }.append_frame(frames);
    }
}

/// See the module documentation.
pub(crate) trait Routes: Workload {
    /// Begins a request about inodes with these paths. Returns its number.
    fn begin(
        &mut self,
        client: usize,
        call: Call,
        journal: Option<Vec<u8>>,
        paths: Vec<(String, Ino)>,
    ) -> u64 {
        let world = self.world_mut();
        let (at, known) = (world.now, &mut world.clients[client]);
        known.begun += 1;
        let number = known.begun;
        known.routed.insert(number, Routed::new(call, journal, paths, at));
        self.pursue(client, number, RouteInput::Start);
        number
    }

    /// A wait of a route is over.
    fn resume(&mut self, client: usize, number: u64) {
        let known = &mut self.world_mut().clients[client];
        let Some(routed) = known.routed.get_mut(&number).filter(|_| known.alive) else { return };
        match std::mem::replace(&mut routed.waits, Waits::Nothing) {
            Waits::Input(input) => self.pursue(client, number, input),
            Waits::Reclaim(rank, ino) => self.reclaim(client, number, (rank, ino)),
            waits => routed.waits = waits,
        }
    }

    /// Gives a route its input, and carries its effects out.
    // `flush` calls this method again: the compiler refuses to inline the circle (E0391).
    #[inline(never)]
    fn pursue(&mut self, client: usize, number: u64, mut input: RouteInput) {
        let clock = self.clock_of(client);
        let world = self.world_mut();
        let moment = world.moment();
        let known = &mut world.clients[client];
        let Some(mut routed) = known.routed.remove(&number) else { return };
        known.router.validate();
        let after = loop {
            let given = match routed.walking {
                Some(at) => {
                    let path = routed.paths[at].0.as_bytes();
                    Op::Read(ReadOp::Walk { base: Ino::ROOT, path })
                }
                None => routed.call.what.op(),
            };
            match routed.route.handle(&mut known.router, moment, &given, input) {
                RouteEffect::Done(result) => match routed.ended(result) {
                    Some(result) => return self.answered(client, number, routed, result),
                    None => input = RouteInput::Start,
                },
                RouteEffect::Send { rank, op, own, chunks } => {
                    let as_given = op == given;
                    let (link, fresh) = known.link(rank);
                    let sent = !chunks || link.session.is_connected();
                    if sent {
                        link.session.at(clock);
                        let root = Cred::root();
                        let own = own || routed.walking.is_some();
                        let cred = if own { &root } else { &routed.call.cred };
                        let tid = link.session.call(cred, op, &mut link.effects);
                        if let Some(journal) = routed.journal.as_ref().filter(|_| chunks) {
                            let size = world.rng.between(50, 2000) as usize;
                            append_chunks(tid, journal, size, &mut link.effects.frames);
                        }
                        routed.waits = Waits::Answer(rank, tid, chunks);
                        let (id, sent) = (known.id, routed.sent());
                        world.note(format_args!("{id} {tid} {sent:?}"));
                        if fresh {
                            world.schedule(1, Event::Connect(client, rank));
                        }
                        if as_given {
                            self.sent(client, tid, &routed);
                        }
                        self.world_mut().clients[client].routed.insert(number, routed);
                        return self.flush(client, rank);
                    }
                    if fresh {
                        world.schedule(1, Event::Connect(client, rank));
                    }
                    routed.waits = Waits::Input(connection_lost());
                    break MS;
                }
                RouteEffect::Ranks => {
                    routed.waits = Waits::Input(RouteInput::Ranks(Ok(world.ranks())));
                    break world.delay_max / 20;
                }
                RouteEffect::Wait(span) => {
                    routed.waits = Waits::Input(RouteInput::Done);
                    break span.0;
                }
                RouteEffect::Reclaim { rank, ino } => {
                    routed.waits = Waits::Reclaim(rank, ino);
                    break 1;
                }
                RouteEffect::Close(ranks) => {
                    return world.fail(format!("{ranks:?} were not removed"));
                }
            }
        };
        world.clients[client].routed.insert(number, routed);
        world.schedule(after, Event::Resume(client, number));
    }

    /// The session with a rank gets the open state of a file from the other sessions.
    fn reclaim(&mut self, client: usize, number: u64, (rank, ino): (Rank, Ino)) {
        let mut sessions = self.sessions(client);
        let is_elsewhere = client::is_elsewhere(&mut sessions, ino, rank);
        let awaits_report = client::awaits_report(&mut sessions, &[ino], rank).is_some();
        let world = self.world_mut();
        let is_connected = world.link(client, rank).session.is_connected();
        if awaits_report || is_elsewhere && !is_connected {
            if let Some(routed) = world.clients[client].routed.get_mut(&number) {
                routed.waits = Waits::Reclaim(rank, ino);
            }
            return world.schedule(MS, Event::Resume(client, number));
        }
        let is_any = client::reclaim(&mut self.sessions(client), ino, rank);
        self.pursue(client, number, RouteInput::Reclaimed(is_any));
    }

    /// The client learned from a rank where its open and locked files are now: they follow, one
    /// report after the other.
    fn carry(&mut self, client: usize, from: Rank) {
        let world = self.world_mut();
        let known = &mut world.clients[client];
        let Some(queue) = known.moved.get_mut(&from).filter(|_| known.alive) else { return };
        let Some((to, files)) = queue.pop_front() else { return };
        let is_connected = world.link(client, to).session.is_connected();
        if !is_connected || client::awaits_report(&mut self.sessions(client), &files, to).is_some()
        {
            let world = self.world_mut();
            let queue = world.clients[client].moved.entry(from).or_default();
            queue.push_front((to, files));
            return world.schedule(MS, Event::Carry(client, from));
        }
        let world = self.world_mut();
        let router = &mut world.clients[client].router;
        router.note_moved(&files, to);
        client::follow(&mut self.sessions(client), &files, to);
        self.world_mut().schedule(1, Event::Carry(client, from));
    }

    /// The rank with whose session a client has a file open or locked, or the one that serves it.
    fn holder(&mut self, client: usize, ino: Ino) -> Rank {
        let place = self.world().clients[client].router.place(ino);
        client::holder(&mut self.sessions(client), ino, place)
    }

    /// The sessions of a client.
    fn sessions(&mut self, client: usize) -> SessionsOf<'_, Self> {
        SessionsOf { of: self, client }
    }
}

impl<W: Workload> Routes for W {}

/// The sessions of a client: their frames are sent at once.
pub(crate) struct SessionsOf<'a, W> {
    of: &'a mut W,
    client: usize,
}

impl<W: Routes> Sessions for SessionsOf<'_, W> {
    fn ranks(&self) -> Vec<Rank> {
        self.of.world().clients[self.client].links.keys().copied().collect()
    }

    fn has(&mut self, rank: Rank, ino: Ino) -> bool {
        let known = &self.of.world().clients[self.client];
        known.links.get(&rank).is_some_and(|link| link.session.has(ino))
    }

    fn awaits_report(&mut self, rank: Rank, ino: Ino) -> bool {
        let known = &self.of.world().clients[self.client];
        known.links.get(&rank).is_some_and(|link| link.session.awaits_report(ino))
    }

    fn take_out(&mut self, rank: Rank, ino: Ino) -> FileState {
        let from = self.of.world_mut().link(self.client, rank);
        let state = from.session.take_out(ino, &mut from.effects);
        self.of.flush(self.client, rank);
        state
    }

    fn put_in(&mut self, rank: Rank, ino: Ino, state: Option<FileState>) {
        let into = self.of.world_mut().link(self.client, rank);
        into.session.put_in(ino, state, &mut into.effects);
        self.of.flush(self.client, rank);
    }
}
