use types::FileType;

use super::*;
use crate::tests::{dirfrag, inode, transcript};

#[test]
fn rows_come_back_in_the_order_of_their_pushes() {
    let mut rows = Rows::new();
    rows.push(b"b", RowValue::Removed);
    rows.push(b"a", inode(1, FileType::Regular, b"content"));
    rows.push(b"b", inode(2, FileType::Regular, b""));
    let pushed: Vec<Row<'_>> = rows.iter().collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(pushed[0], Row { name: b"b", value: RowValue::Removed });
    assert_eq!(pushed[1], Row { name: b"a", value: inode(1, FileType::Regular, b"content") });
    assert_eq!(pushed[2], Row { name: b"b", value: inode(2, FileType::Regular, b"") });
}

#[test]
fn clearing_keeps_nothing_but_memory() {
    let mut rows = Rows::new();
    rows.push(b"a", inode(1 << 20, FileType::Regular, b"content"));
    rows.clear();
    assert!(rows.is_empty());
    assert_eq!(rows.bytes(), 0);
    rows.push(b"a", inode(2, FileType::Regular, b""));
    let mut fresh = Rows::new();
    fresh.push(b"a", inode(2, FileType::Regular, b""));
    let run = |rows: Rows| rows.into_run(dirfrag(types::Ino::ROOT), RunId(1));
    assert_eq!(run(rows), run(fresh), "the first row after clearing is a first row");
}

#[test]
fn of_several_rows_with_a_name_the_last_counts() {
    let mut rows = Rows::new();
    for number in 0..100 {
        rows.push(b"again", inode(number, FileType::Regular, b""));
        rows.push(format!("once-{number}").as_bytes(), RowValue::Removed);
    }
    let bytes = rows.into_run(dirfrag(types::Ino::ROOT), RunId(1));
    let text = transcript(&bytes);
    assert_eq!(text.lines().count(), 1 + 1 + 100);
    assert!(text.contains("  again -> ino:1099511627875 "), "{text}");
}

#[test]
#[should_panic(expected = "1 to 255 bytes")]
fn a_name_that_is_too_long_is_a_bug_of_the_caller() {
    Rows::new().push(&[b'a'; 256], RowValue::Removed);
}
