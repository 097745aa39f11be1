//! The journal tool on journals of clients, whole and damaged.

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect;
use journal::segment::HEADER_BYTES;
use journal::{Block, Survey};
use serde_json::{Value, json};

use crate::fixture::{Said, World};
use crate::subtrees::journal_of;

const FILES: u64 = 200;

/// A subtree of files that are large enough for a journal of several blocks, and its journal.
fn ingested(world: &World) -> PathBuf {
    let tree = world.path("tree");
    fs::create_dir_all(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(format!("f{number:03}")), number.to_le_bytes().repeat(250)).unwrap();
    }
    // As deltafs, but other clients may look.
    let policy = world.path("policy.yml");
    let text = "consistency: append_client_journal\ndurability: local_persist\n";
    fs::write(&policy, format!("allocated_inodes: 1000\ninterfere_policy: allow\n{text}")).unwrap();
    let [tree, policy] = [&tree, &policy].map(|path| path.to_str().unwrap());
    world.run(&["ingest", "--policy", policy, tree, "/in"]).done();
    journal_of(world)
}

struct Lab {
    world: World,
    journal: PathBuf,
    whole: Vec<u8>,
}

impl Lab {
    fn new() -> Self {
        let world = World::new();
        let journal = ingested(&world);
        let whole = fs::read(&journal).unwrap();
        Self { world, journal, whole }
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

    /// A copy of the journal with something done to it.
    fn copy(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = self.whole.clone();
        change(&mut bytes);
        fs::write(self.world.path(name), bytes).unwrap();
        self.path(name)
    }
}

/// Where the blocks of a journal start, and its end.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let (mut all, mut at) = (vec![HEADER_BYTES], HEADER_BYTES);
    while at < bytes.len() {
        at = Block::read(bytes, at).unwrap().1;
        all.push(at);
    }
    all
}

/// Makes the first event of a block one of an unknown type, with a checksum that matches.
fn make_unknown(bytes: &mut [u8], block: usize, end: usize) {
    bytes[block + 28] = 99;
    let covered = [&bytes[block..block + 24], &bytes[block + 28..end]].concat();
    bytes[block + 24..block + 28].copy_from_slice(&journal::checksum(&covered).to_le_bytes());
}

fn creates(told: &Value) -> u64 {
    told["types"]["create"].as_u64().unwrap_or(0)
}

#[test]
fn an_export_is_the_journal_and_goes_back_byte_by_byte() {
    let lab = Lab::new();
    let (file, copy) = (lab.path("out"), lab.path("copy"));
    lab.run(&["export", "/in", &file]).done();
    assert_eq!(fs::read(&file).unwrap(), lab.whole);
    lab.run(&["export", "/in", &file]).refused(&["EEXIST", "--force"]);
    lab.run(&["import", "--dry-run", &file, &copy]).done();
    assert!(!Path::new(&copy).exists());
    lab.run(&["import", &file, &copy]).done();
    assert_eq!(fs::read(&copy).unwrap(), lab.whole);
    assert_eq!(lab.json(&["import", &file, &copy])["unchanged"], json!(1));

    let object = "journal/client/00000000000003e7.7.1.00000000";
    lab.run(&["import", &file, object]).done();
    lab.run(&["export", object, &lab.path("back")]).done();
    assert_eq!(fs::read(lab.path("back")).unwrap(), lab.whole);

    let other = lab.copy("other", |bytes| bytes.truncate(HEADER_BYTES));
    lab.run(&["import", &other, &copy]).refused(&["EEXIST", "--force"]);
    let backup = lab.path("backup");
    lab.run(&["import", "--force", "--backup", &backup, &other, &copy]).done();
    assert_eq!(fs::read(&copy).unwrap().len(), HEADER_BYTES);
    assert_eq!(fs::read(&backup).unwrap(), lab.whole);
    lab.run(&["export", "/nothing", &lab.path("x")]).refused(&["ENOENT"]);
    lab.run(&["export", "no such file", &lab.path("x")]).refused(&["ENOENT", "journal file"]);
}

