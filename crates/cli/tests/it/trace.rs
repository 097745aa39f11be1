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
    cluster.run(&["mkdir", "/here", "/there"]);
    cluster.run(&["mds", "pin", "/there", "1"]);
    let trace = traced(&cluster, &["create", "/there/new"]);
    let hops = trace["hops"].as_array().unwrap();
    assert_eq!(hops.len(), 2, "{trace}");
    assert_eq!((&hops[0]["rank"], &hops[1]["rank"]), (&Value::from(0), &Value::from(1)));
    assert!(hops[0]["outcome"].as_str().unwrap().contains("another rank"), "{trace}");
    let journal = texts(&hops[1], "journal");
    let has = |word: &str| journal.iter().any(|text| text.contains(word));
    assert!(has("to journal/mds.0001/") && has("ended after"), "{trace}");
    assert!(texts(&hops[1], "server").iter().any(|text| text.contains("is durable")), "{trace}");
    let order: Vec<u64> = hops[1]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["us"].as_u64().unwrap())
        .collect();
    assert!(order.is_sorted(), "{trace}");
    assert_eq!(cluster.names("/there"), ["new"]);
    // Reading changes nothing, and an error is the command's.
    let trace = traced(&cluster, &["stat", "/there/new"]);
    assert!(
        texts(trace["hops"].as_array().unwrap().last().unwrap(), "journal").is_empty(),
        "{trace}"
    );
    let again = cluster.command(&["trace", "create", "/there/new"]).output().unwrap();
    assert!(!again.status.success());
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(said.contains("the reply leaves: EEXIST"), "{said}");
}
