//! The list of steps and its report; the steps themselves are run by `cargo xtask ci`.

use super::*;

const NONE: Tools = Tools { nextest: false, deny: false };

fn names(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

#[test]
fn the_cheapest_steps_come_first() {
    assert_eq!(names(&steps(NONE))[..3], ["format", "tidy", "lint"]);
}

#[test]
fn optional_tools_add_to_the_list_and_replace_nothing() {
    let with = steps(Tools { nextest: true, deny: true });
    for name in names(&steps(NONE)) {
        assert!(names(&with).contains(&name), "{name} is lost");
    }
    let tests = with.iter().find(|step| step.name == "tests").expect("the list has tests");
    assert!(tests.commands.iter().any(|command| command.to_string().contains("--doc")));
}

#[test]
fn named_steps_run_alone_and_a_wrong_name_is_refused() {
    let chosen = choose(steps(NONE), &["docs", "lint"]).expect("both exist");
    assert_eq!(names(&chosen), ["lint", "docs"]);
    assert!(matches!(choose(steps(NONE), &["lnit"]), Err(Failure::Usage(_))));
}

#[test]
fn the_last_line_counts_the_steps() {
    let record = |passed| Record { name: "lint", took: Duration::from_millis(1234), passed };
    let text = summary(&[record(true), record(false), record(true)]);
    assert_eq!(text.lines().last(), Some("2 passed, 1 failed"));
    assert!(text.contains("lint         FAILED      1.2 s"), "{text}");
    assert!(text.contains("in all                   3.7 s"), "{text}");
}

#[test]
fn a_printed_command_can_be_pasted() {
    let command = Cargo::new(&["doc"]).and(&["--no-deps"]).with("RUSTDOCFLAGS", "-Dwarnings");
    assert_eq!(command.to_string(), "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps");
}
