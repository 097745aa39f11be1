//! POSIX access control lists: programs see on a mount what they see on the file system of this
//! machine, and others see the same after a merge.

use std::path::Path;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, script, transcript};

const SCRIPT: &str = include_str!("lists.sh");

/// A cluster, if tests can mount here and the tools are there.
fn with_tools() -> Option<World> {
    let world = cluster()?;
    let found = ["setfacl", "getfacl", "setfattr", "setpriv"].iter().all(|tool| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|dir| dir.join(tool).is_file())
    });
    if !found {
        println!(
            "skipped: setfacl or getfacl is missing, `scripts/setup --check-tools` installs them"
        );
    }
    found.then_some(world)
}

fn run(at: &Path) -> String {
    std::fs::create_dir(at).unwrap();
    rustix::fs::chmod(at, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let (well, said) = transcript(&mut script(SCRIPT, &[at.as_os_str()]));
    assert!(well, "{said}");
    said
}

/// All lists below a directory.
fn all(at: &Path) -> String {
    let text = "cd \"$1\" && find . ! -type l | sort | xargs getfacl -n";
    let (well, said) = transcript(&mut script(text, &[at.as_os_str()]));
    assert!(well, "{said}");
    said
}

/// The transcript of the script on the file system of this machine.
fn expected(world: &World) -> String {
    let outside = world.path("outside");
    // Other users come here, too.
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(outside.parent().unwrap(), mode).unwrap();
    run(&outside)
}

#[test]
fn access_control_lists_work_as_on_a_local_file_system() {
    let Some(world) = with_tools() else { return };
    let expected = expected(&world);
    let (mount, other) = (Mount::new(&world), Mount::with(&world, &["-o", "wsync"]));
    let said = run(&mount.path("here"));
    assert!(said == expected, "on the mount:\n{said}\non this machine:\n{expected}");
    let said = run(&other.path("there"));
    assert!(said == expected, "with wsync:\n{said}\non this machine:\n{expected}");
    assert_eq!(all(&mount.path("there")), all(&other.path("there")));
    assert_eq!(all(&other.path("here")), all(&mount.path("here")));
    mount.end();
    other.end();
}

#[test]
fn access_control_lists_of_a_decoupled_subtree_hold_after_the_merge() {
    let Some(world) = with_tools() else { return };
    let expected = expected(&world);
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    let job = mount.path("job");
    std::fs::create_dir(&job).unwrap();
    let state = |value: &[u8]| {
        rustix::fs::setxattr(&job, "cudele.dir.state", value, rustix::fs::XattrFlags::empty())
            .unwrap();
    };
    let policy = b"batchfs";
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&job, "cudele.dir.policy", policy, flags).unwrap();
    // A default list from before the subtree was decoupled counts in it.
    let text = "setfacl -d -m u:1001:rwx \"$1\" && touch \"$1/before\"";
    assert_eq!(transcript(&mut script(text, &[job.as_os_str()])), (true, String::new()));
    state(b"decouple");
    std::fs::write(job.join("after"), b"").unwrap();
    let list = |name: &str| {
        let text = "getfacl -n --omit-header \"$1\"";
        transcript(&mut script(text, &[job.join(name).as_os_str()]))
    };
    assert_eq!(list("after"), list("before"));
    let text = "setfacl -k \"$1\"";
    assert_eq!(transcript(&mut script(text, &[job.as_os_str()])), (true, String::new()));
    let said = run(&job.join("inside"));
    assert!(said == expected, "decoupled:\n{said}\non this machine:\n{expected}");
    let inside = all(&job);
    state(b"merge");
    assert_eq!(all(&other.path("job")), inside);
    mount.end();
    other.end();
}

/// A job whose programs are preloaded, and one that begins in a directory with a default list: the
/// first goes over to the mount at the first list.
#[test]
fn access_control_lists_of_a_job_work_as_on_a_local_file_system() {
    let Some(world) = with_tools() else { return };
    let expected = expected(&world);
    let mount = Mount::new(&world);
    let inside = "mkdir -m 777 \"$1/inside\" && cd \"$1\" && exec sh -euc \"$2\" sh \"$1/inside\"";
    for preload in ["on", "off"] {
        let path = format!("/job-{preload}");
        let mut command =
            world.command(&["run", "--preload", preload, "--policy", "batchfs", &path, "--"]);
        command.args(["sh", "-euc", inside, "sh", "{}", SCRIPT]);
        let (well, said) = transcript(&mut command);
        assert!(well, "{said}");
        assert!(said.contains(&expected), "{preload}:\n{said}\non this machine:\n{expected}");
        let mut lists = script("cd \"$1\" && getfacl -n kept shared/d shared/moved", &[]);
        lists.arg(mount.path(&path[1..]).join("inside"));
        let mut outside = script("cd \"$1\" && getfacl -n kept shared/d shared/moved", &[]);
        outside.arg(world.path("outside"));
        assert_eq!(transcript(&mut lists), transcript(&mut outside), "{preload}");
    }
    let made = mount.path("made");
    let text = "mkdir \"$1\" && setfacl -d -m u:1001:rwx \"$1\" && touch \"$1/before\"";
    assert_eq!(transcript(&mut script(text, &[made.as_os_str()])), (true, String::new()));
    let text = "rm \"$1/before\"; touch \"$1/after\"; getfacl -n --omit-header \"$1/after\"";
    let mut command = world.command(&["run", "--policy", "batchfs", "/made", "--"]);
    command.args(["sh", "-euc", text, "sh", "{}"]);
    let (well, said) = transcript(&mut command);
    assert!(well && said.contains("user:1001:rwx\t#effective:rw-"), "{said}");
    mount.end();
}

/// An ingest keeps lists, and gives none to files that had none; an archive with lists as text
/// comes in without these.
#[test]
fn an_ingest_brings_access_control_lists_in() {
    let Some(world) = with_tools() else { return };
    let tree = world.path("tree");
    let text = "mkdir -p \"$1/d/e\" && echo 1 > \"$1/d/plain\" && setfacl -m u:1001:rw \"$1/d/plain\" && \
                echo 2 > \"$1/d/bare\" && setfacl -d -m u:1002:rwx \"$1\" \"$1/d\" && \
                echo 3 > \"$1/d/heir\" && cd \"$1\" && tar --acls -cf ../tree.tar .";
    assert_eq!(transcript(&mut script(text, &[tree.as_os_str()])), (true, String::new()));
    let mount = Mount::new(&world);
    for policy in ["posix", "batchfs"] {
        let to = format!("/in-{policy}");
        world.run(&["ingest", "--policy", policy, tree.to_str().unwrap(), &to]).done();
        assert_eq!(all(&mount.path(&to[1..])), all(&tree), "{policy}");
    }
    let archive = world.path("tree.tar");
    world.run(&["ingest", archive.to_str().unwrap(), "/of-archive"]).done();
    let read = |at: &Path| std::fs::read(at.join("d/heir")).unwrap();
    assert_eq!(read(&mount.path("of-archive")), read(&tree));
    mount.end();
}
