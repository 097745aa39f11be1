//! Fetching cold directories from the metadata store, and the requests that wait for them.
//!
//! A request that needs only some names of a directory lists them: in a large directory only these
//! are looked up, and the directory stays incomplete. A request that waits for a directory is
//! handled again when a part of it arrived, and may then wait for more.

mod fail;
mod need;
mod validate;

use std::collections::VecDeque;

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{Row, RowValue, Rows};
use namespace::Hit;
use types::{ClientId, ConnId, Ino, Map, Moment, Rank, Seq, Set, Span, Timestamp};
use wire::{Message, Op, Request};

use crate::op::{Release, touched};
use crate::{Mds, MdsEffects, Phase};

use need::{Need, Needed, counts_of};

/// Rows put into the namespace in one slice: about two milliseconds.
const ROWS_PER_SLICE: usize = 8192;

/// How long to wait before a directory is read again.
const RETRY: Span = Span::from_millis(100);

/// The key of the reservation of inode numbers among the awaited directories.
pub(crate) const NUMBERS: Ino = Ino(0);

/// The requests and operations that wait for a directory.
#[derive(Debug)]
enum Waiter {
    /// A question: the frame is handled again.
    Question(ConnId, Vec<u8>),
    /// The blocked changes of a client.
    Changes(ClientId),
    /// Asynchronous operations of a client.
    Ahead(ClientId),
    /// The merge at the head of the queue.
    Merge,
    /// A subtree that is given back.
    Release(Release),
    /// Recovery.
    Recovery,
    /// The search for inodes after a recovery.
    Search,
    /// Directories of a subtree that came from another rank.
    Preload,
    /// A move of the balancer.
    Balancer,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    waiting: Map<Ino, Vec<Waiter>>,
    needed: Map<Ino, Needed>,
    /// Directories of which a part is being fetched.
    under_way: Set<Ino>,
    /// Waiters are being handled again: their new needs are collected.
    gathering: Option<Vec<Ino>>,
    /// Directories that are to be written before more of them is fetched, since when, and up to
    /// which change everything is to be written.
    held: Vec<(Ino, Moment, Option<Seq>)>,
    /// Waiters for clients that have to drop a directory.
    returning: Map<Ino, Vec<Waiter>>,
    /// Directories that arrived, and how many of their rows are in the namespace.
    arrived: VecDeque<Arrived>,
    /// Directories that could not be read, and when: they are tried again.
    failed: Vec<(Ino, Moment)>,
}

/// A directory that is being fetched into the namespace.
#[derive(Debug)]
struct Arrived {
    dir: Ino,
    rows: Rows,
    /// If these are some names only: how many the store has, and whether it is large.
    part: Option<((u64, u64, bool), bool)>,
    position: Seq,
    touched: (Timestamp, Seq),
    done: usize,
}

impl Fetches {
    /// Whether nobody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.arrived.is_empty()
    }
}

impl Mds {
    fn wait_for(&mut self, dir: Ino, need: Need, waiter: Waiter, effects: &mut MdsEffects) {
        self.fetches.waiting.entry(dir).or_default().push(waiter);
        if dir == NUMBERS {
            return;
        }
        let needed = self.fetches.needed.entry(dir).or_default();
        match need {
            Need::Names(names) => needed.names.extend(names),
            Need::Whole => needed.whole = true,
        }
        match &mut self.fetches.gathering {
            Some(gathered) => gathered.push(dir),
            None => self.start_fetch(dir, effects),
        }
    }

