use types::{Frag, Ino, Seq, Timestamp};

use super::*;
use crate::error::KNOWN_VERSION;
use crate::frame::CRC_BYTES;

fn manifest() -> Manifest {
    let run = |id, rows| RunInfo { id: RunId(id), rows, removed: rows / 2, bytes: 99, crc: 7 };
    Manifest {
        dirfrag: DirFragId { ino: Ino(5), frag: Frag { bits: 1, value: 1 << 31 } },
        generation: 3,
        next_run: 10,
        runs: vec![run(9, 10), run(2, 4), run(4, 1_000_000)],
        attached: Vec::new(),
        values: Vec::new(),
        entries: 17,
        subdirs: 4,
        counts_exact: true,
        position: Seq(99),
        touched: DirTouch { time: Timestamp(-7), seq: Seq(8) },
    }
}

/// Makes the checksum right again.
fn forge(bytes: &mut [u8]) {
    let body = bytes.len() - CRC_BYTES;
    let crc = crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn manifests_survive_the_round_trip() {
    for manifest in [manifest(), Manifest::new(DirFragId::default())] {
        let bytes = manifest.encode();
        assert_eq!(bytes.len(), HEADER_BYTES + manifest.runs.len() * RUN_BYTES + CRC_BYTES);
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
    }
}

#[test]
fn every_truncation_and_every_bit_flip_is_detected() {
    let mut bytes = manifest().encode();
    for cut in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn forged_manifests_are_refused_by_their_content() {
    let cause = |at: usize, byte: u8| {
        let mut bytes = manifest().encode();
        bytes[at] = byte;
        forge(&mut bytes);
        Manifest::decode(&bytes).expect_err("forged").cause
    };
    assert_eq!(cause(0, b'c'), "the magic of a manifest");
    assert_eq!(cause(8, 4), KNOWN_VERSION);
    assert_eq!(cause(10, 2), "flags that this version defines");
    assert_eq!(cause(24, 25), "a directory fragment");
    assert_eq!(cause(36, 9), "unique run numbers below the next one");
    assert_eq!(cause(HEADER_BYTES, 4), "unique run numbers below the next one");
    assert_eq!(cause(HEADER_BYTES + 16, 11), "at most as many removed rows as rows");
    assert_eq!(cause(52, 18), "at most as many directories as entries");
    assert_eq!(cause(HEADER_BYTES - 1, 0xff), "as many runs as there are bytes for");
}

#[test]
fn a_manifest_under_another_name_is_refused() {
    let bytes = manifest().encode();
    assert!(Manifest::decode_as(manifest().dirfrag, &bytes).is_ok());
    let other = DirFragId { ino: Ino(6), frag: Frag::WHOLE };
    let error = Manifest::decode_as(other, &bytes).expect_err("another fragment");
    assert_eq!(error.object, manifest_name(other));
}
