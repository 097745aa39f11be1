//! `cudele policy advise` and `cudele policy predict`: which cells are safe for a program, and
//! their cost.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use advise::{Advice, Costs, Evidence, Job, Prediction, Trace, TraceLine, judge, predict};
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use intercept::Reach;
use policy::Cell;
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::figures::{bytes, count, seconds};
use types::quote::quoted;

use super::costs;

/// Show which consistency and durability would have been safe for a program that was traced, the
/// lines of the trace that forbid the other ones, and the cost of each.
///
/// Each trace is one client, as one `cudele run` would be: its processes see one another's files in
/// any case. Programs outside the trace that need the files while they are made are not considered.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  strace -f -ttt -o job.trace ./job
  cudele policy advise --path /scratch/job job.trace")]
pub(super) struct Advise {
    /// The output of strace, one file for each client
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// The directory that the program is to have a policy for
    #[arg(long, value_name = "DIR", default_value = "/")]
    path: PathBuf,
    /// The directory in which the program was started
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Each process is a client, as if each were started on another machine
    #[arg(long)]
    each_process: bool,
    /// The cost of the mechanisms: rows of `cudele bench mechanisms --json`. Without it nothing is
    /// predicted
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// Predict how long a job's changes take under each of the nine cells, how much journal they write,
/// and which failures they survive: from the cost of each mechanism on this machine.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  cudele bench mechanisms --json > costs.json
  cudele policy predict --changes 1000000 --costs costs.json")]
pub(super) struct Predict {
    /// Names that the job makes, changes and removes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Rows of `cudele bench mechanisms --json` [default: measured now, which takes a minute]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// A trace larger than this is not a trace of one job.
const TRACE_BYTES_MAX: u64 = 4 << 30;

pub(super) fn advise(context: &Context, args: &Advise) -> Result<()> {
    let mut texts = Vec::new();
    for file in &args.traces {
        let size = std::fs::metadata(file).map_err(|error| terminal::io(file, &error))?.len();
        if size > TRACE_BYTES_MAX {
            let cause = format!("{} are more than a trace may have", bytes(size));
            return Err(Error::new(Errno::TooBig, file.display().to_string(), cause)
                .remedy("trace with -e trace=%file,%desc,%process, or a shorter run"));
        }
        let read = std::fs::read(file).map_err(|error| terminal::io(file, &error))?;
        texts.push(String::from_utf8_lossy(&read).into_owned());
    }
    let costs = match &args.costs {
        Some(file) => Some(costs::read(context, Some(file))?),
        None => None,
    };
    let cwd = args.cwd.as_ref().map(|dir| dir.as_os_str().as_bytes());
    let traces: Vec<_> = texts.iter().map(|text| Trace { text, cwd }).collect();
    let acts = Trace::read(&traces, args.path.as_os_str().as_bytes(), args.each_process);
    if acts.lines > 0 && acts.foreign * 2 > acts.lines {
        let files: Vec<_> = args.traces.iter().map(|file| file.display().to_string()).collect();
        let cause = format!("{} of {} lines are not strace's", acts.foreign, acts.lines);
        return Err(Error::new(Errno::Invalid, files.join(", "), cause)
            .remedy("write one with `strace -f -ttt -o FILE COMMAND`"));
    }
    let advice = judge(&acts);
    #[allow(clippy::cast_precision_loss, reason = "predictions have three digits")]
    let job = Job { changes: acts.changes as f64 };
    let predicted = costs.map(|costs: Costs| predict(&costs, job));
    let shown = Shown { args, advice: &advice, predicted: predicted.as_deref() };
    let programs: Vec<_> = acts.programs.iter().map(|path| (path, reach(path))).collect();
    let value = json!({
        "lines": acts.lines,
        "not_understood": acts.foreign,
        "clients": acts.clients,
        "changes": acts.changes,
        "looks": acts.looks,
        "bytes_written": acts.written,
        "advice": advice.best().map(|cell| cell.to_string()),
        "programs": programs.iter().map(program_json).collect::<Vec<_>>(),
        "cells": Cell::all().map(|cell| shown.cell(cell)).collect::<Vec<_>>(),
    });
    context.print(&value, || {
        let mut text = format!(
            "{} lines, {} clients: {} changes and {} looks at names below {}, {} written\n",
            count(acts.lines),
            acts.clients,
            count(acts.changes),
            count(acts.looks),
            quoted(args.path.as_os_str().as_bytes()),
            bytes(acts.written),
        );
        if acts.foreign > 0 {
            let _ = writeln!(text, "{} lines were not understood", count(acts.foreign));
        }
        text.push_str(&shown.text());
        text.push_str(&programs_text(&programs));
        text
    })
}

fn reach(path: &[u8]) -> Reach {
    Reach::of(std::path::Path::new(std::ffi::OsStr::from_bytes(path)))
}

fn program_json((path, reach): &(&Vec<u8>, Reach)) -> Value {
    json!({
        "path": String::from_utf8_lossy(path),
        "linked": reach.name(),
        "preload": *reach == Reach::Library,
    })
}

/// Which of the programs `cudele run --preload` serves.
fn programs_text(programs: &[(&Vec<u8>, Reach)]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let (served, others): (Vec<_>, Vec<_>) =
        programs.iter().partition(|(_, reach)| *reach == Reach::Library);
    let mut text = format!("preload: serves {} of {} programs\n", served.len(), programs.len());
    for (path, reach) in others {
        let _ = writeln!(text, "  through the mount: {} ({})", quoted(path), reach.name());
    }
    text
}

struct Shown<'a> {
    args: &'a Advise,
    advice: &'a Advice,
    predicted: Option<&'a [Prediction]>,
}

impl Shown<'_> {
    fn place(&self, at: TraceLine) -> String {
        let file = self.args.traces.get(at.trace).map(|file| quoted(file.as_os_str().as_bytes()));
        format!("{}:{}", file.unwrap_or_default(), at.number)
    }

