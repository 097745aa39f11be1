//! Presets: the systems that a policy can stand in for, as policy files (P-14).
//!
//! They ship as ordinary policy files in `presets/`, which also serve as examples, and are
//! embedded here. Invariant: every preset parses without a warning.

use crate::{Cell, Policy, text};

/// A policy that ships with the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name by which commands know it.
    pub name: &'static str,
    /// The preset's purpose, in one sentence.
    pub description: &'static str,
    /// The policy file.
    pub text: &'static str,
}

impl Preset {
    /// All of them, strongest guarantees first.
    pub const ALL: [Self; 7] = [
        Self {
            name: "posix",
            description: "Every update is visible to everybody at once and survives any failure.",
            text: include_str!("../presets/posix.yml"),
        },
        Self {
            name: "posix-volatile",
            description: "As posix, but what the metadata server has not written dies with it.",
            text: include_str!("../presets/posix-volatile.yml"),
        },
        Self {
            name: "indexfs",
            description: "As posix in normal operation; choose weak-global for bulk insertion.",
            text: include_str!("../presets/indexfs.yml"),
        },
        Self {
            name: "hdfs",
            description: "A job's updates survive any failure and become visible when it ends.",
            text: include_str!("../presets/hdfs.yml"),
        },
        Self {
            name: "batchfs",
            description: "A job's updates stay on its own disk and become visible when it ends.",
            text: include_str!("../presets/batchfs.yml"),
        },
        Self {
            name: "deltafs",
            description: "A job's updates stay on its own disk and are never merged by the system.",
            text: include_str!("../presets/deltafs.yml"),
        },
        Self {
            name: "ramdisk",
            description: "Updates live in the client's memory only: the fastest, and nothing kept.",
            text: include_str!("../presets/ramdisk.yml"),
        },
    ];

    /// The preset of that name, in any case and with spaces, hyphens or underscores.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let spelling = text::normalise(name);
        Self::ALL.into_iter().find(|preset| text::normalise(preset.name) == spelling)
    }

    /// The policy in its file.
    #[must_use]
    pub fn policy(self) -> Policy {
        Policy::parse(self.text).expect("presets are embedded, and each is parsed in a test").policy
    }
}

/// The policy of the preset or of the cell of Table II with that name (P-01, P-14).
#[must_use]
pub fn policy_named(name: &str) -> Option<Policy> {
    let preset = Preset::by_name(name).map(Preset::policy);
    preset.or_else(|| Cell::from_name(name).map(Policy::of_cell))
}

/// Every name that [`policy_named`] knows: the presets, then the cells.
#[must_use]
pub fn policy_names() -> Vec<String> {
    let presets = Preset::ALL.iter().map(|preset| preset.name.to_owned());
    presets.chain(Cell::all().map(|cell| cell.to_string())).collect()
}

#[cfg(test)]
mod tests;
