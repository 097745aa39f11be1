//! Connections over TCP: encrypted, with a key on both sides.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keys::{Authority, Holder, NewKey};
use types::rng::Rng;
use types::{Cred, Errno, Peer, Tid, Timestamp};
use wire::Message;

use crate::{Address, Connection, ConnectionEvent, Keyring, Limits, Reactor};

fn user() -> Cred {
    Cred { uid: 7, gid: 70, groups: vec![71] }
}

/// A cluster with keys, and a server that returns every frame.
struct Site {
    dir: tempfile::TempDir,
    authority: Authority,
    address: Address,
    /// The peers that were announced, and the reasons for which connections were closed.
    seen: Arc<Mutex<Seen>>,
    end: Arc<AtomicBool>,
    server: Option<std::thread::JoinHandle<()>>,
}

/// The connections of a server: its peers, and the ends and refusals.
#[derive(Debug, Default)]
struct Seen {
    peers: Vec<Peer>,
    /// Why connections were closed.
    closed: Vec<String>,
    /// Why peers were refused.
    refused: Vec<String>,
}

fn now() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    Timestamp(i64::try_from(now.as_nanos()).expect("this century"))
}

/// A port of this machine that is free.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

impl Site {
    fn start(limits: Limits) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::ensure(dir.path(), now()).expect("an authority");
        let address = Address::Tcp(format!("127.0.0.1:{}", free_port()));
        let (seen, end) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (listening, ready) = std::sync::mpsc::channel();
        let server = std::thread::spawn({
            let (seen, end) = (Arc::clone(&seen), end.clone());
            let (address, keys) = (address.clone(), Keyring::of_cluster(dir.path()));
            move || {
                let reactor = Reactor::listen(&address, &keys).expect("listens");
                listening.send(()).expect("the test waits");
                serve(reactor.with_limits(limits), &seen, &end);
            }
        });
        ready.recv().expect("the server listens");
        Self { dir, authority, address, seen, end, server: Some(server) }
    }

    fn key(&self, name: &str, holder: Holder) -> Keyring {
        self.key_from(name, holder, now())
    }

    /// A key that was made at this time, for a day.
    fn key_from(&self, name: &str, holder: Holder, begun: Timestamp) -> Keyring {
        self.made(NewKey::new(name, holder, 1), begun)
    }

    fn made(&self, new: NewKey, begun: Timestamp) -> Keyring {
        // As on another host: the list beside the key is its own.
        let folder = self.dir.path().join("hosts").join(&new.name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("key.pem");
        let text = self.authority.issue(new, begun).expect("a key");
        std::fs::write(&file, text).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
        Keyring::of(&file)
    }

    fn open(&self, keys: &Keyring) -> Connection {
        Connection::open(&self.address, keys).expect("connects")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // A server that hangs must not hold up the report of the failure.
        if let Some(server) = self.server.take().filter(|_| !std::thread::panicking()) {
            server.join().expect("the server ends");
        }
    }
}

fn serve(mut reactor: Reactor, seen: &Mutex<Seen>, end: &AtomicBool) {
    let mut known = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let mut replies = Vec::new();
        let polled = reactor.poll(Duration::from_millis(5), |happened| match happened {
            ConnectionEvent::Opened(conn, peer) => {
                known.push(conn);
                seen.lock().expect("no panic").peers.push(peer);
            }
            ConnectionEvent::Payload(conn, payload) => {
                assert!(known.contains(&conn), "its peer was announced");
                replies.push((conn, Message::decode(payload).expect("a message").to_frame()));
            }
            ConnectionEvent::Cut { was_known: true, .. } => {}
            ConnectionEvent::Cut { from, why, .. } => {
                assert!(from.starts_with("tcp 127.0.0.1:"), "{from}");
                seen.lock().expect("no panic").refused.push(why.to_owned());
            }
            ConnectionEvent::Closed(conn, why) => {
                assert!(known.contains(&conn), "its peer was announced");
                seen.lock().expect("no panic").closed.push(why);
            }
        });
        polled.expect("the reactor works");
        replies.iter().for_each(|(conn, frame)| reactor.send(*conn, frame));
        reactor.flush(|_| {});
    }
}

/// Whether a frame comes back.
fn echoes(connection: &mut Connection, size: usize) -> Result<(), types::Error> {
    let bytes = vec![7; size];
    let sent = Message::Chunk { tid: Tid(size as u64), bytes: &bytes };
    connection.send(&sent.to_frame())?;
    assert_eq!(Message::decode(connection.receive()?), Ok(sent));
    Ok(())
}

