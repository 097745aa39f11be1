use std::time::Duration;

use types::{ConnId, Errno};
use wire::Message;

use crate::{Address, Connection, Happened, Reactor};

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
fn addresses_are_read_and_written() {
    for text in ["unix:/run/x", "tcp:127.0.0.1:80", "tcp:[::1]:80"] {
        assert_eq!(text.parse::<Address>().expect("legal").to_string(), text);
    }
    for text in ["", "unix:", "tcp:host", "/run/x", "http:x:1"] {
        assert_eq!(text.parse::<Address>().expect_err("illegal").errno, Errno::Invalid);
    }
}
