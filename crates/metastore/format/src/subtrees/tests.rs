use types::hex;

use super::*;
use crate::frame::CRC_BYTES;
use crc32c::crc32c;

fn subtrees() -> Subtrees {
    let mut subtrees = Subtrees::default();
    for (root, rank) in [(1 << 40, 1), (7, 2), (1 << 41, 0)] {
        subtrees.put(MovedSubtree {
            root: Ino(root),
            rank: Rank(rank),
            moves: root,
            path: format!("/{root}").into_bytes(),
            policy: "consistency: rpcs\n".into(),
            inode: vec![3; 40],
            pinned: rank == 2,
            follows: rank == 0,
            joined: rank == 1,
            part: None,
            outer: Ino(root >> 1),
            decoupled: vec![4; 30],
            moved: Timestamp(root.cast_signed()),
        });
    }
    for at in 0..8 {
        let frag = Frag { bits: 3, value: at << 29 };
        let state = [PartState::Stable, PartState::Splitting, PartState::Joining][at as usize % 3];
        let part = FragmentOf { dir: Ino(7), frag, state, access: (0o040_755, 1000, 100) };
        let root = Ino(500 - u64::from(at));
        subtrees.put(MovedSubtree { root, part: Some(part), ..MovedSubtree::default() });
    }
    subtrees.raise_fence(Rank(2));
    subtrees.put_name(name(Rank(1), 300));
    subtrees.put_name(name(Rank(0), 301));
    subtrees
}

fn name(from: Rank, number: u64) -> MovedName {
    let (name, inode) = (b"a".to_vec(), vec![5; 40]);
    MovedName { from, number, to: Rank(2), name, inode, ..MovedName::default() }
}

#[test]
fn encoding_and_decoding_give_the_same_value() {
    let subtrees = subtrees();
    assert_eq!(Subtrees::decode(&subtrees.encode()), Ok(subtrees));
    let none = Subtrees::default();
    assert_eq!(Subtrees::decode(&none.encode()), Ok(none));
}

fn one(pinned: bool) -> Subtrees {
    let mut one = Subtrees::default();
    one.put(MovedSubtree {
        root: Ino(300),
        rank: Rank(1),
        moves: 2,
        pinned,
        path: b"/a".to_vec(),
        ..MovedSubtree::default()
    });
    one
}

fn with_fragment() -> Subtrees {
    let frag = Frag { bits: 3, value: 5 << 29 };
    let part =
        FragmentOf { dir: Ino(8), frag, state: PartState::Joining, access: (0o040_755, 1, 2) };
    let mut with = one(true);
    with.put(MovedSubtree { root: Ino(9), part: Some(part), ..MovedSubtree::default() });
    with
}

#[test]
fn the_bytes_of_version_8() {
    assert_eq!(
        hex::encode(&one(false).encode()),
        "4355444c53554254080001ac02010200022f610000000000000085376c0b"
    );
    let mut moving = one(false);
    moving.raise_fence(Rank(2));
    moving.put_name(MovedName { inode: vec![5], ..name(Rank(1), 300) });
    assert_eq!(
        hex::encode(&moving.encode()),
        "4355444c53554254080001ac02010200022f6100000000000102010101ac020200000001610000000105000007253771"
    );
}

#[test]
fn version_7_is_read() {
    let hex = "4355444c53554254070001ac02010200022f610000000000f76184a8";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let hex = "4355444c53554254070001ac02010204022f610000000000c4a34b76";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(follows()));
}

#[test]
fn a_record_goes_when_both_ranks_have_marked_it() {
    let mut subtrees = subtrees();
    let key = (Rank(1), 300);
    subtrees.mark_name(key, Rank(7));
    assert_eq!(subtrees.name(key), Some(&name(Rank(1), 300)), "the mark of another rank");
    subtrees.mark_name(key, Rank(2));
    assert!(subtrees.name(key).is_some_and(|it| it.is_taken && !it.is_given));
    subtrees.mark_name(key, Rank(1));
    assert_eq!((subtrees.name(key), subtrees.names().count()), (None, 1));
}

#[test]
fn a_fence_is_0_until_it_is_raised() {
    let mut subtrees = subtrees();
    assert_eq!([0, 2].map(|rank| subtrees.fence(Rank(rank))), [0, 1]);
    subtrees.raise_fence(Rank(2));
    assert_eq!(subtrees.fence(Rank(2)), 2);
}

