//! `cudele trace`: one request in all its steps.

use serde_json::Value;

use crate::cluster::Cluster;

fn traced(cluster: &Cluster, arguments: &[&str]) -> Value {
    let output = cluster.run(&[&["trace", "--json"], arguments].concat());
    serde_json::from_slice(&output).unwrap()
}

fn texts(hop: &Value, part: &str) -> Vec<String> {
    let steps = hop["steps"].as_array().unwrap().iter().filter(|step| step["part"] == part);
    steps.map(|step| step["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_create_is_followed_to_the_journal_of_the_rank_that_has_the_directory() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    cluster.run(&["mkdir", "/here", "/there", "/there/deep"]);
    cluster.run(&["mds", "pin", "/there", "1"]);
    let trace = traced(&cluster, &["create", "/there/deep/new"]);
    let hop = trace["hops"].as_array().unwrap().last().unwrap();
    assert_eq!((&hop["rank"], &hop["outcome"]), (&Value::from(1), &Value::from("done")), "{trace}");
    let journal = texts(hop, "journal");
    let has = |word: &str| journal.iter().any(|text| text.contains(word));
    assert!(has("to journal/mds.0001/") && has("ended after"), "{trace}");
    assert!(texts(hop, "server").iter().any(|text| text.contains("is durable")), "{trace}");
    let steps = hop["steps"].as_array().unwrap();
    assert!(steps.iter().map(|step| step["us"].as_u64().unwrap()).is_sorted(), "{trace}");
    assert_eq!(cluster.names("/there/deep"), ["new"]);
    // An error is the command's.
    let again = cluster.command(&["trace", "create", "/there/deep/new"]).output().unwrap();
    assert!(!again.status.success());
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(said.contains("the reply leaves: EEXIST"), "{said}");
}

#[test]
fn each_kind_of_request_is_traced_at_the_rank_that_serves_it() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    cluster.run(&["mkdir", "/there", "/there/deep"]);
    cluster.run(&["mds", "pin", "/there", "1"]);
    for (request, path, rank, is_change) in [
        ("stat", "/", 0, false),
        ("list", "/", 0, false),
        ("sync", "/", 0, false),
        ("list", "/there/deep", 1, false),
        ("create", "/there/deep/file", 1, true),
        ("stat", "/there/deep/file", 1, false),
        ("mkdir", "/there/deep/dir", 1, true),
        ("unlink", "/there/deep/file", 1, true),
        ("rmdir", "/there/deep/dir", 1, true),
    ] {
        let trace = traced(&cluster, &[request, path]);
        let hop = trace["hops"].as_array().unwrap().last().unwrap();
        let found = (&hop["rank"], &hop["outcome"]);
        assert_eq!(found, (&Value::from(rank), &Value::from("done")), "{request} {path}: {trace}");
        assert_eq!(!texts(hop, "journal").is_empty(), is_change, "{request} {path}: {trace}");
    }
    assert_eq!(cluster.names("/there/deep"), [""; 0]);
    let root = cluster.command(&["trace", "rmdir", "/"]).output().unwrap();
    let said = String::from_utf8_lossy(&root.stderr);
    assert!(!root.status.success() && said.contains("neither made nor removed"), "{said}");
}
