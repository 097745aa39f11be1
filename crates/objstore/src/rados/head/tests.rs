use super::*;

fn list(offset: u64, length: usize) -> Vec<(u64, u64, usize)> {
    parts(offset, length).map(|part| (part.index, part.offset, part.length)).collect()
}

#[test]
fn a_range_is_cut_where_pieces_begin() {
    assert_eq!(list(0, 0), []);
    assert_eq!(list(5, 10), [(0, 5, 10)]);
    assert_eq!(list(PIECE_BYTES - 1, 2), [(0, PIECE_BYTES - 1, 1), (1, 0, 1)]);
    let two = usize::try_from(2 * PIECE_BYTES).unwrap();
    assert_eq!(
        list(PIECE_BYTES + 1, two),
        [(1, 1, two / 2 - 1), (2, 0, two / 2), (3, 0, 1)],
        "a whole piece in between"
    );
}

#[test]
fn the_attribute_reads_back_or_is_refused() {
    let large = Large { number: (7, 0x1234), size: 3 * PIECE_BYTES + 1 };
    let value = large.encode();
    assert_eq!(Large::decode(&value), Some(large));
    for length in 0..value.len() {
        assert_eq!(Large::decode(&value[..length]), None, "{length}");
    }
    assert_eq!(Large::decode(&[&value[..], b"x"].concat()), None);
    for size in [OBJECT_BYTES_MAX + 1, u64::MAX] {
        assert_eq!(Large::decode(&Large { size, ..large }.encode()), None, "{size}");
    }
    assert_eq!(large.pieces(), 1..4);
    assert_eq!(large.piece("a/b", 3), "a/b//7.1234.3");
    assert!(crate::check_name(&large.piece("a/b", 3)).is_err(), "no object has such a name");
}

#[test]
fn pieces_end_with_the_size() {
    let pieces = |size| Large { number: (0, 0), size }.pieces().collect::<Vec<_>>();
    assert_eq!(pieces(0), [0; 0]);
    assert_eq!(pieces(PIECE_BYTES), [0; 0]);
    assert_eq!(pieces(PIECE_BYTES + 1), [1]);
    assert_eq!(pieces(2 * PIECE_BYTES), [1]);
}

#[test]
fn names_of_pieces_are_read_back_and_no_others_are() {
    let large = Large { number: (0x1077, 3), size: 5_000_000 };
    for name in ["a", "data/01/0000.00", "odd//1.2.3"] {
        let piece = large.piece(name, 12);
        assert_eq!(Large::of_piece(&piece), Some((name, (0x1077, 3), 12)), "{piece}");
    }
    for other in ["a", "a//1077.3", "a//1077.3.x", "a//1077.3.1.1", "a//01077.3.1", "a//+1.3.1"] {
        assert_eq!(Large::of_piece(other), None, "{other}");
    }
}
