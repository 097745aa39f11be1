//! Golden files, the IndexFS example, mutations of valid objects, and the format page.

use expect_test::{Expect, expect};
use types::rng::Rng;
use types::{Attr, DirFragId, Errno, Error, FileType, Frag, Ino, Seq, Stripe, Timestamp};

use crate::*;

/// Formats rows as a test transcript states them.
pub(crate) fn transcript(bytes: &[u8]) -> String {
    let run = RunReader::open(bytes).expect("a valid run");
    let mut text = format!("{} {}\n", run.dirfrag(), run.id());
    let mut cursor = run.iter();
    while let Some(Row { name, value }) = cursor.next_row().expect("valid rows") {
        let what = match value {
            RowValue::Removed => "removed".to_owned(),
            RowValue::Remote { ino, file_type } => format!("{} {ino}", file_type.word()),
            RowValue::Inode(InodeRecord { attr, data, extra, version, .. }) => format!(
                "{ino} {letter}{mode:o} {version} size={size} data=\"{data}\" extra=\"{extra}\"",
                ino = attr.ino,
                letter = attr.file_type().letter(),
                mode = attr.mode & 0o7777,
                size = attr.size,
                data = data.escape_ascii(),
                extra = extra.escape_ascii(),
            ),
        };
        let stripe = match value {
            RowValue::Inode(record) if record.attr.stripe != Stripe::DEFAULT => {
                format!(" stripe={}", record.attr.stripe.bytes())
            }
            RowValue::Inode(_) | RowValue::Removed | RowValue::Remote { .. } => String::new(),
        };
        text += &format!("  {} -> {what}{stripe}\n", name.escape_ascii());
    }
    text
}

