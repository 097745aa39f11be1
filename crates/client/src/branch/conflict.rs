//! Changes in both a branch and the trunk, and the journal without the changes that the trunk wins
//! (E-04).
//!
//! A name is in conflict if the branch changed it, and the trunk has another object under it than
//! the snapshot: another inode, the same inode with other content or attributes, or none any more.
//! Two directories of one name are not in conflict: the two become one, and their entries are
//! compared name by name. The branch's own objects cause no conflict: a merge may be repeated.
//!
//! Not here: who wins. Under the rule that the branch does, a merge needs none of this.
//!
//! Invariant: an event that depends on a left-out event is left out, too.

use journal::{Event, JournalBuffer, JournalError, SegmentReader};
use types::{Attr, EntryName, FileType, Ino, InoRange, Map, Origin, Seq, Set};

use super::LayerError;

/// The objects that snapshot and trunk have under names. Directories are known by number.
pub trait Sides {
    /// The error of a look-up.
    type Error;

    /// The object of a directory's name in the snapshot.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn base(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>, Self::Error>;

    /// The object in the trunk; None if the trunk has no such directory any more.
    ///
    /// # Errors
    /// If the trunk does not answer.
    fn trunk(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>, Self::Error>;

    /// The name of an inode in a directory of the snapshot.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn base_name(&mut self, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// A name that both have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConflictingName {
    /// Its directory; of one that the branch made the number that it has there.
    pub dir: Ino,
    /// The name.
    pub name: Vec<u8>,
}

/// The conflicts of a branch with the trunk.
#[derive(Debug, Default)]
pub struct BranchConflicts {
    /// The names, in the order in which the branch came to them.
    pub clashes: Vec<ConflictingName>,
    /// Directories that the branch made, each with the directory and the name that it had first.
    pub made: Map<Ino, (Ino, Vec<u8>)>,
    /// Which events are left to the trunk, by number from 0.
    left: Set<u64>,
}

impl BranchConflicts {
    /// How many events are left out if the trunk wins.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left.len() as u64
    }
}

