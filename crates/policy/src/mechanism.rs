//! The seven mechanisms from which every policy is composed.
//!
//! This module names and describes them; it does not run them. Invariant: the set is closed
//! ([`Mechanism::ALL`]), and every mechanism has exactly one canonical spelling.

use std::fmt;

use crate::text;

/// One of the seven things the system can do with updates (M-08).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// One request to the metadata server per operation (M-01).
    Rpcs,
    /// The metadata server journals updates into the object store (M-02).
    Stream,
    /// The client appends updates to a journal in its own memory (M-03).
    AppendClientJournal,
    /// The client's journal is applied to the metadata server's memory (M-04).
    VolatileApply,
    /// The client's journal is applied to the metadata store in the object store (M-05).
    NonvolatileApply,
    /// The client's journal is written to a file on the client's disk (M-06).
    LocalPersist,
    /// The client's journal is written into the object store (M-07).
    GlobalPersist,
}

/// The process that executes a mechanism (M-08).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Performer {
    /// The client alone.
    Client,
    /// The metadata server alone.
    Mds,
    /// The client asks and the metadata server does.
    ClientToMds,
}

impl Performer {
    /// As commands print it: `client`, `mds` or `client->mds`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Mds => "mds",
            Self::ClientToMds => "client->mds",
        }
    }
}

impl fmt::Display for Performer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of earlier tools that still mean a mechanism (P-11).
const ALIASES: [(&str, Mechanism); 5] = [
    ("create", Mechanism::AppendClientJournal),
    ("v.apply", Mechanism::VolatileApply),
    ("apply", Mechanism::NonvolatileApply),
    ("save", Mechanism::LocalPersist),
    ("persist", Mechanism::GlobalPersist),
];

impl Mechanism {
    /// All seven, in the order in which they are listed for people.
    pub const ALL: [Self; 7] = [
        Self::Rpcs,
        Self::Stream,
        Self::AppendClientJournal,
        Self::VolatileApply,
        Self::NonvolatileApply,
        Self::LocalPersist,
        Self::GlobalPersist,
    ];

    /// The canonical spelling, which commands, files and metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rpcs => "rpcs",
            Self::Stream => "stream",
            Self::AppendClientJournal => "append_client_journal",
            Self::VolatileApply => "volatile_apply",
            Self::NonvolatileApply => "nonvolatile_apply",
            Self::LocalPersist => "local_persist",
            Self::GlobalPersist => "global_persist",
        }
    }

    /// The mechanism a word names: the canonical name or an alias, in any case, with spaces,
    /// hyphens or underscores between its parts (P-11). A part of a name names nothing.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        let spelling = text::normalise(word);
        let canonical = Self::ALL.into_iter().find(|mechanism| mechanism.name() == spelling);
        canonical.or_else(|| {
            ALIASES.iter().find(|(alias, _)| *alias == spelling).map(|(_, mechanism)| *mechanism)
        })
    }

    /// The other names that mean this mechanism (P-11).
    pub fn aliases(self) -> impl Iterator<Item = &'static str> {
        ALIASES.iter().filter(move |(_, meant)| *meant == self).map(|(alias, _)| *alias)
    }

    /// The process that executes the mechanism (M-08).
    #[must_use]
    pub const fn performed_by(self) -> Performer {
        match self {
            Self::Rpcs => Performer::ClientToMds,
            Self::Stream => Performer::Mds,
            Self::AppendClientJournal
            | Self::VolatileApply
            | Self::NonvolatileApply
            | Self::LocalPersist
            | Self::GlobalPersist => Performer::Client,
        }
    }

    /// The mechanism's effect, in one sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Rpcs => {
                "Sends every operation to the metadata server, so that all clients see it at once."
            }
            Self::Stream => {
                "The metadata server writes its journal of updates into the object store."
            }
            Self::AppendClientJournal => {
                "Appends every update to a journal in the client's memory, unchecked and without \
                 any request."
            }
            Self::VolatileApply => {
                "Applies the client's journal to the metadata server's memory; the server does \
                 not journal it."
            }
            Self::NonvolatileApply => {
                "Applies the client's journal to the metadata store in the object store."
            }
            Self::LocalPersist => {
                "Writes the client's journal to a file on the client's disk and syncs it."
            }
            Self::GlobalPersist => "Writes the client's journal into the object store.",
        }
    }

    /// Whether updates enter the system through it.
    pub(crate) const fn carries_updates(self) -> bool {
        matches!(self, Self::Rpcs | Self::AppendClientJournal)
    }

    /// Whether the mechanism makes a client's journal visible to other clients.
    #[must_use]
    pub const fn applies(self) -> bool {
        matches!(self, Self::VolatileApply | Self::NonvolatileApply)
    }

    /// Whether the mechanism writes a client's journal to durable storage.
    #[must_use]
    pub const fn persists(self) -> bool {
        matches!(self, Self::LocalPersist | Self::GlobalPersist)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
