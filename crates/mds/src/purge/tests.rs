use types::{Rank, Stripe};

use super::*;
use crate::Settings;

fn freed(ino: u64, is_dir: bool) -> Freed {
    let stripe = Stripe::DEFAULT;
    Freed { ino: Ino(ino), is_dir, size: 3 * stripe.bytes(), stripe, is_stored: true }
}

/// A server with a journal that is durable up to here.
fn server(safe: u64) -> Mds {
    let mut mds = Mds::new(Rank(0), Settings::default());
    mds.phase = Phase::Active;
    mds.purges.recovered = Recovered::done();
    mds.log.set_safe(Seq(safe));
    mds
}

/// What the store is asked for, by which answers are told apart.
#[allow(clippy::wildcard_enum_match_arm, reason = "the tests look at these")]
fn asked(effects: &mut Effects) -> Vec<String> {
    let what = |op: &StoreOp| match op {
        StoreOp::PurgeData { ino, stripes, .. } => format!("data of {} in {stripes}", ino.0),
        StoreOp::PurgeDir { ino } => format!("directory {}", ino.0),
        StoreOp::Put { object, data, .. } => {
            let list = Removal::decode_list(object, data).unwrap();
            let inos: Vec<u64> = list.iter().map(|removal| removal.ino().0).collect();
            format!("list of {inos:?}")
        }
        StoreOp::Delete { objects } => format!("delete {} lists", objects.len()),
        _ => "something else".to_owned(),
    };
    std::mem::take(&mut effects.store).iter().map(|(_, op)| what(op)).collect()
}

fn removed(mds: &mut Mds, freed: Freed, seq: u64, journalled: bool) {
    mds.purges.add(freed, Seq(seq), journalled);
    mds.purges.queue(freed.ino);
}

#[test]
fn content_goes_when_the_journal_says_durably_that_its_file_was_removed() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    removed(&mut mds, freed(30, false), 7, true);
    removed(&mut mds, freed(31, false), 8, true);
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3"]);
    mds.log.set_safe(Seq(8));
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 31 in 3"]);
    mds.purge_stored(Task::Delete(Ino(30)), Ok(StoreResult::Done), &mut effects);
    mds.purge_stored(Task::Delete(Ino(31)), Ok(StoreResult::Done), &mut effects);
    assert_eq!((mds.purges.len(), mds.purges.deleting), (0, 0));
    // Nothing is left to be put on a list.
    assert!(!mds.list_removals(Seq(8), &mut effects));
    assert_eq!(asked(&mut effects), [""; 0]);
}

#[test]
fn a_directory_is_written_when_what_it_does_not_name_any_more_is_on_a_list() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    for (ino, seq) in [(30, 5), (31, 7), (32, 8)] {
        removed(&mut mds, freed(ino, false), seq, true);
    }
    assert!(!mds.list_removals(Seq(4), &mut effects), "nothing was removed up to there");
    assert!(mds.list_removals(Seq(5), &mut effects));
    assert_eq!(asked(&mut effects), ["list of [30, 31]"], "and no more than the journal says");
    assert!(mds.list_removals(Seq(5), &mut effects), "it is not written yet");
    mds.purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    assert!(!mds.list_removals(Seq(7), &mut effects));
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "data of 31 in 3"]);
    mds.purge_stored(Task::Delete(Ino(31)), Ok(StoreResult::Done), &mut effects);
    assert_eq!(asked(&mut effects), [""; 0], "one that is on it is left");
    mds.purge_stored(Task::Delete(Ino(30)), Ok(StoreResult::Done), &mut effects);
    assert_eq!(asked(&mut effects), ["delete 1 lists"]);
}

#[test]
fn what_the_journal_does_not_say_goes_when_the_store_shows_it_and_a_list_says_so() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    removed(&mut mds, freed(30, false), 7, false);
    removed(&mut mds, freed(31, true), 7, true);
    mds.namespace.apply(
        Seq(6),
        namespace::Mode::Live,
        &journal::Event::Unlink {
            parent: Ino(9),
            name: b"x",
            ino: Ino(0),
            time: Default::default(),
        },
    );
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0], "a directory has not been written since");
    mds.namespace.begin_capture(Ino(9)).unwrap();
    mds.namespace.end_capture(Ino(9));
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["list of [31, 30]"]);
    mds.purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "directory 31"]);
}

#[test]
fn a_list_that_cannot_be_written_holds_nothing_up() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    removed(&mut mds, freed(30, false), 7, true);
    assert!(mds.list_removals(Seq(7), &mut effects));
    let op = effects.store.pop().unwrap().1;
    let error = types::Error::of(types::Errno::NoSpace, "store");
    let failure = Box::new(StoreFailure { error, op });
    mds.purge_stored(Task::List(0), Err(failure), &mut effects);
    assert!(!mds.list_removals(Seq(7), &mut effects));
    mds.clock.now = mds.clock.now + RETRY;
    assert!(!mds.list_removals(Seq(7), &mut effects), "it is tried again beside");
    assert_eq!(asked(&mut effects), ["list of [30]"]);
}

#[test]
fn what_was_on_a_list_goes_when_clients_had_their_time_to_say_that_they_have_it_open() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    mds.purges.recovered = Recovered::default();
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["something else"], "lists are looked for");
    let name = removals_name(Rank(0), types::Epoch(0), 3);
    let list = [removal_of(&freed(30, false)), removal_of(&freed(31, false))];
    mds.purges.take_list(name, &list, Seq(7));
    mds.read_next_removals(&mut effects);
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
    mds.opens.enter(types::ClientId(5), Ino(31), true);
    mds.clock.now = mds.clock.now + mds.settings.reconnect;
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3"]);
    let freed = mds.opens.close(types::ClientId(5), Ino(31), true).unwrap();
    mds.purge_closed(freed);
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 31 in 3"]);
}

#[test]
fn a_server_that_stops_leaves_inodes_on_lists_to_the_next_one() {
    let (mut mds, mut effects) = (server(7), Effects::default());
    mds.purges.recovered = Recovered::default();
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["something else"], "lists are looked for");
    // The replay found the first one, too, and of the third one only the replay knows.
    mds.purges.add(freed(30, false), Seq(7), true);
    mds.purges.add(freed(32, true), Seq(7), true);
    let list = [removal_of(&freed(30, false)), removal_of(&freed(31, false))];
    mds.purges.take_list(removals_name(Rank(0), types::Epoch(0), 3), &list, Seq(7));
    mds.read_next_removals(&mut effects);
    mds.phase = Phase::Stopping;
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), ["list of [32]"], "no client had the time to report files");
    assert!(!mds.purges.is_idle());
    mds.purge_stored(Task::List(1), Ok(StoreResult::Done), &mut effects);
    assert!(mds.purges.is_idle());
    mds.purge_step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
}
