//! How the journal of a merge gets here: in chunks behind the request, or from the object store.

use std::collections::VecDeque;

use journal::{SegmentHeader, Writer, segment};
use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{ClientId, Epoch, Errno, Ino, Map, Seq, Set};
use wire::{Answer, Failure, JobOp, MergeFlags, MergeReport, Op};

use super::{JournalId, Merge, MergeCx, MergeStage};
use crate::admission::Incoming;
use crate::op::{Performed, Performing, Refused};
use crate::tables::{Held, NumberHolder, ReleasedBy};
use crate::{MdsEffects, ReplyTo, Waiting};

impl MergeCx<'_> {
    /// `ECANCELED` if this server may have lost merges on which one builds that gives its subtree
    /// back.
    fn check_term(&self, flags: MergeFlags) -> Result<(), Refused> {
        let now = self.tables.term();
        if !flags.release || flags.in_term == Epoch(0) || !flags.in_term.is_restarted(now) {
            return Ok(());
        }
        let text =
            "the server was restarted, and may have lost earlier merges of this journal".into();
        Err(Refused::Failure(Failure { errno: Errno::Canceled, text }))
    }

    /// The rank of a moving subtree is checked when the journal is here.
    fn check_client(&self, subtree: Ino, client: ClientId) -> Result<(), Refused> {
        if !self.authority.is_moving_decoupled(self.namespace, subtree) {
            self.tables.check_merge(subtree, client)?;
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self, from: Incoming<'_>, effects: &mut MdsEffects) -> Performing {
        let Op::Job(JobOp::Merge { subtree, bytes, object, mut flags, unused }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let (at, client, cred) = (from.at(), from.client, &from.request.cred);
        if self.tables.is_released_by(subtree, ReleasedBy::new(client, from.tid())) {
            return Ok(self.answer_again(at));
        }
        self.check_term(flags)?;
        if !flags.strong_log {
            self.check_client(subtree, client)?;
        } else if !self.wants_log(cred, subtree)? {
            return Ok(Performed::Answer(Answer::Merged(Box::default())));
        }
        if bytes > self.settings.merge_bytes_max {
            return Err(Errno::TooBig.into());
        }
        let takes_runs = bytes > 0 && self.takes_runs(at, subtree, flags);
        flags.check = !flags.strong_log && (flags.check || self.must_check(at, subtree));
        // Without a check nobody would have looked at the owners in the runs of a user.
        if flags.by_reference && !(takes_runs && (flags.check || cred.is_root())) {
            return Err(Errno::NotSupported.into());
        }
        self.merges.next_id += 1;
        let id = self.merges.next_id;
        let ranges = self.tables.decoupled.get(&subtree).map(|known| known.ranges.clone());
        let merge = Merge {
            id,
            at,
            client,
            cred: cred.clone(),
            subtree,
            flags,
            object: object.to_vec(),
            expected: bytes,
            bytes: Vec::with_capacity(usize::try_from(bytes).unwrap_or(0).min(64 << 20)),
            stage: MergeStage::Receiving,
            is_flushing: false,
            is_admitted: false,
            is_forgotten: false,
            offset: segment::HEADER_BYTES,
            skip: 0,
            mark: None,
            applied: 0,
            recorded: 0,
            begun: self.merges.take_up(object, flags.dry_run),
            newest: Seq(0),
            journal: JournalId::default(),
            new_dirs: Set::default(),
            searched: false,
            takes_links: false,
            absent: Map::default(),
            trial: None,
            left_out: VecDeque::new(),
            last_dir: Ino(0),
            run: (0, 0),
            announced: Map::default(),
            ranges: ranges.unwrap_or_default(),
            rights: None,
            holder: NumberHolder::of(self.identities, at.conn, client),
            unused: self.tables.unused(subtree, client, unused.ranges()),
            seq: Seq(0),
            started: self.clock.now,
            report: MergeReport::default(),
            runs: None,
        };
        self.merges.receiving.push(merge);
        if bytes == 0 {
            self.fetch_journal(id, object, effects);
        }
        Ok(Performed::Later)
    }

    /// Reads a journal from the store instead of from the client.
    fn fetch_journal(&mut self, id: u64, object: &[u8], effects: &mut MdsEffects) {
        let object = String::from_utf8_lossy(object).into_owned();
        self.store.begin(Waiting::MergeObject(id), StoreOp::Get { object }, effects);
    }

    /// Whether a list of runs may be in front of a journal: not if every event must be looked at.
    fn takes_runs(&mut self, at: ReplyTo, subtree: Ino, flags: MergeFlags) -> bool {
        let is_proved = self.settings.proof_key.is_some();
        !flags.dry_run
            && !flags.strong_log
            && (is_proved || !(flags.check || self.must_check(at, subtree)))
    }

    /// The answer to a merge that released its subtree was lost. The release may not be stored yet,
    /// so this answer waits for that, too.
    fn answer_again(&mut self, at: ReplyTo) -> Performed {
        let answer = Ok(Answer::Merged(Box::default()));
        self.tables.hold(Held { at, answer, seq: Seq(0), begins: None });
        Performed::Later
    }

    /// A chunk that nothing of its client precedes any more.
    pub(crate) fn take_chunk(&mut self, at: ReplyTo, bytes: &[u8], effects: &mut MdsEffects) {
        let merges = &mut self.merges.receiving;
        // A chunk without a merge follows a merge that was refused.
        let Some(place) = merges.iter().position(|merge| merge.at == at) else { return };
        let merge = &mut merges[place];
        if (merge.bytes.len() + bytes.len()) as u64 > merge.expected {
            let merge = merges.swap_remove(place);
            let text = "more journal arrived than was announced".into();
            let failure = Failure { errno: Errno::BadMessage, text };
            return effects.reply_error(merge.at, failure);
        }
        merge.bytes.extend_from_slice(bytes);
        self.counters.merge_bytes += bytes.len() as u64;
        if merge.bytes.len() as u64 == merge.expected {
            let merge = merges.swap_remove(place);
            self.enqueue(merge, effects);
        }
    }

    pub(crate) fn object_read(
        &mut self,
        id: u64,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let merges = &mut self.merges.receiving;
        let Some(at) = merges.iter().position(|merge| merge.id == id) else { return };
        let mut merge = merges.swap_remove(at);
        let failure = match result {
            Ok(StoreResult::Bytes(bytes, _)) => {
                merge.bytes = bytes;
                return self.enqueue(merge, effects);
            }
            Ok(_) => Failure { errno: Errno::NotFound, text: "the journal object is gone".into() },
            Err(failure) => Failure { errno: failure.error.errno, text: failure.error.to_string() },
        };
        self.merges.put_off(&merge, failure.errno, self.clock.now);
        effects.reply_error(merge.at, failure);
    }

    pub(super) fn enqueue(&mut self, merge: Merge, effects: &mut MdsEffects) {
        let Some(mut merge) = self.unless_moving(merge, effects) else { return };
        if merge.flags.by_reference
            && let Err(failure) = self.take_runs(&mut merge)
        {
            return effects.reply_error(merge.at, failure);
        }
        let header = match SegmentHeader::decode(&merge.bytes) {
            Ok(header) => header,
            Err(error) => return merge.refuse(&error, effects),
        };
        let own = match header.writer {
            Writer::Client { client, subtree } => {
                client == merge.client && (subtree == merge.subtree || merge.flags.strong_log)
            }
            Writer::Mds { .. } => false,
        };
        if !own {
            let text = "the journal is not of this client and subtree".into();
            let failure = Failure { errno: Errno::Invalid, text };
            return effects.reply_error(merge.at, failure);
        }
        assert!(merge.applied == 0, "a received journal is not applied");
        merge.journal = JournalId::of(&merge.bytes);
        self.skip_if_whole(&mut merge);
        merge.stage = MergeStage::Verifying;
        merge.started = self.clock.now;
        self.merges.queue.push_back(merge);
    }
}
