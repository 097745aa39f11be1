//! A client of several ranks: a session with each, and the router of crate `client`, which decides
//! where a request goes. A client has one step under way.

use std::collections::{BTreeMap, VecDeque};

use client::{
    FragmentMap, Route, RouteEffect, RouteInput, Router, Session, SessionEffects, WalkStep, Walks,
};
use types::{ClientId, ConnId, Cred, Errno, Error, Ino, Moment, Rank, Result, Tid};
use wire::{Answer, Op, ReadOp};

use super::job::JOB;
use super::linking::Link;
use super::register::Place;
use super::script::Script;
use super::tree;
use super::{Event, MS, RanksWorld};

/// The session with a rank.
#[derive(Debug)]
pub(super) struct To {
    pub(super) session: Session,
    pub(super) conn: Option<ConnId>,
}

/// The step of a client that is under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) script: Script,
    /// When it began.
    pub(super) at: u64,
    /// Tells it from earlier steps.
    number: u64,
    route: Route,
    pub(super) waits: Waits,
    /// The paths of the inodes of the step, and the walks to them.
    paths: Vec<(Vec<u8>, Ino)>,
    walks: Walks,
    walking: Option<usize>,
    /// The result of the last request, while the client walks.
    result: Option<Result<Answer>>,
}

/// The event for which the route of a step waits.
#[derive(Debug)]
pub(super) enum Waits {
    Nothing,
    Answer {
        rank: Rank,
        tid: Tid,
        kind: SentKind,
    },
    /// This input comes in a while.
    Input(RouteInput),
    /// The session with a rank is to get the open state of a file, when it is connected.
    Reclaim(Rank, Ino),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentKind {
    Chunks,
    Other,
}

impl SentKind {
    fn of(chunks: bool) -> Self {
        if chunks { Self::Chunks } else { Self::Other }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    remembers: bool,
    pub(super) to: BTreeMap<Rank, To>,
    pub(super) router: Router,
    pub(super) asked: Option<Asked>,
    pub(super) script: VecDeque<Script>,
    pub(super) dirs: Vec<Ino>,
    pub(super) finished: bool,
    next_name: u64,
    number: u64,
    /// How often the present step was repeated.
    tries: u32,
    /// Asked again after a while.
    pub(super) again: bool,
    pub(super) moved_inner: bool,
}

impl Client {
    pub(super) fn new(id: ClientId, remembers: bool) -> Self {
        Self {
            id,
            remembers,
            to: BTreeMap::new(),
            router: Router::default(),
            asked: None,
            script: VecDeque::new(),
            dirs: Vec::new(),
            finished: false,
            next_name: 0,
            number: 0,
            tries: 0,
            again: false,
            moved_inner: false,
        }
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.script.is_empty() && !self.again
    }

    pub(super) fn place(&self, ino: Ino) -> Rank {
        self.router.place(ino)
    }

    pub(super) fn fragments(&self) -> &FragmentMap {
        self.router.fragments()
    }

    pub(super) fn home(&self, place: &Place) -> Ino {
        self.fragments().home(place.0, &place.1)
    }

    /// The rank of a name, as far as the client knows.
    fn rank_of(&self, place: &Place) -> Rank {
        self.place(self.home(place))
    }
}

/// The session of a client with a rank, and whether it is new.
fn session(
    to: &mut BTreeMap<Rank, To>,
    rank: Rank,
    (id, remembers): (ClientId, bool),
) -> (&mut Session, bool) {
    let mut fresh = false;
    let to = to.entry(rank).or_insert_with(|| {
        fresh = true;
        let mut session = Session::new(id, Tid(1));
        if remembers {
            session.remember();
        }
        To { session, conn: None }
    });
    (&mut to.session, fresh)
}

/// How often a step is repeated before it counts as endless.
const TRIES_MAX: u32 = 2000;

fn is_stale(result: &Result<Answer>) -> bool {
    result.as_ref().is_err_and(|error| error.errno == Errno::Stale)
}

pub(super) fn connection_lost() -> Error {
    Error::of(Errno::Io, "connection")
}

impl RanksWorld {
    /// Time for a client to do something, if it waits for nothing.
    pub(super) fn turn(&mut self, client: usize) {
        self.clients[client].again = false;
        if self.clients[client].asked.is_some() {
            return;
        }
        let script = match self.clients[client].script.pop_front() {
            Some(script) => script,
            None if client == 0 || self.clients[client].finished => return,
            None if client == JOB => self.choose_job(),
            // They do not look for names in fragments.
            None if client >= tree::FIRST && self.settings.split_entries == 0 => {
                self.choose_tree(client)
            }
            None => self.choose(client),
        };
        self.ask(client, script);
    }

