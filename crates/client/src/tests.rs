//! The events that a decoupled client appends, and the changes that append none.

use namespace::{PlannedInode, Refusal};
use types::{Attr, AttrChange, ClientId, Cred, EntryName, Epoch, Errno, Ino, InoRange, Seq};

use crate::{ClientSubtree, Grant};

#[test]
fn a_checked_append_tests_existence_and_permission() {
    let attr =
        |ino, mode, uid, gid| Attr { ino: Ino(ino), mode, uid, gid, nlink: 2, ..Attr::default() };
    let grant = Grant {
        client: ClientId(1),
        root: attr(5, 0o042_775, 1, 7),
        range: InoRange { start: 100, end: 200 },
        epoch: Epoch(1),
        empty: true,
        check: true,
    };
    let mut subtree = ClientSubtree::new(grant, Seq(1));
    let [member, stranger] = [7, 8].map(|gid| Cred { uid: 2, gid: 9, groups: vec![gid] });
    let new = PlannedInode { mode: 0o040_755, ..PlannedInode::default() };
    let entry = EntryName::new(Ino(5), b"d");
    let mut create = |cred: &Cred, new| subtree.create_checked(cred, entry, new);
    assert_eq!(create(&stranger, &new), Err(Refusal::Errno(Errno::Access)));
    let of_root = PlannedInode { owner: Some((0, 0)), ..new };
    assert_eq!(create(&member, &of_root), Err(Refusal::Errno(Errno::NotPermitted)));
    assert_eq!(create(&member, &new), Ok(Ino(100)));
    assert_eq!(create(&member, &new), Err(Refusal::Errno(Errno::Exists)));
    assert_eq!((subtree.events(), subtree.inodes_left()), (1, 99));
    let made = subtree.view().namespace().getattr(Ino(100)).unwrap();
    assert_eq!((made.mode, made.uid, made.gid), (0o042_755, 2, 7), "as in a set-id directory");
}

#[test]
fn numbers_are_taken_in_the_order_of_their_ranges() {
    let root = Attr { ino: Ino(5), mode: 0o040_755, nlink: 2, ..Attr::default() };
    let range = |start, end| InoRange { start, end };
    let new = || {
        let (client, epoch, range) = (ClientId(1), Epoch(1), range(100, 103));
        let grant = Grant { client, root, range, epoch, empty: true, check: false };
        ClientSubtree::new(grant, Seq(1))
    };
    let file = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let mut subtree = new();
    // A returned range of another client may be smaller than its first grant.
    subtree.extend(range(50, 52));
    subtree.extend(range(200, 300));
    let mut take = |name: &[u8]| subtree.create(&Cred::root(), Ino(5), name, &file).unwrap().0;
    assert_eq!([b"a", b"b", b"c", b"d"].map(|name| take(name)), [100, 101, 102, 50]);
    assert_eq!(subtree.last_taken(), Ino(50));
    let mut journal = subtree.header().encode().to_vec();
    journal.extend(subtree.blocks().concat());
    assert_eq!(subtree.give_up(), [range(51, 52), range(200, 300)]);
    assert_eq!(subtree.inodes_left(), 0);
    // The next process finds the same ranges and the journal.
    let mut subtree = new();
    subtree.extend(range(50, 52));
    subtree.replay(&journal).unwrap();
    assert_eq!((subtree.last_taken(), subtree.inodes_left()), (Ino(50), 1));
    subtree.skip_used(Ino(99));
    assert_eq!(subtree.give_up(), [range(51, 52)], "what is of no range says nothing");
}

#[test]
fn the_journal_shows_whether_there_is_content_in_the_store() {
    let root = Attr { ino: Ino(5), mode: 0o040_755, nlink: 2, ..Attr::default() };
    let new = || {
        let range = InoRange { start: 100, end: 200 };
        let (client, epoch) = (ClientId(1), Epoch(1));
        ClientSubtree::new(Grant { client, root, range, epoch, empty: true, check: false }, Seq(1))
    };
    let (cred, time) = (Cred::root(), types::Timestamp::default());
    let file = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let sized = AttrChange { size: Some(9), ..AttrChange::default() };
    type Step = fn(&mut ClientSubtree, &PlannedInode<'_>, &AttrChange);
    let steps: [(&str, bool, Step); 6] = [
        ("an empty file", false, |_, _, _| ()),
        ("its content is in the event", false, |subtree, file, _| {
            let inline = PlannedInode { size: 2, data: b"ab", ..*file };
            subtree.create(&Cred::root(), Ino(5), b"inline", &inline).unwrap();
        }),
        ("it has a size", true, |subtree, file, _| {
            let large = PlannedInode { size: 1 << 20, ..*file };
            subtree.create(&Cred::root(), Ino(5), b"large", &large).unwrap();
        }),
        ("it gets a size blindly", true, |subtree, _, sized| {
            subtree.set_attr_blindly(Ino(100), Ino(5), sized, types::Timestamp::default());
        }),
        ("it gets a size", true, |subtree, _, sized| {
            subtree.setattr(&Cred::root(), Ino(100), sized, types::Timestamp::default()).unwrap();
        }),
        ("it gets content elsewhere", true, |subtree, _, _| {
            subtree.setdata(&Cred::root(), Ino(100), b"", 9, types::Timestamp::default()).unwrap();
        }),
    ];
    for (what, expected, step) in steps {
        let mut subtree = new();
        subtree.create(&cred, Ino(5), b"file", &file).unwrap();
        let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        subtree.setattr(&cred, Ino(100), &mode, time).unwrap();
        step(&mut subtree, &file, &sized);
        assert_eq!(subtree.has_content_elsewhere(), expected, "{what}");
        let mut journal = subtree.header().encode().to_vec();
        journal.extend(subtree.blocks().concat());
        let mut next = new();
        next.replay(&journal).unwrap();
        assert_eq!(next.has_content_elsewhere(), expected, "{what}, to the next process");
    }
}

#[test]
fn a_view_that_is_made_after_a_merge_has_the_merged_events_too() {
    let root = Attr { ino: Ino(5), mode: 0o040_755, nlink: 2, ..Attr::default() };
    let new = || {
        let range = InoRange { start: 100, end: 200 };
        let (client, epoch) = (ClientId(1), Epoch(1));
        ClientSubtree::new(Grant { client, root, range, epoch, empty: true, check: false }, Seq(1))
    };
    let file = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let create = |subtree: &mut ClientSubtree, name: &[u8]| {
        subtree.create(&Cred::root(), Ino(5), name, &file).unwrap();
    };
    let has = |subtree: &mut ClientSubtree, name: &[u8]| {
        subtree.view().namespace().peek(Ino(5), name).ok().flatten().is_some()
    };
    let mut subtree = new();
    create(&mut subtree, b"first");
    subtree.clear(true);
    create(&mut subtree, b"second");
    subtree.clear(true);
    create(&mut subtree, b"third");
    assert!(!subtree.has_view());
    for name in [&b"first"[..], b"second", b"third"] {
        assert!(has(&mut subtree, name), "{name:?}");
    }
    subtree.validate();
    assert!(subtree.view().namespace().is_complete(Ino(5)), "nothing else is there");
    // A job that has ended asks the server.
    let mut ended = new();
    create(&mut ended, b"first");
    ended.clear(true);
    create(&mut ended, b"second");
    ended.clear(false);
    assert!(!ended.view().namespace().is_complete(Ino(5)));
}
