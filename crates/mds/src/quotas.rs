//! Quotas: the use is counted in the background, and clients do not create ahead of the server
//! near a limit.
//!
//! The namespace counts ([`Namespace::count_quotas`]); the server brings the directories into
//! memory that a count needs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use namespace::Namespace;
use types::quota::Usage;
use types::{ClientId, Errno, Ino, Moment, Span};
use wire::{Failure, Op};

use crate::admission::Admitted;
use crate::authority::{Authority, Places};
use crate::caps::CapsCx;
use crate::fetch::{FetchCx, Waiter};
use crate::op::{ChangeCx, Performed, Performing, Refused};
use crate::tables::Tables;
use crate::{Mds, MdsEffects, Settings};

/// Names counted in one tick of a few milliseconds: a fraction of a millisecond.
const NAMES: usize = 2048;
/// How often the server looks whether limits are near: there may be many.
const LOOK_INTERVAL: Span = Span::from_millis(20);
/// When a directory that could not be read is tried again.
const RETRY: Span = Span::from_millis(10_000);
/// Clients do not create ahead of the server in directories that have room for less than this: the
/// server would refuse creates after programs have continued.
const NEAR: Usage = Usage { inodes: 16_384, bytes: 256 << 20 };

/// The directories that counts wait for.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounter {
    asked: BTreeMap<Ino, Moment>,
    /// When reservations and near limits were looked at last.
    looked: Option<Moment>,
}

impl QuotaCounter {
    /// A directory came into memory. It may be evicted before the next tick, and is asked for again
    /// then.
    pub(crate) fn fetched(&mut self, dir: Ino) {
        self.asked.remove(&dir);
    }
}

/// Counting, with all that it may touch.
pub(crate) struct QuotaCx<'a> {
    pub(crate) counter: &'a mut QuotaCounter,
    pub(crate) fetching: FetchCx<'a>,
    pub(crate) tables: &'a Tables,
    pub(crate) authority: &'a Authority,
    /// Nothing is replayed or merged.
    pub(crate) is_quiet: bool,
}

impl QuotaCx<'_> {
    /// Counts a slice. Returns whether a limit has come near since the last look.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) -> bool {
        let now = self.fetching.now;
        let is_due = self.counter.looked.is_none_or(|at| now.since(at) >= LOOK_INTERVAL);
        let mut is_near = false;
        if is_due {
            self.counter.looked = Some(now);
            reserve(self.fetching.namespace, self.tables);
            is_near = self.fetching.namespace.note_near_quotas(NEAR);
        }
        if self.is_quiet {
            self.count(effects);
        }
        is_near
    }

    fn count(&mut self, effects: &mut MdsEffects) {
        let now = self.fetching.now;
        // The directory of a quota that moved away still has its name here.
        let is_here = |dir| !self.authority.is_others(dir);
        let cold = self.fetching.namespace.count_quotas(NAMES, is_here);
        self.counter.asked.retain(|dir, at| cold.contains(dir) && now.since(*at) < RETRY);
        for dir in cold {
            if let Entry::Vacant(new) = self.counter.asked.entry(dir) {
                new.insert(now);
                self.fetching.wait_for_whole(dir, Waiter::Count(dir), effects);
            }
        }
    }
}

/// An empty namespace. A branch has no quotas: they hold where it is published.
pub(crate) fn namespace_of(settings: &Settings) -> Namespace {
    let mut namespace = Namespace::new();
    if settings.private.is_none() {
        namespace.enforce_quotas();
    }
    namespace
}

/// Tells the namespace which inodes decoupled subtrees may bring.
pub(crate) fn reserve(namespace: &mut Namespace, tables: &Tables) {
    if !namespace.has_quotas() {
        return;
    }
    let here = tables.decoupled.iter().filter(|(_, known)| !known.released);
    namespace.reserve(here.map(|(subtree, known)| {
        (*subtree, known.ranges.iter().map(|range| range.end - range.start).sum())
    }));
}

/// `EDQUOT` if a client cannot have so many numbers for inodes in a directory.
pub(crate) fn check_numbers(namespace: &Namespace, dir: Ino, inodes: u64) -> Result<(), Refused> {
    let Some(quota) = namespace.quota_without_room(dir, inodes) else { return Ok(()) };
    let path = types::quote::quoted(&quota.path).into_owned();
    let text = format!(
        "the quota of {path} has no room for {inodes} more inodes (`allocated_inodes` of the policy)"
    );
    Err(Refused::Failure(Failure { errno: Errno::Quota, text }))
}

impl Mds {
    /// Sets or removes the limits of a directory. Clients do not know of limits, so they return all
    /// exclusive directories below it first.
    pub(crate) fn set_limits(
        &mut self,
        admitted: Admitted<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Performing {
        let from = admitted.incoming();
        let Op::Change(ref op) = from.request.op else { return Err(Errno::Invalid.into()) };
        if from.request.replay.is_none() {
            // One rank counts a quota.
            Places::of(self).check_all_here(dir)?;
        }
        if let Some(dir) = CapsCx::of(self).revoke_below(ClientId(0), dir, effects) {
            self.fetches.park_until_returned(&mut self.sessions, from, dir);
            return Ok(Performed::Later);
        }
        ChangeCx::of(self).change(admitted, op)
    }
}

impl CapsCx<'_> {
    /// Whether a client may create ahead of the server in a directory, as far as quotas say. No
    /// limit is near, and all directories that it has alone are under the same quota: it does not
    /// know that a rename from one to another could be refused.
    pub(crate) fn quotas_allow_exclusive(&self, client: ClientId, dir: Ino) -> bool {
        if !self.namespace.has_quotas() {
            return true;
        }
        let other = self.caps.exclusive().find(|(_, owner)| *owner == client);
        let root = |dir| self.namespace.quota_root(dir);
        !self.is_near(dir) && other.is_none_or(|(other, _)| root(other) == root(dir))
    }

    fn is_near(&self, dir: Ino) -> bool {
        !self.namespace.has_room(dir, NEAR)
    }

    /// Takes directories back that clients have alone, once a limit has come near.
    pub(crate) fn revoke_near_quotas(&mut self, effects: &mut MdsEffects) {
        let exclusive = self.caps.exclusive().map(|(dir, _)| dir);
        let near: Vec<Ino> = exclusive.filter(|dir| self.is_near(*dir)).collect();
        for dir in near {
            self.revoke(ClientId(0), dir, effects);
        }
    }
}