#[test]
fn connections_that_say_little_keep_little_memory() {
    let count = 200;
    let site = Site::start(Limits { buffer_bytes: count * 1024, ..Limits::default() });
    let keys = site.key("mount", Holder::everyone());
    let frame = Message::Chunk { tid: Tid(1), bytes: &[7; 3000] }.to_frame();
    let mut slow: Vec<Connection> = Vec::new();
    for _ in 0..count {
        let mut connection = site.open(&keys);
        echoes(&mut connection, 3000).expect("comes back");
        connection.send(&frame[..3]).expect("sends");
        slow.push(connection);
    }
    for connection in &mut slow {
        connection.send(&frame[3..]).expect("is still there");
        connection.receive().expect("comes back");
    }
}

#[test]
fn a_key_is_used_from_its_networks_only() {
    let site = Site::start(Limits::default());
    let key = |name: &str, networks: &[&str]| {
        let networks = networks.iter().map(|it| it.parse().expect("a network")).collect();
        site.made(NewKey { networks, ..NewKey::new(name, Holder::everyone(), 1) }, now())
    };
    let here = key("here", &["192.0.2.0/24", "127.0.0.0/8"]);
    echoes(&mut site.open(&here), 10).expect("it is from here");
    let elsewhere = key("elsewhere", &["192.0.2.0/24", "2001:db8::/32"]);
    let refused = Connection::open(&site.address, &elsewhere).expect_err("it is from elsewhere");
    assert_eq!(refused.errno, Errno::Access, "{refused}");
    assert!(refused.to_string().contains("network"), "{refused}");
    echoes(&mut site.open(&here), 10).expect("the server goes on");
    assert_eq!(site.seen.lock().expect("no panic").peers, [Peer::host(), Peer::host()]);
}

#[test]
fn frames_of_every_size_come_back_encrypted_and_the_peer_is_known() {
    let site = Site::start(Limits::default());
    let mut connection = site.open(&site.key("alice", Holder::User(user())));
    for size in [0, 1, 100, 16 * 1024, 70_000, 3_000_000] {
        echoes(&mut connection, size).expect("comes back");
    }
    echoes(&mut site.open(&site.key("mount", Holder::everyone())), 10).expect("comes back");
    let seen = site.seen.lock().expect("no panic").peers.clone();
    assert_eq!(seen, [Peer::User(user()), Peer::host()]);
}

#[test]
fn a_thread_sends_while_another_receives() {
    let site = Site::start(Limits::default());
    let mut connection = site.open(&site.key("mount", Holder::everyone()));
    echoes(&mut connection, 10).expect("the first message is short");
    let sender = connection.sender().clone();
    let bytes = vec![7; 100_000];
    std::thread::scope(|scope| {
        let bytes = &bytes;
        // More than the buffers between the two hold: the peer stops to read unless it is read.
        scope.spawn(move || {
            for number in 0..300 {
                let frame = Message::Chunk { tid: Tid(number), bytes }.to_frame();
                sender.send(&frame).expect("sends");
            }
        });
        for number in 0..300 {
            let payload = connection.receive().expect("receives");
            assert_eq!(Message::decode(payload), Ok(Message::Chunk { tid: Tid(number), bytes }));
        }
    });
}

#[test]
fn without_a_key_and_with_plain_bytes_nothing_is_reached() {
    let limits = Limits { introduction: Duration::from_millis(300), ..Limits::default() };
    let site = Site::start(limits);
    let refused = Connection::open(&site.address, &Keyring::default()).expect_err("no key");
    assert_eq!(refused.errno, Errno::Access);
    let Address::Tcp(host) = &site.address else { unreachable!("made above") };
    let frame = Message::Chunk { tid: Tid(1), bytes: b"hello" }.to_frame();
    // A notice of the end of TLS, with more bytes behind it.
    let ended = [0x15, 3, 3, 0, 2, 1, 0, 0x16, 3, 3, 0, 1, 1];
    let http = b"GET / HTTP/1.1\r\n\r\n";
    for bytes in [&frame[..], http, &[0x16, 3, 1, 0xff, 0xff], &ended, b""] {
        let mut socket = TcpStream::connect(host).expect("connects");
        socket.write_all(bytes).expect("sends");
        // The server closes it, at the latest when it waited for a handshake.
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.len() < 100, "an alert at most: {answer:?}");
    }
    let seen = std::mem::take(&mut *site.seen.lock().expect("no panic"));
    assert_eq!((seen.peers, seen.closed), (Vec::new(), Vec::new()));
    assert!(seen.refused.len() >= 4, "each has a reason: {:?}", seen.refused);
    echoes(&mut site.open(&site.key("mount", Holder::everyone())), 10).expect("others go on");
}

