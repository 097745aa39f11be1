//! The files of a run: its settings, a line for each sample, and a line for each episode. A stopped
//! run continues from them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terminal::io;

use super::limits::Limits;
use super::schedule::Incident;
use crate::lossy::DiskFormat;

/// The settings of a run, which its pieces share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunSettings {
    pub(crate) seed: u64,
    /// The length of the whole run.
    pub(crate) seconds: f64,
    pub(crate) ranks: u16,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) limits: Limits,
    /// The file system of the store, on a disk that loses writes; `None` for memory.
    #[serde(default)]
    pub(crate) disk: Option<DiskFormat>,
}

/// The state of all processes at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Seconds of work since the run began, without the time between pieces.
    pub(crate) seconds: f64,
    /// Which piece of the run.
    pub(crate) piece: u64,
    pub(crate) memory_kib: BTreeMap<String, u64>,
    pub(crate) descriptors: BTreeMap<String, u64>,
    /// Objects of the store; the last known number in most samples, as they are counted slowly.
    pub(crate) objects: u64,
    /// Segments of the journals of all ranks.
    pub(crate) segments: u64,
    /// The slowest answer to the probe since the sample before.
    pub(crate) stall_ms: f64,
    /// How late the machine woke a thread in that time.
    pub(crate) machine_ms: f64,
    /// Answers to the probe since the sample before.
    pub(crate) answers: u64,
}

/// An incident that was played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Episode {
    pub(crate) number: u64,
    pub(crate) incident: Incident,
    pub(crate) begin_seconds: f64,
    pub(crate) end_seconds: f64,
    /// From the end of the incident until `cudele health` found nothing.
    pub(crate) heal_seconds: f64,
    /// The figures of the incident, for readers.
    pub(crate) note: String,
    /// Names that the judge compared, and operations that writers recorded, since the episode
    /// before.
    pub(crate) judged_names: u64,
    pub(crate) operations: u64,
    /// Operations with an error that the incident allows.
    pub(crate) refused: u64,
    /// The slowest answer to the probe during the episode.
    pub(crate) stall_ms: f64,
    /// Names that the large directory has after it.
    pub(crate) large_names: u64,
}

/// The directory of a run.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(|error| io(dir, &error))?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The settings of a run that was begun here.
    pub(crate) fn settings(&self) -> Result<Option<RunSettings>> {
        let path = self.path("soak.json");
        match std::fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(&path, &error))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io(&path, &error)),
        }
    }

    pub(crate) fn begin(&self, settings: &RunSettings) -> Result<()> {
        let path = self.path("soak.json");
        let bytes = serde_json::to_vec_pretty(settings).map_err(|error| damaged(&path, &error))?;
        std::fs::write(&path, bytes).map_err(|error| io(&path, &error))
    }

    pub(crate) fn samples(&self) -> Result<Vec<Sample>> {
        self.lines("samples.jsonl")
    }

    pub(crate) fn episodes(&self) -> Result<Vec<Episode>> {
        self.lines("episodes.jsonl")
    }

    pub(crate) fn add_episode(&self, episode: &Episode) -> Result<()> {
        append(&self.path("episodes.jsonl"), episode)
    }

    pub(crate) fn add_sample(&self, sample: &Sample) -> Result<()> {
        append(&self.path("samples.jsonl"), sample)
    }

    /// A line that a kill has cut is left out.
    fn lines<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>> {
        let path = self.path(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io(&path, &error)),
        };
        let mut values = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| io(&path, &error))?;
            values.extend(serde_json::from_str::<T>(&line).ok());
        }
        Ok(values)
    }
}

fn append(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| damaged(path, &error))?;
    let file = File::options().create(true).append(true).open(path);
    let mut file = file.map_err(|error| io(path, &error))?;
    writeln!(file, "{text}").map_err(|error| io(path, &error))
}

fn damaged(path: &Path, error: &serde_json::Error) -> Error {
    Error::new(Errno::BadMessage, path.display().to_string(), error.to_string())
        .remedy("begin a new run in another directory")
}
