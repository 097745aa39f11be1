//! Files that the daemons read: the configuration, the keys, the monitor's address.
//!
//! Invariant: nothing listens but at the address of the settings, and nothing is written outside
//! the directory.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{CephResult, CephSettings, OsdStore};

/// Placement groups of a pool: few, because every one costs time at the start.
const PLACEMENT_GROUPS: u32 = 8;

/// Writes everything that has to be there before the first daemon starts. Returns the OSDs' ids.
pub(crate) fn write(settings: &CephSettings) -> CephResult<Vec<String>> {
    let dir = &settings.dir;
    let at = |error: std::io::Error| format!("{}: {error}", dir.display());
    for part in ["log", "crash", "mon.a"] {
        fs::create_dir_all(dir.join(part)).map_err(at)?;
    }
    for number in 0..settings.osds {
        fs::create_dir_all(dir.join(format!("osd.{number}"))).map_err(at)?;
    }
    let fsid = uuid()?;
    let port = free_port(settings.address).map_err(at)?;
    fs::write(dir.join("ceph.conf"), conf(settings, &fsid, port)).map_err(at)?;
    let keyring = dir.join("keyring");
    let everything = ["mon", "osd", "mds", "mgr"].map(|daemon| (daemon, "allow *"));
    key(&keyring, "mon.", &everything[..1])?;
    key(&keyring, "client.admin", &everything)?;
    for number in 0..settings.osds {
        let rights = [("mon", "allow profile osd"), ("osd", "allow *")];
        key(&keyring, &format!("osd.{number}"), &rights)?;
    }
    if settings.cephfs {
        let rights = [("mon", "allow profile mds"), ("osd", "allow rwx"), ("mds", "allow *")];
        key(&keyring, "mds.a", &rights)?;
    }
    let mut map = Command::new("monmaptool");
    map.args([
        "--create",
        "--fsid",
        &fsid,
        "--addv",
        "a",
        &format!("[v2:{}:{port}]", settings.address),
    ]);
    run(map.arg(dir.join("monmap")))?;
    (0..settings.osds).map(|_| uuid()).collect()
}

fn conf(settings: &CephSettings, fsid: &str, port: u16) -> String {
    let CephSettings { dir, address, copies, store, bytes, options, .. } = settings;
    let dir = dir.display();
    let store = match store {
        OsdStore::Memory => "memstore",
        OsdStore::File => "bluestore",
    };
    let more: String = options.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name} = {value}");
        text
    });
    format!(
        "\
[global]
fsid = {fsid}
mon host = [v2:{address}:{port}]
public addr = {address}
cluster addr = {address}
ms bind ipv6 = false
ms bind msgr1 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {dir}/keyring
run dir = {dir}
log file = {dir}/log/$name.log
log to stderr = false
mon cluster log file = {dir}/log/cluster.log
crash dir = {dir}/crash
osd pool default size = {copies}
osd pool default min size = 1
osd pool default pg num = {PLACEMENT_GROUPS}
osd pool default pgp num = {PLACEMENT_GROUPS}
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon max pg per osd = 1000
mon osd min down reporters = 1
mon data avail crit = 1
paxos propose interval = 0.02
paxos min wait = 0.01
osd heartbeat interval = 1
osd heartbeat grace = 4
{more}
[client]
log file =
[mon]
mon data = {dir}/mon.$id
admin socket = {dir}/$name.asok
pid file = {dir}/$name.pid
[mds]
admin socket = {dir}/$name.asok
pid file = {dir}/$name.pid
[osd]
osd data = {dir}/osd.$id
admin socket = {dir}/$name.asok
pid file = {dir}/$name.pid
osd objectstore = {store}
memstore page set = true
memstore device bytes = {bytes}
bluestore block size = {bytes}
bluestore block create = true
osd memory target = 1500000000
osd class load list = *
osd class default list = *
"
    )
}

/// Adds a key with these rights to a keyring.
fn key(keyring: &Path, name: &str, rights: &[(&str, &str)]) -> CephResult<()> {
    let mut tool = Command::new("ceph-authtool");
    if !keyring.exists() {
        tool.arg("--create-keyring");
    }
    tool.arg(keyring).args(["--gen-key", "-n", name]);
    for (daemon, right) in rights {
        tool.args(["--cap", daemon, right]);
    }
    run(&mut tool)
}

fn run(command: &mut Command) -> CephResult<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn uuid() -> CephResult<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| format!("no random number: {error}"))?;
    Ok(types::hex::uuid(random))
}

/// A port that no process listens on now. Another process could take it at once; that is unlikely,
/// and then the monitor reports it.
fn free_port(address: IpAddr) -> std::io::Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}
