//! The trash: trees that were removed as a whole, and the requests about them.
//!
//! A tree goes to the hidden directory [`Ino::TRASH`] of its rank with one event, whatever its
//! size, and no client can reach it from then on (`admission::trashed`). Its name there says until
//! when it can be restored; then [`crate::reap`] gives its room back. Without `trash` in the
//! policy of the directory that had its name, that begins at once.
//!
//! Limit: only root may discard. Others may remove a directory, but not each name below it, and
//! whether they may is a question about the whole tree.

use std::collections::{BTreeMap, BTreeSet};

use namespace::{Namespace, Refusal};
use types::{ClientId, Cred, EntryName, Errno, Ino, Timestamp, TrashEntry};
use wire::{Answer, Failure};

use crate::admission::Admitted;
use crate::authority::{Places, UnderWay};
use crate::caps::CapsCx;
use crate::op::{AskCx, ChangeCx, Performed, Performing, Refused};
use crate::{Mds, MdsEffects};

/// Most removed trees in one reply to a listing.
const LIST_MAX: usize = 1024;

/// The removed trees of this rank, by their roots.
#[derive(Debug, Default)]
pub(crate) struct Trash {
    /// The names in the trash were read since the server started.
    is_known: bool,
    entries: BTreeMap<Ino, TrashEntry>,
    /// By the times until which they are kept.
    due: BTreeSet<(Timestamp, Ino)>,
}

impl Trash {
    /// The trash of a server that removes no trees as a whole.
    pub(crate) fn none() -> Self {
        Self { is_known: true, ..Self::default() }
    }

    /// Whether no inode in memory is in the trash.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_known && self.entries.is_empty()
    }

    /// Whether the names in the trash were read.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// How many trees are in the trash.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes the names of the trash, if all of them are in memory.
    pub(crate) fn learn(&mut self, namespace: &Namespace) {
        if self.is_known || !namespace.is_complete(Ino::TRASH) {
            return;
        }
        self.is_known = true;
        for (name, ino) in namespace.dirs().names_in(Ino::TRASH, None, usize::MAX) {
            if let Some(entry) = TrashEntry::decode(&name) {
                self.put(TrashEntry { ino, ..entry });
            }
        }
    }

    /// Adds a tree, or changes the time until which it is kept.
    pub(crate) fn put(&mut self, entry: TrashEntry) {
        self.remove(entry.ino);
        self.due.insert((entry.until, entry.ino));
        self.entries.insert(entry.ino, entry);
    }

    /// A tree was restored, or its last inode is gone.
    pub(crate) fn remove(&mut self, root: Ino) {
        if let Some(entry) = self.entries.remove(&root) {
            self.due.remove(&(entry.until, root));
        }
    }

    /// The tree with this root.
    pub(crate) fn get(&self, root: Ino) -> Option<&TrashEntry> {
        self.entries.get(&root)
    }

    /// The removed tree with this root, if it is in this rank's trash.
    fn removed(&mut self, namespace: &Namespace, root: Ino) -> Result<Option<TrashEntry>, Refused> {
        self.learn(namespace);
        if !self.is_known {
            return Err(Refusal::Cold(Ino::TRASH).into());
        }
        Ok(self.entries.get(&root).cloned())
    }

    /// The trees whose time is over, the oldest first.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = Ino> {
        self.due.iter().take_while(move |(until, _)| *until <= now).map(|(_, root)| *root)
    }

    /// Checks that both orders have the same trees.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self) {
        let listed: BTreeSet<_> =
            self.entries.values().map(|entry| (entry.until, entry.ino)).collect();
        assert!(listed == self.due, "each removed tree is listed by its time, once");
        assert!(self.is_known || listed.is_empty(), "the trash is read before it is changed");
    }
}

fn failure(errno: Errno, text: impl Into<String>) -> Refused {
    Refused::Failure(Failure { errno, text: text.into() })
}

impl Mds {
    /// Removes a directory with everything below it.
    pub(crate) fn discard(
        &mut self,
        admitted: Admitted<'_>,
        entry: EntryName<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        let from = admitted.incoming();
        let cred = &from.request.cred;
        if let Ok(Some(root)) = self.namespace.peek(entry.dir, entry.name)
            && self.namespace.is_split(root)
        {
            return Err(failure(Errno::Busy, "it is split; `cudele mds join` puts it together"));
        }
        let root = self.namespace.plan().discarded(cred, entry)?;
        if !cred.is_root() {
            let text = "only root removes a tree at once; remove the names in it one by one";
            return Err(failure(Errno::NotPermitted, text));
        }
        // A tree that was removed before a crash could be removed then.
        if from.request.replay.is_none() {
            self.check_discard(entry.dir, root)?;
        }
        // Clients would keep answering from their caches of the tree, or have changes in it.
        if let Some(dir) = CapsCx::of(self).revoke_below(ClientId(0), root, effects) {
            self.fetches.park_until_returned(&mut self.sessions, from, dir);
            return Ok(Performed::Later);
        }
        self.trash.learn(&self.namespace);
        let (performed, entry) = ChangeCx::of(self).discard(admitted, entry, root)?;
        self.trash.put(entry);
        self.counters.discards += 1;
        Ok(performed)
    }

