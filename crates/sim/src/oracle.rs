//! The truth: the model of the namespace beside the server, and every promise that was made to a
//! client.
//!
//! The oracle sees every message at the moment the server emits it, before the network can delay or
//! lose it. That is the order in which requests took effect, so each one is executed on the model
//! at that moment and must have the same result. When the server crashes, the model returns to the
//! state of the recovered journal.
//!
//! After a crash the oracle does not know regions of the namespace without durability. They are
//! *unknown* until the simulation reads them back.

mod async_ops;
mod merged;
mod repeated;

use std::collections::BTreeMap;

use model::Model;
use types::{Attr, ClientId, Epoch, Errno, Ino, InoRange, Seq, Tid, Timestamp};
use wire::{Answer, Failure, Message, Reply};

use crate::call::{Call, CallKind};
use crate::expect::{self, Expected};
use crate::invariants::numbers::Numbers;
use crate::invariants::{applied_survives, exactly_once, merges, safe_survives};
use crate::region::{Region, RegionKind};
pub(crate) use crate::world::Violation;

/// Names a request for ever.
pub(crate) type Key = (ClientId, Tid);

/// A request as far as it got.
#[derive(Clone, Debug)]
pub struct Issued {
    /// What was asked.
    pub call: Call,
    /// The journal that a merge transfers.
    pub journal: Vec<u8>,
    /// Set while the change is part of the model: its position, inode and time.
    pub applied: Option<Applied>,
    /// The client heard that it succeeded.
    pub delivered: bool,
    /// The required first answer, from the time when the change was applied.
    expected: Option<Expected>,
    /// The attributes of the created inode since the request arrived again.
    since: Vec<Attr>,
    /// It had nothing to do: a rename to the same inode.
    pub no_change: bool,
    /// The client was told that a change which had succeeded is lost.
    pub reported_lost: bool,
    /// The client answered it itself.
    is_async: bool,
}

/// How a change was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Position in the journal; 0 for none.
    pub seq: Seq,
    /// The inode it created.
    pub ino: Ino,
    /// When.
    pub time: Timestamp,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The namespace as clients see it now.
    pub model: Model,
    /// The namespace when everything was durable last, and the changes since.
    base: Model,
    log: Vec<Key>,
    /// The changes since in regions that are unknown.
    unknown: Vec<Key>,
    /// Every request since then.
    pub requests: BTreeMap<Key, Issued>,
    /// The largest position that the server called safe.
    pub safe: Seq,
    /// Parts of the namespace with different promises.
    pub regions: Vec<Region>,
    /// Changes that a crash undid, until they are done again, with the inodes that they created. A
    /// client without a reply gets a new inode: the inode that other clients saw does not come
    /// back, and their requests about it fail.
    undone: Vec<(Key, Ino)>,
    pub(crate) numbers: Numbers,
    /// The store fails now and then: requests may be refused for that.
    pub store_fails: bool,
    /// Clients that were killed, or stayed away longer than the server waits.
    pub late: bool,
    /// How many answers were compared.
    pub checked: u64,
}

impl Oracle {
    /// Replaces the model by the namespace as it was read.
    pub fn learn(&mut self, mut model: Model) {
        // A client reads no removed tree; the model knew all of them.
        model.take_removed(&self.model);
        self.model = model;
        for region in &mut self.regions {
            region.known = true;
        }
        self.mark_durable();
    }

    /// Everything done so far is durable, as far as it is promised, and answered.
    pub fn mark_durable(&mut self) {
        self.base = self.model.clone();
        self.log.clear();
        self.unknown.clear();
        self.requests.clear();
        self.undone.clear();
    }

    /// Notes a request before it is sent.
    pub fn issue(&mut self, key: Key, call: Call, journal: Vec<u8>) {
        let issued = Issued {
            call,
            journal,
            applied: None,
            delivered: false,
            expected: None,
            since: Vec::new(),
            no_change: false,
            reported_lost: false,
            is_async: false,
        };
        self.requests.insert(key, issued);
    }

