//! `cudele bench` without the benchmarks: how it starts their program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::cluster::text;

/// The product in a directory of its own, without its neighbours.
fn alone() -> TempDir {
    let program = Path::new(env!("CARGO_BIN_EXE_cudele"));
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    std::fs::hard_link(program, dir.path().join("cudele")).unwrap();
    dir
}

fn run(dir: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(dir.path().join("cudele"));
    command.args(arguments).env("PATH", "/usr/bin:/bin").env_remove("CUDELE_DIR");
    command.env_remove("CUDELE_MON").env("HOME", dir.path()).output().unwrap()
}

#[test]
fn without_its_program_a_benchmark_says_how_to_build_it() {
    let dir = alone();
    for arguments in
        [&["bench", "probe"][..], &["bench", "--help"], &["policy", "predict", "--changes", "9"]]
    {
        let output = run(&dir, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cudele-lab") && said.contains("-p lab"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_benchmark_gets_all_arguments_and_its_exit_code_is_returned() {
    let dir = alone();
    let lab = dir.path().join("cudele-lab");
    std::fs::write(&lab, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&lab, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (given, gets) in [
        (&["bench", "probe"][..], "bench probe\n"),
        (&["bench", "--quick", "all", "--json"], "bench --quick all --json\n"),
        (&["--json", "--dir", "/x", "bench", "all"], "--json --dir /x bench all\n"),
        (&["bench", "--mon", "unix:/m", "all", "-h"], "--mon unix:/m bench all -h\n"),
        (&["bench", "--help"], "bench --help\n"),
        (&["help", "bench"], "bench --help\n"),
        (&["bench"], "bench\n"),
    ] {
        let output = run(&dir, given);
        assert_eq!(output.status.code(), Some(7), "{given:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), gets, "{given:?}");
    }
}
