//! `cudele policy`.

use std::fs;

use serde_json::{Value, json};

use crate::cluster::{Cluster, text};

#[test]
fn check_prints_the_canonical_policy_its_promise_and_warnings() {
    let cluster = Cluster::down();
    let file = "{ \"consistency\": \"append client journal\" \"durability\": \"none\" }";
    fs::write(cluster.home.join("job.policy"), file).unwrap();
    let said = cluster.say(&["policy", "check", "job.policy"]);
    assert!(said.starts_with("consistency: append_client_journal\ndurability: none\n"), "{said}");
    assert!(said.contains("# invisible-none\n"), "{said}");
    assert!(said.contains("# others see updates: only after an explicit merge\n"), "{said}");
    let again = cluster.run_with_input(&["policy", "check", "-"], said.as_bytes());
    assert_eq!(text(&again), said, "what it prints is a policy file");

    for preset in ["posix", "batchfs", "weak-global"] {
        let facts = cluster.json(&["policy", "check", preset]);
        assert_eq!(facts["warnings"], json!([]));
        assert!(facts["guarantee"]["mds_killed"].is_string(), "{facts}");
    }
}

#[test]
fn check_points_at_faults_and_strict_refuses_warnings() {
    let cluster = Cluster::down();
    fs::write(cluster.home.join("bad.yml"), "durability: stream\nconsistency: rpcs+strem\n")
        .unwrap();
    let said = cluster.fails(2, &["policy", "check", "bad.yml"]);
    assert!(said.starts_with("bad.yml:2:19: consistency: `strem`"), "{said}");
    assert!(said.contains("did you mean `stream`?"), "{said}");

    fs::write(cluster.home.join("odd.yml"), "consistency: append_client_journal+rpcs\n").unwrap();
    let facts = cluster.json(&["policy", "check", "odd.yml"]);
    assert_eq!(facts["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(facts["cell"], Value::Null);
    assert!(cluster.say(&["policy", "check", "odd.yml"]).contains("# warning: "));
    let said = cluster.fails(2, &["policy", "check", "--strict", "odd.yml"]);
    assert!(said.starts_with("odd.yml: append_client_journal with rpcs"), "{said}");
    assert!(said.contains("(EINVAL)"), "{said}");

    assert!(cluster.fails(1, &["policy", "check", "./none"]).contains("neither a file"));
    assert!(cluster.fails(1, &["policy", "check", "batchf"]).contains("did you mean `batchfs`?"));
    fs::write(cluster.home.join("large"), vec![b'#'; 70_000]).unwrap();
    assert!(cluster.fails(2, &["policy", "check", "large"]).contains("at most 65536 bytes"));
    fs::write(cluster.home.join("bytes"), b"ack: \xff").unwrap();
    assert!(cluster.fails(2, &["policy", "check", "bytes"]).contains("bytes:1:6: "));
}

#[test]
fn policies_are_set_inherited_removed_and_survive_a_restart() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/job/in/deep", "/other"]);
    let set = cluster.json(&["policy", "set", "/job", "hdfs"]);
    assert_eq!((&set["path"], &set["cell"]), (&json!("/job"), &json!("weak-global")));
    let file = "consistency: rpcs\ndurability: none\n";
    cluster.run_with_input(&["policy", "set", "/job/in", "-"], file.as_bytes());

    let check = || {
        let below = cluster.json(&["policy", "get", "/job/in/deep"]);
        assert_eq!((&below["cell"], &below["source"]), (&json!("strong-none"), &json!("/job/in")));
        assert_eq!(below["inherited"], true);
        let own = cluster.json(&["policy", "get", "/job"]);
        assert_eq!((&own["source"], &own["inherited"]), (&json!("/job"), &json!(false)));
        let none = cluster.json(&["policy", "get", "/other"]);
        assert_eq!((&none["cell"], &none["source"]), (&json!("strong-global"), &Value::Null));
        let all = cluster.json(&["policy", "ls"]);
        let paths: Vec<_> = all.as_array().unwrap().iter().map(|row| &row["path"]).collect();
        assert_eq!(paths, ["/job", "/job/in"]);
    };
    check();
    cluster.kill("mds");
    cluster.kill("mon");
    cluster.start();
    check();
    cluster.run(&["down"]);
    cluster.start();
    check();

    let said = cluster.say(&["policy", "get", "/job/in/deep"]);
    assert!(said.starts_with("consistency: rpcs\n"), "{said}");
    assert!(said.ends_with("# inherited from /job/in\n"), "{said}");
    assert!(cluster.say(&["policy", "ls"]).starts_with("/job\tweak-global\t"));
    cluster.run(&["policy", "rm", "/job/in"]);
    assert_eq!(cluster.json(&["policy", "get", "/job/in"])["source"], "/job");

    assert!(cluster.fails(1, &["policy", "rm", "/job/in"]).contains("(ENODATA)"));
    assert!(cluster.fails(1, &["policy", "set", "/none", "posix"]).starts_with("/none: "));
    let odd = b"consistency: append_client_journal+rpcs\n";
    let output = cluster.output_with_input(&["policy", "set", "--strict", "/job", "-"], odd);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("cudele: standard input: append_client_journal"));
    assert_eq!(cluster.json(&["policy", "get", "/job"])["cell"], "weak-global");
    let output = cluster.output_with_input(&["policy", "set", "/job", "-"], odd);
    assert!(output.status.success() && text(&output.stderr).contains("warning: "));
}