    /// The server emitted a message to a client.
    ///
    /// # Errors
    /// If it must not have.
    pub fn emitted(&mut self, client: ClientId, message: &Message<'_>) -> Result<(), Violation> {
        match message {
            Message::Welcome(welcome) => {
                self.safe = self.safe.max(welcome.safe);
                Ok(())
            }
            // Later answers of the client from its cache are judged one by one.
            Message::Revoke { .. } => Ok(()),
            Message::Reply(reply) => {
                self.safe = self.safe.max(reply.safe);
                self.replied((client, reply.tid), reply)
            }
            Message::Hello(_)
            | Message::Request(_)
            | Message::Batch(_)
            | Message::Peer(_)
            | Message::Heartbeat(_)
            | Message::Balanced(_)
            | Message::Chunk { .. }
            | Message::MonRequest { .. }
            | Message::MonReply { .. }
            | Message::Trace { .. }
            | Message::Traced(_)
            | Message::Beacon(_)
            | Message::Map(_)
            | Message::Moved { .. }
            | Message::Recall { .. }
            | Message::Stop => Err(format!("the server sent {message:?} to a client")),
        }
    }

    fn replied(&mut self, key: Key, reply: &Reply) -> Result<(), Violation> {
        let Some(issued) = self.requests.get(&key) else {
            let Ok(Answer::Range(range)) = reply.result else { return Ok(()) };
            // A session sent the request without a call of its client.
            return self.numbers.grant(key.0, range);
        };
        if crate::requests::quotas::is_report(&issued.call.what) {
            return Ok(());
        }
        self.checked += 1;
        let call = issued.call.clone();

        let about = |what: String| format!("{} {}: {call:?}: {what}", key.0, key.1);
        match &reply.result {
            Ok(answer) => self.succeeded(key, reply, answer).map_err(about),
            Err(failure) => self.failed(key, failure).map_err(about),
        }
    }

    fn succeeded(&mut self, key: Key, reply: &Reply, answer: &Answer) -> Result<(), Violation> {
        let issued = &self.requests[&key];
        let call = issued.call.clone();
        if let CallKind::Merge { subtree, flags, .. } = &call.what {
            if flags.dry_run {
                return Ok(());
            }
            let (subtree, journal) = (*subtree, issued.journal.clone());
            return self.merged(key, subtree, &journal);
        }
        if let Answer::Range(range) = answer {
            return self.numbers.grant(key.0, *range);
        }
        safe_survives::answer(answer, reply)?;
        if self.must_be_safe(&call) && reply.seq > reply.safe {
            return Err("acknowledged before it was durable".into());
        }
        let applied = issued.applied;
        let expected = self.request(key).expected.take();
        match (applied, expected) {
            (Some(_), Some(expected)) => self.compare(&expected, answer),
            (Some(applied), None) => {
                let since = &self.requests[&key].since;
                exactly_once::repeated((&self.model, since), &applied, reply, answer)
            }
            // Whether it was done was forgotten while the client was away.
            (None, _) if self.is_unknown(&call) || (self.late && call.what.is_change()) => {
                self.request(key).no_change = true;
                Ok(())
            }
            (None, _) => self.answered(key, &call, answer),
        }
    }

    /// A question was answered, or a change that had nothing to do.
    fn answered(&mut self, key: Key, call: &Call, answer: &Answer) -> Result<(), Violation> {
        if self.is_busy(key.0, call) {
            return Err(format!("the subtree blocks others, but the answer was {answer:?}"));
        }
        let before = call.what.is_change().then(|| self.model.clone());
        let expected = expect::perform(&mut self.model, call, Timestamp(1), Ino(u64::MAX))
            .map_err(|errno| {
                format!("must fail with {}, was answered {answer:?}", errno.symbol())
            })?;
        if before.is_some_and(|before| before != self.model) {
            return Err("answered, but not carried out".into());
        }
        self.request(key).no_change = true;
        self.compare(&expected, answer)
    }

    fn compare(&self, expected: &Expected, answer: &Answer) -> Result<(), Violation> {
        if expect::agrees(expected, answer, |attr| self.blur(attr)) {
            return Ok(());
        }
        Err(format!("expected {expected:?}, was answered {answer:?}"))
    }

    fn request(&mut self, key: Key) -> &mut Issued {
        self.requests.get_mut(&key).expect("whoever asks has found it before")
    }

