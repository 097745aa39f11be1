//! A store in a Ceph cluster, through librados.
//!
//! Every change is one compound operation of one RADOS object, which Ceph executes as a whole, on
//! all copies, before it answers: nothing is left to be synced, and an acknowledged change survives
//! the loss of all copies but one. Conditions are part of the operation: a version that the object
//! must have, or that it must not exist. Larger objects consist of several ([`head`]).
//!
//! Calls wait for their answers, as with every other store; their callers have threads. Within one
//! call on a large object several requests are under way.
//!
//! Not here: bringing a cluster up, and its permissions (`docs/administration.md`).
//!
//! Invariant: no answer of this store relies on its cache; guesses are verified by the operation
//! that uses them.

mod chosen;
mod config;
mod connection;
mod errors;
mod head;
mod known;
mod large;
mod lock;
mod places;
mod presence;
mod sweep;
mod sys;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use types::{ClientId, Errno, Error, Pool, Result};

pub(crate) use config::Config;
use connection::connect;
pub(crate) use connection::copies;
use errors::to_error;
use head::{Head, LARGE, Large, PIECE_BYTES};
use known::KnownHeads;
use large::{ATTEMPTS_MAX, At};
use places::{Places, PoolPlace};
use sys::{Cluster, Code, Step};

use crate::gather::Gather;
use crate::store::{absent, check_end};
use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Pools, Presence, PutOutcome, Reserved,
    Space, Stat, Sweeping, Swept, SyncScope, Tuned, Version, check_name,
};

/// So many bytes are requested of an object of unknown length.
const GUESS_BYTES: usize = 64 << 10;

/// Eight pieces side by side keep the OSDs of a small cluster busy.
const BYTES_AT_ONCE: usize = 32 << 20;

/// A store in a Ceph cluster: `rados://POOL?OPTION=VALUE&…`.
#[derive(Debug)]
pub struct Rados {
    url: String,
    cluster: Arc<Cluster>,
    places: Places,
    known: KnownHeads,
    /// Large objects that this connection has begun.
    numbers: AtomicU64,
}

/// The reserve is at most one of so many parts of the cluster's capacity.
const RESERVE_SHARE: u64 = 16;

/// Whether a change was refused because the object is not in the expected state.
fn changed(code: Code, existed: bool) -> bool {
    matches!(code, Code::RANGE | Code::OVERFLOW | Code::EXISTS)
        || (existed && code == Code::NOT_FOUND)
}

fn contended(name: &str) -> Error {
    Error::new(Errno::Busy, name, "other processes keep changing the object")
}

impl Rados {
    /// Connects to the cluster, and opens the store, or makes it if it may.
    ///
    /// # Errors
    /// `EOPNOTSUPP` without the Ceph client library, or for a store of another layout; `ENOENT` if
    /// there is no such configuration file, pool or store; `EACCES` if the cluster does not let the
    /// user in; `ETIMEDOUT` if no monitor answers.
    pub(crate) fn open(url: &str, config: Config, create: bool) -> Result<Self> {
        let cluster = connect(url, &config)?;
        let places = Places::open(&cluster, url, config, create)?;
        let (known, numbers) = (KnownHeads::default(), AtomicU64::new(0));
        Ok(Self { url: url.to_owned(), cluster, places, known, numbers })
    }

