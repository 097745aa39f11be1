use std::time::Duration;

use types::{ConnId, Errno};
use wire::{Message, ProtocolVersions};

use crate::{Address, Connection, ConnectionEvent, Keyring, Limits, Reactor};

mod secured;

fn open(address: &Address) -> Result<Connection, types::Error> {
    Connection::open(address, &Keyring::default())
}

fn listen(address: &Address) -> Result<Reactor, types::Error> {
    Reactor::listen(address, &Keyring::default())
}

fn address(name: &str) -> (tempfile::TempDir, Address) {
    let dir = tempfile::tempdir().expect("a directory");
    let address = Address::Unix(dir.path().join(name));
    (dir, address)
}

/// Answers every frame with the same frame until the peer leaves.
fn echo(mut reactor: Reactor) {
    let mut open = true;
    while open {
        let mut replies: Vec<(ConnId, Vec<u8>)> = Vec::new();
        let poll = reactor.poll(Duration::from_secs(10), |happened| match happened {
            ConnectionEvent::Opened(..) | ConnectionEvent::Cut { .. } => {}
            ConnectionEvent::Payload(conn, payload) => {
                let message = Message::decode(payload).expect("a message");
                replies.push((conn, message.to_frame()));
            }
            ConnectionEvent::Closed(..) => open = false,
        });
        poll.expect("the reactor works");
        for (conn, frame) in replies {
            reactor.send(conn, &frame);
        }
        reactor.flush(|_| {});
    }
}

#[test]
fn frames_of_every_size_come_back_in_order() {
    let (_dir, address) = address("s");
    let (listening, ready) = std::sync::mpsc::channel();
    let there = address.clone();
    let server = std::thread::spawn(move || {
        let reactor = listen(&there).expect("listens");
        listening.send(()).expect("the test waits");
        echo(reactor);
    });
    ready.recv().expect("the server listens");
    let mut connection = open(&address).expect("connects");
    for size in [0usize, 1, 100, 70_000, 3_000_000] {
        let bytes = vec![7; size];
        let sent = Message::Chunk { tid: types::Tid(size as u64), bytes: &bytes };
        connection.send(&sent.to_frame()).expect("sends");
        let payload = connection.receive().expect("receives");
        assert_eq!(Message::decode(payload), Ok(sent));
    }
    drop(connection);
    server.join().expect("ends when the peer leaves");
}

#[test]
fn a_foreign_peer_is_cut_off_and_told_apart() {
    let (_dir, address) = address("s");
    let mut server = Server::listen(&address, Limits::default(), 8);
    let mut connection = server.open(&address);
    connection.send(b"GET / HTTP/1.1\r\n\r\n").expect("sends");
    until(&mut server, |server| server.closed.len() == 1);
    assert!(server.closed[0].1.contains("not Cudele"));
    assert_eq!(connection.receive().expect_err("cut off").errno, Errno::Io);
}

/// A peer that begins with these bytes: why it is cut off, and the bytes that it receives.
fn refused(first: &[u8]) -> (String, Vec<u8>) {
    use std::io::{Read, Write};
    let (_dir, address) = address("s");
    let mut server = Server::listen(&address, Limits::default(), 8);
    let Address::Unix(path) = &address else { unreachable!("made above") };
    let mut socket = std::os::unix::net::UnixStream::connect(path).expect("connects");
    socket.write_all(first).expect("sends");
    until(&mut server, |server| server.closed.len() == 1);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("reads");
    (server.closed[0].1.clone(), answer)
}

#[test]
fn a_peer_of_another_release_is_told_the_versions_of_the_server() {
    let ours = ProtocolVersions::OURS;
    let stranger = ProtocolVersions { oldest: ours.newest + 1, newest: ours.newest + 2 };
    let (why, answer) = refused(&stranger.to_frame());
    assert!(why.contains(&format!("the peer speaks {stranger}")), "{why}");
    assert_eq!(ProtocolVersions::decode(&answer), Ok(Some((ours, answer.len()))));
    // A release that knew no versions.
    let mut hello = Message::Stop.to_frame();
    hello[4] = 10;
    let (why, answer) = refused(&hello);
    assert!(why.contains("the peer speaks version 10 of the protocol"), "{why}");
    assert_eq!(answer, []);
}