    /// Begins a step.
    pub(super) fn ask(&mut self, client: usize, script: Script) {
        let paths = self.paths_of(client, &script);
        self.note(|| format!("client.{client} asks {script:?}"));
        let mut walks = Walks::new(paths.len());
        let _ = walks.next(false);
        let (at, route) = (self.now, script.route());
        let known = &mut self.clients[client];
        known.number += 1;
        let number = known.number;
        let (waits, walking, result) = (Waits::Nothing, None, None);
        known.asked =
            Some(Asked { script, at, number, route, waits, paths, walks, walking, result });
        self.pursue(client, RouteInput::Start);
    }

    /// A wait of a route is over.
    pub(super) fn resume(&mut self, client: usize, number: u64) {
        let asked = self.clients[client].asked.as_mut().filter(|asked| asked.number == number);
        let Some(asked) = asked else { return };
        match std::mem::replace(&mut asked.waits, Waits::Nothing) {
            Waits::Input(input) => self.pursue(client, input),
            Waits::Reclaim(rank, ino) => self.reclaim(client, rank, ino),
            Waits::Nothing | Waits::Answer { .. } => {}
        }
    }

    fn resume_after(&mut self, client: usize, after: u64, waits: Waits) {
        let Some(asked) = &mut self.clients[client].asked else { return };
        asked.waits = waits;
        let number = asked.number;
        self.schedule(after, Event::Resume(client, number));
    }

    /// Gives a route its input, and carries its effect out.
    pub(super) fn pursue(&mut self, client: usize, input: RouteInput) {
        let moment = Moment(self.now + 1);
        let Client { router, asked, to, id, remembers, .. } = &mut self.clients[client];
        let Some(asked) = asked else { return };
        asked.waits = Waits::Nothing;
        router.validate();
        let given = match asked.walking {
            Some(at) => Op::Read(ReadOp::Walk { base: Ino::ROOT, path: &asked.paths[at].0 }),
            None => asked.script.op(),
        };
        match asked.route.handle(router, moment, &given, input) {
            RouteEffect::Done(result) => self.route_ended(client, result),
            RouteEffect::Send { rank, op, chunks, .. } => {
                let (session, fresh) = session(to, rank, (*id, *remembers));
                let mut effects = SessionEffects::default();
                let kind = SentKind::of(chunks);
                if kind != SentKind::Chunks || session.is_connected() {
                    session.at(moment);
                    let tid = session.call(&Cred::root(), op, &mut effects);
                    Self::chunks_of(&asked.script, tid, &mut effects);
                    asked.waits = Waits::Answer { rank, tid, kind };
                }
                let waits = matches!(asked.waits, Waits::Answer { .. });
                self.note(|| format!("client.{client} sends {rank} {kind:?}"));
                if fresh {
                    self.schedule(1, Event::Connect(client, rank));
                }
                if !waits {
                    let lost = RouteInput::Answer(Err(connection_lost()));
                    return self.resume_after(client, MS, Waits::Input(lost));
                }
                self.flush(client, rank, effects);
            }
            RouteEffect::Ranks => {
                let ranks = (0..self.servers.len() as u16).map(Rank).collect();
                let after = self.delay();
                self.resume_after(client, after, Waits::Input(RouteInput::Ranks(Ok(ranks))));
            }
            RouteEffect::Wait(span) => {
                self.resume_after(client, span.0, Waits::Input(RouteInput::Done));
            }
            RouteEffect::Reclaim { rank, ino } => self.reclaim(client, rank, ino),
            RouteEffect::Close(ranks) => self.fail(format!("{ranks:?} were not removed")),
        }
    }

