use journal::{Event, Loss};
use types::{ClientId, Rank, Stripe};

use super::*;
use crate::Mds;
use crate::Settings;
use crate::checkpoint::CheckpointCx;

fn freed(ino: u64, is_dir: bool) -> FreedInode {
    let stripe = Stripe::DEFAULT;
    FreedInode { ino: Ino(ino), is_dir, size: 3 * stripe.bytes(), stripe, is_stored: true }
}

/// A server with a journal that is durable up to here.
fn server(safe: u64) -> Mds {
    let mut mds = Mds::new(Rank(0), Settings::default());
    mds.phase = Phase::Active;
    mds.purges.recovered = Recovered::done();
    mds.log.set_safe(Seq(safe));
    mds
}

/// The requests to the store, by which answers are told apart.
#[allow(clippy::wildcard_enum_match_arm, reason = "the tests look at these")]
fn asked(effects: &mut MdsEffects) -> Vec<String> {
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

fn removed(mds: &mut Mds, freed: FreedInode, seq: u64, journalled: bool) {
    mds.purges.add(freed, Seq(seq), journalled);
    mds.purges.queue(freed.ino);
}

#[test]
fn content_goes_when_the_journal_says_durably_that_its_file_was_removed() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    removed(&mut mds, freed(30, false), 7, true);
    removed(&mut mds, freed(31, false), 8, true);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3"]);
    mds.log.set_safe(Seq(8));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 31 in 3"]);
    CheckpointCx::of(&mut mds).purge_stored(
        Task::Delete(Ino(30)),
        Ok(StoreResult::Done),
        &mut effects,
    );
    CheckpointCx::of(&mut mds).purge_stored(
        Task::Delete(Ino(31)),
        Ok(StoreResult::Done),
        &mut effects,
    );
    assert_eq!((mds.purges.len(), mds.purges.deleting), (0, 0));
    // Nothing is left to be put on a list.
    assert!(!PurgeCx::of(&mut mds).list_removals(Seq(8), &mut effects));
    assert_eq!(asked(&mut effects), [""; 0]);
}

#[test]
fn a_directory_is_written_when_what_it_does_not_name_any_more_is_on_a_list() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    for (ino, seq) in [(30, 5), (31, 7), (32, 8)] {
        removed(&mut mds, freed(ino, false), seq, true);
    }
    assert!(
        !PurgeCx::of(&mut mds).list_removals(Seq(4), &mut effects),
        "nothing was removed up to there"
    );
    assert!(PurgeCx::of(&mut mds).list_removals(Seq(5), &mut effects));
    assert_eq!(asked(&mut effects), ["list of [30, 31]"], "and no more than the journal says");
    assert!(PurgeCx::of(&mut mds).list_removals(Seq(5), &mut effects), "it is not written yet");
    CheckpointCx::of(&mut mds).purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    assert!(!PurgeCx::of(&mut mds).list_removals(Seq(7), &mut effects));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "data of 31 in 3"]);
    CheckpointCx::of(&mut mds).purge_stored(
        Task::Delete(Ino(31)),
        Ok(StoreResult::Done),
        &mut effects,
    );
    assert_eq!(asked(&mut effects), [""; 0], "one that is on it is left");
    CheckpointCx::of(&mut mds).purge_stored(
        Task::Delete(Ino(30)),
        Ok(StoreResult::Done),
        &mut effects,
    );
    assert_eq!(asked(&mut effects), ["delete 1 lists"]);
}

#[test]
fn an_unjournalled_removal_is_purged_once_store_and_list_have_it() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
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
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0], "a directory has not been written since");
    mds.namespace.store().begin_capture(Ino(9)).unwrap();
    mds.namespace.store().end_capture(Ino(9));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["list of [31, 30]"]);
    CheckpointCx::of(&mut mds).purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "directory 31"]);
}

