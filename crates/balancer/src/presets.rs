//! The policies that come with the program: files of this crate, compiled in.

use crate::BalancerPolicy;

/// A shipped policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerPreset {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal, $about:literal;)*) => {
        /// All shipped policies.
        pub const PRESETS: &[BalancerPreset] = &[$(BalancerPreset {
            name: $name,
            about: $about,
            text: include_str!(concat!("../policies/", $name, ".lua")),
        },)*];
    };
}

presets! {
    "cephfs", "CephFS's own: whoever has more than the mean sends the rest away (the default)";
    "cudele", "our own: levels work, not requests, when it is worth moving; calm with stale heartbeats";
    "greedy-spill", "half of everything to the next rank, if that has nothing (GIGA+)";
    "greedy-spill-even", "half of everything to the middle of the ranks that have nothing";
    "fill-and-spill", "a quarter to the next rank after three ticks above 48 % CPU (LARD)";
    "fill-and-spill-10", "as fill-and-spill, a tenth at a time";
    "adaptable", "whoever has more than half of all load levels it (aggressive)";
    "adaptable-conservative", "as adaptable, but only if much load would move";
    "adaptable-too-aggressive", "levels at every tick whatever is above the mean";
    "static", "moves nothing but what is pinned: no balancer";
    "hash", "every directory goes where its hash says";
}

/// The shipped policy of this name.
#[must_use]
pub fn preset(name: &str) -> Option<BalancerPolicy> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    BalancerPolicy::parse(preset.name, preset.text).ok()
}

/// The name of the default policy: CephFS's, of the paper's Table 1.
pub const DEFAULT_POLICY: &str = "cephfs";
/// The name of the policy that moves only pinned subtrees: for clusters without a balancer.
pub const NO_POLICY: &str = "static";

/// The default policy.
#[must_use]
pub fn default_policy() -> BalancerPolicy {
    preset(DEFAULT_POLICY).expect("a test compiles every shipped policy")
}

#[cfg(test)]
mod tests;
