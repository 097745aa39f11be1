use cudele::{Errno, Error};

use super::{Lost, RANGES_MAX};

/// Every byte below this is compared with a list of booleans.
const BYTES: u64 = 40;

fn full() -> Error {
    Error::of(Errno::NoSpace, "file")
}

#[test]
fn a_file_is_whole_when_the_last_lost_byte_is_written_again() {
    let mut lost = Lost::default();
    assert!(lost.check().is_ok());
    lost.add(10..20, &full());
    lost.add(20..30, &full());
    lost.replace(0..15);
    lost.replace(16..40);
    assert_eq!(lost.check().unwrap_err().errno, Errno::NoSpace);
    lost.replace(15..16);
    assert!(lost.check().is_ok());
}

#[test]
fn the_parts_agree_with_a_list_of_bytes() {
    let mut random = types::rng::Rng::new(1);
    let mut next = |bound: u64| random.below(bound);
    let mut lost = Lost::default();
    let mut bytes = vec![false; usize::try_from(BYTES).unwrap()];
    for step in 0..5_000 {
        let start = next(BYTES);
        let end = start + next(BYTES - start + 1);
        let fails = next(3) == 0;
        let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
        bytes[range].fill(fails);
        if fails {
            lost.add(start..end, &full())
        } else {
            lost.replace(start..end)
        }
        let listed: Vec<bool> =
            (0..BYTES).map(|at| lost.ranges.iter().any(|range| range.contains(&at))).collect();
        assert_eq!(listed, bytes, "step {step}");
        assert_eq!(lost.check().is_err(), bytes.contains(&true), "step {step}");
    }
}

#[test]
fn many_parts_take_bounded_memory() {
    let mut lost = Lost::default();
    for number in 0..1_000 {
        lost.add(10 * number..10 * number + 5, &full());
        assert!(lost.ranges.len() <= RANGES_MAX);
    }
    lost.replace(0..9_995);
    assert!(lost.check().is_ok());
}
