use types::Rank;
use wire::Warning;

use super::{HealthCx, Room};
use crate::tests::fixture::Tree;
use crate::{Mds, Phase, Settings};

fn active() -> Mds {
    let mut mds = Mds::new(Rank(0), Settings::default());
    mds.phase = Phase::Active;
    mds
}

fn codes(mds: &Mds) -> Vec<String> {
    HealthCx::of(mds).warnings().into_iter().map(|Warning { code, .. }| code).collect()
}

const WHOLE: Room =
    Room { total: 1 << 30, available: 1 << 29, wanted: 1 << 20, held: 1 << 20, read_only: false };

#[test]
fn a_store_without_its_reserve_or_without_room_is_full() {
    let mut mds = active();
    for full in [Room { held: WHOLE.held - 1, ..WHOLE }, Room { available: 0, ..WHOLE }] {
        mds.health.note_room(full);
        assert_eq!(codes(&mds), ["STORE_FULL"]);
    }
}

#[test]
fn warnings_about_the_store_end_with_their_cause() {
    let mut mds = active();
    assert_eq!(codes(&mds), [""; 0]);
    mds.health.note_room(Room { available: 100 << 20, ..WHOLE });
    assert_eq!(codes(&mds), ["STORE_NEAR_FULL"]);
    mds.health.note_room(Room { read_only: true, ..WHOLE });
    assert_eq!(codes(&mds), ["STORE_READ_ONLY"]);
    mds.health.note_room(WHOLE);
    assert_eq!(codes(&mds), [""; 0]);
}

#[test]
fn a_journal_of_more_than_twice_its_segments_is_long() {
    let mut tree = Tree::new();
    let mds = tree.mds_mut();
    assert_eq!((codes(mds), mds.log.segment_count()), (Vec::new(), 1));
    mds.settings.segments_max = 0;
    assert_eq!(codes(mds), ["JOURNAL_LONG"]);
}
