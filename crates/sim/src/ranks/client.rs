//! A client of several ranks: a session with each, one request at a time, with redirects.

use std::collections::{BTreeMap, VecDeque};

use client::{FragmentMap, Session, SessionEffects, SessionInput};
use types::{ClientId, ConnId, Cred, Errno, Ino, Moment, Rank, Tid};
use wire::{Answer, Failure, Message, Op};

use super::job::{JOB, Step};
use super::register::Place;
use super::script::Script;
use super::{Conn, Event, MS, RanksWorld, tree};

#[derive(Debug)]
struct To {
    session: Session,
    conn: Option<ConnId>,
}

/// The pending request of a client.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) script: Script,
    pub(super) at: u64,
    pub(super) rank: Rank,
    pub(super) tid: Tid,
    stale: u32,
    so_far: SoFar,
}

/// The results so far of a directory whose fragments are asked one after the other.
#[derive(Debug, Default)]
pub(super) struct SoFar {
    /// The fragment that is asked; `None` for whichever is the first.
    pub(super) leaf: Option<Ino>,
    pub(super) entries: BTreeMap<Vec<u8>, Ino>,
    pub(super) names: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    remembers: bool,
    to: BTreeMap<Rank, To>,
    pub(super) places: BTreeMap<Ino, Rank>,
    pub(super) fragments: FragmentMap,
    pub(super) asked: Option<Asked>,
    pub(super) script: VecDeque<Script>,
    pub(super) dirs: Vec<Ino>,
    pub(super) finished: bool,
    next_name: u64,
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
            places: BTreeMap::new(),
            fragments: FragmentMap::default(),
            asked: None,
            script: VecDeque::new(),
            dirs: Vec::new(),
            finished: false,
            next_name: 0,
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

    /// Gives a request up.
    pub(super) fn forget(&mut self, rank: Rank, tid: Tid) {
        if let Some(to) = self.to.get_mut(&rank) {
            to.session.forget(tid);
        }
    }

    pub(super) fn place(&self, ino: Ino) -> Rank {
        self.places.get(&ino).copied().unwrap_or(Rank(0))
    }

    pub(super) fn home(&self, place: &Place) -> Ino {
        self.fragments.home(place.0, &place.1)
    }

    /// The directory, or the fragment of it, that a request is for.
    fn aimed(&self, script: &Script) -> Ino {
        if let Op::Lookup { parent: dir, .. }
        | Op::Create { parent: dir, .. }
        | Op::Link { parent: dir, .. }
        | Op::Unlink { parent: dir, .. }
        | Op::Rename { parent: dir, .. }
        | Op::List { dir, .. } = self.fragments.aim(script.op())
        {
            dir
        } else if let Script::Say(place, ..) = script {
            self.home(place)
        } else {
            script.named()
        }
    }
}

/// So often a rank is asked for a name of a file that it does not know.
const AGREE: u32 = 5;

fn is_stale(result: &Result<Answer, Failure>) -> bool {
    result.as_ref().is_err_and(|failure| failure.errno == Errno::Stale)
}

impl RanksWorld {
    pub(super) fn connect(&mut self, client: usize, rank: Rank) {
        let server = &self.servers[usize::from(rank.0)];
        let term = server.term;
        if self.clients[client].to[&rank].conn.is_some() {
            return;
        }
        if server.mds.is_none() {
            return self.schedule(5 * MS, Event::Connect(client, rank));
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let (to_server_at, to_client_at) = (self.now, self.now);
        let conn = Conn { client, rank, term, alive: true, to_server_at, to_client_at };
        self.conns.insert(id, conn);
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.conn = Some(id);
        }
        self.drive(client, rank, SessionInput::Connected);
    }

    pub(super) fn client_closed(&mut self, conn: ConnId) {
        let Conn { client, rank, .. } = self.conns[&conn];
        let Some(to) = self.clients[client].to.get_mut(&rank).filter(|to| to.conn == Some(conn))
        else {
            return;
        };
        to.conn = None;
        self.drive(client, rank, SessionInput::Disconnected);
        self.ask_merge_again(client, rank);
        self.schedule(MS, Event::Connect(client, rank));
    }

    pub(super) fn arrived_at_client(&mut self, conn: ConnId, frame: &[u8]) {
        let Conn { client, rank, alive, .. } = self.conns[&conn];
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        let message = payload.map(Message::decode);
        match message {
            Some(Ok(message)) if alive => {
                self.note(|| format!("{rank} -> client.{client} {message:?}"));
                self.drive(client, rank, SessionInput::Message(message));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => self.fail("a server sent nonsense".into()),
        }
    }

    fn drive(&mut self, client: usize, rank: Rank, input: SessionInput<'_>) {
        let mut effects = SessionEffects::default();
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.session.handle(input, &mut effects);
        }
        self.flush(client, rank, effects);
    }