    /// Reads directories again that could not be read.
    pub(crate) fn fetch_tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let due = self.fetches.failed.extract_if(.., |(_, at)| now.since(*at) >= RETRY);
        let due: Vec<Ino> = due.map(|(dir, _)| dir).collect();
        for dir in due {
            self.start_fetch(dir, effects);
        }
        self.release_held(effects);
    }

    /// A checkpoint of this directory ended: waiting requests may have it fetched now.
    pub(crate) fn fetch_after_commit(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.fetches.held.retain(|(held, ..)| *held != dir);
        self.start_fetch(dir, effects);
    }

    /// Lets a request wait for a directory.
    pub(crate) fn park(
        &mut self,
        conn: ConnId,
        client: ClientId,
        request: &Request<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) {
        if !request.op.is_mutation() {
            return self.park_question(conn, request, dir, effects);
        }
        let need = self.need_of(&request.op, dir);
        let frame = Message::Request(request.clone()).to_frame();
        self.sessions.get_mut(client).blocked.push_front(frame);
        self.wait_for(dir, need, Waiter::Changes(client), effects);
    }

    /// Lets a request wait until clients have forgotten a directory.
    pub(crate) fn park_until_returned(
        &mut self,
        conn: ConnId,
        client: ClientId,
        request: &Request<'_>,
        dir: Ino,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        // Policies come from the monitor, for whomever they are.
        let waiter = if request.op.is_mutation() && !matches!(request.op, Op::SetPolicy { .. }) {
            self.sessions.get_mut(client).blocked.push_front(frame);
            Waiter::Changes(client)
        } else {
            Waiter::Question(conn, frame)
        };
        self.fetches.returning.entry(dir).or_default().push(waiter);
    }

    /// Lets the merge at the head of the queue wait for the same.
    pub(crate) fn merge_waits_until_returned(&mut self, dir: Ino) {
        self.fetches.returning.entry(dir).or_default().push(Waiter::Merge);
    }

    /// Handles the requests again that waited until clients dropped a directory.
    pub(crate) fn retry_returned(&mut self, dir: Ino, effects: &mut MdsEffects) {
        let waiters = self.fetches.returning.remove(&dir).unwrap_or_default();
        self.retry(waiters, effects);
    }

    /// Lets a request wait that will be handled as if it had just arrived.
    pub(crate) fn park_question(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        let need = self.need_of(&request.op, dir);
        self.wait_for(dir, need, Waiter::Question(conn, frame), effects);
    }

    /// An asynchronous operation waits for a directory; its frame is the first of the client's
    /// waiting ones.
    pub(crate) fn async_waits_for(&mut self, client: ClientId, dir: Ino, effects: &mut MdsEffects) {
        let first = self.sessions.first_async(client).and_then(decode);
        let need = match first {
            Some(Message::Request(request)) => self.need_of(&request.op, dir),
            Some(_) | None => Need::Whole,
        };
        self.wait_for(dir, need, Waiter::Ahead(client), effects);
    }

    pub(crate) fn merge_waits_for(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.wait_for(dir, Need::Whole, Waiter::Merge, effects);
    }

    pub(crate) fn release_waits_for(
        &mut self,
        dir: Ino,
        release: Release,
        effects: &mut MdsEffects,
    ) {
        self.wait_for(dir, Need::Whole, Waiter::Release(release), effects);
    }

    pub(crate) fn recovery_waits_for(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.wait_for(dir, Need::Whole, Waiter::Recovery, effects);
    }

    pub(crate) fn balancer_waits_for(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.wait_for(dir, Need::Whole, Waiter::Balancer, effects);
    }

    /// Whether a directory of a subtree is being fetched.
    pub(crate) fn is_fetching_below(&self, root: Ino) -> bool {
        let arrived = self.fetches.arrived.iter().map(|arrived| arrived.dir);
        let mut fetched = self.fetches.waiting.keys().copied().chain(arrived);
        fetched.any(|dir| self.namespace.is_within(dir, root))
    }

    pub(crate) fn search_waits_for(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.wait_for(dir, Need::Whole, Waiter::Search, effects);
    }

    pub(crate) fn fetched(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let (rows, part, position, touched) = match result {
            Ok(StoreResult::Dir(loaded)) => {
                let metastore::request::LoadedDir { manifest, rows } = *loaded;
                (rows, None, manifest.position, manifest.touched)
            }
            Ok(StoreResult::Found(loaded)) => {
                let metastore::request::LoadedDir { manifest, rows } = *loaded;
                let part = (counts_of(&manifest), self.is_large(&manifest));
                (rows, Some(part), manifest.position, manifest.touched)
            }
            Ok(_) => (Rows::new(), None, Seq(0), Default::default()),
            Err(failure) => return self.fetch_failed(dir, &failure, effects),
        };
        // Memory lacks the events that recovery could not apply.
        if let Some(error) = self.damage.withheld(dir).cloned() {
            let failure = StoreFailure { error, op: StoreOp::LoadDir { ino: dir } };
            return self.fetch_failed(dir, &failure, effects);
        }
        self.damage.is_read(dir);
        let known = self.fetches.is_under_way(dir);
        assert!(known, "{dir}: the fetch is known to be under way");
        let arrived = Arrived { dir, rows, part, position, touched, done: 0 };
        self.fetches.arrived.push_back(arrived);
        if self.phase == Phase::Recovering {
            while self.fetches.has_work() {
                self.fetch_step(effects);
            }
        }
    }

    /// Continues a client's frames, asynchronous ones and those behind them, until one has to wait
    /// again.
    fn retry_async(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let Some(conn) = self.sessions.conn_of(client) else { return };
        let mut waiting = std::mem::take(&mut self.sessions.get_mut(client).ahead.waiting);
        while let Some(frame) = waiting.pop_front() {
            match decode(&frame) {
                Some(Message::Request(request)) => self.request(conn, &request, effects),
                Some(Message::Chunk { tid, bytes }) => {
                    self.merge_chunk(conn, tid, bytes, effects);
                }
                Some(_) | None => {}
            }
            let again = &mut self.sessions.get_mut(client).ahead.waiting;
            if !again.is_empty() {
                again.append(&mut waiting);
                return;
            }
        }
    }

    /// The directories that are waited for, those that the waiting requests name, those of open
    /// files, and all above.
    pub(crate) fn wanted_directories(&mut self) -> Set<Ino> {
        let mut named: Vec<Ino> = self.fetches.waiting.keys().copied().collect();
        for waiter in self.fetches.waiting.values().flatten() {
            let frame = match waiter {
                Waiter::Question(_, frame) => Some(frame.as_slice()),
                Waiter::Changes(client) => self.sessions.first_blocked(*client),
                Waiter::Ahead(client) => self.sessions.first_async(*client),
                Waiter::Merge
                | Waiter::Release(_)
                | Waiter::Recovery
                | Waiter::Search
                | Waiter::Balancer
                | Waiter::Preload => None,
            };
            if let Some(Message::Request(request)) = frame.and_then(decode) {
                named.extend(touched(&request.op).0.into_iter().flatten());
            }
        }
        named.extend(self.opens.files());
        // Where they have their names.
        named.extend(self.authority.named_roots());
        named.extend(self.preload_homes());
        named.extend(self.authority.exporting());
        // Merges name these by their numbers, and refuse events in them if they are forgotten.
        named.extend(self.tables.decoupled.keys().copied());
        // Asynchronous operations there must not have to wait.
        named.extend(self.caps.alone().map(|(dir, _)| dir));
        named.into_iter().flat_map(|ino| self.namespace.ancestors(ino)).collect()
    }

    /// Puts a slice of an arrived directory into the namespace.
    pub(crate) fn fetch_step(&mut self, effects: &mut MdsEffects) {
        let Some(dir) = self.fetches.arrived.front().map(|arrived| arrived.dir) else { return };
        if self.is_not_ours(dir) {
            self.fetches.arrived.pop_front();
            self.namespace.finish_load(dir, Seq(0), Default::default());
            return self.came(dir, effects);
        }
        let Some(arrived) = self.fetches.arrived.front_mut() else { return };
        let Arrived { dir, ref rows, part, position, touched, ref mut done } = *arrived;
        let rank = self.rank;
        if let Some(counts) = part {
            let position = (position.seen_by(rank), (touched.0, touched.1.seen_by(rank)));
            let rows = rows.iter().map(|row| seen_by(rank, row));
            self.namespace.load_names(dir, rows, counts, position);
            self.fetches.arrived.pop_front();
            return self.came(dir, effects);
        }
        let part = rows.iter_from(*done).take(ROWS_PER_SLICE);
        self.namespace.load(dir, part.map(|row| seen_by(rank, row)));
        *done += ROWS_PER_SLICE;
        if *done < rows.len() {
            return;
        }
        self.fetches.arrived.pop_front();
        let touched = (touched.0, touched.1.seen_by(rank));
        self.namespace.finish_load(dir, position.seen_by(rank), touched);
        self.came(dir, effects);
    }

    /// Something of a directory is in memory.
    fn came(&mut self, dir: Ino, effects: &mut MdsEffects) {
        let fetched = self.fetches.under_way.remove(&dir);
        assert!(fetched, "{dir}: the fetch was under way");
        self.fetches.needed.remove(&dir);
        self.namespace.note_hit(dir, Hit::Fetch);
        self.restore_known_policies();
        let held = self.fetches.held.iter().find(|(held, ..)| *held == dir);
        if let Some((.., target)) = held.copied() {
            self.checkpoint_again(target);
        }
        self.retry_waiting(dir, effects);
        self.forget_others(dir);
    }

    /// Handles the requests again that waited for a directory.
    pub(crate) fn retry_waiting(&mut self, dir: Ino, effects: &mut MdsEffects) {
        let waiters = self.fetches.waiting.remove(&dir).unwrap_or_default();
        let outermost = self.fetches.gathering.is_none();
        self.fetches.gathering.get_or_insert_default();
        self.retry(waiters, effects);
        if outermost {
            for dir in self.fetches.gathering.take().unwrap_or_default() {
                self.start_fetch(dir, effects);
            }
        }
    }

    fn retry(&mut self, waiters: Vec<Waiter>, effects: &mut MdsEffects) {
        for waiter in waiters {
            match waiter {
                Waiter::Question(conn, frame) => {
                    if let Some(Message::Request(request)) = decode(&frame) {
                        self.request(conn, &request, effects);
                    }
                }
                Waiter::Changes(client) => self.retry_changes(client, effects),
                Waiter::Ahead(client) => self.retry_async(client, effects),
                Waiter::Merge => self.merges.resume(),
                Waiter::Release(release) => self.release_fetched(release, effects),
                Waiter::Recovery => self.recovery_continue(effects),
                Waiter::Search => {
                    self.search_fetched();
                    self.search_on(effects);
                }
                Waiter::Preload => {
                    self.preload_fetched();
                    self.authority_step(effects);
                }
                Waiter::Balancer => self.balancer_fetched(effects),
            }
        }
    }

    /// Executes a client's blocked changes until one has to wait again. Without a connection these
    /// are only changes that were resent after a crash.
    fn retry_changes(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let conn = self.sessions.conn_of(client).unwrap_or(ConnId::NOBODY);
        let before = self.sessions.act_for(Some(client));
        self.retry_changes_over(conn, client, effects);
        self.sessions.act_for(before);
    }

    fn retry_changes_over(&mut self, conn: ConnId, client: ClientId, effects: &mut MdsEffects) {
        while let Some(frame) = self.sessions.get_mut(client).blocked.pop_front() {
            let left = self.sessions.get_mut(client).blocked.len();
            match decode(&frame) {
                Some(Message::Request(request)) => {
                    self.execute_once(conn, client, &request, effects);
                }
                Some(Message::Chunk { tid, bytes }) => {
                    self.take_chunk((conn, tid), bytes, effects);
                }
                Some(_) | None => {}
            }
            if self.sessions.get_mut(client).blocked.len() > left {
                return;
            }
        }
    }
}

/// A row as it counts for a rank: a row of another rank is older than every event of this rank's
/// journal.
pub(crate) fn seen_by(rank: Rank, mut row: Row<'_>) -> Row<'_> {
    if let RowValue::Inode(record) = &mut row.value {
        record.version = record.version.seen_by(rank);
    }
    row
}

fn decode(frame: &[u8]) -> Option<Message<'_>> {
    let (frame, _) = wire::frame::decode(frame).ok()??;
    Message::decode(frame.payload).ok()
}
