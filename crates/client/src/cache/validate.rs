//! The invariants of the cache.

use types::{Ino, Map};

use super::{Asked, Cache};

impl Cache {
    /// Checks the invariants of the cache.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let names: usize = self.dirs.values().map(|dir| dir.names.len()).sum();
        assert!(names == self.names, "{names} names are cached, and {} counted", self.names);
        let files: usize = self.dirs.values().map(|dir| dir.files.len()).sum();
        assert!(files == self.homes.len(), "{files} files have attributes and a home");
        for (file, home) in &self.homes {
            let known = self.dirs.get(home).is_some_and(|dir| dir.files.contains_key(file));
            assert!(known, "{file}: the attributes are with the directory {home}");
        }
        for (tid, ino) in &self.changing {
            let change = matches!(self.asked.get(tid), Some(Asked::Change { .. }));
            assert!(change, "{ino}: the change {tid} is under way");
        }
        for dir in &self.announced {
            assert!(!self.dirs.contains_key(dir), "{dir} will be returned, and is not cached");
        }
        let mut returning: Map<Ino, u32> = Map::default();
        for asked in self.asked.values() {
            if let Asked::Return(dir) = asked {
                *returning.entry(*dir).or_default() += 1;
            }
        }
        for (dir, count) in &self.returning {
            let found = returning.remove(dir).unwrap_or_default();
            assert!(found == *count, "{dir} is being returned {found} times, not {count}");
        }
        assert!(returning.is_empty(), "the returns {returning:?} are counted");
    }
}
