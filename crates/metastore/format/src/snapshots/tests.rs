use types::Frag;

use super::*;

fn snapshots() -> Snapshots {
    let mut snapshots = Snapshots::default();
    for (id, path) in [(77, "/a"), (78, "/"), (u64::MAX, "/a/b")] {
        let root = Attr { ino: Ino(id >> 1), mode: 0o40755, uid: 7, ..Attr::default() };
        let snapshot = Snapshot {
            id,
            time: Timestamp(-3),
            path: path.as_bytes().to_vec(),
            policy: "consistency: rpcs\n".into(),
            root,
            number: 0,
        };
        assert!(snapshots.take(snapshot).is_some());
    }
    snapshots.grant(1000).unwrap();
    snapshots.retain(|snapshot| snapshot.number != 2);
    snapshots
}

#[test]
fn encoding_and_decoding_give_the_same_value() {
    let snapshots = snapshots();
    assert_eq!(Snapshots::decode(&snapshots.encode()), Ok(snapshots));
    let none = Snapshots::default();
    assert_eq!(Snapshots::decode(&none.encode()), Ok(none));
}

#[test]
fn the_bytes_of_version_1() {
    let mut one = Snapshots::default();
    let root = Attr { ino: Ino(300), mode: 0o40755, nlink: 2, ..Attr::default() };
    one.take(Snapshot { id: 5, path: b"/a".to_vec(), root, ..Snapshot::default() });
    assert_eq!(
        types::hex::encode(&one.encode()),
        "4355444c534e4150010001008080808080808080100101050000000000000000022f\
         6100ac02ed830100000200000000003f982e54"
    );
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    let bytes = snapshots().encode();
    for length in 0..bytes.len() {
        assert!(Snapshots::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Snapshots::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn a_number_is_never_taken_twice_and_numbers_of_inodes_never_given_twice() {
    let mut snapshots = snapshots();
    snapshots.retain(|_| false);
    assert_eq!((snapshots.keep_as(), snapshots.taken), (None, 3));
    assert_eq!(snapshots.take(Snapshot::default()), Some(4));
    let (first, second) = (snapshots.grant(10).unwrap(), snapshots.grant(5).unwrap());
    assert_eq!((first.start, first.end), (NUMBERS.start + 1000, second.start));
    assert_eq!(snapshots.grant(u64::MAX), None);
    assert!(is_of_branch(Ino(first.start)) && !is_of_branch(Ino::mount_stub(Ino(first.start))));
    assert!(!is_of_branch(Ino(Ino::space_of(types::Rank(u16::MAX)).end - 1)));
}

#[test]
fn a_retained_manifest_serves_the_snapshots_since_the_previous_one() {
    let mut snapshots = snapshots();
    assert_eq!(snapshots.keep_as(), Some(3));
    assert!(
        snapshots.needs(None, 1) && snapshots.needs(Some(1), 3) && !snapshots.needs(Some(1), 2)
    );
    snapshots.retain(|snapshot| snapshot.number == 1);
    assert!(snapshots.needs(None, 3) && !snapshots.needs(Some(1), 3));
    // The newest was dropped: later kept manifests must not hide those that were kept for the
    // first.
    assert_eq!(snapshots.keep_as(), Some(3));
}

#[test]
fn names_parse_to_what_they_were_made_of() {
    let dirfrag = DirFragId { ino: Ino(0xabc), frag: Frag::WHOLE };
    let name = retained_name(dirfrag, 17);
    assert!(name.starts_with(&retained_prefix(dirfrag)));
    let (dir, number) = parse_retained(&name).unwrap();
    assert_eq!((format!("{dir}/"), number), (prefix(dirfrag), 17));
    assert_eq!(parse_retained(&crate::manifest_name(dirfrag)), None);
    let purge = Purge { number: 3, ino: Ino(0x1234), pool: Pool(2), stripes: 70_000 };
    assert_eq!(Purge::parse(&purge.name()), Some(purge));
    assert_eq!(Purge::parse(&purge.name()[1..]), None);
    assert_eq!(Purge::parse(&format!("{}0", purge.name())), None);
}
