use types::{AttrChange, Errno, Ino, Rank};
use wire::{Op, Warning};

use super::Room;
use crate::op::Refused;
use crate::{Mds, Phase, Settings};

fn active() -> Mds {
    let mut mds = Mds::new(Rank(0), Settings::default());
    mds.phase = Phase::Active;
    mds
}

fn codes(mds: &Mds) -> Vec<String> {
    mds.warnings().into_iter().map(|Warning { code, .. }| code).collect()
}

const WHOLE: Room =
    Room { total: 1 << 30, available: 1 << 29, wanted: 1 << 20, held: 1 << 20, read_only: false };

#[test]
fn a_full_store_takes_what_makes_room_and_nothing_else() {
    let mut mds = active();
    let (dir, name) = (Ino(1), &b"name"[..]);
    let adding = [
        Op::SetData { ino: dir, data: b"x", size: 1 },
        Op::Link { ino: dir, parent: dir, name },
        Op::Append { ino: dir, length: 1 },
    ];
    let others = [
        Op::Unlink { parent: dir, name },
        Op::Rmdir { parent: dir, name },
        Op::SetAttr { ino: dir, change: AttrChange { size: Some(0), ..AttrChange::default() } },
        Op::SetData { ino: dir, data: b"", size: 0 },
        Op::Sync,
        Op::GetAttr { ino: dir },
    ];
    mds.note_room(WHOLE);
    assert!(adding.iter().chain(&others).all(|op| mds.check_store(op).is_ok()));
    for full in [Room { held: WHOLE.held - 1, ..WHOLE }, Room { available: 0, ..WHOLE }] {
        mds.note_room(full);
        for op in &adding {
            let Err(Refused::Failure(failure)) = mds.check_store(op) else { panic!("{op:?}") };
            assert_eq!(failure.errno, Errno::NoSpace);
        }
        assert!(others.iter().all(|op| mds.check_store(op).is_ok()));
        assert_eq!(codes(&mds), ["STORE_FULL"]);
    }
}

#[test]
fn what_is_known_of_the_store_is_reported_as_long_as_it_is_so() {
    let mut mds = active();
    assert_eq!(codes(&mds), [""; 0]);
    mds.note_room(Room { available: 100 << 20, ..WHOLE });
    assert_eq!(codes(&mds), ["STORE_NEAR_FULL"]);
    mds.note_room(Room { read_only: true, ..WHOLE });
    assert_eq!(codes(&mds), ["STORE_READ_ONLY"]);
    mds.note_room(WHOLE);
    assert_eq!(codes(&mds), [""; 0]);
}
