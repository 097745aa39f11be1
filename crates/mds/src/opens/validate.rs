//! The invariants of the open-file table.

use super::{File, Opens};

impl Opens {
    /// Checks the invariants of the table.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        for (ino, file) in &self.files {
            let is_used = !file.openers.is_empty() || file.sharing.is_some();
            assert!(is_used, "{ino}: a file in the table is open, or becomes shared");
            let listed = self.shared.contains(ino);
            let is_shared = file.shared || file.sharing.is_some();
            assert!(listed == is_shared, "{ino}: the list of shared files has the shared ones");
            let freed = file.freed.as_ref().is_none_or(|freed| freed.ino == *ino);
            assert!(freed, "{ino}: the removed inode of an open file is that file");
            file.validate();
        }
        let unknown = self.shared.iter().find(|ino| !self.files.contains_key(ino));
        assert!(unknown.is_none(), "{unknown:?} is shared, and not in the table");
    }
}

impl File {
    fn validate(&self) {
        for (client, opener) in &self.openers {
            assert!(opener.read || opener.write, "{client} has the file open for something");
        }
        if let Some(sharing) = &self.sharing {
            assert!(sharing.freed.is_none(), "only the end of sharing hands a removed file over");
        }
    }
}