    /// The server carried a change out: the model follows.
    ///
    /// # Errors
    /// If it must not have.
    pub fn applied(&mut self, change: &mds::Observed) -> Result<(), Violation> {
        let mds::Observed { client, tid, seq, ino, time, .. } = *change;
        let key = (client, tid);
        let Some(issued) = self.requests.get(&key) else { return Ok(()) };
        let call = issued.call.clone();
        let about = |what: String| format!("{client} {tid}: {call:?}: {what}");
        let applied = Applied { seq, ino, time };
        if let Some(before) = issued.applied {
            return Err(about(format!("carried out twice: {before:?}, {applied:?}")));
        }
        if ino != Ino(0) {
            self.numbers.use_one(key, ino).map_err(about)?;
        }
        if self.is_busy(client, &call) {
            return Err(about("carried out in a subtree that blocks others".into()));
        }
        let unknown = self.is_unknown(&call);
        let expected = if unknown {
            Expected::Anything
        } else {
            expect::perform(&mut self.model, &call, time, ino)
                .map_err(|errno| about(format!("carried out, must fail with {}", errno.symbol())))?
        };
        let issued = self.request(key);
        (issued.applied, issued.expected) = (Some(applied), Some(expected));
        self.note_attributes();
        self.undone.retain(|undone| *undone != (key, ino));
        if unknown {
            self.unknown.push(key);
            return Ok(());
        }
        self.log.push(key);
        if seq == Seq(0) {
            for region in self.regions_of(&call) {
                self.regions[region].soft = true;
            }
        }
        Ok(())
    }

    fn failed(&mut self, key: Key, failure: &Failure) -> Result<(), Violation> {
        let issued = &self.requests[&key];
        let call = issued.call.clone();
        let text = || format!("failed with {} ({})", failure.errno.symbol(), failure.text);
        if let CallKind::Merge { subtree, object, .. } = &call.what
            && failure.errno == Errno::NotFound
            && !object.is_empty()
        {
            let subtree = *subtree;
            // The server deletes an object when its events are merged and stored: so they must be.
            let journal = issued.journal.clone();
            return self.merged(key, subtree, &journal);
        }
        if issued.applied.is_some() {
            let excuses = (self.store_fails, self.late);
            exactly_once::refused(issued, failure, excuses)?;
            // That was the answer at the time of the change. The answer to a repeated request shows
            // later changes of the inode by other clients.
            self.request(key).expected = None;
            return Ok(());
        }
        if issued.is_async && failure.errno == Errno::Stale && self.is_async_lost(key) {
            // It follows from one that the server did not carry out.
            self.request(key).reported_lost = true;
            return Ok(());
        }
        if self.is_excused(failure.errno, issued) {
            // Sent again while the store fails, a change is refused like any other.
            self.request(key).reported_lost = matches!(failure.errno, Errno::NoSpace | Errno::Io);
            return Ok(());
        }
        let too_late = self.late && failure.errno == Errno::Stale;
        if too_late || self.is_unknown(&call) {
            // Its object was in a region without durability, or no client waited for it.
            self.request(key).reported_lost = true;
            return Ok(());
        }
        if failure.errno == Errno::Busy && self.is_busy(key.0, &call) {
            return Ok(());
        }
        let (touched, _) = call.what.touched();
        if touched.iter().any(|ino| self.model.is_in_ended_tree(*ino)) {
            // The server forgets such a tree at an unknown time, and then finds another reason.
            return Ok(());
        }
        let mut model = self.model.clone();
        match expect::perform(&mut model, &call, Timestamp(1), Ino(u64::MAX)) {
            Err(errno) if errno == failure.errno => {
                let undone = self.undone.iter().any(|((client, _), _)| *client != key.0);
                if applied_survives::may_be_lost(&self.requests[&key], undone || self.late) {
                    self.requests.get_mut(&key).expect("found above").reported_lost = true;
                    Ok(())
                } else {
                    Err(format!("it had succeeded before the crash, but now it {}", text()))
                }
            }
            Err(errno) => Err(format!("must fail with {}, {}", errno.symbol(), text())),
            Ok(Expected::Anything) => Err(text()),
            Ok(expected) => Err(format!("expected {expected:?}, {}", text())),
        }
    }

    /// Failures that say nothing about the namespace.
    fn is_excused(&self, errno: Errno, issued: &Issued) -> bool {
        let Issued { call, delivered: resent, .. } = issued;
        match errno {
            // The server does not have the inode in memory: the client walks its path again.
            Errno::Stale => !*resent && call.what != CallKind::Sync,
            Errno::Again => true,
            Errno::NoSpace | Errno::Io => self.store_fails,
            // Some trees are removed name by name, such as those with a change of policy under way.
            Errno::Busy => matches!(call.what, CallKind::Discard { .. }),
            // The server was restarted: the client merges again what it may have lost.
            Errno::Canceled => {
                matches!(call.what, CallKind::Merge { flags, .. } if flags.in_term != Epoch(0))
            }
            _ => false,
        }
    }

    /// Removes unknown values from attributes.
    fn blur(&self, attr: &Attr) -> Attr {
        self.regions.iter().fold(*attr, |attr, region| region.blur(&attr))
    }

