//! The invariants of directories with an exclusive capability.

use super::ExclusiveDirs;

impl ExclusiveDirs {
    /// Checks the invariants of the directories, and of the view.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let both = self.loading.keys().find(|dir| self.dirs.contains_key(*dir));
        assert!(both.is_none(), "{both:?} is being read, or is here: not both");
        let unknown = self.bare.iter().find(|ino| !self.view.knows(**ino));
        assert!(unknown.is_none(), "{unknown:?} is bare, and not in the view");
        let missing = self.dirs.keys().find(|dir| !self.view.is_complete(**dir));
        assert!(missing.is_none(), "each name in {missing:?} is in the view");
        self.validate_linking();
        self.groups.validate();
        self.view.validate();
    }
}
