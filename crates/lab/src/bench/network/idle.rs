//! Connections that stay open beside the work of a client: idle ones, and slow ones, which never
//! finish a message.

use cudele::{Cred, Ino, Result};
use net::{Address, Connection, Keyring};
use types::{ClientId, Tid};
use wire::{Hello, Message, Op, ReadOp, Request};

/// Bytes of the message that a slow connection begins.
const BEGUN: usize = 3;
/// The clients have numbers from here on; the monitor gave none of them away.
const FIRST_CLIENT: u64 = 1 << 24;

/// A message that a daemon answers.
fn frame() -> Vec<u8> {
    let op = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
    Message::Request(Request::new(Tid(1), Tid(0), Cred::root(), op)).to_frame()
}

/// A connection, and whether a message on it is unfinished.
pub(super) type Held = (Connection, bool);

/// Opens so many connections with this key. Every other one is slow.
pub(super) fn open(address: &Address, keys: &Keyring, count: u32) -> Result<Vec<Held>> {
    let frame = frame();
    let connect = |number: u32| {
        let mut connection = Connection::open(address, keys)?;
        // A daemon closes connections that do not introduce themselves.
        let client = ClientId(FIRST_CLIENT + u64::from(number));
        connection.send(&Message::Hello(Hello { client, ..Hello::default() }).to_frame())?;
        connection.receive()?;
        let is_slow = number % 2 == 1;
        if is_slow {
            connection.send(&frame[..BEGUN])?;
        }
        Ok((connection, is_slow))
    };
    (0..count).map(connect).collect()
}

/// Finishes the message, or sends one, and waits for its answer.
pub(super) fn is_served((connection, is_slow): &mut Held) -> Result<()> {
    let frame = frame();
    connection.send(if *is_slow { &frame[BEGUN..] } else { &frame })?;
    connection.receive().map(drop)
}