    /// A client and a subtree were given numbers.
    ///
    /// # Errors
    /// If they have another owner.
    pub fn granted(&mut self, client: ClientId, range: InoRange) -> Result<(), Violation> {
        self.numbers.grant(client, range)
    }

    /// The client heard the answer.
    pub fn delivered(&mut self, key: Key, succeeded: bool) {
        if let Some(issued) = self.requests.get_mut(&key) {
            issued.delivered = succeeded;
        }
    }

    /// A new server recovered everything up to a position: the model goes back to that.
    ///
    /// # Errors
    /// If something is missing that was promised.
    pub fn recovered(&mut self, last: Seq) -> Result<(), Violation> {
        safe_survives::check(self.safe, last)?;
        self.model = self.base.clone();
        self.requests.values_mut().for_each(|issued| issued.since.clear());
        for region in &mut self.regions {
            region.known &= !region.soft;
        }
        let (unknown, requests) = (&mut self.unknown, &mut self.requests);
        unknown.retain(|key| {
            let Some(issued) = requests.get_mut(key) else { return false };
            let kept = issued.applied.is_some_and(|it| it.seq > Seq(0) && it.seq <= last);
            if !kept {
                (issued.applied, issued.reported_lost) = (None, true);
            }
            kept
        });
        for key in std::mem::take(&mut self.log) {
            let issued = self.requests.get_mut(&key).expect("logged requests are kept");
            issued.expected = None;
            let Some(applied) = issued.applied.take() else { continue };
            if applied.seq > last {
                self.undone.push((key, applied.ino));
            } else if let CallKind::Merge { subtree, .. } = issued.call.what {
                let journal = issued.journal.clone();
                if self.regions.iter().any(|region| region.root == subtree && region.known) {
                    merges::apply(&mut self.model, subtree, &journal)?;
                    self.log.push(key);
                }
                self.requests.get_mut(&key).expect("found above").applied = Some(applied);
            } else if applied.seq > Seq(0) {
                let call = issued.call.clone();
                issued.applied = Some(applied);
                let again = expect::perform(&mut self.model, &call, applied.time, applied.ino);
                // It may have depended on something in a region that keeps nothing.
                if again.is_err() && self.regions.iter().all(|region| region.known) {
                    return Err(format!("{call:?} cannot be repeated on the model: {again:?}"));
                }
                self.log.push(key);
            } else {
                // Nothing was promised for it.
                issued.reported_lost = true;
            }
        }
        Ok(())
    }

    /// The regions that a request touches; everything else is strong.
    pub(crate) fn regions_of(&self, call: &Call) -> Vec<usize> {
        let (mut inos, names) = call.what.touched();
        inos.extend(names.iter().filter_map(|(dir, name)| self.model.peek(*dir, name.as_bytes())));
        let touches = |region: &Region| {
            inos.iter().any(|ino| crate::region::is_within(&self.model, *ino, region.root))
        };
        (0..self.regions.len()).filter(|at| touches(&self.regions[*at])).collect()
    }

    /// Whether the request is about something that the oracle cannot know.
    fn is_unknown(&self, call: &Call) -> bool {
        if self.regions.iter().all(|region| region.known) {
            return false;
        }
        if let CallKind::Walk { .. } = call.what {
            return true;
        }
        let strange = call.what.touched().0.iter().any(|ino| self.model.node(*ino).is_none());
        strange || self.regions_of(call).iter().any(|at| !self.regions[*at].known)
    }

    fn is_busy(&self, client: ClientId, call: &Call) -> bool {
        let blocks = |at: &usize| {
            self.regions[*at].owner.is_some_and(|(owner, block)| block && owner != client)
        };
        let mut touched = self.regions_of(call);
        if let CallKind::Walk { .. } = call.what
            && let Ok(Expected::Walked(parent, attr)) = expect::question(&self.model, call)
        {
            let ino = attr.map_or(parent, |attr| attr.ino);
            touched.extend(self.regions_of(&Call::root(CallKind::GetAttr { ino })));
        }
        touched.iter().any(blocks)
    }

    fn must_be_safe(&self, call: &Call) -> bool {
        // An inode with several names has no one place, and so the policy of none.
        let linked = |ino: &Ino| self.model.node(*ino).is_some_and(|node| node.linked);
        call.what.is_change()
            && !call.what.touched().0.iter().any(linked)
            && self.regions_of(call).iter().any(|at| self.regions[*at].kind == RegionKind::AckSafe)
    }
}
