use types::{Ino, Stripe};

use super::{SUM_BLOCK_BYTES, Sum, SumEntry, content_crc};

const SUM: Sum = Sum { crc: 0x1234_5678, length: 16_384, stripe: Stripe::DEFAULT, period: 9 };

#[test]
fn the_example_of_the_format() {
    let sum = Sum { crc: content_crc(b"content"), length: 7, stripe: Stripe::DEFAULT, period: 0 };
    let bytes = sum.encode(Ino(0x10_0000), 3);
    assert_eq!(types::hex::spaced(&bytes), include_str!("../../testdata/sum.v1.hex").trim());
    assert_eq!(Sum::decode(Ino(0x10_0000), 3, &bytes), SumEntry::Sum(sum));
    assert!(sum.fits(b"content") && sum.fits(b"content and more") && !sum.fits(b"Content"));
}

#[test]
fn every_changed_bit_every_cut_and_every_other_place_is_detected() {
    let bytes = SUM.encode(Ino(7), 8);
    assert_eq!(Sum::decode(Ino(7), 8, &bytes), SumEntry::Sum(SUM));
    for bit in 0..128 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Sum::decode(Ino(7), 8, &flipped), SumEntry::Damaged, "bit {bit}");
    }
    for length in 0..16 {
        assert_eq!(Sum::decode(Ino(7), 8, &bytes[..length]).sum(), None, "{length} bytes");
    }
    assert_eq!(Sum::decode(Ino(6), 8, &bytes), SumEntry::Damaged);
    assert_eq!(Sum::decode(Ino(7), 9, &bytes), SumEntry::Damaged);
    assert_eq!(Sum::decode(Ino(7), 8, &[0; 16]), SumEntry::None);
}

#[test]
fn a_checksum_counts_the_missing_end_of_a_block_as_zeros() {
    let mut block = vec![7; 5000];
    block.resize(usize::try_from(SUM_BLOCK_BYTES).unwrap(), 0);
    let sum = Sum { crc: content_crc(&block), ..SUM };
    assert!(sum.fits(&block) && sum.fits(&block[..5000]) && sum.fits(&block[..5001]));
    assert!(!sum.fits(&block[..4999]) && !sum.fits(&[]));
}

#[test]
fn all_stripes_and_lengths_are_kept() {
    for length in [1, 2, 16_383, 16_384] {
        for stripe in [Stripe::MIN, Stripe::DEFAULT, Stripe::MAX] {
            let sum = Sum { length, stripe, ..SUM };
            assert_eq!(Sum::decode(Ino(1), 0, &sum.encode(Ino(1), 0)), SumEntry::Sum(sum));
        }
    }
}
