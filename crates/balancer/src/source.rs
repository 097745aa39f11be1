//! The text of a policy, cut into its sections.
//!
//! A policy in Mantle's dialect is written as the paper prints its listings: comments such as
//! `-- When policy` begin the sections. A section is handed to the script engine as the whole text
//! with all other lines blank, so that every message names a line of the file.
//!
//! Invariant: a section's text has at most as many lines as the file.

use crate::{BalancerSettings, Fault, FaultKind};

/// The longest policy in bytes.
pub const SOURCE_BYTES_MAX: usize = 64 * 1024;

/// Which of the two languages a policy is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The paper's: sections, `MDSs` counted from 1, results in `targets`.
    Mantle,
    /// Ceph's: one script, `mds` counted from 0, the result is returned.
    Ceph,
}

impl Dialect {
    /// `mantle` or `ceph`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mantle => "mantle",
            Self::Ceph => "ceph",
        }
    }
}

/// A policy's text, cut.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Mantle(Sections),
    Ceph(String),
}

/// The sections of Mantle's dialect. A missing section is that of Listing 1, to which the other
/// listings refer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sections {
    pub(crate) metaload: Option<String>,
    pub(crate) mdsload: Option<String>,
    /// `when` and `where`, which are one piece of code: an `if` may begin in the one and end in the
    /// other, or not at all.
    pub(crate) when_where: String,
    pub(crate) howmuch: Option<String>,
    /// Lines that set `targets`, for faults that only the result shows.
    pub(crate) target_lines: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyPart {
    Settings,
    Metaload,
    Mdsload,
    When,
    Where,
    Howmuch,
}

impl PolicyPart {
    fn name(self) -> &'static str {
        match self {
            Self::Settings => "Settings",
            Self::Metaload => "Metadata load",
            Self::Mdsload => "Metadata server load",
            Self::When => "When policy",
            Self::Where => "Where policy",
            Self::Howmuch => "Howmuch policy",
        }
    }

    /// The part that a line begins, if it begins one.
    fn begun_by(line: &str) -> Option<Self> {
        let comment = line.trim().strip_prefix("--")?.trim().trim_end_matches(':');
        match comment.to_ascii_lowercase().as_str() {
            "settings" => Some(Self::Settings),
            "metadata load" | "metadata load policy" | "metaload" | "mds_bal_metaload" => {
                Some(Self::Metaload)
            }
            "metadata server load" | "mds load" | "mdsload" | "mds_bal_mdsload" => {
                Some(Self::Mdsload)
            }
            "when policy" | "when" | "mds_bal_when" => Some(Self::When),
            "where policy" | "balancer where policy" | "where" | "mds_bal_where" => {
                Some(Self::Where)
            }
            "howmuch policy" | "how much policy" | "howmuch" | "mds_bal_howmuch" => {
                Some(Self::Howmuch)
            }
            _ => None,
        }
    }
}

/// Cuts a text. A text with a section `When policy` is Mantle's dialect, any other is Ceph's.
pub(crate) fn cut(text: &str) -> Result<(Source, BalancerSettings), Fault> {
    if text.len() > SOURCE_BYTES_MAX {
        let message = format!("{} bytes, at most {SOURCE_BYTES_MAX}", text.len());
        return Err(Fault::new(FaultKind::Syntax, message));
    }
    let mut parts = Vec::new();
    let mut part = None;
    let mut seen: Vec<PolicyPart> = Vec::new();
    for (number, line) in (1u32..).zip(text.lines()) {
        let begun = PolicyPart::begun_by(line);
        if let Some(begun) = begun {
            if seen.contains(&begun) {
                let message = format!("a second section `{}`", begun.name());
                return Err(Fault::new(FaultKind::Syntax, message).at(Some(number)));
            }
            seen.push(begun);
        }
        part = begun.or(part);
        parts.push(part);
    }
    let settings = BalancerSettings::parse(&kept(text, &parts, &[PolicyPart::Settings]))?;
    if !seen.iter().any(|part| matches!(part, PolicyPart::When | PolicyPart::Where)) {
        if let Some(part) = seen.iter().find(|part| **part != PolicyPart::Settings) {
            let message = format!("there is a section `{}` but no `-- When policy`", part.name());
            return Err(Fault::new(FaultKind::Syntax, message));
        }
        // Settings are words of ours: the script engine must not see them.
        let script = if seen.is_empty() { text.to_owned() } else { without_settings(text) };
        return Ok((Source::Ceph(script), settings));
    }
    no_code_before(text, &parts)?;
    let place = |wanted| seen.iter().position(|part| *part == wanted);
    if let (Some(when), Some(where_)) = (place(PolicyPart::When), place(PolicyPart::Where))
        && when > where_
    {
        let message = "`-- Where policy` stands before `-- When policy`";
        return Err(Fault::new(FaultKind::Syntax, message));
    }
    let section = |part| seen.contains(&part).then(|| kept(text, &parts, &[part]));
    let when_where = kept(text, &parts, &[PolicyPart::When, PolicyPart::Where]);
    Ok((
        Source::Mantle(Sections {
            metaload: section(PolicyPart::Metaload),
            mdsload: section(PolicyPart::Mdsload),
            target_lines: lines_with_targets(&when_where),
            when_where,
            howmuch: section(PolicyPart::Howmuch),
        }),
        settings,
    ))
}

/// The text with blank lines for everything that is in none of `wanted`.
fn kept(text: &str, parts: &[Option<PolicyPart>], wanted: &[PolicyPart]) -> String {
    let mut out = String::new();
    for (line, part) in text.lines().zip(parts) {
        let is_wanted = part.is_some_and(|part| wanted.contains(&part));
        out.push_str(if is_wanted && PolicyPart::begun_by(line).is_none() { line } else { "" });
        out.push('\n');
    }
    out
}

/// In Ceph's dialect settings end at the first line that sets none.
fn without_settings(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        let begins = PolicyPart::begun_by(line).is_some();
        inside = begins || (inside && BalancerSettings::is_line(line));
        out.push_str(if inside { "" } else { line });
        out.push('\n');
    }
    out
}

fn no_code_before(text: &str, parts: &[Option<PolicyPart>]) -> Result<(), Fault> {
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("--");
    let lines = (1u32..).zip(text.lines().zip(parts));
    for (number, (line, part)) in lines {
        if part.is_none() && is_code(line) {
            let message = "code before the first section, such as `-- When policy`";
            return Err(Fault::new(FaultKind::Syntax, message).at(Some(number)));
        }
    }
    Ok(())
}

fn lines_with_targets(text: &str) -> Vec<u32> {
    let sets = |line: &str| {
        let code = line.split("--").next().unwrap_or_default();
        code.split_once("targets").is_some_and(|(_, rest)| rest.contains('='))
    };
    (1u32..).zip(text.lines()).filter(|(_, line)| sets(line)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests;
