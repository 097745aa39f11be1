use types::{DirFragId, Frag};

use super::*;
use crate::simulate::{Workload, replay};
use crate::{Expired, Metrics, RecordedDirectory, Unit, preset};

const HALF_LIFE: Span = Span::from_millis(5_000);
const TICK: f64 = 10.0;

/// A directory with this constant rate of reads and writes a second, by its number and the place of
/// its parent; counters include the directories below.
fn warm(ino: u64, parent: Option<usize>, (reads, writes): (f64, f64)) -> RecordedDirectory {
    let each = 5.0 / std::f64::consts::LN_2;
    let counts =
        Counts { inode_reads: reads * each, inode_writes: writes * each, ..Counts::default() };
    let id = DirFragId { ino: Ino(ino), frag: Frag::WHOLE };
    let unit = Unit { id, parent, counts, inodes: 10, movable: parent.is_some(), pin: None };
    RecordedDirectory { path: format!("/{ino}").into_bytes(), unit }
}

fn tick(rank: u16, second: i64, units: Vec<RecordedDirectory>) -> DecisionRecord {
    let own = Metrics { request_seconds: 250e-6, requests_per_second: 9.0, ..Metrics::default() };
    let ranks = vec![own; usize::from(rank) + 1];
    let tick = TickRecord { tick_seconds: TICK, units, ranks, ..TickRecord::default() };
    DecisionRecord {
        rank: Rank(rank),
        time: Timestamp(second * 1_000_000_000),
        what: RecordedEvent::Tick(tick),
    }
}

/// A rank with a constant load in each directory.
fn steady() -> Vec<DecisionRecord> {
    let units = || {
        vec![
            warm(1, None, (300.0, 700.0)),
            warm(7, Some(0), (300.0, 600.0)),
            warm(9, Some(1), (300.0, 0.0)),
        ]
    };
    (1..=6).map(|at| tick(0, at * 10, units())).collect()
}

#[test]
fn the_load_of_each_directory_follows_from_decaying_counters() {
    let recording = Recording::of(&steady(), HALF_LIFE).unwrap();
    assert_eq!((recording.seconds(), recording.directories()), (60, 3));
    assert!((recording.per_second() - 1000.0).abs() < 1.0, "{}", recording.per_second());
    let parents: Vec<_> = recording.dirs.iter().map(|dir| dir.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)]);
    for second in &recording.seconds {
        let expected = [(0, [0.0, 100.0, 0.0]), (1, [0.0, 600.0, 0.0]), (2, [300.0, 0.0, 0.0])];
        for ((dir, kinds), (number, wanted)) in second.iter().zip(expected) {
            assert_eq!(*dir, number);
            kinds.iter().zip(wanted).for_each(|(is, is_to)| assert!((is - is_to).abs() < 1.0));
        }
    }
}

#[test]
fn a_load_that_ends_between_two_ticks_ends_between_them() {
    // Busy until the tick at 20 s, then idle: the counter fades by a quarter in each tick.
    let fading = |second: i64, left: f64| {
        tick(0, second, vec![warm(1, None, (0.0, 0.0)), warm(7, Some(0), (0.0, 100.0 * left))])
    };
    let records = [fading(10, 1.0), fading(20, 1.0), fading(30, 0.25), fading(40, 0.0625)];
    let recording = Recording::of(&records, HALF_LIFE).unwrap();
    let at =
        |second: usize| recording.seconds[second].iter().map(|(_, kinds)| sum(kinds)).sum::<f64>();
    assert!((at(15) - 100.0).abs() < 1.0, "{}", at(15));
    assert!(at(25) < 1.0 && at(35) < 1.0, "{} {}", at(25), at(35));
}

#[test]
fn a_recorded_load_is_replayed_as_often_as_it_was_or_several_times() {
    let recording = Recording::of(&steady(), HALF_LIFE).unwrap();
    let setup = |ranks, clients| super::super::Setup {
        clients,
        seconds: recording.seconds(),
        ..super::super::Setup::new(Workload::Private, ranks)
    };
    let rate = |policy: &str, setup: &super::super::Setup, times: f64| {
        let policy = preset(policy).unwrap();
        replay(&policy, setup, &recording, times, &Expired::never())
    };
    let as_it_was = rate("static", &setup(1, 16), 1.0);
    assert!((as_it_was.per_second - 1000.0).abs() < 60.0, "{}", as_it_was.per_second);
    // One rank has room for 4,000 creates and reaches no more; two ranks reach more.
    let one = rate("static", &setup(2, 64), 6.0);
    let two = rate("greedy-spill", &setup(2, 64), 6.0);
    assert!(one.per_second < 4100.0, "{}", one.per_second);
    assert!(two.migrations > 0 && two.per_second > one.per_second * 1.2, "{}", two.per_second);
    assert_eq!(one.series.len(), 60);
}

#[test]
fn records_that_contradict_themselves_are_bounded_and_end() {
    assert_eq!(Recording::of(&[], HALF_LIFE), None);
    // Each stands in the other, by two ranks' words; and a million seconds lie between them.
    let records = [
        tick(0, 10, vec![warm(7, None, (1.0, 1.0)), warm(9, Some(0), (1.0, 0.5))]),
        tick(1, 1_000_000, vec![warm(9, None, (1.0, 1.0)), warm(7, Some(0), (1.0, 0.5))]),
    ];
    let recording = Recording::of(&records, Span(0)).unwrap();
    assert_eq!((recording.seconds(), recording.directories()), (SECONDS_MAX, 3));
    for (at, dir) in recording.dirs.iter().enumerate().skip(1) {
        assert!(dir.parent.unwrap() < at, "parents come first");
    }
    // Directories beyond the maximum count as their parents.
    let many = (0..3000).map(|at| warm(100 + at, Some(0), (0.0, 1.0)));
    let units = [warm(1, None, (0.0, 3000.0))].into_iter().chain(many).collect();
    let recording = Recording::of(&[tick(0, 10, units)], HALF_LIFE).unwrap();
    assert!(recording.directories() <= DIRS_MAX + 1);
    assert!((recording.per_second() - 3000.0).abs() < 3.0, "{}", recording.per_second());
}