pub(crate) fn dirfrag(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

/// An ordinary file or directory, made at second `number` of 2023-11-14 22:13:20.
pub(crate) fn attr(number: u64, file_type: FileType) -> Attr {
    let time = Timestamp::from_parts(1_700_000_000 + number.cast_signed(), 0);
    Attr {
        ino: Ino(Ino::FIRST_FREE + number),
        mode: file_type.mode_bits() | if file_type == FileType::Directory { 0o755 } else { 0o644 },
        uid: 1000,
        gid: 100,
        nlink: if file_type == FileType::Directory { 2 } else { 1 },
        rdev: 0,
        stripe: Stripe::default(),
        size: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

pub(crate) fn inode(number: u64, file_type: FileType, data: &[u8]) -> RowValue<'_> {
    let attr = Attr { size: data.len() as u64, ..attr(number, file_type) };
    RowValue::Inode(InodeRecord { attr, version: Seq(number), data, ..InodeRecord::default() })
}

/// The inode of IndexFS's number: its root is 0, ours is 1, and users' numbers begin at 2^40.
fn indexfs_ino(number: u64) -> Ino {
    if number == 0 { Ino::ROOT } else { Ino(Ino::FIRST_FREE + number) }
}

type Children<'a> = &'a [(&'a str, RowValue<'a>)];

/// Its example table (I-03): a row `<parent, name> -> ino` is the row `name` of the parent's
/// fragment, so that the three parents are three runs.
fn indexfs_runs() -> Vec<(&'static str, Vec<u8>)> {
    let (file, dir) = (FileType::Regular, FileType::Directory);
    let table: [(&str, u64, Children<'_>); 3] = [
        ("i03-root.run", 0, &[("home", inode(1, dir, b""))]),
        (
            "i03-home.run",
            1,
            &[
                ("carol", inode(4, dir, b"")),
                ("alice", inode(2, dir, b"")),
                ("bob", inode(3, dir, b"")),
            ],
        ),
        ("i03-alice.run", 2, &[("book", inode(5, file, b"Call me Ishmael."))]),
    ];
    let encode = |(file, parent, children): (_, u64, Children<'_>)| {
        let mut rows = Rows::new();
        for (name, value) in children {
            rows.push(name.as_bytes(), *value);
        }
        (file, rows.into_run(dirfrag(indexfs_ino(parent)), RunId(1)))
    };
    table.into_iter().map(encode).collect()
}

/// A row of every kind and with every field, in a fragment of a split directory.
fn everything_run() -> Vec<u8> {
    let fragment = DirFragId { ino: Ino(77), frag: Frag { bits: 3, value: 0xa000_0000 } };
    let mut rows = Rows::new();
    let other = |nanoseconds| Timestamp(nanoseconds);
    let full = Attr {
        size: 1 << 40,
        uid: 0,
        gid: 0,
        nlink: 3,
        mtime: other(-1),
        ctime: other(i64::MAX),
        atime: other(i64::MIN),
        btime: other(0),
        ..attr(9, FileType::Regular)
    };
    rows.push(b"plain", inode(1, FileType::Regular, b""));
    let striped = Attr { stripe: Stripe::MIN, size: 1 << 20, ..attr(13, FileType::Regular) };
    rows.push(b"striped", RowValue::Inode(InodeRecord { attr: striped, ..InodeRecord::default() }));
    let record = InodeRecord {
        attr: full,
        version: Seq(1 << 50),
        data: b"d",
        extra: b"user.a=b",
        pointer: None,
    };
    rows.push(b"full", RowValue::Inode(record));
    let device = Attr { rdev: 0x0801, ..attr(10, FileType::BlockDevice) };
    rows.push(b"sda1", RowValue::Inode(InodeRecord { attr: device, ..InodeRecord::default() }));
    rows.push(b"link", inode(11, FileType::Symlink, b"../target"));
    rows.push(b"gone", RowValue::Removed);
    rows.push(b"shared", RowValue::Remote { ino: Ino(1 << 41), file_type: FileType::Regular });
    rows.push(b"\xff\xfe\n", inode(12, FileType::Fifo, b""));
    for number in 100..140 {
        rows.push(format!("part-{number:05}").as_bytes(), inode(number, FileType::Regular, b""));
    }
    rows.into_run(fragment, RunId(0x2a))
}

fn example_manifest() -> Manifest {
    let run = everything_run();
    let newest = RunInfo::of(&RunReader::open(&run).expect("valid"));
    let oldest = RunInfo { id: RunId(7), rows: 1000, removed: 0, bytes: 20_000, crc: 0xdead_beef };
    Manifest {
        dirfrag: DirFragId { ino: Ino(77), frag: Frag { bits: 3, value: 0xa000_0000 } },
        generation: 12,
        next_run: 0x2b,
        attached: Vec::new(),
        values: Vec::new(),
        runs: vec![newest, oldest],
        entries: 1040,
        subdirs: 3,
        counts_exact: false,
        position: types::Seq(0x1234),
        touched: crate::DirTouch::default(),
    }
}

/// A directory of one file, with its content in a value segment: run, segment and manifest.
fn columns() -> [(&'static str, Vec<u8>); 3] {
    let fragment = dirfrag(Ino(Ino::FIRST_FREE + 3));
    let text =
        b"Call me Ishmael. Some years ago - never mind how long precisely - having little or no \
        money in my purse, and nothing particular to interest me on shore, I thought I would sail \
        about a little and see the watery part of the world. It is a way I have of driving off the \
        spleen and regulating the circulation.";
    let mut rows = Rows::new();
    rows.push(b"loomings", inode(6, FileType::Regular, text));
    let (run, info, columns) = encode_columns(fragment, RunId(1), &rows);
    let mut manifest = Manifest { next_run: 2, entries: 1, ..Manifest::new(fragment) };
    let _none = manifest.replace_runs(0..0, Some((info, &columns)));
    let values = columns.segment.expect("it is long").0;
    [("columns.run", run), ("columns.values", values), ("columns.manifest", manifest.encode())]
}

/// The objects with golden bytes under `testdata/v4`; manifests have the lowest version that can
/// express them.
fn golden_objects() -> Vec<(&'static str, Vec<u8>)> {
    let mut objects = indexfs_runs();
    objects.extend(columns());
    objects.push(("everything.run", everything_run()));
    objects.push(("example.manifest", example_manifest().encode()));
    objects.push(("empty.manifest", Manifest::new(dirfrag(Ino::ROOT)).encode()));
    objects.push(("empty.run", Rows::new().into_run(dirfrag(Ino::ROOT), RunId(1))));
    objects
}

/// The bytes of a golden file of the newest version; written first if `UPDATE_EXPECT` is set.
#[allow(clippy::disallowed_methods, reason = "golden files are files")]
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = format!("{}/testdata/v4/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, bytes).expect("the golden file can be written");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn reads_v4() {
    for (name, bytes) in golden_objects() {
        let stored = golden(name, &bytes);
        assert_eq!(bytes, stored, "{name}: this build writes other bytes than version 4");
        if name.ends_with(".manifest") {
            let manifest = Manifest::decode(&stored).expect("a golden manifest");
            assert_eq!(manifest.encode(), stored);
        } else if name.ends_with(".run") {
            assert!(RunReader::open(&stored).is_ok(), "{name}");
        }
    }
    let stored = golden("example.manifest", &example_manifest().encode());
    assert_eq!(Manifest::decode(&stored), Ok(example_manifest()));
}

/// The bytes of older versions are read, with their old meaning.
#[allow(clippy::disallowed_methods, reason = "golden files are files")]
fn reads_older(version: u8, is_known: impl Fn(&str) -> bool) {
    for (name, newer) in golden_objects().into_iter().filter(|it| !it.0.starts_with("columns")) {
        let place = env!("CARGO_MANIFEST_DIR");
        let path = format!("{place}/testdata/v{version}/{name}.bin");
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        if name.ends_with(".manifest") {
            assert!(Manifest::decode(&stored).is_ok(), "{name}");
            continue;
        }
        assert_eq!(stored[8], version);
        let newer = transcript(&newer);
        let newer: Vec<_> = newer.lines().filter(|line| is_known(line)).collect();
        assert_eq!(transcript(&stored).lines().collect::<Vec<_>>(), newer, "{name}");
    }
}

#[test]
fn reads_v1() {
    // It had no stripes to write down.
    reads_older(1, |line| !line.contains("striped"));
}

#[test]
fn reads_v2() {
    reads_older(2, |_| true);
}

#[test]
fn reads_v3() {
    reads_older(3, |_| true);
}

#[test]
fn the_pointer_of_a_golden_row_leads_into_the_golden_segment() {
    let golden = |(name, bytes): (&str, Vec<u8>)| golden(name, &bytes);
    let [run, values, manifest] = columns().map(golden);
    let (run, manifest) = (RunReader::open(&run).unwrap(), Manifest::decode(&manifest).unwrap());
    manifest.values[0].check(run.dirfrag(), &values).unwrap();
    let Ok(Some(RowValue::Inode(InodeRecord { attr, pointer: Some(pointer), .. }))) =
        run.get(b"loomings")
    else {
        panic!("its content is elsewhere");
    };
    assert_eq!(attr.size, u64::from(pointer.data));
    let at = usize::try_from(pointer.offset).unwrap();
    let (data, extra) = pointer.read(run.dirfrag(), &values[at..]).unwrap();
    assert!(data.starts_with(b"Call me Ishmael.") && extra.is_empty());
}

#[test]
fn the_example_of_indexfs_is_three_runs() {
    let text: String =
        indexfs_runs().into_iter().map(|(name, bytes)| transcript(&golden(name, &bytes))).collect();
    let expected: Expect = expect![[r#"
        1.00000000.0 run.0000000000000001
          home -> ino:1099511627777 d755 seq:1 size=0 data="" extra=""
        10000000001.00000000.0 run.0000000000000001
          alice -> ino:1099511627778 d755 seq:2 size=0 data="" extra=""
          bob -> ino:1099511627779 d755 seq:3 size=0 data="" extra=""
          carol -> ino:1099511627780 d755 seq:4 size=0 data="" extra=""
        10000000002.00000000.0 run.0000000000000001
          book -> ino:1099511627781 -644 seq:5 size=16 data="Call me Ishmael." extra=""
    "#]];
    expected.assert_eq(&text);
}

#[test]
fn every_kind_of_row_is_read_back() {
    let bytes = everything_run();
    let text = transcript(&golden("everything.run", &bytes));
    let text: String = text
        .lines()
        .filter(|line| !line.contains("part-") || line.contains("part-00100"))
        .map(|line| format!("{line}\n"))
        .collect();
    let expected: Expect = expect![[r#"
        4d.a0000000.3 run.000000000000002a
          full -> ino:1099511627785 -644 seq:1125899906842624 size=1099511627776 data="d" extra="user.a=b"
          gone -> removed
          link -> ino:1099511627787 l644 seq:11 size=9 data="../target" extra=""
          part-00100 -> ino:1099511627876 -644 seq:100 size=0 data="" extra=""
          plain -> ino:1099511627777 -644 seq:1 size=0 data="" extra=""
          sda1 -> ino:1099511627786 b644 seq:0 size=0 data="" extra=""
          shared -> file ino:2199023255552
          striped -> ino:1099511627789 -644 seq:0 size=1048576 data="" extra="" stripe=65536
          \xff\xfe\n -> ino:1099511627788 p644 seq:12 size=0 data="" extra=""
    "#]];
    expected.assert_eq(&text);
}

/// Cuts, flips, inserts, removes or overwrites a few bytes.
fn mutate(numbers: &mut Rng, bytes: &mut Vec<u8>) {
    let at = numbers.index(bytes.len());
    match numbers.index(6) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << numbers.index(8),
        2 => bytes.insert(at, numbers.byte()),
        3 => drop(bytes.remove(at)),
        4 => {
            let end = bytes.len().min(at + 8);
            let noise = numbers.bits().to_le_bytes();
            bytes[at..end].copy_from_slice(&noise[..end - at]);
        }
        _ => {
            let end = bytes.len().min(at + numbers.index(64));
            let piece = bytes[at..end].to_vec();
            let to = numbers.index(bytes.len());
            bytes.splice(to..to, piece);
        }
    }
}

#[test]
fn mutated_objects_are_refused_and_never_panic() {
    let seed = 0x5eed_0001;
    let mut numbers = Rng::new(seed);
    let mut objects = golden_objects();
    objects.retain(|(name, _)| !name.ends_with(".values"));
    for case in 0..12_000 {
        let (name, original) = &objects[case % objects.len()];
        let mut bytes = original.clone();
        for _ in 0..=numbers.index(3) {
            if !bytes.is_empty() {
                mutate(&mut numbers, &mut bytes);
            }
        }
        fuzz::decode(&bytes);
        if bytes != *original {
            let accepted = match name.ends_with(".manifest") {
                true => Manifest::decode(&bytes).is_ok(),
                false => RunReader::open(&bytes).is_ok(),
            };
            assert!(!accepted, "{name}, case {case} of seed {seed:#x}");
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut numbers = Rng::new(0x5eed_0002);
    for _ in 0..4_000 {
        let length = numbers.index(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| numbers.byte() & 0x1f).collect();
        // Often enough the bytes get past the first check.
        if length > 12 {
            let magic = if numbers.index(2) == 0 { b"CUDLRUN1\x04\0" } else { b"CUDLMANI\x03\0" };
            bytes[..10].copy_from_slice(magic);
        }
        fuzz::decode(&bytes);
    }
}

#[test]
fn errors_name_object_place_and_remedy() {
    let (fragment, id) = (dirfrag(Ino(1)), RunId(5));
    let damaged = RunReader::open_as(fragment, id, b"CUDLRUN1").expect_err("truncated");
    let mut newer = everything_run();
    newer[8] = 5;
    let newer = RunReader::open(&newer).expect_err("unknown version").about("dirs/x/run.1");
    assert_eq!(Error::from(damaged.clone()).errno, Errno::BadMessage);
    let text = format!("{}\n{}\n", Error::from(damaged), Error::from(newer));
    let expected: Expect = expect![[r#"
        dirs/0000000000000001.00000000.0/run.0000000000000005: at byte 8: expected more bytes (EBADMSG); run `cudele fsck` to find what is damaged and what can be rebuilt
        dirs/x/run.1: at byte 8: expected a format version that this build reads (EBADMSG); read it with the release that wrote it, or a later one
    "#]];
    expected.assert_eq(&text);
}

/// The dump of the format page: 16 bytes a line.
fn hex(bytes: &[u8]) -> String {
    let line = |(number, line): (usize, &[u8])| {
        let text: String = line
            .iter()
            .map(|byte| if byte.is_ascii_graphic() { *byte as char } else { '.' })
            .collect();
        format!("{:04x}  {:<47}  {text}\n", number * 16, types::hex::spaced(line))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn the_example_of_the_format_page_is_true() {
    let page = include_str!("../../../../docs/formats/metastore.md");
    for name in ["i03-alice.run", "empty.manifest", "columns.run"] {
        let (_, bytes) =
            golden_objects().into_iter().find(|(object, _)| *object == name).expect("is one");
        assert!(page.contains(&hex(&bytes)), "the page should show {name}:\n{}", hex(&bytes));
    }
}
