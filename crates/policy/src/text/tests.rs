use super::{closest, line_and_column, normalise, quoted, suggestion};

const FRUIT: [&str; 3] = ["apple", "banana", "banyan"];

#[test]
fn every_spelling_of_a_word_becomes_one() {
    for spelling in ["big red apple", "Big_Red-Apple", "  BIG \t red__apple\n"] {
        assert_eq!(normalise(spelling), "big_red_apple");
    }
    assert_eq!(normalise("   "), "");
}

#[test]
fn a_truncated_word_suggests_the_only_one_it_begins() {
    assert_eq!(closest("appl", FRUIT.into_iter()), Some("apple"));
    assert_eq!(closest("ban", FRUIT.into_iter()), None, "two begin so");
    assert_eq!(closest("bananna", FRUIT.into_iter()), Some("banana"));
    assert_eq!(closest("", FRUIT.into_iter()), None);
    assert_eq!(closest(&"a".repeat(1000), FRUIT.into_iter()), None);
    assert_eq!(suggestion("kiwi", FRUIT.into_iter()), "use one of: apple, banana, banyan");
}

#[test]
fn messages_carry_no_control_characters_and_no_endless_words() {
    assert_eq!(quoted(" a\u{1b}[31m "), "`a\\u{1b}[31m`");
    assert!(quoted(&"x".repeat(5000)).len() < 50);
}

#[test]
fn columns_count_characters() {
    assert_eq!(line_and_column("", 0), (1, 1));
    assert_eq!(line_and_column("é: x", 4), (1, 4));
    assert_eq!(line_and_column("a\nbc", 3), (2, 2));
    assert_eq!(line_and_column("é", 1), (1, 1), "inside a character");
    assert_eq!(line_and_column("a\n", 99), (2, 1));
}
