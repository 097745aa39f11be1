use super::*;

/// `u::rw-,u:7:rwx,g::r-x,g:70:-w-,m::rwx,o::r--`.
fn example() -> AccessList {
    let entries = [
        (USER_OBJ, 6, NO_NUMBER),
        (USER, 7, 7),
        (GROUP_OBJ, 5, NO_NUMBER),
        (GROUP, 2, 70),
        (MASK, 7, NO_NUMBER),
        (OTHER, 4, NO_NUMBER),
    ];
    AccessList::from_linux(&linux_form(&entries)).unwrap()
}

#[test]
fn a_list_comes_back_with_the_mode_of_its_inode() {
    let list = example();
    assert_eq!(list.mode, 0o674);
    assert_eq!(AccessList::decode(&list.encode()), Some(list.clone()));
    let changed = linux_form(&[
        (USER_OBJ, 7, NO_NUMBER),
        (USER, 7, 7),
        (GROUP_OBJ, 5, NO_NUMBER),
        (GROUP, 2, 70),
        (MASK, 5, NO_NUMBER),
        (OTHER, 0, NO_NUMBER),
    ]);
    assert_eq!(list.to_linux(0o750), changed, "chmod 750 changed the owner, mask and others");
    let minimal = [(USER_OBJ, 7, NO_NUMBER), (GROUP_OBJ, 5, NO_NUMBER), (OTHER, 1, NO_NUMBER)];
    let minimal = AccessList::from_linux(&linux_form(&minimal)).unwrap();
    assert!(minimal.is_mode_only() && !list.is_mode_only());
    assert_eq!(minimal.to_linux(0o640).len(), 4 + 3 * LINUX_ENTRY_BYTES);
}

#[test]
fn what_is_no_list_is_refused() {
    let whole = linux_form(&[
        (USER_OBJ, 7, NO_NUMBER),
        (USER, 7, 7),
        (GROUP_OBJ, 5, NO_NUMBER),
        (MASK, 7, NO_NUMBER),
        (OTHER, 4, NO_NUMBER),
    ]);
    assert!(AccessList::from_linux(&whole).is_ok());
    for length in 0..whole.len() {
        assert_eq!(AccessList::from_linux(&whole[..length]), Err(Errno::Invalid), "{length}");
    }
    let faults: [&[(u16, u16, u32)]; 5] = [
        &[(USER_OBJ, 8, 0), (GROUP_OBJ, 0, 0), (OTHER, 0, 0)],
        &[(USER_OBJ, 7, 0), (USER_OBJ, 7, 0), (GROUP_OBJ, 0, 0), (OTHER, 0, 0)],
        &[(USER_OBJ, 7, 0), (USER, 7, 7), (GROUP_OBJ, 0, 0), (OTHER, 0, 0)],
        &[(USER_OBJ, 7, 0), (USER, 7, 7), (USER, 1, 7), (GROUP_OBJ, 0, 0), (MASK, 7, 0)],
        &[(USER_OBJ, 7, 0), (0x40, 7, 7), (GROUP_OBJ, 0, 0), (OTHER, 0, 0)],
    ];
    for entries in faults {
        assert_eq!(
            AccessList::from_linux(&linux_form(entries)),
            Err(Errno::Invalid),
            "{entries:?}"
        );
    }
    let all = |named| {
        let named = (0..named).map(|number| (USER, 7, number));
        let others = [USER_OBJ, GROUP_OBJ, MASK, OTHER].map(|tag| (tag, 7, NO_NUMBER));
        AccessList::from_linux(&linux_form(&named.chain(others).collect::<Vec<_>>()))
    };
    assert!(all(500).is_ok_and(|list| AccessList::decode(&list.encode()) == Some(list)));
    assert_eq!(all(501), Err(Errno::NoSpace));
    let record = example().encode();
    for length in 0..record.len() {
        let is_whole =
            length >= HEADER_BYTES && (length - HEADER_BYTES).is_multiple_of(ENTRY_BYTES);
        assert_eq!(AccessList::decode(&record[..length]).is_some(), is_whole, "{length}");
    }
}

#[test]
fn named_users_and_groups_get_what_the_mask_leaves() {
    let record = example().encode();
    let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
    let allowed = |cred: Cred, mode, want| is_allowed(&record, mode, 50, &cred, want).unwrap();
    assert!(allowed(cred(7, 1, &[]), 0o674, 7) && !allowed(cred(7, 1, &[]), 0o654, 7));
    assert!(!allowed(cred(7, 1, &[]), 0o607, 4), "a named user is not one of the others");
    assert!(allowed(cred(8, 50, &[]), 0o674, 5) && !allowed(cred(8, 50, &[]), 0o674, 2));
    assert!(allowed(cred(8, 1, &[70]), 0o674, 2) && !allowed(cred(8, 1, &[70]), 0o674, 4));
    assert!(!allowed(cred(8, 50, &[70]), 0o674, 7), "one entry must give all");
    assert!(allowed(cred(8, 1, &[]), 0o674, 4) && !allowed(cred(8, 1, &[]), 0o674, 2));
    assert_eq!(is_allowed(b"\x02", 0o777, 1, &cred(8, 1, &[]), 4), None);
}

#[test]
fn a_new_inode_has_no_more_than_asked_for_and_no_more_than_the_list() {
    let record = example().encode();
    assert_eq!(inherited_mode(&record, 0o100_666), Some(0o100_664));
    assert_eq!(inherited_mode(&record, 0o042_777), Some(0o042_674));
    assert_eq!(inherited_mode(b"", 0o666), None);
}
