//! An auxiliary metadata server (BF-06): a process of the job's judges the changes of its clients,
//! and proves to the metadata server that it may link the result.
//!
//! The journals of a decoupled subtree are read from the object store, every event is judged
//! ([`client::Verifier`]), and the entries of new directories are written as runs. Their list and
//! the rest of the journal go into an object beside the journal, with a proof: a keyed hash. The
//! client that merges sends that object. The rest the server judges itself.

use client::{ByReference, RunThreshold, Verifier, VerifyError};
use journal::{SegmentHeader, Writer};
use metastore::request::{client_journals_prefix, proof_name, rest_name};
use metastore::{ProofKey, ProofStatement};
use objstore::Expect;
use types::{Attr, ClientId, Cred, Epoch, Errno, Error, Ino, Path, Result, Seq};

use crate::Fs;
use crate::fs::parse;

/// What was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Journals that are proved to be legal.
    pub journals: u64,
    /// Their events.
    pub events: u64,
    /// Runs that were written.
    pub runs: u64,
    /// Names in them.
    pub names: u64,
    /// The reason, in words, if the metadata server has to judge a journal itself: one that is
    /// legal and has nothing that could be linked.
    pub because: Option<&'static str>,
}

/// Directories that are loaded, at the most: those that exist already have to be in memory.
const DIRS_MAX: usize = 1 << 20;

impl Fs {
    /// Verifies the journals of a decoupled subtree that are in the object store, on behalf of this
    /// client's user, and writes proofs of that under a key which the metadata server has.
    ///
    /// # Errors
    /// `ENOENT` if no client has the subtree, or nothing of it is in the store; `EPERM` and the
    /// event that breaks a rule; `EBADMSG` for a damaged journal; `EBUSY` if its owner blocks other
    /// clients; `EIO`.
    pub fn verify(&self, path: impl AsRef<[u8]>, key: &ProofKey) -> Result<Verified> {
        let path = parse(path)?;
        self.verify_at(&path, key).map_err(|error| {
            if error.subject.is_empty() { error.about(path.to_string()) } else { error }
        })
    }

    fn verify_at(&self, path: &Path, key: &ProofKey) -> Result<Verified> {
        let root = self.stat(path.to_bytes())?;
        let holder = self.holder(root.ino)?;
        if holder == ClientId(0) {
            let cause = "nobody has this subtree for itself";
            return Err(Error::new(Errno::NotFound, path.to_string(), cause)
                .remedy("verify when a job has persisted its work and not merged it yet"));
        }
        let objects = self.journals_of(root.ino, holder)?;
        if objects.is_empty() {
            let cause = "there is no journal of it in the object store";
            return Err(Error::new(Errno::NotFound, path.to_string(), cause)
                .remedy("let the job's policy contain global_persist, and complete it first"));
        }
        let mut done = Verified::default();
        let cred = self.cred().clone();
        let mut judged = Verifier::new(&root, root.size == 0, cred.clone());
        if root.size > 0 {
            self.load_base(&mut judged, root.ino)?;
        }
        for object in objects {
            let part = VerifiedJournal {
                object: &object,
                root: &root,
                is_empty: root.size == 0,
                cred: &cred,
            };
            self.verify_part(&mut judged, &part, key, &mut done)?;
        }
        Ok(done)
    }

    /// The journal objects of the client's last decoupling, oldest first.
    fn journals_of(&self, root: Ino, client: ClientId) -> Result<Vec<String>> {
        let mut found: Vec<(Epoch, Seq, String)> = Vec::new();
        for name in self.store().list(&client_journals_prefix(root, client))? {
            let bytes = match self.store().read_range(&name, 0, journal::segment::HEADER_BYTES) {
                Ok(bytes) => bytes,
                // It was merged, and stored.
                Err(error) if error.errno == Errno::NotFound => continue,
                Err(error) => return Err(error),
            };
            let header = SegmentHeader::decode(&bytes).map_err(|error| error.in_journal(&name))?;
            found.push((header.epoch, header.first_seq, name));
        }
        found.sort();
        let last = found.last().map(|(epoch, ..)| *epoch);
        let of_last = found.into_iter().filter(|(epoch, ..)| Some(*epoch) == last);
        Ok(of_last.map(|(.., name)| name).collect())
    }

