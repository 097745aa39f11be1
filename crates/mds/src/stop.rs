//! Stopping cleanly: everything is written down, and the journal ends. Or, if only the server of
//! this rank ends, the journal stays: the next server replays what the store does not have.
//!
//! A server that gets the order to stop serves requests while it writes. Clients wait only for the
//! last round, which writes what changed during the round before: they go on at the next server.

use std::collections::BTreeSet;

use journal::Event;
use types::{ClientId, Moment, Origin, Seq, Span};

use crate::authority::{ExportCx, ReshapeCx};
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::leases::ANYBODY;
use crate::log::Log;
use crate::session::{GONE, Sessions};
use crate::tables::{JournalEnd, Tables};
use crate::{Mds, MdsEffects, MdsNotice, Phase};

/// A round of writes that takes no longer leaves little to be written while clients wait.
const SHORT: Span = Span::from_millis(200);
/// Clients that change directories faster than the store takes them make each round as long as the
/// one before.
const ROUNDS_MAX: u32 = 4;

/// An order to stop, and what is done of it.
#[derive(Debug)]
pub(crate) struct StopOrder {
    stage: Stage,
    /// The writes of this stage.
    rounds: Rounds,
    /// Directories are left to the next server, which finds their changes in the journal.
    keeps_journal: bool,
}

/// The work of a server between the order to stop and its last request.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Directories are written, while clients work as before.
    Writing,
    /// Clients return the directories that they have alone.
    Collecting,
    /// The server writes the returned directories, while clients work.
    WritingReturned,
}

/// Rounds in which all directories are written that changed before.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The newest event before the round, and when the round began.
    round: Option<(Seq, Moment)>,
    ended: u32,
}

impl Rounds {
    /// Ends a round if nothing before it is `unwritten`, and begins the next one behind the event
    /// `last`. Returns the newest event of the round that is under way, or `None` after the last.
    fn next(&mut self, now: Moment, last: Seq, unwritten: Seq) -> Option<Seq> {
        loop {
            let (target, began) = *self.round.get_or_insert((last, now));
            if unwritten <= target {
                return Some(target);
            }
            self.ended += 1;
            if now.since(began) <= SHORT || self.ended >= ROUNDS_MAX {
                return None;
            }
            self.round = None;
        }
    }
}

impl Mds {
    /// The order to stop: of the whole cluster, or of this server, whose rank the next one serves.
    pub(crate) fn terminate(&mut self, is_for_next: bool, effects: &mut MdsEffects) {
        match self.phase {
            Phase::Active => {
                let keeps_journal = is_for_next && CheckpointCx::of(self).may_keep_journal();
                let order = &mut self.checkpoint.stop;
                if order.is_none() {
                    effects.notices.push(MdsNotice::Stopping);
                }
                if order.as_ref().is_none_or(|order| order.keeps_journal && !keeps_journal) {
                    *order = Some(StopOrder::new(keeps_journal));
                }
                self.advance_stop(effects);
                self.beacon_tick(effects);
            }
            // Nothing was accepted yet, and the journal still holds everything, also which clients
            // the next server must wait for.
            Phase::Recovering | Phase::Reconnecting { .. } => {
                self.phase = Phase::Stopped;
                effects.stopped = true;
            }
            Phase::Stopping | Phase::Stopped => {}
        }
    }

    /// Goes on with an order to stop, until requests wait for the next server.
    pub(crate) fn advance_stop(&mut self, effects: &mut MdsEffects) {
        // The changes that clients know as applied are applied first: the next server would not
        // wait for them.
        if self.phase != Phase::Active || self.resend.is_busy() {
            return;
        }
        let keeps_journal = loop {
            let Some(&StopOrder { stage, keeps_journal, .. }) = self.checkpoint.stop.as_ref()
            else {
                return;
            };
            // The job takes the journal of a private server over, which needs no checkpoint.
            let writes = !keeps_journal && self.settings.private.is_none();
            let next = match stage {
                Stage::Writing | Stage::WritingReturned
                    if writes && !CheckpointCx::of(self).is_written_before_stop() =>
                {
                    return;
                }
                Stage::Collecting if self.caps.is_any_exclusive() => return,
                Stage::Writing => {
                    CapsCx::of(self).end_exclusive(effects);
                    StopOrder { stage: Stage::Collecting, ..StopOrder::new(keeps_journal) }
                }
                Stage::Collecting => {
                    StopOrder { stage: Stage::WritingReturned, ..StopOrder::new(keeps_journal) }
                }
                // A policy has changed since.
                Stage::WritingReturned
                    if keeps_journal && !CheckpointCx::of(self).may_keep_journal() =>
                {
                    StopOrder::new(false)
                }
                Stage::WritingReturned => break keeps_journal,
            };
            self.checkpoint.stop = Some(next);
        };
        self.phase = Phase::Stopping;
        ExportCx::of(self).stop(effects);
        ReshapeCx::of(self).stop(effects);
        self.tell_ended(effects);
        self.snapshot_step(effects);
        if keeps_journal {
            ExportCx::of(self).expect_no_silent_clients();
        } else if self.settings.private.is_none() {
            self.checkpoint.write_all();
        }
    }
}

