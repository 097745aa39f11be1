//! The project's chores, in the project's language: `cargo xtask` lists them.
//!
//! For all work of a developer or a build machine beyond plain `cargo build` and `cargo test`: the
//! checks that the compiler does not make (`tidy`), the list of checks that a change must pass
//! (`ci`), long simulations and fuzzing. A user of the file system needs none of it.
//!
//! Invariant: only `fix`, `hook`, `experiment`, `capi install` and `python wheel` change files
//! outside the build directory.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: chores read the tree, start programs and report on the terminal"
)]

mod capi;
mod ci;
mod compare;
mod experiment;
mod fuzz;
mod hook;
mod instructions;
mod message;
mod miri;
mod package;
mod prose;
mod python;
mod run;
mod rust;
mod suites;
mod tidy;
mod tools;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use run::{Cargo, Failure, Outcome};

const USAGE: &str = "\
usage: cargo xtask CHORE [ARGUMENT]...

  ci [STEP]...       what every change must pass, cheapest step first, with times;
                     with names, only those steps            (also: test, cargo ci)
  tidy               the checks the compiler does not make: layers, sizes, docs, ...
  words [PATH]...    how plainly comments and pages are written, with every sentence that
                     STYLE.md asks to be written in another way; `--list` prints the lines
                     that xtask/words.txt needs
  sim [OPTION]...    run the simulator with assertions on; the options are its own,
                     for example --seeds 50, --seconds 40, --seed 0x2a
  properties [RUNS]  run the property tests with other seeds, 10 times or as often as told
  fuzz [TARGET] [--seconds N]
                     feed a decoder random bytes (without TARGET: list the targets)
  miri [--schedules N]
                     the tests of the memory that a job's processes share, in Miri; the test with
                     threads in 16 schedules or as many as told
  tools              build, once, the third-party programs: those that test the mount, and mdBook
  book               build the book of docs/SUMMARY.md into target/book, with mdBook
  long [NAME]        long tests of the mount: git, builds, SQLite, rsync, ... (Debian packages)
  suites [--suite NAME]... [--on CELL]... [--case PART]... [--ltp DIR] [--xfstests DIR]
         [--pjdfstest DIR] [--program FILE] [--store URL] [--minutes N]
         [--results DIR] [--quick] [--json] [--list]
                     stress-ng, fio, dbench (Debian packages), and LTP, xfstests and pjdfstest
                     if they are built there, on each kind of directory (docs/suites.md); `--quick`
                     is the part for each change
  instructions       count the instructions of a create in the server's core, with valgrind,
                     and compare them with xtask/instructions.toml
  compare REVISION EXPERIMENT... [--rounds N] [-- OPTION...]
                     run experiments of another version and of this tree in turn, and print
                     the ratio of each row; the options are those of `cudele bench`
  ceph up|status|down
                     a real Ceph cluster on this machine, for tests and to try things with
  ceph mount [TEST]...
                     pjdfstest and fsx on a mount whose object store is such a cluster, or
                     other tests of the mount
  package [DIRECTORY]
                     build the .deb and the .rpm, into target/package or DIRECTORY
  package test       install them into a fresh Debian, start a cluster with its units there, run
                     a job, and remove everything (as root; Debian packages debootstrap and rpm)
  capi install PREFIX
                     build the C library and lay it out: header, libraries, pkg-config file
  experiment NAME|all|page|list [--quick]
                     the published figures: measure, draw, and write experiments/index.html
  python [OPTION]... the tests of the Python package, with pytest, whose options these are
  python all [OPTION]...
                     build the wheel, install it below the build directory, and test it with
                     pandas, pyarrow, zarr and mypy, too
  python wheel DIRECTORY
                     build the wheel
  fix                rewrite the sources: rustfmt and what clippy can repair
  hook               install the git hooks: format check, tidy, and the commit message's form
  commit-message FILE
                     check the form of the commit message in a file, as the hook does
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match chore(&root(), &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::FAILURE,
        Err(Failure::Failed(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(message)) => {
            eprintln!("xtask: {message}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn chore(root: &Path, arguments: &[&str]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(());
    };
    match *name {
        "ci" | "test" => ci::run(root, rest),
        "tidy" => no_arguments(rest).and_then(|()| tidy::run(root)),
        "commit-message" => match rest {
            [file] => message::check(root, file),
            _ => Err(Failure::Usage("commit-message takes the file with the message".into())),
        },
        "words" => tidy::show_words(root, rest),
        "sim" => sim(root, rest),
        "properties" => properties(root, rest),
        "miri" => miri::run(root, rest),
        "fuzz" => fuzz::run(root, rest),
        "tools" => no_arguments(rest).and_then(|()| tools::install(root)),
        "book" => no_arguments(rest).and_then(|()| tools::book(root)),
        "long" => tools::long(root, rest),
        "suites" => suites::run(root, rest),
        "instructions" => no_arguments(rest).and_then(|()| instructions::check(root)),
        "ceph" => match rest {
            ["mount", tests @ ..] => tools::mount_on_ceph(root, tests),
            options => ceph(root, options),
        },
        "compare" => compare::run(root, rest),
        "capi" => capi::run(root, rest),
        "package" => package::run(root, rest),
        "experiment" => experiment::run(root, rest),
        "python" => python::run(root, rest),
        "fix" => no_arguments(rest).and_then(|()| fix(root)),
        "hook" => no_arguments(rest).and_then(|()| hook::install(root)),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(Failure::Usage(format!("there is no chore named {other:?}"))),
    }
}

fn no_arguments(arguments: &[&str]) -> Outcome {
    match arguments.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Usage(format!("unexpected argument {first:?}"))),
    }
}

/// Runs the simulator in the profile that optimises and keeps assertions. The options are the
/// simulator's own, so that this file does not have to know them.
fn sim(root: &Path, options: &[&str]) -> Outcome {
    let command = ["run", "--quiet", "--profile", "sim", "-p", "sim", "--bin", "sim", "--"];
    Cargo::new(&command).and(options).run(root)
}

/// The options are the program's own, as with the simulator.
fn ceph(root: &Path, options: &[&str]) -> Outcome {
    Cargo::new(&["run", "--quiet", "-p", "testceph", "--"]).and(options).run(root)
}

fn properties(root: &Path, arguments: &[&str]) -> Outcome {
    let runs = match arguments {
        [] => 10,
        [runs, rest @ ..] => {
            no_arguments(rest)?;
            let wrong = |_| Failure::Usage(format!("{runs:?} is not a number of runs"));
            runs.parse().map_err(wrong)?
        }
    };
    ci::properties(root, runs)
}

/// Repairs format and lints. Clippy runs first, because its repairs are not formatted.
fn fix(root: &Path) -> Outcome {
    let clippy = ["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty"];
    Cargo::new(&clippy).and(&["--allow-staged"]).run(root)?;
    Cargo::new(&["fmt", "--all"]).run(root)
}

/// The repository's top directory: this crate's manifest is one level below it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
