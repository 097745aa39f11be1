//! The conditions that a server reports for `cudele health`, and the changes that it rejects while
//! the store is full.
//!
//! Removals, checkpoints and a clean stop use the reserve of the store. So the server rejects every
//! request that adds to the store from the first byte of the reserve on.

use namespace::Namespace;
use types::{Errno, Moment, Span};
use wire::Warning;

use crate::balance::Balance;
use crate::caps::Caps;
use crate::damage::Damage;
use crate::log::Log;
use crate::{Phase, Settings};

/// A journal write, or the answer of a client to a revoke, is slow after this time.
const SLOW_AFTER: Span = Span::from_millis(5000);
/// A journal of more than so many times the wanted segments is long.
const LONG_JOURNAL: usize = 2;
/// A store with less than this part of its bytes left is nearly full.
const NEAR_FULL_PART: u64 = 10;
/// A store with so many bytes left is not nearly full.
const NEAR_FULL_BYTES_MAX: u64 = 10 << 30;

/// The room of the store in bytes, as the driver measured it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The capacity; 0 if it is not known.
    pub total: u64,
    /// The free room, without the reserve.
    pub available: u64,
    /// The size that the reserve should have.
    pub wanted: u64,
    /// The size that the reserve has.
    pub held: u64,
    /// The store cannot be written.
    pub read_only: bool,
}

impl Room {
    pub(crate) fn is_full(&self) -> bool {
        self.held < self.wanted || (self.total > 0 && self.available == 0)
    }

    fn is_near_full(&self) -> bool {
        self.available < (self.total / NEAR_FULL_PART).min(NEAR_FULL_BYTES_MAX)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Health {
    room: Room,
}

impl Health {
    pub(crate) fn note_room(&mut self, room: Room) {
        self.room = room;
    }

    /// The room of the store.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// The free room of a store that is full, in bytes.
    pub(crate) fn full(&self) -> Option<u64> {
        self.room.is_full().then_some(self.room.available)
    }
}

fn warning(code: &str, text: String, remedy: &str) -> Warning {
    Warning { code: code.to_owned(), text, remedy: remedy.to_owned() }
}

impl Phase {
    /// The reason for rejecting all changes, if there is one.
    #[inline]
    pub(crate) fn refusing(self, log: &Log) -> Option<Errno> {
        if self == Self::Stopping { Some(Errno::Again) } else { log.failed() }
    }
}

/// All that a server reports conditions of.
pub(crate) struct HealthCx<'a> {
    pub(crate) health: &'a Health,
    pub(crate) balance: &'a Balance,
    pub(crate) damage: &'a Damage,
    pub(crate) log: &'a Log,
    pub(crate) caps: &'a Caps,
    pub(crate) settings: &'a Settings,
    pub(crate) namespace: &'a Namespace,
    pub(crate) now: Moment,
}

impl HealthCx<'_> {
    /// The conditions that hold now.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut found = self.balance.warnings();
        found.extend(self.store_warning());
        found.extend(self.damage.warning(self.namespace));
        if self.settings.read_only {
            let text = "was started with --read-only: changes fail with EROFS".into();
            found.push(warning("READ_ONLY", text, "`cudele down` and `cudele up` allow changes"));
        }
        let now = self.now;
        if let Some(since) = self.log.oldest_write().filter(|at| now.since(*at) >= SLOW_AFTER) {
            let seconds = now.since(since).0 / 1_000_000_000;
            let text = format!("the object store has not finished a write for {seconds} s");
            found.push(warning("STORE_SLOW", text, "look at the disk, or at `ceph health detail`"));
        }
        let (segments, most) = (self.log.segment_count(), self.settings.segments_max);
        if segments > most.saturating_mul(LONG_JOURNAL) {
            let text = format!(
                "the journal has {segments} segments, and should have at most {most}: directories \
                 are not written to the object store, or not as fast as they change"
            );
            let remedy = "look for failed writes in the log of this server, at the disk, or at \
                          `ceph health detail`; a new server would replay all segments";
            found.push(warning("JOURNAL_LONG", text, remedy));
        }
        if let Some((since, what)) =
            self.longest_wait().filter(|(at, _)| now.since(*at) >= SLOW_AFTER)
        {
            let seconds = now.since(since).0 / 1_000_000_000;
            let text = format!("requests wait for {what}, which has not answered for {seconds} s");
            let remedy = "wait: its session is closed after half a minute; or end that client";
            found.push(warning("REQUESTS_BLOCKED", text, remedy));
        }
        found
    }

    fn store_warning(&self) -> Option<Warning> {
        let room = self.health.room();
        let failed = self.log.failed();
        let mib = |bytes: u64| bytes >> 20;
        if room.read_only || failed == Some(Errno::ReadOnly) {
            let text = "the object store is read-only, and changes are refused".to_owned();
            let remedy = "look for disk errors in the kernel's log, and mount it writable";
            return Some(warning("STORE_READ_ONLY", text, remedy));
        }
        if room.is_full() || failed == Some(Errno::NoSpace) {
            let text = format!(
                "the object store is full, and what adds to it is refused; of its reserve of {} MiB \
                 {} MiB are left",
                mib(room.wanted),
                mib(room.held)
            );
            return Some(warning("STORE_FULL", text, "remove files, or enlarge the store"));
        }
        if let Some(errno) = failed {
            let text = format!(
                "the journal cannot be written ({}), and changes are refused",
                errno.symbol()
            );
            let remedy = "look for disk errors in the kernel's log, or at `ceph health detail`";
            return Some(warning("STORE_FAILED", text, remedy));
        }
        room.is_near_full().then(|| {
            let (left, total) = (mib(room.available), mib(room.total));
            let text = format!("the object store is nearly full: {left} of {total} MiB are left");
            warning("STORE_NEAR_FULL", text, "remove files, or enlarge the store")
        })
    }

    /// The client that has owed an answer for the longest time, and since when.
    fn longest_wait(&self) -> Option<(Moment, String)> {
        let revoked = self.caps.revoking().into_iter().map(|(dir, client, since)| {
            (since, format!("client {} to give back the directory {dir}", client.0))
        });
        revoked.min_by_key(|(since, _)| *since)
    }
}

#[cfg(test)]
mod tests;
