//! The events that move trees to the trash, and out of it.

use types::{EntryName, Ino, Timestamp, TrashEntry};

use super::ChangeCx;
use crate::admission::Admitted;
use crate::op::{Performed, Performing, Refused};

impl ChangeCx<'_> {
    /// Removes the directory under a name, with everything below it. Returns its place in the
    /// trash.
    pub(crate) fn discard(
        &mut self,
        admitted: Admitted<'_>,
        at: EntryName<'_>,
        root: Ino,
    ) -> Result<(Performed, TrashEntry), Refused> {
        let from = admitted.incoming();
        let by = &self.author(from);
        let namespace = &mut *self.apply.namespace;
        // The name of a split directory is in a fragment, which may be gone when it is restored.
        let parent = self.authority.whole_of(at.dir).unwrap_or(at.dir);
        let path = namespace.path_of(root).map_or_else(|| at.name.to_vec(), |it| it.to_bytes());
        let kept = namespace.effective_policy(at.dir).1.policy.trash;
        let until = kept.map_or(0, |span| by.time.0.saturating_add_unsigned(span.0));
        let (uid, gid) = (by.cred.uid, by.cred.gid);
        let entry = TrashEntry { until: Timestamp(until), ino: root, parent, uid, gid, path };
        let name = entry.encode()?;
        let planned = namespace.plan().discard(by.cred, at, &name, by.time)?;
        self.authority.check_mounts(namespace, &from.op().about())?;
        Ok((self.execute_in_both(by, at.dir, Ino::TRASH, &planned), entry))
    }

    /// Gives a removed tree a name again.
    pub(crate) fn restore(
        &mut self,
        admitted: Admitted<'_>,
        kept_as: &[u8],
        to: EntryName<'_>,
    ) -> Performing {
        let by = &self.author(admitted.incoming());
        let planned = self.apply.namespace.plan().restore(by.cred, kept_as, to, by.time)?;
        Ok(self.execute_in_both(by, to.dir, Ino::TRASH, &planned))
    }

    /// Changes the place of a removed tree in the trash: how long it is kept.
    pub(crate) fn keep_until(
        &mut self,
        admitted: Admitted<'_>,
        kept_as: &[u8],
        entry: &TrashEntry,
    ) -> Performing {
        let by = &self.author(admitted.incoming());
        let name = entry.encode()?;
        let planned = self.apply.namespace.plan().rename_in_trash(kept_as, &name, by.time)?;
        Ok(self.execute(by, Ino::TRASH, &planned))
    }
}
