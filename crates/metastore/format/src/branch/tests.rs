use super::*;

fn branch() -> Branch {
    let layer = |owner, number, first, events| {
        Layer { owner, number, first: Seq(first), events, ..Layer::default() }.with_object(b"x")
    };
    Branch {
        id: 9,
        state: BranchState::Merging,
        snapshot: 77,
        root: Ino(300),
        time: Timestamp(1_000_000_007),
        changes: 3,
        from: "first".into(),
        inherited: 1,
        layers: vec![layer(8, 0, 1, 10), layer(9, 0, 11, 300), layer(9, 4, 311, 1)],
        ranges: vec![InoRange { start: 1 << 60, end: (1 << 60) + 5 }],
        merge: MergeBegun {
            client: ClientId(5),
            conflict: Conflict::Trunk,
            journal: "journal/client/1".into(),
        },
    }
}

#[test]
fn encoding_and_decoding_give_the_same_value() {
    let branch = branch();
    assert_eq!(Branch::decode("b", &branch.encode()), Ok(branch.clone()));
    assert_eq!((branch.next_seq(), branch.next_layer()), (Seq(312), 5));
    let none = Branch::default();
    assert_eq!(Branch::decode("b", &none.encode()), Ok(none));
}

#[test]
fn the_bytes_of_version_1() {
    let layer = Layer { owner: 2, number: 3, first: Seq(1), events: 5, ..Layer::default() };
    let layer = layer.with_object(b"layer");
    let one = Branch {
        id: 2,
        state: BranchState::Open,
        snapshot: 1,
        layers: vec![layer],
        ..Branch::default()
    };
    assert_eq!(
        types::hex::encode(&one.encode()),
        "4355444c4252414e01000200000000000000010100000000000000000000000001\
         02000000000000000301050592afeb6b00000000961d29a8"
    );
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    let bytes = branch().encode();
    for length in 0..bytes.len() {
        assert!(Branch::decode("b", &bytes[..length]).is_err(), "{length} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Branch::decode("b", &bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn layers_that_do_not_follow_on_each_other_are_refused() {
    let mut branch = branch();
    branch.layers.remove(1);
    assert!(Branch::decode("b", &branch.encode()).is_err());
    branch.layers.remove(0);
    assert!(Branch::decode("b", &branch.encode()).is_err());
}

#[test]
fn names_of_layers_parse_to_what_they_were_made_of() {
    let layer = branch().layers[2];
    assert_eq!(parse_layer(&layer.name()), Some((9, 4)));
    assert_eq!(parse_layer(&layer.name()[1..]), None);
    assert_eq!(parse_layer(&format!("{LAYER_PREFIX}9.4")), None);
}

#[test]
fn names_of_branches_are_plain() {
    for good in ["a", "job-17", "nightly_2.1"] {
        assert!(is_branch_name(good), "{good}");
    }
    for bad in ["", ".a", "-a", "a/b", "a b", "ä", &"x".repeat(101)] {
        assert!(!is_branch_name(bad), "{bad}");
    }
}
