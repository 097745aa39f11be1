//! Fetching cold directories from the metadata store, and the requests that wait for them.
//!
//! A request that needs only some names of a directory lists them: in a large directory only these
//! are looked up, and the directory stays incomplete. A request that waits for a directory is
//! handled again when a part of it arrived, and may then wait for more.
//!
//! Not here: how a waiter goes on ([`Woken`] says only that it may; `resume` does it).

mod need;
mod validate;
mod wait;

use std::collections::VecDeque;

use metastore::request::{StoreFailure, StoreResult};
use metastore::{DirTouch, Row, RowValue, Rows};
use namespace::{Hit, Namespace, StoredCounts};
use types::{ClientId, Error, Ino, Map, Moment, Rank, Seq, Set, Span};
use wire::Message;

use crate::admission::Incoming;
use crate::damage::{Damage, is_damage};
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::{Counters, MdsEffects, Settings};

use need::{Needed, counts_of};

pub(crate) use need::Need;
pub(crate) use wait::{Waiter, Woken};

/// Rows put into the namespace in one slice: about two milliseconds.
const ROWS_PER_SLICE: usize = 8192;

/// How long to wait before a directory is read again.
const RETRY: Span = Span::from_millis(100);

/// The key, among the awaited directories, of the next put of the rank's table: it reserves inode
/// numbers, and names the clients for which the next server waits.
pub(crate) const TABLE_PUT: Ino = Ino(0);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    waiting: Map<Ino, Vec<Waiter>>,
    needed: Map<Ino, Needed>,
    /// Directories of which a part is being fetched.
    under_way: Set<Ino>,
    /// Waiters whose wait is over, in the order in which they are handled.
    woken: VecDeque<Woken>,
    /// Woken waiters are being handled: their new needs are collected.
    batch: Option<Vec<Ino>>,
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
    part: Option<StoredCounts>,
    position: Seq,
    touched: DirTouch,
    done: usize,
}

impl Fetches {
    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many directories are waited for.
    pub(crate) fn awaited(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The directory that the next step puts into the namespace.
    pub(crate) fn next_arrived(&self) -> Option<Ino> {
        self.arrived.front().map(|arrived| arrived.dir)
    }
}

/// A directory of which something is in memory now.
pub(crate) struct Came {
    /// It was held back from readers, so that everything up to this change can be written.
    pub(crate) written_up_to: Option<Seq>,
}

/// The fetching of directories, with all that it may touch.
pub(crate) struct FetchCx<'a> {
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) damage: &'a mut Damage,
    pub(crate) settings: &'a Settings,
    pub(crate) rank: Rank,
    pub(crate) now: Moment,
    /// Changes that were resent after a crash are being executed.
    pub(crate) is_resend_busy: bool,
}