    /// `EBUSY` if a tree must be removed name by name.
    fn check_discard(&mut self, parent: Ino, root: Ino) -> Result<(), Refused> {
        let under_way = UnderWay::of(self);
        Places::of(self).check_discard(root, under_way)?;
        let namespace = &self.namespace;
        let overlap = |it| namespace.is_within(it, root) || namespace.is_within(root, it);
        if self.merges.keeps(overlap) {
            return Err(failure(Errno::Busy, "a client's journal is being merged there"));
        }
        let inside = namespace.policies().into_iter();
        let inside = inside.filter(|(dir, _)| namespace.is_within(*dir, root));
        let mut policies: Vec<_> = inside.map(|(_, policy)| policy).collect();
        policies.push(self.namespace.effective_policy(parent).1);
        // The journal has the removal, so it must have what is removed.
        if policies.iter().any(|policy| !policy.streams) {
            let text = "its policy keeps no journal of it (`rpcs` without `stream`)";
            return Err(failure(Errno::Busy, text));
        }
        if policies.iter().any(|policy| policy.policy.logs_requests()) {
            let text =
                "its policy keeps logs with clients (rpcs+local_persist), which name each inode";
            return Err(failure(Errno::Busy, text));
        }
        Ok(())
    }
}

/// All that the end of a tree's time in the trash touches.
pub(crate) struct TrashCx<'a> {
    pub(crate) trash: &'a mut Trash,
    pub(crate) change: ChangeCx<'a>,
}

impl TrashCx<'_> {
    /// Gives a removed tree a name again.
    pub(crate) fn restore(
        &mut self,
        admitted: Admitted<'_>,
        root: Ino,
        to: EntryName<'_>,
    ) -> Performing {
        let cred = &admitted.incoming().request.cred;
        let unknown = "the trash of this metadata server has no such tree; `cudele trash ls` lists \
                       them, and a tree goes back to a directory of the same server";
        let entry = self
            .trash
            .removed(self.change.apply.namespace, root)?
            .ok_or_else(|| failure(Errno::NotFound, unknown))?;
        // Before the right to it: a moment later the tree may be gone.
        if !entry.is_kept() {
            let text = "its time is over, and its room is being given back";
            return Err(failure(Errno::NotFound, text));
        }
        check_remover(cred, &entry)?;
        let name = name_in_trash(self.change.apply.namespace, root)?;
        let performed = self.change.restore(admitted, &name, to)?;
        self.trash.remove(root);
        self.change.counters.restores += 1;
        Ok(performed)
    }

    /// Has the room of a removed tree given back before its time.
    pub(crate) fn empty(&mut self, admitted: Admitted<'_>, root: Ino) -> Performing {
        let from = admitted.incoming();
        // Another rank may have it.
        let entry = self.trash.removed(self.change.apply.namespace, root)?.ok_or(Errno::Stale)?;
        check_remover(&from.request.cred, &entry)?;
        if !entry.is_kept() {
            return Ok(Performed::Answer(Answer::Done));
        }
        let name = name_in_trash(self.change.apply.namespace, root)?;
        let entry = TrashEntry { until: Timestamp(0), ..entry };
        let performed = self.change.keep_until(admitted, &name, &entry)?;
        self.trash.put(entry);
        Ok(performed)
    }
}

fn name_in_trash(namespace: &Namespace, root: Ino) -> Result<Vec<u8>, Refused> {
    let named = namespace.name_of(root).filter(|(dir, _)| *dir == Ino::TRASH);
    Ok(named.ok_or(Errno::NotFound)?.1)
}

/// `EPERM` for users who have not removed a tree.
fn check_remover(cred: &Cred, entry: &TrashEntry) -> Result<(), Refused> {
    if cred.is_root() || cred.uid == entry.uid {
        return Ok(());
    }
    let text = format!("user {} removed it; only that user and root may do this", entry.uid);
    Err(failure(Errno::NotPermitted, text))
}

impl AskCx<'_> {
    /// The removed trees that a user may restore.
    pub(crate) fn list_trash(
        &self,
        cred: &Cred,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Answer, Refused> {
        if !self.namespace.is_complete(Ino::TRASH) {
            return Err(Refusal::Cold(Ino::TRASH).into());
        }
        let limit = (limit as usize).clamp(1, LIST_MAX);
        let mut entries = Vec::new();
        for (name, ino) in self.namespace.dirs().names_in(Ino::TRASH, after, usize::MAX) {
            let Some(entry) = TrashEntry::decode(&name) else { continue };
            if check_remover(cred, &entry).is_err() {
                continue;
            }
            if entries.len() == limit {
                return Ok(Answer::Entries { entries, more: true });
            }
            let attr = self.namespace.getattr(ino).or_else(|_| {
                let attr = self.namespace.directory_to_read(&Cred::root(), ino, b"")?;
                // The number of its entries is not known.
                Ok::<_, Refusal>(types::Attr { nlink: 1, ..attr })
            })?;
            entries.push((name, attr));
        }
        Ok(Answer::Entries { entries, more: false })
    }
}
