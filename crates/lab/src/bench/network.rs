//! `network`: creates by one client over a Unix socket, over TCP without keys, and over TCP with
//! keys and encryption, also with a key that has rules, in turn. The client waits for each answer,
//! or has its directory alone and waits for none. Only the connection to the metadata server
//! differs.
//!
//! `sync_crowd` is `sync_tcp` beside many connections that are idle, or never finish a message.
//! `merge_host` and `merge_user` are merges by value of a journal of creates under `check: none`,
//! with the key of a host for root, and with the key of a user: the server holds each event of the
//! second journal against the rights of the user.

mod idle;

use cudele::{AttrChange, Errno, Error, Result};
use net::{Address, Keyring};

use crate::harness::cluster::TestCluster;
use crate::harness::job::{Decoupled, Task};
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::row::Row;

const BENCH: &str = "network";
/// The share of the rate without keys and encryption that remains with both.
const GOAL_OF_PLAIN: f64 = 0.95;
/// The share of the rate of root's merge that remains with checks of rights.
const GOAL_OF_HOST: f64 = 0.9;
/// The share of the rate that remains beside the crowd.
const GOAL_OF_TCP: f64 = 0.9;
/// Idle and slow connections.
const CROWD: u32 = 10_000;
const CROWD_QUICK: u32 = 100;
/// The user of the second merge.
const USER: u32 = 1000;

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
    let merges = merges(lab)?;
    lab.report(&store, rows.into_iter().map(|(_, _, row)| row).chain([crowd]).chain(merges));
    Ok(())
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

/// Merges by root of a host and by a user, in turn.
fn merges(lab: &mut Lab) -> Result<[Row; 2]> {
    let files = lab.files(1_000_000, 10_000);
    let [mut host, mut user] = ["merge_host", "merge_user"].map(|it| Row::new(BENCH, it, files));
    user.goal("of_host", GOAL_OF_HOST);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "merges");
        let before = merge(lab, files, None)?;
        let seconds = merge(lab, files, Some(USER))?;
        host.push(before);
        user.push(seconds);
        user.note("of_host", before / seconds);
    }
    Ok([host, user])
}

/// The seconds of a merge of so many creates over TLS.
fn merge(lab: &Lab, files: u64, user: Option<u32>) -> Result<f64> {
    let (mut cluster, _) = connected(lab, "tcp")?;
    let dir = cluster.directory(None)?;
    if let Some(uid) = user {
        let fs = cluster.client()?;
        let change = AttrChange { uid: Some(uid), gid: Some(uid), ..AttrChange::default() };
        fs.set_attr(fs.stat(&dir)?.ino, &change)?;
        cluster.use_key(&["--user", &uid.to_string()])?;
    } else {
        cluster.use_key(&["--everyone"])?;
    }
    let policy = policy("weak-none", files)?.to_yaml();
    let append_first = true;
    let task = Decoupled { dir, policy, files, append_first, user, ..Decoupled::default() };
    Ok(alone(&cluster, Task::Decoupled(task))?.part("volatile_apply"))
}

/// Creates files in a directory, and returns the seconds.
fn creates(cluster: &TestCluster, dir: String, files: u64, ahead: bool) -> Result<f64> {
    let (first, sync, latencies) = (0, false, false);
    let task = Task::Create { dir, first, files, sync, latencies, alone: ahead };
    Ok(alone(cluster, task)?.seconds())
}
