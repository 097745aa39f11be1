//! Directories that are split when they have many names, and put together when they have few.
//!
//! Rank 0 does both, and no other rank can; but every rank knows how many names a directory has. A
//! large directory of another rank moves to rank 0, and so does a fragment that has become small.
//! When rank 0 has all fragments of a directory, and all of them together are small, it joins them.
//! A pinned directory stays at its rank, and is neither split nor joined.

use metastore::PartState;
use namespace::Namespace;
use types::{Frag, Ino, Moment, Rank, Span};

use super::Split;
use crate::authority::Authority;
use crate::authority::export::ExportCx;
use crate::authority::reshape::ReshapeCx;
use crate::op::Performing;
use crate::{Phase, ReplyTo, Settings};

/// Large directories that wait until they are split.
const LARGE_MAX: usize = 64;
/// How long rank 0 waits before it tries to split a directory again, and how often it looks for
/// directories that have become small.
const AGAIN: Span = Span::from_millis(1000);
/// A directory is joined when it has less than this part of the names at which it is split, so that
/// it is not split and joined in turns.
const SMALL: u64 = 4;
/// Its fragments began with an eighth each. One with a fourth of that has become small.
const SMALL_PART: u64 = 32;
/// No request waits for it.
pub(in crate::authority) const ITSELF: ReplyTo = ReplyTo::NOBODY;

/// The directories whose size has to be corrected.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    /// Directories with more names than they should have in one fragment, and when they are split.
    large: Vec<(Ino, Moment)>,
    /// When it was looked for small ones.
    looked: Option<Moment>,
    /// The small directories that were found then. A user that has just split one may be about to
    /// pin its fragments.
    small: Vec<Ino>,
}

impl Authority {
    /// A name was given in a directory: notes if it has more of them than it should have undivided.
    pub(crate) fn note_size(&mut self, namespace: &Namespace, dir: Ino, most: u64, now: Moment) {
        let large = namespace.dirs().names_here(dir) > most;
        let known = &mut self.sizes.large;
        if large && known.len() < LARGE_MAX && !known.iter().any(|(known, _)| *known == dir) {
            known.push((dir, now));
        }
    }

    /// A directory came here, maybe because it is large.
    pub(in crate::authority) fn note_came(&mut self, dir: Ino, settings: &Settings, now: Moment) {
        let known = &mut self.sizes.large;
        if settings.split_entries != 0 && self.rank == Rank(0) && known.len() < LARGE_MAX {
            known.push((dir, now));
        }
    }
}

/// A correction of the size of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// It is split.
    Split(Ino),
    /// Its fragments are joined.
    Join(Ino),
    /// It goes to rank 0, which alone splits and joins; it is too large, or a small fragment.
    Home { dir: Ino, is_large: bool },
}

impl ReshapeCx<'_> {
    /// The directories that have become too large, or too small, of which one is corrected.
    pub(in crate::authority) fn wrong_sizes(&mut self) -> Vec<Resize> {
        let is_active = self.phase == Phase::Active;
        // Replay the requests that were answered before a crash first, where they were answered.
        if self.settings.split_entries == 0
            || !is_active
            || self.authority.is_moving()
            || self.is_resend_busy
        {
            return Vec::new();
        }
        let now = self.apply.now;
        let sizes = &mut self.authority.sizes;
        if let Some(at) = sizes.large.iter().position(|(_, at)| *at <= now) {
            let (dir, _) = sizes.large.swap_remove(at);
            return self.if_large(dir).into_iter().collect();
        }
        if sizes.looked.is_some_and(|at| now.since(at) < AGAIN) {
            return Vec::new();
        }
        sizes.looked = Some(now);
        let stable = |(_, split): &(&Ino, &Split)| split.state == PartState::Stable;
        let splits = self.authority.splits.iter().filter(stable);
        let splits: Vec<_> = splits.map(|(dir, split)| (*dir, split.parts)).collect();
        if self.authority.rank != Rank(0) {
            return splits.into_iter().filter_map(|(dir, _)| self.small_part(dir)).collect();
        }
        let small = splits.into_iter().filter(|(dir, parts)| self.is_small(*dir, *parts));
        let small: Vec<Ino> = small.map(|(dir, _)| dir).collect();
        let before = std::mem::replace(&mut self.authority.sizes.small, small.clone());
        small.into_iter().filter(|dir| before.contains(dir)).map(Resize::Join).collect()
    }

    fn if_large(&self, dir: Ino) -> Option<Resize> {
        let namespace = &*self.apply.namespace;
        let is_small = namespace.is_complete(dir)
            && namespace.dirs().names_here(dir) <= self.settings.split_entries;
        if !namespace.knows(dir) || is_small {
            return None;
        }
        let here = self.authority.rank == Rank(0);
        Some(if here { Resize::Split(dir) } else { Resize::Home { dir, is_large: true } })
    }

    /// A directory keeps its size for now. A large one is tried again later.
    pub(in crate::authority) fn keeps_size(&mut self, resize: Resize) {
        if let Resize::Split(dir) | Resize::Home { dir, is_large: true } = resize {
            self.authority.sizes.large.push((dir, self.apply.now + AGAIN));
        }
    }

    /// Whether a directory has few names, all of them here. A directory that is not in memory is
    /// never small, because its size is unknown.
    fn is_small(&self, dir: Ino, parts: [Ino; Frag::SPLIT_WAYS]) -> bool {
        let list = &self.authority.list;
        let pinned = |part: &Ino| list.get(*part).is_some_and(|subtree| subtree.pinned);
        let known = |part: &Ino| self.apply.namespace.is_complete(*part);
        let all = self.authority.parts_here(dir).len() == parts.len() && parts.iter().all(known);
        if !all || parts.iter().any(pinned) {
            return false;
        }
        let names: u64 =
            parts.iter().map(|part| self.apply.namespace.dirs().names_here(*part)).sum();
        names.saturating_mul(SMALL) < self.settings.split_entries
    }

    /// A fragment of a directory with few names.
    fn small_part(&self, dir: Ino) -> Option<Resize> {
        let most = self.settings.split_entries;
        let small = |part: &Ino| {
            let names = self.apply.namespace.dirs().names_here(*part);
            self.apply.namespace.is_complete(*part) && names.saturating_mul(SMALL_PART) <= most
        };
        let part = self.authority.parts_here(dir).into_iter().find(small);
        part.map(|dir| Resize::Home { dir, is_large: false })
    }
}

impl ExportCx<'_> {
    /// Begins to give a directory to the rank that splits directories, and puts them together.
    pub(in crate::authority) fn send_home(&mut self, dir: Ino) -> Performing {
        self.places().check_pins(dir)?;
        self.begin(ITSELF, dir, Rank(0), false)
    }
}
