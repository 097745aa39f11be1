//! `cudele balancer`: without a cluster.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, text};

#[test]
fn check_tries_shipped_policies_and_files_of_both_dialects() {
    let cluster = Cluster::down();
    let presets = cluster.json(&["balancer", "presets"]);
    let names: Vec<_> = presets.as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names.len(), 11);
    assert!(names.iter().any(|name| **name == "cudele"));

    let shown = cluster.say(&["balancer", "show", "greedy-spill"]);
    fs::write(cluster.home.join("mine.lua"), &shown).unwrap();
    let facts = cluster.json(&["balancer", "check", "mine.lua"]);
    assert_eq!(facts["dialect"], "mantle");
    let moves = |scene: &&Value| scene["ranks"] == 2 && scene["subtrees"].as_u64() > Some(0);
    let scenes: Vec<_> = facts["scenes"].as_array().unwrap().iter().filter(moves).collect();
    assert_eq!(scenes.len(), 1, "{facts}");
    assert_eq!(scenes[0]["load"], "all on the first rank");

    let script = "local t = {}\nfor r in pairs(mds) do t[r] = 0 end\nreturn t\n";
    let said = text(&cluster.run_with_input(&["balancer", "check", "-"], script.as_bytes()));
    assert!(said.starts_with("standard input: ceph dialect"), "{said}");
    assert!(said.contains("no faults"), "{said}");
}

#[test]
fn check_names_line_reason_and_remedy() {
    let cluster = Cluster::down();
    let refused = |name: &str, text: &str, words: &[&str]| {
        fs::write(cluster.home.join(name), text).unwrap();
        let said = cluster.fails(2, &["balancer", "check", name]);
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    };
    refused("a.lua", "-- When policy\nif true the\n", &["a.lua: line 2", "then", "(EINVAL)"]);
    refused(
        "b.lua",
        "-- When policy\n\nwhile 1 do end\nif true then\n",
        &["line 3", "steps", "loop"],
    );
    refused(
        "c.lua",
        "-- When policy\nif whoami == 2 then\n-- Where policy\ntargets[1] = -1\n",
        &["line 4", "rank 1 is -1", "mds.1 of 2 ranks"],
    );
    assert!(cluster.fails(1, &["balancer", "check", "none.lua"]).contains("presets"));
    assert!(cluster.fails(2, &["balancer", "show", "none"]).contains("presets"));
}

#[test]
fn check_ends_scripts_that_catch_every_error() {
    let cluster = Cluster::down();
    for code in [
        "-- When policy\nwhile true do pcall(error) end\nif true then\n",
        "-- When policy\nlocal function f() while true do xpcall(f, f) end end f()\nif true then\n",
        "-- Metadata load\nwhile true do pcall(error) end\n-- When policy\nif true then\n",
        "while true do pcall(coroutine.wrap(function() while true do pcall(error) end end)) end",
    ] {
        fs::write(cluster.home.join("hostile.lua"), code).unwrap();
        let start = Instant::now();
        let said = cluster.fails(2, &["balancer", "check", "hostile.lua"]);
        assert!(said.contains("loop") || said.contains("takes too long"), "{code}: {said}");
        // One decision, of at most five seconds, on a machine that is busy.
        assert!(start.elapsed() < Duration::from_secs(30), "{code}: {:?}", start.elapsed());
    }
}

#[test]
fn simulate_draws_prints_and_repeats() {
    let cluster = Cluster::down();
    let run = ["balancer", "simulate", "cudele", "static", "--seconds", "40", "--log"];
    let said = cluster.say(&run);
    assert_eq!(said, cluster.say(&run), "the same seed shows the same");
    assert_eq!(said.matches("\nrank ").count(), 8, "{said}");
    assert!(said.contains("wants"), "the log says why: {said}");

    let run = ["balancer", "simulate", "cephfs", "--seconds", "40", "--ranks", "2", "--seeds", "2"];
    let facts = cluster.json(&[&run[..], &["--svg", "load.svg"]].concat());
    assert_eq!((&facts["ranks"], &facts["clients"]), (&2.into(), &8.into()));
    let row = &facts["rows"][0];
    assert!(row["per_second_least"].as_f64() <= row["per_second_most"].as_f64(), "{row}");
    assert!(row["speedup"].as_f64() > Some(1.2), "{row}");
    assert!(fs::read_to_string(cluster.home.join("load.svg")).unwrap().contains("<polygon"));

    let table = ["balancer", "simulate", "--table", "--seconds", "5", "--ranks", "2"];
    let facts = cluster.json(&table);
    assert_eq!(facts["rows"].as_array().unwrap().len(), 11 * 5);
    assert!(cluster.fails(2, &["balancer", "simulate"]).contains("FILE|PRESET"));
    let wrong = ["balancer", "simulate", "hash", "--workload", "x"];
    assert!(cluster.fails(2, &wrong).contains("hotspot"));
}
