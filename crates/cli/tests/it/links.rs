//! Names of one file in directories of several metadata servers.

use std::sync::Arc;

use cudele::{AttrChange, Cred, Errno, Fs, Ino, NewFile, RenameFlags};
use rustix::process::Pid;
use types::Rank;

use crate::cluster::Cluster;

/// Kills the servers of these ranks.
fn kill(cluster: &Cluster, ranks: impl Fn(u64) -> bool) {
    let status = cluster.json(&["mds", "ls"]);
    let entries = status["ranks"].as_array().unwrap().iter();
    for entry in entries.filter(|entry| ranks(entry["rank"].as_u64().unwrap())) {
        let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
        Cluster::kill_process(Pid::from_raw(pid).unwrap());
    }
}

fn kill_all(cluster: &Cluster) {
    kill(cluster, |_| true);
}

/// `/zero` and `/one` on the ranks of their names, without a pin.
fn two_directories(cluster: &Cluster) {
    for path in ["/zero", "/one"] {
        cluster.run(&["mkdir", path]);
    }
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run(&["mds", "unpin", "/one"]);
    cluster.run_with_input(&["cp", "-", "/one/file"], b"content");
}

fn rank_of(cluster: &Cluster, path: &str) -> u64 {
    cluster.json(&["stat", path])["rank"].as_u64().unwrap()
}

/// Both names are those of one file.
fn are_one(cluster: &Cluster, [one, other]: [&str; 2]) {
    let [a, b] = [one, other].map(|path| cluster.json(&["stat", path]));
    assert_eq!((&a["ino"], &a["nlink"], &a["rank"]), (&b["ino"], &2.into(), &b["rank"]));
    assert_eq!(a["nlink"], b["nlink"]);
    for path in [one, other] {
        assert_eq!(cluster.run(&["cp", path, "-"]), b"content");
    }
}

fn adds_up(cluster: &Cluster) {
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

fn link(fs: &Arc<Fs>, file: &str, dir: &str, name: &str) -> cudele::Result<Ino> {
    let ino = fs.stat(file)?.ino;
    fs.open_dir(dir)?.link(ino, name)?;
    Ok(ino)
}

#[test]
fn a_link_moves_the_directory_of_the_new_name_to_the_files_rank() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    let fs = cluster.mount();
    let ino = link(&fs, "/one/file", "/zero/below", "second").unwrap();
    // Only that one moved, and it is not pinned.
    assert_eq!((rank_of(&cluster, "/zero"), rank_of(&cluster, "/zero/below")), (0, 1));
    let listed = cluster.json(&["mds", "ls"]);
    assert_eq!(listed["ranks"][1]["subtrees"].as_array().unwrap().len(), 2, "{listed}");
    let names = ["/one/file", "/zero/below/second"];
    are_one(&cluster, names);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    are_one(&cluster, names);
    // With a name in it that another directory has, too, it stays there.
    let said = cluster.fails(1, &["mds", "pin", "/zero/below", "0"]);
    assert!(said.contains("several names"), "{said}");
    // An impossible link moves nothing.
    cluster.run(&["mkdir", "/zero/other"]);
    cluster.run(&["mkdir", "/zero/other/second"]);
    let other = fs.open_dir("/zero/other").unwrap();
    assert_eq!(other.link(ino, "second").unwrap_err().errno, Errno::Exists);
    let dir = fs.stat("/one").unwrap().ino;
    assert_eq!(other.link(dir, "third").unwrap_err().errno, Errno::NotPermitted);
    assert_eq!(rank_of(&cluster, "/zero/other"), 0);
    cluster.run(&["rm", "/one/file"]);
    let last = cluster.json(&["stat", names[1]]);
    assert_eq!((&last["ino"], &last["nlink"]), (&ino.0.into(), &1.into()));
    cluster.run(&["rm", names[1]]);
    // Its rank makes no difference: it is renamed and removed like any other.
    assert_eq!(rank_of(&cluster, "/zero/below"), 1);
    cluster.run(&["mv", "/zero/below", "/zero/renamed"]);
    assert_eq!(rank_of(&cluster, "/zero/renamed"), 0);
    cluster.run_with_input(&["cp", "-", "/one/file"], b"content");
    link(&fs, "/one/file", "/zero/renamed", "second").unwrap();
    assert_eq!(rank_of(&cluster, "/zero/renamed"), 1);
    cluster.run(&["rm", "-r", "/zero"]);
    adds_up(&cluster);
}

/// Checks `/many` in a `round`: three names for each file, in three directories, and the mark that
/// was set on the file through one of them.
fn has_all(cluster: &Cluster, fs: &Arc<Fs>, round: u32) {
    let dirs = ["/many", "/many/x", "/many/x/y"].map(|path| fs.open_dir(path).unwrap());
    for number in 0..FILES {
        let found = dirs.each_ref().map(|dir| dir.lookup(format!("f{number}")).unwrap());
        let [first, ..] = &found;
        assert!(found.iter().all(|attr| (attr.ino, attr.nlink) == (first.ino, 3)), "{found:?}");
        assert_eq!(first.mode & 0o777, 0o600 + round, "f{number}: {first:?}");
    }
    let content = cluster.run(&["cp", "/many/x/y/large", "-"]);
    assert_eq!(content.len(), LARGE);
    assert_eq!(cluster.run(&["cp", "/many/x/y/f0", "-"]), b"content");
}

