use proptest::prelude::*;
use types::{ClientId, ConnId, Epoch, Errno, Rank, Seq, Tid, Timestamp};
use wire::{Answer, Beacon, Cred, Decoupled, Failure, MdsState, Message, MonOp, Reply};

use super::bench::Bench;
use crate::MonInput;

/// One thing that may happen. Numbers are small so that they meet.
#[derive(Clone, Debug)]
enum Event {
    Beacon { conn: u64, rank: u16, epoch: u64, state: u8 },
    Ask { conn: u64, op: u8, path: u8 },
    Answer { conn: u64, nth: u64, kind: u8 },
    Other { conn: u64, kind: u8 },
    Raw { conn: u64, bytes: Vec<u8> },
    Closed { conn: u64 },
    Store { how: u8 },
    Wait { millis: u64 },
    Rival,
    Terminate,
}

fn event() -> impl Strategy<Value = Event> {
    let conn = 1..6_u64;
    prop_oneof![
        6 => (conn.clone(), 0..3_u16, 1..4_u64, 0..4_u8)
            .prop_map(|(conn, rank, epoch, state)| Event::Beacon { conn, rank, epoch, state }),
        6 => (conn.clone(), 0..24_u8, 0..3_u8)
            .prop_map(|(conn, op, path)| Event::Ask { conn, op, path }),
        4 => (conn.clone(), 1..6_u64, 0..4_u8)
            .prop_map(|(conn, nth, kind)| Event::Answer { conn, nth, kind }),
        1 => (conn.clone(), 0..3_u8).prop_map(|(conn, kind)| Event::Other { conn, kind }),
        2 => (conn.clone(), prop::collection::vec(0..16_u8, 1..40))
            .prop_map(|(conn, bytes)| Event::Raw { conn, bytes }),
        2 => conn.prop_map(|conn| Event::Closed { conn }),
        6 => (0..8_u8).prop_map(|how| Event::Store { how }),
        3 => (1..600_u64).prop_map(|millis| Event::Wait { millis }),
        1 => Just(Event::Terminate),
        1 => (0..20_u8).prop_map(|chance| match chance {
            0 => Event::Rival,
            _ => Event::Wait { millis: 1 },
        }),
    ]
}

fn play(bench: &mut Bench, event: Event) {
    match event {
        Event::Beacon { conn, rank, epoch, state } => {
            let state = [MdsState::Active, MdsState::Replaying, MdsState::Stopping, MdsState::Lost]
                [usize::from(state)];
            let (rank, epoch) = (Rank(rank), Epoch(epoch));
            let beacon = Beacon { rank, epoch, state, ..Beacon::default() };
            bench.message(conn, Message::Beacon(beacon));
        }
        Event::Ask { conn, op, path } => {
            let path = [&b"/a"[..], b"b", b"..\0"][usize::from(path)];
            let op = match op {
                0..8 => MonOp::Register,
                8..12 => MonOp::Status,
                12..17 => {
                    MonOp::SetPolicy { path, policy: b"durability: none", client: ClientId(0) }
                }
                17..19 => MonOp::SetPolicy { path, policy: b"", client: ClientId(0) },
                19..23 => MonOp::Decouple { path, client: ClientId(1), policy: b"ack: x" },
                _ => MonOp::Stop,
            };
            bench.message(conn, Message::MonRequest { tid: Tid(1), cred: Cred::default(), op });
        }
        Event::Answer { conn, nth, kind } => {
            let result = match kind {
                0 | 1 => Ok(Answer::Done),
                2 => Ok(Answer::Decoupled(Decoupled::default())),
                _ => Err(Failure::from(Errno::Busy)),
            };
            let tid = Tid(bench.forward_tid(nth));
            let (seq, time, safe) = (Seq(0), Timestamp(0), Seq(0));
            bench.message(
                conn,
                Message::Reply(Reply { tid, seq, time, safe, grants: None, result }),
            );
        }
        Event::Other { conn, kind } => {
            let message = match kind {
                0 => Message::Stop,
                1 => Message::Hello(wire::Hello::default()),
                _ => Message::Chunk { tid: Tid(1), bytes: b"x" },
            };
            bench.message(conn, message);
        }
        Event::Raw { conn, bytes } => {
            if let Ok(message) = Message::decode(&bytes) {
                bench.message(conn, message);
            }
        }
        Event::Closed { conn } => bench.input(MonInput::Closed { conn: ConnId(conn) }),
        Event::Store { how } if !bench.pending.is_empty() => match how {
            0 => bench.store_fails(false),
            1 => bench.store_fails(true),
            _ => bench.store(),
        },
        Event::Store { .. } => {}
        Event::Wait { millis } => bench.wait(millis),
        Event::Rival if bench.object.is_some() => {
            let mut rival = Bench::with(bench.object.take());
            rival.input(MonInput::Start);
            rival.settle();
            bench.object = rival.object;
        }
        Event::Rival => {}
        Event::Terminate => bench.input(MonInput::Terminate),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The monitor's own checks run after every input.
    #[test]
    fn random_inputs_never_panic_and_never_lose_what_was_confirmed(
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut bench = Bench::new();
        bench.input(MonInput::Start);
        for event in events {
            play(&mut bench, event);
        }
        let confirmed = bench.confirmed_clients();
        let unique: std::collections::BTreeSet<_> = confirmed.iter().collect();
        prop_assert_eq!(unique.len(), confirmed.len(), "no id is given out twice");
        if let Some(largest) = confirmed.iter().max() {
            prop_assert!(*largest < bench.stored_map().next_client, "what is given out is stored");
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_map_and_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        prop_assert!(crate::format::decode(&bytes).is_err());
    }
}
