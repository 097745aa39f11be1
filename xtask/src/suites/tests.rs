use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::case::{Case, Reading, Verdict, judge_text};
use super::expected::{Expectations, Meaning};
use super::ltp;
use super::options::Options;
use super::report::Record;

const ENTRY: &str = "[[expected]]\nsuite = \"ltp-fs\"\ncase = \"gf01\"\ncells = [\"posix\"]\n\
                     reason = \"a reason\"\n";

fn record(cell: &str, verdict: Verdict) -> Record {
    Record::of(cell, ("ltp-fs", "gf01"), verdict)
}

fn failed() -> Verdict {
    Verdict::Failed("exit code 1".into())
}

#[test]
fn only_failures_of_the_file_are_expected_and_must_happen() {
    let file = Expectations::parse(ENTRY).expect("a file");
    let meaning = |cell, verdict, fails| file.meaning(&record(cell, verdict), fails);
    assert_eq!(meaning("posix", failed(), false), Meaning::Expected);
    assert_eq!(meaning("posix", Verdict::Passed, false), Meaning::Surprise);
    assert_eq!(meaning("nowsync", failed(), false), Meaning::Failed);
    assert_eq!(meaning("nowsync", failed(), true), Meaning::Reference);
    assert_eq!(meaning("nowsync", Verdict::Passed, true), Meaning::Passed);
    let file = Expectations::parse(&format!("{ENTRY}sometimes = true\n")).expect("a file");
    assert_eq!(file.meaning(&record("posix", Verdict::Passed), false), Meaning::Passed);
}

#[test]
fn an_entry_without_a_reason_or_with_an_unknown_cell_is_an_error() {
    let without = ENTRY.replace("reason = \"a reason\"\n", "");
    assert!(Expectations::parse(&without).expect_err("no reason").contains("reason"));
    let unknown = ENTRY.replace("posix", "posixx");
    assert!(Expectations::parse(&unknown).expect_err("no cell").contains("posixx"));
}

/// The file of this tree can be read, and names no suite that does not exist.
#[test]
fn the_expected_failures_of_this_tree_are_well_formed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites.toml");
    Expectations::read(&file).map_err(|error| error.text()).expect("well-formed");
}

#[test]
fn tests_of_system_calls_on_files_are_chosen() {
    let calls: BTreeSet<&str> = ["open", "fcntl", "dup2", "readlinkat"].into();
    for test in ["open01", "open01A", "fcntl14_64", "dup201", "readlinkat02"] {
        assert!(ltp::is_of(test, &calls), "{test}");
    }
    for test in ["openat01", "kill02", "reboot01", "settimeofday01", "fork"] {
        assert!(!ltp::is_of(test, &calls), "{test}");
    }
}

#[test]
fn comments_and_repeated_names_of_a_runtest_file_are_no_cases() {
    let text = "#A comment\n\nopen01 open01\nopen01 open01 -x\nkill02 kill02\n";
    let cases = ltp::cases(Path::new("/opt/ltp"), "syscalls", text);
    assert_eq!(cases.iter().map(|case| &*case.name).collect::<Vec<_>>(), ["open01"]);
}

#[test]
fn exit_codes_and_outputs_become_verdicts() {
    let case = |reading| Case {
        name: "a".into(),
        script: String::new(),
        time_max: Duration::from_secs(1),
        reading,
    };
    let judge = |reading, code, text: &str| judge_text(Some(code), &case(reading), text);
    assert_eq!(judge(Reading::Code, 0, "fine"), Verdict::Passed);
    assert_eq!(judge(Reading::Code, 32, "a\nTCONF: no"), Verdict::Skipped("TCONF: no".into()));
    let failed = judge(Reading::Code, 1, "TPASS: a\nTFAIL: b\nthe end");
    assert_eq!(failed, Verdict::Failed("exit code 1: TFAIL: b".into()));
    assert!(matches!(judge(Reading::Ltp, 2, "Failed to acquire device"), Verdict::Skipped(_)));
    let text = "x: 1 [not run] no reflink\nPassed all 1 tests";
    assert!(matches!(judge(Reading::Xfstests, 0, text), Verdict::Skipped(_)));
    assert!(matches!(judge(Reading::Stress, 0, "stress-ng: fail: wrong"), Verdict::Failed(_)));
}

#[test]
fn a_wrong_command_line_names_the_wrong_part() {
    for (arguments, word) in [
        (&["--on", "moon"][..], "moon"),
        (&["--minutes", "x"], "\"x\""),
        (&["--suite"], "--suite"),
        (&["--bogus"], "--bogus"),
    ] {
        let error = Options::parse(arguments).expect_err("wrong").text();
        assert!(error.contains(word), "{error}");
    }
}
