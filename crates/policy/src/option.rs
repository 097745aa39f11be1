//! The settings of a policy beside its two expressions, each with the words a file uses.
//!
//! They are names and nothing more; their effects live with the monitor, the metadata server and
//! the client. Invariant: `from_name` reads back the text that `name` (or `Display`) writes.

use std::fmt;

use types::Span;

use crate::text;

macro_rules! choices {
    ($(#[$doc:meta])* $type:ident { $($(#[$item_doc:meta])* $item:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$item_doc])* $item,)* }

        impl $type {
            /// All choices, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$item,)*];

            /// The word a policy file uses.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$item => $name,)* }
            }

            /// The choice a word names, in any case.
            #[must_use]
            pub fn from_name(word: &str) -> Option<Self> {
                let spelling = text::normalise(word);
                Self::ALL.iter().copied().find(|choice| choice.name() == spelling)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

choices! {
    /// How requests of other clients for a decoupled subtree are answered.
    InterferePolicy {
        /// They are served; at the merge the decoupled client's updates win.
        #[default]
        Allow = "allow",
        /// They are refused with EBUSY at once.
        Block = "block",
    }
}

choices! {
    /// When an operation is acknowledged to the application.
    Ack {
        /// As soon as all clients that may see the change can see it.
        #[default]
        Applied = "applied",
        /// Only when it is durable.
        Safe = "safe",
        /// By the client itself, as long as no other client looks at the directory: the server
        /// receives the change some milliseconds later, or before another client sees the
        /// directory.
        Async = "async",
    }
}

choices! {
    /// How clients may cache the content of directories.
    Cache {
        /// With capabilities: the server knows each client that caches, and revokes its capability
        /// before a change.
        #[default]
        Caps = "caps",
        /// With leases: the server knows only the time until which any client may cache, and a
        /// change waits for the expiry.
        Lease = "lease",
    }
}

choices! {
    /// How soon clients with the same file open see each other's writes.
    Sharing {
        /// Everything, when the write returns.
        #[default]
        Strict = "strict",
        /// Flushed writes, at the next open: clients keep their write-back buffers and cached reads
        /// (lazy I/O, S-01).
        Lazy = "lazy",
    }
}

choices! {
    /// Whether file content gets checksums when it is written.
    Checksums {
        /// Written content gets checksums, and every reader verifies them.
        #[default]
        On = "on",
        /// Written content gets no checksums. Readers still verify existing checksums.
        Off = "off",
    }
}

choices! {
    /// Where existence is checked when a client's journal is merged.
    Check {
        /// Nowhere: the journal is applied as it is (M-03).
        #[default]
        None = "none",
        /// At the client, before an update is appended.
        Client = "client",
        /// At the metadata server, when the journal is merged.
        Merge = "merge",
    }
}

choices! {
    /// The form in which a merge sends the client's changes to the server.
    MergeBy {
        /// Event by event: the journal is transferred and applied (M-04).
        #[default]
        Value = "value",
        /// As sorted runs in the object store, which the server links (design idea 5). Changes that
        /// a run cannot hold go by value.
        Reference = "reference",
    }
}

choices! {
    /// The behaviour at the end of the allocated inodes.
    Limit {
        /// Another range is granted without the application noticing.
        #[default]
        Soft = "soft",
        /// Further creates fail with EDQUOT.
        Hard = "hard",
    }
}

/// The longest merge interval, in seconds: one week.
pub const MERGE_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// The largest merge threshold, in updates.
pub const MERGE_UPDATES_MAX: u64 = 1 << 40;

/// When the updates of a weakly consistent subtree are merged (P-03).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MergeTrigger {
    /// When the client says that it is done. Written `at_end`.
    #[default]
    AtEnd,
    /// Again and again while the client works, and at the end. Written `every 10s`.
    Every {
        /// The interval, from 1 to [`MERGE_SECONDS_MAX`].
        seconds: u64,
    },
    /// Whenever the part before is merged and there is nothing else to do, at most once a second,
    /// and at the end. Written `idle`.
    WhenIdle,
    /// At the first request of another client in the subtree, which waits for the merge (BF-04),
    /// and at the end. Written `on_demand`.
    OnDemand,
    /// Whenever so many updates are pending, and at the end. Written `at 5000 updates`.
    AtUpdates {
        /// The number of updates, from 1 to [`MERGE_UPDATES_MAX`].
        count: u64,
    },
}

impl MergeTrigger {
    /// Reads `at_end` (or `close`), `idle`, `on_demand`, `every N` with the unit `s`, `m`, `h` or
    /// `d`, or `at N updates`, in any case, with spaces or underscores between the words. `None`
    /// for anything else, and for numbers out of bounds.
    #[must_use]
    pub fn from_name(words: &str) -> Option<Self> {
        // A hyphen would be a sign here, and so it separates nothing, unlike in other words.
        let spelling = words.to_ascii_lowercase().replace('_', " ");
        let parts: Vec<&str> = spelling.split_whitespace().collect();
        match parts.as_slice() {
            ["at", "end"] | ["close"] => Some(Self::AtEnd),
            ["idle"] => Some(Self::WhenIdle),
            ["on", "demand"] => Some(Self::OnDemand),
            ["every", interval] => {
                let seconds = seconds(interval)?;
                (1..=MERGE_SECONDS_MAX).contains(&seconds).then_some(Self::Every { seconds })
            }
            ["at", count, "updates"] | ["updates", count] => {
                let count = text::digits(count)?;
                (1..=MERGE_UPDATES_MAX).contains(&count).then_some(Self::AtUpdates { count })
            }
            _ => None,
        }
    }
}

impl fmt::Display for MergeTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtEnd => f.write_str("at_end"),
            Self::WhenIdle => f.write_str("idle"),
            Self::OnDemand => f.write_str("on_demand"),
            Self::Every { seconds } => write!(f, "every {seconds}s"),
            Self::AtUpdates { count } => write!(f, "at {count} updates"),
        }
    }
}

/// The longest time for which removed trees are kept, in seconds: ten years.
pub const TRASH_SECONDS_MAX: u64 = 3650 * 24 * 60 * 60;

/// The units of times, the largest first, with their seconds.
const UNITS: [(char, u64); 4] = [('d', 24 * 60 * 60), ('h', 60 * 60), ('m', 60), ('s', 1)];

/// Reads how long removed trees are kept: `off`, or a number with the unit `s`, `m`, `h` or `d`.
/// The outer `None` is for anything else, and for a time that is 0 or too long.
pub(crate) fn trash_from_name(word: &str) -> Option<Option<Span>> {
    let spelling = text::normalise(word);
    if spelling == "off" {
        return Some(None);
    }
    let seconds = seconds(&spelling)?;
    let legal = (1..=TRASH_SECONDS_MAX).contains(&seconds);
    legal.then(|| Some(Span::from_millis(seconds * 1000)))
}

/// Writes that time with its largest unit.
pub(crate) fn trash_name(span: Span) -> String {
    let seconds = span.0 / 1_000_000_000;
    let whole = UNITS.iter().find(|(_, each)| seconds.is_multiple_of(*each));
    let (unit, each) = whole.copied().unwrap_or(('s', 1));
    format!("{}{unit}", seconds / each)
}

fn seconds(interval: &str) -> Option<u64> {
    let (number, seconds_each) =
        UNITS.iter().find_map(|(unit, seconds)| Some((interval.strip_suffix(*unit)?, seconds)))?;
    text::digits(number)?.checked_mul(*seconds_each)
}
