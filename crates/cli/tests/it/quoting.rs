//! Names with escape codes and newlines: quoted on a terminal and in messages.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use crate::cluster::{Cluster, text};

/// A name with a line of its own and a colour.
const NAME: &str = "a\nb\x1b[31mc";
/// The same as it is to be seen.
const SHOWN: &str = "a'$'\\n''b'$'\\033''[31mc'";

/// Runs the program on a terminal.
fn on_a_terminal(cluster: &Cluster, arguments: &[&str]) -> Output {
    let wanted = cluster.command(arguments);
    let mut words = vec!["\"$PROGRAM\"".to_owned()];
    let mut command = Command::new("script");
    command.env("PROGRAM", wanted.get_program());
    for (number, argument) in wanted.get_args().enumerate() {
        words.push(format!("\"$ARGUMENT_{number}\""));
        command.env(format!("ARGUMENT_{number}"), argument);
    }
    for (name, value) in wanted.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.args(["-qec", &words.join(" "), "/dev/null"]).output();
    output.expect("util-linux is there")
}

fn is_clean(said: &[u8]) -> bool {
    let has = |part: &[u8]| said.windows(part.len()).any(|window| window == part);
    !has(b"\x1b") && !has(b"a\nb") && !has(b"a\r\nb")
}

#[test]
fn names_reach_no_terminal_and_no_message_as_they_are() {
    let cluster = Cluster::up();
    let (dir, missing) = (format!("/{NAME}"), format!("/no{NAME}"));
    cluster.run(&["mkdir", &dir]);
    cluster.run(&["mkdir", &format!("{dir}/{NAME}")]);
    let commands: &[&[&str]] = &[
        &["ls", "/"],
        &["ls", "-lR", "/"],
        &["find", &dir],
        &["du", &dir],
        &["stat", &dir],
        &["stat", &missing],
        &["ls", &missing],
        &["find", &missing],
        &["rm", &dir],
        &["mkdir", &dir],
        &["mv", &missing, "/x"],
        &["cp", &missing, "/x"],
        &["cp", "local:/no\nwhere\x1b[2J", "/"],
        &["policy", "set", &dir, "batchfs"],
        &["policy", "ls"],
        &["policy", "get", &dir],
        &["status"],
        &["mds", "ls"],
        &["mds", "pin", &dir, "0"],
        &["mds", "unpin", &dir],
        &["mds", "pin", &dir, "7"],
        &["decouple", &dir],
        &["status"],
        &["stat", &dir],
        &["diff", &dir],
        &["sync", &dir],
        &["merge", "--dry-run", &dir],
        &["discard", "--dry-run", &dir],
        &["merge", &dir],
        &["merge", &dir],
        &["decouple", &dir],
        &["discard", &dir],
        &["discard", &dir],
        &["recover", &missing],
        &["ingest", "/etc/apt", &dir],
        &["ingest", "/etc/no\nwhere\x1b[2J", "/x"],
        &["verify", &dir],
        &["journal", "inspect", &missing],
        &["mount", &missing],
        &["umount", &missing],
        &["--mon", "unix:/no\nwhere\x1b[2J", "ls"],
        &["balancer", "log"],
        &["health"],
    ];
    for arguments in commands {
        let said = on_a_terminal(&cluster, arguments).stdout;
        assert!(is_clean(&said), "{arguments:?}: {}", said.escape_ascii());
    }
    let said = text(&on_a_terminal(&cluster, &["ls", "/"]).stdout);
    assert!(said.contains(SHOWN), "{said}");
    let said = text(&on_a_terminal(&cluster, &["find", &dir]).stdout);
    assert!(said.contains(&format!("'/{SHOWN}")), "{said}");
}

#[test]
fn a_list_of_names_is_raw_in_a_pipe_and_a_message_is_not() {
    let cluster = Cluster::up();
    let dir = format!("/{NAME}");
    cluster.run(&["mkdir", &dir]);
    assert_eq!(cluster.run(&["ls"]), format!("{NAME}\n").as_bytes());
    assert_eq!(cluster.run(&["find", &dir]), format!("{dir}\n").as_bytes());
    for option in ["-0", "--print0", "--null"] {
        assert_eq!(cluster.run(&["find", &dir, option]), format!("{dir}\0").as_bytes());
    }
    assert_eq!(cluster.json(&["stat", &dir])["path"], dir);
    for arguments in [&["stat", &dir][..], &["du", &dir], &["mds", "pin", &dir, "0"]] {
        let said = cluster.run(arguments);
        assert!(is_clean(&said), "{arguments:?}: {}", said.escape_ascii());
        assert!(text(&said).contains(SHOWN), "{arguments:?}: {}", said.escape_ascii());
    }
    let missing = [b"/".as_slice(), NAME.as_bytes(), b"/x"].concat();
    let said = cluster.fails(1, &[OsStr::new("stat"), OsStr::from_bytes(&missing)]);
    // The rest of the path is between the quotes, too.
    assert!(is_clean(said.as_bytes()) && said.contains(SHOWN.trim_end_matches('\'')), "{said}");
    let said = cluster.command(&["stat", &format!("{dir}/x"), "--json"]).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said.stderr).unwrap();
    assert!(said["error"]["subject"].as_str().unwrap().contains(NAME), "{said}");
}
