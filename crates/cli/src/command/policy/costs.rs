//! The costs of the mechanisms on this machine: from a file, or measured now.

use std::path::{Path, PathBuf};

use advise::Costs;
use cudele::{Errno, Error, Result};
use serde_json::Value;
use terminal::context::Context;
use terminal::costs::of_rows;

use crate::command::bench;

/// Reads the output of `cudele bench mechanisms --json`, or runs it.
pub(super) fn read(context: &Context, file: Option<&PathBuf>) -> Result<Costs> {
    match file {
        Some(file) => {
            let text = std::fs::read(file).map_err(|error| terminal::io(file, &error))?;
            let rows = serde_json::from_slice(&text).map_err(|error| not_costs(file, &error))?;
            of_rows(&rows).ok_or_else(|| not_costs(file, &"a mechanism is not among its rows"))
        }
        None => {
            if !context.json {
                eprintln!(
                    "measuring what the mechanisms cost here; --costs FILE uses what was measured before"
                );
            }
            let rows = Value::Array(bench::mechanisms(context)?);
            of_rows(&rows)
                .ok_or_else(|| not_costs(Path::new("bench"), &"a mechanism was not measured"))
        }
    }
}

fn not_costs(file: &Path, why: &dyn std::fmt::Display) -> Error {
    let cause = format!("it does not say what the mechanisms cost: {why}");
    Error::new(Errno::Invalid, file.display().to_string(), cause)
        .remedy("write it with `cudele bench mechanisms --json > costs.json`")
}