    /// The session with a rank gets the open state of a file from the other sessions.
    fn reclaim(&mut self, client: usize, rank: Rank, ino: Ino) {
        let known = &mut self.clients[client];
        let holds = |(at, to): (&Rank, &To)| *at != rank && to.session.has(ino);
        if !known.to.iter().any(holds) {
            return self.pursue(client, RouteInput::Done);
        }
        let (session, fresh) = session(&mut known.to, rank, (known.id, known.remembers));
        if !session.is_connected() {
            if fresh {
                self.schedule(1, Event::Connect(client, rank));
            }
            return self.resume_after(client, MS, Waits::Reclaim(rank, ino));
        }
        let holders: Vec<Rank> = known.to.iter().filter(|it| holds(*it)).map(|it| *it.0).collect();
        for holder in holders {
            let mut effects = SessionEffects::default();
            let Some(from) = self.clients[client].to.get_mut(&holder) else { continue };
            let carried = from.session.take_out(ino, &mut effects);
            self.flush(client, holder, effects);
            let mut effects = SessionEffects::default();
            let Some(into) = self.clients[client].to.get_mut(&rank) else { continue };
            into.session.put_in(ino, Some(carried), &mut effects);
            self.flush(client, rank, effects);
        }
        self.pursue(client, RouteInput::Done);
    }

    /// A request of a step is answered, or a walk of it.
    fn route_ended(&mut self, client: usize, result: Result<Answer>) {
        let Some(asked) = &mut self.clients[client].asked else { return };
        let good = match asked.walking.take() {
            Some(at) => {
                let ino = asked.paths[at].1;
                matches!(&result, Ok(Answer::Walked { attr: Some(attr), .. }) if attr.ino == ino)
            }
            None => {
                let good = !is_stale(&result);
                asked.result = Some(result);
                good
            }
        };
        asked.route = match asked.walks.next(good) {
            WalkStep::Request => asked.script.route(),
            WalkStep::Walk(at) => {
                asked.walking = Some(at);
                Route::request()
            }
            WalkStep::End => {
                let Some(mut asked) = self.clients[client].asked.take() else { return };
                let result = asked.result.take().unwrap_or_else(|| Err(connection_lost()));
                return self.answered(client, asked, result);
            }
        };
        self.pursue(client, RouteInput::Start);
    }

    /// A client's next step. It changes names of its own only.
    fn choose(&mut self, client: usize) -> Script {
        let dir = |world: &mut Self| {
            let dirs = &world.clients[client].dirs;
            dirs[world.rng.index(dirs.len())]
        };
        let mine = |world: &mut Self, dir: Ino| {
            let name = format!("c{client}.{}", world.rng.below(4)).into_bytes();
            (dir, name)
        };
        let place = dir(self);
        let place = mine(self, place);
        let exists = self.registers.now(&place).is_some();
        match self.rng.below(10) {
            0..=3 if exists => Script::Unlink(place),
            0..=3 => Script::Create(place),
            4 if exists => {
                let to = if self.rng.percent(60) { place.0 } else { dir(self) };
                let to = mine(self, to);
                if self.registers.now(&to).is_none() {
                    Script::Rename(place, to)
                } else {
                    Script::Lookup(to)
                }
            }
            5 if exists && self.links => {
                let to = if self.links_inside { place.0 } else { dir(self) };
                let to = mine(self, to);
                self.choose_link(place.clone(), to).unwrap_or(Script::Lookup(place))
            }
            4 | 5 => Script::Lookup(place),
            6 => {
                let other = 1 + self.rng.index(self.clients.len() - 1);
                Script::Lookup((place.0, format!("c{other}.{}", self.rng.below(4)).into_bytes()))
            }
            7 if exists && self.links => self.choose_to_say(place),
            7 => Script::Touch(place.0),
            8 => Script::List(place.0),
            _ => {
                self.clients[client].next_name += 1;
                let number = self.clients[client].next_name;
                Script::Create((place.0, format!("c{client}.n{number}").into_bytes()))
            }
        }
    }