    /// A number for pieces that no other has.
    fn next_number(&self) -> (u64, u64) {
        (self.cluster.instance(), self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the cluster still rejects a write that needs room.
    fn is_full_now(&self) -> bool {
        let probe = format!("room/{:x}", self.cluster.instance());
        let made = self.places.locks.attempt(&probe, &[Step::CreateNew, Step::WriteFull(b"x")]);
        let _ = self.places.locks.change(&probe, &[Step::Remove]);
        made.is_err_and(sys::Code::is_full)
    }

    fn foreign(&self, name: &str) -> Error {
        Error::new(Errno::BadMessage, name, "the object was not written by this program")
            .remedy(format!("look at it with `rados`; the store is {}", self.url))
    }

    /// The required head for `put` to continue, or the immediate answer of `put`.
    fn expected(&self, place: &PoolPlace, name: &str, expect: Expect) -> Result<Expected> {
        let current = match expect {
            Expect::Any => return Ok(Expected::Head(self.look(place, name)?)),
            Expect::Absent => return Ok(Expected::Head(None)),
            Expect::Is(version) => match self.known.of(name) {
                Some(guess) if guess.content == Some(version) => {
                    return Ok(Expected::Head(Some(guess.head)));
                }
                Some(_) | None => self.current(name)?,
            },
        };
        match expect.conflict(current.map(|(_, version)| version)) {
            Some(conflict) => Ok(Expected::Conflict(conflict)),
            None => Ok(Expected::Head(current.map(|(head, _)| head))),
        }
    }

    /// The content's version and the head, if there is an object.
    fn current(&self, name: &str) -> Result<Option<(Head, Version)>> {
        match self.fetch(name) {
            Ok((_, head, version)) => Ok(Some((head, version))),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fetch(&self, name: &str) -> Result<(Vec<u8>, Head, Version)> {
        let mut length = GUESS_BYTES;
        loop {
            let mut bytes = vec![0; length];
            let (read, head) = self.read_at(name, 0, &mut bytes)?;
            if head.size() <= length as u64 {
                bytes.truncate(read);
                let version = Version::of(&bytes);
                self.known.note(name, head, Some(version));
                return Ok((bytes, head, version));
            }
            length = usize::try_from(head.size()).map_err(|_| self.foreign(name))?;
        }
    }

    /// Replaces an object. Pieces, if any, are there already.
    fn replace(
        &self,
        name: &str,
        data: &[u8],
        large: Option<Large>,
        expect: Expect,
    ) -> Result<PutOutcome> {
        let place = &*self.places.of(name)?;
        let in_head = usize::try_from(PIECE_BYTES).map_or(data.len(), |n| n.min(data.len()));
        for _ in 0..ATTEMPTS_MAX {
            let before = match self.expected(place, name, expect)? {
                Expected::Head(before) => before,
                Expected::Conflict(conflict) => return Ok(conflict),
            };
            let guard = before.map_or(Step::CreateNew, |head| Step::AssertVersion(head.version));
            let mut steps = vec![guard, Step::WriteFull(&data[..in_head])];
            let old = before.and_then(|head| head.large);
            match (large, old) {
                (Some(large), _) => steps.push(Step::SetAttr(LARGE, large.encode())),
                (None, Some(_)) => steps.push(Step::RemoveAttr(LARGE)),
                (None, None) => {}
            }
            match place.heads.change(name, &steps) {
                Ok(version) => {
                    if let Some(old) = old {
                        // Pieces that stay are garbage without a reference.
                        let _ = self.remove_pieces(place, name, old, old.pieces());
                    }
                    let version = self.replaced(name, data, (version, in_head), large);
                    return Ok(PutOutcome::Done(version));
                }
                Err(code) => {
                    self.known.forget(name);
                    if !changed(code, before.is_some()) {
                        return Err(to_error(name, "write", code));
                    }
                    // It was there; if it is gone again by then, the next attempt may succeed.
                    if expect == Expect::Absent
                        && let Some((_, version)) = self.current(name)?
                    {
                        return Ok(PutOutcome::Conflict(Some(version)));
                    }
                }
            }
        }
        Err(contended(name))
    }

    fn replaced(
        &self,
        name: &str,
        data: &[u8],
        (version, in_head): (u64, usize),
        large: Option<Large>,
    ) -> Version {
        let content = Version::of(data);
        self.known.note(name, Head { version, head_bytes: in_head as u64, large }, Some(content));
        content
    }

    /// Replaces an object that has no pieces, or makes it, without looking first. `None` if it has.
    fn put_plain(&self, name: &str, data: &[u8]) -> Result<Option<Version>> {
        let plain = [Step::AssertAttr(LARGE, b""), Step::WriteFull(data)];
        let new = [Step::CreateNew, Step::WriteFull(data)];
        let place = self.places.of(name)?;
        let heads = &place.heads;
        let mut exists = self.known.head(name).is_some();
        self.known.forget(name);
        for _ in 0..ATTEMPTS_MAX {
            match heads.change(name, if exists { &plain } else { &new }) {
                Ok(version) => {
                    let new = (version, data.len());
                    return Ok(Some(self.replaced(name, data, new, None)));
                }
                Err(Code::CANCELED) => return Ok(None),
                Err(Code::EXISTS) if !exists => exists = true,
                Err(Code::NOT_FOUND) if exists => exists = false,
                Err(code) => return Err(to_error(name, "write", code)),
            }
        }
        Err(contended(name))
    }

    /// Replaces an object with more than a head can hold: the head, which refers to the pieces,
    /// comes last.
    fn put_large(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        let place = &*self.places.of(name)?;
        // A put that loses should not write all that for nothing.
        if let Expected::Conflict(conflict) = self.expected(place, name, expect)? {
            return Ok(conflict);
        }
        let large = Large { number: self.next_number(), size: data.len() as u64 };
        let begun = sweep::Begun::now();
        let undo = || {
            let _ = self.remove_pieces(place, name, large, large.pieces());
        };
        if let Err(code) = self.write_pieces(place, name, large, 0, Gather::one(data)) {
            undo();
            return Err(to_error(name, "write", code));
        }
        if let Err(late) = begun.is_recent(name) {
            undo();
            return Err(late);
        }
        let outcome = self.replace(name, data, Some(large), expect);
        // After an error the head may refer to them.
        if matches!(outcome, Ok(PutOutcome::Conflict(_))) {
            undo();
        }
        outcome
    }
}

/// What [`Rados::expected`] finds.
enum Expected {
    Head(Option<Head>),
    Conflict(PutOutcome),
}

impl ObjectStore for Rados {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        check_name(name)?;
        let size = check_end(name, 0, data.len())?;
        if size > PIECE_BYTES {
            return self.put_large(name, data, expect);
        }
        if expect == Expect::Any
            && let Some(version) = self.put_plain(name, data)?
        {
            return Ok(PutOutcome::Done(version));
        }
        self.replace(name, data, None, expect)
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        check_name(name)?;
        self.extend(name, At::End, Gather::one(data))
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        check_name(name)?;
        let end = check_end(name, offset, data.len())?;
        if end > PIECE_BYTES && !data.is_empty() {
            return self.extend(name, At::Offset(offset), Gather::one(data)).map(|_| ());
        }
        let step = if data.is_empty() { Step::Create } else { Step::Write(offset, data) };
        self.known.forget(name);
        let written = self.places.of(name)?.heads.change(name, &[step]);
        written.map(|_| ()).map_err(|code| to_error(name, "write", code))
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        check_name(name)?;
        self.fetch(name).map(|(bytes, _, version)| (bytes, version))
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let length = if length > GUESS_BYTES {
            let left = self.stat(name)?.size.saturating_sub(offset);
            usize::try_from(left).map_or(length, |left| length.min(left))
        } else {
            length
        };
        let mut bytes = vec![0; length];
        let read = self.read_into(name, offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        check_name(name)?;
        let head = self.look(&*self.places.of(name)?, name)?.ok_or_else(|| absent(name))?;
        Ok(Stat { size: head.size() })
    }

    fn delete(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let place = match self.places.of(name) {
            // It went with its pool.
            Err(error) if error.errno == Errno::NoSuchPlace => return Ok(false),
            place => &*place?,
        };
        self.known.forget(name);
        match place.heads.change(name, &[Step::AssertAttr(LARGE, b""), Step::Remove]) {
            Ok(_) => return Ok(true),
            Err(Code::NOT_FOUND) => return Ok(false),
            Err(Code::CANCELED) => {}
            Err(code) => return Err(to_error(name, "delete", code)),
        }
        for _ in 0..ATTEMPTS_MAX {
            let Some(head) = self.look(place, name)? else { return Ok(false) };
            let gone = [Step::AssertVersion(head.version), Step::Remove];
            match place.heads.change(name, &gone) {
                Ok(_) => {
                    if let Some(large) = head.large {
                        // Pieces that stay are garbage without a reference.
                        let _ = self.remove_pieces(place, name, large, large.pieces());
                    }
                    return Ok(true);
                }
                Err(code) if changed(code, true) => {}
                Err(code) => return Err(to_error(name, "delete", code)),
            }
        }
        Err(contended(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for place in self.places.may_hold(prefix)? {
            let visit = |name: &str| {
                if name.starts_with(prefix) && check_name(name).is_ok() {
                    names.push(name.to_owned());
                }
            };
            place.heads.names(visit).map_err(|code| to_error(&self.url, "list objects", code))?;
        }
        names.sort_unstable();
        // While a pool is rearranged an object may be shown twice.
        names.dedup();
        Ok(names)
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        match scope {
            SyncScope::Object(name) => check_name(name),
            // Every acknowledged change is durable.
            SyncScope::Prefix(_) | SyncScope::All => Ok(()),
        }
    }
}

impl Tuned for Rados {
    fn write_gathered(&self, name: &str, offset: u64, data: &[&[u8]]) -> Result<()> {
        check_name(name)?;
        let data = Gather::of(data);
        let end = check_end(name, offset, data.len())?;
        if end > PIECE_BYTES && data.len() > 0 {
            return self.extend(name, At::Offset(offset), data).map(|_| ());
        }
        self.write_range(name, offset, { data }.take(data.len(), &mut Vec::new()))
    }

    fn bytes_at_once(&self) -> usize {
        BYTES_AT_ONCE
    }

    fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        check_name(name)?;
        self.read_at(name, offset, buffer).map(|(read, _)| read)
    }

    fn lists_what_it_finds(&self) -> bool {
        // Every placement group shows all it has.
        false
    }

    fn period(&self) -> u32 {
        0
    }
}

impl Capacity for Rados {
    fn space(&self) -> Result<Space> {
        let answer = self.cluster.monitor(r#"{"prefix":"df","format":"json"}"#);
        let answer = answer.map_err(|code| to_error(&self.url, "ask for the room left", code))?;
        space_of(&answer, &self.places.pools).ok_or_else(|| {
            Error::new(Errno::NotSupported, &self.url, "the cluster does not say how large it is")
                .remedy("start a manager (ceph-mgr), which counts it")
        })
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved> {
        let (wanted, mut held) = match self.space() {
            Ok(space) => {
                let wanted = bytes.min(space.total / RESERVE_SHARE);
                (wanted, space.available.min(wanted))
            }
            // Without a manager, only a change that fails shows that a pool is full.
            Err(error) if error.errno == Errno::NotSupported => (bytes, bytes),
            Err(error) => return Err(error),
        };
        if self.cluster.full.load(Ordering::Relaxed) && self.is_full_now() {
            held = 0;
        }
        let reserved = Reserved { wanted, held };
        self.cluster.full.store(reserved.is_short(), Ordering::Relaxed);
        Ok(reserved)
    }

    fn allow_reserve(&self) {
        self.cluster.allow_force();
    }

    fn is_short(&self) -> bool {
        self.cluster.full.load(Ordering::Relaxed)
    }
}

impl Pools for Rados {
    fn pool(&self, name: &str) -> Result<Pool> {
        self.places.number_of(name)
    }
}

impl Fencing for Rados {
    fn enter(&self, client: ClientId) -> Result<Presence> {
        Ok(Presence::of(presence::Entered::new(&self.cluster, &self.places.locks, client)?))
    }

    fn shut_out(&self, client: ClientId) -> Result<bool> {
        presence::shut_out(&self.cluster, &self.places.locks, client).map(|()| true)
    }

    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        check_name(name)?;
        let lock = lock::NamedLock::take(&self.cluster, &self.places.locks, name, owner)?;
        Ok(Box::new(lock))
    }
}

impl Sweeping for Rados {
    fn sweep(&self, now_s: i64, look: bool) -> Result<Swept> {
        self.sweep_pieces(now_s.saturating_sub_unsigned(sweep::YOUNGEST_GARBAGE_S), look)
    }
}

/// The space in the pools by `ceph df`: copies are taken into account. Pools mostly share their
/// devices, so the available space is that of the pool with the least.
fn space_of(answer: &[u8], pools: &[String]) -> Option<Space> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let of_pool = |name: &String| {
        let all = answer["pools"].as_array()?;
        let stats = &all.iter().find(|pool| pool["name"] == name.as_str())?["stats"];
        Some((stats["stored"].as_u64()?, stats["max_avail"].as_u64()?))
    };
    let pools: Vec<(u64, u64)> = pools.iter().map(of_pool).collect::<Option<_>>()?;
    let available = pools.iter().map(|(_, available)| *available).min()?;
    let total = pools.iter().map(|(stored, _)| *stored).sum::<u64>() + available;
    (total > 0).then_some(Space::of_bytes(total, available))
}

#[cfg(test)]
mod tests;