#[test]
fn bytes_behind_the_end_of_tls_hold_nobody_up() {
    let site = Site::start(Limits::default());
    let mallory = site.key("mallory", Holder::User(user()));
    let config = mallory.key().and_then(|key| key.client()).expect("a key");
    let name = keys::KeyFile::daemon_name();
    let mut tls = rustls::ClientConnection::new(config, name).expect("a connection");
    let Address::Tcp(host) = &site.address else { unreachable!("made above") };
    let mut socket = TcpStream::connect(host).expect("connects");
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).expect("proves itself");
    }
    tls.send_close_notify();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).expect("encrypts");
    // More than TLS takes at a time.
    bytes.resize(12_000, 0x17);
    socket.write_all(&bytes).expect("sends");
    // The server closes it: a server that tries for ever to read the rest serves nobody.
    let mut other = site.open(&site.key("mount", Holder::everyone()));
    other.set_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    echoes(&mut other, 10).expect("others go on");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let _ = socket.read_to_end(&mut Vec::new());
    let start = std::time::Instant::now();
    while site.seen.lock().expect("no panic").closed.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is not cut off");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_key_of_another_cluster_is_refused_with_the_reason() {
    let (site, other) = (Site::start(Limits::default()), Site::start(Limits::default()));
    let stranger = other.key("mallory", Holder::everyone());
    let refused = Connection::open(&site.address, &stranger).expect_err("refused");
    assert_eq!(refused.errno, Errno::Access);
    assert!(refused.cause.contains("do not accept each other"), "{refused}");
}

#[test]
fn an_open_connection_ends_when_its_key_is_revoked() {
    let site = Site::start(Limits::default());
    let (alice, bob) =
        (site.key("alice", Holder::User(user())), site.key("bob", Holder::everyone()));
    let (mut hers, mut his) = (site.open(&alice), site.open(&bob));
    echoes(&mut hers, 10).expect("comes back");
    echoes(&mut his, 10).expect("comes back");
    let issued = site.authority.list().expect("a list");
    let id = issued.iter().find(|key| key.name == "alice").expect("listed").id;
    site.authority.revoked().add(id).expect("revokes");
    hers.set_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    assert_eq!(hers.receive().expect_err("cut off").errno, Errno::Io);
    let start = std::time::Instant::now();
    while site.seen.lock().expect("no panic").closed != ["the key of the peer was revoked"] {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", site.seen);
        std::thread::sleep(Duration::from_millis(1));
    }
    echoes(&mut his, 10).expect("others go on");
    let again = Connection::open(&site.address, &alice).expect_err("refused");
    assert_eq!(again.errno, Errno::Access);
    assert!(again.cause.contains("evoked"), "{again}");
}

#[test]
fn a_plain_address_is_this_machines_own() {
    let address = Address::Plain(format!("127.0.0.1:{}", free_port()));
    let _server = Reactor::listen(&address, &Keyring::default()).expect("listens");
    assert!(address.is_served(&Keyring::default()));
    for other in ["plain:0.0.0.0:7", "plain:192.0.2.1:7"] {
        let other: Address = other.parse().expect("an address");
        let refused = Reactor::listen(&other, &Keyring::default()).expect_err("refused");
        assert_eq!(refused.errno, Errno::Invalid);
        let refused = Connection::open(&other, &Keyring::default()).expect_err("refused");
        assert_eq!(refused.errno, Errno::Invalid);
    }
}

#[test]
fn a_connection_ends_with_the_life_of_its_key() {
    const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;
    const LEFT_NANOS: i64 = 3_000_000_000;
    let site = Site::start(Limits::default());
    let begun = Timestamp(now().0 - DAY_NANOS + LEFT_NANOS);
    let (old, new) =
        (site.key_from("old", Holder::everyone(), begun), site.key("new", Holder::everyone()));
    let (mut old_conn, mut new_conn) = (site.open(&old), site.open(&new));
    echoes(&mut old_conn, 10).expect("comes back");
    old_conn.set_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    assert_eq!(old_conn.receive().expect_err("cut off").errno, Errno::Io);
    let start = std::time::Instant::now();
    while site.seen.lock().expect("no panic").closed != ["the key of the peer has expired"] {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", site.seen);
        std::thread::sleep(Duration::from_millis(1));
    }
    echoes(&mut new_conn, 10).expect("others go on");
    assert_eq!(Connection::open(&site.address, &old).expect_err("refused").errno, Errno::Access);
}