/// Compares the changes of a branch's layers, oldest first, with the trunk's changes since the
/// snapshot. `numbers` are the branch's own.
///
/// # Errors
/// If a layer is damaged, or one of the sides cannot be read.
pub fn conflicts<S: Sides>(
    layers: &[Vec<u8>],
    numbers: &[InoRange],
    sides: &mut S,
) -> Result<BranchConflicts, LayerError<S::Error>> {
    let mut judge = Judge::new(numbers, sides);
    each(layers, |_, event| judge.look(event).map_err(LayerError::Fetch))?;
    let Judge { clashes, mut dropped, names, made, .. } = judge;
    let made = made.into_iter().map(|(dir, made)| (dir, made.place)).collect();
    let mut found = BranchConflicts { clashes, made, left: Set::default() };
    // An inode may be dropped by an event behind its create.
    each(layers, |number, event| {
        let is_left = |dir: Ino, name: &[u8]| {
            dropped.contains(&dir) || names.get(&dir).and_then(|all| all.get(name)) == Some(&true)
        };
        let mut left = event.inode().is_some_and(|ino| dropped.contains(&ino))
            || event.dentry().is_some_and(|(dir, name)| is_left(dir, name));
        if let Event::Rename { new_parent, new_name, .. } = *event {
            left |= is_left(new_parent, new_name);
        }
        if left {
            found.left.insert(number);
        }
        if let Event::Create(new) = event
            && left
        {
            // And all that is in it.
            dropped.insert(new.ino);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The events of layers as one journal, from position 1 on, without those that are left out.
///
/// # Errors
/// If a layer is damaged.
pub fn joined(
    layers: &[Vec<u8>],
    left: Option<&BranchConflicts>,
) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut buffer = JournalBuffer::new(Seq(1), false);
    let result = each(layers, |number, event| {
        if left.is_none_or(|found| !found.left.contains(&number)) {
            buffer.append(Origin::default(), event);
        }
        Ok::<(), LayerError<std::convert::Infallible>>(())
    });
    match result {
        Ok(()) => {}
        Err(LayerError::Damaged(error)) => return Err(error),
        Err(LayerError::Fetch(never)) => match never {},
    }
    buffer.close_block();
    Ok(buffer.take_blocks())
}

fn each<E>(
    layers: &[Vec<u8>],
    mut act: impl FnMut(u64, &Event<'_>) -> Result<(), LayerError<E>>,
) -> Result<(), LayerError<E>> {
    let mut number = 0;
    for layer in layers {
        let mut reader = SegmentReader::open(layer)?;
        while let Some(block) = reader.next_block()? {
            let mut events = block.events();
            while let Some(record) = events.next_event()? {
                act(number, &record.event)?;
                number += 1;
            }
        }
    }
    Ok(())
}

/// A directory that the branch made.
struct Made {
    /// The place and the kind of object.
    place: (Ino, Vec<u8>),
    /// The one of the trunk that it becomes one with.
    other: Option<Ino>,
}

struct Judge<'a, S> {
    sides: &'a mut S,
    numbers: &'a [InoRange],
    /// Directories that the branch made.
    made: Map<Ino, Made>,
    /// Other inodes that it made.
    files: Set<Ino>,
    /// Names that it changed, and whether the trunk did, too.
    names: Map<Ino, Map<Vec<u8>, bool>>,
    /// The snapshot's names of inodes that the branch moved.
    moved: Map<Ino, (Ino, Vec<u8>)>,
    /// Inodes whose events are all left out.
    dropped: Set<Ino>,
    clashes: Vec<ConflictingName>,
}

impl<'a, S: Sides> Judge<'a, S> {
    fn new(numbers: &'a [InoRange], sides: &'a mut S) -> Self {
        Self {
            sides,
            numbers,
            made: Map::default(),
            files: Set::default(),
            names: Map::default(),
            moved: Map::default(),
            dropped: Set::default(),
            clashes: Vec::new(),
        }
    }

    fn look(&mut self, event: &Event<'_>) -> Result<(), S::Error> {
        match *event {
            Event::Create(ref new) => {
                let is_dir = new.file_type() == FileType::Directory;
                let place = EntryName::new(new.parent, new.name);
                let both = if is_dir { self.directory_of_trunk(place)? } else { None };
                if is_dir {
                    let place = (new.parent, new.name.to_vec());
                    self.made.insert(new.ino, Made { place, other: both });
                } else {
                    self.files.insert(new.ino);
                }
                if self.is_below_dropped(new.parent) || (both.is_none() && self.is_clash(place)?) {
                    self.dropped.insert(new.ino);
                }
                if both.is_some() {
                    self.note(place, false);
                }
            }
            Event::Link { parent, name, .. }
            | Event::Unlink { parent, name, .. }
            | Event::Rmdir { parent, name, .. } => {
                self.is_clash(EntryName::new(parent, name))?;
            }
            Event::Rename { parent, name, new_parent, new_name, ref moved, .. } => {
                let ino = moved.attr.ino;
                let (from, to) = (
                    self.is_clash(EntryName::new(parent, name))?,
                    self.is_clash(EntryName::new(new_parent, new_name))?,
                );
                if !self.is_made(ino) && !self.moved.contains_key(&ino) {
                    self.moved.insert(ino, (parent, name.to_vec()));
                }
                if from || to {
                    // The trunk wins both names, and the branch's own objects move with them.
                    self.note(EntryName::new(parent, name), true);
                    self.note(EntryName::new(new_parent, new_name), true);
                    if self.is_made(ino) {
                        self.dropped.insert(ino);
                    }
                }
            }
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. } => {
                if self.is_made(ino) || home == Ino::LINKS {
                    return Ok(());
                }
                let place = match self.moved.get(&ino) {
                    Some((dir, name)) => Some((*dir, name.clone())),
                    None => self.sides.base_name(home, ino)?.map(|name| (home, name)),
                };
                if let Some((dir, name)) = place
                    && self.is_clash(EntryName::new(dir, &name))?
                {
                    self.dropped.insert(ino);
                }
            }
            Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => {}
        }
        Ok(())
    }

    fn is_made(&self, ino: Ino) -> bool {
        self.files.contains(&ino) || self.made.contains_key(&ino)
    }

    fn is_below_dropped(&self, dir: Ino) -> bool {
        self.dropped.contains(&dir)
    }

    /// The directory that the trunk has made under a name, too.
    fn directory_of_trunk(
        &mut self,
        EntryName { dir, name }: EntryName<'_>,
    ) -> Result<Option<Ino>, S::Error> {
        if self.names.get(&dir).is_some_and(|names| names.contains_key(name)) {
            return Ok(None);
        }
        let (base, trunk) = self.both(EntryName { dir, name })?;
        Ok(trunk.filter(|trunk| base.is_none() && trunk.is_dir()).map(|trunk| trunk.ino))
    }

    /// The object of a name in the snapshot, and its object in the trunk.
    fn both(
        &mut self,
        EntryName { dir, name }: EntryName<'_>,
    ) -> Result<(Option<Attr>, Option<Attr>), S::Error> {
        match self.made.get(&dir).map(|made| made.other) {
            Some(None) => Ok((None, None)),
            Some(Some(other)) => Ok((None, self.sides.trunk(other, name)?)),
            None => Ok((self.sides.base(dir, name)?, self.sides.trunk(dir, name)?)),
        }
    }

    /// Whether the trunk has changed a name, too. Decided when the branch comes to it first.
    fn is_clash(&mut self, EntryName { dir, name }: EntryName<'_>) -> Result<bool, S::Error> {
        if let Some(known) = self.names.get(&dir).and_then(|names| names.get(name)) {
            return Ok(*known);
        }
        let (base, trunk) = self.both(EntryName { dir, name })?;
        let own = trunk.is_some_and(|trunk| self.numbers.iter().any(|it| it.contains(trunk.ino)));
        let clash = !own && !is_same(base.as_ref(), trunk.as_ref());
        self.note(EntryName { dir, name }, clash);
        if clash {
            self.clashes.push(ConflictingName { dir, name: name.to_vec() });
        }
        Ok(clash)
    }

    fn note(&mut self, EntryName { dir, name }: EntryName<'_>, clash: bool) {
        self.names.entry(dir).or_default().insert(name.to_vec(), clash);
    }
}

/// Whether a name has the same, unchanged object as before. A directory changes when its own
/// attributes do.
fn is_same(base: Option<&Attr>, trunk: Option<&Attr>) -> bool {
    match (base, trunk) {
        (None, None) => true,
        (Some(base), Some(trunk)) => {
            let plain = |attr: &Attr| (attr.ino, attr.mode, attr.uid, attr.gid);
            let content = |attr: &Attr| (attr.ctime, attr.mtime, attr.size);
            plain(base) == plain(trunk) && (base.is_dir() || content(base) == content(trunk))
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests;
