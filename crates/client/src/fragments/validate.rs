//! The invariants of the map of fragments.

use types::Frag;

use super::FragmentMap;

impl FragmentMap {
    /// Checks that the map of fragments and that of their directories agree.
    ///
    /// # Panics
    /// If they do not.
    pub fn validate(&self) {
        for (dir, known) in &self.dirs {
            for part in known.parts {
                let whole = self.whole_of(part);
                assert!(whole == Some(*dir), "{part} is a fragment of {dir}, and not of {whole:?}");
                assert!(part != *dir, "{dir}: a directory is no fragment of itself");
            }
        }
        let fragments = self.dirs.len() * Frag::SPLIT_WAYS;
        assert!(self.whole.len() == fragments, "each of {fragments} fragments has a directory");
    }
}