#[test]
fn a_client_refuses_a_server_whose_key_was_revoked() {
    let site = Site::start(Limits::default());
    let key = site.key("node", Holder::everyone());
    site.open(&key);
    let issued = site.authority.list().expect("a list");
    let daemon = issued.iter().find(|key| key.name == "daemon").expect("listed").id;
    // As the map of the cluster says it to a client on another host.
    key.learn_revoked(&[daemon.0]);
    let refused = Connection::open(&site.address, &key).expect_err("refused");
    assert_eq!(refused.errno, Errno::Access, "{refused}");
    assert!(refused.cause.contains("evoked"), "{refused}");
}

/// Attempts of an ordinary run; `CUDELE_FUZZ` asks for more.
const ATTEMPTS: u64 = 200;

/// Bytes as an attacker changes them.
fn spoil(choice: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = choice.index(bytes.len());
    match choice.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, choice.byte()),
        2 => {
            let part = bytes[at..].to_vec();
            bytes.extend_from_slice(&part);
        }
        3 => bytes[at..].fill(choice.byte()),
        4 => bytes.splice(at..at, random(choice, 300)).for_each(drop),
        _ => bytes[at] ^= 1 << choice.below(8),
    }
}

fn random(choice: &mut Rng, most: u64) -> Vec<u8> {
    let length = choice.below(most);
    (0..length).map(|_| choice.byte()).collect()
}

/// A process with a key of its own connects, and deviates from the protocol at some step. Returns
/// whether both sides had proved themselves by then.
fn attack(choice: &mut Rng, host: &str, keys: &Keyring) -> bool {
    let config = keys.key().and_then(|key| key.client()).expect("a key");
    let tls = rustls::ClientConnection::new(config, keys::KeyFile::daemon_name());
    let mut tls = tls.expect("a connection");
    let mut socket = TcpStream::connect(host).expect("connects");
    socket.set_read_timeout(Some(Duration::from_millis(60))).expect("a timeout");
    let deviates_at = choice.below(5);
    for step in 0..5 {
        if step == 3 && !tls.is_handshaking() {
            let frames = random(choice, 5000);
            let _ = tls.writer().write_all(&frames);
        }
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("encrypts");
        }
        if step == deviates_at {
            spoil(choice, &mut flight);
        }
        let mut arrived = [0; 4096];
        let deviated = step > deviates_at || flight.is_empty();
        if socket.write_all(&flight).is_err() || (deviated && step > 2) {
            break;
        }
        match socket.read(&mut arrived) {
            Ok(length @ 1..) => {
                let _ = tls.read_tls(&mut &arrived[..length]);
                let _ = tls.process_new_packets();
            }
            _ => break,
        }
    }
    !tls.is_handshaking()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the attempts of a longer run")]
fn any_bytes_before_and_after_a_handshake_get_nothing_and_stop_nobody() {
    let limits = Limits { introduction: Duration::from_millis(300), ..Limits::default() };
    let site = Site::start(limits);
    let Address::Tcp(host) = &site.address else { unreachable!("made above") };
    let mallory = site.key("mallory", Holder::User(user()));
    let honest = site.key("mount", Holder::everyone());
    let attempts = std::env::var("CUDELE_FUZZ").ok().and_then(|text| text.parse().ok());
    let attempts: u64 = attempts.unwrap_or(ATTEMPTS);
    let mut proved = 0_u64;
    for seed in 0..attempts {
        let mut choice = Rng::new(seed);
        if choice.percent(20) {
            let mut socket = TcpStream::connect(host).expect("connects");
            let _ = socket.write_all(&random(&mut choice, 3000));
        } else if attack(&mut choice, host, &mallory) {
            proved += 1;
        }
        if seed % 50 == 0 {
            let mut other = site.open(&honest);
            other.set_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            echoes(&mut other, 1000).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    println!("{attempts} connections deviated, {proved} after both sides had proved themselves");
    assert!(proved > 0 && proved < attempts, "some of each");
    let peers = site.seen.lock().expect("no panic").peers.clone();
    let others = [Peer::User(user()), Peer::host()];
    assert!(peers.iter().all(|peer| others.contains(peer)), "nobody is a daemon");
}
