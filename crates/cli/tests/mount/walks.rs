//! Programs that walk a mount of a namespace that the server does not have in memory.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::fixture::World;
use crate::mounts::{Mount, cluster};

const SMALL: [&str; 2] = ["--set", "inodes_max=120"];
const DIRECTORIES: usize = 60;
const NAMES: usize = 40;
/// Long, so that the names of a few directories fill a pipe, and a program waits for its reader.
const LONG: &str = "a-name-that-is-long-enough-to-fill-the-pipe-between-find-and-its-reader-soon";

#[test]
fn find_lists_every_name_of_a_mount_larger_than_memory_while_the_server_is_killed() {
    if cluster().is_none() {
        return;
    }
    let world = World::with(&SMALL);
    let source = world.path("src");
    for dir in 0..DIRECTORIES {
        let dir = source.join(format!("g{}/d{dir}", dir % 5));
        fs::create_dir_all(&dir).unwrap();
        for name in 0..NAMES {
            fs::write(dir.join(format!("{LONG}-{name}")), "").unwrap();
        }
    }
    world.run(&["ingest", source.to_str().unwrap(), "/src"]).done();
    let mount = Mount::new(&world);
    let wanted = 1 + 5 + DIRECTORIES * (1 + NAMES);
    for kills in [0, 1, 1] {
        let mut find =
            Command::new("find").arg(mount.path("src")).stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(find.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        for _ in 0..kills {
            world.kill_server();
            world.run(&[&["up"], &SMALL[..]].concat()).done();
        }
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(find.wait().unwrap().success());
        assert_eq!(1 + rest.lines().count(), wanted, "after {kills} kills");
    }
    // Another client renames a directory above one that is open.
    let open = fs::read_dir(mount.path("src/g1")).unwrap();
    world.run(&["mv", "/src/g1", "/src/moved"]).done();
    assert_eq!(open.count(), DIRECTORIES / 5);
    assert!(Command::new("rm").arg("-r").arg(mount.path("src")).status().unwrap().success());
    assert!(fs::read_dir(mount.at()).unwrap().next().is_none());
    mount.end();
}
