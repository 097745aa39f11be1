//! Options from configuration files and from the environment.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cluster::{Cluster, text};

/// The program with this file in place of the machine's, without a named cluster.
fn command(cluster: &Cluster, file: &str, arguments: &[&str]) -> Command {
    let path = cluster.home.join("cudele.toml");
    fs::write(&path, file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
    command.env_remove("CUDELE_MON").env_remove("CUDELE_DIR").args(arguments);
    command.env("HOME", &cluster.home).env("CUDELE_STATE", cluster.home.join("state"));
    command.env("CUDELE_CONFIG", path).current_dir(&cluster.home);
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_cluster_is_started_and_found_by_a_file() {
    let cluster = Cluster::down();
    let dir = cluster.dir.display();
    let file = format!("json = true\ndir = \"{dir}\"\n[up]\nmds = 2\n");
    let up = json(&mut command(&cluster, &file, &["up"]));
    assert_eq!(up["dir"], dir.to_string());
    let status = json(&mut command(&cluster, &file, &["status"]));
    assert_eq!(status["mds"].as_array().unwrap().len(), 2, "{status}");
    // Another cluster by the command line, and by the environment.
    let other = Cluster::up();
    let map = json(command(&cluster, &file, &["--dir"]).arg(&other.dir).arg("status"));
    assert_eq!(map["mds"].as_array().unwrap().len(), 1, "{map}");
    let map = json(command(&cluster, &file, &["status"]).env("CUDELE_DIR", &other.dir));
    assert_eq!(map["mds"].as_array().unwrap().len(), 1, "{map}");
}

#[test]
fn each_value_has_a_source() {
    let cluster = Cluster::down();
    let file = "[up]\nmds = 2\nstandby = 1\n";
    let mut shown = command(&cluster, file, &["config", "show", "up", "--json"]);
    let shown = json(shown.env("CUDELE_UP_STANDBY", "3"));
    let path = cluster.home.join("cudele.toml").display().to_string();
    for (option, value, source) in [
        ("mds", Value::from("2"), format!("{path}:2")),
        ("standby", Value::from("3"), "$CUDELE_UP_STANDBY".to_owned()),
        ("store", Value::Null, "default".to_owned()),
    ] {
        let rows = shown.as_array().unwrap();
        let row = rows.iter().find(|row| row["option"] == option).unwrap();
        assert_eq!((&row["value"], &row["source"]), (&value, &Value::from(source)), "{option}");
    }
}

#[test]
fn a_fault_in_a_file_is_named_with_its_line() {
    let cluster = Cluster::down();
    for (file, words) in [
        ("[up]\n\nmdss = 2\n", ["cudele.toml:3", "no option \"mdss\""]),
        ("[up]\nmds = \"many\"\n", ["cudele.toml:2: mds = \"many\"", "cudele up --help"]),
        ("[up\n", ["cudele.toml:1", "TOML"]),
    ] {
        for arguments in [&["up"][..], &["config", "check"]] {
            let output = command(&cluster, file, arguments).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{file}: {said}");
            assert!(words.iter().all(|word| said.contains(word)), "{file}: {said}");
        }
    }
    assert!(!cluster.home.join(".local").exists(), "nothing was started");
    for arguments in [&["--help"][..], &["--version"], &["help", "up"], &["config", "--help"]] {
        let output = command(&cluster, "[up\n", arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }
}