#[test]
fn records_out_of_order_are_refused() {
    let bytes = subtrees().encode();
    let first = name(Rank(0), 301).encode();
    let second = name(Rank(1), 300).encode();
    let at = bytes.len() - CRC_BYTES - first.len() - second.len();
    let mut body = [&bytes[..at], &second[..], &first[..]].concat();
    body.extend(crc32c(&body).to_le_bytes());
    let text = Subtrees::decode(&body).unwrap_err().to_string();
    assert!(text.contains("in order"), "{text}");
}

#[test]
fn version_6_is_read() {
    let hex = "4355444c53554254060001ac02010200022f610000000088ef5cda";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let hex = "4355444c53554254060001ac02010204022f6100000000e56d41fb";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(follows()));
}

#[test]
fn version_5_is_read() {
    let hex = "4355444c53554254050001ac02010200022f61000000008be8cf72";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let hex = "4355444c53554254050001ac02010204022f6100000000e66ad253";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(follows()));
}

fn follows() -> Subtrees {
    let mut follows = one(false);
    let subtree = follows.get(Ino(300)).unwrap().clone();
    follows.put(MovedSubtree { follows: true, ..subtree });
    follows
}

#[test]
fn version_4_is_read_and_nothing_follows_its_name() {
    let hex = "4355444c53554254040001ac02010200022f61000000008a154115";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let mut follows = hex::decode(hex).unwrap();
    let end = follows.len() - CRC_BYTES;
    follows[15] |= FOLLOWS;
    let crc = crc32c(&follows[..end]);
    follows[end..].copy_from_slice(&crc.to_le_bytes());
    assert!(Subtrees::decode(&follows).is_err());
    let version_4 = "4355444c5355425404000209000002000000030803000000a0ed830101020000ac02010201022f610000000097885e81";
    assert_eq!(Subtrees::decode(&hex::decode(version_4).unwrap()), Ok(with_fragment()));
}

#[test]
fn version_3_is_read_without_what_came_back_to_rank_0() {
    let hex =
        "4355444c5355425403000209000002000000030803000000a0ed83010102ac02010201022f610000a3d2085f";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(with_fragment()));
    let hex = "4355444c53554254030001ac02010200022f610000425fb3f7";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let mut came_back = hex::decode(hex).unwrap();
    let end = came_back.len() - CRC_BYTES;
    came_back[13] = 0;
    let crc = crc32c(&came_back[..end]);
    came_back[end..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Subtrees::decode(&came_back), Ok(Subtrees::default()));
}

#[test]
fn version_2_is_read_and_has_no_fragments() {
    let hex = "4355444c53554254020001ac02010200022f610000276761c7";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(false)));
    let mut fragment = hex::decode(hex).unwrap();
    let end = fragment.len() - CRC_BYTES;
    fragment[15] |= FRAGMENT;
    let crc = crc32c(&fragment[..end]);
    fragment[end..].copy_from_slice(&crc.to_le_bytes());
    assert!(Subtrees::decode(&fragment).is_err());
}

#[test]
fn version_1_is_read_and_everything_in_it_is_pinned() {
    let hex = "4355444c53554254010001ac020102022f610000139b40b4";
    assert_eq!(Subtrees::decode(&hex::decode(hex).unwrap()), Ok(one(true)));
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    let bytes = subtrees().encode();
    for length in 0..bytes.len() {
        assert!(Subtrees::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Subtrees::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn a_subtree_is_known_once() {
    let mut subtrees = subtrees();
    subtrees.put(MovedSubtree { root: Ino(7), rank: Rank(5), ..MovedSubtree::default() });
    assert_eq!((subtrees.len(), subtrees.get(Ino(7)).map(|it| it.rank)), (11, Some(Rank(5))));
    assert_eq!(subtrees.get(Ino(8)), None);
}

#[test]
fn the_fragments_of_a_directory_are_in_the_order_of_their_hashes() {
    let mut subtrees = subtrees();
    let roots = |subtrees: &Subtrees| -> Vec<u64> {
        subtrees.parts_of(Ino(7)).into_iter().map(|(root, _)| root.0).collect()
    };
    assert_eq!(roots(&subtrees), [500, 499, 498, 497, 496, 495, 494, 493]);
    assert!(subtrees.parts_of(Ino(300)).is_empty());
    subtrees.remove(Ino(500));
    assert_eq!((subtrees.len(), roots(&subtrees).len()), (10, 7));
}

#[test]
fn a_list_has_room_for_few_names_with_much_content() {
    let mut subtrees = Subtrees::default();
    let large = |number| MovedName { inode: vec![0; 1 << 20], ..name(Rank(0), number) };
    for number in 0..4 {
        assert!(subtrees.has_room(&large(number)), "{number}");
        subtrees.put_name(large(number));
    }
    assert!(!subtrees.has_room(&name(Rank(0), 4)));
}
