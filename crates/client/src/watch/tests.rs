use types::Timestamp;
use wire::ChangedName;

use super::*;

const TERM: Epoch = Epoch(3);

fn point(next: u64) -> WatchPoint {
    WatchPoint { term: TERM, next }
}

fn change(time: i64, name: &str) -> WatchedChange {
    let at = Some(ChangedName { dir: Ino(1), path: name.as_bytes().to_vec() });
    WatchedChange { time: Timestamp(time), at, ..WatchedChange::default() }
}

fn moved(time: i64, kind: ChangeKind, moves: u64) -> WatchedChange {
    WatchedChange { kind, ino: Ino(9), number: moves, ..change(time, "") }
}

fn page(first: u64, changes: Vec<WatchedChange>) -> WatchPage {
    let next = point(first + changes.len() as u64);
    let changes = (first..).zip(changes).collect();
    WatchPage { next, changes, ..WatchPage::default() }
}

fn of_two() -> WatchMerge {
    let mut watch = WatchMerge::default();
    watch.join(Rank(0), &page(0, vec![]), true).unwrap();
    watch.join(Rank(1), &page(0, vec![]), true).unwrap();
    watch
}

fn names(watch: &mut WatchMerge) -> Vec<String> {
    let all = std::iter::from_fn(|| watch.next_change());
    all.map(|change| String::from_utf8(change.at.unwrap().path).unwrap()).collect()
}

#[test]
fn a_position_is_read_back_from_its_text() {
    for text in ["0.3.0", "0.3.12+1.18446744073709551615.7"] {
        assert_eq!(text.parse::<WatchPosition>().unwrap().to_string(), text);
    }
    for text in
        ["", "0", "0.1", "0.1.2.3", "+0.1.2", "0.1.2+", "1.1.1+0.1.1", "0.01.2", "65536.1.1"]
    {
        assert_eq!(text.parse::<WatchPosition>().unwrap_err().errno, Errno::Invalid, "{text}");
    }
}

#[test]
fn changes_of_ranks_come_by_time_and_each_has_the_position_behind_it() {
    let mut watch = of_two();
    assert_eq!(watch.begin_round(), [(Rank(0), point(0)), (Rank(1), point(0))]);
    watch.take(Rank(0), page(0, vec![change(1, "a"), change(3, "c")])).unwrap();
    watch.take(Rank(1), page(0, vec![change(2, "b")])).unwrap();
    let mut seen = Vec::new();
    while let Some(change) = watch.next_change() {
        seen.push((change.time.0, watch.position().to_string()));
    }
    let expected = [(1, "0.3.1+1.3.0"), (2, "0.3.1+1.3.1"), (3, "0.3.2+1.3.1")];
    assert_eq!(seen, expected.map(|(time, text)| (time, text.to_owned())));
}

#[test]
fn changes_before_a_move_come_before_changes_behind_it_whatever_the_clocks_say() {
    let mut watch = of_two();
    watch.begin_round();
    // The clock of rank 1 is late, and rank 0 is asked first: it has not given the subtree yet.
    watch.take(Rank(0), page(0, vec![])).unwrap();
    let arrival = moved(5, ChangeKind::Arrived, 1);
    watch.take(Rank(1), page(0, vec![arrival, change(6, "after")])).unwrap();
    assert_eq!(names(&mut watch), [""; 0]);
    assert_eq!(watch.hold(HOLD_ALONE), Span(0), "nothing is waited for");
    assert_eq!(watch.begin_round(), [(Rank(0), point(0))]);
    let departure = moved(101, ChangeKind::Departed, 1);
    let before = vec![change(100, "before"), departure, change(102, "else")];
    watch.take(Rank(0), page(0, before)).unwrap();
    assert_eq!(names(&mut watch), ["before", "after", "else"]);
}

#[test]
fn a_subtree_that_goes_and_comes_back_keeps_its_order() {
    let mut watch = of_two();
    watch.begin_round();
    let left = [change(9, "one"), moved(9, ChangeKind::Departed, 1)];
    let back = [moved(1, ChangeKind::Arrived, 2), change(1, "three")];
    watch.take(Rank(0), page(0, [left, back].concat())).unwrap();
    let came = [moved(2, ChangeKind::Arrived, 1), change(2, "two")];
    let went = [moved(2, ChangeKind::Departed, 2)];
    watch.take(Rank(1), page(0, [&came[..], &went[..]].concat())).unwrap();
    assert_eq!(names(&mut watch), ["one", "two", "three"]);
}

#[test]
fn an_arrival_without_a_departure_waits_for_one_round_of_the_other_ranks() {
    let mut watch = of_two();
    watch.begin_round();
    watch.take(Rank(0), page(0, vec![])).unwrap();
    let arrival = moved(5, ChangeKind::Arrived, 1);
    watch.take(Rank(1), page(0, vec![arrival, change(6, "after")])).unwrap();
    assert_eq!(names(&mut watch), [""; 0]);
    watch.begin_round();
    watch.take(Rank(0), page(0, vec![])).unwrap();
    assert_eq!(names(&mut watch), ["after"]);
}

#[test]
fn a_page_without_visible_changes_is_not_the_end() {
    let mut watch = of_two();
    watch.begin_round();
    watch.take(Rank(0), WatchPage { more: true, ..page(7, vec![]) }).unwrap();
    watch.take(Rank(1), page(0, vec![])).unwrap();
    assert_eq!(names(&mut watch), [""; 0]);
    assert!(watch.has_more() && watch.hold(HOLD_ALONE) == Span(0));
    assert_eq!(watch.begin_round(), [(Rank(0), point(7)), (Rank(1), point(0))]);
    watch.take(Rank(0), page(7, vec![])).unwrap();
    assert!(!watch.has_more());
}

#[test]
fn a_loss_names_the_rank() {
    let mut watch = of_two();
    watch.begin_round();
    let lost = WatchPage { lost: true, ..page(7, vec![]) };
    assert_eq!(watch.take(Rank(1), lost), Err(WatchLoss::Forgotten(Rank(1))));
    let serving = WatchPage { serves: true, ..page(0, vec![]) };
    assert_eq!(watch.join(Rank(2), &serving, false), Err(WatchLoss::Joined(Rank(2))));
    assert_eq!(watch.join(Rank(2), &serving, true), Ok(()));
}

#[test]
fn a_quiet_watch_of_several_ranks_asks_less_often() {
    let mut watch = of_two();
    let mut holds = Vec::new();
    for _ in 0..8 {
        watch.begin_round();
        holds.push(watch.hold(HOLD_ALONE));
        watch.take(Rank(0), page(0, vec![])).unwrap();
        watch.take(Rank(1), page(0, vec![])).unwrap();
    }
    assert!(holds.is_sorted() && holds[0] == HOLD_MIN && holds[7] == HOLD_MAX, "{holds:?}");
    watch.begin_round();
    watch.take(Rank(0), page(0, vec![change(1, "a")])).unwrap();
    watch.take(Rank(1), page(0, vec![])).unwrap();
    assert_eq!(names(&mut watch), ["a"]);
    watch.begin_round();
    assert_eq!(watch.hold(HOLD_ALONE), HOLD_MIN);
}
