use super::*;

const DIR: Ino = Ino(7);
const OTHER: Ino = Ino(8);

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

#[test]
fn a_directory_is_returned_when_the_kernel_does_not_use_it_any_more() {
    let mut lent = Lent::default();
    assert_eq!(lent.lend(DIR, at(1000)), LEND);
    assert_eq!(lent.lend(DIR, at(1040)), LEND);
    assert_eq!(lent.give_back(DIR, true), Returned::Later);
    assert_eq!(lent.give_back(DIR, true), Returned::Already);
    assert_eq!((lent.due(), lent.over()), (Some(at(1340)), at(1340)));
    assert_eq!(lent.lend(DIR, at(1050)), Span(0), "it is on its way back");
    assert!(lent.lapsed(at(1339)).is_empty());
    assert_eq!(lent.lapsed(at(1340)), [DIR]);
    assert_eq!((lent.due(), lent.lapsed(at(1400))), (None, Vec::new()));
    lent.validate();
}

#[test]
fn a_directory_that_the_kernel_was_not_told_about_is_returned_at_once() {
    let mut lent = Lent::default();
    lent.lend(OTHER, at(1000));
    assert_eq!(lent.give_back(DIR, true), Returned::AtOnce);
    assert_eq!(lent.due(), None);
    assert_eq!(lent.lend(OTHER, at(1001)), LEND, "no client waited");
    lent.validate();
}

#[test]
fn waits_for_the_kernel_are_a_small_share_of_the_time() {
    let mut lent = Lent::default();
    let mut waited = 0;
    for millis in 0..60_000 {
        // Another client wants each directory in the moment in which it is lent.
        let dir = Ino(100 + millis);
        if lent.lend(dir, at(millis)) != Span(0) {
            assert_eq!(lent.give_back(dir, true), Returned::Later);
            waited += LAPSE.0;
        }
        let _ = lent.lapsed(at(millis));
        lent.validate();
    }
    assert!(waited > 0 && waited <= 60_000_000_000 / PAUSES_PER_WAIT, "{waited} ns");
}

#[test]
fn a_contested_directory_is_not_lent_for_a_while() {
    let mut lent = Lent::default();
    lent.give_back(DIR, true);
    assert_eq!(lent.lend(DIR, at(9_999)), Span(0));
    assert_eq!(lent.lend(DIR, at(10_000)), LEND);
    assert_eq!(lent.give_back(DIR, false), Returned::Later);
    assert_eq!(lent.lapsed(at(10_300)), [DIR]);
    assert_eq!(lent.lend(DIR, at(10_301)), LEND, "this client gave it back for itself");
}

#[test]
fn a_lost_connection_ends_all_waits() {
    let mut lent = Lent::default();
    lent.lend(DIR, at(1000));
    lent.lend(OTHER, at(1100));
    lent.give_back(DIR, true);
    assert_eq!(lent.disconnected(), [DIR]);
    assert_eq!((lent.due(), lent.over()), (None, at(1400)));
    assert_eq!(lent.give_back(OTHER, true), Returned::AtOnce, "the wait comes before the greeting");
    lent.validate();
}

#[test]
fn many_directories_are_lent_and_taken_back_in_linear_time() {
    const DIRS: u64 = 200_000;
    let mut lent = Lent::default();
    for number in 0..DIRS {
        assert_eq!(lent.lend(Ino(number), at(1000 + number / 1000)), LEND);
    }
    lent.validate();
    for number in 0..DIRS {
        // Those of the beginning have lapsed, and some of these are forgotten.
        assert_ne!(lent.give_back(Ino(number), true), Returned::Already);
    }
    lent.validate();
    assert_eq!(lent.lend(OTHER, at(9_000)), Span(0), "so many were contested");
    assert_eq!(lent.lapsed(at(2_000)).len() as u64, DIRS);
    assert_eq!(lent.lend(OTHER, at(20_000)), LEND);
}
