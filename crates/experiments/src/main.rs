//! The figures, side by side: `cargo xtask experiment` runs the commands of
//! `experiments/*/experiment.toml`, keeps the rows that they print, draws them beside the published
//! values, and writes a page.
//!
//! Not for measuring: `cudele` printed every figure. Invariant: every drawn or tabulated value is
//! in a result's rows or, marked as published, in a description.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: a program that reads descriptions, starts programs and writes files"
)]

mod axis;
mod chart;
mod describe;
mod figure;
mod machine;
mod page;
mod paint;
mod pick;
mod readme;
mod results;
mod run;
mod scene;
mod svg;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use describe::Description;
use types::{Errno, Error, Result};

const USAGE: &str = "\
usage: cargo xtask experiment NAME|all|page|list [--quick] [--cephfs FILE] [--juicefs FILE]

  NAME             runs one experiment and draws it anew; the names are those of the folders in
                   experiments/
  all              runs all of them, one after the other, and says at the end which failed
  page             draws everything again from the results that are there, and runs nothing
  list             says which experiments there are

  --quick          small sizes, to see that everything works; what comes of it is kept in
                   target/experiments, and not beside the results of full runs
  --cephfs FILE    configuration of a Ceph cluster with a CephFS (`cargo xtask ceph up --cephfs`),
                   measured in the same run where an experiment has it as a peer
  --juicefs FILE   the program of JuiceFS, likewise (`scripts/peers install`)
";

/// The request on the command line.
struct Args {
    what: String,
    quick: bool,
    program: PathBuf,
    root: PathBuf,
    cephfs: Option<PathBuf>,
    juicefs: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("experiment: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match perform(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("experiment: {failed} failed; their messages are above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("experiment: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let wrong = |cause: String| Error::new(Errno::Invalid, "arguments", cause);
        let mut arguments = arguments;
        let mut args = Self {
            what: String::new(),
            quick: false,
            program: PathBuf::from("target/release/cudele"),
            root: PathBuf::from("."),
            cephfs: None,
            juicefs: None,
        };
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| wrong(format!("{argument} needs a value")));
            match argument.as_str() {
                "--quick" => args.quick = true,
                "--program" => args.program = value()?.into(),
                "--root" => args.root = value()?.into(),
                "--cephfs" => args.cephfs = Some(value()?.into()),
                "--juicefs" => args.juicefs = Some(value()?.into()),
                option if option.starts_with('-') => {
                    return Err(wrong(format!("there is no option {option}")));
                }
                _ if args.what.is_empty() => args.what = argument,
                _ => return Err(wrong(format!("{argument:?} is one argument too many"))),
            }
        }
        if args.what.is_empty() {
            return Err(wrong("no experiment is named".into()));
        }
        Ok(args)
    }

    fn descriptions(&self) -> PathBuf {
        self.root.join("experiments")
    }

    /// Where results and pictures go.
    fn out(&self) -> PathBuf {
        if self.quick { self.root.join("target/experiments") } else { self.descriptions() }
    }
}

/// Returns how many experiments failed.
fn perform(args: &Args) -> Result<usize> {
    let all = describe::all(&args.descriptions())?;
    let artefacts = describe::artefacts(&args.descriptions())?;
    let mut failed = 0;
    match args.what.as_str() {
        "list" => {
            for one in &all {
                println!("{:<24} {}", one.name, one.figure);
            }
            return Ok(0);
        }
        "page" => {}
        "all" => {
            let start = Instant::now();
            for (at, one) in all.iter().enumerate() {
                eprintln!("== {} of {}: {}", at + 1, all.len(), one.name);
                if let Err(error) = measure(args, one) {
                    eprintln!("experiment {}: {error}", one.name);
                    failed += 1;
                }
            }
            eprintln!("== {} experiments in {:.0} s", all.len(), start.elapsed().as_secs_f64());
        }
        name => {
            let one = all.iter().find(|one| one.name == name).ok_or_else(|| {
                let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
                Error::new(Errno::NotFound, name, "there is no such experiment")
                    .remedy(format!("one of: {}", names.join(", ")))
            })?;
            measure(args, one)?;
        }
    }
    draw(args, &all, &artefacts)?;
    Ok(failed)
}

fn measure(args: &Args, one: &Description) -> Result<()> {
    if one.run.is_empty() {
        return Ok(());
    }
    let runner = run::Runner {
        program: &args.program,
        quick: args.quick,
        cephfs: args.cephfs.as_deref(),
        juicefs: args.juicefs.as_deref(),
        root: &args.root,
    };
    let results = runner.experiment(one)?;
    results::write(&args.out().join(&one.name).join("results.json"), &results)
}

/// Draws every experiment from its results, and the page with all of them.
fn draw(args: &Args, all: &[Description], artefacts: &[describe::Artefact]) -> Result<()> {
    let out = args.out();
    let mut figures = Vec::new();
    for one in all {
        let folder = out.join(&one.name);
        let results = results::read(&folder.join("results.json"))?;
        let figure = figure::Figure::of(one, results)?;
        figure.write(&folder)?;
        if !args.quick {
            let text = readme::text(&figure);
            write(&folder.join("README.md"), text.as_bytes())?;
        }
        figures.push(figure);
    }
    let page = out.join("index.html");
    write(&page, page::html(&figures, artefacts).as_bytes())?;
    eprintln!("written: {}", page.display());
    Ok(())
}

/// Writes a file, with the directories above it.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| io(parent, &error))?;
    }
    std::fs::write(path, bytes).map_err(|error| io(path, &error))
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    let errno = if error.kind() == std::io::ErrorKind::NotFound {
        Errno::NotFound
    } else if error.kind() == std::io::ErrorKind::PermissionDenied {
        Errno::Access
    } else {
        Errno::Io
    };
    Error::new(errno, path.display().to_string(), error.to_string())
}
