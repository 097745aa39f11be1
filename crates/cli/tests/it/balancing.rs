//! Servers that balance themselves: policies in force, heartbeats, moves, and policies that fail.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudele::{Fs, NewFile};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, eventually};

const OFTEN: [&str; 6] =
    ["--mds", "2", "--set", "balance_interval_ms=150", "--set", "balance_half_life_ms=500"];

/// A cluster that balances nothing until a policy is set.
fn cluster() -> Cluster {
    Cluster::by_hand(&OFTEN)
}

fn ranks(cluster: &Cluster) -> Vec<Value> {
    cluster.json(&["mds", "ls"])["ranks"].as_array().unwrap().clone()
}

fn log(cluster: &Cluster, arguments: &[&str]) -> Vec<Value> {
    let all = [&["balancer", "log"], arguments].concat();
    cluster.json(&all).as_array().unwrap().clone()
}

/// Creates files until the test ends it. Returns their names.
fn work(fs: &Arc<Fs>, path: &str, done: &AtomicBool, made: &AtomicU64) -> BTreeSet<String> {
    let dir = fs.open_dir(path).unwrap();
    let mut names = BTreeSet::new();
    while !done.load(Ordering::Acquire) {
        let name = format!("f{}", names.len());
        dir.create(&name, &NewFile::default()).unwrap();
        names.insert(name);
        made.fetch_add(1, Ordering::Release);
    }
    names
}

