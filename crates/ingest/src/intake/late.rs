//! Attributes of directories that wait until the names in them are made: times, which each new name
//! would change, permissions without which no name could be made, and access control lists, which
//! new inodes would inherit.

use cudele::{AttrChange, Ino, Result};
use types::acl;

use super::Target;

/// An access control list of a directory.
struct LateList {
    home: Ino,
    ino: Ino,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct LateAttributes {
    changes: Vec<(Ino, Ino, AttrChange)>,
    lists: Vec<LateList>,
}

impl LateAttributes {
    /// Attributes of a directory with a name in `home`.
    pub(super) fn change(&mut self, home: Ino, ino: Ino, change: AttrChange) {
        self.changes.push((home, ino, change));
    }

    /// Takes an extended attribute of a directory, if it is an access control list.
    pub(super) fn takes(&mut self, home: Ino, ino: Ino, name: &[u8], value: &[u8]) -> bool {
        let is_list = acl::is_list(name);
        if is_list {
            let (name, value) = (name.to_vec(), value.to_vec());
            self.lists.push(LateList { home, ino, name, value });
        }
        is_list
    }

    /// Sets them, those of a directory after those of the directories in it. Returns the number of
    /// lists.
    pub(super) fn set(self, target: &mut dyn Target) -> Result<u64> {
        let count = self.lists.len() as u64;
        for LateList { home, ino, name, value } in self.lists {
            target.set_xattr(home, ino, &name, &value)?;
        }
        target.flush()?;
        for (home, ino, change) in self.changes.into_iter().rev() {
            target.set_attr(home, ino, &change)?;
        }
        Ok(count)
    }
}