    /// Brings the existing directories into the verifier's memory.
    fn load_base(&self, judged: &mut Verifier, root: Ino) -> Result<()> {
        let mut todo = vec![root];
        let mut count = 0;
        while let Some(dir) = todo.pop() {
            count += 1;
            if count > DIRS_MAX {
                let cause = "there is more in the subtree than is held in memory here";
                return Err(Error::new(Errno::TooBig, "", cause)
                    .remedy("merge without a proof: then the server looks up what it needs"));
            }
            let namespace = judged.namespace_mut();
            self.scan_at(&Cred::root(), (dir, b""), &mut |name, record| {
                namespace.store().load_entry(dir, name, &record.attr, record.data);
                if record.attr.is_dir() {
                    todo.push(record.attr.ino);
                }
                Ok(())
            })?;
            judged.namespace_mut().store().finish_load(dir, Seq(0), Default::default());
        }
        Ok(())
    }

    fn verify_part(
        &self,
        judged: &mut Verifier,
        part: &VerifiedJournal<'_>,
        key: &ProofKey,
        done: &mut Verified,
    ) -> Result<()> {
        let (bytes, _) = self.store().get(part.object)?;
        let damaged = |error: journal::JournalError| error.in_journal(part.object);
        let header = SegmentHeader::decode(&bytes).map_err(damaged)?;
        judged.begin(header.first_seq);
        let (mut at, mut first, mut last) =
            (journal::segment::HEADER_BYTES, None, header.first_seq);
        while at < bytes.len() {
            let (block, next) = journal::Block::read(&bytes, at).map_err(damaged)?;
            let block_bytes = &bytes[at..next];
            first.get_or_insert_with(|| journal::checksum(block_bytes));
            last = Seq(block.first_seq.0 + u64::from(block.count) - 1);
            judged.judge(block_bytes).map_err(|doubt| part.refused(doubt))?;
            done.events += u64::from(block.count);
            at = next;
        }
        let accepted = judged.end();
        let is_empty = part.is_empty && done.journals == 0;
        let reference =
            ByReference::of((&header, &accepted), (part.root, is_empty), RunThreshold::default());
        let mut reference = match reference {
            Ok(reference) => reference,
            Err(because) => {
                done.because = Some(because.reason());
                return Ok(());
            }
        };
        // As the server knows the journal, whichever way it is merged.
        (reference.list.journal, reference.list.last) = (first.unwrap_or_default(), last);
        for (name, bytes) in &reference.objects {
            // No condition: an existing object would have the same bytes.
            let _ = self.store().put(name, bytes, Expect::Any)?;
        }
        let rest = reference.rest();
        let list = reference.list.encode();
        let client = match header.writer {
            Writer::Client { client, .. } => client,
            Writer::Mds { .. } => return Err(Error::of(Errno::BadMessage, part.object)),
        };
        let statement = ProofStatement {
            root: part.root,
            client,
            epoch: header.epoch,
            cred: part.cred,
            list: &list,
            rest: &rest,
        };
        reference.list.proof = Some(statement.prove(key));
        let mut message = reference.list.encode();
        message.extend_from_slice(&rest);
        let _ = self.store().put(&rest_name(part.object), &rest, Expect::Any)?;
        let _ = self.store().put(&proof_name(part.object), &message, Expect::Any)?;
        done.journals += 1;
        done.runs += reference.list.dirs.len() as u64;
        done.names += reference.list.dirs.iter().map(|run| run.run.rows).sum::<u64>();
        Ok(())
    }
}

/// A journal that is verified.
struct VerifiedJournal<'a> {
    object: &'a str,
    root: &'a Attr,
    is_empty: bool,
    cred: &'a Cred,
}

impl VerifiedJournal<'_> {
    fn refused(&self, doubt: VerifyError) -> Error {
        let object = self.object.to_owned();
        match doubt {
            VerifyError::Damaged(error) => error.in_journal(self.object),
            // Every existing directory is in memory.
            VerifyError::Cold(dir) => {
                Error::new(Errno::NotPermitted, object, format!("{dir} is not in the subtree"))
            }
            VerifyError::Illegal { seq, errno, event } => {
                let cause = format!("event {seq} breaks a rule ({errno}): {event}");
                Error::new(Errno::NotPermitted, object, cause).remedy(
                    "merge it without a proof: the server leaves out what breaks rules, and reports it",
                )
            }
        }
    }
}
