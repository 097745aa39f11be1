//! The possible answers about a name: one client changes it, one change after the other, so its
//! value at every moment is known except for the exact time of each change.

use std::collections::{BTreeMap, BTreeSet};

use types::Ino;

/// A directory and a name in it.
pub(super) type Place = (Ino, String);

/// A value, and when it may have been that of its name.
#[derive(Clone, Copy, Debug)]
struct Span {
    ino: Option<Ino>,
    from: u64,
    until: u64,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Registers {
    names: BTreeMap<Place, Vec<Span>>,
    pub(super) linked: BTreeSet<Ino>,
    /// The last mark of each file by the client that changes its names.
    pub(super) said: BTreeMap<Ino, u32>,
}

impl Registers {
    /// The inode of a name, as the client that changes it knows.
    pub(super) fn now(&self, place: &Place) -> Option<Ino> {
        self.names.get(place).and_then(|spans| spans.last()).and_then(|span| span.ino)
    }

    /// A change was asked for at `asked` and answered at `answered`.
    pub(super) fn changed(
        &mut self,
        place: Place,
        ino: Option<Ino>,
        (asked, answered): (u64, u64),
    ) {
        let first = Span { ino: None, from: 0, until: u64::MAX };
        let spans = self.names.entry(place).or_insert_with(|| vec![first]);
        if let Some(last) = spans.last_mut() {
            last.until = answered;
        }
        spans.push(Span { ino, from: asked, until: u64::MAX });
    }

    /// Whether a name may have had that inode at some moment in between. `changing` is the result
    /// of a pending change.
    pub(super) fn may_be(
        &self,
        place: &Place,
        ino: Option<Ino>,
        (asked, answered): (u64, u64),
    ) -> bool {
        match self.names.get(place) {
            None => ino.is_none(),
            Some(spans) => spans
                .iter()
                .any(|span| span.ino == ino && span.from <= answered && asked <= span.until),
        }
    }

    /// Something was said of a file.
    pub(super) fn say(&mut self, ino: Ino, mode: u32) {
        self.said.insert(ino, mode);
    }

    /// How many names a file has.
    pub(super) fn names_of(&self, ino: Ino) -> usize {
        let last = self.names.values().filter_map(|spans| spans.last());
        last.filter(|span| span.ino == Some(ino)).count()
    }

    /// Whether a file has, or had, several names.
    pub(super) fn had_several(&self, ino: Ino) -> bool {
        self.linked.contains(&ino)
    }

    /// The names in a directory that exist.
    pub(super) fn in_dir(&self, dir: Ino) -> BTreeMap<String, Ino> {
        let names = self.names.iter().filter(|((parent, _), _)| *parent == dir);
        names.filter_map(|((_, name), spans)| Some((name.clone(), spans.last()?.ino?))).collect()
    }
}
