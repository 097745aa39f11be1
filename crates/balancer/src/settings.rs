//! The few numbers that a policy may set beside its code, in a section `-- BalancerSettings`.

use crate::{Fault, FaultKind};

/// How the mechanism carries a policy's wishes out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalancerSettings {
    /// The share of a target that has to be reached: each target is multiplied by this first
    /// (`need_min`, CephFS's `mds_bal_need_min`, which is 0.8 there). 1 unless set.
    pub need_min: f64,
    /// A subtree of more than this times the remaining target is too popular to be sent whole
    /// (`need_max`). 1.2 unless set.
    pub need_max: f64,
    /// Targets of less than this are not worth it (`min_offload`). 0 unless set.
    pub min_offload: f64,
    /// The result of `RDstate()` as long as nothing was saved (`state`). 0 unless set.
    pub state: f64,
}

impl Default for BalancerSettings {
    fn default() -> Self {
        Self { need_min: 1.0, need_max: 1.2, min_offload: 0.0, state: 0.0 }
    }
}

impl BalancerSettings {
    /// Reads lines of the form `need_min = 0.8`; comments begin with `--`.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let mut settings = Self::default();
        for (number, line) in (1u32..).zip(text.lines()) {
            let code = line.split("--").next().unwrap_or_default().trim();
            if code.is_empty() || !Self::is_line(line) {
                continue;
            }
            let wrong =
                |message: String| Err(Fault::new(FaultKind::Syntax, message).at(Some(number)));
            let Some((name, value)) = code.split_once('=') else { continue };
            let (name, value) = (name.trim(), value.trim());
            let range = match name {
                "need_min" => 0.01..=1.0,
                "need_max" => 1.0..=10.0,
                "min_offload" => 0.0..=1e12,
                "state" => -1e12..=1e12,
                _ => return wrong(format!("no setting is called `{name}`: {NAMES}")),
            };
            let Some(value) = value.parse().ok().filter(|value: &f64| range.contains(value)) else {
                let (least, most) = (range.start(), range.end());
                return wrong(format!("`{name}` is a number from {least} to {most}"));
            };
            match name {
                "need_min" => settings.need_min = value,
                "need_max" => settings.need_max = value,
                "min_offload" => settings.min_offload = value,
                _ => settings.state = value,
            }
        }
        Ok(settings)
    }

    /// Whether a line sets something, or says nothing.
    pub(crate) fn is_line(line: &str) -> bool {
        let code = line.split("--").next().unwrap_or_default().trim();
        let word = |text: &str| text.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        code.is_empty()
            || code
                .split_once('=')
                .is_some_and(|(name, value)| word(name) && value.trim().parse::<f64>().is_ok())
    }
}

const NAMES: &str = "there are need_min, need_max, min_offload and state";
