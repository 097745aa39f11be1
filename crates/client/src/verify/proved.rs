//! A whole journal before a verifier, and the proof for the metadata server.

use journal::segment::HEADER_BYTES;
use journal::{JournalError, SegmentHeader, Writer};
use metastore::{ProofKey, ProofStatement};
use types::{Epoch, Errno, Error, Result, Seq};

use super::{Verifier, VerifyError};
use crate::{ByReference, ByValue, RunThreshold};

/// The objects of a journal that is proved to be legal.
#[derive(Debug)]
pub struct ProvedJournal {
    /// The runs, by name.
    pub runs: Vec<(String, Vec<u8>)>,
    /// The names in them.
    pub names: u64,
    /// The rest of the journal.
    pub rest: Vec<u8>,
    /// The message with the proof: the list of the runs, and the rest.
    pub message: Vec<u8>,
}

/// The names of the journals of the last decoupling, oldest first, from the headers of all journal
/// objects.
#[must_use]
pub fn of_last_decoupling(mut found: Vec<(Epoch, Seq, String)>) -> Vec<String> {
    found.sort();
    let last = found.last().map(|(epoch, ..)| *epoch);
    let of_last = found.into_iter().filter(|(epoch, ..)| Some(*epoch) == last);
    of_last.map(|(.., name)| name).collect()
}

impl Verifier {
    /// Judges the journal with this name, and proves that the server may link its runs. Returns the
    /// number of its events, and the objects, or the reason why the server has to judge it itself.
    ///
    /// # Errors
    /// `EPERM` and the event that breaks a rule; `EBADMSG` for a damaged journal.
    pub fn prove(
        &mut self,
        name: &str,
        bytes: &[u8],
        key: &ProofKey,
    ) -> Result<(u64, std::result::Result<ProvedJournal, ByValue>)> {
        let damaged = |error: JournalError| error.in_journal(name);
        let header = SegmentHeader::decode(bytes).map_err(damaged)?;
        let Writer::Client { client, .. } = header.writer else {
            return Err(Error::of(Errno::BadMessage, name));
        };
        self.begin(header.first_seq);
        let (mut at, mut events, mut last) = (HEADER_BYTES, 0, header.first_seq);
        let mut first = None;
        while at < bytes.len() {
            let (block, next) = journal::Block::read(bytes, at).map_err(damaged)?;
            let block_bytes = &bytes[at..next];
            first.get_or_insert_with(|| journal::checksum(block_bytes));
            last = Seq(block.first_seq.0 + u64::from(block.count) - 1);
            self.judge(block_bytes).map_err(|doubt| doubt.in_journal(name))?;
            events += u64::from(block.count);
            at = next;
        }
        let accepted = self.end();
        let (root, is_empty, worth) = (&self.root, self.is_empty, RunThreshold::default());
        let reference = ByReference::of(&header, &accepted, root, is_empty, worth);
        let mut reference = match reference {
            Ok(reference) => reference,
            Err(because) => return Ok((events, Err(because))),
        };
        self.is_empty = false;
        // As the server knows the journal, whichever way it is merged.
        (reference.list.journal, reference.list.last) = (first.unwrap_or_default(), last);
        let (list, rest) = (reference.list.encode(), reference.rest());
        let (root, cred, epoch) = (&self.root, &self.cred, header.epoch);
        let statement = ProofStatement { root, client, epoch, cred, list: &list, rest: &rest };
        reference.list.proof = Some(statement.prove(key));
        let mut message = reference.list.encode();
        message.extend_from_slice(&rest);
        let names = reference.list.dirs.iter().map(|run| run.run.rows).sum();
        Ok((events, Ok(ProvedJournal { runs: reference.objects, names, rest, message })))
    }
}

impl VerifyError {
    fn in_journal(self, object: &str) -> Error {
        match self {
            Self::Damaged(error) => error.in_journal(object),
            // Every existing directory is in memory.
            Self::Cold(dir) => {
                Error::new(Errno::NotPermitted, object, format!("{dir} is not in the subtree"))
            }
            Self::Illegal { seq, errno, event } => {
                let cause = format!("event {seq} breaks a rule ({errno}): {event}");
                Error::new(Errno::NotPermitted, object, cause).remedy(
                    "merge it without a proof: the server leaves out what breaks rules, and reports it",
                )
            }
        }
    }
}
