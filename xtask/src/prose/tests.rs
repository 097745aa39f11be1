//! Planted sentences, each counted as a reader would count it.

use super::*;

fn counts(path: &str, text: &str) -> Counts {
    measure(path, text).0
}

#[test]
fn a_sentence_without_a_noun_is_counted_with_its_place() {
    let text = "fn f() {}\n\n// Who waits for it does not wait for itself.\n";
    let (counts, faults) = measure("a.rs", text);
    assert_eq!((counts.sentences, counts.words, counts.headless, counts.pronouns), (1, 9, 1, 1));
    assert_eq!((faults[0].line, faults[0].why), (3, "no noun as subject"));
}

#[test]
fn a_plain_sentence_counts_for_nothing() {
    let text = "//! A status query about a rename must not block on that rename.\n";
    let (counts, faults) = measure("a.rs", text);
    assert_eq!((counts.sentences, counts.headless + counts.pronouns + counts.vague), (1, 0));
    assert_eq!(faults, []);
}

#[test]
fn a_sentence_may_run_over_lines_and_code_is_not_prose() {
    let text =
        "/// The server rejects a create,\n/// and somebody\n/// is told.\nlet who = what;\n";
    let counts = counts("a.rs", text);
    assert_eq!((counts.sentences, counts.words, counts.vague, counts.pronouns), (1, 9, 2, 0));
}

#[test]
fn tables_headings_and_code_of_a_page_are_not_prose() {
    let page =
        "# Who is who\n\n| who | what |\n\n```\nwho am i in here\n```\n\nThe page has a line.\n";
    let counts = counts("a.md", page);
    assert_eq!((counts.sentences, counts.pronouns, counts.vague), (1, 0, 0));
}

#[test]
fn phrases_are_whole_words_and_do_not_overlap() {
    assert_eq!(occurrences("whatever others say, brothers know what", &PRONOUNS), 2);
    assert_eq!(occurrences("of others, others, brothers", &VAGUE), 2);
    assert_eq!(occurrences("größer is told", &VAGUE), 1);
}

#[test]
fn a_wide_comment_is_counted_and_wide_code_is_not() {
    let wide = "x".repeat(100);
    assert_eq!(counts("a.rs", &format!("// {wide}\nlet a = \"{wide}\";\n")).wide, 1);
    assert_eq!(counts("a.md", &format!("{wide} {wide}\n")).wide, 0);
}

#[test]
fn sentences_end_where_a_reader_stops() {
    assert_eq!(
        sentences("One: two. Three; 1.5 is four"),
        ["One:", "two.", "Three;", "1.5 is four"]
    );
}
