//! Content that neither a store nor a disk can compress.

/// Extends `bytes` to `length` from a seed. Results in `experiments/` were measured with these
/// bytes, which a generator other than this linear one would change.
pub(super) fn fill(bytes: &mut Vec<u8>, length: usize, seed: u64) {
    let mut state = seed;
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
}

/// One block of so many bytes, the same each time.
pub(super) fn block(length: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(length);
    fill(&mut block, length, 0x9e37_79b9_7f4a_7c15);
    block
}