    fn evidence(&self, evidence: &Evidence) -> String {
        let on = evidence.on.map(|on| format!(", of {}", self.place(on)));
        let path = quoted(&evidence.path);
        format!("{}: {path}{}", self.place(evidence.line), on.unwrap_or_default())
    }

    fn prediction(&self, cell: Cell) -> Option<&Prediction> {
        self.predicted?.iter().find(|it| it.cell == cell)
    }

    fn cell(&self, cell: Cell) -> Value {
        let against: Vec<_> = self
            .advice
            .against(cell)
            .map(|forbidden| {
                let lines: Vec<_> = forbidden.evidence.iter().map(|it| self.evidence(it)).collect();
                json!({"reason": forbidden.reason.says(), "times": forbidden.times, "lines": lines})
            })
            .collect();
        json!({
            "cell": cell.to_string(),
            "safe": against.is_empty(),
            "against": against,
            "seconds": self.prediction(cell).map(|it| it.seconds),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for cell in Cell::all() {
            let safe = self.advice.against(cell).next().is_none();
            let _ = write!(
                text,
                "{:<17} {:<9}",
                cell.to_string(),
                if safe { "safe" } else { "not safe" }
            );
            if let Some(prediction) = self.prediction(cell) {
                let _ = write!(text, " {:>10}", seconds(prediction.seconds));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for forbidden in &self.advice.reasons {
            let _ = writeln!(
                text,
                "the program {} ({} times)",
                forbidden.reason.says(),
                count(forbidden.times)
            );
            for evidence in &forbidden.evidence {
                let _ = writeln!(text, "  {}", self.evidence(evidence));
            }
        }
        match self.advice.best() {
            Some(cell) => {
                let _ =
                    writeln!(text, "advice: {cell}: cudele run --policy {cell} PATH -- COMMAND");
            }
            None => text.push_str("advice: none of the cells is safe\n"),
        }
        text
    }
}

pub(super) fn print_prediction(context: &Context, args: &Predict) -> Result<()> {
    let costs = costs::read(context, args.costs.as_ref())?;
    let all = predict(&costs, Job { changes: f64::from(args.changes) });
    let value: Vec<_> = all
        .iter()
        .map(|it| {
            json!({
                "cell": it.cell.to_string(),
                "seconds": it.seconds,
                "journal_bytes": it.bytes,
                "client_killed": it.guarantee.client_killed,
                "client_gone": it.guarantee.client_gone,
                "mds_killed": it.guarantee.mds_killed,
                "store_minority_lost": it.guarantee.store_minority_lost,
                "seen_by_others": it.guarantee.seen_by_others,
            })
        })
        .collect();
    context.print(&Value::Array(value), || {
        let mut text = format!(
            "{:<17} {:>10} {:>10}  client killed; client gone; server killed\n",
            "", "seconds", "journal"
        );
        for it in &all {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "shown with three digits"
            )]
            let journal = bytes(it.bytes as u64);
            let guarantee = it.guarantee;
            let _ = writeln!(
                text,
                "{:<17} {:>10} {journal:>10}  {}; {}; {}",
                it.cell.to_string(),
                seconds(it.seconds),
                guarantee.client_killed,
                guarantee.client_gone,
                guarantee.mds_killed,
            );
        }
        text
    })
}
