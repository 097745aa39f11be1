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

use metastore::{FragmentOf, MovedSubtree, PartState, Subtrees};
use namespace::{Mode, Refusal};
use types::{
    AttrChange, ClientId, EntryName, Errno, FileType, Frag, Ino, Moment, Origin, Seq, Timestamp,
    name_hash,
};
use wire::Failure;

use super::RETRY;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

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
    parts: [Ino; Frag::SPLIT_WAYS],
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
    /// Whether requests for the directory wait.
    pub(super) fn is_frozen(&self) -> bool {
        self.stage != ReshapeStage::Drain
    }

    /// Whether it is about a directory or one of its fragments.
    pub(super) fn is_about(&self, dir: Ino) -> bool {
        self.dir == dir || self.parts.contains(&dir)
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

impl Mds {
    /// Continues the split or join, as far as possible.
    pub(super) fn reshape_step(&mut self, effects: &mut MdsEffects) {
        while let Some(reshape) = &self.authority.reshape {
            let waits = reshape.not_before.is_some_and(|at| self.clock.now < at);
            if waits || reshape.waiting {
                return;
            }
            let before = reshape.stage;
            self.authority.reshape.iter_mut().for_each(|reshape| reshape.not_before = None);
            let next = match self.reshape_next(before, effects) {
                Ok(next) => next,
                Err(Refusal::Cold(dir)) => {
                    if let Some(reshape) = &mut self.authority.reshape {
                        reshape.waiting = true;
                    }
                    return self.fetching().preload(dir, effects);
                }
                Err(Refusal::Errno(errno)) => {
                    let text = format!("{errno} when its names were to be moved");
                    return self.abort_reshape(&text, effects);
                }
            };
            match (&mut self.authority.reshape, next) {
                (Some(reshape), Some(next)) => reshape.stage = next,
                (_, None) | (None, _) => return,
            }
        }
    }

    fn reshape_next(
        &mut self,
        stage: ReshapeStage,
        effects: &mut MdsEffects,
    ) -> Result<Option<ReshapeStage>, Refusal> {
        match stage {
            ReshapeStage::Drain => {
                if self.phase != Phase::Active {
                    self.abort_reshape("the metadata server is stopping", effects);
                    return Ok(None);
                }
                let Some(reshape) = &self.authority.reshape else { return Ok(None) };
                let mut dirs = reshape.parts.to_vec();
                dirs.push(reshape.dir);
                let mut held = false;
                for dir in dirs {
                    held |= self.capabilities().revoke(ClientId(0), dir, effects).is_some();
                }
                if held || !self.authority.cross_renames.is_empty() || !self.is_ready_to_move()? {
                    return Ok(None);
                }
                Ok(Some(ReshapeStage::Still(self.log.last())))
            }
            ReshapeStage::Still(seq) => Ok((self.log.safe() >= seq).then_some(ReshapeStage::Mark)),
            ReshapeStage::Mark => self.replace_list_for_reshape(false, effects),
            ReshapeStage::Marking | ReshapeStage::Finishing => Ok(None),
            ReshapeStage::Move => {
                if self.refusing().is_some() {
                    self.reshape_listed(true);
                    return Ok(None);
                }
                self.move_names()
            }
            ReshapeStage::Flush(seq) => {
                Ok((self.log.safe() >= seq).then_some(ReshapeStage::Finish))
            }
            ReshapeStage::Finish => self.replace_list_for_reshape(true, effects),
        }
    }

    /// Looks at the names that will move, and fetches everything that needs while requests still
    /// continue.
    fn is_ready_to_move(&mut self) -> Result<bool, Refusal> {
        let Some(reshape) = &self.authority.reshape else { return Ok(false) };
        for from in reshape.from() {
            if !self.namespace.is_complete(from) {
                return Err(Refusal::Cold(from));
            }
            if reshape.joins {
                continue;
            }
            let names = self.namespace.dirs().names_in(from, reshape.cursor.as_deref(), SLICE);
            for (name, ino) in &names {
                self.namespace.plan().relocate(EntryName::new(from, name), *ino, from)?;
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
            self.balancing().count_before_reshape();
            return Ok(Some(ReshapeStage::Move));
        }
        if self.authority.is_busy() {
            return Ok(None);
        }
        let list = self.reshaped_list(wanted)?;
        self.put_list(list, effects);
        Ok(Some(if done { ReshapeStage::Finishing } else { ReshapeStage::Marking }))
    }

    fn reshaped_list(&self, state: Option<PartState>) -> Result<Subtrees, Refusal> {
        let mut list = self.authority.list.clone();
        let Some(reshape) = &self.authority.reshape else { return Ok(list) };
        let attr = self.namespace.getattr(reshape.dir)?;
        let access = (attr.mode, attr.uid, attr.gid);
        let whole = self.authority.whole_of(reshape.dir).unwrap_or(reshape.dir);
        let path = self.namespace.path_of(whole).map(|path| path.to_bytes()).unwrap_or_default();
        let frags = reshape.frag.split().unwrap_or_default();
        for (root, frag) in reshape.parts.into_iter().zip(frags) {
            let Some(state) = state else {
                list.remove(root);
                continue;
            };
            let known = list.get(root).cloned();
            let fresh = || MovedSubtree { root, path: path.clone(), ..MovedSubtree::default() };
            let part = Some(FragmentOf { dir: reshape.dir, frag, state, access });
            list.put(MovedSubtree { rank: self.rank, part, ..known.unwrap_or_else(fresh) });
        }
        Ok(list)
    }

    /// Moves a slice of names; later calls move the rest.
    fn move_names(&mut self) -> Result<Option<ReshapeStage>, Refusal> {
        let Some(reshape) = &self.authority.reshape else { return Ok(None) };
        let (dir, frag, parts, joins) = (reshape.dir, reshape.frag, reshape.parts, reshape.joins);
        if !self.namespace.knows(dir) {
            self.preload(super::preload::Goal::Find(dir));
            self.reshape_listed(true);
            return Ok(None);
        }
        if !self.namespace.is_complete(dir) {
            return Err(Refusal::Cold(dir));
        }
        let times = self.times_of(dir, &parts)?;
        if !joins {
            self.make_parts(dir, &parts, times)?;
        }
        let cursor = reshape_cursor(self);
        for from in if joins { parts.to_vec() } else { vec![dir] } {
            if !self.namespace.knows(from) {
                // It was removed before a crash, when it was empty.
                continue;
            }
            if !self.namespace.is_complete(from) {
                return Err(Refusal::Cold(from));
            }
            let names = self.namespace.dirs().names_in(from, cursor.as_deref(), SLICE);
            let last = names.last().map(|(name, _)| name.clone());
            for (name, ino) in names.into_iter().filter(|(_, ino)| !parts.contains(ino)) {
                let to = if joins { dir } else { parts[frag.place_of(name_hash(&name))] };
                self.move_name((from, to), (&name, ino))?;
            }
            if last.is_some() {
                // A join takes the visited names out of the fragment: the next slice begins at the
                // start again.
                let cursor = last.filter(|_| !joins);
                self.authority.reshape.iter_mut().for_each(|it| it.cursor.clone_from(&cursor));
                self.restore_times(dir, &parts, times);
                self.balancing().forget_moved(dir, &parts);
                return Ok(None);
            }
        }
        if joins {
            self.remove_parts(dir, &parts);
        }
        self.restore_times(dir, &parts, times);
        self.changing().apply.note_freed(true);
        self.balancing().count_after_reshape(dir, &parts, joins);
        Ok(Some(ReshapeStage::Flush(self.log.last())))
    }

    fn journal_quietly(&mut self, event: &journal::Event<'_>) {
        let seq = self.log.append(self.clock.now, Origin::default(), event);
        self.namespace.apply(seq, Mode::Live, event);
    }

    fn move_name(&mut self, between: (Ino, Ino), (name, ino): (&[u8], Ino)) -> Result<(), Refusal> {
        debug_assert!(between.0 != between.1, "{ino}: a name moves to another directory");
        let planned =
            self.namespace.plan().relocate(EntryName::new(between.0, name), ino, between.1)?;
        self.journal_quietly(&planned.event());
        Ok(())
    }

    fn make_parts(
        &mut self,
        dir: Ino,
        parts: &[Ino],
        (mtime, atime, ctime): (Timestamp, Timestamp, Timestamp),
    ) -> Result<(), Refusal> {
        let attr = self.namespace.getattr(dir)?;
        for (number, ino) in parts.iter().enumerate() {
            if self.namespace.knows(*ino) {
                continue;
            }
            let name = part_name(number);
            let create = journal::Create {
                parent: dir,
                name: &name,
                ino: *ino,
                mode: FileType::Directory.mode_bits() | (attr.mode & types::MODE_PERMISSIONS),
                uid: attr.uid,
                gid: attr.gid,
                time: ctime,
                mtime,
                atime,
                ..journal::Create::default()
            };
            self.journal_quietly(&journal::Event::Create(create));
        }
        Ok(())
    }

    fn remove_parts(&mut self, dir: Ino, parts: &[Ino]) {
        for (number, ino) in parts.iter().enumerate() {
            if self.namespace.knows(*ino) {
                let (name, time) = (part_name(number), self.clock.time);
                let event = journal::Event::Rmdir { parent: dir, name: &name, ino: *ino, time };
                self.journal_quietly(&event);
            }
        }
    }

    /// The times of a directory and its fragments together.
    fn times_of(
        &self,
        dir: Ino,
        parts: &[Ino],
    ) -> Result<(Timestamp, Timestamp, Timestamp), Refusal> {
        let attr = self.namespace.getattr(dir)?;
        let mut times = (attr.mtime, attr.atime, attr.ctime);
        for attr in parts.iter().filter_map(|part| self.namespace.getattr(*part).ok()) {
            times.0 = times.0.max(attr.mtime);
            times.1 = times.1.max(attr.atime);
            times.2 = times.2.max(attr.ctime);
        }
        Ok(times)
    }

    /// Moving names changes neither the directory's content nor its times.
    fn restore_times(
        &mut self,
        dir: Ino,
        parts: &[Ino],
        (mtime, atime, ctime): (Timestamp, Timestamp, Timestamp),
    ) {
        let change = AttrChange { mtime: Some(mtime), atime: Some(atime), ..AttrChange::default() };
        for ino in std::iter::once(&dir).chain(parts).copied() {
            if self.namespace.knows(ino) {
                self.set_quietly(ino, change, ctime);
            }
        }
    }

    /// It is done.
    fn reshaped(&mut self, effects: &mut MdsEffects) {
        let Some(reshape) = self.authority.reshape.take() else { return };
        assert!(reshape.stage == ReshapeStage::Finish, "{}: all names moved", reshape.dir);
        self.counters.splits += u64::from(!reshape.joins);
        self.counters.joins += u64::from(reshape.joins);
        self.note_fragments();
        self.authority.note_plain();
        self.last_beacon = None;
        self.answer_export(reshape.at, Ok(()), effects);
        self.fetches.wake_returned(reshape.dir);
        self.merging().go_on_with_held(effects);
    }

    /// The list is not as it was to be, or it is not known.
    pub(super) fn reshape_listed(&mut self, failed: bool) {
        let until = self.clock.now + RETRY;
        if let Some(reshape) = &mut self.authority.reshape {
            reshape.listed();
            reshape.not_before = failed.then_some(until);
        }
    }

    pub(super) fn reshape_fetched(&mut self) {
        if let Some(reshape) = &mut self.authority.reshape {
            reshape.waiting = false;
        }
    }

    /// Whether the journal is to be written without delay.
    pub(super) fn reshape_wants_journal(&self) -> bool {
        let flushes = |reshape: &Reshape| {
            matches!(reshape.stage, ReshapeStage::Still(_) | ReshapeStage::Flush(_))
        };
        self.authority.reshape.as_ref().is_some_and(flushes)
    }

    /// Whether there are names to be moved, or looked at.
    pub(crate) fn has_names_to_move(&self) -> bool {
        self.authority.reshape.as_ref().is_some_and(|reshape| {
            let looks = reshape.stage == ReshapeStage::Drain && reshape.cursor.is_some();
            (looks || reshape.stage == ReshapeStage::Move)
                && !reshape.waiting
                && reshape.not_before.is_none()
        })
    }

    /// The server stops: the next one completes the split or join that the list notes.
    pub(crate) fn stop_reshape(&mut self, effects: &mut MdsEffects) {
        self.abort_reshape("the metadata server is stopping", effects);
    }

    fn abort_reshape(&mut self, why: &str, effects: &mut MdsEffects) {
        let Some(reshape) = self.authority.reshape.take() else { return };
        self.authority.note_plain();
        let failure = Failure { errno: Errno::Busy, text: format!("nothing was moved: {why}") };
        self.answer_export(reshape.at, Err(failure), effects);
        self.fetches.wake_returned(reshape.dir);
        self.merging().go_on_with_held(effects);
    }
}

fn reshape_cursor(mds: &Mds) -> Option<Vec<u8>> {
    mds.authority.reshape.as_ref().and_then(|reshape| reshape.cursor.clone())
}
