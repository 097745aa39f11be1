//! Directories under leases.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use mds::{Mds, Settings};
use types::{Errno, Ino, Rank};
use wire::{Answer, ChangeOp, NewInode, Op, ReadOp};

use crate::server::{Answered, TICK, World};

const LEASE: u64 = 1000;
const SLACK: u64 = 10;
const DIR: u32 = 0o040_755;

impl World {
    /// Looks a name up until the client has cached it: the first lease comes when the store knows
    /// that there are any.
    fn learn(&mut self, client: usize, name: &[u8]) {
        let op = lookup(name);
        for _ in 0..10_000 {
            if self.says(client, &op).is_some() {
                return;
            }
            self.ask(client, op);
            self.pass(u64::from(self.says(client, &op).is_none()));
        }
        panic!("it is never told");
    }
}

fn lookup(name: &[u8]) -> Op<'_> {
    Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name })
}

fn mkdir(name: &[u8]) -> Op<'_> {
    Op::Change(ChangeOp::Create {
        parent: Ino::ROOT,
        name,
        new: NewInode { mode: DIR, ..NewInode::default() },
    })
}

fn is_absent(answer: Option<&Answered>) -> bool {
    matches!(answer, Some(Err(failure)) if failure.errno == Errno::NotFound)
}

/// The state of a server after this many clients have looked at its root: leases, capabilities, and
/// the bytes of its table.
fn kept(policy: &str, clients: usize) -> (u64, u64, usize) {
    let mut world = World::new(policy, clients);
    for _ in 0..2 {
        // The first answer comes before the store knows that there are leases.
        for client in 0..clients {
            world.ask(client, lookup(b"none"));
        }
        world.pass(10);
    }
    assert_eq!(world.counted("sessions"), clients as u64);
    (world.counted("leases"), world.counted("caps"), world.table_bytes())
}

#[test]
fn ten_thousand_clients_under_leases_cost_what_one_does() {
    let (leases, caps, bytes) = kept("cache: lease\n", 1);
    assert_eq!((leases, caps), (1, 0));
    assert_eq!(kept("cache: lease\n", 10_000), (leases, caps, bytes));
    // Capabilities are kept for each.
    let (one, many) = (kept("cache: caps\n", 1), kept("cache: caps\n", 200));
    assert_eq!((one.0, one.1, many.0, many.1), (0, 1, 0, 200));
    assert!(many.2 > one.2);
}

#[test]
fn a_change_waits_for_the_lease_and_no_new_lease_is_granted() {
    // As much slower as is promised to be harmless, and faster.
    let mut world = World::new("cache: lease\n", 0);
    for per_mille in [991, 1000, 1009, 1300] {
        world.add_client(per_mille);
    }
    for round in 0..5 {
        let name = format!("d{round}");
        let name = name.as_bytes();
        for client in 0..4 {
            world.learn(client, name);
            assert!(is_absent(world.says(client, &lookup(name)).as_ref()));
        }
        world.pass(200 * round);
        for client in 0..4 {
            world.ask(client, lookup(name));
        }
        // Also a client's own change: the server does not know the clients that cache.
        let changer = usize::try_from(round % 4).unwrap();
        let tid = world.ask(changer, mkdir(name));
        assert!(!world.is_answered(changer, tid));
        let mut waited = 0;
        while !world.is_answered(changer, tid) {
            world.pass(1);
            waited += 1;
            assert!(waited <= LEASE + SLACK + TICK, "{waited} ms");
            for client in 0..4 {
                // Questions are answered, and give no lease that would have to be waited for.
                let asked = (client != changer).then(|| world.ask(client, lookup(name)));
                let is_done = world.is_answered(changer, tid);
                let answer = asked.map(|asked| &world.clients[client].answers[&asked]);
                assert!(answer.is_none_or(|_| is_absent(answer) != is_done), "{answer:?}");
                let says = world.says(client, &lookup(name));
                assert!(!(is_done && is_absent(says.as_ref())), "{client} says what was");
            }
        }
        assert!(waited > LEASE - 50, "{waited} ms");
        assert!(world.clients[changer].answers[&tid].is_ok());
        // Until the leases have expired; then new ones are granted.
        world.until(|world| world.counted("leases") == 0);
        world.learn(0, name);
        assert!(world.says(0, &lookup(name)).unwrap().is_ok());
        world.pass(2 * LEASE);
    }
    assert!(world.counted("lease_waits") > 0);
}

#[test]
fn a_change_in_another_directory_does_not_wait() {
    let mut world = World::new("cache: lease\n", 2);
    let tid = world.ask(0, mkdir(b"other"));
    let Ok(Answer::Attr(other)) = world.clients[0].answers[&tid].clone() else { panic!() };
    world.learn(0, b"none");
    let waits = world.ask(0, mkdir(b"waits"));
    let op = Op::Change(ChangeOp::Create {
        parent: other.ino,
        name: b"d",
        new: NewInode { mode: DIR, ..NewInode::default() },
    });
    let goes = world.ask(1, op);
    assert!(world.is_answered(1, goes) && !world.is_answered(0, waits));
    world.until(|world| world.is_answered(0, waits));
}

#[test]
fn another_policy_waits_for_the_leases_of_this_one() {
    let mut world = World::new("cache: lease\n", 2);
    world.learn(0, b"none");
    world.monitor.clear();
    let told_at = world.now;
    world.set_policy("cache: caps\n");
    while world.monitor.is_empty() {
        // Further questions of other clients do not delay it.
        world.ask(1, lookup(b"none"));
        world.pass(1);
        assert!(world.now - told_at <= LEASE + SLACK + TICK);
    }
    assert!(world.monitor[0].is_ok() && world.says(0, &lookup(b"none")).is_none());
    assert!(world.now - told_at > LEASE - 50);
    world.ask(0, lookup(b"none"));
    world.pass(10);
    world.ask(0, lookup(b"none"));
    assert!(world.says(0, &lookup(b"none")).is_none() && world.counted("caps") > 0);
}

#[test]
fn a_new_server_does_nothing_before_the_leases_of_the_old_one_are_over() {
    let mut world = World::new("cache: lease\n", 1);
    world.learn(0, b"d");
    // Its predecessor is gone without a word, and its client has not noticed.
    let lost = world.now;
    world.mds = Mds::new(Rank(0), Settings::default());
    world.handle(mds::MdsInput::Start);
    while !world.mds.is_active() {
        world.pass(1);
    }
    assert!(world.now - lost >= LEASE + SLACK, "{} ms", world.now - lost);
    assert!(world.now - lost <= LEASE + SLACK + 100, "{} ms", world.now - lost);
    assert!(world.says(0, &lookup(b"d")).is_none(), "nothing is left of what it was told");
}

#[test]
fn a_new_server_waits_for_nothing_where_there_were_no_leases() {
    let mut world = World::new("cache: caps\n", 0);
    world.add_client(1000);
    let start = world.now;
    world.mds = Mds::new(Rank(0), Settings::default());
    world.handle(mds::MdsInput::Start);
    let waited = world.until(|world| world.mds.is_active());
    assert!(waited < 100, "{waited} ms since {start}");
}