/// The error of a client whose server answers with these bytes and closes the connection.
fn error_after(answer: &'static [u8]) -> types::Error {
    use std::io::Write;
    let (_dir, address) = address("s");
    let Address::Unix(path) = &address else { unreachable!("made above") };
    let listener = std::os::unix::net::UnixListener::bind(path).expect("listens");
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        socket.write_all(answer).expect("sends");
    });
    let error = open(&address).expect_err("no agreement");
    server.join().expect("ends");
    error
}

#[test]
fn a_client_says_why_it_does_not_understand_a_server() {
    let newer = ProtocolVersions { oldest: 200, newest: 201 }.to_frame().leak();
    let error = error_after(newer);
    assert_eq!(error.errno, Errno::BadMessage);
    assert!(error.cause.contains("the peer speaks versions 200 to 201"), "{error}");
    assert!(error.remedy.contains("upgrade the older"), "{error}");
    let error = error_after(b"");
    assert!(error.errno == Errno::Io && error.cause.contains("older than this"), "{error}");
    assert_eq!(error_after(b"HTTP/1.1 400 Bad Request\r\n").errno, Errno::BadMessage);
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    let (_dir, address) = address("s");
    let first = listen(&address).expect("listens");
    assert_eq!(listen(&address).expect_err("in use").errno, Errno::AddressInUse);
    drop(first);
    let Address::Unix(path) = &address else { unreachable!("made above") };
    drop(std::os::unix::net::UnixListener::bind(path).expect("leaves a socket behind"));
    listen(&address).expect("replaces it");
    assert_eq!(open(&address).expect_err("gone").errno, Errno::NotFound);
}

#[test]
fn the_socket_of_a_successor_is_left_alone() {
    let (_dir, address) = address("s");
    let first = listen(&address).expect("listens");
    let Address::Unix(path) = &address else { unreachable!("made above") };
    // A process that takes over from a silent one does this.
    std::fs::remove_file(path).expect("the first one's socket");
    let _second = listen(&address).expect("listens");
    drop(first);
    assert!(address.is_served(&Keyring::default()), "the second one's socket is there");
}

#[test]
fn addresses_are_read_and_written() {
    for text in ["unix:/run/x", "tcp:127.0.0.1:80", "tcp:[::1]:80", "plain:127.0.0.1:80"] {
        assert_eq!(text.parse::<Address>().expect("legal").to_string(), text);
    }
    for text in ["", "unix:", "tcp:host", "plain:host", "/run/x", "http:x:1"] {
        assert_eq!(text.parse::<Address>().expect_err("illegal").errno, Errno::Invalid);
    }
}

/// A server that answers every frame with a chunk of this size, one turn at a time.
struct Server {
    reactor: Reactor,
    reply_bytes: usize,
    /// The senders of frames, in order.
    served: Vec<ConnId>,
    closed: Vec<(ConnId, String)>,
}

impl Server {
    fn listen(address: &Address, limits: Limits, reply_bytes: usize) -> Self {
        let reactor = listen(address).expect("listens").with_limits(limits);
        Self { reactor, reply_bytes, served: Vec::new(), closed: Vec::new() }
    }

    /// Connects a peer.
    fn open(&mut self, address: &Address) -> Connection {
        let there = address.clone();
        let opening = std::thread::spawn(move || open(&there));
        while !opening.is_finished() {
            self.turn();
        }
        opening.join().expect("ends").expect("connects")
    }

