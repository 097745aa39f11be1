//! Hostile peers on a socket and planted files in a directory: they cost a bounded amount of memory
//! and of descriptors, and honest clients are served.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cudele::NewFile;
use rustix::process::Pid;
use types::rng::Rng;
use types::{ClientId, Epoch};
use wire::{Hello, Message, ProtocolVersions};

use crate::cluster::{Cluster, eventually, text};

fn connect(cluster: &Cluster) -> UnixStream {
    let stream = UnixStream::connect(cluster.dir.join("mds.0.sock")).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // A refused client may not even get to send this.
    let _ = { &stream }.write_all(&ProtocolVersions::OURS.to_frame());
    stream
}

fn hello(client: u64) -> Vec<u8> {
    let hello = Hello { client: ClientId(client), epoch: Epoch(0), unsafe_requests: 0 };
    Message::Hello(hello).to_frame()
}

/// The beginning of the largest message.
fn part_of_a_message(length: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    wire::frame::encode(&mut frame, |out| {
        out.resize(out.len() + wire::frame::PAYLOAD_BYTES_MAX, 1)
    });
    frame.truncate(length);
    frame
}

fn field(pid: Pid, file: &str, field: &str) -> String {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line[field.len()..].trim().to_owned()
}

fn resident_mib(pid: Pid) -> u64 {
    let kib: u64 = field(pid, "status", "VmRSS:").trim_end_matches(" kB").parse().unwrap();
    kib / 1024
}

/// Memory of a server that has taken all that it keeps ready for files.
fn settled_mib(pid: Pid) -> u64 {
    let (mut resident, mut since) = (resident_mib(pid), Instant::now());
    eventually("its memory grows no more", || {
        let now = resident_mib(pid);
        if now != resident {
            (resident, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(500)
    });
    resident
}

/// Processor time that a process has had, in clock ticks: a hundredth of a second each.
fn ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let after = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn parts_of_messages_cost_a_server_little_memory() {
    let cluster = Cluster::up();
    let pid = cluster.daemons("mds")[0];
    let before = settled_mib(pid);
    let part = part_of_a_message(2 << 20);
    let strangers: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect(&cluster);
            // Cut off on the way, if the server is as it should be.
            let _ = stream.write_all(&part);
            stream
        })
        .collect();
    cluster.run(&["mkdir", "/honest"]);
    let grown = resident_mib(pid).saturating_sub(before);
    assert!(grown < 64, "{grown} MiB for peers that never said who they are");
    drop(strangers);
    let part = [hello(1 << 40), part_of_a_message(8 << 20)].concat();
    let most = std::thread::scope(|scope| {
        let peers: Vec<_> = (0..60)
            .map(|number| {
                let part = &part;
                let cluster = &cluster;
                scope.spawn(move || {
                    let mut stream = connect(cluster);
                    let own = hello((1 << 40) + number);
                    let _ =
                        stream.write_all(&own).and_then(|()| stream.write_all(&part[own.len()..]));
                    stream
                })
            })
            .collect();
        let peers: Vec<_> = peers.into_iter().map(|peer| peer.join().unwrap()).collect();
        cluster.run(&["mkdir", "/honest/too"]);
        let most = resident_mib(pid);
        drop(peers);
        most
    });
    let grown = most.saturating_sub(before);
    assert!(grown < 400, "{grown} MiB for 480 MiB of parts of messages");
    assert_eq!(cluster.names("/"), ["honest"]);
}

#[test]
fn random_bytes_do_not_keep_other_clients_from_being_served() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let mut random = Rng::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..3000_u64 {
        let length = random.index(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        let mut stream = if round % 3 == 0 {
            // Not even the versions of the protocol.
            UnixStream::connect(cluster.dir.join("mds.0.sock")).unwrap()
        } else {
            connect(&cluster)
        };
        if round % 2 == 0 {
            // In a frame that is in order.
            let payload = std::mem::take(&mut bytes);
            wire::frame::encode(&mut bytes, |out| out.extend_from_slice(&payload));
        }
        let _ = stream.write_all(&bytes);
        if round % 10 == 0 {
            dir.create(format!("f{round}"), &NewFile::default()).unwrap();
        }
        if round % 1000 == 0 {
            cluster.run(&["stat", &format!("/f{round}")]);
        }
    }
    assert_eq!(cluster.names("/").len(), 300);
}

