//! The policies of directories, and where a rank's subtrees have their names on other ranks.

use std::sync::Arc;

use policy::{Ack, Mechanism, Policy};
use types::{Ino, Map, Path};

/// A policy and its consequences for requests, computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivePolicy {
    /// The policy.
    pub policy: Policy,
    /// Whether requests are journalled. A policy without `rpcs` does not concern requests (a
    /// decoupled client works on its subtree), so requests of other clients keep the default
    /// promise.
    pub streams: bool,
    /// Whether requests are answered only when they are safe.
    pub ack_safe: bool,
}

impl ActivePolicy {
    pub(crate) fn new(policy: Policy) -> Self {
        let streams = !policy.contains(Mechanism::Rpcs) || policy.contains(Mechanism::Stream);
        let ack_safe = policy.ack == Ack::Safe;
        Self { policy, streams, ack_safe }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Policies {
    /// Policies stored in directory inodes.
    own: Map<Ino, Arc<ActivePolicy>>,
    default: Arc<ActivePolicy>,
    /// Incremented whenever the effective policy of some directory may have changed.
    generation: u64,
    /// The paths of subtrees that have their names on other ranks, by the directories above their
    /// roots.
    tops: Map<Ino, Path>,
}

impl Policies {
    pub(crate) fn new() -> Self {
        Self {
            own: Map::default(),
            default: Arc::new(ActivePolicy::new(Policy::default())),
            generation: 1,
            tops: Map::default(),
        }
    }

    /// Whether every directory has the default.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Whether a directory has a policy of its own.
    pub(crate) fn has(&self, dir: Ino) -> bool {
        self.own.contains_key(&dir)
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The policy of a directory, and the directory, or the default.
    #[inline]
    pub(crate) fn of(&self, source: Option<Ino>) -> (Option<Ino>, Arc<ActivePolicy>) {
        match source.and_then(|source| Some((source, self.own.get(&source)?))) {
            Some((source, policy)) => (Some(source), policy.clone()),
            None => (None, self.default.clone()),
        }
    }

    /// Sets the policy that a directory inode stores, or removes it.
    pub(crate) fn note(&mut self, dir: Ino, text: Option<&[u8]>) {
        // A policy that this version cannot read counts as none: the parent's stricter promise
        // holds until a user sets the policy again.
        let policy = text.and_then(|text| Policy::parse_bytes(text).ok());
        let changed = match policy {
            Some(parsed) => {
                self.own.insert(dir, Arc::new(ActivePolicy::new(parsed.policy)));
                true
            }
            None => self.own.remove(&dir).is_some(),
        };
        self.generation += u64::from(changed);
    }

    /// Sets the policy that a subtree inherits from the directory above its root; empty for none.
    fn set_inherited(&mut self, above: Ino, policy: &[u8]) {
        self.note(above, Some(policy).filter(|policy| !policy.is_empty()));
        self.changed();
    }

    /// A directory is gone.
    pub(crate) fn forget(&mut self, dir: Ino) {
        if self.own.remove(&dir).is_some() {
            self.changed();
        }
    }

    /// The place of directories changed: their effective policies may have, too.
    #[inline]
    pub(crate) fn changed(&mut self) {
        self.generation += 1;
    }

    /// The directories that have a policy of their own, sorted.
    pub(crate) fn list(&self) -> Vec<(Ino, Arc<ActivePolicy>)> {
        let mut all: Vec<_> = self.own.iter().map(|(ino, policy)| (*ino, policy.clone())).collect();
        all.sort_by_key(|(ino, _)| *ino);
        all
    }

    /// The path of the subtree below a hidden directory.
    pub(crate) fn top(&self, above: Ino) -> Option<&Path> {
        self.tops.get(&above)
    }

    /// Sets the path and the inherited policy of the subtree below a hidden directory.
    pub(crate) fn set_top(&mut self, above: Ino, path: Path, policy: &[u8]) {
        self.tops.insert(above, path);
        self.set_inherited(above, policy);
    }

    /// Forgets the path and the inherited policy of a subtree. Returns whether it had a path.
    pub(crate) fn remove_top(&mut self, above: Ino) -> bool {
        let had = self.tops.remove(&above).is_some();
        if had {
            self.set_inherited(above, b"");
        }
        had
    }

    /// Checks that a policy is one of a directory.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn validate(&self, is_file: impl Fn(Ino) -> bool) {
        for ino in self.own.keys() {
            assert!(!is_file(*ino), "{ino}: a directory has a policy");
        }
    }
}