    /// Once around; returns how many frames were handed out.
    fn turn(&mut self) -> usize {
        let before = self.served.len();
        let (served, closed) = (&mut self.served, &mut self.closed);
        let poll = self.reactor.poll(Duration::from_millis(1), |happened| match happened {
            ConnectionEvent::Opened(..) | ConnectionEvent::Cut { .. } => {}
            ConnectionEvent::Payload(conn, _) => served.push(conn),
            ConnectionEvent::Closed(conn, why) => closed.push((conn, why)),
        });
        poll.expect("the reactor works");
        let bytes = vec![7; self.reply_bytes];
        let reply = Message::Chunk { tid: types::Tid(0), bytes: &bytes }.to_frame();
        for conn in &self.served[before..] {
            self.reactor.send(*conn, &reply);
        }
        let closed = &mut self.closed;
        self.reactor.flush(|happened| {
            if let ConnectionEvent::Closed(conn, why) = happened {
                closed.push((conn, why));
            }
        });
        self.served.len() - before
    }

    /// Turns until the reactor has looked for silent peers again.
    fn checked_again(&mut self) {
        let before = self.reactor.checked();
        while self.reactor.checked() == before {
            self.turn();
        }
    }

    fn served(&self, conn: u64) -> usize {
        self.served.iter().filter(|by| by.0 == conn).count()
    }
}

fn request() -> Vec<u8> {
    Message::Chunk { tid: types::Tid(0), bytes: &[1; 8] }.to_frame()
}

/// Sends requests from a thread: the socket takes as many as the server reads.
fn send_async(connection: &Connection, count: usize) -> std::thread::JoinHandle<()> {
    let sender = connection.sender().clone();
    let frames = request().repeat(count);
    // It fails when the server cuts the connection off.
    std::thread::spawn(move || drop(sender.send(&frames)))
}

#[test]
fn a_connection_with_many_requests_gets_one_turn_at_a_time() {
    const TURN: usize = 5;
    let (_dir, address) = address("s");
    let limits = Limits { frames_per_turn: TURN, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 8);
    let mut eager = server.open(&address);
    let mut modest = server.open(&address);
    eager.send(&request().repeat(101)).expect("fits the socket");
    server.turn();
    while server.served.is_empty() {
        server.turn();
    }
    assert!(server.served.len() <= TURN, "one receive has them all, one turn does not");
    modest.send(&request()).expect("sends");
    server.turn();
    assert_eq!(server.served(2), 1, "before the others' frames have all been handed out");
    assert!(server.served(1) <= 2 * TURN, "{}", server.served(1));
    let mut turns = 0;
    while server.served(1) < 101 {
        // No frame arrives any more: the remaining ones must not wait for one.
        assert!(server.turn() <= TURN);
        turns += 1;
        assert!(turns <= 101, "it goes on without being woken");
    }
    for _ in 0..101 {
        eager.receive().expect("every request is answered");
    }
    modest.receive().expect("answered");
}

#[test]
fn a_client_that_reads_no_replies_is_throttled_and_delays_no_other() {
    const REPLY: usize = 4 << 10;
    let (_dir, address) = address("s");
    let limits = Limits { unsent_bytes: 64 << 10, ..Limits::default() };
    let mut server = Server::listen(&address, limits, REPLY);
    let mut slow = server.open(&address);
    let mut other = server.open(&address);
    // Far more than the sockets and the limit take, also of requests.
    let count = 20_000;
    let sending = send_async(&slow, count);
    while server.reactor.replies_of(ConnId(1)).1 < limits.unsent_bytes {
        server.turn();
    }
    let held = server.served(1);
    // The kernel's buffer, the limit, and one turn beyond it.
    let most = (1 << 20) / REPLY + (64 << 10) / REPLY + Limits::default().frames_per_turn;
    assert!(0 < held && held <= most, "{held} requests of one that reads nothing");
    // The unsent replies, and at most as many sent ones.
    let most = 2 * (limits.unsent_bytes + (limits.frames_per_turn + 1) * (REPLY + 64));
    let (kept, _) = server.reactor.replies_of(ConnId(1));
    assert!(kept <= most, "{kept} bytes");
    for _ in 0..10 {
        other.send(&request()).expect("sends");
        while server.turn() == 0 {}
        other.receive().expect("served meanwhile");
    }
    assert_eq!(server.served(1), held, "nothing of the slow one meanwhile");
    // A slow reader: some requests are executed, and memory stays bounded although the peer never
    // catches up.
    for _ in 0..200 {
        for _ in 0..4 {
            slow.receive().expect("receives");
        }
        server.turn();
        let (kept, _) = server.reactor.replies_of(ConnId(1));
        assert!(kept <= most, "{kept} bytes");
    }
    assert!(server.served(1) > held, "it goes on when the peer reads");
    // And when it reads everything, everything is carried out.
    let reading = std::thread::spawn(move || {
        for _ in 800..count {
            slow.receive().expect("receives");
        }
        slow
    });
    while server.served(1) < count || !reading.is_finished() {
        server.turn();
    }
    drop(reading.join().expect("reads all"));
    sending.join().expect("sends all");
    assert!(server.closed.is_empty());
}

