//! Giving leases with replies, and letting changes wait for their end. [`crate::leases`] explains
//! them.

use policy::Cache;
use types::{Errno, Ino, Moment, Path};
use wire::{Answer, Failure, Grants, Op, ReadOp, Request};

use super::CapsCx;
use crate::leases::ANYBODY;
use crate::op::place_of;

impl CapsCx<'_> {
    /// The part of an immediate answer that a client may cache for the span of a lease.
    #[allow(clippy::wildcard_enum_match_arm, reason = "changes give no leases")]
    pub(super) fn notify_leased(
        &mut self,
        request: &Request<'_>,
        answer: Result<&Answer, &Failure>,
    ) -> Option<Grants> {
        let (place, inode) = match (&request.op, answer) {
            (Op::Read(ReadOp::Lookup { parent, .. }), Ok(Answer::Attr(attr))) => {
                (*parent, Some(attr))
            }
            (Op::Read(ReadOp::Lookup { parent, .. }), Err(failure))
                if failure.errno == Errno::NotFound =>
            {
                (*parent, None)
            }
            (Op::Read(ReadOp::GetAttr { ino }), Ok(Answer::Attr(attr))) => {
                (place_of(self.namespace, *ino)?, Some(attr))
            }
            (Op::Read(ReadOp::Walk { path, .. }), Ok(Answer::Walked { parent, attr })) => {
                // For an empty path the answer is about the base itself, not about a name.
                Path::parse(path).ok()?.split_last()?;
                (*parent, attr.as_ref())
            }
            (Op::Read(ReadOp::List { dir, .. }), Ok(Answer::Entries { .. })) => (*dir, None),
            _ => return None,
        };
        if !self.is_under_leases(place) {
            return None;
        }
        let dir = self.namespace.getattr(place).ok()?;
        let lease = self.lease(place)?;
        let inode = match (inode, &request.op) {
            (Some(attr), _) if attr.ino == place => true,
            (Some(attr), _) if attr.is_dir() => {
                self.is_under_leases(attr.ino) && self.lease(attr.ino).is_some()
            }
            (Some(attr), _) => self.stands_in(place, attr),
            (None, Op::Read(ReadOp::List { attrs, .. })) => {
                *attrs && !self.opens.is_any_shared() && self.are_all_at_home(place, answer)
            }
            (None, _) => false,
        };
        Some(Grants { dir, inode, lease: Some(lease), ..Grants::default() })
    }

    /// Whether clients cache a directory under leases.
    pub(super) fn is_under_leases(&mut self, dir: Ino) -> bool {
        self.namespace.effective_policy(dir).1.policy.cache == Cache::Lease
    }

    /// Gives a lease of a directory, if it can be given.
    fn lease(&mut self, dir: Ino) -> Option<types::Span> {
        // A client that has it alone changes it without waiting.
        if !self.authority.may_grant(self.namespace, dir)
            || self.namespace.has_lists(dir)
            || self.caps.owner(dir).is_some()
            || !self.tables.expect_back(ANYBODY)
        {
            return None;
        }
        let now = self.now;
        let closed = |root: Ino| self.namespace.ancestors(dir).any(|ancestor| ancestor == root);
        if self.leases.closed_below(now).any(closed) {
            return None;
        }
        self.leases.give(dir, now)
    }

    /// Whether a change of a directory waits for the end of a lease.
    pub(super) fn waits_for_lease(&mut self, dir: Ino) -> bool {
        let waits = self.leases.must_wait(dir, self.now);
        self.counters.lease_waits += u64::from(waits);
        waits
    }

    /// A directory in a subtree with an unexpired lease. No lease is granted in the subtree until
    /// it has expired.
    pub(super) fn waits_for_leases_below(&mut self, root: Ino) -> Option<Ino> {
        let leased = self.leases.directories(self.now);
        // The place of an evicted directory is unknown.
        let inside = leased.filter(|dir| {
            !self.namespace.knows(*dir) || self.namespace.ancestors(*dir).any(|it| it == root)
        });
        let inside: Vec<Ino> = inside.collect();
        let mut waits = None;
        for dir in inside {
            waits = self.waits_for_lease(dir).then_some(dir).or(waits);
        }
        if waits.is_some() {
            self.leases.close_below(root, self.now);
        }
        waits
    }

    /// Handles requests again that waited for a lease that has expired.
    pub(super) fn leases_tick(&mut self) {
        for dir in self.leases.over(self.now) {
            self.fetches.wake_returned(dir);
        }
        if self.leases.are_past(self.now) {
            self.tables.stop_expecting(ANYBODY);
        }
    }

    /// Until when leases may be in use that the previous server gave.
    pub(crate) fn leases_recovered(&mut self) -> Moment {
        let now = self.now;
        if !self.tables.expected().any(|client| client == ANYBODY) {
            return now;
        }
        self.leases.recovered(now);
        now + self.leases.whole()
    }
}