#[test]
fn a_removal_list_that_cannot_be_written_blocks_no_checkpoint() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    removed(&mut mds, freed(30, false), 7, true);
    assert!(PurgeCx::of(&mut mds).list_removals(Seq(7), &mut effects));
    let op = effects.store.pop().unwrap().1;
    let error = types::Error::of(types::Errno::NoSpace, "store");
    let failure = Box::new(StoreFailure { error, op });
    CheckpointCx::of(&mut mds).purge_stored(Task::List(0), Err(failure), &mut effects);
    assert!(!PurgeCx::of(&mut mds).list_removals(Seq(7), &mut effects));
    mds.clock.now = mds.clock.now + RETRY;
    assert!(!PurgeCx::of(&mut mds).list_removals(Seq(7), &mut effects), "it is tried again beside");
    assert_eq!(asked(&mut effects), ["list of [30]"]);
}

#[test]
fn listed_inodes_are_purged_after_clients_could_reclaim_them() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    mds.purges.recovered = Recovered::default();
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["something else"], "lists are looked for");
    let name = removals_name(Rank(0), types::Epoch(0), 3);
    let list = [removal_of(&freed(30, false)), removal_of(&freed(31, false))];
    mds.purges.take_list(name, &list, Seq(7));
    PurgeCx::of(&mut mds).read_next_removals(&mut effects);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
    mds.opens.enter(types::ClientId(5), Ino(31), true);
    mds.clock.now = mds.clock.now + mds.settings.reconnect;
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3"]);
    let freed = mds.opens.close(types::ClientId(5), Ino(31), true).unwrap();
    mds.purges.queue_closed(freed);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 31 in 3"]);
}

#[test]
fn a_server_that_stops_leaves_inodes_on_lists_to_the_next_one() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    mds.purges.recovered = Recovered::default();
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["something else"], "lists are looked for");
    // The replay found the first one, too, and of the third one only the replay knows.
    mds.purges.add(freed(30, false), Seq(7), true);
    mds.purges.add(freed(32, true), Seq(7), true);
    let list = [removal_of(&freed(30, false)), removal_of(&freed(31, false))];
    mds.purges.take_list(removals_name(Rank(0), types::Epoch(0), 3), &list, Seq(7));
    PurgeCx::of(&mut mds).read_next_removals(&mut effects);
    mds.phase = Phase::Stopping;
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["list of [32]"], "no client had the time to report files");
    assert!(!mds.purges.is_idle());
    CheckpointCx::of(&mut mds).purge_stored(Task::List(1), Ok(StoreResult::Done), &mut effects);
    assert!(mds.purges.is_idle());
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
}

/// A merge that will continue, or none.
fn unfinished(mds: &mut Mds, any: bool) {
    let (subtree, client) = (Ino(9), ClientId(5));
    let (begun, after) = (Seq(3), Moment(0));
    let merge = crate::merge::Unfinished { subtree, client, begun, after };
    mds.merges.leave(any.then(|| ("journal".to_owned(), merge)).into_iter().collect());
}

#[test]
fn content_that_a_merge_removed_goes_when_the_merge_ends() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    unfinished(&mut mds, true);
    mds.purges.merged.hold(freed(30, false), Seq(3), true);
    assert!(mds.purges.lacks_record(0));
    let loss = Loss::of_removed(Ino(30), Some((Stripe::DEFAULT.pool(), 3)));
    assert_eq!(mds.purges.name_removed(Seq(4)), [loss]);
    assert!(!mds.purges.lacks_record(0));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0], "the merge may give the inode a name");
    assert_eq!(
        PurgeCx::of(&mut mds).keep_for_purges(Seq(9), &mut effects),
        Seq(4),
        "a replay needs the record"
    );
    assert_eq!(asked(&mut effects), [""; 0]);
    unfinished(&mut mds, false);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3"]);
    assert_eq!(PurgeCx::of(&mut mds).keep_for_purges(Seq(3), &mut effects), Seq(4));
    assert_eq!(asked(&mut effects), [""; 0], "no segment with the record would go");
    assert_eq!(PurgeCx::of(&mut mds).keep_for_purges(Seq(9), &mut effects), Seq(4));
    assert_eq!(asked(&mut effects), ["list of [30]"]);
    assert_eq!(
        PurgeCx::of(&mut mds).keep_for_purges(Seq(9), &mut effects),
        Seq(4),
        "the list is not written yet"
    );
    CheckpointCx::of(&mut mds).purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    assert_eq!(PurgeCx::of(&mut mds).keep_for_purges(Seq(9), &mut effects), Seq(u64::MAX));
}

