//! Splitting a directory into fragments, and joining them (B-04).
//!
//! 1. *Drain*: clients lose their capabilities and leases of it, and everything that moving its
//!    names needs is fetched. Requests continue.
//! 2. *Mark*: requests for the directory wait from here on. Answered requests become safe, and then
//!    the list of subtrees notes the split or join.
//! 3. *Move*: names go to their fragments, or back, one event each.
//! 4. *Flush*: all of that is safe.
//! 5. *Settle*: the list notes the end.
//!
//! A recovery finds the split or join in the list, and continues it: a name is in the directory or
//! in its fragment, and moves if it is in the wrong one. No request is answered in between.

mod ask;
mod names;

use metastore::{FragmentOf, MovedSubtree, PartState, Subtrees};
use namespace::Refusal;
use types::{EntryName, Errno, Frag, Ino, Moment, Seq, Timestamp};
use wire::{Answer, ClusterMap, Failure};

use super::check::UnderWay;
use super::view::Places;
use super::{Authority, RETRY};
use crate::apply::ApplyCx;
use crate::balance::Balance;
use crate::contexts::lend;
use crate::fetch::Fetches;
use crate::locks::Locks;
use crate::store::StoreOps;
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Phase, ReplyTo, Settings};

/// Names moved, or looked at, in one slice: about two milliseconds.
const SLICE: usize = 1024;
/// The name of a fragment's hidden directory in the split one, without its number.
const PART_NAME: &[u8] = b".cudele.fragment.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReshapeStage {
    Drain,
    /// Requests wait. The journal has the answered ones up to here: no client resends one to a
    /// directory that does not have its name any more.
    Still(Seq),
    Mark,
    /// The list is being replaced, to note the split or join.
    Marking,
    Move,
    /// The journal has everything up to here.
    Flush(Seq),
    Finish,
    /// The list is being replaced, to say that it is done.
    Finishing,
}

/// A directory that is being split, or put together.
#[derive(Debug)]
pub(crate) struct Reshape {
    pub(super) dir: Ino,
    frag: Frag,
    pub(super) parts: [Ino; Frag::SPLIT_WAYS],
    /// The fragments are put together.
    joins: bool,
    /// Who asked.
    at: ReplyTo,
    stage: ReshapeStage,
    /// Names up to here are looked at.
    cursor: Option<Vec<u8>>,
    /// A directory is being fetched.
    waiting: bool,
    /// The store refused something: not before that.
    not_before: Option<Moment>,
}

impl Reshape {
    fn new(dir: Ino, frag: Frag, parts: [Ino; Frag::SPLIT_WAYS], joins: bool, at: ReplyTo) -> Self {
        let (stage, cursor, waiting, not_before) = (ReshapeStage::Drain, None, false, None);
        Self { dir, frag, parts, joins, at, stage, cursor, waiting, not_before }
    }

    /// Whether requests for the directory wait.
    pub(super) fn is_frozen(&self) -> bool {
        self.stage != ReshapeStage::Drain
    }

    /// Whether it is about a directory or one of its fragments.
    pub(super) fn is_about(&self, dir: Ino) -> bool {
        self.dir == dir || self.parts.contains(&dir)
    }

    fn waits(&self, now: Moment) -> bool {
        self.waiting || self.not_before.is_some_and(|at| now < at)
    }

    /// A directory is here, or cannot be fetched now.
    pub(super) fn fetched(&mut self) {
        self.waiting = false;
    }

    fn from(&self) -> Vec<Ino> {
        if self.joins { self.parts.to_vec() } else { vec![self.dir] }
    }

    /// The list was replaced, or read.
    fn listed(&mut self) {
        if self.stage == ReshapeStage::Marking {
            self.stage = ReshapeStage::Mark;
        } else if self.stage == ReshapeStage::Finishing {
            self.stage = ReshapeStage::Finish;
        }
    }
}

fn part_name(number: usize) -> Vec<u8> {
    [PART_NAME, number.to_string().as_bytes()].concat()
}

impl Authority {
    /// The list is not as it was to be, or it is not known.
    pub(super) fn reshape_listed(&mut self, failed: bool, now: Moment) {
        let until = now + RETRY;
        if let Some(reshape) = &mut self.reshape {
            reshape.listed();
            reshape.not_before = failed.then_some(until);
        }
    }

    /// Whether the journal is to be written without delay.
    pub(super) fn reshape_wants_journal(&self) -> bool {
        let flushes = |reshape: &Reshape| {
            matches!(reshape.stage, ReshapeStage::Still(_) | ReshapeStage::Flush(_))
        };
        self.reshape.as_ref().is_some_and(flushes)
    }

