use super::{Numbered, Shuffled};

#[test]
fn names_count_with_leading_zeros() {
    let mut names = Numbered::new(0, 100_000);
    for number in 0..100_000 {
        assert_eq!(names.name(), format!("file.{number:07}").as_bytes());
        names.advance();
    }
}

#[test]
fn more_digits_are_used_where_seven_are_too_few() {
    let mut names = Numbered::new(9_999_999, 2);
    assert_eq!(names.name(), b"file.09999999");
    names.advance();
    assert_eq!(names.name(), b"file.10000000");
    assert_eq!(Numbered::new(0, 10_000_000).name(), b"file.0000000");
}

#[test]
fn a_random_order_has_every_number_once() {
    for count in [1, 2, 3, 1000, 1 << 16, 100_000] {
        let mut names = Shuffled::new(count);
        let mut seen: Vec<u64> = (0..count).map(|place| names.at(place)).collect();
        assert_eq!(names.name(count - 1), format!("file.{:07}", count - 1).as_bytes());
        let inversions = seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
        // Half of the neighbours of a random order are the wrong way round.
        let expected = usize::try_from(count).unwrap() / 2;
        assert!(count < 1000 || inversions.abs_diff(expected) < expected / 10, "{inversions}");
        seen.sort_unstable();
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
}