#[test]
fn damaged_journals_are_refused_with_the_places_of_damage() {
    let lab = Lab::new();
    let starts = starts(&lab.whole);
    assert!(starts.len() > 4, "several blocks: {starts:?}");
    let flipped = lab.copy("flipped", |bytes| bytes[starts[1] + 100] ^= 1);
    let torn = lab.copy("torn", |bytes| bytes.truncate(bytes.len() - 1));
    let unknown = lab.copy("unknown", |bytes| make_unknown(bytes, starts[1], starts[2]));
    let header = lab.copy("header", |bytes| bytes[30] ^= 1);
    let nowhere = lab.path("nowhere");
    for (file, place) in [
        (&flipped, starts[1]),
        (&torn, starts[starts.len() - 2]),
        (&unknown, starts[1] + 28),
        (&header, 0),
    ] {
        let said = lab.run(&["import", file, &nowhere]);
        assert_eq!(said.code, 1);
        said.refused(&["EBADMSG", &format!("byte{} {place}", if place == 0 { "" } else { "s" })]);
        let said = lab.run(&["inspect", "--output", "json", file]);
        assert_eq!(said.code, 1, "{}", said.err);
        let told: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(told[0]["regions"][0]["offset"], json!(place), "{told:#}");
    }
    assert!(!Path::new(&nowhere).exists());
    lab.run(&["import", "--force", &flipped, &nowhere]).done();
    assert_eq!(fs::read(&nowhere).unwrap(), fs::read(&flipped).unwrap());
}

#[test]
fn recovery_saves_the_intact_blocks_of_a_damaged_journal() {
    let lab = Lab::new();
    let starts = starts(&lab.whole);
    let in_block = |at: usize| u64::from(Block::read(&lab.whole, starts[at]).unwrap().0.count);
    let last = starts.len() - 2;
    let broken = lab.copy("broken", |bytes| {
        bytes[starts[1] + 100] ^= 1;
        make_unknown(bytes, starts[2], starts[3]);
        bytes.truncate(bytes.len() - 1);
    });
    let said = lab.run(&["event", "get", &broken, "--output", "json"]);
    assert_eq!(said.code, 1);
    said.refused(&["EBADMSG", "2 more", "recover"]);
    let skipped = lab.json(&["event", "get", &broken, "--skip-damaged"]);
    let new = lab.path("new");
    let told = lab.json(&["event", "recover", &broken, &new]);
    let kinds: Vec<_> =
        told["damage"].as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["hole", "hole", "torn"]);
    assert_eq!(told["damage"][0]["offset"], json!(starts[1]));
    assert_eq!(told["damage"][0]["end"], json!(starts[2]));
    lab.run(&["inspect", &new]).done();
    let lost = in_block(1) + in_block(2) + in_block(last);
    assert_eq!(told["events"], json!(Survey::of(&lab.whole).unwrap().events - lost));
    let recovered = lab.json(&["event", "get", &new]);
    assert_eq!(creates(&recovered), creates(&skipped));
    // The same in its place.
    let before = fs::read(&broken).unwrap();
    lab.run(&["event", "splice", &broken, "--type", "link"]).refused(&["--damaged"]);
    lab.run(&["event", "splice", &broken, "--damaged", "--dry-run"]).done();
    assert_eq!(fs::read(&broken).unwrap(), before);
    let backup = lab.path("backup");
    lab.run(&["event", "splice", &broken, "--damaged", "--backup", &backup]).done();
    assert_eq!(fs::read(&backup).unwrap(), before);
    assert_eq!(fs::read(&broken).unwrap(), fs::read(&new).unwrap());
}

#[test]
fn a_recovered_journal_can_be_merged() {
    let lab = Lab::new();
    let starts = starts(&lab.whole);
    let mut bytes = lab.whole.clone();
    bytes[starts[1] + 100] ^= 1;
    fs::write(&lab.journal, &bytes).unwrap();
    lab.world.run(&["merge", "/in"]).refused(&["EBADMSG"]);
    lab.run(&["event", "splice", "/in", "--damaged", "--no-backup"]).done();
    lab.world.run(&["merge", "/in"]).done();
    lab.world.run(&["stat", "/in/f000"]).done();
    lab.world.run(&["stat", &format!("/in/f{:03}", FILES - 1)]).done();
}

