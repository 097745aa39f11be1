//! The next steps of each client, and the step that is under way: a route of crate `client`, and
//! the walks to the inodes of the step.

use std::collections::VecDeque;

use client::{Route, RouteEffect, RouteInput, WalkStep, Walks};
use types::{Cred, Errno, Error, Ino, Rank, Result, Tid};
use wire::{Answer, Op, ReadOp};

use super::job::JOB;
use super::linking::Link;
use super::register::Place;
use super::script::Script;
use super::tree;
use super::{Drive, Event, MS, Ranks};

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
    /// The flag says that a journal follows the request.
    Answer {
        rank: Rank,
        tid: Tid,
        chunks: bool,
    },
    /// This input comes in a while.
    Input(RouteInput),
    /// The session with a rank is to get the open state of a file, when it is connected.
    Reclaim(Rank, Ino),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) asked: Option<Asked>,
    pub(super) script: VecDeque<Script>,
    pub(super) dirs: Vec<Ino>,
    finished: bool,
    next_name: u64,
    number: u64,
    /// How often the present step was repeated.
    tries: u32,
    /// Asked again after a while.
    again: bool,
    pub(super) moved_inner: bool,
}

impl Worker {
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.script.is_empty() && !self.again
    }

    pub(super) fn waits(&self) -> Option<&Waits> {
        self.asked.as_ref().map(|asked| &asked.waits)
    }

    pub(super) fn waits_for(&self, rank: Rank, tid: Tid) -> bool {
        matches!(self.waits(), Some(Waits::Answer { rank: at, tid: of, .. }) if (*at, *of) == (rank, tid))
    }
}

/// How often a step is repeated before it counts as endless.
const TRIES_MAX: u32 = 2000;

fn is_stale(result: &Result<Answer>) -> bool {
    result.as_ref().is_err_and(|error| error.errno == Errno::Stale)
}

pub(super) fn connection_lost() -> Error {
    Error::of(Errno::Io, "connection")
}

impl Ranks {
    /// Time for a client to do something, if it waits for nothing.
    pub(super) fn turn(&mut self, client: usize) {
        self.workers[client].again = false;
        if self.workers[client].asked.is_some() {
            return;
        }
        let script = match self.workers[client].script.pop_front() {
            Some(script) => script,
            None if client == 0 || self.workers[client].finished => return,
            None if client == JOB => self.choose_job(),
            // They do not look for names in fragments.
            None if client >= tree::FIRST && self.world.settings.split_entries == 0 => {
                self.choose_tree(client)
            }
            None => self.choose(client),
        };
        self.ask(client, script);
    }

    /// Begins a step.
    pub(super) fn ask(&mut self, client: usize, script: Script) {
        let paths = self.paths_of(client, &script);
        self.world.note(format_args!("client.{client} asks {script:?}"));
        let mut walks = Walks::new(paths.len());
        let _ = walks.next(false);
        let (at, route) = (self.world.now, script.route());
        let known = &mut self.workers[client];
        known.number += 1;
        let number = known.number;
        let (waits, walking, result) = (Waits::Nothing, None, None);
        known.asked =
            Some(Asked { script, at, number, route, waits, paths, walks, walking, result });
        self.pursue(client, RouteInput::Start);
    }

    /// A wait of a route is over.
    pub(super) fn resume(&mut self, client: usize, number: u64) {
        let asked = self.workers[client].asked.as_mut().filter(|asked| asked.number == number);
        let Some(asked) = asked else { return };
        match std::mem::replace(&mut asked.waits, Waits::Nothing) {
            Waits::Input(input) => self.pursue(client, input),
            Waits::Reclaim(rank, ino) => self.reclaim(client, rank, ino),
            Waits::Nothing | Waits::Answer { .. } => {}
        }
    }

    fn resume_after(&mut self, client: usize, after: u64, waits: Waits) {
        let Some(asked) = &mut self.workers[client].asked else { return };
        asked.waits = waits;
        let number = asked.number;
        self.world.schedule(after, Event::Resume(client, number));
    }

    /// Gives a route its input, and carries its effect out.
    pub(super) fn pursue(&mut self, client: usize, input: RouteInput) {
        let (moment, known) = (self.world.moment(), &mut self.world.clients[client]);
        let Some(asked) = &mut self.workers[client].asked else { return };
        asked.waits = Waits::Nothing;
        known.router.validate();
        let given = match asked.walking {
            Some(at) => Op::Read(ReadOp::Walk { base: Ino::ROOT, path: &asked.paths[at].0 }),
            None => asked.script.op(),
        };
        match asked.route.handle(&mut known.router, moment, &given, input) {
            RouteEffect::Done(result) => self.route_ended(client, result),
            RouteEffect::Send { rank, op, chunks, .. } => {
                let (link, fresh) = known.link(rank);
                let sent = !chunks || link.session.is_connected();
                if sent {
                    link.session.at(moment);
                    let tid = link.session.call(&Cred::root(), op, &mut link.effects);
                    Self::chunks_of(&asked.script, tid, &mut link.effects);
                    asked.waits = Waits::Answer { rank, tid, chunks };
                }
                if fresh {
                    self.world.schedule(1, Event::Connect(client, rank));
                }
                if sent {
                    self.flush(client, rank);
                } else {
                    let lost = RouteInput::Answer(Err(connection_lost()));
                    self.resume_after(client, MS, Waits::Input(lost));
                }
            }
            RouteEffect::Ranks => {
                let ranks = (0..self.world.servers.len() as u16).map(Rank).collect();
                let after = self.world.delay();
                self.resume_after(client, after, Waits::Input(RouteInput::Ranks(Ok(ranks))));
            }
            RouteEffect::Wait(span) => {
                self.resume_after(client, span.0, Waits::Input(RouteInput::Done));
            }
            RouteEffect::Reclaim { rank, ino } => self.reclaim(client, rank, ino),
            RouteEffect::Close(ranks) => self.world.fail(format!("{ranks:?} were not removed")),
        }
    }

