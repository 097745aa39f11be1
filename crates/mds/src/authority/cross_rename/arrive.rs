//! The rank to which a name is offered takes it, and confirms that when its journal has the name.

use journal::{Block, Event};
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{CrossRename, CrossRenameState, cross_rename_name};
use namespace::{Mode, Refusal};
use types::{ConnId, Cred, EntryName, Errno, Error, Ino, Moment, Origin, Rank, Seq};
use wire::{Answer, Failure};

use super::super::RETRY;
use super::super::place::busy;
use super::ENDED_MAX;
use super::directory::MOUNT_POINT;
use super::offer::failure_of;
use crate::op::{ChangeCx, Performed, Performing, Refused};
use crate::{Mds, MdsEffects, ReplyTo, Waiting};

/// The offer for this rank does not exist any more: the client must begin the rename again. Not
/// `ESTALE`, which means that the directory is not here: the client would try other ranks, which
/// would redirect it back here.
const LOST: Refused = Refused::Refusal(Refusal::Errno(Errno::Again));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrivalStage {
    /// The offer is to be looked at, not before that time.
    Look(Moment),
    Looking,
    /// The events of the directory up to here are safe: no client resends a request that would then
    /// be executed again behind the arriving name.
    Flush(Seq),
    /// It is being taken.
    Taking,
    /// The offer was taken, and the list of subtrees will name the authority of the directory and
    /// that of its name, not before that time.
    List(Moment),
    /// The list is being replaced.
    Listing,
    /// It was taken: the name is to come.
    Come,
    /// The journal has it up to here.
    Came(Seq),
    /// The message to the other rank is under way.
    Confirming,
}

/// A name that arrives from another rank.
#[derive(Debug)]
pub(super) struct Arrival {
    id: u64,
    from: Rank,
    number: u64,
    pub(super) dir: Ino,
    /// Who asked.
    at: Option<ReplyTo>,
    pub(super) cross_rename: CrossRename,
    version: u64,
    stage: ArrivalStage,
    /// The offer may have been taken: the directory is not served.
    frozen: bool,
    /// The journal has it.
    came: bool,
}

impl Arrival {
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// One that a recovery found, and that was taken.
    pub(super) fn found(
        id: u64,
        (from, number): (Rank, u64),
        (cross_rename, version): (CrossRename, u64),
    ) -> Self {
        let dir = cross_rename.new_parent;
        let stage =
            if cross_rename.is_dir { ArrivalStage::List(Moment(0)) } else { ArrivalStage::Come };
        Self {
            id,
            from,
            number,
            dir,
            at: None,
            cross_rename,
            version,
            stage,
            frozen: true,
            came: false,
        }
    }

    fn object(&self) -> String {
        cross_rename_name(self.from, self.number)
    }

    /// The stage after the offer was taken.
    fn taken(&self) -> ArrivalStage {
        if self.cross_rename.is_dir && !self.came {
            ArrivalStage::List(Moment(0))
        } else {
            ArrivalStage::Come
        }
    }

    /// The list of subtrees was replaced as this rank proposed, or not: then the replacement is
    /// tried again at that time.
    pub(super) fn listed(&mut self, again: Option<Moment>) {
        if self.stage == ArrivalStage::Listing {
            self.stage = again.map_or(ArrivalStage::Come, ArrivalStage::List);
        }
    }
}

impl Mds {
    /// Takes a name that another rank offers.
    pub(crate) fn arrive(
        &mut self,
        at: ReplyTo,
        dir: Ino,
        (from, number): (Rank, u64),
        effects: &mut MdsEffects,
    ) -> Performing {
        let cross_renames = &mut self.authority.cross_renames;
        if cross_renames.taken.contains(&(from, number)) {
            return Ok(Performed::Answer(Answer::Done));
        }
        let same = |it: &&mut Arrival| (it.from, it.number) == (from, number);
        if let Some(known) = cross_renames.arrivals.iter_mut().find(same) {
            known.at = Some(at);
            return Ok(Performed::Later);
        }
        self.may_begin()?;
        self.may_pass(dir)?;
        if from == self.rank {
            return Err(LOST);
        }
        let id = self.cross_rename_number();
        assert!(self.arrival(id).is_none(), "{id}: a number is of one rename");
        self.authority.cross_renames.arrivals.push(Arrival {
            id,
            from,
            number,
            dir,
            at: Some(at),
            cross_rename: CrossRename::default(),
            version: 0,
            stage: ArrivalStage::Look(self.clock.now),
            frozen: false,
            came: false,
        });
        self.authority.note_plain();
        self.cross_renames_step(effects);
        Ok(Performed::Later)
    }

