//! The figures, side by side: `cargo xtask experiment` runs the commands of
//! `experiments/*/experiment.toml`, keeps the rows that they print, draws them beside the published
//! values, and writes a page.
//!
//! Not for measuring: `cudele` printed every figure. Invariant: every drawn or tabulated value is
//! in a result's rows or, marked as published, in a description.
pub(crate) mod axis;
mod chart;
mod describe;
mod figure;
mod machine;
mod output;
mod page;
pub(crate) mod paint;
mod pick;
mod readme;
mod results;
mod run;
pub(crate) mod scene;
pub(crate) mod svg;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use describe::Description;
use terminal::program;

use output::write;

/// Run the commands of the published figures, and draw what they print beside the published values
#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "cargo xtask experiment NAME|all|page|list [--quick] [--cephfs FILE] [--juicefs FILE]",
    after_help = "Example:\n  cargo xtask experiment creates --quick"
)]
pub(crate) struct Args {
    /// A folder in experiments/, which is run and drawn anew; `all` runs all of them, one after the
    /// other, and says at the end which failed; `page` draws everything again from the results that
    /// are there; `list` says which experiments there are
    #[arg(value_name = "NAME")]
    what: String,
    /// Small sizes, to see that everything works; the results are kept in target/experiments, and
    /// not beside the results of full runs
    #[arg(long)]
    quick: bool,
    /// The program that is measured [default: `cudele` beside this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The directory of the sources
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Configuration of a Ceph cluster with a CephFS (`cargo xtask ceph up --cephfs`), measured in
    /// the same run where an experiment has it as a peer
    #[arg(long, value_name = "FILE")]
    cephfs: Option<PathBuf>,
    /// The program of JuiceFS, likewise (`scripts/peers install`)
    #[arg(long, value_name = "FILE")]
    juicefs: Option<PathBuf>,
}

impl Args {
    fn descriptions(&self) -> PathBuf {
        self.root.join("experiments")
    }

    /// Where results and pictures go.
    fn out(&self) -> PathBuf {
        if self.quick { self.root.join("target/experiments") } else { self.descriptions() }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = describe::all(&args.descriptions())?;
    let artefacts = describe::artefacts(&args.descriptions())?;
    let mut failed = 0;
    match args.what.as_str() {
        "list" => {
            for one in &all {
                println!("{:<24} {}", one.name, one.figure);
            }
            return Ok(());
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
    if failed == 0 {
        return Ok(());
    }
    let cause = format!("{failed} of {} failed", all.len());
    Err(Error::new(Errno::Io, "experiments", cause).remedy("their messages are above"))
}

fn measure(args: &Args, one: &Description) -> Result<()> {
    if one.run.is_empty() {
        return Ok(());
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => program::find(program::PRODUCT)?,
    };
    let runner = run::Runner {
        program: &program,
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
