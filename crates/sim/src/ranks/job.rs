//! A client that has decoupled a directory, and merges into it while the subtree around it moves
//! (F-13).
//!
//! Its merges are repeated until they are answered, at the rank that has the subtree by then. An
//! answered update must exist from then on, once, under its granted number; and no number is
//! granted twice.

use std::collections::BTreeSet;

use client::{ClientSubtree, Grant};
use metastore::request::client_journal_name;
use namespace::PlannedInode;
use objstore::{Expect, ObjectStore};
use types::Result as Answered;
use types::{Attr, ClientId, Cred, Errno, FileType, Ino, InoRange, Seq, Timestamp};
use wire::{Answer, MergeFlags};

use super::register::Place;
use super::script::{Role, Script};
use super::{MS, Ranks};
use crate::call::CallKind;

/// The client that does this.
pub(super) const JOB: usize = 4;
const JOB_ID: ClientId = ClientId(JOB as u64 + 1);
/// The name of the directory in one of those that move.
const NAME: &str = "job";
/// Names that it makes: a listing has all of them.
const NAMES_MAX: u64 = 2_000;
/// How often it looks for the subtree before it believes that it has it no more.
const LOOKS_MAX: u32 = 4;
/// Other clients may work in it, and an answered merge is in the store.
const POLICY: &str = "consistency: append_client_journal+volatile_apply\ndurability: none\n";

/// A journal whose merge is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    root: Ino,
    bytes: Vec<u8>,
    /// It is in an object; else it follows the request.
    stored: bool,
    names: Vec<(String, Ino)>,
    release: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Above, and the directory: one of those that move, or one in it.
    above: Ino,
    dir: Ino,
    path: String,
    held: Option<ClientSubtree>,
    next_name: u64,
    looks: u32,
    /// Everything that was ever given to this client.
    given: Vec<InoRange>,
    /// Inodes that servers allocated for other clients.
    made: BTreeSet<Ino>,
    pub(super) merges: u64,
}

impl Journal {
    /// The bytes behind the request.
    pub(super) fn follows(&self) -> Option<Vec<u8>> {
        (!self.stored).then(|| self.bytes.clone())
    }

    /// Whether the merge may explain the inode of a name.
    pub(super) fn makes(&self, (dir, name): &Place, ino: Option<Ino>) -> bool {
        self.root == *dir
            && self.names.iter().any(|(known, made)| known == name && Some(*made) == ino)
    }
}

impl Ranks {
    /// The directory that will be decoupled: half of the time it is the root of a moving subtree.
    pub(super) fn begin_job(&mut self) {
        let above = Ino::ROOT;
        let dir = self.workers[0].dirs[0];
        let path = "/d0".to_owned();
        self.job = Job { above, dir, path, ..Job::default() };
        // The model's client does not look for it in fragments.
        if self.world.settings.split_entries == 0 && self.world.rng.percent(60) {
            let role = Role::MakeInner;
            self.workers[0].script.push_back(Script { role, ..Script::make_dir(dir, NAME) });
        }
    }

    pub(super) fn inner_made(&mut self, parent: Ino, dir: Ino) {
        let path = "/d0/job".to_owned();
        self.job = Job { above: parent, dir, path, ..Job::default() };
    }

    /// The client's next step.
    pub(super) fn choose_job(&mut self) -> Script {
        let dir = self.job.dir;
        if self.job.held.is_none() {
            let (path, client) = (self.job.path.clone(), JOB_ID);
            return of_job(CallKind::Decouple { path, client, policy: POLICY.to_owned() });
        }
        match self.world.rng.below(10) {
            0 => of_job(CallKind::Extend { subtree: dir, count: 40 }),
            number if number <= 4 || self.job.next_name >= NAMES_MAX => {
                let number = self.world.rng.below(self.job.next_name + 1);
                Script::look_up((dir, format!("m{number}")))
            }
            _ => self.next_merge(),
        }
    }

