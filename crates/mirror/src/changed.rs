//! The names that a watch has reported, as the smallest list of names to look at.

use std::collections::BTreeMap;

use types::{FileType, Ino, Path};
use wire::{ChangeKind, ChangedName, WatchedChange};

/// The extent of the comparison at a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameChange {
    /// A directory with everything below it, and not the name alone.
    pub(crate) is_tree: bool,
    /// How often the name got another inode than before: the content is read then, because another
    /// file can have the same length and time.
    pub(crate) bindings: u32,
}

impl NameChange {
    const NAME: Self = Self { is_tree: false, bindings: 0 };
    const BOUND: Self = Self { is_tree: false, bindings: 1 };
    const TREE: Self = Self { is_tree: true, bindings: 0 };
    const BOUND_TREE: Self = Self { is_tree: true, bindings: 1 };

    fn add(&mut self, other: Self) {
        self.is_tree |= other.is_tree;
        self.bindings = self.bindings.saturating_add(other.bindings);
    }
}

/// The names of a round, relative to the root of the mirror.
///
/// Invariant: `ChangedNames::names` has no name below a tree of the list, except those that got
/// another inode: the content below a tree may not be read.
#[derive(Debug, Default)]
pub struct ChangedNames {
    names: BTreeMap<Vec<u8>, NameChange>,
    /// Old and new names of renames, in their order.
    moves: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files with several names that changed.
    inodes: Vec<Ino>,
    /// The changes are not known: everything is to be compared.
    everything: bool,
}

impl ChangedNames {
    /// Notes that changes were lost, or happened above the root.
    pub fn note_everything(&mut self) {
        self.everything = true;
    }

    /// Whether nothing was noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty() && self.inodes.is_empty()
    }

    /// Notes a change of a watch of `root`.
    pub fn note(&mut self, root: &Path, change: &WatchedChange) {
        let WatchedChange { kind, file_type, ino, at, to, .. } = change;
        let is_dir = *file_type == FileType::Directory;
        let bound = if is_dir { NameChange::BOUND_TREE } else { NameChange::BOUND };
        match kind {
            // A new directory may take the name of one that the copy still has.
            ChangeKind::Create | ChangeKind::Mkdir | ChangeKind::Link => {
                self.at(root, change, bound);
            }
            ChangeKind::Unlink
            | ChangeKind::Rmdir
            | ChangeKind::MovedFrom
            | ChangeKind::RemoveTree
            | ChangeKind::SetAttr
            | ChangeKind::Content => match at {
                Some(_) => self.at(root, change, NameChange::NAME),
                None => self.inodes.push(*ino),
            },
            ChangeKind::Rename => {
                let to = to.as_ref().and_then(|to| self.add(root, to, bound));
                let from = at.as_ref().and_then(|at| self.add(root, at, NameChange::NAME));
                if let Some((from, to)) = from.zip(to) {
                    self.rename(&from, &to);
                    self.moves.push((from, to));
                }
            }
            ChangeKind::Exchange => {
                for name in [at, to].into_iter().flatten() {
                    self.add(root, name, NameChange::BOUND_TREE);
                }
            }
            ChangeKind::MovedTo => {
                if let Some(name) = to.as_ref().or(at.as_ref()) {
                    self.add(root, name, bound);
                }
            }
            ChangeKind::Restore | ChangeKind::Merge | ChangeKind::Release => {
                self.at(root, change, NameChange::TREE);
            }
            // The copy has neither extended attributes nor policies; a subtree shows its changes
            // when they are merged, and at its new rank it is the same.
            ChangeKind::SetXattr
            | ChangeKind::RemoveXattr
            | ChangeKind::Policy
            | ChangeKind::Decouple
            | ChangeKind::Departed
            | ChangeKind::Arrived => {}
        }
    }

    /// Adds the name of a change.
    fn at(&mut self, root: &Path, change: &WatchedChange, what: NameChange) {
        if let Some(at) = &change.at {
            self.add(root, at, what);
        }
    }

    /// Adds a name, and returns the name relative to the root.
    fn add(&mut self, root: &Path, name: &ChangedName, what: NameChange) -> Option<Vec<u8>> {
        let Some(relative) = relative(root, &name.path) else {
            self.everything = true;
            return None;
        };
        self.names.entry(relative.clone()).or_default().add(what);
        Some(relative)
    }

    /// Adds the changes at and below a name before a rename to those of the new name.
    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let above = self.names.iter().filter(|(name, _)| is_below(from, name));
        if above.map(|(_, change)| change.bindings).sum::<u32>() > 0 {
            // The copy may have another directory there, and another file in it.
            self.names.entry(to.to_vec()).or_default().add(NameChange::BOUND);
        }
        let is_moved = |name: &[u8]| name == from || is_below(name, from);
        let moved = self.names.iter().filter(|(name, _)| is_moved(name));
        let moved: Vec<_> =
            moved.map(|(name, change)| ([to, &name[from.len()..]].concat(), *change)).collect();
        for (name, change) in moved {
            self.names.entry(name).or_default().add(change);
        }
    }

    /// Whether a rename is the only change that gave the new name its inode: the copy of the old
    /// name is that of the new one then.
    pub(crate) fn is_only_binding(&self, name: &[u8]) -> bool {
        self.names.get(name).is_some_and(|change| change.bindings == 1)
    }

    /// Whether everything is to be compared.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// The renames.
    pub(crate) fn moves(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.moves
    }

    /// The changed files with several names.
    pub(crate) fn inodes(&self) -> &[Ino] {
        &self.inodes
    }

    /// The names, a directory before the names in it.
    pub(crate) fn names(&self) -> Vec<(&[u8], NameChange)> {
        let mut names: Vec<(&[u8], NameChange)> = Vec::new();
        let mut covered: Option<&[u8]> = None;
        // In the order of their components, everything below a name follows it.
        let mut sorted: Vec<_> = self.names.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.split(is_slash).cmp(b.split(is_slash)));
        for (name, change) in sorted {
            let is_covered = covered.is_some_and(|tree| is_below(name, tree));
            if is_covered && change.bindings == 0 {
                continue;
            }
            if change.is_tree && !is_covered {
                covered = Some(name);
            }
            names.push((name, *change));
        }
        names
    }
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// Whether a relative name lies in a directory.
fn is_below(name: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || name.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))
}

