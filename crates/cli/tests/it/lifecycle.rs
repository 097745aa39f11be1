//! Starting, stopping, starting again.

use std::fs;
use std::process::Command;

use cudele::{Locator, NewFile};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::cluster::{Cluster, eventually, text};

#[test]
fn up_twice_starts_nothing_new() {
    let cluster = Cluster::up();
    let (mon, mds) = (cluster.daemons("mon"), cluster.daemons("mds"));
    assert_eq!((mon.len(), mds.len()), (1, 1));
    assert_eq!(cluster.start()["started"], json!([]));
    assert!(cluster.say(&["up"]).starts_with("The cluster already runs ("));
    assert_eq!((cluster.daemons("mon"), cluster.daemons("mds")), (mon, mds));
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let cluster = Cluster::down();
    fs::create_dir(&cluster.dir).unwrap();
    fs::write(cluster.dir.join("thesis.tex"), "years").unwrap();
    let said = cluster.fails(1, &["up"]);
    assert!(said.contains("not a Cudele cluster: it contains thesis.tex (EEXIST)"), "{said}");
    assert!(said.contains("choose an empty or new directory"), "{said}");
    assert!(cluster.daemons("mon").is_empty() && cluster.daemons("mds").is_empty());
    let names: Vec<_> =
        fs::read_dir(&cluster.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["thesis.tex"], "nothing was put there");
}

/// The monitor gives the server up after five seconds. The server may still write.
#[test]
fn down_names_a_server_that_does_not_end() {
    let cluster = Cluster::up();
    let server = cluster.daemons("mds")[0];
    kill_process(server, Signal::STOP).unwrap();
    let said = cluster.fails(1, &["down"]);
    kill_process(server, Signal::CONT).unwrap();
    let remedy = format!("`kill {}`", server.as_raw_pid());
    for words in ["mds.0", "did not answer", "ETIMEDOUT", &remedy] {
        assert!(said.contains(words), "{words} is missing: {said}");
    }
    kill_process(server, Signal::TERM).unwrap();
    eventually("the server ends", || cluster.daemons("mds").is_empty());
}

#[test]
fn down_and_up_may_follow_each_other_at_once() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/kept"]);
    for _ in 0..5 {
        cluster.run(&["down"]);
        assert_eq!(cluster.start()["started"], json!(["mon", "mds.0"]));
    }
    assert_eq!(cluster.names("/"), ["kept"]);
}

#[test]
fn commands_without_a_cluster_say_what_to_do() {
    let cluster = Cluster::down();
    for command in ["ls", "status", "down", "du"] {
        let said = cluster.fails(1, &[command]);
        assert!(said.contains("cudele up"), "{command}: {said}");
    }
    cluster.start();
    cluster.run(&["down"]);
    assert!(cluster.fails(1, &["ls"]).contains("cudele up"));
    assert!(cluster.fails(1, &["down"]).contains("no cluster runs there"));
}

#[test]
fn both_daemons_killed_are_started_again_over_their_leftovers() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/kept/deep"]);
    for round in 0..3 {
        cluster.kill("mds");
        cluster.kill("mon");
        assert!(cluster.dir.join("mon.sock").exists() && cluster.dir.join("mds.0.sock").exists());
        assert_eq!(cluster.start()["started"], json!(["mon", "mds.0"]), "round {round}");
        assert_eq!(cluster.say(&["find", "/"]), "/\n/kept\n/kept/deep\n");
    }
}

#[test]
fn a_killed_monitor_does_not_stop_the_namespace() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    cluster.kill("mon");
    dir.create("while-it-was-away", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    assert_eq!(cluster.start()["started"], json!(["mon"]));
    assert_eq!(cluster.names("/"), ["while-it-was-away"]);
    assert_eq!(cluster.json(&["status"])["mds"][0]["state"], "active");
}

/// An administrator restarts the daemons one by one, and scripts go on.
#[test]
fn commands_and_mounts_wait_for_a_monitor_that_restarts() {
    let cluster = Cluster::up();
    let locator = Locator { dir: Some(cluster.dir.clone()), ..Locator::default() };
    let monitor = cudele::Cluster::find(&locator).unwrap();
    for round in 0..3 {
        cluster.kill("mon");
        let mut waiting = cluster.command(&["mkdir", &format!("/{round}")]).spawn().unwrap();
        assert_eq!(cluster.start()["started"], json!(["mon"]), "round {round}");
        assert!(waiting.wait().unwrap().success(), "round {round}");
        // This one had a connection to the monitor before.
        assert_eq!(monitor.status().unwrap().mds.len(), 1, "round {round}");
    }
    assert_eq!(cluster.names("/"), ["0", "1", "2"]);
    cluster.run(&["down"]);
    assert!(cluster.fails(1, &["ls", "/"]).contains("cudele up"));
}

