//! The command line of `cargo xtask suites`.

use std::path::PathBuf;
use std::time::Duration;

use super::cell;
use crate::run::Failure;

/// The cells of a run that names none: the reference first.
const CELLS: [&str; 6] = ["tmpfs", "posix", "nowsync", "decoupled", "ranks", "preload"];
/// The cells of a short run.
const CELLS_QUICK: [&str; 2] = ["nowsync", "decoupled"];

/// The wishes of the caller.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Suites; all if empty.
    pub(super) suites: Vec<String>,
    /// Parts of names of cases; all if empty.
    pub(super) cases: Vec<String>,
    /// Cells, in their order.
    pub(super) cells: Vec<String>,
    /// An installed LTP.
    pub(super) ltp: Option<PathBuf>,
    /// A built xfstests.
    pub(super) xfstests: Option<PathBuf>,
    /// A built pjdfstest of Pawel Jakub Dawidek.
    pub(super) pjdfstest: Option<PathBuf>,
    /// The program to test; the one of the build directory, which is built, if none.
    pub(super) program: Option<PathBuf>,
    /// The directory of the report; one in the build directory if none.
    pub(super) results: Option<PathBuf>,
    /// The object store of the clusters; a directory if none.
    pub(super) store: Option<String>,
    /// The limit of the whole run.
    pub(super) minutes: Option<Duration>,
    /// The part that each change must pass.
    pub(super) quick: bool,
    /// The report as JSON.
    pub(super) json: bool,
    /// The names of suites and cases, and nothing is run.
    pub(super) list: bool,
}

impl Options {
    /// # Errors
    /// A wrong command line.
    pub(super) fn parse(arguments: &[&str]) -> Result<Options, Failure> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            let mut value = || {
                let missing = || Failure::Usage(format!("{argument} needs a value"));
                rest.next().map(ToString::to_string).ok_or_else(missing)
            };
            match argument {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--list" => options.list = true,
                "--suite" => options.suites.push(value()?),
                "--case" => options.cases.push(value()?),
                "--on" => options.cells.push(value()?),
                "--ltp" => options.ltp = Some(existing(argument, &value()?)?),
                "--xfstests" => options.xfstests = Some(existing(argument, &value()?)?),
                "--pjdfstest" => options.pjdfstest = Some(existing(argument, &value()?)?),
                "--program" => options.program = Some(existing(argument, &value()?)?),
                "--results" => options.results = Some(value()?.into()),
                "--store" => options.store = Some(value()?),
                "--minutes" => options.minutes = Some(minutes(&value()?)?),
                other => return Err(Failure::Usage(format!("unexpected argument {other:?}"))),
            }
        }
        if options.cells.is_empty() {
            let all: &[&str] = if options.quick { &CELLS_QUICK } else { &CELLS };
            options.cells = all.iter().map(ToString::to_string).collect();
        }
        match options.cells.iter().find(|name| !cell::is_known(name)) {
            Some(unknown) => {
                let known = cell::names().join(", ");
                Err(Failure::Usage(format!("there is no cell {unknown:?}; the cells: {known}")))
            }
            None => Ok(options),
        }
    }
}

fn existing(option: &str, value: &str) -> Result<PathBuf, Failure> {
    let wrong = |error| Failure::Failed(format!("cannot use {option} {value}: {error}"));
    std::fs::canonicalize(value).map_err(wrong)
}

fn minutes(value: &str) -> Result<Duration, Failure> {
    let wrong = |_| Failure::Usage(format!("{value:?} is not a number of minutes"));
    value.parse::<u64>().map(|minutes| Duration::from_secs(60 * minutes)).map_err(wrong)
}