#[test]
fn a_client_that_reads_no_replies_for_long_is_disconnected() {
    let (_dir, address) = address("s");
    let stalled = Duration::from_millis(50);
    let limits = Limits { unsent_bytes: 64 << 10, stalled, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 4 << 10);
    let silent = server.open(&address);
    let idle = server.open(&address);
    let sending = send_async(&silent, 50_000);
    while server.closed.is_empty() {
        server.turn();
    }
    sending.join().expect("ends when it is cut off");
    let (conn, why) = &server.closed[0];
    assert_eq!(conn.0, 1);
    assert!(why.contains("does not read"), "{why}");
    server.checked_again();
    assert_eq!(server.closed.len(), 1, "who asks for nothing is owed nothing, and stays");
    drop(idle);
}

/// The first bytes of a message that announces so many bytes.
fn part_of_a_message(announced: usize, sent: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    wire::frame::encode(&mut frame, |out| out.resize(out.len() + announced, 7));
    frame.truncate(sent);
    frame
}

/// Turns until the condition holds.
fn until(server: &mut Server, condition: impl Fn(&Server) -> bool) {
    let start = std::time::Instant::now();
    while !condition(server) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", server.closed);
        server.turn();
    }
}

#[test]
fn the_first_message_of_a_peer_is_small() {
    let (_dir, address) = address("s");
    let mut server = Server::listen(&address, Limits::default(), 8);
    let most = wire::frame::FIRST_PAYLOAD_BYTES_MAX;
    let mut large = server.open(&address);
    large.send(&part_of_a_message(most + 1, 100)).expect("sends");
    until(&mut server, |server| server.closed.len() == 1);
    assert!(server.closed[0].1.contains("not Cudele"), "{:?}", server.closed);
    let mut known = server.open(&address);
    let second = Message::Chunk { tid: types::Tid(0), bytes: &vec![1; 4 * most] }.to_frame();
    known.send(&[request(), second].concat()).expect("sends");
    until(&mut server, |server| server.served(2) == 2);
}

#[test]
fn an_idle_connection_has_no_buffer_and_a_part_of_a_message_no_large_one() {
    let (_dir, address) = address("s");
    let mut server = Server::listen(&address, Limits::default(), 8);
    let mut peers: Vec<_> = (0..20).map(|_| server.open(&address)).collect();
    for peer in &mut peers {
        peer.send(&request()).expect("sends");
    }
    until(&mut server, |server| server.served.len() == peers.len());
    for peer in &mut peers {
        peer.receive().expect("answered");
        peer.send(&part_of_a_message(8 << 20, 1000)).expect("sends");
    }
    while server.reactor.held().1 < 20 * 1000 {
        server.turn();
    }
    let (counted, held) = server.reactor.held();
    assert_eq!(counted, held);
    assert!(held < 20 * 3000, "{held} bytes");
    drop(peers);
    until(&mut server, |server| server.closed.len() == 20);
    assert_eq!(server.reactor.held(), (0, 0));
}