#[test]
fn down_then_up_keeps_everything_in_the_metadata_store_alone() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    for number in 0..500 {
        let data = format!("content of {number}");
        let new = NewFile { size: data.len() as u64, data: data.as_bytes(), ..NewFile::default() };
        dir.create(format!("f{number}"), &new).unwrap();
    }
    cluster.run(&["mkdir", "-p", "/d/e/f"]);
    cluster.run(&["rm", "/f0", "/f499"]);
    cluster.run(&["mv", "/f1", "/d/e/moved"]);
    fs.set_xattr(dir.lookup("f2").unwrap().ino, b"user.note", Some(b"kept")).unwrap();
    fs.sync().unwrap();
    assert_ne!(journal(&cluster), [""; 0]);
    let before = cluster.json(&["ls", "-R"]);
    cluster.run(&["down"]);
    eventually("the processes have ended", || {
        cluster.daemons("mon").is_empty() && cluster.daemons("mds").is_empty()
    });
    assert_eq!(journal(&cluster), [""; 0], "the journal is trimmed");
    cluster.start();
    assert_eq!(cluster.json(&["ls", "-R"]), before);
    assert_eq!(cluster.run(&["cp", "/d/e/moved", "-"]), b"content of 1");
    let fs = cluster.mount();
    let ino = fs.stat("/f2").unwrap().ino;
    assert_eq!(fs.get_xattr(ino, b"user.note").unwrap(), b"kept");
}

fn journal(cluster: &Cluster) -> Vec<String> {
    cluster.objects("journal/mds.0000/")
}

#[test]
fn two_clusters_live_side_by_side() {
    let (one, two) = (Cluster::up(), Cluster::up());
    one.run(&["mkdir", "/only-in-one"]);
    two.run(&["mkdir", "/only-in-two"]);
    assert_eq!(one.names("/"), ["only-in-one"]);
    one.run(&["down"]);
    assert_eq!(two.names("/"), ["only-in-two"]);
    one.start();
    assert_eq!(one.names("/"), ["only-in-one"]);
    let id = |cluster: &Cluster| cluster.json(&["status"])["cluster"].clone();
    assert_ne!(id(&one), id(&two));
}

#[test]
fn the_last_cluster_is_found_without_being_named() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/here"]);
    let plain = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cudele"));
        command.env_remove("CUDELE_MON").env_remove("CUDELE_DIR").args(arguments);
        command.env("HOME", &cluster.home).env("CUDELE_STATE", cluster.home.join("state"));
        command
    };
    assert_eq!(plain(&["ls"]).output().unwrap().stdout, b"here\n");
    let mon = format!("unix:{}", cluster.dir.join("mon.sock").display());
    assert_eq!(plain(&["ls", "--mon", &mon]).output().unwrap().stdout, b"here\n");
    let output = plain(&["ls"]).env("CUDELE_DIR", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(plain(&["ls", "--mon", "nonsense"]).output().unwrap().status.code(), Some(2));
}

/// A second `up` in another directory must not redirect the commands of another shell.
#[test]
fn a_command_that_names_no_cluster_fails_if_it_could_mean_several() {
    let (first, second) = (Cluster::up(), Cluster::down());
    // The clusters of one user.
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
        command.env_remove("CUDELE_MON").env_remove("CUDELE_DIR");
        command.env("CUDELE_STATE", first.home.join("state")).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (one, other) = (first.dir.to_str().unwrap(), second.dir.to_str().unwrap());
    assert_eq!(run(&["mkdir", "/mine"]).0, Some(0), "the only one");
    assert_eq!(run(&["--dir", other, "up"]).0, Some(0));
    let destructive: [&[&str]; 4] = [&["ls", "/"], &["rm", "-r", "/mine"], &["down"], &["status"]];
    for arguments in destructive {
        let (code, _, said) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        for word in ["several are alive", one, other, "--dir", "CUDELE_DIR"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert_eq!(run(&["--dir", one, "ls", "/"]).1, "mine\n");
    // The one started last dies: its commands must not reach the other one.
    second.kill("mon");
    let (code, _, said) = run(&["rm", "-r", "/mine"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is not alive, but others are"), "{said}");
    assert_eq!(run(&["--dir", other, "up"]).0, Some(0));
    assert_eq!(run(&["--dir", other, "down"]).0, Some(0));
    assert_eq!(run(&["ls", "/"]).1, "mine\n", "the only one once more");
    assert_eq!(run(&["down"]).0, Some(0));
}

#[test]
fn a_cluster_starts_where_its_directory_was_moved() {
    let mut cluster = Cluster::up();
    cluster.run(&["mkdir", "/kept"]);
    cluster.run(&["down"]);
    let before = cluster.dir.clone();
    cluster.dir = cluster.home.join("moved");
    fs::rename(before, &cluster.dir).unwrap();
    cluster.start();
    assert_eq!(cluster.names("/"), ["kept"]);
}

#[test]
fn a_copy_of_a_cluster_leaves_the_original_alone() {
    let mut cluster = Cluster::up();
    cluster.run(&["mkdir", "/kept"]);
    cluster.run(&["down"]);
    let (before, copy) = (cluster.dir.clone(), cluster.home.join("copy"));
    let copied = Command::new("cp").args(["-a".as_ref(), &*before, &*copy]).status().unwrap();
    assert!(copied.success());
    cluster.dir = copy;
    cluster.start();
    cluster.run(&["mkdir", "/new"]);
    cluster.run(&["down"]);
    assert_eq!(cluster.start()["store"], format!("dir:{}/store", cluster.dir.display()));
    cluster.run(&["down"]);
    cluster.dir = before;
    cluster.start();
    assert_eq!(cluster.names("/"), ["kept"]);
}
