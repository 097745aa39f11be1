use super::*;

#[track_caller]
fn check(pattern: &[u8], yes: &[&[u8]], no: &[&[u8]]) {
    let glob = Glob::new(pattern);
    for name in yes {
        assert!(glob.matches(name), "{:?} matches {:?}", pattern, name);
    }
    for name in no {
        assert!(!glob.matches(name), "{:?} does not match {:?}", pattern, name);
    }
}

#[test]
fn stars_and_question_marks_stand_for_characters() {
    check(b"*", &[b"", b"a", b".hidden", b"\xff"], &[]);
    check(b"*.txt", &[b".txt", b"a.txt", b"a.txt.txt"], &[b"a.txt~", b"txt"]);
    check(b"a*b*c", &[b"abc", b"aXbYbZc"], &[b"ab", b"acb", b"abcd"]);
    check(b"?", &[b"a", "\u{fc}".as_bytes(), b"\xff"], &[b"", b"ab", b"\xff\xfe"]);
    check(b"", &[b""], &[b"a"]);
}

#[test]
fn brackets_stand_for_one_of_a_set() {
    check(b"[a-c]x", &[b"ax", b"cx"], &[b"dx", b"x", b"[a-c]x"]);
    check(b"[!a-c]", &[b"d", b"-"], &[b"a", b"b"]);
    check(b"[]a]", &[b"]", b"a"], &[b"b"]);
    check(b"[a-]", &[b"a", b"-"], &[b"b"]);
    check(b"[a", &[b"[a"], &[b"a"]);
}

#[test]
fn a_backslash_takes_the_next_character_as_it_is() {
    check(b"\\*", &[b"*"], &[b"a", b"\\*"]);
    check(b"a\\", &[b"a\\"], &[b"a"]);
}

#[test]
fn bytes_that_are_no_text_match_themselves() {
    check(b"a\xff*", &[b"a\xff", b"a\xffb"], &[b"a\xfe"]);
}

#[test]
fn a_pattern_of_many_stars_ends_soon() {
    let pattern = b"*a".repeat(100);
    assert!(!Glob::new(&pattern).matches(&[b'a'; 99]));
    assert!(Glob::new(&pattern).matches(&[b'a'; 255]));
}
