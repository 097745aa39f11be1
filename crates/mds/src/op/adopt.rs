//! Taking a subtree to merge a branch (E-04): as decoupling it, but with the branch's inode numbers
//! from the store, and without another policy.
//!
//! Invariant: the numbers that a client may use here are those of a branch that is published, and
//! that originates from this very directory.

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{BRANCH_PREFIX, Branch, BranchState, is_branch_name, is_of_branch};
use types::{ClientId, Cred, Errno, Ino, Seq};
use wire::{Answer, Decoupled, Failure, JobOp, Op};

use super::subtree::SubtreeCx;
use super::{Performed, Performing, Refused};
use crate::admission::Incoming;
use crate::tables::{Decoupling, Held};
use crate::{MdsEffects, ReplyTo, Waiting};

impl Adopting {
    /// The subtree into which the branch is merged.
    pub(crate) fn subtree(&self) -> Ino {
        self.subtree
    }
}

/// A branch is being read.
#[derive(Debug)]
pub(crate) struct Adopting {
    at: ReplyTo,
    client: ClientId,
    cred: Cred,
    subtree: Ino,
    block: bool,
}

impl SubtreeCx<'_> {
    /// Reads the branch that a client wants to merge into a subtree of this rank.
    pub(crate) fn adopt(&mut self, from: Incoming<'_>, effects: &mut MdsEffects) -> Performing {
        let Op::Job(JobOp::Adopt { subtree, branch, block }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        if let Some(errno) = self.refusing {
            return Err(errno.into());
        }
        let name = std::str::from_utf8(branch).ok().filter(|name| is_branch_name(name));
        let name = name.ok_or(Errno::Invalid)?;
        let (at, client, cred) = (from.at(), from.client, from.request.cred.clone());
        self.check_adoptable(client, &cred, subtree)?;
        let object = format!("{BRANCH_PREFIX}{name}");
        let adopting = Box::new(Adopting { at, client, cred, subtree, block });
        self.store.begin(Waiting::Adopt(adopting), StoreOp::Get { object }, effects);
        Ok(Performed::Later)
    }

    fn check_adoptable(&self, client: ClientId, cred: &Cred, subtree: Ino) -> Result<(), Refused> {
        if client.0 == 0 {
            return Err(Errno::Invalid.into());
        }
        if !self.namespace.getattr(subtree)?.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        self.namespace.access(cred, subtree, 2)?;
        self.check_free(subtree, client)
    }

    /// The branch was read; `here` is whether this rank has the subtree still.
    pub(crate) fn adopt_read(
        &mut self,
        adopting: Adopting,
        here: Result<(), Refused>,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let at = adopting.at;
        if let Err(refused) = here.and_then(|()| self.adopt_branch(adopting, result)) {
            let failure = match refused {
                Refused::Failure(failure) => failure,
                Refused::Refusal(namespace::Refusal::Errno(errno)) => errno.into(),
                // It was here a moment ago.
                Refused::Refusal(namespace::Refusal::Cold(_)) => Errno::Again.into(),
            };
            effects.reply_error(at, failure);
        }
    }

    fn adopt_branch(
        &mut self,
        adopting: Adopting,
        result: Result<StoreResult, Box<StoreFailure>>,
    ) -> Result<(), Refused> {
        let Adopting { at, client, cred, subtree, block } = adopting;
        let refuse =
            |errno, text: &str| Err(Refused::Failure(Failure { errno, text: text.to_owned() }));
        let branch = match result {
            Ok(StoreResult::Bytes(bytes, _)) => match Branch::decode("branch", &bytes) {
                Ok(branch) => branch,
                Err(error) => return refuse(Errno::BadMessage, &error.to_string()),
            },
            Ok(_) => return refuse(Errno::NotFound, "there is no branch of this name"),
            Err(failure) => return refuse(failure.error.errno, &failure.error.to_string()),
        };
        if !matches!(branch.state, BranchState::Published | BranchState::Merging) {
            return refuse(Errno::Invalid, "the branch is not published");
        }
        let foreign = |range: &types::InoRange| {
            range.is_empty() || !is_of_branch(Ino(range.start)) || !is_of_branch(Ino(range.end - 1))
        };
        if branch.root != subtree || branch.ranges.iter().any(foreign) {
            return refuse(Errno::NotPermitted, "the branch is not of this directory");
        }
        // Other clients may have decoupled the subtree during the read.
        self.check_adoptable(client, &cred, subtree)?;
        let root = self.namespace.getattr(subtree)?;
        let held = self.tables.owner(subtree).map(|known| known.epoch);
        let epoch = held.unwrap_or_else(|| self.tables.epoch());
        let range = branch.ranges.first().copied().unwrap_or_default();
        let begins = held.is_none().then_some(subtree);
        if begins.is_some() {
            let decoupling = Decoupling {
                client,
                block,
                on_demand: false,
                ranges: branch.ranges,
                epoch,
                // No policy of its own: the one in force stays.
                policy: String::new(),
                released: false,
                next: None,
                cred,
                // Nothing of these numbers ever comes back to this rank.
                taken_over: true,
                leaving: None,
            };
            self.tables.decoupled.insert(subtree, decoupling);
            self.merges.forget(subtree);
        }
        let answer = Answer::Decoupled(Decoupled { root, range, epoch, empty: false });
        self.tables.hold(Held { at, answer: Ok(answer), seq: Seq(0), begins });
        Ok(())
    }
}
