//! Subtrees that this process has decoupled: it works in them without requests.

use std::sync::{Arc, Mutex, MutexGuard};

use cudele::{Completion, Errno, Error, Fs, Ino, Path, Policy, Result, Subtree};
use types::Cred;

use crate::content::ContentCx;
use crate::held;
use crate::outdated::Outdated;
use crate::tree::{Tree, Trees};

/// A decoupled subtree behind the mount.
#[derive(Debug)]
pub(crate) struct Owned {
    root: Ino,
    /// Nothing once it has been given up.
    subtree: Mutex<Option<Subtree>>,
}

impl Owned {
    pub(crate) fn new(subtree: Subtree) -> Self {
        Self { root: subtree.root(), subtree: Mutex::new(Some(subtree)) }
    }

    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    /// Works in the subtree for a user.
    ///
    /// # Errors
    /// `ESTALE` if it was given up since.
    pub(crate) fn with<T>(
        &self,
        cred: &Cred,
        operation: impl FnOnce(&mut Subtree) -> Result<T>,
    ) -> Result<T> {
        let mut subtree = self.held();
        let Some(subtree) = subtree.as_mut() else {
            return Err(Error::of(Errno::Stale, "subtree"));
        };
        subtree.act_as(cred);
        operation(subtree)
    }

    fn held(&self) -> MutexGuard<'_, Option<Subtree>> {
        held(&self.subtree)
    }
}

/// The fate of a decoupled subtree at the end of the work in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The mechanisms of its policy are carried out; it stays this client's unless that makes it
    /// visible.
    Complete,
    /// The work is kept on this machine's disk under any policy, and the subtree stays this
    /// client's: a user will inspect it.
    Keep,
    /// It is merged under any policy, and shared again.
    Merge,
    /// Unmerged work is discarded.
    Discard,
}

impl Ending {
    /// The ending of successful work under this policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        if policy.applies() {
            Self::Merge
        } else if policy.persists() {
            Self::Complete
        } else {
            // No other process could take it up: it exists in this process only.
            Self::Discard
        }
    }

    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Keep => "keep",
            Self::Merge => "merge",
            Self::Discard => "discard",
        }
    }
}

impl Trees {
    /// # Errors
    /// `EINVAL` if this process has not decoupled it.
    pub(crate) fn owned_at(&self, root: Ino) -> Result<Arc<Owned>> {
        self.owned().get(&root).cloned().ok_or_else(|| {
            Error::new(Errno::Invalid, "subtree", "this process has not decoupled it")
        })
    }

    /// The root of the subtree of this process that has this name.
    pub(crate) fn owned_named(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let above = self.known_path(parent).ok()?;
        let is_named =
            |path: &Path| path.split_last().is_some_and(|(dir, last)| dir == above && last == name);
        let owned = self.owned();
        let mut named = owned
            .values()
            .filter(|owned| owned.held().as_ref().is_some_and(|subtree| is_named(subtree.path())));
        named.next().map(|owned| owned.root)
    }

    /// The policy of a subtree that this process has decoupled.
    #[must_use]
    pub(crate) fn owned_policy(&self, root: Ino) -> Option<Policy> {
        let owned = self.owned().get(&root).cloned()?;
        owned.held().as_ref().map(|subtree| subtree.policy().clone())
    }

    /// Whether this process has decoupled the subtree with this root.
    #[must_use]
    pub(crate) fn is_owned(&self, root: Ino) -> bool {
        self.owned().contains_key(&root)
    }

    /// The roots of the subtrees that this process has decoupled.
    #[must_use]
    pub(crate) fn owned_roots(&self) -> Vec<Ino> {
        let mut roots: Vec<_> = self.owned().keys().copied().collect();
        roots.sort_unstable();
        roots
    }

    /// The first content of a file is about to go to the object store. In a decoupled subtree its
    /// number may be in no journal yet.
    pub(crate) fn note_content(&self, ino: Ino) -> Result<()> {
        match self.tree(ino) {
            Tree::Server => Ok(()),
            Tree::Owned(owned) => owned.with(&Cred::root(), |subtree| subtree.note_content()),
        }
    }
}

