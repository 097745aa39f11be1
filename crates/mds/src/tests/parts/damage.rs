use types::{Errno, Error, Ino, Seq};

use crate::damage::{Damage, is_damage};

const DIR: Ino = Ino(7);

fn damaged() -> Error {
    Error::of(Errno::BadMessage, "object")
}

#[test]
fn a_wrong_object_is_damage_and_a_missing_answer_is_not() {
    assert!(is_damage(Errno::BadMessage) && !is_damage(Errno::Io) && !is_damage(Errno::NoSpace));
}

#[test]
fn a_damaged_directory_is_not_withheld_before_the_journal_has_changes_of_it() {
    let mut damage = Damage::default();
    damage.note(DIR, &damaged());
    assert!(damage.withheld(DIR).is_none() && !damage.keeps_journal());
    assert_eq!(damage.journal_retained_from(), Seq(u64::MAX));
}

#[test]
fn a_directory_that_is_read_again_is_not_damaged() {
    let mut damage = Damage::default();
    damage.note(DIR, &damaged());
    damage.is_read(DIR);
    damage.is_read(Ino(8));
    damage.validate();
    assert_eq!(damage.all_withheld().count(), 0);
}

#[test]
fn the_number_of_known_damaged_directories_is_bounded() {
    let mut damage = Damage::default();
    for ino in 0..2000 {
        damage.note(Ino(100 + ino), &damaged());
    }
    damage.validate();
}
