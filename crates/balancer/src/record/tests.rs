use super::*;
use crate::{BalancerView, Expired, Question, State, preset};

fn unit(ino: u64, parent: Option<usize>, writes: f64) -> Unit {
    let id = DirFragId { ino: Ino(ino), frag: Frag::WHOLE };
    let counts = Counts { inode_writes: writes, ..Counts::default() };
    Unit { id, parent, counts, inodes: 5, movable: parent.is_some(), pin: None }
}

fn answer(units: Vec<Unit>) -> BalancerAnswer {
    let counts = Counts { inode_writes: 100.0, ..Counts::default() };
    let view = BalancerView {
        whoami: Rank(0),
        ranks: vec![Metrics::default(); 2],
        auth: counts,
        all: counts,
        units,
        tick_seconds: 10.0,
        move_seconds: 0.1,
    };
    let policy = preset("greedy-spill").unwrap();
    Question { version: 3, policy, view, state: State::Nothing, skipped: None }
        .answer(&Expired::never())
}

fn name(ino: Ino) -> Vec<u8> {
    format!("/{}", ino.0).into_bytes()
}

fn records() -> Vec<DecisionRecord> {
    let units = vec![unit(1, None, 100.0), unit(2, Some(0), 60.0), unit(3, Some(0), 40.0)];
    let tick = TickRecord::of(&answer(units), 7, name);
    assert_eq!((tick.ended, tick.moves.len()), (TickResult::Moves, 1), "{tick:?}");
    let done = MoveRecord {
        tick: 7,
        path: b"/2".to_vec(),
        root: Ino(2),
        to: Rank(1),
        failure: "busy".into(),
        frozen_micros: 300,
        flushed: 2,
    };
    [RecordedEvent::Tick(tick), RecordedEvent::Move(done)]
        .map(|what| DecisionRecord { rank: Rank(0), time: Timestamp(1_000_000_007), what })
        .to_vec()
}

#[test]
fn records_read_back() {
    for record in records() {
        assert_eq!(DecisionRecord::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    for record in records() {
        let bytes = record.encode();
        for end in 0..bytes.len() {
            assert!(DecisionRecord::decode(&bytes[..end]).is_err(), "{end} bytes");
        }
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(DecisionRecord::decode(&flipped).is_err(), "bit {at}");
        }
    }
}

#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let bytes = records()[1].encode();
    let hex = types::hex::encode(&bytes);
    expect_test::expect!["01000007ca9a3b000000000107022f320201000462757379ac02021aa59ec4"]
        .assert_eq(&hex);
}

#[test]
fn the_warmest_are_kept_with_all_that_is_above_them() {
    let mut units = vec![unit(1, None, 1000.0)];
    for number in 0..100 {
        units.push(unit(100 + number, Some(0), 1.0));
    }
    units.push(unit(500, Some(0), 50.0));
    units.push(unit(501, Some(101), 50.0));
    let record = TickRecord::of(&answer(units), 1, name);
    assert_eq!(record.units.len(), RECORDED_UNITS_MAX);
    let last = record.units.last().unwrap();
    assert_eq!(last.path, b"/501");
    let parent = &record.units[last.unit.parent.unwrap()];
    assert_eq!(parent.path, b"/500");
    assert!(record.units.iter().skip(1).all(|warm| warm.unit.parent.is_some()));
}