    pub(super) fn arrivals_step(&mut self, effects: &mut MdsEffects) {
        let ids: Vec<u64> = self.authority.cross_renames.arrivals.iter().map(|it| it.id).collect();
        for id in ids {
            while let Some(stage) = self.arrival(id).map(|it| it.stage)
                && let Some(next) = self.arrival_next(id, stage, effects)
            {
                if let Some(arrival) = self.arrival(id) {
                    arrival.stage = next;
                }
            }
        }
    }

    fn arrival(&mut self, id: u64) -> Option<&mut Arrival> {
        self.authority.cross_renames.arrivals.iter_mut().find(|it| it.id == id)
    }

    fn arrival_next(
        &mut self,
        id: u64,
        stage: ArrivalStage,
        effects: &mut MdsEffects,
    ) -> Option<ArrivalStage> {
        match stage {
            ArrivalStage::Look(at) => {
                if self.clock.now < at {
                    return None;
                }
                let object = self.arrival(id)?.object();
                self.get_cross_rename(id, object, effects);
                Some(ArrivalStage::Looking)
            }
            ArrivalStage::Flush(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                self.replace_cross_rename(id, CrossRenameState::Taken, effects)?;
                Some(ArrivalStage::Taking)
            }
            ArrivalStage::List(at) => {
                if self.clock.now < at || self.authority.is_busy() {
                    return None;
                }
                let cross_rename = self.arrival(id)?.cross_rename.clone();
                if !self.finds(cross_rename.new_parent) {
                    return None;
                }
                let list = self.list_with_name(&cross_rename)?;
                self.authority.put_list(list, &mut self.store, effects);
                Some(ArrivalStage::Listing)
            }
            ArrivalStage::Come => self.take_name(id, effects),
            ArrivalStage::Came(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                let came = self.arrival(id)?.came;
                assert!(came, "{id}: a rename is done when the journal has the name");
                self.replace_cross_rename(id, CrossRenameState::Done, effects)?;
                Some(ArrivalStage::Confirming)
            }
            ArrivalStage::Looking
            | ArrivalStage::Taking
            | ArrivalStage::Listing
            | ArrivalStage::Confirming => None,
        }
    }

    /// Writes the outcome of the offer into its object, unless another rank already did.
    fn replace_cross_rename(
        &mut self,
        id: u64,
        state: CrossRenameState,
        effects: &mut MdsEffects,
    ) -> Option<()> {
        let arrival = self.arrival(id)?;
        let object = arrival.object();
        let data = CrossRename { state, ..arrival.cross_rename.clone() }.encode();
        let condition = Condition::Version(arrival.version);
        self.store.begin(
            Waiting::CrossRename(id),
            StoreOp::Put { object, data, condition },
            effects,
        );
        Some(())
    }