    fn flush(&mut self, client: usize, rank: Rank, effects: SessionEffects) {
        let SessionEffects { frames, completed, .. } = effects;
        let to = self.clients[client].to.get(&rank).inspect(|to| to.session.validate());
        let conn = to.and_then(|to| to.conn);
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
            None if client == JOB => self.choose_job(),
            // They do not look for names in fragments.
            None if client >= tree::FIRST && self.settings.split_entries == 0 => {
                self.choose_tree(client)
            }
            None => self.choose(client),
        };
        self.ask_first(client, script, self.now);
    }

    /// Sends the request to the authority, as far as the client knows it.
    fn ask_first(&mut self, client: usize, script: Script, at: u64) {
        let rank = self.clients[client].place(self.clients[client].aimed(&script));
        self.ask(client, script, rank, (at, 0), SoFar::default());
    }

    pub(super) fn ask(
        &mut self,
        client: usize,
        script: Script,
        rank: Rank,
        (at, stale): (u64, u32),
        so_far: SoFar,
    ) {
        let mut op = self.clients[client].fragments.aim(script.op());
        if let (Op::List { dir: at, .. } | Op::GetAttr { ino: at }, Some(leaf)) =
            (&mut op, so_far.leaf)
        {
            *at = leaf;
        }
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
        let merges = matches!(script, Script::Job(Step::Merge(_)));
        if merges && !to.session.is_connected() {
            if fresh {
                self.schedule(1, Event::Connect(client, rank));
            }
            return self.again(client, script, MS);
        }
        let mut effects = SessionEffects::default();
        to.session.at(Moment(self.now + 1));
        let tid = to.session.call(&Cred::root(), op, &mut effects);
        Self::chunks_of(&script, tid, &mut effects);
        self.note(|| format!("client.{client} asks {rank} {tid} {script:?}"));
        self.clients[client].asked = Some(Asked { script, at, rank, tid, stale, so_far });
        if fresh {
            self.schedule(1, Event::Connect(client, rank));
        }
        self.flush(client, rank, effects);
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

    #[allow(clippy::too_many_lines, reason = "an arm for each answer")]
    fn answered(&mut self, client: usize, asked: Asked, result: Result<Answer, Failure>) {
        if matches!(asked.script, Script::Tree(_)) {
            return self.tree_answered(client, asked, result);
        }
        let Asked { script, at, rank, stale, tid, mut so_far } = asked;
        let elsewhere = matches!(result, Ok(Answer::Elsewhere(_)));
        let again = result.as_ref().is_err_and(|failure| failure.errno == Errno::Again);
        if matches!(script, Script::Job(_)) && !elsewhere && !again {
            self.report.judged += 1;
            let text = format!("client.{client} {script:?} at {rank}");
            let asked = Asked { script, at, rank, tid, stale, so_far };
            if let Err(violation) = self.job_answered(client, asked, &result) {
                return self.fail(format!("{text}: {violation}, got {result:?}"));
            }
            let after = self.rng.between(1, 4 * MS);
            return self.schedule(after, Event::Turn(client));
        }
        if matches!(script, Script::Link(_)) && stale < AGREE && is_stale(&result) {
            // The server may not know an imported inode at once.
            return self.ask(client, script, rank, (at, stale + 1), so_far);
        }
        if is_stale(&result) && self.looks_for_what_it_says(client, &script) {
            return;
        }
        if self.linking_answered(client, (&script, at), &result) {
            return;
        }
        if self.passing_answered(client, (&script, at), &result) {
            return;
        }
        let about = so_far.leaf.unwrap_or_else(|| self.clients[client].aimed(&script));
        match &result {
            Ok(Answer::Fragments(fragments)) => {
                self.report.redirected += 1;
                let known = &mut self.clients[client];
                known.fragments.note(fragments);
                known.places.extend(fragments.parts);
                if matches!(script, Script::Stat(_)) {
                    let leaf = known.fragments.leaves(fragments.attr.ino)[0];
                    let rank = known.place(leaf);
                    so_far.leaf = Some(leaf);
                    return self.ask(client, script, rank, (at, 0), so_far);
                }
                // From the start: the listed fragments do not exist any more.
                return self.ask_first(client, script, at);
            }
            Ok(Answer::Elsewhere(elsewhere))
                if elsewhere.root != Ino(0) && matches!(script, Script::Export(..)) =>
            {
                // One in it must come back first.
                let first = Script::Export(elsewhere.root, rank);
                self.clients[client].places.insert(elsewhere.root, elsewhere.rank);
                self.clients[client].script.push_front(script);
                return self.again(client, first, MS);
            }
            Ok(Answer::Elsewhere(elsewhere)) if elsewhere.root != Ino(0) => {
                // Where the name of a directory leads.
                self.clients[client].places.insert(elsewhere.root, elsewhere.rank);
                return self.schedule(1, Event::Turn(client));
            }
            Ok(Answer::Elsewhere(elsewhere)) => {
                self.report.redirected += 1;
                self.clients[client].places.insert(about, elsewhere.rank);
                return self.ask(client, script, elsewhere.rank, (at, 0), so_far);
            }
            Err(failure)
                if failure.errno == Errno::Stale
                    && self.clients[client].fragments.whole_of(about).is_some()
                    && stale >= 40 =>
            {
                // The fragment is gone: the directory was put together.
                self.clients[client].fragments.forget(about);
                return self.ask_first(client, script, at);
            }
            Err(failure) if failure.errno == Errno::Stale && self.is_part_gone(&script) => {
                // A fragment that is gone since this was planned.
                return self.schedule(1, Event::Turn(client));
            }
            Err(failure)
                if failure.errno == Errno::Stale && self.inner() == Some(script.named()) =>
            {
                self.look_for_job(client, script);
                return self.schedule(MS, Event::Turn(client));
            }
            Err(failure) if failure.errno == Errno::Stale && stale < 2000 => {
                // The name exists: another rank may have it, or this one may not know yet. A
                // request about two directories finds out whether one rank has both.
                let known = &self.clients[client];
                if let Script::Rename(from, to) = &script
                    && known.home(to) != to.0
                {
                    // It may be either fragment that is gone.
                    let gone = [known.home(from), known.home(to)];
                    for gone in gone {
                        self.clients[client].fragments.forget(gone);
                    }
                    return self.ask_first(client, script, at);
                }
                if let Script::Rename(from, to) = &script
                    && known.place(known.home(from)) != known.place(known.home(to))
                    && self.pass(client, &script, at)
                {
                    return;
                }
                // After a restart only a walk brings it back.
                return match self.top(client, about) {
                    Some(name) => self.walk_first(client, script, name),
                    None => self.ask(client, script, rank, (at, stale + 1), so_far),
                };
            }
            // A fragment with a name of a file that has several may not come back.
            Err(failure)
                if failure.errno == Errno::Again
                    && matches!(script, Script::Join(_))
                    && self.links
                    && self.rng.percent(20) =>
            {
                self.report.refused += 1;
                return self.schedule(MS, Event::Turn(client));
            }
            Err(failure) if failure.errno == Errno::Again => {
                self.once_more(client, script);
                return self.schedule(5 * MS, Event::Turn(client));
            }
            Ok(_) | Err(_) => {}
        }
        let result = match self.gather(client, &script, about, &mut so_far, result) {
            Ok(result) => result,
            Err(leaf) => {
                so_far.leaf = Some(leaf);
                let rank = self.clients[client].place(leaf);
                return self.ask(client, script, rank, (at, 0), so_far);
            }
        };
        if self.passing_checked(client, (&script, at), &result) {
            return;
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

    /// A client that got EAGAIN retries a little later. A join finds out where the fragments are,
    /// and brings back the missing ones.
    fn once_more(&mut self, client: usize, script: Script) {
        let known = &mut self.clients[client];
        known.again = true;
        let join = if let Script::Join(dir) = script { Some(dir) } else { None };
        known.script.push_front(script);
        if let Some(dir) = join {
            let parts = known.fragments.parts(dir).into_iter().flatten();
            parts.for_each(|part| known.script.push_front(Script::Export(part, Rank(0))));
            known.script.push_front(Script::Stat(dir));
        }
    }

    /// The number in the name of a directory of the root.
    pub(super) fn top(&self, client: usize, dir: Ino) -> Option<usize> {
        let all = self.clients[client].dirs.iter().chain(&self.tree.bases);
        all.copied().position(|it| it == dir)
    }

    /// Looks a directory up by its name, and continues then.
    pub(super) fn walk_first(&mut self, client: usize, script: Script, name: usize) {
        let name = format!("d{name}").into_bytes();
        let about = self.clients[client].aimed(&script);
        self.clients[client].places.remove(&about);
        // The other directory may have returned since, without a redirect.
        let second = if let Script::Rename(_, (to, _)) = &script { Some(*to) } else { None };
        self.clients[client].script.push_front(script);
        let at = |to| self.top(client, to);
        if let Some((to, at)) = second.and_then(|to| Some((to, at(to)?))) {
            self.clients[client].places.remove(&to);
            let look = Script::Lookup((Ino::ROOT, format!("d{at}").into_bytes()));
            self.clients[client].script.push_front(look);
        }
        let script = Script::Lookup((Ino::ROOT, name));
        self.ask(client, script, Rank(0), (self.now, 0), SoFar::default());
    }
}
