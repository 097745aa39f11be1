//! A change that a workload performed, and its effect on the model.

use journal::{Event, JournalBuffer, SegmentHeader, Writer};
use model::Model;
use types::{ClientId, Epoch, Ino, Origin, Seq, Timestamp};

use crate::call::{Call, CallKind};
use crate::expect;
use crate::invariants::merges;

/// A change of the namespace that a workload performed.
#[derive(Clone, Debug)]
pub(super) struct AceStep {
    /// Its place in the ledger, which knows its promise.
    pub(super) place: usize,
    pub(super) call: CallKind,
    pub(super) way: StepWay,
    /// No merge takes it: it changes a file with several names of which an earlier merge knew.
    pub(super) left_out: bool,
}

/// How a change was made.
#[derive(Clone, Debug)]
pub(super) enum StepWay {
    /// By this journal of one event.
    Journal(Vec<u8>),
    /// By a request of a client; servers had executed so many changes before it.
    Request { client: ClientId, before: usize, logged: Option<Vec<u8>> },
}

/// A journal of the last event of a journal.
pub(super) fn last_event(journal: &[u8]) -> Vec<u8> {
    let mut last = Vec::new();
    let Ok(mut reader) = journal::SegmentReader::open(journal) else { return last };
    while let Ok(Some(block)) = reader.next_block() {
        let mut events = block.events();
        while let Ok(Some(record)) = events.next_event() {
            last = journal_with(&record.event);
        }
    }
    last
}

/// A journal of one event.
pub(super) fn journal_with(event: &Event<'_>) -> Vec<u8> {
    let writer = Writer::Client { client: ClientId(1), subtree: Ino::ROOT };
    let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(1) };
    let mut buffer = JournalBuffer::new(Seq(1), false);
    buffer.append(Origin::default(), event);
    buffer.close_block();
    let mut bytes = header.encode().to_vec();
    bytes.extend(buffer.blocks().concat());
    bytes
}

/// Applies a step to a model: as the request that a server executed with this time and number, or
/// as its event.
pub(super) fn apply(
    model: &mut Model,
    root: Ino,
    step: &AceStep,
    executed: Option<(Timestamp, Ino)>,
) {
    let (StepWay::Journal(journal), None) = (&step.way, executed) else {
        if let Some((time, ino)) = executed {
            let _ = expect::perform(model, &Call::root(step.call.clone()), time, ino);
        }
        return;
    };
    let _ = merges::apply(model, root, journal);
}
