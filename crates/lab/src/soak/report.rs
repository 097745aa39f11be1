//! The result of a run: a table for readers, JSON for programs, and the drawing.

use std::fmt::Write as _;

use cudele::{Errno, Error, Result};
use serde_json::json;
use terminal::context::say;
use terminal::io;

use super::drawing;
use super::records::{Episode, Records, RunSettings, Sample};
use super::schedule::Incident;
use crate::experiment::{paint, svg};
use crate::harness::stats::real;

/// The least, the last and the largest value of a line of the drawing.
struct Span {
    name: &'static str,
    first: f64,
    last: f64,
    most: f64,
}

/// Draws the run, and returns the table.
pub(super) fn write(records: &Records, settings: &RunSettings) -> Result<String> {
    let (samples, episodes) = (records.samples()?, records.episodes()?);
    let path = records.path("soak.svg");
    if let Some(scene) = drawing::scene(settings, &samples, &episodes) {
        std::fs::write(&path, svg::alone(&scene)).map_err(|error| io(&path, &error))?;
        let path = records.path("soak.png");
        std::fs::write(&path, paint::picture(&scene)?).map_err(|error| io(&path, &error))?;
    }
    Ok(table(settings, &samples, &episodes))
}

/// Where a run has stopped.
pub(super) fn place(records: &Records) -> String {
    let episodes = records.episodes().unwrap_or_default();
    let last = episodes.last().map_or_else(
        || "in or before the first episode".to_owned(),
        |last| format!("after episode {}, {}", last.number, last.incident.name()),
    );
    let samples = records.samples().unwrap_or_default();
    let seconds = samples.last().map_or(0.0, |sample| sample.seconds);
    format!("{last}, at {seconds:.0} s")
}

pub(super) fn print_json(records: &Records, settings: &RunSettings) -> Result<()> {
    let (samples, episodes) = (records.samples()?, records.episodes()?);
    let spans = spans(&samples).into_iter().map(|span| {
        let Span { name, first, last, most } = span;
        json!({ "name": name, "first": first, "last": last, "most": most })
    });
    let value = json!({
        "settings": settings,
        "seconds": samples.last().map_or(0.0, |sample| sample.seconds),
        "samples": samples.len(),
        "episodes": episodes,
        "figures": spans.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Error::new(Errno::Io, "soak", error.to_string()))?;
    say(&format!("{text}\n"))
}

/// The largest memory of a kind of process in a sample, in MiB.
pub(super) fn memory_mib(sample: &Sample, daemon: bool) -> f64 {
    let kind = |name: &&String| (name.starts_with("mds") || *name == "mon") == daemon;
    let of = sample.memory_kib.iter().filter(|(name, _)| kind(name));
    real(of.map(|(_, kib)| *kib).max().unwrap_or(0)) / 1024.0
}

/// The most descriptors of one process.
pub(super) fn descriptors(sample: &Sample) -> f64 {
    real(sample.descriptors.values().copied().max().unwrap_or(0))
}

/// A figure of a sample, with its name.
pub(super) type Figure = (&'static str, fn(&Sample) -> f64);

/// The lines of the table and of the drawing.
const FIGURES: [Figure; 6] = [
    ("memory of a daemon, MiB", |sample| memory_mib(sample, true)),
    ("memory of a client, MiB", |sample| memory_mib(sample, false)),
    ("descriptors of a process", descriptors),
    ("objects in the store", |sample| real(sample.objects)),
    ("segments of all journals", |sample| real(sample.segments)),
    ("slowest answer, ms", |sample| sample.stall_ms),
];

fn spans(samples: &[Sample]) -> Vec<Span> {
    // Means of a tenth: the first samples are from a cluster that has just started.
    let part = (samples.len() / 10).max(1);
    let span = |(name, figure): Figure| {
        let values: Vec<f64> = samples.iter().map(figure).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / real(values.len().max(1) as u64);
        let (first, last) = (mean(&values[..part]), mean(&values[values.len() - part..]));
        Span { name, first, last, most: values.iter().copied().fold(0.0, f64::max) }
    };
    if samples.is_empty() { Vec::new() } else { FIGURES.into_iter().map(span).collect() }
}

fn table(settings: &RunSettings, samples: &[Sample], episodes: &[Episode]) -> String {
    let seconds = samples.last().map_or(0.0, |sample| sample.seconds);
    let (operations, refused, answers) = (
        episodes.iter().map(|episode| episode.operations).sum::<u64>(),
        episodes.iter().map(|episode| episode.refused).sum::<u64>(),
        samples.iter().map(|sample| sample.answers).sum::<u64>(),
    );
    let mut text = format!(
        "seed {}, {seconds:.0} s, {} episodes, {operations} operations judged ({refused} refused \
         where that is allowed), {answers} answers to the probe\n\n| figure | first tenth | last \
         tenth | most |\n|---|---|---|---|\n",
        settings.seed,
        episodes.len()
    );
    for Span { name, first, last, most } in spans(samples) {
        // A string takes everything.
        let _ = writeln!(text, "| {name} | {first:.0} | {last:.0} | {most:.0} |");
    }
    text.push_str(
        "\n| incident | episodes | slowest answer, ms | until healthy, s |\n|---|---|---|---|\n",
    );
    for incident in &settings.incidents {
        let _ = writeln!(text, "{}", row(*incident, episodes));
    }
    text
}

fn row(incident: Incident, episodes: &[Episode]) -> String {
    let of: Vec<&Episode> = episodes.iter().filter(|one| one.incident == incident).collect();
    let most = |figure: fn(&Episode) -> f64| of.iter().map(|one| figure(one)).fold(0.0, f64::max);
    let (stall, heal) = (most(|one| one.stall_ms), most(|one| one.heal_seconds));
    format!("| {} | {} | {stall:.0} | {heal:.1} |", incident.name(), of.len())
}
