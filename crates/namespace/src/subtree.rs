//! Ancestors and policies: where in the tree an inode stands.

use std::sync::Arc;

use types::{Ino, Path, name_hash};

use crate::tree::InodeTree;
use crate::{ActivePolicy, ROOT_NAME};

/// Deeper nesting is treated as a loop, which only damaged metadata could contain.
const DEPTH_MAX: usize = 4096;

impl InodeTree {
    /// The directory and the directories above it, up to the root. For an inode with several
    /// names only itself, because it has no one place.
    pub(crate) fn ancestors(&self, ino: Ino) -> impl Iterator<Item = Ino> {
        let mut next = Some(ino);
        std::iter::from_fn(move || {
            let ino = next?;
            let home = self.inodes.get(ino).map(|inode| inode.home);
            next = home.filter(|home| *home != Ino::ANCHOR && *home != Ino::LINKS);
            Some(ino)
        })
        .take(DEPTH_MAX)
    }

    /// Whether `ino` is `subtree` or lies below it.
    pub(crate) fn is_within(&self, ino: Ino, subtree: Ino) -> bool {
        self.ancestors(ino).any(|ancestor| ancestor == subtree)
    }

    /// Whether it is known where an inode stands: all directories above it are in memory. After a
    /// recovery that need not be so, because events name directories by their numbers.
    pub(crate) fn is_anchored(&self, ino: Ino) -> bool {
        if ino == Ino::ANCHOR || ino == Ino::LINKS {
            return true;
        }
        let Some(top) = self.ancestors(ino).last() else { return false };
        if top == Ino::TRASH {
            return true;
        }
        let home = self.inodes.get(top).map(|top| top.home);
        home == Some(Ino::ANCHOR) || home == Some(Ino::LINKS) || self.policies.top(top).is_some()
    }

    /// Re-reads the policy stored in a directory inode.
    pub(crate) fn note_policy(&mut self, ino: Ino) {
        let text = self.inodes.extra_of(ino).and_then(|extra| extra.policy());
        self.policies.note(ino, text);
    }

    /// The policy in force in a directory: its own or its nearest ancestor's, and the
    /// directory it comes from, or `None` for the default.
    pub(crate) fn effective_policy(&mut self, dir: Ino) -> (Option<Ino>, Arc<ActivePolicy>) {
        if self.policies.is_empty() {
            return self.policies.of(None);
        }
        let generation = self.policies.generation();
        let cached = self.dirs.get(dir).map(|dir| dir.policy);
        let source = match cached {
            Some((at, source)) if at == generation => Some(source).filter(|ino| ino.0 != 0),
            Some(_) | None => {
                let source = self.ancestors(dir).find(|ino| self.policies.has(*ino));
                // Its parent may not be known yet, and then the source of its policy is unknown,
                // too.
                let is_known = source.is_some() || self.is_anchored(dir);
                if let Some(dir) = self.dirs.get_mut(dir).filter(|_| is_known) {
                    dir.policy = (generation, source.unwrap_or_default());
                }
                source
            }
        };
        self.policies.of(source)
    }

    /// Whether an inode is at a path or below it, without an allocation for each name above. May
    /// be false where that holds: below fragments, and below a directory of another rank.
    pub(crate) fn is_quickly_below(&self, ino: Ino, path: &Path) -> bool {
        let (mut above, mut top) = (0_usize, ino);
        for ancestor in self.ancestors(ino) {
            if self.dirs.is_split(ancestor) {
                return false;
            }
            (above, top) = (above + 1, ancestor);
        }
        // The root is one of them, and has no name in a path.
        let names = path.components().len();
        let Some(lower) = above.checked_sub(names + 1).filter(|_| top == Ino::ROOT) else {
            return false;
        };
        let named = self.ancestors(ino).skip(lower).zip(path.components().rev());
        named.into_iter().all(|(ino, name)| {
            let Some(inode) = self.inodes.get(ino) else { return false };
            let home = self.dirs.get(inode.home).filter(|_| inode.home_hash == name_hash(name));
            home.is_some_and(|home| home.find(name).is_some_and(|dentry| dentry.ino == ino))
        })
    }

