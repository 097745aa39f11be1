//! The parts of a simulated namespace: top-level directories with different promises.

use model::Model;
use types::{Attr, ClientId, Ino, Timestamp};

/// The promise for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Every change is journalled and survives.
    Strong,
    /// As strong, and acknowledged only when it is durable. One client at a time works there.
    AckSafe,
    /// Visible at once, and lost with the server.
    Volatile,
    /// Belongs to a client for a while.
    Decoupled,
}

/// A top-level directory.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its inode.
    pub root: Ino,
    /// Its path.
    pub path: String,
    /// What is promised.
    pub kind: RegionKind,
    /// Whether the model knows its content.
    pub known: bool,
    /// Whether there are changes that a crash may undo.
    pub soft: bool,
    /// Its owner, and whether the owner blocks other clients.
    pub owner: Option<(ClientId, bool)>,
    /// No client uses it now: a merge or a decoupling is under way.
    pub closed: bool,
    /// The journal that was merged last.
    pub last_merge: Vec<u8>,
    /// A journal in the store whose merge has no known result.
    pub in_doubt: Option<Vec<u8>>,
}

impl Region {
    /// A region of which everything is known.
    #[must_use]
    pub fn new(root: Ino, path: &str, kind: RegionKind) -> Self {
        Self {
            root,
            path: path.to_owned(),
            kind,
            known: true,
            soft: false,
            owner: None,
            closed: false,
            last_merge: Vec::new(),
            in_doubt: None,
        }
    }

    /// Removes unknown values from the attributes of the region's root.
    pub(crate) fn blur(&self, attr: &Attr) -> Attr {
        let Attr { ino, mode, .. } = *attr;
        if ino != self.root {
            return *attr;
        }
        if !self.known {
            return Attr { ino, mode: mode & types::MODE_TYPE, ..Attr::default() };
        }
        // A decoupling and a policy change it at an unknown time.
        let blurred = matches!(self.kind, RegionKind::Decoupled | RegionKind::Volatile);
        let ctime = if blurred { Timestamp(0) } else { attr.ctime };
        Attr { ctime, ..*attr }
    }

    /// Whether a path is in the region, or is its root.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether any name of an inode lies in a directory or below.
#[must_use]
pub(crate) fn is_within(model: &Model, ino: Ino, root: Ino) -> bool {
    let mut todo = vec![ino];
    let mut steps = 0;
    while let Some(ino) = todo.pop() {
        steps += 1;
        if ino == root {
            return true;
        }
        if steps < 1000 {
            todo.extend(model.names_of(ino).into_iter().map(|(parent, _)| parent));
        }
    }
    false
}