#[test]
fn one_record_names_so_many_removed_inodes_and_no_more() {
    let mut mds = server(7);
    for ino in 0..70_000 {
        mds.purges.merged.hold(freed(1000 + ino, false), Seq(3), true);
    }
    assert!(mds.purges.lacks_record(1));
    assert_eq!(mds.purges.name_removed(Seq(4)).len(), 65_536);
    assert!(mds.purges.lacks_record(0) && !mds.purges.lacks_record(1));
    assert_eq!(mds.purges.name_removed(Seq(5)).len(), 70_000 - 65_536);
    assert!(!mds.purges.lacks_record(0));
}

#[test]
fn content_that_a_merge_without_records_removed_waits_for_the_store() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    mds.purges.merged.hold(freed(30, false), Seq(7), false);
    assert!(!mds.purges.lacks_record(0));
    let event = Event::Unlink { parent: Ino(9), name: b"x", ino: Ino(0), time: Default::default() };
    mds.namespace.apply(Seq(6), namespace::Mode::Live, &event);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
    mds.namespace.store().begin_capture(Ino(9)).unwrap();
    mds.namespace.store().end_capture(Ino(9));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["list of [30]"]);
}

#[test]
fn an_inode_that_a_merge_gives_a_name_again_stays() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    unfinished(&mut mds, true);
    mds.opens.enter(ClientId(5), Ino(30), false);
    assert!(mds.opens.keep(freed(30, false)));
    mds.purges.merged.hold(freed(30, false), Seq(3), true);
    let (parent, mode) = (Ino(9), 0o100_644);
    let create = journal::Create { parent, name: b"x", ino: Ino(30), mode, ..Default::default() };
    let event = Event::Create(create);
    mds.purges.take_back_named(&mds.namespace, &mut mds.opens, &event);
    assert!(mds.purges.merged.holds(Ino(30)), "the merge rejected the event");
    mds.namespace.apply(Seq(4), namespace::Mode::Live, &event);
    mds.purges.take_back_named(&mds.namespace, &mut mds.opens, &event);
    assert_eq!(mds.purges.name_removed(Seq(4)), []);
    assert!(!mds.opens.is_nameless(Ino(30)));
    unfinished(&mut mds, false);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!((asked(&mut effects), mds.purges.len()), (vec![], 0));
}

#[test]
fn an_empty_file_that_was_open_when_a_merge_removed_it_is_purged() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    let empty = FreedInode { size: 0, is_stored: false, ..freed(30, false) };
    mds.purges.merged.hold(empty, Seq(3), true);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 0"]);
}

/// Replays a record that names three inodes. One of them gets a name afterwards.
fn replayed(mds: &mut Mds) {
    let mut losses = Vec::new();
    for freed in [freed(30, false), freed(31, false), freed(32, true)] {
        let content = (!freed.is_dir).then_some((freed.stripe.pool(), 3));
        Loss::of_removed(freed.ino, content).put(&mut losses);
    }
    let (subtree, client, object) = (Ino(9), ClientId(5), b"journal");
    let (first, events, last) = (0, 3, false);
    let record = Event::Merged { subtree, client, object, first, events, last, losses: &losses };
    mds.purges.replayed(Seq(5), &record);
    let attr = types::Attr { ino: Ino(31), ..Default::default() };
    let inode = journal::InodeSnapshot { attr, ..Default::default() };
    let (parent, name, home, time) = (Ino(9), b"x", Ino(9), Default::default());
    let link = Event::Link { parent, name, ino: Ino(31), home, inode, time };
    mds.purges.replayed(Seq(6), &link);
}

#[test]
fn a_replay_finds_what_the_records_of_a_merge_name() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    replayed(&mut mds);
    // The store has a directory that names none of them.
    PurgeCx::of(&mut mds).recover_removed(Vec::new(), Seq(7));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "list of [30, 32]"]);
    CheckpointCx::of(&mut mds).purge_stored(Task::List(0), Ok(StoreResult::Done), &mut effects);
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["directory 32"]);
}

