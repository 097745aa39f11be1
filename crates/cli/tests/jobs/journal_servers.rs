//! The journal tool on the journal of a metadata server: while it runs, after a crash, and that a
//! server starts from every result of the tool.

use std::fs;

use objstore::Expect;
use serde_json::{Value, json};

use crate::fixture::{Said, World};

const FILES: u64 = 60;
const SEGMENTS: &str = "journal/mds.0000/";

/// A cluster with a crashed server and a journal of several segments.
struct Lab {
    world: World,
}

impl Lab {
    fn new() -> Self {
        let world = World::with(&["--set", "segment_bytes_max=200", "--set", "segments_max=100"]);
        world.run(&["mkdir", "/d"]).done();
        let tree = world.path("tree");
        fs::create_dir_all(&tree).unwrap();
        for number in 0..FILES {
            fs::write(tree.join(format!("f{number:02}")), b"content").unwrap();
        }
        for part in ["/d/a", "/d/b", "/d/c"] {
            world.run(&["ingest", tree.to_str().unwrap(), part]).done();
        }
        world.kill_server();
        Self { world }
    }

    fn path(&self, name: &str) -> String {
        self.world.path(name).to_str().unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.world.run(&[&["journal"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.world.json(&[&["journal"], arguments].concat())
    }

    fn segments(&self) -> Vec<(String, Vec<u8>)> {
        let store = self.world.store();
        let names = store.list(SEGMENTS).unwrap();
        names.into_iter().map(|name| (name.clone(), store.get(&name).unwrap().0)).collect()
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let _ = self.world.store().put(name, bytes, Expect::Any).unwrap();
    }

    /// The segment that a server leaves that is killed while it creates one.
    fn begin_segment(&self) {
        self.put(&format!("{SEGMENTS}{:016x}", 1 << 20), b"");
    }

    fn count(&self, path: &str) -> u64 {
        self.world.run(&["ls", path]).done().out.lines().count() as u64
    }

    fn up(&self) {
        self.world.run(&["up"]).done();
    }
}

#[test]
fn an_export_goes_back_byte_by_byte_and_the_server_starts_from_it() {
    let lab = Lab::new();
    lab.begin_segment();
    let before = lab.segments();
    assert!(before.len() > 2, "several segments: {}", before.len());
    let (file, again) = (lab.path("mds.tar"), lab.path("again.tar"));
    lab.run(&["export", "mds.0", &file]).done();
    let store = lab.world.store();
    for (name, _) in &before {
        store.delete(name).unwrap();
    }
    lab.run(&["import", "--dry-run", &file, "mds.0"]).done();
    assert_eq!(lab.segments(), []);
    lab.run(&["import", &file, "mds.0"]).done();
    assert_eq!(lab.segments(), before);
    lab.run(&["export", "mds.0", &again]).done();
    assert_eq!(fs::read(&file).unwrap(), fs::read(&again).unwrap());
    assert_eq!(lab.json(&["import", &file, "mds.0"])["unchanged"], json!(before.len()));
    lab.up();
    assert_eq!(lab.count("/d/c"), FILES);
}

#[test]
fn the_journal_of_a_running_server_is_read_and_not_changed() {
    let lab = Lab::new();
    lab.up();
    let file = lab.path("mds.tar");
    lab.run(&["export", "mds.0", &file]).done();
    lab.run(&["event", "get", "mds.0", "--path", "/d/a/f07"]).done();
    lab.run(&["header", "get", "mds.0"]).done();
    let (segment, _) = lab.segments().pop().unwrap();
    for verb in [
        ["import", &file, "mds.0"].as_slice(),
        &["import", &file, &segment],
        &["reset", "mds.0", "--yes-i-really-mean-it", "--no-backup"],
        &["event", "splice", "mds.0", "--path", "/d", "--no-backup"],
        &["event", "splice", &segment, "--path", "/d", "--no-backup"],
        &["header", "set", "mds.0", "write_pos=100000"],
        &["header", "set", &segment, "epoch=9"],
    ] {
        let force = if verb[0] == "import" { &["--force"][..] } else { &[] };
        let said = lab.run(&[verb, force].concat());
        assert_eq!(said.code, 1, "{verb:?} {}", said.err);
        said.refused(&["EBUSY", "cudele down"]);
    }
}

#[test]
fn archives_that_are_cut_off_foreign_or_damaged_are_refused() {
    let lab = Lab::new();
    let (file, bad) = (lab.path("mds.tar"), lab.path("bad.tar"));
    lab.run(&["export", "mds.0", &file]).done();
    let whole = fs::read(&file).unwrap();
    for cut in [0, 100, 512, 2048, whole.len() - 1024, whole.len() - 1] {
        fs::write(&bad, &whole[..cut]).unwrap();
        lab.run(&["import", "--force", &bad, "mds.0"]).refused(&["EBADMSG", "byte"]);
    }
    lab.run(&["import", "--force", &file, "mds.1"]).refused(&["no segment of the journal"]);
    for at in (0..whole.len() - 1024).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&bad, &bytes).unwrap();
        let said = lab.run(&["--json", "import", "--dry-run", &bad, "mds.0"]);
        assert!(!said.err.contains("panicked"), "{at}: {}", said.err);
        if said.ok {
            // Bytes between the segments do not matter.
            let told: Value = serde_json::from_str(&said.out).unwrap();
            assert_eq!(told["unchanged"], json!(lab.segments().len()), "{at}: {told:#}");
        }
    }
}

#[test]
fn a_damaged_journal_is_recovered_and_the_server_starts() {
    let lab = Lab::new();
    lab.begin_segment();
    let segments = lab.segments();
    // One is damaged, and another gone.
    let (name, bytes) = &segments[1];
    let mut damaged = bytes.clone();
    damaged[90] ^= 1;
    lab.put(name, &damaged);
    lab.world.store().delete(&segments[2].0).unwrap();
    lab.world.run(&["up"]).refused(&["mds.0"]);
    let said = lab.run(&["inspect", "--mds"]);
    assert_eq!(said.code, 1);
    let file = lab.path("whole.tar");
    let told = lab.json(&["event", "recover", "mds.0", &file]);
    assert!(!told["damage"].as_array().unwrap().is_empty(), "{told:#}");
    lab.run(&["import", "--force", "--no-backup", &file, "mds.0"]).done();
    lab.run(&["inspect", "--mds"]).done();
    lab.up();
    assert_eq!(lab.count("/d/c"), FILES);
}

#[test]
fn events_of_a_server_are_spliced_out() {
    let lab = Lab::new();
    lab.begin_segment();
    let backup = lab.path("backup.tar");
    let told = lab.json(&[
        "event", "splice", "mds.0", "--path", "/d/b/f07", "--type", "create", "--backup", &backup,
    ]);
    assert_eq!(told["erased"], json!(1));
    assert_eq!(told["changed"].as_array().unwrap().len(), 1, "{told:#}");
    lab.up();
    assert_eq!((lab.count("/d/a"), lab.count("/d/b")), (FILES, FILES - 1));
    lab.world.run(&["stat", "/d/b/f07"]).refused(&["ENOENT"]);
}

#[test]
fn a_server_starts_from_a_journal_that_was_reset_and_gives_no_position_twice() {
    let lab = Lab::new();
    let next = lab.json(&["header", "get", "mds.0"])["write_pos"].as_u64().unwrap();
    let before = lab.segments();
    let planned = lab.json(&["reset", "mds.0", "--dry-run"]);
    assert_eq!(planned["next"], json!(next));
    assert!(planned["events"].as_u64().unwrap() > 3 * FILES);
    let said = lab.run(&["reset", "mds.0"]);
    assert_eq!(said.code, 2);
    said.refused(&["--yes-i-really-mean-it"]);
    assert_eq!(lab.run(&["reset", "/d"]).code, 2);
    assert_eq!(lab.segments(), before);
    let backup = lab.path("backup.tar");
    lab.run(&["reset", "mds.0", "--yes-i-really-mean-it", "--backup", &backup]).done();
    assert_eq!(lab.json(&["header", "get", "mds.0"])["write_pos"], json!(next));
    assert_eq!(lab.segments().len(), 1);
    lab.up();
    lab.world.run(&["mkdir", "/after"]).done();
    let told = lab.json(&["event", "get", "mds.0", "--type", "create"]);
    let first = told["events"][0]["seq"].as_u64().unwrap();
    assert!(first >= next, "{first} was given before {next}");
    // It stops and starts as ever.
    lab.world.run(&["down"]).done();
    lab.up();
    lab.world.run(&["stat", "/after"]).done();
    lab.world.kill_server();
    lab.up();
    lab.world.run(&["stat", "/after"]).done();
    // The kept journal is older than the later changes: positions continue all the same.
    lab.world.run(&["mkdir", "/later"]).done();
    lab.world.kill_server();
    let told = lab.json(&["import", "--force", "--no-backup", &backup, "mds.0"]);
    assert!(told["goes_on"].as_u64().unwrap() > next, "{told:#}");
    lab.up();
    lab.world.run(&["mkdir", "/last"]).done();
}

#[test]
fn positions_of_a_server_move_forward_only() {
    let lab = Lab::new();
    let told = lab.json(&["header", "get", "mds.0"]);
    let segments = told["segments"].as_array().unwrap();
    let (end, second) = (told["write_pos"].as_u64().unwrap(), &segments[1]["first"]);
    let set = |field: &str, flags: &[&str]| {
        // The lock of a process that has just ended may be seen for a moment longer.
        let start = std::time::Instant::now();
        loop {
            let said =
                lab.run(&[&["header", "set", "--no-backup", "mds.0", field], flags].concat());
            if !said.err.contains("EBUSY") || start.elapsed().as_secs() > 10 {
                return said;
            }
        }
    };
    assert_eq!(set(&format!("write_pos={}", end - 1), &[]).code, 2);
    set(&format!("write_pos={}", end + 500), &[]).done();
    let unconfirmed = set(&format!("trimmed_pos={second}"), &[]);
    assert_eq!(unconfirmed.code, 2, "{}", unconfirmed.err);
    set(&format!("trimmed_pos={second}"), &["--dry-run"]).done();
    assert_eq!(lab.segments().len(), segments.len() + 1);
    set(&format!("trimmed_pos={second}"), &["--yes-i-really-mean-it"]).done();
    let told = lab.json(&["header", "get", "mds.0"]);
    assert_eq!((&told["trimmed_pos"], &told["expire_pos"]), (second, second));
    assert_eq!(told["write_pos"], json!(end + 500));
    set("expire_pos=5", &[]).refused(&["trimmed_pos"]);
    lab.up();
    lab.world.run(&["mkdir", "/after"]).done();
    let told = lab.json(&["event", "get", "mds.0", "--path", "/after"]);
    assert!(told["events"][0]["seq"].as_u64().unwrap() >= end + 500);
}
