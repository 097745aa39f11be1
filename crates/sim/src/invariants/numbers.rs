//! Promise: an inode number never has two owners, whatever crashes (A-04, J-14): neither two
//! requests nor two clients, nor a client and the server.

use std::collections::BTreeMap;

use types::{ClientId, Ino, InoRange};

use crate::oracle::Key;

/// Who has which numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    ranges: Vec<(InoRange, ClientId)>,
    used: BTreeMap<Ino, Key>,
}

impl Numbers {
    /// A range was given to a client.
    ///
    /// # Errors
    /// If a number in it is somebody else's.
    pub fn grant(&mut self, client: ClientId, range: InoRange) -> Result<(), String> {
        for (known, owner) in &self.ranges {
            if *known == range && *owner == client {
                return Ok(());
            }
            if known.start < range.end && range.start < known.end {
                return Err(format!("{range:?} was given to {client}, but {owner} has {known:?}"));
            }
        }
        if let Some((ino, (owner, tid))) = self.used.range(Ino(range.start)..Ino(range.end)).next()
        {
            return Err(format!("{range:?} was given to {client}, but {owner} {tid} has {ino}"));
        }
        self.ranges.push((range, client));
        Ok(())
    }

    /// The server gave a number to what a request created.
    ///
    /// # Errors
    /// If it is somebody else's.
    pub fn use_one(&mut self, key: Key, ino: Ino) -> Result<(), String> {
        if let Some((range, owner)) = self.ranges.iter().find(|(range, _)| range.contains(ino)) {
            return Err(format!("{ino} was used by the server, but {owner} has {range:?}"));
        }
        match self.used.insert(ino, key) {
            Some(owner) if owner != key => {
                Err(format!("{ino} was given to {owner:?} and to {key:?}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
