//! Giving capabilities with replies.

use policy::{Ack, Mechanism};
use types::{Attr, ClientId, Ino, Stripe};
use wire::{Answer, ChangeOp, Failure, Grants, Op, ReadOp, Request, WantsExclusive};

use super::CapsCx;
use crate::merge_request::merge_request_for;
use crate::op::touched;

impl CapsCx<'_> {
    /// The part of an immediate answer that a client may cache. A delayed answer gives none: the
    /// capability may have been revoked before.
    pub(crate) fn grants(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        answer: Result<&Answer, &Failure>,
    ) -> Option<Grants> {
        // A merge changes a subtree bit by bit.
        if self.is_merging {
            return None;
        }
        if !self.authority.is_plain()
            && !touched(&request.op)
                .inodes()
                .all(|ino| self.authority.may_grant(self.namespace, ino))
        {
            return None;
        }
        // A subtree with `merge: on_demand` is not cached: each look asks for a merge.
        if !self.tables.decoupled.is_empty()
            && merge_request_for(self.tables, self.namespace, client, &request.op).is_some()
        {
            return None;
        }
        if let Some(told) = self.notify_leased(request, answer) {
            return Some(told);
        }
        let (place, inode) = match (&request.op, answer) {
            (Op::Read(ReadOp::Lookup { parent, .. }), Ok(Answer::Attr(attr))) => {
                (*parent, Some(attr))
            }
            (Op::Change(ChangeOp::Create { parent, .. }), Ok(Answer::Attr(attr))) => {
                (*parent, Some(attr))
            }
            (Op::Read(ReadOp::Lookup { parent, .. }), Err(failure))
                if failure.errno == types::Errno::NotFound =>
            {
                (*parent, None)
            }
            (
                Op::Change(
                    ChangeOp::Unlink { parent, .. }
                    | ChangeOp::Rmdir { parent, .. }
                    | ChangeOp::Link { parent, .. },
                ),
                Ok(_),
            ) => (*parent, None),
            (Op::Change(ChangeOp::Rename { new_parent, .. }), Ok(_)) => (*new_parent, None),
            (Op::Read(ReadOp::GetAttr { ino }), Ok(Answer::Attr(attr))) if attr.is_dir() => {
                (*ino, None)
            }
            (Op::Read(ReadOp::List { dir, .. }), Ok(Answer::Entries { .. })) => (*dir, None),
            _ => return None,
        };
        // The mode of a directory with lists does not say who may search it, and a client does not
        // know what is inherited there: such a directory is the server's alone.
        if self.namespace.has_lists(place)
            || self.is_under_leases(place)
            || !self.tables.expect_back(client)
            || !self.caps.grant(client, place, self.now)
        {
            return None;
        }
        let dir = self.namespace.getattr(place).ok()?;
        let inode = match (inode, &request.op) {
            (Some(attr), _) => self.may_remember(client, place, attr),
            (None, Op::Read(ReadOp::List { attrs, .. })) => {
                *attrs && !self.opens.is_any_shared() && self.are_all_at_home(place, answer)
            }
            (None, _) => false,
        };
        let exclusive = self.notify_exclusive(client, request, place);
        let new_exclusive = match (&request.op, answer) {
            (Op::Change(ChangeOp::Create { .. }), Ok(Answer::Attr(attr)))
                if attr.is_dir() && inode =>
            {
                self.notify_exclusive(client, request, attr.ino)
            }
            _ => None,
        };
        Some(Grants { dir, inode, exclusive, new_exclusive, lease: None })
    }

    /// Gives a client that has just made a change a directory alone, if it wants that and can have
    /// it. Returns how files that are created there are striped.
    fn notify_exclusive(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        dir: Ino,
    ) -> Option<Stripe> {
        let fragmented = !self.authority.is_plain() && self.authority.is_fragmented(dir);
        if request.wants_exclusive == WantsExclusive::Never
            || !request.op.is_mutation()
            || fragmented
        {
            return None;
        }
        let policy = &self.namespace.effective_policy(dir).1.policy;
        let may = match policy.ack {
            Ack::Safe => false,
            Ack::Applied => request.wants_exclusive == WantsExclusive::Always,
            Ack::Async => true,
        };
        // Clients that log their requests need the server's answers.
        let logged = policy.contains(Mechanism::LocalPersist);
        let stripe = policy.stripe;
        if !may
            || logged
            || !policy.contains(Mechanism::Rpcs)
            || !self.may_grant_exclusive
            || self.caps.ending_since.is_some()
        {
            return None;
        }
        if !self.quotas_allow_exclusive(client, dir) {
            return None;
        }
        if self.is_under_leases(dir) || self.leases.is_leased(dir, self.now) {
            return None;
        }
        if self.is_changing_policy || self.is_decoupled(dir) || self.is_open_by_others(client, dir)
        {
            return None;
        }
        self.caps.grant_exclusive(client, dir).then_some(stripe)
    }

    /// Whether a directory is in a subtree that belongs to a client.
    fn is_decoupled(&self, dir: Ino) -> bool {
        let decoupled = &self.tables.decoupled;
        !decoupled.is_empty() && self.namespace.ancestors(dir).any(|it| decoupled.contains_key(&it))
    }

    /// Whether other clients have files of a directory open.
    fn is_open_by_others(&self, client: ClientId, dir: Ino) -> bool {
        self.opens.of_others(client).any(|ino| self.namespace.home_of(ino) == Some(dir))
    }

    /// Whether a directory is the home of the files that it lists, and none of them has an access
    /// control list: a file that has had several names has another home, and changes without a
    /// revocation of this directory.
    pub(super) fn are_all_at_home(&self, dir: Ino, answer: Result<&Answer, &Failure>) -> bool {
        let Ok(Answer::Entries { entries, .. }) = answer else { return false };
        entries.iter().all(|(_, attr)| {
            let is_at_home = || self.namespace.home_of(attr.ino) == Some(dir);
            let has_lists = || self.namespace.has_lists(attr.ino);
            attr.is_dir() || attr.nlink > 1 || (is_at_home() && !has_lists())
        })
    }

    fn may_remember(&mut self, client: ClientId, place: Ino, attr: &Attr) -> bool {
        if attr.is_dir() {
            return self.authority.may_grant(self.namespace, attr.ino)
                && !self.namespace.has_lists(attr.ino)
                && !self.is_under_leases(attr.ino)
                && self.caps.grant(client, attr.ino, self.now);
        }
        self.stands_in(place, attr)
    }

    /// Whether every change of a file's attributes is a change of its directory, and they say who
    /// may use the file: a client that caches them knows that the file has no access control list.
    pub(super) fn stands_in(&self, place: Ino, attr: &Attr) -> bool {
        // One with several names is changed through any of them.
        attr.nlink == 1
            && !self.namespace.has_lists(attr.ino)
            && self.namespace.home_of(attr.ino) == Some(place)
            && !self.opens.is_any_shared()
    }
}
