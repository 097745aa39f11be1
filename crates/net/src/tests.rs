use std::time::Duration;

use types::{ConnId, Errno};
use wire::Message;

use crate::{Address, Connection, Happened, Limits, Reactor};

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
            Happened::Opened(_) => {}
            Happened::Payload(conn, payload) => {
                let message = Message::decode(payload).expect("a message");
                replies.push((conn, message.to_frame()));
            }
            Happened::Closed(..) => open = false,
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
        let reactor = Reactor::listen(&there).expect("listens");
        listening.send(()).expect("the test waits");
        echo(reactor);
    });
    ready.recv().expect("the server listens");
    let mut connection = Connection::open(&address).expect("connects");
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
    let mut reactor = Reactor::listen(&address).expect("listens");
    let mut connection = Connection::open(&address).expect("connects");
    connection.send(b"GET / HTTP/1.1\r\n\r\n").expect("sends");
    let mut reason = None;
    while reason.is_none() {
        let poll = reactor.poll(Duration::from_secs(10), |happened| {
            if let Happened::Closed(_, why) = happened {
                reason = Some(why);
            }
        });
        poll.expect("the reactor works");
    }
    assert!(reason.expect("closed").contains("not Cudele"));
    assert_eq!(connection.receive().expect_err("cut off").errno, Errno::Io);
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    let (_dir, address) = address("s");
    let first = Reactor::listen(&address).expect("listens");
    assert_eq!(Reactor::listen(&address).expect_err("in use").errno, Errno::AddressInUse);
    drop(first);
    let Address::Unix(path) = &address else { unreachable!("made above") };
    drop(std::os::unix::net::UnixListener::bind(path).expect("leaves a socket behind"));
    Reactor::listen(&address).expect("replaces it");
    assert_eq!(Connection::open(&address).expect_err("gone").errno, Errno::NotFound);
}

#[test]
fn the_socket_of_a_successor_is_left_alone() {
    let (_dir, address) = address("s");
    let first = Reactor::listen(&address).expect("listens");
    let Address::Unix(path) = &address else { unreachable!("made above") };
    // What a process does that takes over from one that does not answer.
    std::fs::remove_file(path).expect("the first one's socket");
    let _second = Reactor::listen(&address).expect("listens");
    drop(first);
    Connection::open(&address).expect("the second one's socket is there");
}

#[test]
fn addresses_are_read_and_written() {
    for text in ["unix:/run/x", "tcp:127.0.0.1:80", "tcp:[::1]:80"] {
        assert_eq!(text.parse::<Address>().expect("legal").to_string(), text);
    }
    for text in ["", "unix:", "tcp:host", "/run/x", "http:x:1"] {
        assert_eq!(text.parse::<Address>().expect_err("illegal").errno, Errno::Invalid);
    }
}

/// A server that answers every frame with a chunk of this size, one turn at a time.
struct Server {
    reactor: Reactor,
    reply_bytes: usize,
    /// Whom a frame came from, in order.
    served: Vec<ConnId>,
    closed: Vec<(ConnId, String)>,
}

impl Server {
    fn listen(address: &Address, limits: Limits, reply_bytes: usize) -> Self {
        let reactor = Reactor::listen(address).expect("listens").with_limits(limits);
        Self { reactor, reply_bytes, served: Vec::new(), closed: Vec::new() }
    }

    /// Once around; returns how many frames were handed out.
    fn turn(&mut self) -> usize {
        let before = self.served.len();
        let (served, closed) = (&mut self.served, &mut self.closed);
        let poll = self.reactor.poll(Duration::from_millis(1), |happened| match happened {
            Happened::Opened(_) => {}
            Happened::Payload(conn, _) => served.push(conn),
            Happened::Closed(conn, why) => closed.push((conn, why)),
        });
        poll.expect("the reactor works");
        let bytes = vec![7; self.reply_bytes];
        let reply = Message::Chunk { tid: types::Tid(0), bytes: &bytes }.to_frame();
        for conn in &self.served[before..] {
            self.reactor.send(*conn, &reply);
        }
        let closed = &mut self.closed;
        self.reactor.flush(|happened| {
            if let Happened::Closed(conn, why) = happened {
                closed.push((conn, why));
            }
        });
        self.served.len() - before
    }

    /// Turns until it has been looked for silent peers once more.
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

/// Sends so many requests from a thread: the socket takes only what the server reads.
fn send_ahead(connection: &Connection, count: usize) -> std::thread::JoinHandle<()> {
    let sender = connection.sender().clone();
    let frames = request().repeat(count);
    // It fails when the server cuts the connection off.
    std::thread::spawn(move || drop(sender.send(&frames)))
}

#[test]
fn who_sends_much_ahead_has_its_turn_and_no_more() {
    const TURN: usize = 5;
    let (_dir, address) = address("s");
    let limits = Limits { frames_per_turn: TURN, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 8);
    let mut eager = Connection::open(&address).expect("connects");
    let mut modest = Connection::open(&address).expect("connects");
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
        // Nothing more arrives: what is left must not wait for that.
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
fn who_does_not_read_is_not_read_from_and_holds_nobody_up() {
    const REPLY: usize = 4 << 10;
    let (_dir, address) = address("s");
    let limits = Limits { unsent_bytes: 64 << 10, ..Limits::default() };
    let mut server = Server::listen(&address, limits, REPLY);
    let mut slow = Connection::open(&address).expect("connects");
    let mut other = Connection::open(&address).expect("connects");
    // Far more than what the sockets and the limit take, also of requests.
    let count = 20_000;
    let sending = send_ahead(&slow, count);
    while server.reactor.replies_of(ConnId(1)).1 < limits.unsent_bytes {
        server.turn();
    }
    let held = server.served(1);
    // What the kernel's buffer has, the limit, and a turn beyond it.
    let most = (1 << 20) / REPLY + (64 << 10) / REPLY + Limits::default().frames_per_turn;
    assert!(0 < held && held <= most, "{held} requests of one that reads nothing");
    // What is owed, and at most as much of what was taken.
    let most = 2 * (limits.unsent_bytes + (limits.frames_per_turn + 1) * (REPLY + 64));
    let (kept, _) = server.reactor.replies_of(ConnId(1));
    assert!(kept <= most, "{kept} bytes");
    for _ in 0..10 {
        other.send(&request()).expect("sends");
        while server.turn() == 0 {}
        other.receive().expect("served meanwhile");
    }
    assert_eq!(server.served(1), held, "nothing of the slow one meanwhile");
    // It reads a bit: then some more of it is carried out, and memory stays bounded although it never
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
fn who_reads_nothing_for_long_is_cut_off() {
    let (_dir, address) = address("s");
    let stalled = Duration::from_millis(50);
    let limits = Limits { unsent_bytes: 64 << 10, stalled, ..Limits::default() };
    let mut server = Server::listen(&address, limits, 4 << 10);
    let silent = Connection::open(&address).expect("connects");
    let idle = Connection::open(&address).expect("connects");
    let sending = send_ahead(&silent, 50_000);
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
