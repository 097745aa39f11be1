use super::Numbered;

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
