//! Requests about subtrees that need several parts: caches of other clients are revoked first, or
//! directories are stored or fetched.

use types::ClientId;
use wire::{JobOp, Op, Request};

use super::store_first::take_stored;
use super::subtree::Begun;
use super::{Performed, Performing, Release, next_policy_stores};
use crate::admission::Incoming;
use crate::authority::Places;
use crate::caps::CapsCx;
use crate::checkpoint::{CheckpointCx, SubtreeFlush, Then};
use crate::fetch::{FetchCx, Waiter};
use crate::op::SubtreeCx;
use crate::tables::TablesCx;
use crate::{Mds, MdsEffects};

impl Mds {
    /// Decouples a subtree or sets its policy on behalf of a client: once no other client caches
    /// anything of it, and, if the policy in force from then on says so, once it is stored.
    pub(super) fn change_subtree(
        &mut self,
        from: Incoming<'_>,
        client: ClientId,
        effects: &mut MdsEffects,
    ) -> Performing {
        let decouples = matches!(from.op(), Op::Job(JobOp::Decouple { .. }));
        let root = if decouples {
            SubtreeCx::of(self).root_to_decouple(from)?
        } else {
            SubtreeCx::of(self).root_of_policy(from, client)?
        };
        Places::of(self).check_all_here(root)?;
        let at = from.at();
        let again = || Request::new(at.tid, at.tid, from.request.cred.clone(), *from.op());
        // Other clients would keep answering from their caches of the subtree.
        let keeper = if decouples { client } else { ClientId(0) };
        if let Some(dir) = CapsCx::of(self).revoke_below(keeper, root, effects) {
            let from = Incoming { conn: at.conn, client, request: &again() };
            self.fetches.park_until_returned(&mut self.sessions, from, dir);
            return Ok(Performed::Later);
        }
        let is_stored = take_stored(&mut self.changes, at);
        let begun = if decouples {
            SubtreeCx::of(self).decouple(from, root, is_stored)?
        } else {
            SubtreeCx::of(self).set_policy(from, client, root, is_stored)?
        };
        match begun {
            Begun::Performed(performed) => Ok(performed),
            Begun::NeedsStore => {
                CheckpointCx::of(self).store_first(root, again(), at, effects);
                Ok(Performed::Later)
            }
        }
    }

    /// Releases a subtree whose merge is done, as soon as the directories above it are in memory.
    pub(crate) fn release_merged(&mut self, release: Release, effects: &mut MdsEffects) {
        match SubtreeCx::of(self).release_merged(release) {
            None => TablesCx::of(self).tick(effects),
            Some((cold, release)) => {
                FetchCx::of(self).wait_for_whole(cold, Waiter::Release(release), effects);
            }
        }
    }

    /// The directories for which the end of a decoupling waited are in memory.
    pub(crate) fn release_fetched(&mut self, release: Release, effects: &mut MdsEffects) {
        if !next_policy_stores(&mut self.namespace, &self.tables, release.subtree) {
            return self.release_merged(release, effects);
        }
        // So that changes of other clients since then are stored, too.
        let Release { subtree, client, unused, at, answer } = release;
        let (then, seq) = (Then::Release(client, unused), self.log.last());
        let flush = SubtreeFlush::new(at, subtree, then, answer, seq);
        CheckpointCx::of(self).flush_subtree(flush, effects);
    }
}
