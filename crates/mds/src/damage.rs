//! Damaged directories. The server serves the rest of the namespace.
//!
//! Requests that need a damaged directory fail. If the journal has changes of the directory,
//! recovery applies them to an empty directory and *withholds* it: the server does not write the
//! directory, and keeps the journal from the first of these changes on, so that a repair loses no
//! acknowledged change. A directory that cannot be written is withheld, too.
//!
//! Invariant: no segment with a change of a withheld directory is deleted.

use std::collections::BTreeMap;

use namespace::Namespace;
use types::{Errno, Error, Ino, Seq};
use wire::Warning;

/// Damaged directories that are remembered; withheld ones are remembered beyond this limit.
const KNOWN_MAX: usize = 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    dirs: BTreeMap<Ino, Damaged>,
}

#[derive(Debug)]
struct Damaged {
    error: Error,
    /// The journal is kept from here on.
    retained_from: Option<Seq>,
}

/// Whether an error means that the content of an object is wrong.
pub(crate) fn is_damage(errno: Errno) -> bool {
    errno == Errno::BadMessage
}

impl Damage {
    /// A directory could not be read.
    pub(crate) fn note(&mut self, dir: Ino, error: &Error) {
        if is_damage(error.errno) && self.dirs.len() < KNOWN_MAX {
            self.dirs
                .entry(dir)
                .or_insert_with(|| Damaged { error: error.clone(), retained_from: None });
        }
    }

    /// A directory was read.
    pub(crate) fn is_read(&mut self, dir: Ino) {
        if !self.dirs.is_empty() && self.withheld(dir).is_none() {
            self.dirs.remove(&dir);
        }
    }

    /// The journal is kept from this position on, for a directory.
    fn keep(&mut self, dir: Ino, seq: Seq, error: &Error) {
        let known = self.dirs.entry(dir);
        let known = known.or_insert_with(|| Damaged { error: error.clone(), retained_from: None });
        known.retained_from =
            Some(known.retained_from.map_or(seq, |retained_from| retained_from.min(seq)));
        assert!(self.journal_retained_from() <= seq, "{dir}: the journal is kept from {seq} on");
    }

    /// Withholds a directory whose changes since a position are not in the store.
    pub(crate) fn withhold(
        &mut self,
        namespace: &mut Namespace,
        dir: Ino,
        since: Seq,
        error: &Error,
    ) {
        let since = namespace.dirs().dirty_since(dir).map_or(since, |dirty| dirty.min(since));
        self.keep(dir, since, error);
        namespace.handover().withhold(dir);
    }

    /// Why a directory is withheld, if it is.
    pub(crate) fn withheld(&self, dir: Ino) -> Option<&Error> {
        self.dirs
            .get(&dir)
            .filter(|damaged| damaged.retained_from.is_some())
            .map(|damaged| &damaged.error)
    }

    /// The directories that are withheld.
    pub(crate) fn all_withheld(&self) -> impl Iterator<Item = (Ino, &Error)> {
        let withheld = self.dirs.iter().filter(|(_, damaged)| damaged.retained_from.is_some());
        withheld.map(|(dir, damaged)| (*dir, &damaged.error))
    }

    /// The position from which on the journal is kept.
    pub(crate) fn journal_retained_from(&self) -> Seq {
        self.dirs
            .values()
            .filter_map(|damaged| damaged.retained_from)
            .min()
            .unwrap_or(Seq(u64::MAX))
    }

    /// Checks that the number of known directories is bounded, but for withheld ones.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn validate(&self) {
        let known = self.dirs.values().filter(|damaged| damaged.retained_from.is_none()).count();
        assert!(known <= KNOWN_MAX, "{known} damaged directories are known, more than the limit");
    }

    /// Whether the journal stays when the server stops.
    pub(crate) fn keeps_journal(&self) -> bool {
        self.all_withheld().next().is_some()
    }

    /// A warning for the administrator, if a directory is damaged.
    pub(crate) fn warning(&self, namespace: &Namespace) -> Option<Warning> {
        let (dir, damaged) = self.dirs.iter().next()?;
        let path = namespace.path_of(*dir).map(|path| path.to_string());
        let path = path.unwrap_or_else(|| format!("directory {}", dir.0));
        let others = match self.dirs.len() {
            1 => String::new(),
            more => format!(", and {} more directories", more - 1),
        };
        let Error { subject, cause, .. } = &damaged.error;
        let retained_from =
            if self.keeps_journal() { "; the journal keeps what was changed there" } else { "" };
        Some(Warning {
            code: "DIRECTORY_DAMAGED".into(),
            text: format!("{path} cannot be read{others}: {subject}: {cause}{retained_from}"),
            remedy: "`cudele down`, `cudele fsck --repair` and `cudele up`".into(),
        })
    }
}
