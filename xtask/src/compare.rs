//! Benchmarks of two versions of the project, run in turn.
//!
//! The processors of a machine sleep and wake, so figures of two hours cannot be compared. This
//! chore builds another version below the build directory, then runs an experiment of that version
//! and of this tree in turn, and takes the ratio of each pair of neighbouring runs.
//!
//! The processor time of an operation is printed beside its rate: on a busy machine it varies less.
//!
//! Not a check: it prints every row, and marks the slower ones; a reader judges them.
//!
//! Invariant: both versions are built with the same profile, and the one that runs first changes
//! from round to round.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::run::{Cargo, Failure, Outcome};

const USAGE: &str =
    "write `cargo xtask compare REVISION EXPERIMENT... [--rounds N] [-- OPTION...]`";
/// Rounds of both versions, unless `--rounds` says otherwise.
const ROUNDS: u32 = 5;
/// A row is marked when the median of its ratios is this far below 1.
const SLOWER: f64 = 0.03;

/// The request of the command line.
#[derive(Debug, PartialEq, Eq)]
struct Wanted<'a> {
    revision: &'a str,
    experiments: Vec<&'a str>,
    rounds: u32,
    /// Handed on to `cudele bench`.
    options: Vec<&'a str>,
}

/// The figures of a row in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// Operations per second.
    rate: f64,
    /// Microseconds of processor time of an operation, of client and server.
    cpu: Option<f64>,
}

/// A row of an experiment: its figures under both versions, a pair for each round.
#[derive(Debug)]
struct Compared {
    name: String,
    pairs: Vec<(Figures, Figures)>,
}

/// Builds both versions, and runs the experiments of both in turn.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    let wanted = wanted(arguments)?;
    let (commit, other) = checkout(root, wanted.revision)?;
    for tree in [other.as_path(), root] {
        // In older versions the experiments are a part of `cli`.
        let lab: &[&str] = if tree.join("crates/lab").exists() { &["-p", "lab"] } else { &[] };
        Cargo::new(&["build", "--release", "-p", "cli"])
            .and(lab)
            .with("CARGO_TARGET_DIR", tree.join("target").display().to_string())
            .run(tree)?;
    }
    println!("ratios: operations per second of this tree over those of {commit}, pair by pair");
    for experiment in &wanted.experiments {
        let mut rows: Vec<Compared> = Vec::new();
        for round in 0..wanted.rounds {
            let before = || rates(&other, experiment, &wanted.options);
            let now = || rates(root, experiment, &wanted.options);
            let (before, now) = if round % 2 == 0 {
                let before = before()?;
                (before, now()?)
            } else {
                let now = now()?;
                (before()?, now)
            };
            add(&mut rows, &before, &now);
            eprintln!("{experiment}: round {} of {}", round + 1, wanted.rounds);
        }
        print!("{}", table(experiment, &rows));
    }
    Ok(())
}

fn wanted<'a>(arguments: &[&'a str]) -> Result<Wanted<'a>, Failure> {
    let usage = || Failure::Usage(USAGE.to_owned());
    let split = arguments.iter().position(|argument| *argument == "--");
    let (own, options) = match split {
        Some(at) => (&arguments[..at], arguments[at + 1..].to_vec()),
        None => (arguments, Vec::new()),
    };
    let (revision, own) = own.split_first().ok_or_else(usage)?;
    let mut wanted = Wanted { revision, experiments: Vec::new(), rounds: ROUNDS, options };
    let mut own = own.iter();
    while let Some(argument) = own.next() {
        if *argument == "--rounds" {
            let number = own.next().and_then(|number| number.parse().ok());
            wanted.rounds = number.filter(|number| *number > 0).ok_or_else(usage)?;
        } else if argument.starts_with('-') {
            return Err(Failure::Usage(format!("unknown option {argument}: {USAGE}")));
        } else {
            wanted.experiments.push(argument);
        }
    }
    if wanted.experiments.is_empty() { Err(usage()) } else { Ok(wanted) }
}

/// The other version's commit, and a clone of the repository that has it checked out.
fn checkout(root: &Path, revision: &str) -> Result<(String, PathBuf), Failure> {
    // A revision that begins with a dash would be an option of git.
    let wanted = format!("{revision}^{{commit}}");
    let commit = git(root, &["rev-parse", "--verify", "--end-of-options", &wanted])?;
    let tree = root.join("target/compare").join(&commit);
    if !tree.join(".git").exists() {
        let (from, to) = (root.display().to_string(), tree.display().to_string());
        git(root, &["clone", "--quiet", "--no-checkout", &from, &to])?;
    }
    git(&tree, &["checkout", "--quiet", "--detach", &commit])?;
    Ok((commit, tree))
}