#[test]
fn an_inode_that_a_replay_leaves_without_a_name_is_purged() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    for (parent, ino, mode) in [(9, 20, 0o040_755), (20, 30, 0o100_644)] {
        let (parent, ino) = (Ino(parent), Ino(ino));
        let create = journal::Create { parent, name: b"x", ino, mode, ..Default::default() };
        mds.namespace.apply(Seq(4), namespace::Mode::Live, &Event::Create(create));
    }
    // By the record a new directory replaced the one with the file, and has the file, too.
    mds.namespace.drop_loser(Ino(20));
    assert!(mds.namespace.knows(Ino(30)));
    replayed(&mut mds);
    PurgeCx::of(&mut mds).recover_removed(Vec::new(), Seq(7));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects)[0], "data of 30 in 3");
}

/// A replay of a directory 32 with a file 30, both of which the merge removed.
fn replayed_in_removed(mds: &mut Mds, has_name: bool) {
    let names = [(9, 32, 0o040_755), (32, 30, 0o100_644)];
    for (parent, ino, mode) in &names[usize::from(!has_name)..] {
        let (parent, ino, mode) = (Ino(*parent), Ino(*ino), *mode);
        let create = journal::Create { parent, name: b"x", ino, mode, ..Default::default() };
        mds.namespace.apply(Seq(4), namespace::Mode::Live, &Event::Create(create));
    }
    replayed(mds);
    assert!(mds.namespace.has_name(Ino(30)));
    PurgeCx::of(mds).recover_removed(Vec::new(), Seq(7));
}

#[test]
fn a_name_in_a_removed_directory_is_no_name_after_a_replay() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    // The directory that had the name of directory 32 is not in memory as it was then.
    replayed_in_removed(&mut mds, false);
    assert!(!mds.namespace.knows(Ino(30)), "nothing writes the directory again");
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), ["data of 30 in 3", "list of [30, 32]"]);
}

#[test]
fn a_removed_directory_that_got_a_name_again_keeps_its_files() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    replayed_in_removed(&mut mds, true);
    assert!(mds.namespace.has_name(Ino(30)) && mds.namespace.has_name(Ino(32)));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
}

#[test]
fn removals_of_an_interrupted_merge_wait_for_its_end() {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    replayed(&mut mds);
    let unlink = |ino| Event::Unlink { parent: Ino(9), name: b"y", ino, time: Default::default() };
    mds.purges.replayed(Seq(7), &unlink(Ino(33)));
    unfinished(&mut mds, true);
    PurgeCx::of(&mut mds).recover_removed(vec![freed(33, false), freed(34, false)], Seq(7));
    PurgeCx::of(&mut mds).step(&mut effects);
    assert_eq!(asked(&mut effects), [""; 0]);
    let loss = Loss::of_removed(Ino(33), Some((Stripe::DEFAULT.pool(), 3)));
    assert_eq!(mds.purges.name_removed(Seq(8)), [loss], "no record names it yet");
    unfinished(&mut mds, false);
    PurgeCx::of(&mut mds).step(&mut effects);
    let data = ["data of 30 in 3", "data of 33 in 3"];
    assert_eq!(asked(&mut effects), [data[0], data[1], "list of [30, 32, 33]"]);
}

/// The age in milliseconds at which a busy server gives back the room of removals of so many bytes.
fn given_back_after(bytes: u64) -> Option<u64> {
    let (mut mds, mut effects) = (server(7), MdsEffects::default());
    let small = FreedInode { size: bytes, is_stored: false, ..freed(30, false) };
    mds.clock.now = types::Moment(0);
    mds.purges.room.note(&small, true, mds.clock.now);
    (0..100).map(|step| step * 100).find(|&milliseconds| {
        mds.clock.now = types::Moment(milliseconds * 1_000_000);
        // Busy: there is an event before each tick.
        mds.log.append(mds.clock.now, types::Origin::default(), &Event::NOTHING);
        CheckpointCx::of(&mut mds).room_tick(&mut effects);
        mds.purges.room.is_idle()
    })
}

#[test]
fn a_busy_server_gives_back_much_room_at_once_and_less_room_after_seconds() {
    assert_eq!(given_back_after(4 << 20), Some(2000));
    assert_eq!(given_back_after(256 << 10), Some(4000));
    assert_eq!(given_back_after(100), None, "a few bytes wait for a quiet server");
}
