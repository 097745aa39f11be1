//! The places of inodes of the base for a server that does not have them in memory. A server evicts
//! inodes, after a start it has none, and a number alone does not show where an inode is stored. A
//! walk to the inode loads it. The walk uses the names of the base, and the view may have moved
//! some.
//!
//! Invariant: an inode of the base without an entry here has the same place in the view and in the
//! base, or is not in the view.

use namespace::Namespace;
use types::{Attr, Cred, Errno, Error, Ino, Map, PATH_BYTES_MAX, Path, Result};
use wire::{Answer, Op, ReadOp};

use super::Subtree;

/// Directory and name in the base of inodes that the view has in another place, or under several
/// names.
#[derive(Debug, Default)]
pub(super) struct Places(Map<Ino, (Ino, Vec<u8>)>);

impl Places {
    /// The first place counts: later ones are the view's.
    pub(super) fn note(&mut self, ino: Ino, (dir, name): (Ino, &[u8])) {
        self.0.entry(ino).or_insert_with(|| (dir, name.to_vec()));
    }
}

/// Whether the view has a loaded entry of the base in another place, or does not know its place: an
/// inode with several names is stored apart from them.
pub(super) fn stands_elsewhere(view: &Namespace, (dir, name): (Ino, &[u8]), attr: &Attr) -> bool {
    let has_names = attr.nlink > 1 && !attr.is_dir();
    has_names || view.peek(dir, name) != Ok(Some(attr.ino))
}

impl Subtree {
    /// Notes the place of the inode under a name that the view is about to remove.
    pub(super) fn note_place(&mut self, dir: Ino, name: &[u8]) {
        // After a failure here, the removal fails as well.
        let known = self.on_view(name, |inner| inner.view().namespace().peek(dir, name));
        if let Ok(Some(ino)) = known
            && !self.is_own(ino)
        {
            self.places.note(ino, (dir, name));
        }
    }

    /// Everything is merged: server and view agree on all places.
    pub(super) fn resolve_places(&mut self) {
        if !self.places.0.is_empty() {
            let namespace = self.job.inner.view().namespace();
            self.places.0.retain(|ino, (dir, name)| namespace.peek(*dir, name) == Ok(Some(*ino)));
        }
    }

    /// Asks the server about an inode of the base, and again after a walk if the server does not
    /// have it in memory.
    pub(super) fn ask_base<T>(
        &mut self,
        ino: Ino,
        ask: impl Fn(&crate::Fs) -> Result<T>,
    ) -> Result<T> {
        let stale = match ask(&self.fs) {
            Err(error) if error.errno == Errno::Stale => error,
            answered => return answered,
        };
        if self.walk_to(ino)? { ask(&self.fs) } else { Err(stale) }
    }

    /// Makes the server walk to an inode of the base. Returns whether it was found.
    pub(super) fn walk_to(&mut self, ino: Ino) -> Result<bool> {
        // Merged inodes have the place of the view.
        for in_base in [true, false] {
            let Some(path) = self.path_to(ino, in_base) else { continue };
            let path = path.to_bytes();
            match self
                .fs
                .call_as(&Cred::root(), Op::Read(ReadOp::Walk { base: Ino::ROOT, path: &path }))
            {
                Ok(Answer::Walked { attr: Some(attr), .. }) if attr.ino == ino => return Ok(true),
                Ok(Answer::Walked { .. }) => {}
                Ok(other) => return Err(crate::fs::unexpected(&other)),
                Err(Error { errno: Errno::NotFound | Errno::NotDirectory, .. }) => {}
                Err(error) => return Err(error.about(self.path.to_string())),
            }
        }
        Ok(false)
    }

    fn path_to(&mut self, ino: Ino, in_base: bool) -> Option<Path> {
        let root = self.root();
        let (places, namespace) = (&self.places, self.job.inner.view().namespace());
        let (mut names, mut bytes, mut at) = (Vec::new(), 0, ino);
        while at != root {
            let noted = in_base.then(|| places.0.get(&at).cloned()).flatten();
            let (dir, name) = noted.or_else(|| namespace.name_of(at))?;
            bytes += name.len() + 1;
            if bytes > PATH_BYTES_MAX {
                // Places of different times may form a ring.
                return None;
            }
            names.push(name);
            at = dir;
        }
        Some(names.iter().rev().fold(self.path.clone(), |path, name| path.join(name)))
    }
}