    pub(super) fn arrival_stored(
        &mut self,
        id: u64,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let again = ArrivalStage::Look(self.clock.now + RETRY);
        let Some(arrival) = self.arrival(id) else { return };
        let next = match (arrival.stage, result) {
            (ArrivalStage::Looking, Ok(StoreResult::Bytes(bytes, version))) => {
                let cross_rename = match CrossRename::decode(&arrival.object(), bytes) {
                    Ok(cross_rename) => cross_rename,
                    Err(error) => {
                        effects.fatal = Some(error.into());
                        return;
                    }
                };
                (arrival.cross_rename, arrival.version) = (cross_rename, *version);
                match self.offer_seen(id, effects) {
                    Ok(Some(stage)) => stage,
                    Ok(None) => return,
                    Err(refused) => return self.not_taken(id, refused, effects),
                }
            }
            (ArrivalStage::Looking, Ok(StoreResult::Missing)) => {
                // It was deleted when both had written down that it was taken, or it was withdrawn.
                return if arrival.came {
                    self.arrived(id, effects);
                } else {
                    self.not_taken(id, LOST, effects);
                };
            }
            (ArrivalStage::Taking, Ok(StoreResult::Stored(version))) => {
                arrival.version = *version;
                arrival.cross_rename.state = CrossRenameState::Taken;
                let next = arrival.taken();
                // A rank that asked need not wait for this rank's journal.
                if let Some(at) = arrival.at.take_if(|at| at.conn == ConnId::PEER) {
                    self.answer_cross_rename(at, Ok(Answer::Done), effects);
                }
                next
            }
            (ArrivalStage::Confirming, Ok(StoreResult::Stored(_))) => {
                return self.arrived(id, effects);
            }
            // Another rank was faster, or the outcome of the write is unknown.
            _ => again,
        };
        if let Some(arrival) = self.arrival(id) {
            arrival.stage = next;
        }
    }

    /// The offer was read. Returns the next stage; `None` if that needs a directory that is being
    /// fetched.
    fn offer_seen(
        &mut self,
        id: u64,
        effects: &mut MdsEffects,
    ) -> Result<Option<ArrivalStage>, Refused> {
        let now = self.clock.now;
        let Some(arrival) = self.arrival(id) else { return Ok(None) };
        let (cross_rename, dir) = (arrival.cross_rename.clone(), arrival.dir);
        if cross_rename.to != self.rank || cross_rename.new_parent != dir {
            return Err(LOST);
        }
        match cross_rename.state {
            CrossRenameState::Withdrawn => return Err(LOST),
            CrossRenameState::Taken => {
                let Some(arrival) = self.arrival(id) else { return Ok(None) };
                arrival.frozen = true;
                return Ok(Some(arrival.taken()));
            }
            CrossRenameState::Done => {
                self.arrived(id, effects);
                return Ok(None);
            }
            CrossRenameState::Offered => {}
        }
        // If taking it had failed without saying so: it was not taken.
        if let Some(arrival) = self.arrival(id) {
            arrival.frozen = false;
        }
        let cross_renames = &self.authority.cross_renames;
        if cross_renames.departures.iter().any(|it| it.cross_rename.ino == cross_rename.ino) {
            return Err(Errno::Again.into());
        }
        if cross_renames.holds(dir).is_some() || self.snapshots.is_frozen() {
            return Ok(Some(ArrivalStage::Look(now + types::Span::from_millis(5))));
        }
        self.may_pass(dir)?;
        if cross_rename.is_dir && !self.may_come(&cross_rename, effects)? {
            return Ok(Some(ArrivalStage::Look(now + types::Span::from_millis(2))));
        }
        match self
            .plan_to_come(&cross_rename, &cross_rename.cred, cross_rename.no_replace)
            .map(drop)
        {
            Ok(()) => {}
            Err(Refused::Refusal(Refusal::Cold(cold)))
                if cross_rename.is_dir && cold != dir && self.is_elsewhere(cold) =>
            {
                return Err(busy(MOUNT_POINT));
            }
            Err(Refused::Refusal(Refusal::Cold(cold))) => {
                self.cross_rename_waits_for(cold, effects);
                return Ok(Some(ArrivalStage::Look(now + types::Span::from_millis(1))));
            }
            Err(refused) => return Err(refused),
        }
        if let Some(arrival) = self.arrival(id) {
            arrival.frozen = true;
        }
        self.authority.note_plain();
        Ok(Some(ArrivalStage::Flush(self.log.last())))
    }

    /// Whether the name may come as it was asked for.
    fn plan_to_come(
        &self,
        cross_rename: &CrossRename,
        cred: &Cred,
        no_replace: bool,
    ) -> Result<(), Refused> {
        with_inode(cross_rename, |moved| {
            let to = EntryName::new(cross_rename.new_parent, &cross_rename.new_name);
            self.namespace.plan().arrival(cred, moved, to, no_replace, cross_rename.time).map(drop)
        })
        .map_err(|error| Failure { errno: error.errno, text: error.to_string() })
        .map_err(Refused::Failure)?
        .map_err(Refused::Refusal)
    }

