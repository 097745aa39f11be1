//! Raw results: what each command printed, on what machine, at what load.
//!
//! Invariant: a file of results says everything that is needed to run it again, and nothing of where on
//! the machine it was run.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Errno, Error, Result};

use crate::io;
use crate::machine::Machine;

/// A file `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) experiment: String,
    pub(crate) quick: bool,
    /// Civil time at the beginning, UTC.
    pub(crate) at: String,
    pub(crate) machine: Machine,
    pub(crate) runs: Vec<Done>,
}

/// One command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) command: String,
    /// How long it took, all in all.
    pub(crate) seconds: f64,
    /// Load of the machine (processes that run or wait for the disk, mean of a minute) before and
    /// after. What is run here is part of the second.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    pub(crate) rows: Vec<Value>,
}

impl Results {
    /// Rows of all commands.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Value> {
        self.runs.iter().flat_map(|run| &run.rows)
    }
}

/// None if there are none.
pub(crate) fn read(path: &Path) -> Result<Option<Results>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| io(path, &error))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        Error::new(Errno::Invalid, path.display().to_string(), error.to_string())
            .remedy("remove it and run the experiment again")
    })
}

pub(crate) fn write(path: &Path, results: &Results) -> Result<()> {
    let text = serde_json::to_string_pretty(results);
    let mut text =
        text.map_err(|error| Error::new(Errno::Io, path.display().to_string(), error.to_string()))?;
    text.push('\n');
    crate::write(path, text.as_bytes())
}
