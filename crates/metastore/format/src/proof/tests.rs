use super::*;

fn key(byte: u8) -> ProofKey {
    ProofKey::new([byte; 32])
}

#[test]
fn a_proof_is_of_one_statement_and_one_key() {
    let root = Attr { ino: Ino(7), mode: 0o040_755, uid: 1, gid: 2, ..Attr::default() };
    let cred = Cred { uid: 1, gid: 2, groups: vec![4, 3] };
    let all = ProofStatement {
        root: &root,
        client: ClientId(5),
        epoch: Epoch(6),
        cred: &cred,
        list: b"list",
        rest: b"rest",
    };
    let proof = all.prove(&key(1));
    assert!(all.is_proved_by(&proof, &key(1)));
    assert!(!all.is_proved_by(&proof, &key(2)));
    let other = |statement: ProofStatement<'_>| !statement.is_proved_by(&proof, &key(1));
    for changed in [
        Attr { ino: Ino(8), ..root },
        Attr { mode: 0o040_777, ..root },
        Attr { uid: 0, ..root },
        Attr { gid: 0, ..root },
    ] {
        assert!(other(ProofStatement { root: &changed, ..all }));
    }
    for changed in [
        Cred { uid: 0, ..cred.clone() },
        Cred { gid: 0, ..cred.clone() },
        Cred { groups: vec![3], ..cred.clone() },
        Cred { groups: vec![3, 4, 5], ..cred.clone() },
    ] {
        assert!(other(ProofStatement { cred: &changed, ..all }));
    }
    assert!(other(ProofStatement { client: ClientId(6), ..all }));
    assert!(other(ProofStatement { epoch: Epoch(5), ..all }));
    assert!(other(ProofStatement { list: b"lisT", ..all }));
    assert!(other(ProofStatement { rest: b"resT", ..all }));
    // Not the same bytes with another division.
    assert!(other(ProofStatement { list: b"listr", rest: b"est", ..all }));
    for byte in 0..proof.len() {
        let mut proof = proof;
        proof[byte] ^= 1;
        assert!(!all.is_proved_by(&proof, &key(1)));
    }
    // Values that change with every look at the root are no part of it, nor is the order of groups.
    let later = Attr { size: 9, ..root };
    let turned = Cred { groups: vec![3, 4], ..cred.clone() };
    assert!(ProofStatement { root: &later, cred: &turned, ..all }.is_proved_by(&proof, &key(1)));
}

#[test]
fn keys_read_back_and_debug_output_hides_them() {
    let one = ProofKey::new(std::array::from_fn(|at| u8::try_from(at * 7).unwrap()));
    assert_eq!(ProofKey::parse(&one.to_text()), Some(one.clone()));
    assert_eq!(one.to_text().len(), 65);
    for text in ["", "12", &one.to_text()[1..], &format!("{}0", one.to_text().trim_end())] {
        assert_eq!(ProofKey::parse(text), None, "{text}");
    }
    assert_eq!(ProofKey::parse(&one.to_text().replace('0', "+")), None);
    assert_eq!(format!("{one:?}"), "ProofKey(..)");
}
