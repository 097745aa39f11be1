//! A client of several ranks: a session with each, one request at a time, sent on to where servers say.

use std::collections::{BTreeMap, VecDeque};

use client::{Effects, Input, Session};
use types::{ClientId, ConnId, Cred, Errno, FileType, Ino, Moment, Rank, RenameFlags, Tid};
use wire::{Answer, Failure, Message, NewInode, Op};

use super::register::Place;
use super::{Conn, Event, MS, World};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Script {
    MakeDir(Ino, Vec<u8>),
    Create(Place),
    Unlink(Place),
    /// To a name that does not exist, perhaps in another directory.
    Rename(Place, Place),
    Lookup(Place),
    List(Ino),
    /// What a client of one directory does with it.
    Touch(Ino),
    Export(Ino, Rank),
}

impl Script {
    fn op(&self) -> Op<'_> {
        let new =
            |kind: FileType| NewInode { mode: kind.mode_bits() | 0o644, ..NewInode::default() };
        match self {
            Self::MakeDir(parent, name) => {
                let new = NewInode {
                    mode: FileType::Directory.mode_bits() | 0o755,
                    ..NewInode::default()
                };
                Op::Create { parent: *parent, name, new }
            }
            Self::Create((parent, name)) => {
                Op::Create { parent: *parent, name, new: new(FileType::Regular) }
            }
            Self::Unlink((parent, name)) => Op::Unlink { parent: *parent, name },
            Self::Rename((parent, name), (new_parent, new_name)) => {
                let flags = RenameFlags::default();
                Op::Rename { parent: *parent, name, new_parent: *new_parent, new_name, flags }
            }
            Self::Lookup((parent, name)) => Op::Lookup { parent: *parent, name },
            Self::List(dir) => Op::List { dir: *dir, after: None, limit: 4096, attrs: true },
            Self::Touch(dir) => {
                let change =
                    types::AttrChange { mode: Some(0o755), ..types::AttrChange::default() };
                Op::SetAttr { ino: *dir, change }
            }
            Self::Export(dir, rank) => Op::Export { dir: *dir, rank: *rank },
        }
    }

    fn named(&self) -> Ino {
        match self {
            Self::MakeDir(dir, _)
            | Self::List(dir)
            | Self::Touch(dir)
            | Self::Export(dir, _)
            | Self::Create((dir, _))
            | Self::Unlink((dir, _))
            | Self::Rename((dir, _), _)
            | Self::Lookup((dir, _)) => *dir,
        }
    }
}

#[derive(Debug)]
struct To {
    session: Session,
    conn: Option<ConnId>,
}

/// What a client waits for.
#[derive(Debug)]
struct Asked {
    script: Script,
    at: u64,
    rank: Rank,
    tid: Tid,
    stale: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    remembers: bool,
    to: BTreeMap<Rank, To>,
    places: BTreeMap<Ino, Rank>,
    asked: Option<Asked>,
    pub(super) script: VecDeque<Script>,
    pub(super) dirs: Vec<Ino>,
    finished: bool,
    next_name: u64,
    /// Asked again after a while.
    again: bool,
}

impl Client {
    pub(super) fn new(id: ClientId, remembers: bool) -> Self {
        Self {
            id,
            remembers,
            to: BTreeMap::new(),
            places: BTreeMap::new(),
            asked: None,
            script: VecDeque::new(),
            dirs: Vec::new(),
            finished: false,
            next_name: 0,
            again: false,
        }
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.script.is_empty() && !self.again
    }

    fn place(&self, ino: Ino) -> Rank {
        self.places.get(&ino).copied().unwrap_or(Rank(0))
    }
}

impl World {
    pub(super) fn connect(&mut self, client: usize, rank: Rank) {
        let server = &self.servers[usize::from(rank.0)];
        let tenure = server.tenure;
        if self.clients[client].to[&rank].conn.is_some() {
            return;
        }
        if server.mds.is_none() {
            return self.schedule(5 * MS, Event::Connect(client, rank));
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let (to_server_at, to_client_at) = (self.now, self.now);
        let conn = Conn { client, rank, tenure, alive: true, to_server_at, to_client_at };
        self.conns.insert(id, conn);
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.conn = Some(id);
        }
        self.drive(client, rank, Input::Connected);
    }

    pub(super) fn client_closed(&mut self, conn: ConnId) {
        let Conn { client, rank, .. } = self.conns[&conn];
        let Some(to) = self.clients[client].to.get_mut(&rank).filter(|to| to.conn == Some(conn))
        else {
            return;
        };
        to.conn = None;
        self.drive(client, rank, Input::Disconnected);
        self.schedule(MS, Event::Connect(client, rank));
    }

    pub(super) fn arrived_at_client(&mut self, conn: ConnId, frame: &[u8]) {
        let Conn { client, rank, alive, .. } = self.conns[&conn];
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        let message = payload.map(Message::decode);
        match message {
            Some(Ok(message)) if alive => {
                self.note(|| format!("{rank} -> client.{client} {message:?}"));
                self.drive(client, rank, Input::Message(message));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => self.fail("a server sent nonsense".into()),
        }
    }

    fn drive(&mut self, client: usize, rank: Rank, input: Input<'_>) {
        let mut effects = Effects::default();
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.session.handle(input, &mut effects);
        }
        self.flush(client, rank, effects);
    }

