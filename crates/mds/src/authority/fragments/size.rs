//! Directories that are split when they have many names, and put together when they have few.
//!
//! Rank 0 does both, and no other rank can; but every rank knows how many names a directory has. A
//! large directory of another rank moves to rank 0, and so does a fragment that has become small.
//! When rank 0 has all fragments of a directory, and all of them together are small, it joins them.
//! A pinned directory stays at its rank, and is neither split nor joined.

use metastore::PartState;
use namespace::Refusal;
use types::{Cred, Frag, Ino, Moment, Rank, Span};

use super::Split;
use crate::authority::place::cold;
use crate::op::{Performed, Performing, Refused};
use crate::{Mds, MdsEffects, ReplyTo};

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
const ITSELF: ReplyTo = ReplyTo::NOBODY;

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

impl Mds {
    /// A name was given in a directory: notes if it has more of them than it should have undivided.
    #[inline]
    pub(crate) fn note_size(&mut self, dir: Ino) {
        let most = self.settings.split_entries;
        if most != 0 && self.has_ranks() {
            self.note_if_large(dir, most);
        }
    }

    fn note_if_large(&mut self, dir: Ino, most: u64) {
        let large = self.namespace.dirs().names_here(dir) > most;
        let known = &mut self.authority.sizes.large;
        if large && known.len() < LARGE_MAX && !known.iter().any(|(known, _)| *known == dir) {
            known.push((dir, self.clock.now));
        }
    }

    /// A directory came here, maybe because it is large.
    pub(in crate::authority) fn note_came(&mut self, dir: Ino) {
        let known = &mut self.authority.sizes.large;
        if self.settings.split_entries != 0 && self.rank == Rank(0) && known.len() < LARGE_MAX {
            known.push((dir, self.clock.now));
        }
    }

    /// Splits directories that have become large, and joins those that have become small.
    pub(in crate::authority) fn sizes_tick(&mut self, effects: &mut MdsEffects) {
        if self.settings.split_entries == 0 || !self.is_active() || self.is_moving() {
            return;
        }
        // Replay the requests that were answered before a crash first, where they were answered.
        if self.resend.is_busy() {
            return;
        }
        let now = self.clock.now;
        let mut large = self.authority.sizes.large.iter();
        if let Some(at) = large.position(|(_, at)| *at <= now) {
            let (dir, _) = self.authority.sizes.large.swap_remove(at);
            return self.split_large(dir, effects);
        }
        let sizes = &mut self.authority.sizes;
        if sizes.looked.is_none_or(|at| now.since(at) >= AGAIN) {
            sizes.looked = Some(now);
            self.join_small(effects);
        }
    }

    /// A split that is impossible now is tried again later.
    fn split_large(&mut self, dir: Ino, effects: &mut MdsEffects) {
        if !self.namespace.knows(dir) {
            return;
        }
        let complete = self.namespace.is_complete(dir);
        if complete && self.namespace.dirs().names_here(dir) <= self.settings.split_entries {
            return;
        }
        let done = if !complete {
            Err(cold(dir))
        } else if self.rank == Rank(0) {
            self.split(ITSELF, &Cred::root(), dir)
        } else {
            self.send_home(dir)
        };
        if let Err(refused) = done {
            self.authority.sizes.large.push((dir, self.clock.now + AGAIN));
            self.fetch_for(&refused, effects);
        }
    }

    fn fetch_for(&mut self, refused: &Refused, effects: &mut MdsEffects) {
        if let Refused::Refusal(Refusal::Cold(cold)) = refused
            && *cold != crate::fetch::NUMBERS
        {
            self.fetching().preload(*cold, effects);
        }
    }

    /// Only rank 0 splits directories, and puts them together.
    fn send_home(&mut self, dir: Ino) -> Performing {
        self.check_pins(dir)?;
        self.begin_export(ITSELF, (dir, Rank(0)), false)
    }

    fn join_small(&mut self, effects: &mut MdsEffects) {
        let stable = |(_, split): &(&Ino, &Split)| split.state == PartState::Stable;
        let splits = self.authority.splits.iter().filter(stable);
        let splits: Vec<_> = splits.map(|(dir, split)| (*dir, split.parts)).collect();
        let before = std::mem::take(&mut self.authority.sizes.small);
        for (dir, parts) in splits {
            let done = match self.rank {
                Rank(0) if !self.is_small(dir, parts) => Ok(false),
                Rank(0) => {
                    self.authority.sizes.small.push(dir);
                    if before.contains(&dir) { self.join_itself(dir, effects) } else { Ok(false) }
                }
                _ => self.send_small(dir),
            };
            match done {
                // One after the other.
                Ok(true) => return,
                Ok(false) => {}
                Err(refused) => self.fetch_for(&refused, effects),
            }
        }
    }

    /// Whether a directory has few names, all of them here. A directory that is not in memory is
    /// never small, because its size is unknown.
    fn is_small(&self, dir: Ino, parts: [Ino; Frag::SPLIT_WAYS]) -> bool {
        let list = &self.authority.list;
        let pinned = |part: &Ino| list.get(*part).is_some_and(|subtree| subtree.pinned);
        let known = |part: &Ino| self.namespace.is_complete(*part);
        let all = self.authority.parts_here(dir).len() == parts.len() && parts.iter().all(known);
        if !all || parts.iter().any(pinned) {
            return false;
        }
        let names: u64 = parts.iter().map(|part| self.namespace.dirs().names_here(*part)).sum();
        names.saturating_mul(SMALL) < self.settings.split_entries
    }

    fn join_itself(&mut self, dir: Ino, effects: &mut MdsEffects) -> Result<bool, Refused> {
        let joined = self.join(ITSELF, &Cred::root(), dir, effects)?;
        Ok(matches!(joined, Performed::Later))
    }

    /// Begins to give a fragment of a directory to rank 0, if it has few names.
    fn send_small(&mut self, dir: Ino) -> Result<bool, Refused> {
        let most = self.settings.split_entries;
        let small = |part: &Ino| {
            let names = self.namespace.dirs().names_here(*part);
            self.namespace.is_complete(*part) && names.saturating_mul(SMALL_PART) <= most
        };
        let Some(part) = self.authority.parts_here(dir).into_iter().find(small) else {
            return Ok(false);
        };
        Ok(matches!(self.send_home(part)?, Performed::Later))
    }
}
