//! Programs in a branch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use types::acl;

use crate::cluster::{Cluster, text};
use crate::{branch, store, tree, write};

/// Whether this machine can mount. Prints a line if it cannot.
pub(crate) fn can_mount() -> bool {
    if std::env::var_os("CUDELE_TESTS_WITHOUT_FUSE").is_some() {
        println!("not run: CUDELE_TESTS_WITHOUT_FUSE is set");
        return false;
    }
    true
}

/// The operations of programs on a tree that a mount must support.
const SCRIPT: &str = r#"
set -e
echo more >> old
sed -i s/base/changed/ dir/b
mkdir -p new/below/deep
for i in 1 2 3 4 5 6 7 8 9; do echo "file $i" > new/f$i; done
mv dir/a new/moved
mv new/f1 new/f2
rm new/f3
ln -s ../old new/link
ln new/f4 new/second
chmod 700 new/below
chmod 600 old
dd if=/dev/zero of=large bs=65536 count=20 2>/dev/null
printf end >> large
dd if=/dev/urandom of=/dev/null bs=1 count=1 2>/dev/null
cp large copy
printf middle | dd of=copy bs=1 seek=70000 conv=notrunc 2>/dev/null
truncate -s 100000 large
truncate -s 5 new/f5
cp -r new again
rm -r again/below
mv again renamed
exec 3<> held
echo written >&3
rm held
echo on >&3
cat <&3 > /dev/null
exec 3>&-
touch -d '2020-01-02 03:04:05 UTC' new/f6
mv new/f7 old2
echo over > old2.tmp
mv old2.tmp old2
tar cf - new | tar xf - -C renamed
"#;

/// Everything about a tree that must be the same.
const LOOK: &str = r#"
find . ! -path . -printf '%y %m %p %l\n' | sort
find . -type f -printf '%s %n %p\n' | sort
find . -type f | sort | xargs sha1sum
stat -c '%Y' new/f6
"#;

#[test]
fn programs_work_in_a_branch_as_on_any_file_system() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::up();
    let local = cluster.home.join("local");
    std::fs::create_dir_all(local.join("dir")).unwrap();
    cluster.run(&["mkdir", "-p", "/proj/dir"]);
    for (name, content) in [("old", "base\n"), ("dir/a", "base\n"), ("dir/b", "base base\n")] {
        std::fs::write(local.join(name), content).unwrap();
        write(&cluster, &format!("/proj/{name}"), content);
    }
    cluster.run(&["branch", "create", "b", "/proj"]);
    cluster.run(&["down"]);
    let sh = |script: &str| {
        let output = Command::new("sh").args(["-c", script]).current_dir(&local).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let store = store(&cluster);
    let run = |script: &str| {
        cluster.say(&["run", "--store", &store, "--branch", "b", "-C", "--", "sh", "-c", script])
    };
    sh(SCRIPT);
    run(SCRIPT);
    assert_eq!(run(LOOK), sh(LOOK));
    // A second run, on the results of the first.
    let again = "mkdir second; cp -r new renamed second; echo x >> copy; echo y > new/f8; rm large";
    sh(again);
    run(again);
    assert_eq!(run(LOOK), sh(LOOK));
    // The trunk has nothing of it until it is merged, and then all.
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/proj/old", "-"]), b"base\n");
    cluster.run(&["publish", "b"]);
    cluster.run(&["branch", "merge"]);
    let merged = cluster.home.join("merged");
    std::fs::create_dir(&merged).unwrap();
    cluster.run(&["cp", "-rp", "/proj", &format!("local:{}", merged.display())]);
    let sums = "find . -type f | sort | xargs sha1sum";
    let output =
        Command::new("sh").args(["-c", sums]).current_dir(merged.join("proj")).output().unwrap();
    assert_eq!(text(&output.stdout), sh(sums));
}