#[test]
fn load_moves_off_an_overloaded_rank_and_clients_lose_nothing() {
    let cluster = cluster();
    let dirs = ["/a", "/b", "/c", "/pinned"];
    dirs.iter().for_each(|dir| drop(cluster.run(&["mkdir", dir])));
    cluster.run(&["mds", "pin", "/pinned", "0"]);
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let mounted = dirs.map(|_| cluster.mount());
    let names = std::thread::scope(|scope| {
        let (done, made) = (&done, &made);
        let workers: Vec<_> = std::iter::zip(&mounted, dirs)
            .map(|(fs, path)| scope.spawn(move || work(fs, path, done, made)))
            .collect();
        let facts = cluster.json(&["balancer", "set", "greedy-spill"]);
        assert_eq!((&facts["policy"], &facts["version"]), (&"greedy-spill".into(), &3.into()));
        eventually("load moved to the other rank", || {
            let subtrees = ranks(&cluster)[1]["subtrees"].as_array().unwrap().len();
            subtrees > 0
        });
        let so_far = made.load(Ordering::Acquire);
        eventually("clients go on", || made.load(Ordering::Acquire) > so_far + 200);
        done.store(true, Ordering::Release);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    cluster.run(&["balancer", "set", "static"]);
    for (path, names) in dirs.iter().zip(names) {
        let rows = cluster.json(&["ls", path]);
        let listed: BTreeSet<String> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(listed, names, "{path}");
    }
    let ranks = ranks(&cluster);
    let moved = ranks[1]["subtrees"].as_array().unwrap();
    assert!(moved.iter().all(|it| it["pinned"] == false && it["path"] != "/pinned"), "{moved:?}");
    // The heartbeats that each rank received, and the cost for the clients.
    assert!(ranks[0]["heartbeats_from"]["1"].as_u64() > Some(0), "{ranks:?}");
    assert!(ranks[1]["heartbeats_from"]["0"].as_u64() > Some(0), "{ranks:?}");
    assert!(ranks[0]["forwards"].as_u64() > Some(0) && ranks[0]["hits"].as_u64() > Some(0));
    // Every decision with its inputs and its reason, and its results.
    let log = log(&cluster, &["--moves"]);
    let tick = log.iter().find(|row| row["kind"] == "tick").unwrap();
    assert_eq!((&tick["policy"], &tick["outcome"]), (&"greedy-spill".into(), &"moves".into()));
    assert!(tick["why"].as_str().unwrap().contains("rank 1"), "{tick}");
    assert!(tick["ranks"][0]["all"].as_f64() > Some(0.0) && tick["ranks"][0]["cpu"].is_number());
    let done = log.iter().find(|row| row["kind"] == "move" && row["moved"] == true).unwrap();
    assert_eq!((&done["rank"], &done["to"]), (&0.into(), &1.into()), "{done}");
    cluster.run(&["balancer", "log", "--heat", "hot.svg"]);
    let svg = fs::read_to_string(cluster.home.join("hot.svg")).unwrap();
    assert!(svg.contains("/a</text>") && svg.contains("<rect"), "{svg}");
    replayed(&cluster);
    outlives_the_monitor(&cluster);
}

#[test]
fn servers_balance_as_cephfs_does_unless_they_are_told_otherwise() {
    let cluster = Cluster::up_with(&OFTEN);
    assert_eq!(cluster.json(&["balancer", "get"])["policy"], "cephfs");
    ["/a", "/b"].iter().for_each(|dir| drop(cluster.run(&["mkdir", dir])));
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let mounted = ["/a", "/b"].map(|path| (cluster.mount(), path));
    std::thread::scope(|scope| {
        for (fs, path) in &mounted {
            scope.spawn(|| work(fs, path, &done, &made));
        }
        eventually("load moved to the other rank", || {
            let log = log(&cluster, &["--moves"]);
            log.iter().any(|row| row["kind"] == "move" && row["moved"] == true)
        });
        done.store(true, Ordering::Release);
    });
    let ticks = log(&cluster, &[]);
    let tick = ticks.iter().find(|row| row["outcome"] == "moves").unwrap();
    assert_eq!(tick["policy"], "cephfs", "{tick}");
    // An administrator that wants no balancing returns to none.
    assert_eq!(cluster.json(&["balancer", "revert"])["policy"], "static");
}

#[test]
fn a_server_that_is_alone_decides_nothing() {
    let cluster = Cluster::up_with(&OFTEN[2..]);
    assert_eq!(cluster.json(&["balancer", "get"])["policy"], "cephfs");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(log(&cluster, &[]), Vec::<Value>::new());
    // With a second one it does.
    cluster.run(&["up", "--mds", "2"]);
    eventually("it decides", || !log(&cluster, &["--rank", "0"]).is_empty());
}

/// The recorded load of the cluster goes through a policy in the simulator.
fn replayed(cluster: &Cluster) {
    let recorded = Value::from(self::log(cluster, &[])).to_string();
    fs::write(cluster.home.join("log.json"), recorded).unwrap();
    let replay = ["balancer", "simulate", "cudele", "--recorded", "log.json", "--half-life", "0.5"];
    let once = cluster.json(&replay);
    let facts = &once["recorded"];
    assert!(facts["directories"].as_u64() > Some(4) && facts["per_second"].as_f64() > Some(1.0));
    assert_eq!(
        (&once["rows"][0]["workload"], &once["seconds"]),
        (&"recorded".into(), &facts["seconds"])
    );
    let rate = |facts: &Value| facts["rows"][0]["per_second"].as_f64().unwrap();
    let thrice = cluster.json(&[&replay[..], &["--times", "3", "--svg", "replay.svg"]].concat());
    // The difference depends on the cost of a request.
    assert!(rate(&once) > 0.0 && rate(&thrice) > 0.0, "{once} {thrice}");
    assert_eq!(thrice["recorded"]["times"], 3.0);
    assert!(fs::read_to_string(cluster.home.join("replay.svg")).unwrap().contains("recorded"));
    fs::write(cluster.home.join("none.json"), "[]").unwrap();
    let said = cluster.fails(2, &["balancer", "simulate", "cudele", "--recorded", "none.json"]);
    assert!(said.contains("none.json") && said.contains("balancer log"), "{said}");
}

/// The log survives a restart of the monitor, and of the whole cluster.
fn outlives_the_monitor(cluster: &Cluster) {
    let known = self::log(cluster, &[]);
    cluster.run(&["down"]);
    cluster.start();
    let found = self::log(cluster, &[]);
    assert_eq!(found[..known.len()], known[..], "{} of {}", found.len(), known.len());
}

#[test]
fn a_policy_that_fails_moves_nothing_and_the_one_before_returns() {
    let cluster = cluster();
    cluster.run(&["mkdir", "/a"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/a").unwrap();
    let when = "-- When policy\nif true then\n-- Where policy\n";
    let good = format!("{when}targets[1] = 0\n");
    fs::write(cluster.home.join("good.lua"), good).unwrap();
    cluster.run(&["balancer", "set", "good.lua"]);
    let bad = [
        ("loop.lua", "-- When policy\nwhile 1 do end\nif true then\n", "line 2"),
        ("nil.lua", &format!("{when}targets[1] = MDSs[99].load\n")[..], "line 4"),
        ("nan.lua", &format!("{when}targets[2] = 0/0\n")[..], "line 4"),
        ("less.lua", &format!("{when}targets[2] = -1\n")[..], "line 4"),
        ("more.lua", &format!("{when}targets[7] = 1\n")[..], "line 4"),
        ("return.lua", "return 5\n", "table"),
        (
            "bomb.lua",
            "-- When policy\nlocal s = ('a'):rep(9999)\nwhile true do pcall(string.find, s, ('.-'):rep(9)..'b') end\nif true then\n",
            "line 3",
        ),
    ];
    let mut made = 0;
    for (name, text, said) in bad {
        fs::write(cluster.home.join(name), text).unwrap();
        // A trial reports the fault first.
        let refused = cluster.fails(2, &["balancer", "set", name]);
        assert!(refused.contains(said) || refused.contains("line"), "{name}: {refused}");
        cluster.run(&["balancer", "set", name, "--unchecked"]);
        eventually("the policy before is in force again", || {
            dir.create(format!("f{made}"), &NewFile::default()).unwrap();
            made += 1;
            cluster.json(&["balancer", "get"])["policy"] == "good.lua"
        });
        let health = cluster.json(&["health"]);
        let check = health["checks"].as_array().unwrap().iter();
        let check = check.clone().find(|check| check["code"] == "BALANCER_REVERTED").unwrap();
        let text = check["text"].as_str().unwrap();
        assert!(text.contains(name) && text.contains(said), "{name}: {text}");
        assert!(check["remedy"].as_str().unwrap().contains("balancer set"));
    }
    let rows = cluster.json(&["balancer", "ls"]);
    let failed = rows.as_array().unwrap().iter().filter(|row| row["failed"] == true).count();
    assert_eq!(failed, bad.len());
    let log = log(&cluster, &[]);
    let failed = log.iter().filter(|row| row["outcome"] == "failed").count();
    assert!(failed >= 3 * bad.len(), "{failed}");
    assert!(log.iter().all(|row| row["kind"] == "tick"), "nothing was moved");
    // By hand, to the earlier policy.
    cluster.run(&["balancer", "revert"]);
    assert_eq!(cluster.json(&["balancer", "get"])["policy"], "static");
    let rows = cluster.json(&["ls", "/a"]);
    assert_eq!(rows.as_array().unwrap().len(), made);
}

#[test]
fn the_state_of_a_policy_survives_its_server() {
    let cluster = cluster();
    let text = "-- When policy\nlocal n = RDState() + 1\nWRState(n)\nprint('n', n)\nif false then\n\
                -- Where policy\ntargets[1] = 0\n";
    fs::write(cluster.home.join("count.lua"), text).unwrap();
    cluster.run(&["balancer", "set", "count.lua"]);
    // The records of rank 0, in order.
    let counted = || -> Vec<u64> {
        let log = log(&cluster, &["--rank", "0"]);
        let lines = log.iter().filter_map(|row| row["log"].as_array()?.first()?.as_str());
        lines.map(|line| line.trim_start_matches('n').trim().parse().unwrap()).collect()
    };
    eventually("it counts", || counted().len() > 2);
    let pid = i32::try_from(ranks(&cluster)[0]["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("the server is gone", || {
        rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_err()
    });
    let before = counted();
    cluster.start();
    eventually("it goes on counting", || counted().len() > before.len() + 1);
    let all = counted();
    // A decision that was not stored when the server died is made again.
    assert!(all[0] == 1 && all.is_sorted() && all.last() > before.last(), "{all:?}");
    // Its objects in the store are known kinds.
    cluster.run(&["down"]);
    let found = cluster.json(&["fsck"]);
    assert_eq!(found["findings"], serde_json::json!([]), "{found}");
}
