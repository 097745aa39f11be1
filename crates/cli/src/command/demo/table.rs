//! The table of the demo: the cost of each way, and its ratio to appending.

use std::fmt::Write as _;

use serde_json::{Value, json};
use terminal::figures::{average, bytes, count, per_second, rate, seconds};

use ingest::intake::{IntakeReport, LINKS_AND_ATTRIBUTES, Phase};

/// Seconds per create of one phase.
#[allow(clippy::cast_precision_loss, reason = "a ratio of times")]
fn each(report: &IntakeReport, phase: &Phase) -> f64 {
    phase.seconds / report.tally.creates().max(1) as f64
}

/// How many times slower than appending to the client's journal.
fn slowdown(seconds_each: f64, base: &IntakeReport) -> f64 {
    let append = base.phases.first().map_or(0.0, |phase| each(base, phase));
    if append > 0.0 { seconds_each / append } else { 0.0 }
}

/// One row per mechanism and one for the whole, as `cudele bench` has them.
pub(super) fn rows(report: &IntakeReport, preset: &str, base: &IntakeReport) -> Vec<Value> {
    let creates = report.tally.creates();
    let row = |name: &str, seconds: f64, bytes: u64| {
        json!({
            "name": name, "preset": preset, "files": creates, "clients": 1,
            "seconds": seconds, "per_second": rate(creates, seconds),
            "slowdown": slowdown(seconds / average(creates, 1).max(1.0), base),
            "bytes_per_event": average(bytes, creates),
        })
    };
    let mut rows: Vec<Value> = report
        .phases
        .iter()
        .map(|phase| {
            let stored = if phase.bytes > 0 { phase.bytes } else { report.journal_bytes };
            row(&phase.name, phase.seconds, stored)
        })
        .collect();
    if report.phases.len() > 1 {
        rows.push(row(preset, report.metadata_seconds(), report.journal_bytes));
    }
    rows
}

/// Both ways for people.
#[allow(clippy::needless_pass_by_value, reason = "the reports end here")]
pub(super) fn text(posix: IntakeReport, batch: IntakeReport) -> String {
    let mut text = String::new();
    let tally = &batch.tally;
    let _ = writeln!(
        text,
        "\n{} entries ({} directories, {} files, {} links), {} of content, {} of it in {} files \
         of up to 4 KiB, which are stored with the metadata\n",
        count(tally.entries()),
        count(tally.directories),
        count(tally.files),
        count(tally.symlinks),
        bytes(tally.content_bytes),
        bytes(tally.inline_bytes),
        count(tally.files - tally.large),
    );
    let _ =
        writeln!(text, "{:<24} {:>12} {:>14} {:>12}", "metadata", "time", "creates/s", "slowdown");
    section(&mut text, "posix", &posix, &batch);
    section(&mut text, "batchfs", &batch, &batch);
    let _ = writeln!(text);
    let _ = writeln!(
        text,
        "{:<24} {:>12} {:>14} {:>12} {:>10}",
        "journal", "bytes", "per create", "bare", "requests"
    );
    for (name, report) in [("posix", &posix), ("batchfs", &batch)] {
        let (with, without) = report.bytes_per_create();
        let _ = writeln!(
            text,
            "{name:<24} {:>12} {with:>14.0} {without:>12.0} {:>10}",
            bytes(report.journal_bytes),
            count(report.requests)
        );
    }
    let _ = writeln!(text, "(bare: without the content of small files)\n");
    let _ = writeln!(
        text,
        "{:<24} {:>12} {:>14} {:>12}",
        "not metadata", "data", "reading source", "in all"
    );
    for (name, report) in [("posix", &posix), ("batchfs", &batch)] {
        let _ = writeln!(
            text,
            "{name:<24} {:>12} {:>14} {:>12}",
            seconds(report.data_seconds),
            seconds(report.source_seconds),
            seconds(report.seconds)
        );
    }
    let _ = writeln!(text);
    text
}

fn section(text: &mut String, preset: &str, report: &IntakeReport, base: &IntakeReport) {
    let creates = report.tally.creates();
    let mut line = |name: &str, spent: f64, each: f64| {
        let spent_text = seconds(spent);
        let _ = if each > 0.0 {
            let (rate, slowdown) = (per_second(creates, spent), slowdown(each, base));
            writeln!(text, "{name:<24} {spent_text:>12} {rate:>14} {slowdown:>11.1}x")
        } else {
            writeln!(text, "{name:<24} {spent_text:>12}")
        };
    };
    for phase in &report.phases {
        let name = if report.phases.len() > 1 {
            format!("  {}", phase.name)
        } else {
            format!("{preset}: {}", phase.name)
        };
        // Links and attributes of directories are not creates: a rate of them would mean nothing.
        let rated = phase.name != LINKS_AND_ATTRIBUTES;
        line(&name, phase.seconds, if rated { each(report, phase) } else { 0.0 });
    }
    if report.phases.len() > 1 {
        let whole = Phase { name: preset.to_owned(), seconds: report.metadata_seconds(), bytes: 0 };
        line(&format!("{preset}: in all"), whole.seconds, each(report, &whole));
    }
}
