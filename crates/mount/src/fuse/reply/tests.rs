use types::Timestamp;

use super::*;

/// Bytes before the times of an attribute reply: number, size and blocks.
const TIMES_AT: usize = OUT_HEADER_BYTES + 24;

fn encoded(attr: &Attr) -> Out {
    let mut out = Out::new();
    out.attr(attr, 1);
    out
}

#[test]
fn times_before_1970_are_before_1970() {
    for (time, seconds, nanos) in [(-1, -1_i64, 999_999_999_u32), (1, 0, 1)] {
        let out = encoded(&Attr { atime: Timestamp(time), ..Attr::default() });
        let second = &out.bytes[TIMES_AT..][..8];
        let nano = &out.bytes[TIMES_AT + 24..][..4];
        assert_eq!((second, nano), (&seconds.to_ne_bytes()[..], &nanos.to_ne_bytes()[..]));
    }
}

#[test]
fn a_name_and_its_attributes_have_timeouts_of_their_own() {
    let entry = Entry {
        name_valid: Duration::new(5, 6),
        ..Entry::new(Attr::default(), Duration::new(7, 8))
    };
    let mut out = Out::new();
    out.entry(&entry, 9);
    let mut wanted = [9_u64, 0, 5, 7].map(u64::to_ne_bytes).concat();
    wanted.extend([6_u32, 8].map(u32::to_ne_bytes).concat());
    assert_eq!(out.bytes[OUT_HEADER_BYTES..][..wanted.len()], wanted);
}
