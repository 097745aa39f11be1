use types::{Attr, Frag};

use super::*;
use crate::tests::dirfrag;
use crate::{Manifest, Rows, RunEnds, RunReader, merge};

const OWN: InoRange = InoRange { start: 100, end: 200 };

fn file(ino: u64) -> InodeRecord<'static> {
    let mode = FileType::Regular.mode_bits() | 0o644;
    InodeRecord {
        attr: Attr { ino: Ino(ino), mode, nlink: 1, ..Attr::default() },
        ..InodeRecord::default()
    }
}

fn attached(run: RunId) -> Attached {
    Attached { run, position: Seq(7), ranges: vec![OWN] }
}

/// A directory of one run that a client wrote, over one of the server's.
fn stored(own: &Rows, clients: Rows) -> (Manifest, Vec<Vec<u8>>) {
    let dir = dirfrag(Ino(9));
    let id = RunId::of_client(Ino(100), 0);
    let objects = vec![clients.into_run(dir, id), own.clone().into_run(dir, RunId(1))];
    let runs = objects.iter().map(|run| RunInfo::of(&RunReader::open(run).unwrap())).collect();
    let attached = vec![attached(id)];
    (Manifest { runs, attached, next_run: 2, ..Manifest::new(dir) }, objects)
}

fn names(rows: &Rows) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(row.name).into_owned()).collect()
}

#[test]
fn rows_of_a_client_count_only_with_its_own_numbers_and_as_what_it_may_write() {
    let mut own = Rows::new();
    own.push(b"theirs", RowValue::Inode(file(5)));
    own.push(b"kept", RowValue::Inode(file(6)));
    let long = vec![b'x'; INLINE_BYTES_MAX + 1];
    let mut forged = Rows::new();
    let attr = Attr { nlink: 4_000_000_000, ..file(100).attr };
    let proud = InodeRecord { attr, version: Seq(u64::MAX), ..file(100) };
    forged.push(b"good", RowValue::Inode(proud));
    forged.push(b"theirs", RowValue::Inode(file(1)));
    forged.push(b"kept", RowValue::Removed);
    forged.push(b"remote", RowValue::Remote { ino: Ino(101), file_type: FileType::Regular });
    forged.push(b"policy", RowValue::Inode(InodeRecord { extra: b"\x01", ..file(102) }));
    forged.push(b"long", RowValue::Inode(InodeRecord { data: &long, ..file(103) }));
    let attr = Attr { mode: 0o170_000, ..file(104).attr };
    forged.push(b"typeless", RowValue::Inode(InodeRecord { attr, ..file(104) }));
    let attr = Attr { size: u64::MAX, ..file(105).attr };
    forged.push(b"endless", RowValue::Inode(InodeRecord { attr, ..file(105) }));
    forged.push(b"beyond", RowValue::Inode(file(200)));
    let (manifest, objects) = stored(&own, forged);
    let rows = merge(&manifest, &objects).unwrap();
    assert_eq!(names(&rows), ["good", "kept", "theirs"]);
    let values: Vec<_> = rows.iter().map(|row| row.value).collect();
    assert_eq!(values[0], RowValue::Inode(InodeRecord { version: Seq(7), ..file(100) }));
    assert_eq!(values[2], RowValue::Inode(file(5)), "what it had no right to hides nothing");
}

#[test]
fn rows_behind_a_forged_checksum_end_the_run_of_a_client() {
    let mut own = Rows::new();
    own.push(b"kept", RowValue::Inode(file(6)));
    let mut rows = Rows::new();
    rows.push(b"a", RowValue::Inode(file(100)));
    rows.push(b"b", RowValue::Inode(file(101)));
    let (mut manifest, mut objects) = stored(&own, rows);
    // The second name becomes one that is out of order, with every checksum right.
    let run = &mut objects[0];
    let at = run.windows(3).position(|bytes| bytes == [0, 1, b'b']).unwrap();
    run[at + 2] = b'A';
    crate::run::tests::forge(run);
    manifest.runs[0] = RunInfo::of(&RunReader::open(run).unwrap());
    assert_eq!(names(&merge(&manifest, &objects).unwrap()), ["a", "kept"]);
    // Of a run that a server wrote that is an error.
    let mut servers = objects[0].clone();
    servers[28..36].copy_from_slice(&1u64.to_le_bytes());
    crate::run::tests::forge(&mut servers);
    let info = RunInfo::of(&RunReader::open(&servers).unwrap());
    let manifest = Manifest { runs: vec![info], next_run: 2, ..Manifest::new(dirfrag(Ino(9))) };
    assert!(merge(&manifest, &[servers]).is_err());
}

