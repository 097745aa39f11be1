//! `network`: creates by one client over a Unix socket, over TCP without keys, and over TCP with
//! keys and encryption, also with a key that has rules, in turn. The client waits for each answer,
//! or has its directory alone and waits for none. Only the connection to the metadata server
//! differs.

use cudele::{Errno, Error, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::job::Task;
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::row::Row;

const BENCH: &str = "network";
/// The share of the rate without keys and encryption that remains with both.
const GOAL_OF_PLAIN: f64 = 0.95;

/// The kinds of addresses and keys; the base of the comparison comes before the others.
const KINDS: [&str; 4] = ["unix", "plain", "tcp", "rules"];

/// The address of a metadata server: a socket in the cluster's directory, or a free port.
fn options(kind: &str) -> Result<Vec<String>> {
    if kind == "unix" {
        return Ok(Vec::new());
    }
    let bound = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = bound.map_err(|error| Error::new(Errno::Io, BENCH, error.to_string()))?.port();
    let kind = if kind == "rules" { "tcp" } else { kind };
    Ok(vec!["--listen".to_owned(), format!("{kind}:127.0.0.1:{port}")])
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let mut rows: Vec<(bool, &str, Row)> = Vec::new();
    for ahead in [false, true] {
        for kind in KINDS {
            let how = if ahead { "async" } else { "sync" };
            let mut row = Row::new(BENCH, format!("{how}_{kind}"), files);
            if kind == "tcp" || kind == "rules" {
                row.goal("of_plain", GOAL_OF_PLAIN);
            }
            rows.push((ahead, kind, row));
        }
    }
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut plain = 0.0;
        for (ahead, kind, row) in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let mut cluster = lab.cluster(&[])?;
            cluster.store().clone_into(&mut store);
            let options = options(kind)?;
            if !options.is_empty() {
                cluster.kill_mds()?;
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                cluster.start_mds_with(&options)?;
            }
            let dir = cluster.directory(Some(&policy("posix-volatile", files)?))?;
            if *kind == "rules" {
                cluster.limit(&format!("read,write:{dir}"))?;
            }
            let seconds = creates(&cluster, dir, files, *ahead)?;
            row.push(seconds);
            match *kind {
                "plain" => plain = seconds,
                "tcp" | "rules" => row.note("of_plain", plain / seconds),
                _ => {}
            }
        }
    }
    lab.report(&store, rows.into_iter().map(|(_, _, row)| row));
    Ok(())
}

/// Creates files in a directory, and returns the seconds.
fn creates(cluster: &TestCluster, dir: String, files: u64, ahead: bool) -> Result<f64> {
    let (first, sync, latencies) = (0, false, false);
    let task = Task::Create { dir, first, files, sync, latencies, alone: ahead };
    Ok(alone(cluster, task)?.seconds())
}