impl FetchCx<'_> {
    /// Lets a waiter wait for a part of a directory, which is fetched.
    pub(crate) fn wait_for(
        &mut self,
        dir: Ino,
        need: Need,
        waiter: Waiter,
        effects: &mut MdsEffects,
    ) {
        if self.fetches.add(dir, need, waiter) {
            self.start_fetch(dir, effects);
        }
    }

    /// Lets a waiter wait for a whole directory.
    pub(crate) fn wait_for_whole(&mut self, dir: Ino, waiter: Waiter, effects: &mut MdsEffects) {
        self.wait_for(dir, Need::Whole, waiter, effects);
    }

    /// Lets the walk through moved subtrees wait for a directory.
    pub(crate) fn preload(&mut self, dir: Ino, effects: &mut MdsEffects) {
        if !self.fetches.is_preloading(dir) {
            self.wait_for_whole(dir, Waiter::Preload, effects);
        }
    }

    /// Reads directories again that could not be read.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.now;
        let due = self.fetches.failed.extract_if(.., |(_, at)| now.since(*at) >= RETRY);
        let due: Vec<Ino> = due.map(|(dir, _)| dir).collect();
        for dir in due {
            self.start_fetch(dir, effects);
        }
        self.release_held(effects);
    }

    /// A checkpoint of this directory ended: waiting requests may have it fetched now.
    pub(crate) fn committed(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.fetches.held.retain(|(held, ..)| *held != dir);
        self.start_fetch(dir, effects);
    }

    /// All woken waiters were handled: what they need is fetched.
    pub(crate) fn end_wake(&mut self, effects: &mut MdsEffects) {
        for dir in self.fetches.take_batch() {
            self.start_fetch(dir, effects);
        }
    }

    /// Lets a request wait for a directory.
    pub(crate) fn park(
        &mut self,
        Incoming { conn, client, request }: Incoming<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) {
        let need = self.need_of(&request.op, dir);
        let frame = Message::Request(request.clone()).to_frame();
        let waiter = if request.op.is_mutation() {
            self.sessions.get_mut(client).blocked.push_front(frame);
            Waiter::Changes(client)
        } else {
            Waiter::Question(conn, frame)
        };
        self.wait_for(dir, need, waiter, effects);
    }

    /// An asynchronous operation waits for a directory; its frame is the first of the client's
    /// waiting ones.
    pub(crate) fn park_async(&mut self, client: ClientId, dir: Ino, effects: &mut MdsEffects) {
        let first = self.sessions.first_async(client).and_then(decode);
        let need = match first {
            Some(Message::Request(request)) => self.need_of(&request.op, dir),
            Some(_) | None => Need::Whole,
        };
        self.wait_for(dir, need, Waiter::Async(client), effects);
    }

    /// The store answered the read of a directory.
    pub(crate) fn stored(&mut self, dir: Ino, result: Result<StoreResult, Box<StoreFailure>>) {
        // Memory lacks the events that recovery could not apply to a withheld directory.
        let withheld = self.damage.withheld(dir).cloned();
        match (result, withheld) {
            (Ok(result), None) => {
                self.damage.is_read(dir);
                self.arrive(dir, result);
            }
            (Ok(_), Some(error)) => self.unreadable(dir, &error),
            (Err(failure), _) => self.unreadable(dir, &failure.error),
        }
    }

    fn unreadable(&mut self, dir: Ino, error: &Error) {
        self.damage.note(dir, error);
        if self.is_resend_busy && !is_damage(error.errno) {
            // A change that its client knows as applied must not fail now.
            self.fetches.read_later(dir, self.now);
        } else {
            self.fetches.fail(dir, error);
        }
    }

    /// Takes the answer of the store, unless it is an error.
    fn arrive(&mut self, dir: Ino, result: StoreResult) {
        let (rows, part, position, touched) = match result {
            StoreResult::Dir(loaded) => {
                let metastore::request::LoadedDir { manifest, rows } = *loaded;
                (rows, None, manifest.position, manifest.touched)
            }
            StoreResult::Found(loaded) => {
                let metastore::request::LoadedDir { manifest, rows } = *loaded;
                let (entries, subdirs, exact) = counts_of(&manifest);
                let may_estimate = self.is_large(&manifest);
                let part = StoredCounts { entries, subdirs, exact, may_estimate };
                (rows, Some(part), manifest.position, manifest.touched)
            }
            StoreResult::Done
            | StoreResult::Stored(_)
            | StoreResult::Conflict
            | StoreResult::Missing
            | StoreResult::Bytes(..)
            | StoreResult::Names(_)
            | StoreResult::Written { .. } => (Rows::new(), None, Seq(0), Default::default()),
        };
        assert!(self.fetches.is_under_way(dir), "{dir}: the fetch is known to be under way");
        let arrived = Arrived { dir, rows, part, position, touched, done: 0 };
        self.fetches.arrived.push_back(arrived);
    }

    /// Puts a slice of an arrived directory into the namespace. Returns the directory when all that
    /// arrived of it is there. The rows of a directory of another rank do not count.
    pub(crate) fn step(&mut self, is_others: bool) -> Option<Came> {
        let dir = self.fetches.next_arrived()?;
        if is_others {
            self.fetches.arrived.pop_front();
            self.namespace.store().finish_load(dir, Seq(0), Default::default());
            return Some(self.came(dir));
        }
        let Arrived { dir, ref rows, part, position, touched, ref mut done } =
            *self.fetches.arrived.front_mut()?;
        let rank = self.rank;
        let position = position.seen_by(rank);
        let touched = DirTouch { seq: touched.seq.seen_by(rank), ..touched };
        if let Some(counts) = part {
            let rows = rows.iter().map(|row| seen_by(rank, row));
            self.namespace.store().load_names(dir, rows, counts, position, touched);
            self.fetches.arrived.pop_front();
            return Some(self.came(dir));
        }
        let part = rows.iter_from(*done).take(ROWS_PER_SLICE);
        self.namespace.store().load(dir, part.map(|row| seen_by(rank, row)));
        *done += ROWS_PER_SLICE;
        if *done < rows.len() {
            return None;
        }
        self.fetches.arrived.pop_front();
        self.namespace.store().finish_load(dir, position, touched);
        Some(self.came(dir))
    }

    /// Wakes the waiters of a directory of which something is in memory.
    fn came(&mut self, dir: Ino) -> Came {
        self.fetches.under_way.remove(&dir);
        self.fetches.needed.remove(&dir);
        self.namespace.note_hit(dir, Hit::Fetch);
        let held = self.fetches.held.iter().find(|(held, ..)| *held == dir);
        let written_up_to = held.and_then(|(.., target)| *target);
        self.fetches.wake(dir);
        self.fetches.woken.push_back(Woken::Arrived(Waiter::Seen(dir)));
        Came { written_up_to }
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

/// The message of a waiting frame.
pub(crate) fn decode(frame: &[u8]) -> Option<Message<'_>> {
    let (frame, _) = wire::frame::decode(frame).ok()??;
    Message::decode(frame.payload).ok()
}
