//! Promise: an inode number never has two owners, whichever process crashes (A-04, J-14): neither
//! two requests nor two clients, nor a client and the server. A number that a client returned
//! unused has no owner until it is granted again; a used number names one file for ever.

use std::collections::BTreeMap;

use types::{ClientId, Ino, InoRange, Tid};

use crate::oracle::Key;

/// The owner of each number.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    ranges: Vec<(InoRange, ClientId)>,
    used: BTreeMap<Ino, Key>,
}

impl Numbers {
    /// A range was given to a client.
    ///
    /// # Errors
    /// If a number in it has another owner.
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

    /// A client appended the creation of an inode to its journal.
    ///
    /// # Errors
    /// If the number is not its own, or names something else.
    pub fn take(&mut self, client: ClientId, ino: Ino) -> Result<(), String> {
        let own = |(range, owner): &(InoRange, ClientId)| *owner == client && range.contains(ino);
        if !self.ranges.iter().any(own) {
            return Err(format!("{client} used {ino}, which it does not have"));
        }
        match self.used.insert(ino, (client, Tid(0))) {
            Some(owner) => Err(format!("{client} used {ino}, which {owner:?} has")),
            None => Ok(()),
        }
    }

    /// A client returned the unused end of a range: it may be granted again.
    pub fn give_up(&mut self, client: ClientId, unused: InoRange) {
        for (range, owner) in &mut self.ranges {
            if *owner == client && range.end == unused.end && range.start <= unused.start {
                range.end = unused.start;
            }
        }
        self.ranges.retain(|(range, _)| !range.is_empty());
    }

    /// The server allocated a number to the inode of a request.
    ///
    /// # Errors
    /// If it has another owner.
    pub fn use_one(&mut self, key: Key, ino: Ino) -> Result<(), String> {
        let theirs =
            |(range, owner): &&(InoRange, ClientId)| range.contains(ino) && *owner != key.0;
        if let Some((range, owner)) = self.ranges.iter().find(theirs) {
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