    fn flush(&mut self, client: usize, rank: Rank, effects: Effects) {
        let Effects { frames, completed, .. } = effects;
        let conn = self.clients[client].to.get(&rank).and_then(|to| to.conn);
        let mut rest = frames.as_slice();
        while let (Some(conn), Ok(Some((_, length)))) = (conn, wire::frame::decode(rest)) {
            self.to_server(conn, rest[..length].to_vec());
            rest = &rest[length..];
        }
        let lost = self.clients[client].to.get_mut(&rank).and_then(|to| to.session.take_lost());
        if let Some(lost) = lost {
            self.fail(format!("client.{client} lost a change that {rank} had answered: {lost:?}"));
        }
        for (tid, result) in completed {
            let is_it = |asked: &mut Asked| asked.tid == tid && asked.rank == rank;
            if let Some(asked) = self.clients[client].asked.take_if(is_it) {
                self.answered(client, asked, result);
            }
        }
    }

    /// Time for a client to do something, if it waits for nothing.
    pub(super) fn turn(&mut self, client: usize) {
        self.clients[client].again = false;
        if self.clients[client].asked.is_some() {
            return;
        }
        let script = match self.clients[client].script.pop_front() {
            Some(script) => script,
            None if client == 0 || self.clients[client].finished => return,
            None => self.choose(client),
        };
        let rank = self.clients[client].place(script.named());
        self.ask(client, script, rank, (self.now, 0));
    }

    fn ask(&mut self, client: usize, script: Script, rank: Rank, (at, stale): (u64, u32)) {
        let known = &mut self.clients[client];
        let (id, remembers) = (known.id, known.remembers);
        let mut fresh = false;
        let to = known.to.entry(rank).or_insert_with(|| {
            fresh = true;
            let mut session = Session::new(id, Tid(1));
            if remembers {
                session.remember();
            }
            To { session, conn: None }
        });
        let mut effects = Effects::default();
        to.session.at(Moment(self.now + 1));
        let tid = to.session.call(&Cred::root(), script.op(), &mut effects);
        self.note(|| format!("client.{client} asks {rank} {tid} {script:?}"));
        self.clients[client].asked = Some(Asked { script, at, rank, tid, stale });
        if fresh {
            self.schedule(1, Event::Connect(client, rank));
        }
        self.flush(client, rank, effects);
    }

