use proptest::prelude::*;
use types::{Attr, DirFragId, Frag, Ino, InoRange, Seq};

use super::*;
use crate::row::InodeRecord;
use crate::{Rows, RunId, RunInfo, RunReader, encode_clients_run, merge};

const DIR: DirFragId = DirFragId { ino: Ino(77), frag: Frag::WHOLE };

fn file(ino: u64, data: &[u8]) -> RowValue<'_> {
    let attr = Attr { ino: Ino(ino), mode: 0o100_644, nlink: 1, ..Attr::default() };
    RowValue::Inode(InodeRecord { attr, data, ..InodeRecord::default() })
}

/// A manifest and its runs, newest first.
type Stored = (Manifest, Vec<Vec<u8>>);

fn add(stored: &mut Stored, rows: &Rows, number: u64, clients: bool) {
    let (id, bytes) = match clients {
        false => (RunId(number), crate::encode_run(DIR, RunId(number), rows)),
        true => encode_clients_run(DIR, Ino(number), rows),
    };
    assert!(clients || id == RunId(number));
    stored.0.runs.insert(0, RunInfo::of(&RunReader::open(&bytes).unwrap()));
    stored.1.insert(0, bytes);
    if clients {
        let ranges = vec![InoRange { start: 100, end: 1 << 40 }];
        stored.0.attached.insert(0, Attached { run: id, position: Seq(7), ranges });
    }
}

fn read(stored: &Stored, want: &WantedRange) -> Vec<u8> {
    let mut all = stored.0.runs.iter().zip(&stored.1);
    let (_, bytes) = all.find(|(run, _)| crate::run_name(DIR, run.id) == want.object).unwrap();
    let start = usize::try_from(want.offset).unwrap();
    bytes[start..start + want.length].to_vec()
}

/// All rows behind a name, and the most bytes that were wanted at a time.
fn scan(stored: &Stored, after: &[u8]) -> Result<(Vec<String>, usize), FormatError> {
    let mut scan = Scan::new(&stored.0, after);
    let (mut rows, mut most) = (Vec::new(), 0);
    loop {
        let wants = scan.wants();
        for want in &wants {
            most = most.max(want.length);
            scan.feed(want, read(stored, want))?;
        }
        if !wants.is_empty() {
            continue;
        }
        let mut take = |name: &[u8], value: &RowValue<'_>| rows.push(show(name, value));
        if !scan.rows(&mut take)? {
            return Ok((rows, most));
        }
    }
}

fn show(name: &[u8], value: &RowValue<'_>) -> String {
    let name = name.escape_ascii();
    match value {
        RowValue::Inode(InodeRecord { attr, data, .. }) => {
            format!("{name} {attr:?} {}", data.len())
        }
        RowValue::Remote { .. } | RowValue::Removed => format!("{name} {value:?}"),
    }
}

fn merged(stored: &Stored, after: &[u8]) -> Vec<String> {
    let rows = merge(&stored.0, &stored.1).unwrap();
    let behind = rows.iter().filter(|row| row.name > after);
    behind.map(|row| show(row.name, &row.value)).collect()
}

#[derive(Clone, Debug)]
struct Spec {
    clients: bool,
    rows: Vec<(u8, u8)>,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let rows = prop::collection::vec((0..40u8, 0..8u8), 1..30);
    let spec = (any::<bool>(), rows).prop_map(|(clients, rows)| Spec { clients, rows });
    prop::collection::vec(spec, 0..5)
}

/// Runs large enough to be read in several pieces, of few names.
fn stored(specs: &[Spec], data: &[u8]) -> Stored {
    let mut stored = (Manifest::new(DIR), Vec::new());
    stored.0.next_run = 100;
    for (number, spec) in (1..).zip(specs) {
        let mut rows = Rows::new();
        for (name, kind) in &spec.rows {
            let name = format!("name{name}").into_bytes();
            match kind {
                0 => rows.push(&name, RowValue::Removed),
                // Not the client's.
                1 => rows.push(&name, file(5, &data[..9])),
                kind => rows.push(&name, file(100 + number, &data[..usize::from(*kind) * 8000])),
            }
        }
        add(&mut stored, &rows, number, spec.clients);
    }
    stored
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_scan_gives_what_a_merge_gives(specs in specs(), after in prop::option::of(0..50u8)) {
        let data = vec![9; 64_000];
        let stored = stored(&specs, &data);
        let after = after.map(|name| format!("name{name}").into_bytes()).unwrap_or_default();
        prop_assert_eq!(scan(&stored, &after).unwrap().0, merged(&stored, &after));
    }
}

fn many(count: u64) -> Rows {
    let mut rows = Rows::new();
    for number in 0..count {
        rows.push(format!("file.{number:07}").as_bytes(), file(100 + number, b""));
    }
    rows
}

#[test]
fn a_large_directory_is_read_in_bounded_pieces() {
    let mut stored = (Manifest { next_run: 9, ..Manifest::new(DIR) }, Vec::new());
    add(&mut stored, &many(200_000), 1, true);
    let mut newer = Rows::new();
    newer.push(b"file.0000000", RowValue::Removed);
    newer.push(b"file.0199999", file(9, b"mine"));
    add(&mut stored, &newer, 2, false);
    let (rows, most) = scan(&stored, b"").unwrap();
    assert_eq!(rows.len(), 199_999);
    assert_eq!(rows, merged(&stored, b""));
    assert!(stored.1[1].len() > 3 * crate::run::CHUNK_BYTES);
    assert!(most <= crate::run::CHUNK_BYTES, "{most}");
    assert_eq!(scan(&stored, b"file.0199998").unwrap().0.len(), 1);
    assert_eq!(scan(&stored, b"file.0199999").unwrap().0.len(), 0);
}

#[test]
fn damage_is_found_wherever_it_is() {
    let mut good = (Manifest { next_run: 9, ..Manifest::new(DIR) }, Vec::new());
    add(&mut good, &many(1_000), 1, false);
    for at in 0..good.1[0].len() {
        let mut stored = good.clone();
        stored.1[0][at] ^= 4;
        assert!(scan(&stored, b"").is_err(), "byte {at}");
    }
    // Another run in its place.
    let mut stored = good.clone();
    stored.1[0] = crate::encode_run(DIR, RunId(2), &many(1_000));
    assert!(scan(&stored, b"").is_err());
}
