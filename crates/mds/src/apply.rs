//! The one way of a planned change into the namespace: the server journals the change if a policy
//! says so, and applies it.

use journal::Event;
use namespace::{Mode, Namespace};
use types::{Ino, Moment, Origin, Seq};

use crate::log::Log;
use crate::op::{Change, is_in_change};
use crate::opens::Opens;
use crate::purge::Purges;
use crate::watch::Watches;

/// Applying changes, with all that it may touch.
pub(crate) struct ApplyCx<'a> {
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) opens: &'a mut Opens,
    pub(crate) purges: &'a mut Purges,
    pub(crate) watches: &'a mut Watches,
    /// Changes of policy that wait until something is stored.
    pub(crate) changes: &'a [Change],
    /// The server works for the job of a branch.
    pub(crate) is_private: bool,
    pub(crate) now: Moment,
}

impl ApplyCx<'_> {
    /// Journals an event if the policy of one of the places it touches streams, or if it is about
    /// an inode with several names, and applies it.
    #[inline]
    pub(crate) fn journal_and_apply(
        &mut self,
        origin: Origin,
        place: Ino,
        other: Ino,
        event: &Event<'_>,
    ) -> (Option<Seq>, bool) {
        let home = directory_of(self.namespace, place);
        let (_, policy) = self.namespace.effective_policy(home);
        let (mut streams, mut ack_safe) = (policy.streams, policy.ack_safe);
        // An inode with several names does not know them: one may be where answers wait.
        ack_safe |= home == Ino::LINKS;
        // Of a server that works apart, the journal is all that stays.
        streams |= self.is_private;
        if other != place {
            // A rename across subtrees keeps the stricter promise of the two.
            let (_, policy) = self.namespace.effective_policy(other);
            streams |= policy.streams;
            ack_safe |= policy.ack_safe;
        }
        if !self.changes.is_empty() {
            // The present content is being stored for another policy, and this change would miss
            // that.
            streams |= is_in_change(self.changes, self.namespace, home)
                || is_in_change(self.changes, self.namespace, other);
        }
        // An inode with several names lives in a place of its own: without the journal, a crash
        // between the checkpoints of that place and of the names' would leave names of nothing.
        let is_about_links = self.namespace.is_about_links(event);
        if is_about_links && !streams {
            // Else the log of a client that is merged after a crash would find the inode, and give
            // it no first name.
            let (log, now) = (&mut *self.log, self.now);
            self.namespace.first_name(event, |event| {
                log.append(now, Origin::default(), event);
            });
        }
        streams |= is_about_links;
        let seq = streams.then(|| self.log.append(self.now, origin, event));
        if self.watches.is_any() {
            self.watches.note(self.namespace, event);
        }
        self.namespace.set_journalled(seq.is_some());
        self.namespace.apply(seq.unwrap_or(self.log.last()), Mode::Live, event);
        self.namespace.set_journalled(true);
        self.note_freed(seq.is_some());
        (seq, ack_safe)
    }

    /// Queues inodes that lost their last name; `journalled` is whether the journal has the event.
    pub(crate) fn note_freed(&mut self, journalled: bool) {
        // The journal of a branch's server is not the journal of the namespace.
        let journalled = journalled && !self.is_private;
        let seq = self.log.last();
        for freed in self.namespace.take_freed() {
            let is_open = self.opens.keep(freed);
            self.purges.note_freed(freed, is_open, seq, journalled, self.now);
        }
    }
}

/// The directory whose policy governs an inode.
pub(crate) fn directory_of(namespace: &Namespace, ino: Ino) -> Ino {
    if namespace.is_dir(ino) { ino } else { namespace.home_of(ino).unwrap_or(Ino::ROOT) }
}