/// A path of the namespace relative to the root of the mirror, which is the empty name itself.
fn relative(root: &Path, path: &[u8]) -> Option<Vec<u8>> {
    let root = root.to_bytes();
    let root = root.strip_suffix(b"/").unwrap_or(&root);
    let rest = path.strip_prefix(root)?;
    if rest.is_empty() || rest == b"/" {
        return Some(Vec::new());
    }
    rest.strip_prefix(b"/").map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: ChangeKind, file_type: FileType, at: &str, to: Option<&str>) -> WatchedChange {
        let name = |path: &str| ChangedName { dir: Ino(1), path: path.into() };
        let at = (!at.is_empty()).then(|| name(at));
        WatchedChange { kind, file_type, ino: Ino(9), at, to: to.map(name), ..Default::default() }
    }

    fn noted(root: &str, changes: &[WatchedChange]) -> ChangedNames {
        let mut names = ChangedNames::default();
        let root = Path::parse(root).unwrap();
        changes.iter().for_each(|change| names.note(&root, change));
        names
    }

    #[test]
    fn names_below_a_tree_are_left_out_and_directories_come_first() {
        use ChangeKind::{Content, Create, Merge};
        let file = FileType::Regular;
        let names = noted(
            "/p",
            &[
                change(Create, file, "/p/job/x", None),
                change(Create, file, "/p/job-2/x", None),
                change(Merge, FileType::Directory, "/p/job", None),
                change(Content, file, "/p/job/x/y", None),
                change(Create, file, "/p/a", None),
            ],
        );
        let expected: [(&[u8], NameChange); 4] = [
            (b"a", NameChange::BOUND),
            (b"job", NameChange::TREE),
            (b"job/x", NameChange::BOUND),
            (b"job-2/x", NameChange::BOUND),
        ];
        assert_eq!(names.names(), expected);
        assert!(!names.is_everything());
    }

    #[test]
    fn a_rename_is_a_move_and_two_names() {
        let names =
            noted("/", &[change(ChangeKind::Rename, FileType::Directory, "/a", Some("/b/c"))]);
        assert_eq!(names.moves(), [(b"a".to_vec(), b"b/c".to_vec())]);
        let expected: [(&[u8], NameChange); 2] =
            [(b"a", NameChange::NAME), (b"b/c", NameChange::BOUND_TREE)];
        assert_eq!(names.names(), expected);
    }

    #[test]
    fn earlier_changes_follow_a_rename() {
        use ChangeKind::{Create, Rename};
        let (file, dir) = (FileType::Regular, FileType::Directory);
        let names = noted(
            "/",
            &[
                change(Create, file, "/a/x", None),
                change(Create, file, "/ab", None),
                change(Rename, dir, "/a", Some("/b")),
                change(Create, file, "/f", None),
                change(Rename, file, "/f", Some("/g")),
            ],
        );
        assert_eq!(names.names.get(&b"b/x"[..]), Some(&NameChange::BOUND));
        assert!(!names.names.contains_key(&b"bb"[..]));
        assert!(names.is_only_binding(b"b"));
        assert!(!names.is_only_binding(b"g"), "the copy of f is an older file");
        let dirs = change(ChangeKind::Exchange, dir, "/c", Some("/d"));
        let names = noted("/", &[dirs, change(Rename, file, "/c/x", Some("/y"))]);
        assert!(!names.is_only_binding(b"y"), "the copy of c is that of d");
    }

    #[test]
    fn changes_above_the_root_concern_everything() {
        let names =
            noted("/p/q", &[change(ChangeKind::Rename, FileType::Directory, "/p", Some("/r"))]);
        assert!(names.is_everything());
        assert!(names.moves().is_empty());
        let own = noted("/p/q", &[change(ChangeKind::SetAttr, FileType::Directory, "/p/q", None)]);
        assert_eq!(own.names(), [(&b""[..], NameChange::NAME)]);
        let similar =
            noted("/p/q", &[change(ChangeKind::Create, FileType::Regular, "/p/qq", None)]);
        assert!(similar.is_everything());
    }

    #[test]
    fn a_file_with_several_names_is_known_by_its_number() {
        let names = noted("/", &[change(ChangeKind::Content, FileType::Regular, "", None)]);
        assert_eq!(names.inodes(), [Ino(9)]);
        assert!(!names.is_empty());
        let nothing = noted("/", &[change(ChangeKind::SetXattr, FileType::Regular, "/a", None)]);
        assert!(nothing.is_empty());
    }
}
