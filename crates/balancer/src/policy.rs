//! A policy: text that was read and found to be one.

use crate::mantle::{self, Code};
use crate::script::Machine;
use crate::source::{self, Sections, Source};
use crate::{BalancerSettings, Counts, Dialect, Expired, Fault, ScriptLimits, ceph};

/// A policy. Holds text only: it can be cloned, sent and kept, and every decision runs it in an
/// engine of its own, so that nothing a policy does (such as giving `max` another meaning) lives
/// longer than its tick.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerPolicy {
    name: String,
    text: String,
    source: Source,
    settings: BalancerSettings,
    limits: ScriptLimits,
}

/// The five hooks apart, as they are injected one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks<'a> {
    /// `mds_bal_metaload`; empty for the default.
    pub metaload: &'a str,
    /// `mds_bal_mdsload`; empty for the default.
    pub mdsload: &'a str,
    /// `mds_bal_when`: an `if … then`, closed or not.
    pub when: &'a str,
    /// `mds_bal_where`.
    pub where_: &'a str,
    /// `mds_bal_howmuch`; empty for the default.
    pub howmuch: &'a str,
}

impl BalancerPolicy {
    /// Reads a policy of either dialect and compiles all of it once.
    ///
    /// # Errors
    /// [`crate::FaultKind::Syntax`] with the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        let (source, mut settings) = source::cut(text)?;
        // Ceph's scripts leave the mechanism to Ceph, and expect Ceph's.
        if matches!(source, Source::Ceph(_)) && !text.contains("need_min") {
            settings.need_min = 0.8;
        }
        let limits = ScriptLimits::default();
        let policy =
            Self { name: name.to_owned(), text: text.to_owned(), source, settings, limits };
        let machine = Machine::new(policy.limits, &Expired::never())?;
        match &policy.source {
            Source::Mantle(sections) => drop(Code::compile(&machine, sections)?),
            Source::Ceph(script) => drop(machine.compile(script)?),
        }
        Ok(policy)
    }

    /// Reads a policy from bytes of any origin, such as a file or an object.
    ///
    /// # Errors
    /// As [`BalancerPolicy::parse`]; also for bytes that are not UTF-8.
    pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<Self, Fault> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(name, text),
            Err(error) => {
                let message = format!("not UTF-8 at byte {}", error.valid_up_to());
                Err(Fault::new(crate::FaultKind::Syntax, message))
            }
        }
    }

    /// A policy of five hooks.
    ///
    /// # Errors
    /// As [`BalancerPolicy::parse`]; lines are counted in [`BalancerPolicy::text`].
    pub fn from_hooks(name: &str, hooks: &Hooks<'_>) -> Result<Self, Fault> {
        let mut text = String::new();
        for (header, code) in [
            ("Metadata load", hooks.metaload),
            ("Metadata server load", hooks.mdsload),
            ("When policy", hooks.when),
            ("Where policy", hooks.where_),
            ("Howmuch policy", hooks.howmuch),
        ] {
            if !code.trim().is_empty() {
                text += &format!("-- {header}\n{}\n", code.trim_end());
            }
        }
        Self::parse(name, &text)
    }

    /// The same policy under other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ScriptLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The policy's name: a preset's name or a file's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text, as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its dialect.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        match &self.source {
            Source::Mantle(_) => Dialect::Mantle,
            Source::Ceph(_) => Dialect::Ceph,
        }
    }

    /// Its numbers.
    #[must_use]
    pub fn settings(&self) -> &BalancerSettings {
        &self.settings
    }

    pub(crate) fn limits(&self) -> ScriptLimits {
        self.limits
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The metadata load of fragments or subtrees, by the policy's `metaload`. A rank computes its
    /// heartbeat with this; see [`crate::heartbeat::loads`].
    ///
    /// # Errors
    /// Any fault of the hook; [`crate::FaultKind::Time`] if `expired` ends it.
    pub fn metaload(&self, counts: &[Counts], expired: &Expired) -> Result<Vec<f64>, Fault> {
        let Source::Mantle(sections) = &self.source else {
            return Ok(counts.iter().map(ceph::metaload).collect());
        };
        let machine = Machine::new(self.limits, expired)?;
        machine.prepare(|_| Ok(()))?;
        let code = Code::compile(&machine, &only_metaload(sections))?;
        counts.iter().map(|counts| mantle::metaload(&machine, &code, counts)).collect()
    }
}

fn only_metaload(sections: &Sections) -> Sections {
    Sections { metaload: sections.metaload.clone(), ..Sections::default() }
}
