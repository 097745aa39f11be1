//! `cudele policy advise` on programs that are really traced, and `cudele policy predict`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Traces a shell script in a directory.
fn trace(dir: &Path, name: &str, script: &str) -> String {
    let file = dir.join(name);
    let traced = Command::new("strace")
        .args(["-f", "-ttt", "-o"])
        .arg(&file)
        .args(["sh", "-c", script])
        .current_dir(dir)
        .status()
        .expect("strace is installed (apt-get install strace)");
    assert!(traced.success(), "{script}");
    file.to_str().unwrap().to_owned()
}

fn advise(cluster: &Cluster, arguments: &[&str]) -> Value {
    let at = cluster.home.to_str().unwrap();
    let common = ["--json", "policy", "advise", "--path", at, "--cwd", at];
    serde_json::from_slice(&cluster.run(&[&common, arguments].concat())).unwrap()
}

fn safe(value: &Value) -> Vec<&str> {
    let cells = value["cells"].as_array().unwrap().iter();
    cells.filter(|cell| cell["safe"] == true).map(|cell| cell["cell"].as_str().unwrap()).collect()
}

/// Rows as `cudele bench mechanisms --json` writes them.
fn costs(dir: &Path) -> String {
    let row = |name: &str, seconds: f64| json!({"bench": "mechanisms", "name": name, "files": 1000, "median": seconds, "bytes_per_event": 4.0});
    let names = [
        ("append_client_journal", 0.001),
        ("local_persist", 0.002),
        ("global_persist", 0.003),
        ("volatile_apply", 0.004),
        ("nonvolatile_apply", 0.02),
        ("rpcs", 0.03),
        ("rpcs+stream", 0.04),
    ];
    let rows: Vec<_> = names.iter().map(|(name, seconds)| row(name, *seconds)).collect();
    let file = dir.join("costs.json");
    std::fs::write(&file, serde_json::to_vec(&rows).unwrap()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn programs_are_judged_by_what_they_do() {
    let cluster = Cluster::down();
    let home = cluster.home.clone();
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !works.is_ok_and(|works| works.status.success()) {
        println!("skipped: strace is not installed, or may trace nothing here");
        return;
    }
    // A program that only makes files may have any cell; its processes' view of one another does
    // not count.
    let quiet =
        trace(&home, "quiet", "mkdir out; for i in 1 2 3; do echo $i > out/$i; done; ls out");
    let found = advise(&cluster, &[&quiet]);
    assert_eq!(safe(&found).len(), 9, "{found:#}");
    assert_eq!(found["advice"], "weak-none");
    assert!(found["changes"].as_u64().unwrap() >= 4, "{found:#}");
    assert_eq!(found["not_understood"], 0, "{found:#}");
    // `sh`, `mkdir` and `ls`.
    let programs = found["programs"].as_array().expect("a list");
    assert_eq!(programs.len(), 3, "{found:#}");
    assert!(programs.iter().all(|program| program["preload"] == true), "{found:#}");
    // With a client for each process, `ls` would need the shell's files while the shell still
    // works.
    let found = advise(&cluster, &["--each-process", &quiet]);
    assert_eq!(safe(&found), ["strong-none", "strong-local", "strong-global"], "{found:#}");
    // One that syncs was promised something.
    let syncs =
        trace(&home, "syncs", "dd if=/dev/zero of=kept bs=512 count=1 conv=fsync 2>/dev/null");
    let found = advise(&cluster, &["--costs", &costs(&home), &syncs]);
    assert_eq!(found["advice"], "weak-local", "{found:#}");
    let none = &found["cells"][0];
    assert_eq!(
        (none["cell"].as_str(), none["safe"].as_bool()),
        (Some("invisible-none"), Some(false))
    );
    let line = none["against"][0]["lines"][0].as_str().unwrap();
    let number: usize = line.split(':').nth(1).unwrap().parse().unwrap();
    let text = std::fs::read_to_string(&syncs).unwrap();
    assert!(text.lines().nth(number - 1).unwrap().contains("fsync("), "{line}");
    assert!(none["seconds"].as_f64().unwrap() > 0.0);
    // Two clients: the second begins when the first has ended.
    let second = trace(&home, "second", "cat out/1; mkdir out/later");
    let found = advise(&cluster, &[&quiet, &second]);
    assert_eq!(safe(&found).len(), 6, "what is merged when the first ends is there: {found:#}");
    // A lock by exclusive creation is one between clients that live.
    let locks = trace(&home, "locks", "mkdir lock; (mkdir lock; true) 2>/dev/null; rmdir lock");
    let found = advise(&cluster, &["--each-process", &locks]);
    assert_eq!(found["advice"], "strong-none", "{found:#}");
    let said = cluster.fails(2, &["policy", "advise", "/bin/sh"]);
    assert!(said.contains("strace -f -ttt"), "{said}");
    let said = cluster.fails(1, &["policy", "advise", "/no/trace"]);
    assert!(said.contains("/no/trace"), "{said}");
}

#[test]
fn jobs_are_predicted_from_what_mechanisms_cost() {
    let cluster = Cluster::down();
    let costs = costs(&cluster.home);
    let predict = ["--json", "policy", "predict", "--changes", "100000", "--costs", &costs];
    let value: Value = serde_json::from_slice(&cluster.run(&predict)).unwrap();
    let cells = value.as_array().unwrap();
    assert_eq!(cells.len(), 9);
    let weak = cells.iter().find(|cell| cell["cell"] == "weak-local").unwrap();
    assert!((weak["seconds"].as_f64().unwrap() - 0.7).abs() < 1e-9, "{weak:#}");
    assert!((weak["journal_bytes"].as_f64().unwrap() - 400_000.0).abs() < 1e-6, "{weak:#}");
    let said = cluster.say(&predict[1..]);
    assert!(said.contains("weak-global"), "{said}");
    let said = cluster.fails(2, &["policy", "predict", "--changes", "1", "--costs", "/bin/sh"]);
    assert!(said.contains("cudele bench mechanisms --json"), "{said}");
}