    /// What a client does next. It changes names of its own only.
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
            4 | 5 => Script::Lookup(place),
            6 => {
                let other = 1 + self.rng.index(self.clients.len() - 1);
                Script::Lookup((place.0, format!("c{other}.{}", self.rng.below(4)).into_bytes()))
            }
            7 => Script::Touch(place.0),
            8 => Script::List(place.0),
            _ => {
                self.clients[client].next_name += 1;
                let number = self.clients[client].next_name;
                Script::Create((place.0, format!("c{client}.n{number}").into_bytes()))
            }
        }
    }

    fn answered(&mut self, client: usize, asked: Asked, result: Result<Answer, Failure>) {
        let Asked { script, at, rank, stale, .. } = asked;
        match &result {
            Ok(Answer::Elsewhere(elsewhere)) if elsewhere.root != Ino(0) => {
                // Where the name of a directory leads.
                self.clients[client].places.insert(elsewhere.root, elsewhere.rank);
                return self.schedule(1, Event::Turn(client));
            }
            Ok(Answer::Elsewhere(elsewhere)) => {
                self.report.redirected += 1;
                self.clients[client].places.insert(script.named(), elsewhere.rank);
                return self.ask(client, script, elsewhere.rank, (at, 0));
            }
            Err(failure) if failure.errno == Errno::Stale && stale < 2000 => {
                // It is there: it may be that another rank has it, or that this one has not heard.
                // Whoever asks for two directories finds out whether one rank has both.
                let known = &self.clients[client];
                if let Script::Rename(from, to) = &script
                    && known.place(from.0) != known.place(to.0)
                {
                    return self.schedule(MS, Event::Turn(client));
                }
                // After a restart only a walk brings it back.
                let dirs = &self.clients[client].dirs;
                return match dirs.iter().position(|dir| *dir == script.named()) {
                    Some(name) => self.walk_first(client, script, name),
                    None => self.ask(client, script, rank, (at, stale + 1)),
                };
            }
            Err(failure) if failure.errno == Errno::Again => {
                self.clients[client].script.push_front(script);
                self.clients[client].again = true;
                return self.schedule(5 * MS, Event::Turn(client));
            }
            Ok(_) | Err(_) => {}
        }
        self.report.judged += 1;
        if let Err(violation) = self.judge(client, &script, at, &result) {
            return self.fail(format!(
                "client.{client} {script:?} at {rank}: {violation}, got {result:?}"
            ));
        }
        let after = self.rng.between(1, 4 * MS);
        self.schedule(after, Event::Turn(client));
    }

    /// Looks a directory up where its name is, and goes on then.
    fn walk_first(&mut self, client: usize, script: Script, name: usize) {
        let name = format!("d{name}").into_bytes();
        self.clients[client].places.remove(&script.named());
        self.clients[client].script.push_front(script);
        self.ask(client, Script::Lookup((Ino::ROOT, name)), Rank(0), (self.now, 0));
    }

    fn judge(
        &mut self,
        client: usize,
        script: &Script,
        asked: u64,
        result: &Result<Answer, Failure>,
    ) -> Result<(), &'static str> {
        let when = (asked, self.now);
        let errno = result.as_ref().err().map(|failure| failure.errno);
        match (script, result) {
            (Script::MakeDir(..), Ok(Answer::Attr(attr))) => {
                self.clients[client].dirs.push(attr.ino)
            }
            (Script::Create(place), Ok(Answer::Attr(attr))) => {
                self.registers.changed(place.clone(), Some(attr.ino), when);
            }
            (Script::Unlink(place), Ok(Answer::Done)) => {
                self.registers.changed(place.clone(), None, when);
            }
            (Script::Rename(from, to), Ok(Answer::Done)) if from != to => {
                let ino = self.registers.now(from);
                self.registers.changed(from.clone(), None, when);
                self.registers.changed(to.clone(), ino, when);
            }
            (Script::Rename(from, to), Err(_)) if errno == Some(Errno::CrossDevice) => {
                if from.0 == to.0 {
                    return Err("one directory is on two ranks");
                }
            }
            (Script::Rename(from, to), _) if from == to => {}
            (Script::Lookup((Ino::ROOT, _)), _) => {}
            (Script::Lookup(place), Ok(Answer::Attr(attr))) => {
                if !self.may_be(client, place, Some(attr.ino), when) {
                    return Err("the name was never that then");
                }
            }
            (Script::Lookup(place), Err(_)) if errno == Some(Errno::NotFound) => {
                if !self.may_be(client, place, None, when) {
                    return Err("the name was there");
                }
            }
            (Script::Touch(_), Ok(Answer::Done)) => {}
            (Script::List(dir), Ok(Answer::Entries { entries, .. })) => {
                let listed: BTreeMap<Vec<u8>, Ino> =
                    entries.iter().map(|(name, attr)| (name.clone(), attr.ino)).collect();
                let prefix = format!("c{client}.").into_bytes();
                let of = |name: &[u8]| client == 0 || name.starts_with(&prefix);
                let known = self.registers.in_dir(*dir);
                let known: BTreeMap<_, _> =
                    known.into_iter().filter(|(name, _)| of(name)).collect();
                let listed: BTreeMap<_, _> =
                    listed.into_iter().filter(|(name, _)| of(name)).collect();
                if known != listed {
                    return Err("the listing is not what is there");
                }
            }
            (Script::Export(..), Ok(Answer::Done)) => self.report.moves += 1,
            (Script::Export(..), Err(_)) if errno == Some(Errno::Busy) => self.report.refused += 1,
            _ => return Err("no such answer was possible"),
        }
        Ok(())
    }

    /// A name of another client may have what its change under way makes of it, too.
    fn may_be(&self, client: usize, place: &Place, ino: Option<Ino>, when: (u64, u64)) -> bool {
        let changing = |other: &Client| {
            other.asked.as_ref().is_some_and(|asked| match &asked.script {
                Script::Create(other) => other == place && ino.is_some(),
                Script::Unlink(other) => other == place && ino.is_none(),
                Script::Rename(from, to) => {
                    (from == place && ino.is_none()) || (to == place && ino.is_some())
                }
                Script::MakeDir(..)
                | Script::Lookup(_)
                | Script::List(_)
                | Script::Touch(_)
                | Script::Export(..) => false,
            })
        };
        let others = self.clients.iter().enumerate().filter(|(at, _)| *at != client);
        self.registers.may_be(place, ino, when)
            || others.into_iter().any(|(_, other)| changing(other))
    }

    /// Moves a directory to some rank, if the one who does that has nothing else to do.
    pub(super) fn begin_move(&mut self) {
        if self.clients[0].finished {
            return;
        }
        if self.clients[0].is_idle() {
            let dirs = self.clients[0].dirs.clone();
            let dir = self.rng.pick(&dirs);
            let rank = Rank(self.rng.index(self.servers.len()) as u16);
            if self.rng.percent(50) && self.faults {
                // One of the two sides dies on the way.
                let server = if self.rng.percent(50) { rank } else { self.clients[0].place(dir) };
                let after = self.rng.between(1, 25);
                self.servers[usize::from(server.0)].doomed = Some(after);
            }
            self.clients[0].script.push_back(Script::Export(dir, rank));
            self.schedule(1, Event::Turn(0));
        }
        let after = self.rng.between(5, 150) * MS;
        self.schedule(after, Event::Move);
    }
}
