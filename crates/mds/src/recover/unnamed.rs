//! Directories with changes in the journal to which no name leads any more.
//!
//! A merge under a policy without durability is in no journal, but requests of other clients in the
//! merged directories are. A crash undoes the merge: then the journal has changes of directories
//! that no event makes. Or the store has the merge already, and with it another directory in the
//! place of one that the journal makes. A checkpoint would write such a directory, and no name
//! would lead to it (`fsck`: unreachable).
//!
//! So a directory whose inode is not in memory after the replay is looked for in the store, which
//! has a manifest of each directory that it has a name of. Without a manifest, it is forgotten.

use metastore::manifest_name;
use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{DirFragId, Ino};

use super::Step;
use crate::damage::is_damage;
use crate::{Effects, Mds, Waiting};

/// Manifests that are read at the same time.
const READS_MAX: usize = 64;

/// The directories without an inode in memory.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    left: Vec<Ino>,
    reading: usize,
}

impl Mds {
    pub(super) fn find_unnamed(&mut self, effects: &mut Effects) {
        self.recovery.step = Step::FindUnnamed;
        self.recovery.unnamed.left = self.namespace.unnamed_dirs();
        self.read_unnamed(effects);
    }

    fn read_unnamed(&mut self, effects: &mut Effects) {
        while self.recovery.unnamed.reading < READS_MAX
            && let Some(ino) = self.recovery.unnamed.left.pop()
        {
            self.recovery.unnamed.reading += 1;
            let object = manifest_name(DirFragId { ino, ..DirFragId::default() });
            self.store(Waiting::Unnamed(ino), StoreOp::Get { object }, effects);
        }
        if self.recovery.unnamed.reading == 0 {
            self.recovered(effects);
        }
    }

    pub(crate) fn unnamed_read(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut Effects,
    ) {
        self.recovery.unnamed.reading = self.recovery.unnamed.reading.saturating_sub(1);
        match result {
            Ok(StoreResult::Missing) => {
                let inner = self.namespace.forget_unnamed(dir);
                self.recovery.unnamed.left.extend(inner);
            }
            Err(failure) if !is_damage(failure.error.errno) => {
                effects.fatal = Some(failure.error);
                return;
            }
            // The directory has a name, or `fsck` repairs it.
            Ok(_) | Err(_) => {}
        }
        self.read_unnamed(effects);
    }
}
