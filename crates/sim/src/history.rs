//! The clients' view of the subtrees with the strongest promise: the time of each request, the time
//! of its answer, and the answer.
//!
//! The [`crate::oracle`] sees the server and knows the order of its work. This module does not: a
//! history is judged by the messages that reached the clients, and by the faults. The server's
//! clock, which answers carry, and the moments at which it executed changes are only hints for the
//! start of the search: without them, a search among many changes without an answer takes too long.
//!
//! Invariant: a history begins and ends in quiet, when all places were looked at.

use std::collections::{BTreeMap, BTreeSet};

use linearize::names::{
    Act, CallOutcome, Crash, History, Place, PlaceContent, PossibleEffect, RecordedCall, Seen,
};
use types::{Attr, ClientId, Errno, Ino, Seq, Span, Tid};
use wire::{Answer, Failure, Reply};

use crate::call::CallKind;
use crate::oracle::Applied;
use crate::region::{Region, RegionKind};
use crate::tree::Tree;
use crate::world::EPOCH;

/// A message without a delay arrives sooner than this.
const SLACK: Span = Span::from_millis(300);

type Key = (ClientId, Tid);

/// Where a change stands in the journal of a term, by its latest answer.
#[derive(Clone, Copy, Debug)]
struct Position {
    key: Key,
    epoch: u64,
    seq: Seq,
}

/// An execution of a change by the server.
#[derive(Clone, Copy, Debug)]
struct Execution {
    seq: Seq,
    time: u64,
    effect: PossibleEffect,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Directories whose names are watched.
    dirs: BTreeSet<Ino>,
    initial: BTreeMap<Place, PlaceContent>,
    /// Questions without an answer, and when they were asked.
    open: BTreeMap<Key, (CallKind, u64)>,
    /// Those with one.
    calls: Vec<(Key, RecordedCall)>,
    /// When the server carried them out.
    guesses: BTreeMap<Key, Vec<Execution>>,
    /// The last hint at an execution or a crash.
    last_hint: u64,
    /// Which call a change is.
    changes: BTreeMap<Key, usize>,
    /// Changes that no client knows to be safe.
    positions: Vec<Position>,
    crashes: Vec<Crash>,
    /// Clients that may not have repeated their changes, and the time until which that is so.
    doubts: BTreeMap<ClientId, u64>,
    /// Requests that were judged.
    pub judged: u64,
}

impl Recorder {
    /// A client works in these directories, which promise applied changes.
    pub(crate) fn watch(&mut self, dirs: Vec<Ino>) {
        self.dirs.extend(dirs);
    }

    /// A client asks for something.
    pub(crate) fn asked(&mut self, key: Key, what: &CallKind, now: u64) {
        let is_watched = match what {
            CallKind::Lookup { parent: dir, .. }
            | CallKind::Walk { base: dir, .. }
            | CallKind::Create { parent: dir, .. }
            | CallKind::Link { parent: dir, .. }
            | CallKind::Unlink { parent: dir, .. }
            | CallKind::Rmdir { parent: dir, .. }
            | CallKind::List { dir, .. } => self.dirs.contains(dir),
            CallKind::Rename { from, to, .. } => {
                self.dirs.contains(&from.0) && self.dirs.contains(&to.0)
            }
            _ => false,
        };
        if is_watched {
            self.open.insert(key, (what.clone(), now));
        }
    }

    /// An answer reached a client, in a term of the server.
    pub(crate) fn note_reply(&mut self, client: ClientId, epoch: u64, reply: &Reply, now: u64) {
        let key = (client, reply.tid);
        let is_first = self.answered(key, reply, now);
        if let Some(call) = self.changes.get(&key).map(|at| &mut self.calls[*at].1) {
            if reply.result.is_err() && !is_first {
                // The change was repeated, and the client learns that it is lost.
                call.doubt = call.doubt.max(now);
            }
            self.positions.retain(|position| position.key != key);
            self.positions.push(Position { key, epoch, seq: reply.seq });
        }
        let (calls, changes) = (&mut self.calls, &self.changes);
        self.positions.retain(|position| {
            let is_safe = position.epoch == epoch && position.seq <= reply.safe;
            if is_safe {
                let call = &mut calls[changes[&position.key]].1;
                call.safe = call.safe.min(now);
            }
            !is_safe
        });
    }

