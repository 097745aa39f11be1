//! A decoupled destination: everything is appended to this client's journal, without a request and
//! without a look at the present content.
//!
//! Links and extended attributes need the client's view of its own journal, which costs memory and
//! time; so they wait until everything is created, and cost nothing where there are none.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use cudele::{
    AttrChange, Errno, Error, Fs, Ino, Mechanism, NewFile, Path, Policy, Result, StripedFile,
    Subtree, XattrFlags,
};

use super::strong::is_missing;
use super::{IntakeReport, IntakeTally, LINKS_AND_ATTRIBUTES, Phase, Target};
use crate::source::shown;

enum PutOff {
    Link { ino: Ino, dir: Ino, name: Vec<u8> },
    Xattr { ino: Ino, name: Vec<u8>, value: Vec<u8> },
}

pub(super) struct DecoupledTarget {
    subtree: Subtree,
    /// Whether the destination was made for this.
    made: bool,
    parent: Ino,
    /// Names that stood in the destination before.
    taken: BTreeSet<Vec<u8>>,
    put_off: Vec<PutOff>,
}

impl DecoupledTarget {
    pub(super) fn decouple(fs: &Arc<Fs>, destination: &str, policy: &Policy) -> Result<Self> {
        let path: Path = cudele::parse_path(destination)?;
        let made = is_missing(fs, &path)?;
        fs.make_dir(destination, 0o755)?;
        let (parent, _) = fs.walk(&path)?;
        let names = fs.open_dir(destination)?.list()?.into_iter().map(|entry| entry.name);
        let taken = names.collect();
        let subtree = fs.decouple(destination, policy)?;
        Ok(Self { subtree, made, parent, taken, put_off: Vec::new() })
    }

    /// Gives everything up: nothing was merged.
    pub(super) fn give_up(self) -> Result<()> {
        let (fs, path) = (self.subtree.fs().clone(), self.subtree.path().to_bytes());
        self.subtree.discard()?;
        if self.made {
            let (parent, name) = fs.open_parent(&path)?;
            parent.rmdir(name)?;
        }
        Ok(())
    }

    pub(super) fn finish(
        mut self,
        root: Option<AttrChange>,
        tally: IntakeTally,
        start: Instant,
    ) -> Result<IntakeReport> {
        if let Some(change) = root.filter(|_| self.made) {
            let ino = self.subtree.root();
            self.subtree.set_attr_blindly(self.parent, ino, &change);
        }
        let mut report = IntakeReport::new(tally, start);
        report.phases.push(Phase {
            name: Mechanism::AppendClientJournal.name().to_owned(),
            seconds: report.tally.create.as_secs_f64(),
            bytes: self.subtree.pending_bytes(),
        });
        report.phases.push(Phase {
            name: LINKS_AND_ATTRIBUTES.to_owned(),
            seconds: report.tally.attributes.as_secs_f64(),
            bytes: 0,
        });
        report.journal_bytes = self.subtree.pending_bytes();
        // Data first, so that the mechanisms are measured by themselves.
        let before_data = Instant::now();
        self.subtree.fs().sync_data()?;
        report.data_seconds += before_data.elapsed().as_secs_f64();
        let policy = self.subtree.policy().clone();
        let persists = policy.persists();
        report.visible = policy.applies();
        let requests = self.subtree.fs().requests();
        let completion =
            if report.visible { self.subtree.merge()? } else { self.subtree.complete()? };
        report.requests = self.subtree.fs().requests() - requests;
        report.take(completion);
        if report.visible {
            self.subtree.forget()?;
        } else if !persists {
            // No process can continue it: it exists in this process only.
            self.give_up()?;
            report.gone = true;
        }
        report.policy = Some(policy);
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }
}

impl Target for DecoupledTarget {
    fn root(&self) -> Ino {
        self.subtree.root()
    }

    fn create(&mut self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<StripedFile> {
        if !self.taken.is_empty() && dir == self.subtree.root() && self.taken.contains(name) {
            let cause = "the destination has an entry of this name";
            return Err(Error::new(Errno::Exists, shown(name), cause)
                .remedy("bring it in elsewhere, or remove what is there"));
        }
        let stripe = self.subtree.policy().stripe;
        Ok(StripedFile { ino: self.subtree.create(dir, name, new)?, stripe })
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        self.put_off.push(PutOff::Link { ino, dir, name: name.to_vec() });
        Ok(())
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        // A postponed link may be to, or be, the removed name.
        self.flush()?;
        self.subtree.unlink(dir, name)
    }

    fn set_attr(&mut self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        self.subtree.set_attr_blindly(home, ino, change);
        Ok(())
    }

    fn set_xattr(&mut self, _: Ino, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.put_off.push(PutOff::Xattr { ino, name: name.to_vec(), value: value.to_vec() });
        Ok(())
    }

    fn inline_bytes(&mut self, _: Ino) -> Result<u32> {
        Ok(self.subtree.policy().inline_bytes)
    }

    fn write(&mut self, made: StripedFile, head: &[u8], rest: &mut dyn Read) -> Result<u64> {
        let wanted = self.subtree.policy().checksums == cudele::Checksums::On;
        self.subtree.fs().want_sums(made.ino, wanted);
        self.subtree.fs().write_large(made, head, rest)
    }

    fn size_comes_last(&self) -> bool {
        false
    }

    fn flush(&mut self) -> Result<()> {
        for put_off in std::mem::take(&mut self.put_off) {
            match put_off {
                PutOff::Link { ino, dir, name } => self.subtree.link(ino, dir, &name)?,
                PutOff::Xattr { ino, name, value } => {
                    let flags = XattrFlags::default();
                    self.subtree.set_xattr(ino, &name, Some(&value), flags)?;
                }
            }
        }
        Ok(())
    }
}