#[test]
fn events_are_got_by_filters_that_all_must_hold() {
    let lab = Lab::new();
    let list = lab.run(&["event", "get", "/in", "--range", "1..3"]).done();
    let line = |line: &str| line.trim().split(" inode ").next().unwrap().to_owned() + "\n";
    let without_numbers: String = list.out.lines().map(line).collect();
    let [uid, gid] = [rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()];
    let owner = format!("{uid}:{gid}");
    expect![[r#"
               1 create    /in/f000  -0644 OWNER 2000 bytes
               2 create    /in/f001  -0644 OWNER 2000 bytes
    "#]]
    .assert_eq(&without_numbers.replace(&owner, "OWNER"));
    let all = lab.json(&["event", "get", "/in"]);
    assert_eq!(creates(&all), FILES);
    let event = &all["events"][7];
    let (parent, ino) = (event["parent"].to_string(), event["ino"].to_string());
    let matching = |filter: &[&str]| {
        lab.json(&[&["event", "get", "/in"], filter].concat())["matching"].as_u64().unwrap()
    };
    assert_eq!(matching(&["--frag", &parent, "--type", "create"]), FILES);
    assert_eq!(matching(&["--frag", &format!("{parent}.0"), "--dname", "f007"]), 1);
    assert_eq!(matching(&["--frag", "12345"]), 0);
    assert_eq!(matching(&["--inode", &ino, "--type", "create"]), 1);
    assert_eq!(matching(&["--path", "/in/f007", "--type", "create"]), 1);
    assert_eq!(matching(&["--path", "/in/f007", "--range", "100.."]), 0);
    assert_eq!(matching(&["--client", "424242"]), 0);
    for (wrong, word) in [
        (["--dname", "a"].as_slice(), "--frag"),
        (&["--frag", "1.3"], "every directory has one"),
        (&["--frag", "x"], "no inode number"),
        (&["--type", "x"], "no type of event"),
        (&["--range", "5"], "A..B"),
        (&["--output", "binary"], "--to"),
    ] {
        let said = lab.run(&[&["event", "get", "/in"], wrong].concat());
        assert_eq!(said.code, 2, "{wrong:?}");
        said.refused(&[word]);
    }
    let part = lab.path("part");
    let filter = ["--type", "create", "--range", "50..60", "--output", "binary", "--to", &part];
    lab.run(&[&["event", "get", "/in"], filter.as_slice()].concat()).done();
    let told = lab.json(&["event", "get", &part]);
    let seqs: Vec<_> =
        told["events"].as_array().unwrap().iter().map(|e| e["seq"].clone()).collect();
    assert_eq!(seqs, (50..60).map(|seq| json!(seq)).collect::<Vec<_>>());
    lab.run(&["inspect", &part]).done();
}

#[test]
fn spliced_out_events_are_not_merged() {
    let lab = Lab::new();
    lab.run(&["event", "splice", "/in"]).refused(&["erase everything"]);
    let told = lab.json(&["event", "splice", "/in", "--path", "/in/f007", "--dry-run"]);
    assert_eq!(told["erased"], json!(1));
    assert_eq!(fs::read(&lab.journal).unwrap(), lab.whole);
    let erased = lab.json(&["event", "splice", "/in", "--path", "/in/f007", "--no-backup"]);
    assert_eq!(told["erased"], erased["erased"]);
    let (old, new) = (Survey::of(&lab.whole).unwrap().next_seq, fs::read(&lab.journal).unwrap());
    assert_eq!(Survey::of(&new).unwrap().next_seq, old, "positions stay");
    lab.world.run(&["merge", "/in"]).done();
    lab.world.run(&["stat", "/in/f007"]).refused(&["ENOENT"]);
    let left = lab.world.run(&["ls", "/in"]).done().out.lines().count() as u64;
    assert_eq!(left, FILES - 1);
}

#[test]
fn a_spliced_journal_in_the_store_is_merged_and_merged_again_by_recovery() {
    let world = World::new();
    let (tree, policy) = (world.path("tree"), world.path("policy.yml"));
    fs::create_dir_all(&tree).unwrap();
    for number in 0..20 {
        // The larger ones are events of two kinds.
        fs::write(tree.join(format!("f{number:02}")), vec![1; 1000 + number % 2 * 9000]).unwrap();
    }
    let text = "consistency: append_client_journal\ndurability: global_persist\n";
    fs::write(&policy, format!("allocated_inodes: 1000\n{text}")).unwrap();
    let [tree, policy] = [&tree, &policy].map(|path| path.to_str().unwrap());
    world.run(&["ingest", "--policy", policy, tree, "/in"]).done();
    for name in ["f06", "f07"] {
        let path = format!("/in/{name}");
        let splice = ["journal", "event", "splice", "/in", "--no-backup", "--path", &path];
        assert!(world.json(&splice)["erased"].as_u64().unwrap() > 0);
    }
    world.run(&["merge", "/in"]).done();
    for again in [false, true] {
        if again {
            world.kill_server();
            world.run(&["up"]).done();
        }
        assert_eq!(world.run(&["ls", "/in"]).done().out.lines().count(), 18);
        let facts = world.run(&["ls", "-l", "/in/f09"]).done();
        assert!(facts.out.contains("10000"), "{}", facts.out);
        world.run(&["stat", "/in/f07"]).refused(&["ENOENT"]);
    }
}

#[test]
fn a_damaged_header_is_written_anew() {
    let lab = Lab::new();
    let told = lab.json(&["header", "get", "/in"]);
    let segment = &told["segments"][0];
    assert_eq!((&told["trimmed_pos"], &segment["first"]), (&json!(1), &json!(1)));
    assert_eq!(told["write_pos"], segment["next"]);
    let broken = lab.copy("broken", |bytes| bytes[25] ^= 1);
    let said = lab.run(&["header", "get", &broken]);
    assert!(said.out.contains("it claims: client"), "{}", said.out);
    said.refused(&["header set"]);
    lab.run(&["event", "recover", &broken, &lab.path("x")]).refused(&["header set", "at byte 0"]);
    let field = |name: &str| format!("{name}={}", segment[name]);
    let fields = ["client", "subtree", "epoch", "first"].map(field);
    let set =
        |fields: &[&str]| lab.run(&[&["header", "set", "--no-backup", &broken], fields].concat());
    let [client, subtree, epoch, first] = fields.each_ref().map(String::as_str);
    set(&[client, subtree, first]).refused(&["epoch"]);
    set(&[client, subtree, epoch, "first=7"]).refused(&["the first event is event 1"]);
    set(&[client, subtree, epoch, first]).done();
    assert_eq!(fs::read(&broken).unwrap(), lab.whole);
    set(&["first=5"]).refused(&["positions of events cannot be changed"]);
    set(&["write_pos=5"]).refused(&["mds.0"]);
    assert_eq!(set(&["nonsense=5"]).code, 2);
    assert_eq!(fs::read(&broken).unwrap(), lab.whole);
    set(&["epoch=77"]).done();
    assert_eq!(lab.json(&["header", "get", &broken])["segments"][0]["epoch"], json!(77));
}

#[test]
fn chosen_events_are_applied_and_the_rest_later() {
    let lab = Lab::new();
    let apply = ["event", "apply", "/in", "--name", "f00*"];
    let planned = lab.json(&[apply.as_slice(), &["--dry-run"]].concat());
    assert_eq!(planned["created"], json!(10), "{planned:#}");
    lab.world.run(&["stat", "/in/f007"]).refused(&["ENOENT"]);
    let applied = lab.json(&apply);
    assert_eq!((&applied["created"], &applied["rejected"]), (&json!(10), &json!(0)));
    lab.world.run(&["stat", "/in/f007"]).done();
    lab.world.run(&["stat", "/in/f010"]).refused(&["ENOENT"]);
    // Another selection does not count as applied already.
    lab.run(&["event", "apply", "/in", "--range", "1..31"]).done();
    lab.world.run(&["stat", "/in/f010"]).done();
    lab.world.run(&["merge", "/in"]).done();
    let all = lab.world.run(&["ls", "/in"]).done().out.lines().count() as u64;
    assert_eq!(all, FILES);
    lab.run(&["event", "apply", "mds.0"]).refused(&["mds.0"]);
    let foreign = lab.copy("foreign", |_| ());
    lab.run(&["header", "set", "--no-backup", &foreign, "client=4242"]).done();
    lab.run(&["event", "apply", &foreign]).refused(&["has not decoupled"]);
}

#[test]
fn bytes_that_are_no_journal_are_refused_by_every_verb() {
    let lab = Lab::new();
    let file = lab.path("bytes");
    let to = lab.path("to");
    for bytes in [&b""[..], b"CUDLJRN1", &[0; 600], &lab.whole[..51], b"CUDLJRN1\x02\x00tail of it"]
    {
        fs::write(&file, bytes).unwrap();
        for verb in [
            ["inspect", &file, "--type", "create"].as_slice(),
            &["import", &file, &to],
            &["import", &file, "mds.0"],
            &["header", "get", &file],
            &["event", "get", &file],
            &["event", "splice", &file, "--damaged"],
            &["event", "apply", &file],
            &["event", "recover", &file, &to],
        ] {
            let said = lab.run(verb);
            assert_eq!(said.code, 1, "{verb:?} {}", said.err);
            assert!(!said.err.contains("panicked"), "{verb:?} {}", said.err);
            said.refused(&["byte"]);
        }
        let out = lab.path("out");
        lab.run(&["export", "--force", &file, &out]).done();
        assert_eq!(fs::read(&out).unwrap(), bytes, "an export is made of anything");
    }
}