const FILES: u32 = 60;
/// Not in its inode.
const LARGE: usize = 100_000;

#[test]
fn a_file_moves_with_the_subtree_that_has_all_of_its_names() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    for path in ["/many", "/many/x", "/many/x/y"] {
        cluster.run(&["mkdir", path]);
    }
    cluster.run_with_input(&["cp", "-", "/many/f0"], b"content");
    cluster.run_with_input(&["cp", "-", "/many/large"], &vec![7; LARGE]);
    let fs = cluster.mount();
    // It reconnects in time with its unsafe changes, even without a request.
    fs.listen(|_| {}).unwrap();
    let dirs = ["/many", "/many/x", "/many/x/y"].map(|path| fs.open_dir(path).unwrap());
    for number in 1..FILES {
        dirs[0].create(format!("f{number}"), &NewFile::default()).unwrap();
    }
    let name = |number: u32| if number == FILES { "large".into() } else { format!("f{number}") };
    for number in 0..=FILES {
        let ino = dirs[0].lookup(name(number)).unwrap().ino;
        dirs[1].link(ino, name(number)).unwrap();
        dirs[2].link(ino, name(number)).unwrap();
    }
    let say = |round: u32| {
        for number in 0..FILES {
            // Through one of the names, and the rest show the same.
            let ino = dirs[round as usize % 3].lookup(name(number)).unwrap().ino;
            let mode = Some(0o600 + round);
            fs.set_attr(ino, &AttrChange { mode, ..AttrChange::default() }).unwrap();
            // One name goes and comes.
            dirs[1].unlink(name(number)).unwrap();
            dirs[1].link(ino, name(number)).unwrap();
        }
    };
    // After any kill they are on the one rank, or on the other.
    let mut at = 0;
    for round in 0..8 {
        say(round);
        let to = (at + 1) % 3;
        let mut moving =
            cluster.command(&["mds", "pin", "/many", &to.to_string()]).spawn().unwrap();
        match round % 4 {
            0 => assert!(moving.wait().unwrap().success()),
            victim => {
                let killed = if victim == 1 { at } else { to };
                kill(&cluster, |rank| rank == killed);
                cluster.start();
                // It may have been told that a server is gone.
                let _ = moving.wait().unwrap();
                if victim == 3 {
                    fs.sync().unwrap();
                    kill_all(&cluster);
                    cluster.start();
                }
            }
        }
        has_all(&cluster, &fs, round);
        at = rank_of(&cluster, "/many");
        if round % 4 == 0 {
            assert_eq!(at, to);
        }
    }
    // With its last name a file is gone, wherever it was.
    cluster.run(&["rm", "/many/f1"]);
    cluster.run(&["rm", "/many/x/f1"]);
    assert_eq!(cluster.json(&["stat", "/many/x/y/f1"])["nlink"], 1);
    cluster.run(&["rm", "-r", "/many/x"]);
    assert_eq!(cluster.json(&["stat", "/many/f2"])["nlink"], 1);
    cluster.run(&["mds", "pin", "/many", "0"]);
    cluster.run(&["rm", "-r", "/many"]);
    adds_up(&cluster);
}

#[test]
fn a_link_moves_the_files_directory_if_the_other_is_pinned() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    link(&fs, "/one/file", "/zero", "second").unwrap();
    assert_eq!((rank_of(&cluster, "/zero"), rank_of(&cluster, "/one")), (0, 0));
    let names = ["/one/file", "/zero/second"];
    are_one(&cluster, names);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    are_one(&cluster, names);
    // Everything is on one rank again: later creates need no second rank.
    cluster.run(&["rm", "/zero/second"]);
    assert_eq!(cluster.json(&["stat", "/one/file"])["nlink"], 1);
    cluster.run(&["rm", "/one/file"]);
    adds_up(&cluster);
}

#[test]
fn one_of_several_names_is_renamed_into_a_directory_of_another_rank() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    cluster.run_with_input(&["cp", "-", "/zero/below/old"], b"is replaced");
    let fs = cluster.mount();
    let ino = link(&fs, "/one/file", "/one", "second").unwrap();
    cluster.run(&["mv", "/one/second", "/zero/below/old"]);
    let names = ["/one/file", "/zero/below/old"];
    are_one(&cluster, names);
    assert_eq!((fs.stat(names[1]).unwrap().ino, rank_of(&cluster, "/zero/below")), (ino, 1));
    assert_eq!(rank_of(&cluster, "/zero"), 0);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    are_one(&cluster, names);
    // A pinned directory stays, and the error names the pin.
    cluster.run(&["mkdir", "/zero/other"]);
    cluster.run(&["mds", "pin", "/zero/other", "0"]);
    let said = cluster.fails(1, &["mv", "/one/file", "/zero/other/third"]);
    assert!(said.contains("EXDEV") && said.contains("/zero/other is pinned"), "{said}");
    are_one(&cluster, names);
    adds_up(&cluster);
}

