//! The pending requests of each client, and its next ones.

use std::collections::{BTreeMap, VecDeque};

use types::{ClientId, Ino, Moment, Tid};
use wire::{Answer, Failure, Message, WantsExclusive};

use super::Requests;
use super::async_ops::AsyncClient;
use super::kernel::Kernel;
use super::project::Project;
use crate::call::{Call, CallKind};
use crate::region::{Region, RegionKind};
use crate::world::{Client, Event, Routes};

/// The numbers of questions without a request begin here.
pub(super) const ITS_OWN: u64 = 1 << 50;
/// One in so many clients lends its answers to a kernel. It remembers, too.
const LENDS_EVERY: u64 = 4;
/// So many of its last questions a client that remembers asks again.
const RECENT_MAX: usize = 12;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// Requests to be made next.
    pub(crate) again: VecDeque<Call>,
    /// The journal of the merge that is under way.
    pub(super) merging: Vec<u8>,
    /// The oracle does not follow it.
    pub(crate) unjudged: bool,
    /// When requests were made that are not answered, and the newest that was.
    made: BTreeMap<Tid, u64>,
    pub(super) last_reply: Option<u64>,
    /// Questions that it answered itself.
    pub(super) answered_here: u64,
    /// Its last questions, which it repeats if it caches replies.
    recent: Option<VecDeque<Call>>,
    /// Its answers are used by a kernel.
    pub(super) kernel: Option<Kernel>,
    /// Its local answers that the server does not know yet.
    pub(crate) async_ops: AsyncClient,
    /// Requests of the simulation itself, with their answers when they are there.
    pub(crate) asked: BTreeMap<u64, Option<types::Result<Answer>>>,
    /// Requests it still wants to make in this round.
    pub(crate) left: u64,
    /// Whether it works, without other clients, in the region that acknowledges only safe changes.
    pub(crate) careful: bool,
    pub(crate) project: Option<Project>,
    /// It keeps a log that a new server may need before anything else.
    pub(crate) logs: bool,
    /// It has a new connection, and its pending request waits until its log was read.
    pub(crate) returning: bool,
}

impl Requests {
    /// Adds a client, which connects soon. Returns its place.
    pub(crate) fn add_client(&mut self) -> usize {
        let id = self.new_id();
        let remembers = id.0.is_multiple_of(2);
        let lends = id.0.is_multiple_of(LENDS_EVERY);
        let client = self.add(Client { lends, ..Client::new(id, remembers) });
        self.workers[client].kernel = lends.then(Kernel::default);
        if remembers {
            self.workers[client].recent = Some(VecDeque::new());
        }
        client
    }