    /// The session with a rank gets the open state of a file from the other sessions.
    fn reclaim(&mut self, client: usize, rank: Rank, ino: Ino) {
        let links = self.world.clients[client].links.iter();
        let holds = links.filter(|(at, link)| **at != rank && link.session.has(ino));
        let holders: Vec<Rank> = holds.map(|(at, _)| *at).collect();
        if !holders.is_empty() && !self.world.link(client, rank).session.is_connected() {
            return self.resume_after(client, MS, Waits::Reclaim(rank, ino));
        }
        for holder in holders {
            let from = self.world.link(client, holder);
            let carried = from.session.take_out(ino, &mut from.effects);
            self.flush(client, holder);
            let into = self.world.link(client, rank);
            into.session.put_in(ino, Some(carried), &mut into.effects);
            self.flush(client, rank);
        }
        self.pursue(client, RouteInput::Done);
    }

    /// A request of a step is answered, or a walk of it.
    fn route_ended(&mut self, client: usize, result: Result<Answer>) {
        let Some(asked) = &mut self.workers[client].asked else { return };
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
                let Some(mut asked) = self.workers[client].asked.take() else { return };
                let result = asked.result.take().unwrap_or_else(|| Err(connection_lost()));
                return self.answered(client, asked, result);
            }
        };
        self.pursue(client, RouteInput::Start);
    }

    /// A client's next step. It changes names of its own only.
    fn choose(&mut self, client: usize) -> Script {
        let dir = |run: &mut Self| {
            let dirs = &run.workers[client].dirs;
            dirs[run.world.rng.index(dirs.len())]
        };
        let mine = |run: &mut Self, dir: Ino| {
            let name = format!("c{client}.{}", run.world.rng.below(4)).into_bytes();
            (dir, name)
        };
        let place = dir(self);
        let place = mine(self, place);
        let exists = self.registers.now(&place).is_some();
        match self.world.rng.below(10) {
            0..=3 if exists => Script::Unlink(place),
            0..=3 => Script::Create(place),
            4 if exists => {
                let to = if self.world.rng.percent(60) { place.0 } else { dir(self) };
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
                let other = 1 + self.world.rng.index(self.workers.len() - 1);
                Script::Lookup((
                    place.0,
                    format!("c{other}.{}", self.world.rng.below(4)).into_bytes(),
                ))
            }
            7 if exists && self.links => self.choose_to_say(place),
            7 => Script::Touch(place.0),
            8 => Script::List(place.0),
            _ => {
                self.workers[client].next_name += 1;
                let number = self.workers[client].next_name;
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
            self.workers[client].tries = 0;
            self.report.judged += 1;
            let text = format!("client.{client} {:?}", asked.script);
            if let Err(violation) = self.job_answered(client, asked, &result) {
                return self.world.fail(format!("{text}: {violation}, got {result:?}"));
            }
            let after = self.world.rng.between(1, 4 * MS);
            return self.world.schedule(after, Event::Turn(client));
        }
        if errno == Some(Errno::Stale) {
            if self.is_part_gone(&asked.script) {
                // The fragment is gone since this was planned.
                return self.world.schedule(1, Event::Turn(client));
            }
            self.report.stale += u64::from(!asked.paths.is_empty());
            return self.repeat(client, asked, &result);
        }
        if self.is_kept_apart(client, &asked.script, errno) {
            return self.world.schedule(MS, Event::Turn(client));
        }
        self.workers[client].tries = 0;
        self.report.judged += 1;
        let Asked { script, at, .. } = asked;
        if let Err(violation) = self.judge(client, &script, at, &result) {
            return self
                .world
                .fail(format!("client.{client} {script:?}: {violation}, got {result:?}"));
        }
        if let Script::Rename(from, to) = script
            && self.rank_of(client, &from) != self.rank_of(client, &to)
        {
            for place in [from, to] {
                self.workers[client].script.push_back(Script::Lookup(place));
            }
        }
        let after = self.world.rng.between(1, 4 * MS);
        self.world.schedule(after, Event::Turn(client));
    }

    /// The rank of a name, as far as a client knows.
    fn rank_of(&self, client: usize, place: &Place) -> Rank {
        let known = &self.world.clients[client];
        known.router.place(known.dir_of(place.0, &place.1))
    }

    /// Repeats a step that was not executed.
    fn repeat(&mut self, client: usize, asked: Asked, result: &Result<Answer>) {
        let known = &mut self.workers[client];
        known.tries += 1;
        if known.tries > TRIES_MAX {
            let text = format!("client.{client} {:?} never ends: {result:?}", asked.script);
            return self.world.fail(text);
        }
        // A fragment with a name of a file that has several may not come back.
        if matches!(asked.script, Script::Join(_)) && self.links && self.world.rng.percent(20) {
            self.report.refused += 1;
            return self.world.schedule(MS, Event::Turn(client));
        }
        self.again(client, asked.script, 5 * MS);
    }

    /// Asks again after a while.
    pub(super) fn again(&mut self, client: usize, script: Script, after: u64) {
        self.workers[client].script.push_front(script);
        self.workers[client].again = true;
        self.world.schedule(after, Event::Turn(client));
    }

    /// The number in the name of a directory of the root.
    pub(super) fn top(&self, client: usize, dir: Ino) -> Option<usize> {
        let all = self.workers[client].dirs.iter().chain(&self.tree.bases);
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