    /// The name is this rank's: it comes.
    fn take_name(&mut self, id: u64, effects: &mut MdsEffects) -> Option<ArrivalStage> {
        let cross_rename = self.arrival(id)?.cross_rename.clone();
        let (dir, name) = (cross_rename.new_parent, &cross_rename.new_name[..]);
        let is_taken = cross_rename.state != CrossRenameState::Offered;
        assert!(is_taken, "{}: a name comes when it is taken", cross_rename.ino);
        if !self.finds(dir) {
            return None;
        }
        let mut seq = Seq(0);
        let here = match self.namespace.peek(dir, name) {
            Ok(here) => here,
            Err(Refusal::Cold(cold)) => {
                self.cross_rename_waits_for(cold, effects);
                return None;
            }
            Err(Refusal::Errno(_)) => None,
        };
        // The journal of an earlier term may have it.
        if here != Some(cross_rename.ino) {
            let came = with_inode(&cross_rename, |moved| {
                let to = EntryName::new(dir, name);
                let root = Cred::root();
                let event =
                    self.namespace.plan().arrival(&root, moved, to, false, cross_rename.time)?;
                seq = self.log.append(self.clock.now, Origin::default(), &event);
                self.namespace.apply(seq, Mode::Live, &event);
                Ok(())
            });
            match came {
                Ok(Ok(())) => {}
                Ok(Err(Refusal::Cold(cold))) => {
                    self.cross_rename_waits_for(cold, effects);
                    return None;
                }
                Ok(Err(Refusal::Errno(errno))) => {
                    let cause = format!("{errno} when a name came from another rank");
                    effects.fatal = Some(Error::new(Errno::Io, dir.to_string(), cause));
                    return None;
                }
                Err(error) => {
                    effects.fatal = Some(error);
                    return None;
                }
            }
            ChangeCx::of(self).apply.note_freed(true);
            self.note_size(dir);
        }
        self.arrival(id)?.came = true;
        Some(ArrivalStage::Came(seq))
    }

    /// Both ranks know that it was taken.
    fn arrived(&mut self, id: u64, effects: &mut MdsEffects) {
        let cross_renames = &mut self.authority.cross_renames;
        let Some(place) = cross_renames.arrivals.iter().position(|it| it.id == id) else { return };
        let arrival = cross_renames.arrivals.swap_remove(place);
        if cross_renames.taken.len() >= ENDED_MAX {
            cross_renames.taken.pop_front();
        }
        cross_renames.taken.push_back((arrival.from, arrival.number));
        self.authority.moved.remove(&arrival.cross_rename.ino);
        if let Some(at) = arrival.at {
            self.answer_cross_rename(at, Ok(Answer::Done), effects);
        }
        self.send_taken((arrival.from, arrival.number), effects);
        self.thaw(arrival.dir, effects);
    }

    /// It stays where it is.
    fn not_taken(&mut self, id: u64, refused: Refused, effects: &mut MdsEffects) {
        let cross_renames = &mut self.authority.cross_renames;
        let Some(place) = cross_renames.arrivals.iter().position(|it| it.id == id) else { return };
        let arrival = cross_renames.arrivals.swap_remove(place);
        let failure = failure_of(refused);
        if let Some(at) = arrival.at {
            self.answer_cross_rename(at, Err(failure), effects);
        }
        self.thaw(arrival.dir, effects);
    }
}

/// Lends the inode that a cross-rank rename carries.
fn with_inode<T>(
    cross_rename: &CrossRename,
    then: impl FnOnce(&journal::InodeSnapshot<'_>) -> T,
) -> Result<T, Error> {
    let about = || {
        Error::new(
            Errno::BadMessage,
            cross_rename.ino.to_string(),
            "the inode of a name on its way",
        )
    };
    let (block, _) = Block::read(&cross_rename.inode, 0).map_err(|_| about())?;
    let mut events = block.events();
    let record = events.next_event().ok().flatten().ok_or_else(about)?;
    let Event::Rename { ref moved, .. } = record.event else { return Err(about()) };
    Ok(then(moved))
}