#[test]
fn an_open_or_linked_file_is_renamed_to_another_rank_with_a_directory() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    for dir in ["/zero/below", "/zero/open", "/zero/other"] {
        cluster.run(&["mkdir", dir]);
    }
    let fs = cluster.mount();
    let [one, below, open] =
        ["/one", "/zero/below", "/zero/open"].map(|path| fs.open_dir(path).unwrap());
    // It had several names.
    let ino = link(&fs, "/one/file", "/one", "second").unwrap();
    one.unlink("second").unwrap();
    let flags = RenameFlags::default();
    one.rename("file", &below, "had several", flags).unwrap();
    let found = fs.stat("/zero/below/had several").unwrap();
    assert_eq!((found.ino, found.nlink), (ino, 1));
    assert_eq!(rank_of(&cluster, "/zero/below"), 1);
    // A client has it open.
    fs.listen(|_| {}).unwrap();
    let file = one.create("open", &NewFile::default()).unwrap();
    fs.open_as(&Cred::root(), file.ino, true).unwrap();
    one.rename("open", &open, "still open", flags).unwrap();
    fs.append_as(&Cred::root(), file.ino, 3).unwrap();
    fs.close_file(file.ino, true);
    let found = fs.stat("/zero/open/still open").unwrap();
    assert_eq!((found.ino, found.size), (file.ino, 3));
    // A pinned directory stays, so the other directory moves; with two pinned ones, none does.
    cluster.run(&["mds", "pin", "/zero/other", "0"]);
    let ino = link(&fs, "/zero/below/had several", "/zero/below", "third").unwrap();
    let other = fs.open_dir("/zero/other").unwrap();
    below.rename("had several", &other, "once more", flags).unwrap();
    are_one(&cluster, ["/zero/below/third", "/zero/other/once more"]);
    assert_eq!(fs.stat("/zero/other/once more").unwrap().ino, ino);
    assert_eq!(rank_of(&cluster, "/zero/below"), 0);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/zero/other/once more", "-"]), b"content");
    adds_up(&cluster);
}

#[test]
fn two_names_of_different_ranks_are_exchanged() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    cluster.run_with_input(&["cp", "-", "/zero/below/other"], b"other");
    let fs = cluster.mount();
    let [one, below] = ["/one", "/zero/below"].map(|path| fs.open_dir(path).unwrap());
    let flags = RenameFlags { exchange: true, ..RenameFlags::default() };
    let error = one.rename("absent", &below, "other", flags).unwrap_err();
    assert_eq!((error.errno, rank_of(&cluster, "/zero/below")), (Errno::NotFound, 0));
    one.rename("file", &below, "other", flags).unwrap();
    assert_eq!(cluster.run(&["cp", "/one/file", "-"]), b"other");
    assert_eq!(cluster.run(&["cp", "/zero/below/other", "-"]), b"content");
    cluster.run(&["mkdir", "/zero/pinned"]);
    cluster.run(&["mds", "pin", "/zero/pinned", "0"]);
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run_with_input(&["cp", "-", "/zero/pinned/stays"], b"stays");
    let pinned = fs.open_dir("/zero/pinned").unwrap();
    let error = one.rename("file", &pinned, "stays", flags).unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    assert!(error.to_string().contains("/zero/pinned is pinned"), "{error}");
    adds_up(&cluster);
}

#[test]
fn a_link_for_which_no_directory_can_move_is_refused_with_the_reasons() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    link(&fs, "/one/file", "/one", "second").unwrap();
    let error = link(&fs, "/one/file", "/zero/below", "third").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    // A directory inside a pinned one stays, too.
    assert!(error.to_string().contains("/zero is pinned"), "{error}");
    assert!(error.to_string().contains("several names already"), "{error}");
    // The other way round it is the same, and the root stays where it is.
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run_with_input(&["cp", "-", "/top"], b"content");
    let error = link(&fs, "/top", "/one", "third").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    assert!(error.to_string().contains("/one is pinned"), "{error}");
    assert!(error.to_string().contains("the root of the namespace"), "{error}");
    assert_eq!((rank_of(&cluster, "/zero/below"), rank_of(&cluster, "/one")), (0, 1));
    assert_eq!(fs.rank_of(fs.stat("/one").unwrap().ino), Rank(1));
}

#[test]
fn only_a_user_with_write_permission_moves_a_directory() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    let ino = fs.stat("/one/file").unwrap().ino;
    let zero = fs.stat("/zero").unwrap().ino;
    let open = cudele::AttrChange { mode: Some(0o777), ..cudele::AttrChange::default() };
    fs.set_attr(zero, &open).unwrap();
    let closed = cudele::AttrChange { mode: Some(0o755), ..cudele::AttrChange::default() };
    fs.set_attr(fs.stat("/one").unwrap().ino, &closed).unwrap();
    let other = cudele::Cred { uid: 12345, gid: 12345, groups: Vec::new() };
    let error = fs.as_user(&other).link(ino, zero, b"second").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
    assert_eq!(rank_of(&cluster, "/one"), 1);
}