    /// The first answer to a question that is watched. Returns whether it was that.
    fn answered(&mut self, key: Key, reply: &Reply, now: u64) -> bool {
        let Some((what, start)) = self.open.remove(&key) else { return false };
        let Some(act) = act(&what, &reply.result) else { return true };
        let mut outcome = outcome(&what, &reply.result);
        let crashed = self.crashes.iter().find(|crash| crash.start >= start).copied();
        if let CallKind::Create { .. } = what
            && crashed.is_some()
            && is_forgotten(reply)
        {
            outcome = CallOutcome::Unknown;
        }
        let mut call = RecordedCall::new(act, start).ended(now, outcome);
        if reply.time.0 > EPOCH {
            call.hint = u64::try_from(reply.time.0 - EPOCH).unwrap_or(now);
        } else if let Some(crash) = crashed.filter(|_| call.is_change() && reply.result.is_ok()) {
            // The server knows that it was done, but no longer when: before the crash.
            call.hint = crash.start - 1;
        }
        if call.is_change() && reply.result.is_ok() {
            self.changes.insert(key, self.calls.len());
        }
        self.calls.push((key, call));
        true
    }

    /// The server carries something out. No more than a hint.
    pub(crate) fn applied(&mut self, key: Key, applied: &Applied, now: u64) {
        let effect = PossibleEffect { hint: self.next_hint(now), made: applied.ino, undone: false };
        let execution = Execution { seq: applied.seq, time: now, effect };
        self.guesses.entry(key).or_default().push(execution);
    }

    /// A hint at what happens now. A server that was waiting for a directory executes many changes
    /// at one time: with equal hints the search would try them in the order of their answers, and
    /// the answer to the first may come last, after a crash.
    fn next_hint(&mut self, now: u64) -> u64 {
        self.last_hint = now.max(self.last_hint + 1);
        self.last_hint
    }

    /// A new server recovered everything up to a position. No more than a hint.
    pub(crate) fn recovered(&mut self, last: Seq) {
        for execution in self.guesses.values_mut().flatten() {
            execution.effect.undone |= execution.seq > last;
        }
    }

    /// The server crashed.
    pub(crate) fn crashed(&mut self, now: u64) {
        let hint = self.next_hint(now);
        self.crashes.push(Crash { start: now, end: now, hint });
    }

    /// When the server crashed last.
    pub(crate) fn last_crash(&self) -> Option<u64> {
        self.crashes.last().map(|crash| crash.start)
    }

    /// A client is dead.
    pub(crate) fn killed(&mut self, client: ClientId) {
        self.doubts.insert(client, u64::MAX);
    }

    /// A client is welcome again, or has another answer; so many changes were sent again and not
    /// answered. The server waits for so long after a crash.
    pub(crate) fn returned(&mut self, client: ClientId, resent: usize, wait: Span, now: u64) {
        let last = self.crashes.last().map_or(0, |crash| crash.end);
        let is_late = now + SLACK.0 > last + wait.0;
        match self.doubts.get(&client).copied() {
            None if resent > 0 && is_late => {
                self.doubts.insert(client, u64::MAX);
            }
            Some(u64::MAX) if resent == 0 => {
                self.doubts.insert(client, now);
            }
            None | Some(_) => {}
        }
    }

    /// The cluster is quiet, and this is its content. Returns the history until now, if there is
    /// any, and begins the next one.
    pub(crate) fn end(&mut self, tree: &Tree, regions: &[Region], now: u64) -> Option<History> {
        let found = places(tree, regions);
        let initial = std::mem::replace(&mut self.initial, found);
        let last = std::mem::replace(self, Self { judged: self.judged, ..Self::default() });
        (self.dirs, self.initial) = (last.dirs, last.initial);
        if last.calls.is_empty() && last.open.is_empty() {
            return None;
        }
        let mut calls = Vec::new();
        let open = last.open.into_iter().filter_map(|(key, (what, start))| {
            let act = act(&what, &Err(Errno::TimedOut.into()))?;
            Some((key, RecordedCall::new(act, start)))
        });
        for (key, mut call) in last.calls.into_iter().chain(open) {
            let doubt = last.doubts.get(&key.0).copied().unwrap_or(0);
            call.doubt = call.doubt.max(doubt);
            let executions = last.guesses.get(&key).map_or(&[][..], Vec::as_slice);
            // The answer has the time of the execution that it reports.
            if let Some(found) = executions.iter().find(|found| found.time == call.hint) {
                call.hint = found.effect.hint;
            }
            call.guesses = executions.iter().map(|execution| execution.effect).collect();
            calls.push(call);
        }
        self.judged += calls.len() as u64;
        let history =
            History { initial: initial.into_iter().collect(), calls, crashes: last.crashes };
        Some(self.with_last_look(history, now))
    }