/// The decoupled subtrees of this process, with all that their work may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubtreesCx<'a> {
    pub(crate) fs: &'a Arc<Fs>,
    pub(crate) trees: &'a Trees,
    pub(crate) content: ContentCx<'a>,
    pub(crate) outdated: &'a Outdated,
}

impl SubtreesCx<'_> {
    /// Decouples a subtree; from now on this process works in it alone.
    ///
    /// # Errors
    /// As `Fs::decouple`.
    pub(crate) fn decouple(&self, path: &Path, policy: &Policy) -> Result<Ino> {
        let subtree = self.fs.decouple(path.to_bytes(), policy)?;
        Ok(self.trees.adopt(subtree))
    }

    /// Ends the work in a subtree, or with [`Ending::Complete`] a part of it.
    ///
    /// # Errors
    /// `EINVAL` if this process has not decoupled it; otherwise those of the mechanisms: the
    /// updates are still held then.
    pub(crate) fn end(&self, root: Ino, ending: Ending) -> Result<Completion> {
        let owned = self.trees.owned_at(root)?;
        self.content.write_back_below(root)?;
        let mut place = owned.held();
        let Some(subtree) = place.as_mut() else {
            return Err(Error::of(Errno::Stale, "subtree"));
        };
        let done = match ending {
            Ending::Complete => return subtree.complete(),
            Ending::Keep => return subtree.keep_here(),
            Ending::Merge => subtree.merge()?,
            Ending::Discard => Completion::default(),
        };
        let Some(subtree) = place.take() else { return Ok(done) };
        drop(place);
        self.let_go(root);
        if ending == Ending::Merge {
            subtree.forget()?
        } else {
            subtree.discard()?
        }
        Ok(done)
    }

    /// Changes the policy of a subtree that this process has decoupled (`Subtree::set_policy`). If
    /// the new one does not decouple, the subtree is merged and shared.
    pub(crate) fn change_policy(&self, root: Ino, policy: &Policy) -> Result<()> {
        self.content.write_back_below(root)?;
        let owned = self.trees.owned_at(root)?;
        let mut place = owned.held();
        let Some(subtree) = place.as_mut() else {
            return Err(Error::of(Errno::Stale, "subtree"));
        };
        subtree.set_policy(policy)?;
        if policy.is_decoupled() {
            return Ok(());
        }
        let Some(subtree) = place.take() else { return Ok(()) };
        drop(place);
        self.let_go(root);
        subtree.forget()
    }

    /// Publishes the subtree's journal so far (`Subtree::sync`); it stays this process's.
    ///
    /// # Errors
    /// As [`SubtreesCx::end`].
    pub(crate) fn sync(&self, root: Ino) -> Result<Completion> {
        self.content.write_back_below(root)?;
        self.trees.owned_at(root)?.with(&Cred::root(), |subtree| subtree.sync())
    }

    /// Another client waits for the subtree's content (`Subtree::answer_merge_request`).
    ///
    /// # Errors
    /// As [`SubtreesCx::end`].
    pub(crate) fn answer_merge_request(&self, root: Ino) -> Result<()> {
        self.content.write_back_below(root)?;
        self.trees
            .owned_at(root)?
            .with(&Cred::root(), |subtree| subtree.answer_merge_request().map(drop))
    }

    /// Makes a subtree's journal so far as durable as its policy promises (`Subtree::persist`);
    /// other clients see no more of it than before.
    ///
    /// # Errors
    /// As [`SubtreesCx::end`].
    pub(crate) fn persist(&self, root: Ino) -> Result<()> {
        self.content.write_back_below(root)?;
        self.trees.owned_at(root)?.with(&Cred::root(), |subtree| subtree.persist())
    }

    /// The subtree is not this process's any more.
    fn let_go(&self, root: Ino) {
        self.outdated.extend(self.trees.disown(root));
    }
}
