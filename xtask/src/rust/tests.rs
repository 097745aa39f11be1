//! Code and other text are told apart in the places where a simple search goes wrong.

use super::*;

#[track_caller]
fn check(source: &str, expected: &str) {
    let code = code_only(source);
    let squeezed: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(squeezed.join(" "), expected);
    assert_eq!(code.chars().count(), source.chars().count());
    assert_eq!(code.lines().count(), source.lines().count());
}

#[test]
fn comments_are_not_code() {
    check("a // b\nc", "a c");
    check("a /* b /* c */ d */ e", "a e");
    check("a /* never closed", "a");
}

#[test]
fn strings_are_not_code() {
    check(r#"a("b \" c") d"#, "a( ) d");
    check("a(r\"b\\\") c", "a( ) c");
    check("a(r#\"b \" c\"#) d", "a( ) d");
    check("a(b\"x\", br#\"y\"#, c\"z\") d", "a( , , ) d");
    check("\"never closed", "");
}

#[test]
fn characters_are_not_code_and_lifetimes_are() {
    check("['a', '\\'', '\"', b'x', '\\u{e9}'] z", "[ , , , , ] z");
    check("fn f<'a>(x: &'a str) -> &'static str", "fn f<'a>(x: &'a str) -> &'static str");
}

#[test]
fn names_that_look_like_prefixes_are_code() {
    check("for r in b { c(r#type) }", "for r in b { c(r#type) }");
}

#[test]
fn a_word_is_not_found_inside_another() {
    assert!(contains_word("use std::fs;", "std::fs"));
    assert!(!contains_word("use std::fsx; my_std::fs", "std::fs"));
}

#[test]
fn attributes_are_found_across_lines() {
    let found = attributes("#![allow(\n    a,\n    reason = \"x ] y\"\n)]\n\n#[test]\nfn f() {}\n");
    assert_eq!(found.len(), 2);
    assert!(found[0].inner && found[0].silences() && found[0].text.contains("x ] y"));
    assert!(!found[0].code.contains('x'));
    assert_eq!((found[1].line, found[1].inner, found[1].silences()), (6, false, false));
    assert!(attributes("// #[allow(a)]\nlet s = \"#[allow(a)]\";").is_empty());
}

#[test]
fn test_modules_do_not_count_as_lines() {
    let source = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    assert_eq!(lines_without_tests(source), 3);
    assert_eq!(lines_without_tests("#[cfg(test)]\nmod tests;\n"), 2);
    assert_eq!(lines_without_tests("#[cfg(test)]\nfn helper() {}\n"), 2);
}
