//! Raw results: the output of each command, the machine, and its load.
//!
//! Invariant: a file of results has everything that is needed to run it again, and no path of the
//! machine.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Errno, Error, Result};

use super::describe::Description;
use super::machine::Machine;
use terminal::io;

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
    /// after. The experiment itself is part of the second.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    pub(crate) rows: Vec<Value>,
}

impl Results {
    /// Rows of all commands.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Value> {
        self.runs.iter().flat_map(|run| &run.rows)
    }

    /// A sentence that names the peers that could have been measured beside, and were not there.
    pub(crate) fn absent(&self, about: &Description) -> Option<String> {
        let without = |option: &str| !self.runs.iter().any(|run| run.command.contains(option));
        let cephfs = about.run.iter().any(|run| run.cephfs) && without(" --cephfs ");
        let juicefs = about.run.iter().any(|run| run.juicefs) && without(" --juicefs ");
        let names = match (cephfs, juicefs) {
            (true, true) => "CephFS and JuiceFS were",
            (true, false) => "CephFS was",
            (false, true) => "JuiceFS was",
            (false, false) => return None,
        };
        Some(format!("{names} not measured in this run (`scripts/peers` installs peers)."))
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
    super::output::write(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_name_missing_file_systems() {
        let about = "figure = ''\ntitle = ''\norder = 1\nquestion = ''\nmethod = ''\nshape = ''\n\
                     agrees = ''\n[[run]]\narguments = []\ncephfs = true\njuicefs = true";
        let about: Description = toml::from_str(about).expect("a description");
        let with = |command: &str| {
            let machine = serde_json::from_value(serde_json::json!({
                "processor": "", "cores": 1, "memory_mb": 1, "kernel": "", "file_system": "",
                "compiler": "", "commit": "", "changed": false
            }));
            let run = Done {
                command: command.to_owned(),
                seconds: 0.0,
                load_before: 0.0,
                load_after: 0.0,
                rows: Vec::new(),
            };
            let results = Results {
                experiment: String::new(),
                quick: false,
                at: String::new(),
                machine: machine.expect("a machine"),
                runs: vec![run],
            };
            results.absent(&about)
        };
        let none = with("cudele bench untar").expect("nobody was there");
        assert!(none.starts_with("CephFS and JuiceFS were not measured"), "{none}");
        let one = with("cudele bench untar --juicefs FILE").expect("CephFS was not there");
        assert!(one.starts_with("CephFS was not measured"), "{one}");
        assert_eq!(with("cudele bench untar --juicefs FILE --cephfs FILE"), None);
    }
}