/// A cluster with these limits on the descriptors of a daemon, soft and hard.
fn with_descriptors(soft: u32, hard: u32) -> Cluster {
    let cluster = Cluster::down();
    let up = cluster.command(&["up"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -S -n {soft}; ulimit -H -n {hard}; exec \"$0\" \"$@\"")]);
    limited.arg(up.get_program()).args(up.get_args()).stdin(Stdio::null());
    for (name, value) in up.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    cluster
}

#[test]
fn daemons_raise_their_limit_on_descriptors() {
    let cluster = with_descriptors(200, 900);
    for daemon in ["mon", "mds"] {
        let limits = field(cluster.daemons(daemon)[0], "limits", "Max open files");
        let limits: Vec<&str> = limits.split_whitespace().collect();
        assert_eq!(limits[..2], ["900", "900"], "{daemon}");
    }
}

/// Why a server refuses a connection; nothing if it welcomes the client.
fn answer(stream: &mut UnixStream) -> Option<String> {
    let mut frame = || {
        let mut frame = vec![0; wire::frame::HEADER_BYTES];
        stream.read_exact(&mut frame).unwrap();
        frame.resize(wire::frame::announced(&frame).unwrap(), 0);
        stream.read_exact(&mut frame[wire::frame::HEADER_BYTES..]).unwrap();
        frame
    };
    assert!(ProtocolVersions::decode(&frame()).unwrap().is_some());
    let frame = frame();
    let (frame, _) = wire::frame::decode(&frame).unwrap().unwrap();
    let answer = Message::decode(frame.payload).unwrap();
    if matches!(answer, Message::Welcome(_)) {
        return None;
    }
    let Message::Reply(reply) = answer else { panic!("the server answered {answer:?}") };
    Some(reply.refused().unwrap().text.clone())
}

#[test]
fn one_client_too_many_is_refused_and_the_others_are_served() {
    let cluster = with_descriptors(256, 256);
    let pid = cluster.daemons("mds")[0];
    let inside = cluster.mount();
    let dir = inside.open_dir("/").unwrap();
    dir.create("before", &NewFile::default()).unwrap();
    // Silent connections make room for clients that introduce themselves.
    let silent: Vec<_> = (0..300).map(|_| connect(&cluster)).collect();
    cluster.run(&["mkdir", "/meanwhile"]);
    let mut admitted = Vec::new();
    let mut refusals = Vec::new();
    for number in 0..300 {
        let mut stream = connect(&cluster);
        // A refused client may not even get to send this.
        let _ = stream.write_all(&hello((1 << 40) + number));
        match answer(&mut stream) {
            None => admitted.push(stream),
            Some(why) => refusals.push(why),
        }
    }
    assert!((100..=128).contains(&admitted.len()), "{} were admitted", admitted.len());
    assert_eq!(refusals.len() + admitted.len(), 300);
    let why = &refusals[0];
    assert!(why.contains("128 connections") && why.contains("ulimit -n"), "{why}");
    let monitor = cudele::Cluster::connect(&cudele::Locator::monitor_of(&cluster.dir)).unwrap();
    let late = std::thread::spawn(move || monitor.mount().unwrap());
    let before = ticks(pid);
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(pid) - before;
    assert!(used < 30, "{used} hundredths of a second of a processor while nothing is asked");
    dir.create("after", &NewFile::default()).unwrap();
    inside.sync().unwrap();
    assert!(!late.is_finished(), "it waits for room");
    drop((silent, admitted));
    late.join().unwrap().stat("/after").unwrap();
}

#[test]
fn a_link_in_the_place_of_a_log_is_not_followed() {
    let cluster = Cluster::up();
    cluster.run(&["down"]);
    let precious = cluster.home.join("precious");
    fs::write(&precious, "precious").unwrap();
    let log = cluster.dir.join("log/mds.log");
    fs::remove_file(&log).unwrap();
    symlink(&precious, &log).unwrap();
    let said = cluster.fails(1, &["up"]);
    assert!(said.contains("mds.log") && said.contains("(ELOOP)"), "{said}");
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    fs::remove_file(&log).unwrap();
    cluster.start();
    cluster.run(&["down"]);
    fs::rename(cluster.dir.join("log"), cluster.home.join("elsewhere")).unwrap();
    symlink(cluster.home.join("elsewhere"), cluster.dir.join("log")).unwrap();
    cluster.fails(1, &["up"]);
}