    /// Whether there are names to be moved, or looked at.
    pub(crate) fn has_names_to_move(&self) -> bool {
        self.reshape.as_ref().is_some_and(|reshape| {
            let looks = reshape.stage == ReshapeStage::Drain && reshape.cursor.is_some();
            (looks || reshape.stage == ReshapeStage::Move)
                && !reshape.waiting
                && reshape.not_before.is_none()
        })
    }
}

/// Splits and joins of directories, with all that they may touch.
pub(crate) struct ReshapeCx<'a> {
    pub(crate) apply: ApplyCx<'a>,
    pub(crate) authority: &'a mut Authority,
    pub(crate) tables: &'a mut Tables,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) balance: &'a mut Balance,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) locks: &'a Locks<ReplyTo>,
    pub(crate) settings: &'a Settings,
    pub(crate) map: Option<&'a ClusterMap>,
    pub(crate) under_way: UnderWay,
    pub(crate) refusing: Option<Errno>,
    pub(crate) phase: Phase,
    pub(crate) time: Timestamp,
    /// Changes that were resent after a crash are being executed.
    pub(crate) is_resend_busy: bool,
}

impl ReshapeCx<'_> {
    fn places(&self) -> Places<'_> {
        lend!(self => Places {
            mut:;
            ref: authority, tables, locks;
            copy: map;
            namespace: self.apply.namespace,
            opens: self.apply.opens,
        })
    }

    /// The directories of which no client may cache anything, before the split or join goes on.
    pub(super) fn draining(&self) -> Vec<Ino> {
        let drains = |it: &&Reshape| {
            it.stage == ReshapeStage::Drain && !it.waits(self.now()) && self.phase == Phase::Active
        };
        let draining = self.authority.reshape.iter().find(drains);
        draining.map(|it| it.parts.iter().copied().chain([it.dir]).collect()).unwrap_or_default()
    }

    fn now(&self) -> Moment {
        self.apply.now
    }

    /// Continues the split or join, as far as possible; `is_held` is whether clients still cache
    /// something of it. Returns a directory that it needs.
    pub(super) fn step(&mut self, is_held: bool, effects: &mut MdsEffects) -> Option<Ino> {
        while let Some(reshape) = &mut self.authority.reshape {
            if reshape.waits(self.apply.now) {
                return None;
            }
            let before = reshape.stage;
            reshape.not_before = None;
            let next = match self.next(before, is_held, effects) {
                Ok(next) => next,
                Err(Refusal::Cold(dir)) => {
                    if let Some(reshape) = &mut self.authority.reshape {
                        reshape.waiting = true;
                    }
                    return Some(dir);
                }
                Err(Refusal::Errno(errno)) => {
                    self.abort(&format!("{errno} when its names were to be moved"), effects);
                    return None;
                }
            };
            match (&mut self.authority.reshape, next) {
                (Some(reshape), Some(next)) => reshape.stage = next,
                (_, None) | (None, _) => return None,
            }
            self.authority.note_plain();
        }
        None
    }

    fn next(
        &mut self,
        stage: ReshapeStage,
        is_held: bool,
        effects: &mut MdsEffects,
    ) -> Result<Option<ReshapeStage>, Refusal> {
        match stage {
            ReshapeStage::Drain => {
                if self.phase != Phase::Active {
                    self.abort("the metadata server is stopping", effects);
                    return Ok(None);
                }
                if is_held
                    || !self.authority.cross_renames.is_empty()
                    || !self.is_ready_to_move()?
                {
                    return Ok(None);
                }
                Ok(Some(ReshapeStage::Still(self.apply.log.last())))
            }
            ReshapeStage::Still(seq) => {
                Ok((self.apply.log.safe() >= seq).then_some(ReshapeStage::Mark))
            }
            ReshapeStage::Mark => self.replace_list_for_reshape(false, effects),
            ReshapeStage::Marking | ReshapeStage::Finishing => Ok(None),
            ReshapeStage::Move => {
                if self.refusing.is_some() {
                    self.authority.reshape_listed(true, self.apply.now);
                    return Ok(None);
                }
                self.move_names()
            }
            ReshapeStage::Flush(seq) => {
                Ok((self.apply.log.safe() >= seq).then_some(ReshapeStage::Finish))
            }
            ReshapeStage::Finish => self.replace_list_for_reshape(true, effects),
        }
    }

    /// Looks at the names that will move, and fetches everything that needs while requests still
    /// continue.
    fn is_ready_to_move(&mut self) -> Result<bool, Refusal> {
        let Some(reshape) = &self.authority.reshape else { return Ok(false) };
        for from in reshape.from() {
            if !self.apply.namespace.is_complete(from) {
                return Err(Refusal::Cold(from));
            }
            if reshape.joins {
                continue;
            }
            let names =
                self.apply.namespace.dirs().names_in(from, reshape.cursor.as_deref(), SLICE);
            for (name, ino) in &names {
                self.apply.namespace.plan().relocate(EntryName::new(from, name), *ino, from)?;
            }
            if let Some((last, _)) = names.last() {
                let cursor = Some(last.clone());
                self.authority.reshape.iter_mut().for_each(|it| it.cursor.clone_from(&cursor));
                return Ok(false);
            }
        }
        self.authority.reshape.iter_mut().for_each(|it| it.cursor = None);
        Ok(true)
    }

    /// Notes in the list that the split or join is under way, or done.
    fn replace_list_for_reshape(
        &mut self,
        done: bool,
        effects: &mut MdsEffects,
    ) -> Result<Option<ReshapeStage>, Refusal> {
        let Some(reshape) = &self.authority.reshape else { return Ok(None) };
        let (dir, joins) = (reshape.dir, reshape.joins);
        let state = match (done, joins) {
            (true, _) => PartState::Stable,
            (false, true) => PartState::Joining,
            (false, false) => PartState::Splitting,
        };
        let known = self.authority.splits.get(&dir).map(|split| split.state);
        let wanted = (!(done && joins)).then_some(state);
        if known == wanted {
            if done {
                self.reshaped(effects);
                return Ok(None);
            }
            self.balance.count_before_reshape(self.apply.namespace, self.apply.now);
            return Ok(Some(ReshapeStage::Move));
        }
        if self.authority.is_busy() {
            return Ok(None);
        }
        let list = self.reshaped_list(wanted)?;
        self.authority.put_list(list, self.store, effects);
        Ok(Some(if done { ReshapeStage::Finishing } else { ReshapeStage::Marking }))
    }

    fn reshaped_list(&self, state: Option<PartState>) -> Result<Subtrees, Refusal> {
        let mut list = self.authority.list.clone();
        let Some(reshape) = &self.authority.reshape else { return Ok(list) };
        let attr = self.apply.namespace.getattr(reshape.dir)?;
        let access = (attr.mode, attr.uid, attr.gid);
        let whole = self.authority.whole_of(reshape.dir).unwrap_or(reshape.dir);
        let path =
            self.apply.namespace.path_of(whole).map(|path| path.to_bytes()).unwrap_or_default();
        let frags = reshape.frag.split().unwrap_or_default();
        for (root, frag) in reshape.parts.into_iter().zip(frags) {
            let Some(state) = state else {
                list.remove(root);
                continue;
            };
            let known = list.get(root).cloned();
            let fresh = || MovedSubtree { root, path: path.clone(), ..MovedSubtree::default() };
            let part = Some(FragmentOf { dir: reshape.dir, frag, state, access });
            list.put(MovedSubtree {
                rank: self.authority.rank,
                part,
                ..known.unwrap_or_else(fresh)
            });
        }
        Ok(list)
    }

    /// It is done.
    fn reshaped(&mut self, effects: &mut MdsEffects) {
        let Some(reshape) = self.authority.reshape.take() else { return };
        assert!(reshape.stage == ReshapeStage::Finish, "{}: all names moved", reshape.dir);
        self.counters.splits += u64::from(!reshape.joins);
        self.counters.joins += u64::from(reshape.joins);
        self.authority.note_fragments(self.apply.namespace);
        self.authority.note_ended(&[]);
        effects.answer(reshape.at, Ok(Answer::Done));
        self.fetches.wake_returned(reshape.dir);
    }

    /// The server stops: the next one completes the split or join that the list notes.
    pub(crate) fn stop(&mut self, effects: &mut MdsEffects) {
        self.abort("the metadata server is stopping", effects);
    }

    fn abort(&mut self, why: &str, effects: &mut MdsEffects) {
        let Some(reshape) = self.authority.reshape.take() else { return };
        let failure = Failure { errno: Errno::Busy, text: format!("nothing was moved: {why}") };
        effects.answer(reshape.at, Err(failure));
        self.fetches.wake_returned(reshape.dir);
        self.authority.note_ended(&[]);
    }
}
