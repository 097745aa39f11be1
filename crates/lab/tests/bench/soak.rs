//! A short soak: a piece with kills, an end before its time, and the rest in a second piece.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn soak(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cudele-lab"))
        .args(["soak", "--dir"])
        .arg(dir)
        .args(arguments)
        .env("HOME", dir)
        .env_remove("CUDELE_MON")
        .env_remove("CUDELE_DIR")
        .output()
        .unwrap()
}

/// Bounds of time are the machine's: a busy one must not fail the test.
const PATIENT: [&str; 4] = ["--stall-ms", "20000", "--heal-s", "120"];

#[test]
fn a_soak_kills_and_judges_and_draws() {
    let dir = tempfile::tempdir().unwrap();
    let only = ["--only", "kill-mds", "--only", "kill-client", "--only", "kill-mon"];
    let length = ["--minutes", "0.3", "--ranks", "2", "--seed", "3", "--json"];
    let done = soak(dir.path(), &[&length[..], &only, &PATIENT].concat());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("fsck read") && said.contains("found nothing"), "{said}");
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    let episodes = result["episodes"].as_array().unwrap();
    assert!(!episodes.is_empty() && result["settings"]["seed"] == 3, "{result}");
    let operations = |episode: &Value| episode["operations"].as_u64().unwrap();
    assert!(episodes.iter().map(operations).sum::<u64>() > 100, "{result}");
    let picture = std::fs::read_to_string(dir.path().join("soak.svg")).unwrap();
    assert!(picture.contains("segments of all journals"), "{picture}");
    assert!(
        !dir.path().read_dir().unwrap().any(|entry| {
            entry.unwrap().file_name().to_string_lossy().starts_with("cudele-bench")
        })
    );

    // The run is over: nothing but its last judgement is left to do.
    let again = soak(dir.path(), &["--minutes", "1"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("--continue goes on with it"), "{said}");
    let rest = soak(dir.path(), &["--continue", "--json"]);
    let said = String::from_utf8_lossy(&rest.stderr);
    assert!(rest.status.success(), "{said}");
    let after: Value = serde_json::from_slice(&rest.stdout).unwrap();
    assert_eq!(after["episodes"].as_array().unwrap().len(), episodes.len());
}

#[test]
fn a_power_cut_loses_no_acknowledged_name() {
    let works = |command: &str, argument: &str| {
        let done = Command::new(command).arg(argument).output();
        done.is_ok_and(|done| done.status.success())
    };
    let has_disks = works("mkfs.ext4", "-V") && works("losetup", "-f");
    if !has_disks || !rustix::process::geteuid().is_root() {
        return println!("skipped: a disk needs root, mkfs.ext4 and a free loop device");
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = ["--disk", "ext4", "--store-mib", "256"];
    let disk = [&disk[..], &["--only", "power-cut", "--only", "client-power-cut"]].concat();
    let length = ["--minutes", "0.2", "--ranks", "2", "--seed", "4", "--json"];
    let done = soak(dir.path(), &[&length[..], &disk, &PATIENT].concat());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    let notes = result["episodes"].as_array().unwrap().iter().map(|episode| &episode["note"]);
    let notes: Vec<&str> = notes.map(|note| note.as_str().unwrap()).collect();
    assert!(notes.iter().all(|note| note.contains("flushes")), "{said}");
    assert!(notes.iter().any(|note| note.contains("names were durable")), "{said}");
    assert!(said.contains("found nothing"), "{said}");
}

#[test]
fn a_broken_bound_is_named_with_process_figure_and_seed() {
    let dir = tempfile::tempdir().unwrap();
    let bound = ["--minutes", "1", "--ranks", "2", "--daemon-mib", "1", "--only", "kill-client"];
    let done = soak(dir.path(), &bound);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    for words in ["memory: m", "MiB resident, and the bound is 1 MiB", "seed 1"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(dir.path().join("log/mon.log").exists());
}
