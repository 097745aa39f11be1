//! Starts a fuzz target of the crate `decoders`, if the tools for it are here.
//!
//! The fuzzer begins with the inputs in `crates/decoders/testdata`, a folder for each target.
//! Inputs that reach new code go to `target/fuzz`.
//!
//! Fuzzing needs a nightly compiler and cargo-fuzz. No other chore needs them, so this chore
//! installs nothing and names each missing program.

use std::fs;
use std::path::Path;

use crate::run::{Cargo, Failure, Outcome};

/// How long a target runs unless told otherwise.
const SECONDS_DEFAULT: u32 = 60;

const INSTALL: &str = "fuzzing needs a nightly compiler and cargo-fuzz:
  rustup toolchain install nightly --profile minimal
  cargo install --locked cargo-fuzz";

/// The request on the command line.
#[derive(Debug, Eq, PartialEq)]
struct Request<'a> {
    /// Without one, the targets are listed.
    target: Option<&'a str>,
    seconds: u32,
}

/// Runs one target for a while, or lists the targets.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    let Request { target, seconds } = parse(arguments)?;
    let targets = targets(root)?;
    let Some(target) = target else {
        println!("{}", targets.join("\n"));
        return Ok(());
    };
    if !targets.iter().any(|name| name == target) {
        let known = targets.join(", ");
        return Err(Failure::Usage(format!("there is no target {target:?}; there are {known}")));
    }
    if !Cargo::new(&["+nightly", "fuzz", "--version"]).succeeds(root) {
        return Err(Failure::Failed(INSTALL.into()));
    }
    let limit = format!("-max_total_time={seconds}");
    let (found, kept) = (format!("target/fuzz/{target}"), format!("{CORPUS}/{target}"));
    fs::create_dir_all(root.join(&found))
        .map_err(|error| Failure::Failed(format!("cannot make {found}: {error}")))?;
    Cargo::new(&["+nightly", "fuzz", "run", "any", &found, &kept, "--", &limit])
        .with("CUDELE_FUZZ_TARGET", target)
        .run(root)
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Request<'a>, Failure> {
    let mut request = Request { target: None, seconds: SECONDS_DEFAULT };
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        if argument == "--seconds" {
            let seconds = rest.next().and_then(|number| number.parse().ok());
            let missing = || Failure::Usage("--seconds needs a whole number".into());
            request.seconds = seconds.ok_or_else(missing)?;
        } else if argument.starts_with('-') || request.target.is_some() {
            return Err(Failure::Usage(format!("unexpected argument {argument:?}")));
        } else {
            request.target = Some(argument);
        }
    }
    Ok(request)
}

/// Each target has a folder here.
const CORPUS: &str = "crates/decoders/testdata";

/// The names of the targets.
fn targets(root: &Path) -> Result<Vec<String>, Failure> {
    let directory = root.join(CORPUS);
    let failed = |error| Failure::Failed(format!("cannot read {}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(name) = path.file_stem() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_a_time_are_understood_in_either_order() {
        let expected = Request { target: Some("wire"), seconds: 5 };
        assert_eq!(parse(&["wire", "--seconds", "5"]).expect("it is right"), expected);
        assert_eq!(parse(&["--seconds", "5", "wire"]).expect("it is right"), expected);
    }

    #[test]
    fn a_time_without_a_number_and_a_second_target_are_refused() {
        for wrong in [&["--seconds"][..], &["--seconds", "soon"], &["wire", "policy"], &["-x"]] {
            assert!(matches!(parse(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn targets_are_the_folders_with_their_inputs() {
        let targets = targets(&crate::root()).expect("the folder is committed");
        assert!(targets.len() >= 20 && targets.iter().any(|name| name == "wire"), "{targets:?}");
    }
}
