//! An auxiliary metadata server (BF-06): a process of the job's judges the changes of its clients,
//! and proves to the metadata server that it may link the result.
//!
//! The journals of a decoupled subtree are read from the object store, every event is judged
//! ([`client::Verifier`]), and the entries of new directories are written as runs. Their list and
//! the rest of the journal go into an object beside the journal, with a proof: a keyed hash. The
//! client that merges sends that object. The rest the server judges itself.

use client::{ProvedJournal, Verifier};
use journal::SegmentHeader;
use metastore::ProofKey;
use metastore::request::{client_journals_prefix, proof_name, rest_name};
use objstore::Expect;
use types::{ClientId, Cred, EntryName, Errno, Error, Ino, Path, Result, Seq};

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
        let mut verifier = Verifier::new(&root, root.size == 0, self.cred().clone());
        if root.size > 0 {
            self.load_base(&mut verifier, root.ino)?;
        }
        for object in objects {
            let (bytes, _) = self.store().get(&object)?;
            let (events, proved) = verifier.prove(&object, &bytes, key)?;
            done.events += events;
            match proved {
                Ok(proved) => self.store_proved(&object, &proved, &mut done)?,
                Err(because) => done.because = Some(because.reason()),
            }
        }
        Ok(done)
    }

    fn store_proved(
        &self,
        object: &str,
        proved: &ProvedJournal,
        done: &mut Verified,
    ) -> Result<()> {
        let ProvedJournal { runs, names, rest, message } = proved;
        for (name, bytes) in runs {
            // No condition: an existing object would have the same bytes.
            let _ = self.store().put(name, bytes, Expect::Any)?;
        }
        let _ = self.store().put(&rest_name(object), rest, Expect::Any)?;
        let _ = self.store().put(&proof_name(object), message, Expect::Any)?;
        done.journals += 1;
        done.runs += runs.len() as u64;
        done.names += names;
        Ok(())
    }

    /// The journal objects of the client's last decoupling, oldest first.
    fn journals_of(&self, root: Ino, client: ClientId) -> Result<Vec<String>> {
        let mut found = Vec::new();
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
        Ok(client::of_last_decoupling(found))
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
            self.scan_at(&Cred::root(), EntryName::new(dir, b""), &mut |name, record| {
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
}
