use proptest::prelude::*;

use super::*;

fn states() -> Vec<State> {
    let text = || Scalar::Text(b"a\0b".to_vec());
    vec![
        State::Nothing,
        State::One(Scalar::Number(2.0)),
        State::One(text()),
        State::One(Scalar::Truth(false)),
        State::Table(vec![(Scalar::Number(1.0), text()), (text(), Scalar::Truth(true))]),
    ]
}

#[test]
fn every_state_reads_back() {
    for state in states() {
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    for state in states() {
        let bytes = state.encode();
        for end in 0..bytes.len() {
            assert!(State::decode(&bytes[..end]).is_err(), "{state:?}, {end} bytes");
        }
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(State::decode(&flipped).is_err(), "{state:?}, bit {at}");
        }
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    let bytes = State::One(Scalar::Number(f64::NAN)).encode();
    assert!(State::decode(&bytes).is_err());
}

proptest! {
    #[test]
    fn random_bytes_are_an_error_or_a_state(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(state) = State::decode(&bytes) {
            prop_assert_eq!(state.encode(), bytes);
        }
    }
}