    fn next_merge(&mut self) -> Script {
        let job = &mut self.job;
        let held = job.held.as_mut().expect("it was asked for");
        let count = self.world.rng.between(1, 30).min(held.inodes_left());
        let mut names = Vec::new();
        for _ in 0..count {
            let name = format!("m{}", job.next_name);
            job.next_name += 1;
            let mode = FileType::Regular.mode_bits() | 0o644;
            let new = PlannedInode { mode, time: Timestamp(1), ..PlannedInode::default() };
            if let Ok(ino) = held.create(&Cred::root(), job.dir, name.as_bytes(), &new) {
                names.push((name, ino));
            }
        }
        let header = held.header();
        let mut bytes = header.encode().to_vec();
        held.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
        held.clear();
        let mut object = String::new();
        if self.world.rng.percent(50) && !names.is_empty() {
            let first = header.first_seq.0;
            object = client_journal_name(job.dir, JOB_ID, job.given[0], first);
            let put = self.world.memory.put(&object, &bytes, Expect::Any);
            assert!(put.is_ok(), "memory takes everything");
        }
        let release = self.world.rng.percent(20);
        let store = object.is_empty();
        let flags = MergeFlags { release, store, ..MergeFlags::default() };
        let announced = if store { bytes.len() as u64 } else { 0 };
        let (subtree, unused) = (job.dir, Vec::new());
        let call = CallKind::Merge { subtree, bytes: announced, object, flags, unused };
        let journal = Journal { root: subtree, bytes, stored: !store, names, release };
        Script { call, role: Role::Job(Some(Box::new(journal))) }
    }

    /// A step was answered. Says whether that was all of it.
    pub(super) fn job_answered(
        &mut self,
        script: &Script,
        at: u64,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        let when = (at, self.world.now);
        let Role::Job(journal) = &script.role else { return Ok(()) };
        match (&script.call, journal, result) {
            (CallKind::Decouple { .. }, _, Ok(Answer::Decoupled(decoupled))) => {
                let wire::Decoupled { root, range, epoch, .. } = *decoupled;
                self.job_given(range)?;
                self.job.given.insert(0, range);
                let root = Attr { ino: self.job.dir, ..root };
                let grant =
                    Grant { client: JOB_ID, root, range, epoch, empty: false, check: false };
                self.job.held = Some(ClientSubtree::new(grant, Seq(1)));
            }
            // Another rank has it, or it is moving: only rank 0 decouples it here.
            (CallKind::Decouple { .. }, _, Err(failure)) if failure.errno == Errno::Busy => {
                let looks = Script::look_up((self.job.dir, "m0".to_owned()));
                self.workers[JOB].script.push_back(looks);
            }
            (CallKind::Extend { .. }, _, Ok(Answer::Range(range))) => {
                self.job_given(*range)?;
                self.job.given.push(*range);
                self.job.held.iter_mut().for_each(|held| held.extend(*range));
            }
            // It was merged, and the store has that: only its answer was lost.
            (_, Some(journal), Err(failure))
                if failure.errno == Errno::NotFound && journal.stored =>
            {
                self.job_merged(journal, when);
            }
            (_, Some(journal), Ok(Answer::Merged(_))) => self.job_merged(journal, when),
            (_, _, Err(failure)) if failure.errno == Errno::Stale => {
                self.job.looks += 1;
                if self.job.looks < LOOKS_MAX {
                    self.again(JOB, script.clone(), MS);
                    return Ok(());
                }
                self.job.looks = 0;
                match journal {
                    // It was done: only its answer was lost.
                    Some(journal) if journal.release => self.job_merged(journal, when),
                    _ => return Err("the subtree is nobody's"),
                }
            }
            _ => return Err("no such answer was possible"),
        }
        self.job.looks = 0;
        Ok(())
    }

    /// The directory, if it is in one of those that move: then it moves, too.
    pub(super) fn inner(&self) -> Option<Ino> {
        (self.job.above != Ino::ROOT).then_some(self.job.dir)
    }

    /// The path of the directory, if it is in one of those that move.
    pub(super) fn path_of_job(&self, dir: Ino) -> Option<String> {
        (self.inner() == Some(dir)).then(|| self.job.path.clone())
    }

    fn job_merged(&mut self, journal: &Journal, when: (u64, u64)) {
        for (name, ino) in &journal.names {
            self.registers.changed((journal.root, name.clone()), Some(*ino), when);
        }
        self.job.merges += 1;
        if journal.release {
            self.job.held = None;
        }
    }

    fn job_given(&mut self, range: InoRange) -> Result<(), &'static str> {
        let twice = |other: &InoRange| range.start < other.end && other.start < range.end;
        if self.job.given.iter().any(twice) || self.job.made.iter().any(|ino| range.contains(*ino))
        {
            return Err("numbers were given twice");
        }
        Ok(())
    }

    /// A server allocated an inode for a client.
    pub(super) fn number_used(&mut self, ino: Ino) -> Result<(), &'static str> {
        let given = self.job.given.iter().any(|range| range.contains(ino));
        if given || !self.job.made.insert(ino) {
            return Err("a number was given twice");
        }
        Ok(())
    }

    /// Whether a directory is the one that is decoupled, or the one above it.
    pub(super) fn is_about_job(&self, dir: Ino) -> bool {
        dir == self.job.dir || dir == self.job.above
    }
}

fn of_job(call: CallKind) -> Script {
    Script { call, role: Role::Job(None) }
}