    /// The path of a directory or of a file with one name, as far as it is in memory.
    pub(crate) fn path_of(&self, ino: Ino) -> Option<Path> {
        let mut names = Vec::new();
        for ino in self.ancestors(ino) {
            let inode = self.inodes.get(ino)?;
            let name = self.dirs.get(inode.home)?.name_by_hash(inode.home_hash, ino)?;
            let top = if inode.home == Ino::ANCHOR && name == ROOT_NAME {
                Some(Path::root())
            } else {
                self.policies.top(inode.home).cloned()
            };
            if let Some(top) = top {
                return Some(names.iter().rev().fold(top, |path, name: &Vec<u8>| path.join(name)));
            }
            // A fragment is where its directory is.
            if !self.dirs.is_split(inode.home) {
                names.push(name);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use journal::{Create, Event};
    use policy::{Ack, Policy};
    use types::{Attr, FileType, Seq, Timestamp};

    use super::*;
    use crate::{Mode, Namespace};

    #[test]
    fn an_inode_is_below_the_paths_that_lead_to_it_and_below_no_other() {
        let mut namespace = Namespace::new();
        namespace.make_root(&types::Cred::root(), Timestamp(1));
        let dir = FileType::Directory.mode_bits() | 0o755;
        let made = [(Ino::ROOT, b"a", 10, dir), (Ino(10), b"b", 11, dir), (Ino(11), b"f", 12, dir)];
        for (parent, name, ino, mode) in made {
            let create = Create { parent, name, ino: Ino(ino), mode, ..Create::default() };
            let _ = namespace.apply(Seq(1), Mode::Live, &Event::Create(create));
        }
        let below =
            |ino, path: &str| namespace.is_quickly_below(Ino(ino), &Path::parse(path).unwrap());
        for path in ["/", "/a", "/a/b", "/a/b/f"] {
            assert!(below(12, path), "{path}");
        }
        for path in ["/b", "/a/f", "/b/f", "/a/b/f/x", "/a/x"] {
            assert!(!below(12, path), "{path}");
        }
        assert!(below(10, "/a") && !below(10, "/a/b") && !below(99, "/"));
        assert!(namespace.is_quickly_below(Ino::ROOT, &Path::root()));
    }

    #[test]
    fn a_detached_directory_inherits_its_policy_once_its_parent_is_known() {
        let dir = FileType::Directory.mode_bits() | 0o755;
        let (above, below, file) = (Ino(10), Ino(11), Ino(12));
        let mut namespace = Namespace::new();
        namespace.make_root(&types::Cred::root(), Timestamp(1));
        let make = |parent, name, ino, mode| {
            Event::Create(Create { parent, name, ino, mode, ..Create::default() })
        };
        let strong = policy::Cell::from_name("strong-global").unwrap();
        let text = Policy { ack: Ack::Safe, ..Policy::of_cell(strong) }.to_yaml();
        let policy = text.as_bytes();
        let time = Timestamp(1);
        let events = [
            make(Ino::ROOT, b"above".as_slice(), above, dir),
            Event::SetPolicy { ino: above, home: Ino::ROOT, policy, time },
            // As a journal says it of a directory that only the store has.
            make(below, b"file", file, FileType::Regular.mode_bits()),
        ];
        for (seq, event) in (1..).zip(&events) {
            namespace.apply(Seq(seq), Mode::Replay, event);
        }
        assert_eq!(namespace.effective_policy(below).0, None);
        let attr = Attr { ino: below, mode: dir, nlink: 2, ..Attr::default() };
        namespace.store().load_entry(above, b"below", &attr, b"");
        let (from, policy) = namespace.effective_policy(below);
        assert_eq!((from, policy.ack_safe), (Some(above), true));
    }
}