impl ExportCx<'_> {
    /// The next server need not wait for clients that have nothing to report and use nothing that
    /// they cached: they asked nothing for so long that this server, too, would not wait for them.
    /// They notice the end of their connection with their next request, perhaps in hours.
    fn expect_no_silent_clients(&mut self) {
        let Self { base, locks, .. } = self;
        let (now, lease) = (base.clock.now, base.settings.lease);
        let asked = |client| base.sessions.get(client).map_or(now, |session| session.asked);
        let has_nothing = |client: &ClientId| {
            let is_silent = now.since(asked(*client)) >= lease;
            *client != ANYBODY
                && !base.opens.is_any_of(*client)
                && !locks.is_any_of(*client)
                && (is_silent || !base.caps.is_holding(*client))
        };
        let silent: Vec<ClientId> = base.tables.expected().filter(has_nothing).collect();
        silent.into_iter().for_each(|client| base.tables.stop_expecting(client));
        // Nor for those whose changes the journal has: it has all of them.
        let expected: BTreeSet<ClientId> = base.tables.expected().collect();
        for client in base.sessions.connected().into_iter().filter(|it| !expected.contains(it)) {
            let event = Event::Session { client, tid: GONE };
            base.log.append(now, Origin::default(), &event);
        }
    }
}

impl StopOrder {
    pub(crate) fn keeps_journal(&self) -> bool {
        self.keeps_journal
    }

    fn new(keeps_journal: bool) -> Self {
        Self { stage: Stage::Writing, rounds: Rounds::default(), keeps_journal }
    }
}

impl CheckpointCx<'_> {
    /// Whether the next server has everything that this one has, from the store and the journal.
    fn may_keep_journal(&self) -> bool {
        let policies = self.namespace.policies();
        self.settings.private.is_none()
            && policies.iter().all(|(_, policy)| policy.streams)
            && !self.checkpoint.is_any_volatile()
            && !self.merges.is_any_unrecorded()
            && !self.namespace.dirs().is_any_unjournalled()
    }

    /// Whether the directories are written that a stopping server writes in its present stage.
    fn is_written_before_stop(&mut self) -> bool {
        let unwritten = self.checkpoint.oldest_unwritten(self.namespace);
        let (now, last) = (self.clock.now, self.log.last());
        let order = self.checkpoint.stop.as_mut();
        let target = order.and_then(|order| order.rounds.next(now, last, unwritten));
        self.checkpoint.write_up_to(target);
        target.is_none()
    }

    /// Ends the journal if everything is written down. Returns whether the server has stopped.
    pub(crate) fn try_stop(&mut self, has_work: bool, effects: &mut MdsEffects) -> bool {
        assert!(self.phase == Phase::Stopping, "a server stops after the order to stop");
        if self.settings.private.is_some() {
            // The job takes the journal over then; the rest ends with the process.
            effects.stopped = self.log.is_idle();
            return false;
        }
        if self.checkpoint.keeps_journal() {
            // The store may end its operations or not, as in a crash.
            self.storing_tables().tick(effects);
            effects.stopped =
                self.log.is_idle() && self.tables.is_idle() && !self.merges.is_halfway();
            return effects.stopped;
        }
        self.purging().queue_merged_away();
        // A clean stop leaves no journal from which a merge could be finished.
        let idle = !has_work
            && !self.merges.is_halfway()
            && self.log.is_idle()
            && self.checkpoint.is_idle()
            && self.purges.is_idle()
            && !self.compaction.is_busy()
            && self.authority.is_idle()
            && self.tables.is_idle();
        if !idle || self.namespace.dirtiest().is_some() {
            return false;
        }
        if self.merges.is_any_record() || self.damage.keeps_journal() {
            // Keep the journal: the next server finds in it an unfinished merge, or the changes of
            // a damaged directory.
            effects.stopped = true;
            return true;
        }
        let end = end_of_journal(self.sessions, self.log);
        let is_ended = self.tables.end_journal(end);
        if is_ended {
            assert!(!self.is_resend_busy, "the resent changes are in the journal");
            self.trim(effects);
            effects.stopped = true;
        } else {
            self.storing_tables().tick(effects);
        }
        is_ended
    }
}

fn end_of_journal(sessions: &Sessions, log: &Log) -> JournalEnd {
    JournalEnd { last: log.last(), next_index: log.next_index(), sessions: sessions.left() }
}

/// Whether every event of the journal is in the metadata store, so that the whole journal may be
/// deleted.
pub(crate) fn is_journal_ended(
    phase: Phase,
    tables: &Tables,
    sessions: &Sessions,
    log: &Log,
) -> bool {
    phase == Phase::Stopping
        && tables.is_idle()
        && *tables.journal_end() == end_of_journal(sessions, log)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Seq = Seq(u64::MAX);

    fn at(millis: u64) -> Moment {
        Moment(0) + Span::from_millis(millis)
    }

    #[test]
    fn a_server_without_changes_needs_no_round() {
        assert_eq!(Rounds::default().next(at(0), Seq(9), NONE), None);
    }

    #[test]
    fn rounds_end_with_a_short_one() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.next(at(0), Seq(9), Seq(3)), Some(Seq(9)));
        assert_eq!(rounds.next(at(900), Seq(20), Seq(9)), Some(Seq(9)), "one is left");
        assert_eq!(rounds.next(at(1000), Seq(30), Seq(12)), Some(Seq(30)), "the next round");
        assert_eq!(rounds.next(at(1200), Seq(40), Seq(31)), None, "little is left");
    }

    #[test]
    fn rounds_end_if_none_is_short() {
        let mut rounds = Rounds::default();
        let mut count = 0;
        while rounds.next(at(count * 1000), Seq(count * 10), Seq(count * 10)).is_some() {
            count += 1;
            assert!(count <= 2 * u64::from(ROUNDS_MAX), "a server stops");
            rounds.next(at(count * 1000), Seq(count * 10), Seq(count * 10));
        }
    }
}