#[test]
fn parts_of_messages_take_bounded_memory_and_the_oldest_goes_first() {
    const PEERS: u64 = 40;
    let (_dir, address) = address("s");
    let limits = Limits { buffer_bytes: 2 << 20, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 8);
    let mut honest = server.open(&address);
    honest.send(&request()).expect("sends");
    until(&mut server, |server| server.served(1) == 1);
    honest.receive().expect("answered");
    let mut most = 0;
    let mut peers = Vec::new();
    for number in 0..PEERS {
        let mut peer = server.open(&address);
        peer.send(&[request(), part_of_a_message(4 << 20, 100_000)].concat())
            .expect("fits the socket");
        peers.push(peer);
        for _ in 0..20 {
            server.turn();
            most = most.max(server.reactor.held().1);
        }
        if number % 10 == 9 {
            // Larger than one receive, so that it needs a buffer, too.
            let large = Message::Chunk { tid: types::Tid(0), bytes: &[1; 150_000] }.to_frame();
            let sender = honest.sender().clone();
            let sending = std::thread::spawn(move || sender.send(&large));
            let served = server.served(1);
            until(&mut server, |server| server.served(1) > served);
            sending.join().expect("ends").expect("is taken");
            honest.receive().expect("served meanwhile");
        }
    }
    assert!(most <= (2 << 20) + (1 << 20), "{most} bytes");
    assert!(server.closed.len() > 20, "{:?}", server.closed);
    let order: Vec<u64> = server.closed.iter().map(|(conn, _)| conn.0).collect();
    assert!(order.is_sorted() && order.first() == Some(&2), "{order:?}");
    assert!(server.closed[0].1.contains("all memory"), "{:?}", server.closed[0]);
}

#[test]
fn a_client_without_hello_or_with_half_a_message_is_disconnected() {
    let (_dir, address) = address("s");
    let short = Duration::from_millis(50);
    let limits = Limits { introduction: short, stalled: short, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 8);
    let silent = server.open(&address);
    let mut slow = server.open(&address);
    let mut idle = server.open(&address);
    idle.send(&request()).expect("sends");
    slow.send(&[request(), part_of_a_message(1000, 100)].concat()).expect("sends");
    until(&mut server, |server| server.closed.len() == 2);
    server.checked_again();
    server.closed.sort();
    let why: Vec<_> = server.closed.iter().map(|(conn, why)| (conn.0, why.as_str())).collect();
    let expected =
        [(1, "the peer does not say who it is"), (2, "the peer does not finish a message")];
    assert_eq!(why, expected, "and who has introduced itself and asks for nothing stays");
    drop((silent, slow, idle));
}

#[test]
fn one_too_many_is_refused_unless_a_stranger_makes_room() {
    let (_dir, address) = address("s");
    let limits = Limits { connections: 3, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 8);
    let refusal = |most| Message::Chunk { tid: types::Tid(most as u64), bytes: b"full" }.to_frame();
    server.reactor = server.reactor.with_refusal(refusal);
    let mut strangers: Vec<_> = (0..10).map(|_| server.open(&address)).collect();
    let mut peers = Vec::new();
    for number in 1..=3 {
        let mut peer = server.open(&address);
        peer.send(&request()).expect("sends");
        until(&mut server, |server| server.served.len() == number);
        peers.push(peer);
    }
    assert_eq!(server.closed.len(), 10, "{:?}", server.closed);
    assert!(server.closed[0].1.contains("who it is"), "{:?}", server.closed[0]);
    assert!(strangers.iter_mut().all(|stranger| stranger.receive().is_err()));
    let mut refused = server.open(&address);
    let expected = Message::Chunk { tid: types::Tid(3), bytes: b"full" };
    refused.set_timeout(Some(Duration::from_millis(1))).expect("is set");
    let received = loop {
        server.turn();
        match refused.receive() {
            Ok(payload) => break payload.to_vec(),
            Err(error) => assert_eq!(error.errno, Errno::TimedOut),
        }
    };
    assert_eq!(Message::decode(&received), Ok(expected));
    drop(peers.pop());
    until(&mut server, |server| server.closed.len() == 11);
    let mut next = server.open(&address);
    next.send(&request()).expect("sends");
    until(&mut server, |server| server.served.len() == 4);
}
