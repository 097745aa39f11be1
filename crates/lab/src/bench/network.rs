//! `network`: creates by one client over a Unix socket, over TCP without keys, and over TCP with
//! keys and encryption, also with a key that has rules, in turn. The client waits for each answer,
//! or has its directory alone and waits for none. Only the connection to the metadata server
//! differs.
//!
//! `sync_crowd` is `sync_tcp` beside many connections that are idle, or never finish a message.
//! With `--cephfs`, CephFS does the same without and with encryption.

mod idle;

use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use net::{Address, Keyring};

use crate::harness::cluster::TestCluster;
use crate::harness::job::Task;
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::peers::cephfs::Peer;
use crate::harness::row::Row;

const BENCH: &str = "network";
/// The share of the rate without keys and encryption that remains with both.
const GOAL_OF_PLAIN: f64 = 0.95;
/// The share of the rate that remains beside the crowd.
const GOAL_OF_TCP: f64 = 0.9;
/// Idle and slow connections.
const CROWD: u32 = 10_000;
const CROWD_QUICK: u32 = 100;

/// The kinds of addresses and keys; the base of the comparison comes before the others.
const KINDS: [&str; 4] = ["unix", "plain", "tcp", "rules"];

/// The address of a metadata server: a free port; `None` for a socket in the cluster's directory.
fn address(kind: &str) -> Result<Option<String>> {
    if kind == "unix" {
        return Ok(None);
    }
    let bound = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = bound.map_err(|error| Error::new(Errno::Io, BENCH, error.to_string()))?.port();
    let kind = if kind == "rules" { "tcp" } else { kind };
    Ok(Some(format!("{kind}:127.0.0.1:{port}")))
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
            let (mut cluster, _) = connected(lab, kind)?;
            cluster.store().clone_into(&mut store);
            let dir = cluster.directory(Some(&policy("posix-volatile", files)?))?;
            if *kind == "rules" {
                cluster.use_key(&["--everyone", "--allow", &format!("read,write:{dir}")])?;
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
    let crowd = crowd(lab, files)?;
    let ceph = cephfs(lab, files)?;
    lab.report(&store, rows.into_iter().map(|(_, _, row)| row).chain([crowd]).chain(ceph));
    Ok(())
}

/// Creates by a client of CephFS whose messages have checksums, and by one whose messages are
/// encrypted, in turn.
fn cephfs(lab: &mut Lab, files: u64) -> Result<Vec<Row>> {
    let Some(conf) = lab.cephfs.clone() else { return Ok(Vec::new()) };
    let home =
        tempfile::tempdir().map_err(|error| Error::new(Errno::Io, BENCH, error.to_string()))?;
    let (peer, cluster) = (Peer::new(&conf), lab.cluster(&[])?);
    let mut rows = Vec::new();
    for mode in ["crc", "secure"] {
        let conf = conf_of_mode(&conf, mode, home.path())?;
        rows.push((conf, Peer::row(BENCH, format!("cephfs_{mode}"), files)));
    }
    for repetition in 0..lab.repeat {
        let mut with_checksums = None;
        for (conf, row) in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let (conf, dir, sync) = (conf.clone(), peer.directory(BENCH), false);
            let task = Task::CephCreate { conf, dir, files, sync };
            let seconds = alone(&cluster, task)?.seconds();
            row.push(seconds);
            match with_checksums {
                None => with_checksums = Some(seconds),
                Some(base) => row.note("of_crc", base / seconds),
            }
        }
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// The configuration of a Ceph cluster, with the mode of its clients' connections.
fn conf_of_mode(conf: &Path, mode: &str, home: &Path) -> Result<PathBuf> {
    let about = |error: std::io::Error| Error::new(Errno::Io, BENCH, error.to_string());
    let text = std::fs::read_to_string(conf).map_err(about)?;
    let path = home.join(format!("{mode}.conf"));
    let setting = format!("\n[client]\nms client mode = {mode}\nms mon client mode = {mode}\n");
    std::fs::write(&path, text + &setting).map_err(about)?;
    Ok(path)
}

/// A cluster whose metadata server listens at an address of this kind, and the address.
fn connected(lab: &Lab, kind: &str) -> Result<(TestCluster, Option<String>)> {
    let mut cluster = lab.cluster(&[])?;
    let address = address(kind)?;
    if let Some(address) = &address {
        cluster.kill_mds()?;
        cluster.start_mds_with(&["--listen", address])?;
    }
    Ok((cluster, address))
}

/// Creates alone, and then beside the crowd.
fn crowd(lab: &mut Lab, files: u64) -> Result<Row> {
    let count = if lab.quick { CROWD_QUICK } else { CROWD };
    let mut row = Row::new(BENCH, "sync_crowd", files);
    row.goal("of_tcp", GOAL_OF_TCP);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "beside idle connections");
        let (cluster, address) = connected(lab, "tcp")?;
        let address: Address = address.unwrap_or_default().parse()?;
        let preset = policy("posix-volatile", files)?;
        let alone = creates(&cluster, cluster.directory(Some(&preset))?, files, false)?;
        let keys = Keyring::of_cluster(cluster.own_dir()?);
        let mut crowd = idle::open(&address, &keys, count)?;
        let beside = creates(&cluster, cluster.directory(Some(&preset))?, files, false)?;
        // All of them are still there.
        crowd.iter_mut().try_for_each(idle::is_served)?;
        row.push(beside);
        row.note("of_tcp", alone / beside);
        row.note("connections", f64::from(count));
    }
    Ok(row)
}

/// Creates files in a directory, and returns the seconds.
fn creates(cluster: &TestCluster, dir: String, files: u64, ahead: bool) -> Result<f64> {
    let (first, sync, latencies) = (0, false, false);
    let task = Task::Create { dir, first, files, sync, latencies, alone: ahead };
    Ok(alone(cluster, task)?.seconds())
}
