//! The places of inodes of the base for a server that does not have them in memory. A server evicts
//! inodes, after a start it has none, and a number alone does not show where an inode is stored. A
//! walk to the inode loads it. The walk uses the names of the base, and the view may have moved
//! some.
//!
//! Invariant: an inode of the base without an entry here has the same place in the view and in the
//! base, or is not in the view.

use namespace::Namespace;
use types::{Attr, EntryName, Ino, Map, PATH_BYTES_MAX, Path};

use super::SubtreeJob;

/// Directory and name in the base of inodes that the view has in another place, or under several
/// names.
#[derive(Debug, Default)]
pub struct Places(Map<Ino, (Ino, Vec<u8>)>);

impl Places {
    /// Notes a place. The first place counts: later ones are the view's.
    pub fn note(&mut self, ino: Ino, EntryName { dir, name }: EntryName<'_>) {
        self.0.entry(ino).or_insert_with(|| (dir, name.to_vec()));
    }

    /// Notes the place of a loaded entry if the view has it in another place, or does not know its
    /// place: an inode with several names is stored apart from them.
    pub fn note_loaded(&mut self, view: &Namespace, entry: EntryName<'_>, attr: &Attr) {
        let has_names = attr.nlink > 1 && !attr.is_dir();
        if has_names || view.peek(entry.dir, entry.name) != Ok(Some(attr.ino)) {
            self.note(attr.ino, entry);
        }
    }

    /// The path to an inode below the root, in the base or in the view.
    fn path_to(
        &self,
        view: &Namespace,
        root: Ino,
        ino: Ino,
        in_base: bool,
    ) -> Option<Vec<Vec<u8>>> {
        let (mut names, mut bytes, mut at) = (Vec::new(), 0, ino);
        while at != root {
            let noted = in_base.then(|| self.0.get(&at).cloned()).flatten();
            let (dir, name) = noted.or_else(|| view.name_of(at))?;
            bytes += name.len() + 1;
            if bytes > PATH_BYTES_MAX {
                // Places of different times may form a ring.
                return None;
            }
            names.push(name);
            at = dir;
        }
        names.reverse();
        Some(names)
    }
}

impl SubtreeJob {
    /// Everything is merged: server and view agree on all places.
    pub fn resolve_places(&mut self) {
        if !self.places.0.is_empty() {
            let view = self.inner.view().namespace();
            self.places.0.retain(|ino, (dir, name)| view.peek(*dir, name) == Ok(Some(*ino)));
        }
    }

    /// The paths on which a server may find an inode of the base, below the path of the root:
    /// merged inodes have the place of the view.
    pub fn paths_to(&mut self, path: &Path, ino: Ino) -> Vec<Path> {
        let root = self.root();
        let view = self.inner.view().namespace();
        let names = [true, false]
            .into_iter()
            .filter_map(|in_base| self.places.path_to(view, root, ino, in_base));
        let joined =
            |names: Vec<Vec<u8>>| names.iter().fold(path.clone(), |at, name| at.join(name));
        names.map(joined).collect()
    }
}

#[cfg(test)]
mod tests {
    use types::{Cred, FileType, RenameFlags, Seq, Timestamp};

    use super::super::sync::tests::job;
    use super::*;

    #[test]
    fn a_moved_inode_of_the_base_has_its_old_path_first() {
        let mut job = job("weak-none", 0);
        let (root, moved) = (job.root(), Ino(77));
        let mode = FileType::Regular.mode_bits() | 0o644;
        let attr = Attr { ino: moved, mode, nlink: 1, ..Attr::default() };
        let view = job.inner.view().namespace_mut();
        view.store().load_entry(root, b"old", &attr, b"");
        view.store().finish_load(root, Seq(0), Default::default());
        job.places.note_loaded(view, EntryName::new(root, b"old"), &attr);
        assert!(job.places.0.is_empty(), "the view has it in the same place");
        job.places.note(moved, EntryName::new(root, b"old"));
        let (from, to) = (EntryName::new(root, b"old"), EntryName::new(root, b"new"));
        let flags = RenameFlags::default();
        job.inner.rename(&Cred::root(), from, to, flags, Timestamp(1)).unwrap();
        let path = Path::parse(b"/job").unwrap();
        let paths: Vec<_> = job.paths_to(&path, moved).iter().map(Path::to_string).collect();
        assert_eq!(paths, ["/job/old", "/job/new"]);
        job.resolve_places();
        assert_eq!(job.paths_to(&path, moved).len(), 2, "both are the view's");
        assert!(job.places.0.is_empty() && job.paths_to(&path, Ino(78)).is_empty());
    }
}