    pub(crate) fn new_id(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    pub(crate) fn add(&mut self, mut client: Client) -> usize {
        if self.plan.exclusive {
            client.wants_exclusive = WantsExclusive::Always;
        }
        self.world.clients.push(client);
        self.workers.push(Worker::default());
        self.world.home(self.workers.len() - 1);
        self.workers.len() - 1
    }

    /// Whether a client waits for nothing.
    pub(crate) fn is_idle(&self, client: usize) -> bool {
        let Client { alive, routed, .. } = &self.world.clients[client];
        let rests = routed.is_empty() && self.workers[client].again.is_empty();
        !alive || (rests && !self.world.session(client).is_async())
    }

    /// Makes a request. Returns its number.
    pub(crate) fn call(&mut self, client: usize, call: Call) -> u64 {
        let inos = call.what.touched().0;
        let paths = inos.iter().filter_map(|ino| Some((self.path_of(*ino)?, *ino)));
        let paths: Vec<_> = paths.collect();
        let paths = if paths.len() < inos.len() { Vec::new() } else { paths };
        self.begin(client, call, None, paths)
    }

    /// A request is sent, or a walk for it.
    pub(super) fn note_sent(&mut self, client: usize, tid: Tid, call: Call) {
        self.workers[client].made.insert(tid, self.world.now);
        self.begins(client, &call);
        let Worker { merging, unjudged, .. } = &mut self.workers[client];
        if *unjudged {
            return;
        }
        let id = self.world.clients[client].id;
        if client != 0 {
            self.history.asked((id, tid), &call.what, self.world.now);
        }
        self.removed.requested(&call.what);
        let merges = matches!(call.what, CallKind::Merge { .. });
        let journal = if merges { merging.clone() } else { Vec::new() };
        self.oracle.issue((id, tid), call, journal);
    }

    pub(super) fn note_reply(&mut self, client: usize, tid: Tid, ok: bool) {
        self.oracle.delivered((self.world.clients[client].id, tid), ok);
        let Worker { made, last_reply, .. } = &mut self.workers[client];
        *last_reply = (*last_reply).max(made.remove(&tid));
    }

    /// Whether a client could answer a question itself. Then it is judged like an answer of the
    /// server.
    fn answers_itself(&mut self, client: usize, call: &Call) -> bool {
        let known = &self.workers[client];
        let fresh = known
            .last_reply
            .is_some_and(|last_reply| self.world.now - last_reply < client::VALID.0);
        if client == 0 {
            return false;
        }
        if self.kernel_answers(client, call) {
            return true;
        }
        self.begins(client, call);
        let tid = Tid(ITS_OWN + self.workers[client].answered_here);
        self.workers[client].answered_here += 1;
        (fresh && self.says(client, call, tid)) || self.says_leased(client, call, tid, fresh)
    }

    /// The clock of a client: each has its own offset, and some run as much slower as the promise
    /// allows, or faster.
    pub(crate) fn moment_at(&self, client: usize) -> Moment {
        let id = self.world.clients[client].id.0;
        let per_mille = [991, 1000, 1009, 1200][usize::try_from(id / 2 % 4).unwrap_or(0)];
        Moment(id * 1_000_000_000_000 + self.world.now / 1000 * per_mille)
    }

    /// The moment of a client's answer from its cache. A client that has not noticed a crash
    /// answers as of the moment before it: the new server serves no client before this one has
    /// noticed, or its cache has expired.
    pub(crate) fn moment_of(&self, client: usize) -> u64 {
        let (connected, last) = (self.world.is_connected(client), self.workers[client].last_reply);
        let crash = self.history.last_crash();
        let crash = crash.filter(|crash| !connected && Some(*crash) > last);
        crash.map_or(self.world.now, |crash| crash - 1)
    }

    /// A client answers from its cache.
    pub(crate) fn knows(
        &mut self,
        client: usize,
        call: &Call,
        tid: Tid,
        result: Result<Answer, Failure>,
    ) {
        let (id, epoch) = (self.world.clients[client].id, self.world.session(client).epoch().0);
        self.world.tally.count("answers from caches", 1);
        self.world.note(format_args!("{id} knows {call:?}: {result:?}"));
        let (seq, safe, time) = (types::Seq(0), types::Seq(0), types::Timestamp(0));
        let reply = wire::Reply { tid, seq, time, safe, grants: None, result };
        let at = self.moment_of(client);
        self.history.asked((id, tid), &call.what, at);
        self.history.note_reply(id, epoch, &reply, at);
        if self.world.is_connected(client) && self.world.servers[0].is(mds::Mds::is_active) {
            self.oracle.issue((id, tid), call.clone(), Vec::new());
            let judged = self.oracle.emitted(id, &Message::Reply(reply));
            self.world.check(judged);
        }
    }

    /// The path of an inode in the model.
    pub(crate) fn path_of(&self, ino: Ino) -> Option<String> {
        let mut path = String::new();
        let mut at = ino;
        for _ in 0..200 {
            if at == Ino::ROOT {
                return Some(if path.is_empty() { "/".into() } else { path });
            }
            let (parent, name) = self.oracle.model.names_of(at).into_iter().next()?;
            path = format!("/{}{path}", String::from_utf8_lossy(&name));
            at = parent;
        }
        None
    }

    /// A client's turn to do something.
    pub(crate) fn turn(&mut self, client: usize) {
        if !self.world.clients[client].alive {
            return;
        }
        let window = if self.workers[client].careful { 1 } else { self.plan.window };
        if self.world.clients[client].routed.len() < window {
            if let Some(call) = self.workers[client].again.pop_front() {
                if !self.answers_itself(client, &call) {
                    self.call(client, call);
                }
            } else if self.issuing && self.workers[client].left > 0 {
                self.workers[client].left -= 1;
                self.work(client);
            }
        }
        let more = !self.workers[client].again.is_empty()
            || (self.issuing && self.workers[client].left > 0);
        if more {
            let after = self.world.delay();
            self.world.schedule(after, Event::Turn(client));
        }
    }

    fn work(&mut self, client: usize) {
        if self.workers[client].project.is_some() && self.world.rng.percent(60) {
            return self.work_on_project(client);
        }
        if let Some(call) = self.look_again(client).or_else(|| super::choose::next(self, client))
            && !self.answers_itself(client, &call)
        {
            self.look_later(client, &call);
            self.call(client, call);
        }
    }

    /// Something that a client was told before, if it remembers that.
    fn look_again(&mut self, client: usize) -> Option<Call> {
        let recent = self.workers[client].recent.as_ref()?;
        let often = if self.workers[client].kernel.is_some() { 70 } else { 40 };
        if recent.is_empty() || !self.world.rng.percent(often) {
            return None;
        }
        let at = self.world.rng.below(recent.len() as u64);
        let call = recent.get(usize::try_from(at).ok()?).cloned()?;
        // Only where it works in another way: decoupled subtrees have other rules.
        let careful = self.workers[client].careful;
        let works = |at: &usize| {
            let Region { known, closed, kind, .. } = self.oracle.regions[*at];
            let kinds = if careful {
                [RegionKind::AckSafe; 2]
            } else {
                [RegionKind::Strong, RegionKind::Volatile]
            };
            known && !closed && kinds.contains(&kind)
        };
        let regions = self.oracle.regions_of(&call);
        (!regions.is_empty() && regions.iter().all(works)).then_some(call)
    }

    fn look_later(&mut self, client: usize, call: &Call) {
        let Some(recent) = self.workers[client].recent.as_mut() else { return };
        let cred = call.cred.clone();
        let looks = match &call.what {
            CallKind::Lookup { .. } | CallKind::GetAttr { .. } => vec![call.what.clone()],
            CallKind::Create { parent, name, .. }
            | CallKind::Unlink { parent, name }
            | CallKind::Rmdir { parent, name } => {
                let (parent, name) = (*parent, name.clone());
                vec![CallKind::Lookup { parent, name }, CallKind::GetAttr { ino: parent }]
            }
            CallKind::Rename { from, to, .. } => {
                let look = |(parent, name): &(Ino, String)| CallKind::Lookup {
                    parent: *parent,
                    name: name.clone(),
                };
                vec![look(from), look(to)]
            }
            _ => return,
        };
        for what in looks {
            recent.push_back(Call { cred: cred.clone(), what });
        }
        while recent.len() > RECENT_MAX {
            recent.pop_front();
        }
    }

    pub(crate) fn break_one(&mut self, which: u64) {
        let alive = self.world.alive_conns(|conn| conn.client != 0);
        if let Some(at) = which.checked_rem(alive.len() as u64) {
            self.world.break_conn(alive[at as usize], true);
        }
    }

    pub(crate) fn kill(&mut self, which: u64) {
        let count = self.workers.len() as u64 - 1;
        let Some(at) = which.checked_rem(count) else { return };
        let client = at as usize + 1;
        if !self.world.clients[client].alive {
            return;
        }
        self.oracle.late = true;
        self.end_process(client);
    }

    /// A client ends without a word.
    pub(crate) fn end_process(&mut self, client: usize) {
        let id = self.world.clients[client].id;
        self.world.note(format_args!("$ kill {id}"));
        self.drop_async(client);
        self.world.clients[client].alive = false;
        self.history.killed(id);
        if let Some(conn) = self.world.home(client).conn.take() {
            self.world.break_conn(conn, true);
        }
    }
}
