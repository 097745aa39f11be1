//! Which requests may move a subtree to another rank.

use types::{Cred, Errno, Ino, Rank};

use super::{Export, ExportCx};
use crate::ReplyTo;
use crate::authority::UnderWay;
use crate::authority::place::{InodeAuthority, cold};
use crate::op::{Performed, Performing};

impl ExportCx<'_> {
    /// Begins to give a subtree to another rank. Only root and the owner of the namespace may ask.
    pub(crate) fn ask(&mut self, at: ReplyTo, cred: &Cred, root: Ino, to: Rank) -> Performing {
        let owner = self.base.settings.root_owner.0;
        if cred.uid != 0 && cred.uid != owner && !self.places().is_empty_part(root) {
            return Err(Errno::NotPermitted.into());
        }
        if !self.base.namespace.knows(root) {
            return Err(Errno::Stale.into());
        }
        if !self.base.namespace.is_dir(root) {
            return Err(Errno::NotDirectory.into());
        }
        if to == Rank::NONE {
            return self.note_pin(at, root, false);
        }
        self.begin(at, root, to, true)
    }

    /// Begins to move a subtree to another rank, for a request or for the balancer.
    pub(crate) fn begin(&mut self, at: ReplyTo, root: Ino, to: Rank, pinned: bool) -> Performing {
        // The balancer's decision may be old. And the requests that were answered before a crash
        // are replayed first, at the rank that answered them.
        if self.base.authority.place(self.base.namespace, root) != InodeAuthority::Here
            || self.base.is_resend_busy
        {
            return Err(Errno::Again.into());
        }
        if to == self.base.rank {
            return self.note_pin(at, root, pinned);
        }
        self.places().check_target(to)?;
        self.places().check_subtree(root, self.under_way())?;
        if let Some(answer) = self.places().first_elsewhere(root, to) {
            return Ok(Performed::Answer(answer));
        }
        // All attributes of its inode, and all names, must be known here.
        self.base.namespace.getattr(root)?;
        if !self.base.namespace.is_complete(root) {
            return Err(cold(root));
        }
        self.places().check_links(root)?;
        assert!(self.base.authority.export_of(root).is_none(), "{root}: a subtree moves once");
        let id = self.transfer_id();
        let export = Export { root, to, at, pinned, ..Export::default() }.giving(id);
        self.base.authority.exports.push(export);
        self.base.authority.note_plain();
        Ok(Performed::Later)
    }

    fn under_way(&self) -> UnderWay {
        UnderWay {
            is_taking_snapshot: self.base.snapshots.is_any(),
            is_changing_policy: !self.base.changes.is_empty(),
        }
    }
}