fn git(place: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let failed = |why: String| Failure::Failed(format!("git {}: {why}", arguments.join(" ")));
    let output = Command::new("git").args(arguments).current_dir(place).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The rows of one run of an experiment, and the operations per second of each.
fn rates(
    tree: &Path,
    experiment: &str,
    options: &[&str],
) -> Result<Vec<(String, Figures)>, Failure> {
    let program = tree.join("target/release/cudele");
    let failed =
        |why: &str| Failure::Failed(format!("{} bench {experiment}: {why}", program.display()));
    let mut command = Command::new(&program);
    command.args(["bench", experiment, "--repeat", "1", "--json"]).args(options);
    let output = command.output().map_err(|error| failed(&error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let printed = serde_json::from_slice::<Vec<Value>>(&output.stdout);
    let rows = printed.map_err(|error| failed(&format!("printed no list of rows: {error}")))?;
    Ok(rows.iter().filter_map(|row| figures(row, experiment)).collect())
}

/// The name and the figures of a row of the experiment; `None` for rows about the machine, and for
/// those that count nothing.
fn figures(row: &Value, experiment: &str) -> Option<(String, Figures)> {
    let (name, rate) = (row["name"].as_str()?, row["per_second"].as_f64()?);
    let name = format!("{name}, {} x {}", row["clients"], row["files"]);
    let cpu = |whose: &str| row[whose].as_f64();
    let cpu =
        cpu("client_cpu_us").zip(cpu("server_cpu_us")).map(|(client, server)| client + server);
    let cpu = cpu.filter(|cpu| *cpu > 0.0);
    (row["bench"] == experiment && rate > 0.0).then_some((name, Figures { rate, cpu }))
}

/// Adds a round. A row that only one of the versions prints cannot be compared.
fn add(rows: &mut Vec<Compared>, before: &[(String, Figures)], now: &[(String, Figures)]) {
    for (name, figures) in now {
        let Some((_, was)) = before.iter().find(|(other, _)| other == name) else { continue };
        let at = rows.iter().position(|row| row.name == *name).unwrap_or_else(|| {
            rows.push(Compared { name: name.clone(), pairs: Vec::new() });
            rows.len() - 1
        });
        rows[at].pairs.push((*was, *figures));
    }
}

/// The median of the ratios, their range, and the medians under both versions.
fn compared(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<(f64, String)> {
    let ratios = sorted(pairs.clone().map(|(was, is)| is / was));
    let (low, high) = (ratios.first()?, ratios.last()?);
    let (was, is) = pairs.unzip::<f64, f64, Vec<_>, Vec<_>>();
    let (was, is, ratio) = (middle(&sorted(was)), middle(&sorted(is)), middle(&ratios));
    let digits = if was < 100.0 { 2 } else { 0 };
    Some((ratio, format!("{ratio:.3} ({low:.3} to {high:.3})  {was:.digits$} -> {is:.digits$}")))
}

fn table(experiment: &str, rows: &[Compared]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = format!("{experiment}\n");
    for row in rows {
        let rates = row.pairs.iter().map(|(was, is)| (was.rate, is.rate));
        let Some((ratio, rates)) = compared(rates) else { continue };
        let mark = if ratio < 1.0 - SLOWER { "  slower" } else { "" };
        let cpu: Vec<_> = row.pairs.iter().filter_map(|(was, is)| was.cpu.zip(is.cpu)).collect();
        let cpu = compared(cpu.into_iter()).map(|(_, text)| format!("  processor {text} us"));
        let (name, cpu) = (&row.name, cpu.unwrap_or_default());
        text.push_str(&format!("  {name:width$}  {rates}/s{mark}{cpu}\n"));
    }
    text
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of sorted values; 0 for nothing.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(sorted[half - 1], *value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_a_revision_experiments_rounds_and_options() {
        let got = wanted(&["v1", "merge", "--rounds", "3", "sync", "--", "--quick"]);
        let want = Wanted {
            revision: "v1",
            experiments: vec!["merge", "sync"],
            rounds: 3,
            options: vec!["--quick"],
        };
        assert_eq!(got.ok(), Some(want));
        for wrong in [&["v1"][..], &[], &["v1", "merge", "--rounds", "0"], &["v1", "--fast"]] {
            assert!(matches!(wanted(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn only_rows_of_both_versions_are_compared_and_slower_ones_are_marked() {
        let figures = |rows: &[(&str, f64, Option<f64>)]| -> Vec<(String, Figures)> {
            let one = |(name, rate, cpu): &(&str, f64, Option<f64>)| {
                ((*name).to_owned(), Figures { rate: *rate, cpu: *cpu })
            };
            rows.iter().map(one).collect()
        };
        let mut rows = Vec::new();
        for slower in [0.90, 0.95, 1.0] {
            let before =
                [("gone", 5.0, None), ("kept", 100.0, Some(4.0)), ("lost", 100.0, Some(1.0))];
            let now =
                [("kept", 101.0, Some(3.0)), ("lost", 100.0 * slower, None), ("new", 1.0, None)];
            add(&mut rows, &figures(&before), &figures(&now));
        }
        let table = table("merge", &rows);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "merge",
                "  kept  1.010 (1.010 to 1.010)  100 -> 101/s  processor 0.750 (0.750 to 0.750)  \
                 4.00 -> 3.00 us",
                "  lost  0.950 (0.900 to 1.000)  100 -> 95/s  slower",
            ]
        );
    }

    #[test]
    fn rows_about_the_machine_have_no_part_in_it() {
        let row = |bench: &str| {
            let row = r#"{"bench":"B","name":"x","files":1,"clients":2,"per_second":3.0,
                "client_cpu_us":1.0,"server_cpu_us":0.5}"#;
            serde_json::from_str::<Value>(&row.replace('B', bench)).expect("a row")
        };
        assert_eq!(figures(&row("probe"), "merge"), None);
        let found = Figures { rate: 3.0, cpu: Some(1.5) };
        assert_eq!(figures(&row("merge"), "merge"), Some(("x, 2 x 1".to_owned(), found)));
        assert_eq!(figures(&Value::Null, "merge"), None);
    }
}