#[test]
fn a_manifest_with_attached_runs_survives_the_round_trip_and_notices_every_change() {
    let mut rows = Rows::new();
    rows.push(b"a", RowValue::Inode(file(100)));
    let (manifest, _) = stored(&rows, rows.clone());
    let mut bytes = manifest.encode();
    assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&manifest));
    for cut in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    // The same with checksums that are right: no panic, and one encoding.
    let body = bytes.len() - 4;
    for at in 0..body {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut forged = bytes.clone();
            forged[at] = byte;
            let crc = crc32c(&forged[..body]).to_le_bytes();
            forged[body..].copy_from_slice(&crc);
            if let Ok(read) = Manifest::decode(&forged) {
                assert_eq!(read.encode(), forged, "byte {at}");
            }
        }
    }
}

#[test]
fn a_run_of_a_client_is_in_a_manifest_only_with_what_is_known_of_it() {
    let mut rows = Rows::new();
    rows.push(b"a", RowValue::Inode(file(100)));
    let (manifest, _) = stored(&rows, rows.clone());
    let forge = |change: &dyn Fn(&mut Manifest)| {
        let mut forged = manifest.clone();
        change(&mut forged);
        // Encoded by hand, because the encoder asserts the rules that the decoder checks.
        std::panic::catch_unwind(|| forged.encode()).is_err()
    };
    assert!(forge(&|manifest| manifest.attached.clear()));
    assert!(forge(&|manifest| manifest.attached[0].run = RunId(1)));
    assert!(forge(&|manifest| manifest.runs.truncate(0)));
}

fn list() -> RunList {
    let run =
        RunInfo { id: RunId::of_client(Ino(100), 0), rows: 5, removed: 0, bytes: 999, crc: 3 };
    let dir = |ino| DirRun { dir: Ino(ino), run, subdirs: 1, touched: Timestamp(-4) };
    let dirs = vec![dir(100), dir(1 << 40)];
    RunList { journal: 77, last: Seq(12), dirs, proof: Some([7; 32]) }
}

#[test]
fn lists_survive_the_round_trip_and_notice_every_change() {
    let mut bytes = list().encode();
    let whole = bytes.len();
    bytes.extend_from_slice(b"journal");
    assert_eq!(RunList::decode(&bytes), Ok((list(), &b"journal"[..])));
    for cut in 0..whole {
        assert!(RunList::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..whole * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(RunList::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn the_ends_of_a_run_tell_what_it_is_and_notice_every_change() {
    let fragment = types::DirFragId { ino: Ino(9), frag: Frag::WHOLE };
    let mut rows = Rows::new();
    for number in 0..3_000 {
        rows.push(format!("file-{number:05}").as_bytes(), RowValue::Inode(file(100 + number)));
    }
    rows.push(b"gone", RowValue::Removed);
    let run = rows.into_run(fragment, RunId(3));
    let length = run.len() as u64;
    let (header, footer) =
        (&run[..RunEnds::HEADER_BYTES], &run[run.len() - RunEnds::FOOTER_BYTES..]);
    let tail = RunEnds::tail_bytes(length, footer).unwrap();
    assert!(tail < 200, "{tail} bytes for a few blocks");
    let tail = &run[run.len() - tail..];
    let ends = RunEnds { id: RunId(3), dirfrag: fragment, rows: 3_001, removed: 1 };
    assert_eq!(RunEnds::read(length, header, tail), Ok(ends));
    for wrong in [0, 1, length - 1, length + 1, u64::MAX] {
        assert!(RunEnds::read(wrong, header, tail).is_err(), "{wrong} bytes");
        let _ = RunEnds::tail_bytes(wrong, footer);
    }
    for bit in 0..header.len() * 8 {
        let mut changed = header.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(RunEnds::read(length, &changed, tail).is_err(), "bit {bit} of the header");
    }
    for bit in 0..tail.len() * 8 {
        let mut changed = tail.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(RunEnds::read(length, header, &changed).is_err(), "bit {bit} of the tail");
    }
}
