//! `cargo xtask ceph`: a real Ceph cluster on this machine, to try things with.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: a program that reads arguments and reports on the terminal"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use testceph::{CephCluster, CephSettings, OsdStore};

const USAGE: &str = "\
usage: cargo xtask ceph up [OPTION]... | status | written | down | ceph ARGUMENT...

  up        make a cluster: one monitor and OSDs, on loopback, in a directory of its own
  status    what runs
  written   bytes that the OSDs were sent so far, copies not counted
  down      stop it and remove it with all its data
  ceph      the program of that name, about this cluster: ceph health detail

  --dir DIR       where the cluster is [target/ceph]
  --osds N        how many OSDs [1]
  --copies N      how many copies pools keep [1]
  --file          OSDs keep data in files (bluestore) and not in memory
  --gib N         what each OSD can hold [4]
  --pools A,B     pools to make [test]
  --cephfs        with a CephFS and its metadata server, for `cudele bench creates --cephfs`
  --set NAME=VALUE
                  a setting of Ceph's, for all daemons and clients
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("ceph: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> testceph::CephResult<String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let target = std::path::absolute(target).map_err(|error| error.to_string())?;
    let mut settings = CephSettings::new(&target.join("ceph"));
    let mut rest = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number =
            |text: &String| text.parse::<u32>().map_err(|_| format!("{text} is not a number"));
        match argument.as_str() {
            "--dir" => {
                let dir = std::path::absolute(value()?);
                settings.dir = dir.map_err(|error| error.to_string())?;
            }
            "--osds" => settings.osds = number(value()?)?.clamp(1, 9),
            "--copies" => settings.copies = number(value()?)?,
            "--cephfs" => settings.cephfs = true,
            "--file" => settings.store = OsdStore::File,
            "--gib" => settings.bytes = u64::from(number(value()?)?) << 30,
            "--pools" => settings.pools = value()?.split(',').map(str::to_owned).collect(),
            "--set" => {
                let (name, value) = value()?.split_once('=').ok_or("not NAME=VALUE")?;
                settings.options.push((name.to_owned(), value.to_owned()));
            }
            other => rest.push(other),
        }
    }
    match &*rest {
        ["up"] => up(&settings),
        ["status"] => Ok(CephCluster::at(&settings.dir)?.status()),
        ["written"] => Ok(format!("{}\n", CephCluster::at(&settings.dir)?.written()?)),
        ["down"] => CephCluster::at(&settings.dir)?.remove().map(|()| String::new()),
        ["ceph", arguments @ ..] => CephCluster::at(&settings.dir)?.ceph(arguments),
        _ => Ok(USAGE.to_owned()),
    }
}

fn up(settings: &CephSettings) -> testceph::CephResult<String> {
    let start = std::time::Instant::now();
    let cluster = CephCluster::up(settings)?;
    let mut text = format!(
        "The cluster is up ({:.1} s): {} OSD(s), {} copies.\n",
        start.elapsed().as_secs_f64(),
        settings.osds,
        settings.copies
    );
    for pool in &settings.pools {
        text += &format!("  cudele up --store '{}'\n", cluster.url(pool));
    }
    if settings.cephfs {
        text += &format!("  cudele bench creates --cephfs {}\n", cluster.conf().display());
    }
    Ok(text + "Stop it with `cargo xtask ceph down`.\n")
}
