//! The failures that are expected: `xtask/suites.toml` names each, with its cells and its reason.

use std::fs;
use std::path::Path;

use super::case::Verdict;
use super::report::Record;
use crate::run::Failure;

/// One expected failure.
#[derive(Debug)]
pub(super) struct Expectation {
    suite: String,
    case: String,
    cells: Vec<String>,
    /// Why it fails there.
    pub(super) reason: String,
    /// Whether it may succeed, too: it depends on a race, or on the machine.
    sometimes: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Expectations(Vec<Expectation>);

/// The meaning of an outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Meaning {
    Passed,
    Skipped,
    /// A failure with a reason in the file.
    Expected,
    /// A failure on the machine's own file system, too.
    Reference,
    NotRun,
    /// A failure without a reason.
    Failed,
    /// A success in spite of the file.
    Surprise,
}

impl Expectations {
    /// # Errors
    /// The file is missing or malformed.
    pub(super) fn read(path: &Path) -> Result<Expectations, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Failed(format!("cannot read {}: {error}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        Expectations::parse(&text).map_err(|error| failed(&error))
    }

    /// # Errors
    /// The first wrong entry, in words.
    pub(super) fn parse(text: &str) -> Result<Expectations, String> {
        let table = text.parse::<toml::Table>().map_err(|error| error.to_string())?;
        let entries = match table.get("expected") {
            Some(toml::Value::Array(entries)) => entries.as_slice(),
            Some(_) => return Err("`expected` is no list of tables".into()),
            None => &[],
        };
        entries.iter().map(entry).collect::<Result<_, _>>().map(Expectations)
    }

    /// The entry of a case on a cell.
    pub(super) fn find(&self, record: &Record) -> Option<&Expectation> {
        self.0.iter().find(|entry| {
            entry.suite == record.suite
                && entry.case == record.case
                && entry.cells.contains(&record.cell)
        })
    }

    /// The meaning of an outcome, given whether the case fails on the machine's file system, too.
    pub(super) fn meaning(&self, record: &Record, fails_there: bool) -> Meaning {
        let entry = self.find(record);
        match &record.verdict {
            Verdict::Passed if entry.is_some_and(|entry| !entry.sometimes) => Meaning::Surprise,
            Verdict::Passed => Meaning::Passed,
            Verdict::Skipped(_) => Meaning::Skipped,
            Verdict::NotRun(_) => Meaning::NotRun,
            Verdict::Failed(_) if entry.is_some() => Meaning::Expected,
            Verdict::Failed(_) if fails_there => Meaning::Reference,
            Verdict::Failed(_) => Meaning::Failed,
        }
    }
}

fn entry(value: &toml::Value) -> Result<Expectation, String> {
    let text = |key: &str| {
        let text = value.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        text.ok_or_else(|| format!("an entry has no text `{key}`: {value:?}"))
    };
    let cells = value.get("cells").and_then(toml::Value::as_array);
    let cells = cells.ok_or_else(|| format!("an entry has no list `cells`: {value:?}"))?;
    let cells: Vec<String> =
        cells.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect();
    if let Some(unknown) = cells.iter().find(|cell| !super::cell::is_known(cell)) {
        return Err(format!("there is no cell {unknown:?}: {value:?}"));
    }
    Ok(Expectation {
        suite: text("suite")?,
        case: text("case")?,
        cells,
        reason: text("reason")?,
        sometimes: value.get("sometimes").and_then(toml::Value::as_bool).unwrap_or(false),
    })
}