    /// Each place is looked at in the end, as if by a request of its own: no change happens at that
    /// time.
    fn with_last_look(&self, mut history: History, now: u64) -> History {
        let mut places: BTreeSet<Place> = self.initial.keys().cloned().collect();
        places.extend(history.initial.iter().map(|(place, _)| place.clone()));
        places.extend(history.calls.iter().flat_map(|call| call.act.places()));
        for place in places {
            let outcome = match self.initial.get(&place) {
                Some(thing) => CallOutcome::Did(Seen::PlaceContent(*thing)),
                None => CallOutcome::Refused(Errno::NotFound),
            };
            history.calls.push(RecordedCall::new(Act::Look(place), now).ended(now, outcome));
        }
        history
    }
}

/// Whether the server knows that a create took effect, but not its result.
fn is_forgotten(reply: &Reply) -> bool {
    match &reply.result {
        Ok(_) => reply.time.0 == 0,
        Err(failure) => matches!(failure.errno, Errno::NotFound | Errno::Stale),
    }
}

fn thing(attr: &Attr) -> PlaceContent {
    PlaceContent { ino: attr.ino, dir: attr.is_dir() }
}

/// The claims of a request about places; None without any.
fn act(what: &CallKind, result: &Result<Answer, Failure>) -> Option<Act> {
    Some(match what {
        CallKind::Lookup { parent, name } => Act::Look(Place::new(*parent, name)),
        CallKind::Walk { path, .. } => {
            let Ok(Answer::Walked { parent, .. }) = result else { return None };
            let last = path.rsplit('/').next()?;
            Act::Look(Place::new(*parent, last))
        }
        CallKind::Create { parent, name, mode, .. } => {
            let dir = types::FileType::from_mode(*mode) == Some(types::FileType::Directory);
            Act::Make { at: Place::new(*parent, name), dir }
        }
        CallKind::Link { ino, parent, name } => {
            Act::Link { ino: *ino, at: Place::new(*parent, name) }
        }
        CallKind::Unlink { parent, name } => {
            Act::Remove { at: Place::new(*parent, name), dir: false }
        }
        CallKind::Rmdir { parent, name } => {
            Act::Remove { at: Place::new(*parent, name), dir: true }
        }
        CallKind::Rename { from, to, flags } => Act::Move {
            from: Place::new(from.0, &from.1),
            to: Place::new(to.0, &to.1),
            exchange: flags.exchange,
            no_replace: flags.no_replace,
        },
        CallKind::List { dir, .. } => Act::List(*dir),
        _ => return None,
    })
}

fn outcome(what: &CallKind, result: &Result<Answer, Failure>) -> CallOutcome {
    let seen = match result {
        Err(failure) => {
            return match failure.errno {
                Errno::NoSpace | Errno::Io | Errno::Again | Errno::TimedOut => CallOutcome::Unknown,
                errno => CallOutcome::Refused(errno),
            };
        }
        Ok(Answer::Attr(attr)) => Seen::PlaceContent(thing(attr)),
        Ok(Answer::Walked { attr: Some(attr), .. }) => Seen::PlaceContent(thing(attr)),
        Ok(Answer::Walked { attr: None, .. }) => return CallOutcome::Refused(Errno::NotFound),
        Ok(Answer::Entries { entries, more }) => {
            let names = entries.iter().map(|(name, attr)| (name.clone(), thing(attr))).collect();
            match what {
                CallKind::List { after: None, .. } if !more => Seen::All(names),
                _ => Seen::Some(names),
            }
        }
        Ok(_) => Seen::Done,
    };
    CallOutcome::Did(seen)
}

/// The content of the places in the regions that promise applied changes.
fn places(tree: &Tree, regions: &[Region]) -> BTreeMap<Place, PlaceContent> {
    let strong = |region: &&Region| matches!(region.kind, RegionKind::Strong | RegionKind::AckSafe);
    let mut found = BTreeMap::new();
    for region in regions.iter().filter(strong).filter(|region| !region.path.is_empty()) {
        for (path, item) in tree.range(region.path.clone()..) {
            let Some(rest) = path.strip_prefix(&region.path) else { break };
            let Some((parent, name)) = path.rsplit_once('/').filter(|_| rest.starts_with('/'))
            else {
                continue;
            };
            if let Some(parent) = tree.get(parent) {
                found.insert(Place::new(parent.attr.ino, name), thing(&item.attr));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
