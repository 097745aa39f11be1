use std::fs;

use clap::{Arg, ArgAction};

use super::*;

/// `cudele` with two commands.
fn program() -> Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let up = Command::new("up")
        .arg(option("mds").value_parser(clap::value_parser!(u16)))
        .arg(option("set").action(ArgAction::Append))
        .arg(option("rank"))
        .arg(option("standby").action(ArgAction::SetTrue).conflicts_with("rank"))
        .arg(Arg::new("place").required(true));
    let add = Command::new("add").arg(option("days").required(true));
    Command::new("cudele")
        .arg(option("json").action(ArgAction::SetTrue).global(true))
        .arg(option("dir").global(true))
        .subcommand(up)
        .subcommand(Command::new("auth").arg(option("store").global(true)).subcommand(add))
}

fn settings(text: &str) -> Result<Vec<Setting>> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cudele.toml");
    fs::write(&path, text).expect("a file");
    let found = File::read(&path).and_then(|file| file.settings(&program()));
    found.map_err(|mut error| {
        error.subject = error.subject.rsplit('/').next().unwrap_or_default().to_owned();
        error
    })
}

fn parse(text: &str, line: &str) -> Result<ArgMatches> {
    let config = Config { settings: settings(text)? };
    let given: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    config.complete(&program(), program().try_get_matches_from(&given), &given)
}

fn up(text: &str, line: &str) -> ArgMatches {
    let matches = parse(text, line).expect("a command line");
    matches.subcommand_matches("up").expect("the command").clone()
}

#[test]
fn the_command_line_comes_before_a_file() {
    let text = "[up]\nmds = 3\nset = [\"a=1\", \"b=2\"]\n";
    let matches = up(text, "cudele up here");
    assert_eq!(matches.get_one::<u16>("mds"), Some(&3));
    let set: Vec<&String> = matches.get_many("set").expect("two").collect();
    assert_eq!(set, ["a=1", "b=2"]);
    let matches = up(text, "cudele up here --mds 4 --set c=3");
    assert_eq!(matches.get_one::<u16>("mds"), Some(&4));
    assert_eq!(matches.get_many::<String>("set").expect("one").count(), 1);
}

#[test]
fn a_file_may_give_what_a_command_requires() {
    let matches = parse("[auth.add]\ndays = \"7\"\n", "cudele auth add").expect("a command line");
    let add = matches.subcommand_matches("auth").and_then(|auth| auth.subcommand_matches("add"));
    assert_eq!(add.expect("the command").get_one::<String>("days"), Some(&"7".to_owned()));
}

#[test]
fn an_option_of_a_command_and_all_its_subcommands_has_one_place() {
    let store = |text, line| {
        let matches = parse(text, line).expect("a command line");
        let auth = matches.subcommand_matches("auth").expect("the command");
        let add = auth.subcommand_matches("add").expect("its subcommand");
        add.get_one::<String>("store").cloned()
    };
    let text = "[auth]\nstore = \"a\"\n[auth.add]\ndays = 1\n";
    assert_eq!(store(text, "cudele auth add"), Some("a".to_owned()));
    assert_eq!(store(text, "cudele auth add --store b"), Some("b".to_owned()));
    assert_eq!(store(text, "cudele auth --store c add"), Some("c".to_owned()));
    assert!(settings("[auth.add]\nstore = \"a\"\n").is_err(), "one place only");
}

#[test]
fn an_option_of_the_command_line_ends_what_it_excludes() {
    let text = "[up]\nstandby = true\n";
    assert!(up(text, "cudele up here").get_flag("standby"));
    let matches = up(text, "cudele up here --rank 1");
    assert!(!matches.get_flag("standby"));
}

#[test]
fn faults_name_the_line() {
    let cases = [
        ("json = true\nmdss = 3\n", "cudele.toml:2", "cudele has no option \"mdss\""),
        ("\n[up]\nmdss = 3\n", "cudele.toml:3", "cudele up has no option \"mdss\""),
        ("[uup]\nmds = 3\n", "cudele.toml:1", "cudele has no command \"uup\""),
        ("[up]\nplace = \"x\"\n", "cudele.toml:2", "cudele up has no option \"place\""),
        ("[up]\ndir = \"x\"\n", "cudele.toml:2", "cudele up has no option \"dir\""),
        ("[up]\nstandby = \"yes\"\n", "cudele.toml:2", "standby: the option takes no value"),
        (
            "[up]\nmds = [1, 2]\n",
            "cudele.toml:2",
            "mds: a value is a text, a number, true or false",
        ),
        ("[up]\nset = [[1]]\n", "cudele.toml:2", "set: a list has texts and numbers only"),
    ];
    for (text, subject, cause) in cases {
        let error = settings(text).expect_err(text);
        assert_eq!((&*error.subject, &*error.cause, error.errno), (subject, cause, Errno::Invalid));
        assert!(!error.remedy.is_empty(), "{text}");
    }
    let error = settings("[up\n").expect_err("no TOML");
    assert_eq!(error.subject, "cudele.toml:1");
}

#[test]
fn values_are_held_against_their_options() {
    let config = Config { settings: settings("json = true\n[up]\nmds = \"x\"\n").expect("known") };
    let error = config.check(&program()).expect_err("x is no number");
    assert!(error.subject.ends_with("cudele.toml:3: mds = \"x\""), "{error}");
    let given: Vec<OsString> = ["cudele", "up", "here"].map(OsString::from).into();
    let plain = program().try_get_matches_from(&given);
    let error = config.complete(&program(), plain, &given).expect_err("x is no number");
    assert!(error.subject.ends_with("cudele.toml:3: mds = \"x\""), "{error}");
    let config = Config { settings: settings("[up]\nmds = 7\nrank = 1\n").expect("known") };
    assert_eq!(config.check(&program()), Ok(()));
}

#[test]
fn variables_are_named_by_command_and_option() {
    let names = |path: &[&str], name| {
        options::variable(&path.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), name)
    };
    assert_eq!(names(&["auth", "add"], "squash-root"), "CUDELE_AUTH_ADD_SQUASH_ROOT");
    assert_eq!(names(&[], "json"), "CUDELE_JSON");
}

#[test]
fn the_option_config_is_read_before_the_command_only() {
    let named = |line: &str| named(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
    assert_eq!(named("cudele --config a up"), Some("a".into()));
    assert_eq!(named("cudele --json --dir d --config=b up"), Some("b".into()));
    assert_eq!(named("cudele run -- tool --config c"), None);
    assert_eq!(named("cudele --dir --config up"), None);
}