/// Lists of the snapshot are seen, inherited and kept by a copy; those that are set in the branch
/// are there in the next run, and in the namespace after the merge.
#[test]
fn access_control_lists_of_a_branch_are_kept_and_merged() {
    if !can_mount() || Command::new("getfacl").arg("--version").output().is_err() {
        return;
    }
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/dir/sub"]);
    write(&cluster, "/proj/dir/f", "base\n");
    let fs = cluster.mount();
    // `u::rwx,u:1001:rwx,g::r-x,m::rwx,o::---`
    let list = acl::linux_form(&[
        (acl::USER_OBJ, 7, acl::NO_NUMBER),
        (acl::USER, 7, 1001),
        (acl::GROUP_OBJ, 5, acl::NO_NUMBER),
        (acl::MASK, 7, acl::NO_NUMBER),
        (acl::OTHER, 0, acl::NO_NUMBER),
    ]);
    for (path, name) in
        [("/proj/dir/f", "access"), ("/proj/dir", "access"), ("/proj/dir", "default")]
    {
        let name = format!("system.posix_acl_{name}");
        fs.set_xattr(fs.stat(path).unwrap().ino, name.as_bytes(), Some(&list)).unwrap();
    }
    drop(fs);
    cluster.run(&["branch", "create", "b", "/proj"]);
    let store = store(&cluster);
    let run = |script: &str| {
        cluster.say(&["run", "--store", &store, "--branch", "b", "-C", "--", "sh", "-c", script])
    };
    let named = "user:1001:rwx";
    let get = |path: &str| run(&format!("getfacl -n --omit-header {path}"));
    assert!(get("dir/f").contains(named) && get("dir").contains("default:user:1001:rwx"));
    assert!(!get("dir/sub").contains("1001"), "it is older than the list");
    let long = "head -c 200000 /dev/zero > dir/f; echo x > dir/new; setfacl -m u:1002:r dir/sub";
    run(long);
    assert!(get("dir/f").contains(named) && get("dir/f").contains("mask::rwx"), "the copy has it");
    assert!(get("dir/new").contains("user:1001:rwx\t#effective:rw-"));
    assert!(get("dir/sub").contains("user:1002:r--"));
    cluster.run(&["publish", "b"]);
    cluster.run(&["branch", "merge"]);
    let fs = cluster.mount();
    for path in ["/proj/dir/f", "/proj/dir/new", "/proj/dir/sub"] {
        let ino = fs.stat(path).unwrap().ino;
        let list = fs.as_user(&types::Cred::root()).xattr(ino, b"system.posix_acl_access").unwrap();
        assert_eq!(list[12..14], [2, 0], "{path} has a named user");
    }
}

#[test]
fn a_branch_drops_the_changes_of_a_failed_program_on_request() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/proj"]);
    cluster.run(&["branch", "create", "b", "/proj"]);
    let (before, discard) = (tree(&cluster, "b"), "--on-failure=discard");
    let said = cluster.command(&[
        "run",
        "--branch",
        "b",
        discard,
        "-C",
        "--",
        "sh",
        "-c",
        "touch a; exit 7",
    ]);
    let output = { said }.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(tree(&cluster, "b"), before);
    // Unless the program has made sure that it stays.
    let script = "echo kept > kept; sync kept; touch not; exit 7";
    let mut command =
        cluster.command(&["run", "--branch", "b", discard, "-C", "--", "sh", "-c", script]);
    assert_eq!(command.output().unwrap().status.code(), Some(7));
    assert_eq!(tree(&cluster, "b"), ["/proj", "/proj/kept"]);
    assert_eq!(branch(&cluster, &["cat", "b", "/proj/kept"]), "kept\n");
}

/// The files below a directory of at least this length.
fn long_files(dir: &Path, bytes: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(long_files(&path, bytes));
        } else if path.metadata().unwrap().len() >= bytes {
            found.push(path);
        }
    }
    found
}

/// A pipe in place of an object: the store does not answer until a writer opens the pipe.
#[test]
fn a_program_that_waits_for_the_store_of_a_branch_ends_at_once() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/proj"]);
    write(&cluster, "/proj/large", &"content ".repeat(50_000));
    cluster.run(&["branch", "create", "b", "/proj"]);
    cluster.run(&["down"]);
    let objects = long_files(&cluster.dir.join("store/objects"), 400_000);
    let [object] = objects.try_into().unwrap();
    let saved = cluster.home.join("saved");
    fs::rename(&object, &saved).unwrap();
    mknodat(CWD, &object, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (store, code) = (store(&cluster), cluster.home.join("code"));
    let script = format!(
        "timeout -s INT 1 cat large > /dev/null; echo $? > {0}.tmp; mv {0}.tmp {0}",
        code.display()
    );
    let arguments = ["run", "--store", &store, "--branch", "b", "-C", "--", "sh", "-c", &script];
    let mut job = cluster.command(&arguments).spawn().unwrap();
    let start = Instant::now();
    while !code.exists() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = fs::read_to_string(&code);
    // Opening for both never blocks, and releases the readers in any case.
    let pipe = fs::File::options().read(true).write(true).open(&object).unwrap();
    fs::rename(&saved, &object).unwrap();
    drop(pipe);
    assert!(job.wait().unwrap().success());
    assert_eq!(ended.unwrap(), "124\n", "`timeout` says that the signal ended the program");
}