    fn answered(&mut self, client: usize, asked: Asked, result: Result<Answer>) {
        let errno = result.as_ref().err().map(|error| error.errno);
        if matches!(asked.script, Script::Tree(_)) {
            return self.tree_answered(client, asked, result);
        }
        let chunks = matches!(&asked.script, Script::Job(step) if step.has_chunks());
        if errno == Some(Errno::Again) || (chunks && errno == Some(Errno::Io)) {
            return self.repeat(client, asked, &result);
        }
        if matches!(asked.script, Script::Job(_)) {
            self.clients[client].tries = 0;
            self.report.judged += 1;
            let text = format!("client.{client} {:?}", asked.script);
            if let Err(violation) = self.job_answered(client, asked, &result) {
                return self.fail(format!("{text}: {violation}, got {result:?}"));
            }
            let after = self.rng.between(1, 4 * MS);
            return self.schedule(after, Event::Turn(client));
        }
        if errno == Some(Errno::Stale) {
            if self.is_part_gone(&asked.script) {
                // The fragment is gone since this was planned.
                return self.schedule(1, Event::Turn(client));
            }
            self.report.stale += u64::from(!asked.paths.is_empty());
            return self.repeat(client, asked, &result);
        }
        if self.is_kept_apart(client, &asked.script, errno) {
            return self.schedule(MS, Event::Turn(client));
        }
        self.clients[client].tries = 0;
        self.report.judged += 1;
        let Asked { script, at, .. } = asked;
        if let Err(violation) = self.judge(client, &script, at, &result) {
            return self.fail(format!("client.{client} {script:?}: {violation}, got {result:?}"));
        }
        if let Script::Rename(from, to) = script
            && self.clients[client].rank_of(&from) != self.clients[client].rank_of(&to)
        {
            for place in [from, to] {
                self.clients[client].script.push_back(Script::Lookup(place));
            }
        }
        let after = self.rng.between(1, 4 * MS);
        self.schedule(after, Event::Turn(client));
    }

    /// Repeats a step that was not executed.
    fn repeat(&mut self, client: usize, asked: Asked, result: &Result<Answer>) {
        let known = &mut self.clients[client];
        known.tries += 1;
        if known.tries > TRIES_MAX {
            let text = format!("client.{client} {:?} never ends: {result:?}", asked.script);
            return self.fail(text);
        }
        // A fragment with a name of a file that has several may not come back.
        if matches!(asked.script, Script::Join(_)) && self.links && self.rng.percent(20) {
            self.report.refused += 1;
            return self.schedule(MS, Event::Turn(client));
        }
        self.again(client, asked.script, 5 * MS);
    }

    /// Asks again after a while.
    pub(super) fn again(&mut self, client: usize, script: Script, after: u64) {
        self.clients[client].script.push_front(script);
        self.clients[client].again = true;
        self.schedule(after, Event::Turn(client));
    }

    /// The number in the name of a directory of the root.
    pub(super) fn top(&self, client: usize, dir: Ino) -> Option<usize> {
        let all = self.clients[client].dirs.iter().chain(&self.tree.bases);
        all.copied().position(|it| it == dir)
    }

    /// The paths of the inodes of a step, as far as there are any: fragments have none.
    fn paths_of(&self, client: usize, script: &Script) -> Vec<(Vec<u8>, Ino)> {
        let inos = script.inos();
        let path = |ino: Ino| Some((self.path_of(client, ino)?, ino));
        let mut paths: Vec<_> = inos.into_iter().filter_map(path).collect();
        if let Script::Say((dir, name), ino, _) | Script::Link(Link { from: (dir, name), ino, .. }) =
            script
            && let Some(mut path) = self.path_of(client, *dir)
        {
            path.push(b'/');
            path.extend_from_slice(name);
            paths.push((path, *ino));
        }
        paths
    }

    fn path_of(&self, client: usize, dir: Ino) -> Option<Vec<u8>> {
        if let Some(at) = self.top(client, dir) {
            return Some(format!("d{at}").into_bytes());
        }
        self.path_of_job(dir).or_else(|| self.path_in_tree(dir))
    }
}
