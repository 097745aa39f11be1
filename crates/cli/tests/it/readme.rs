//! The examples of the README, as they are written there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, text};

/// The top of the source tree, where a reader of the README is.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lines of the shell block below a heading.
fn block(heading: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(top().join("README.md")).unwrap();
    let (_, below) = readme.split_once(heading).unwrap();
    let (_, block) = below.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.lines().map(str::to_owned).collect()
}

#[test]
fn the_first_example_works_on_a_fresh_machine() {
    // A home directory with nothing in it; the directory of the cluster is chosen by `up`.
    let mut cluster = Cluster::down();
    cluster.dir = cluster.home.join(".local/share/cudele");
    let lines = block("## A cluster on one machine");
    assert!(lines.iter().any(|line| line.starts_with("cudele ingest")), "{lines:?}");
    let program = Path::new(env!("CARGO_BIN_EXE_cudele")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    // The tests have built the program already.
    for line in lines.iter().filter(|line| line.contains("cudele") && !line.contains("cargo")) {
        let mut shell = Command::new("sh");
        for variable in
            ["CUDELE_MON", "CUDELE_DIR", "CUDELE_STATE", "XDG_DATA_HOME", "XDG_STATE_HOME"]
        {
            shell.env_remove(variable);
        }
        shell.args(["-ec", line]).env("PATH", &path).env("HOME", &cluster.home).current_dir(top());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    }
}
