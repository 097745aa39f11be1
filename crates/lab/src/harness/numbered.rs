//! File names that count: `file.0000000`, `file.0000001`, and so on.
//!
//! A name is made by changing digits in place, so that making it costs a few nanoseconds and
//! allocates nothing: the system is measured, not the formatting of names.

const PREFIX: &[u8] = b"file.";
/// `file.%07d`, as in the published experiments.
const DIGITS_MIN: usize = 7;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    bytes: Vec<u8>,
}

impl Numbered {
    /// Names from number `first` on, all of one length, `count` of them.
    pub(crate) fn new(first: u64, count: u64) -> Self {
        let last = first.saturating_add(count.saturating_sub(1));
        let digits = last.to_string().len().max(DIGITS_MIN);
        let mut bytes = PREFIX.to_vec();
        bytes.extend_from_slice(format!("{first:0digits$}").as_bytes());
        Self { bytes }
    }

    /// The name of the current number.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes
    }

    /// Advances to the next number.
    #[inline]
    pub(crate) fn advance(&mut self) {
        for digit in self.bytes[PREFIX.len()..].iter_mut().rev() {
            if *digit != b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}

/// Names of one length by number, in any order, and a random order of numbers that is the same
/// every time.
#[derive(Clone, Debug)]
pub(crate) struct Shuffled {
    count: u64,
    bits: u32,
    bytes: Vec<u8>,
}

impl Shuffled {
    /// The numbers below `count`.
    pub(crate) fn new(count: u64) -> Self {
        let bits = u64::BITS - count.leading_zeros();
        Self { count, bits, bytes: Numbered::new(count, 0).bytes }
    }

    /// The number at a place of the order. Each comes once, if the places below the count do.
    #[inline]
    pub(crate) fn at(&self, place: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        let mut number = place;
        loop {
            // Each step can be undone, so that different places never meet.
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x632b_e59b) & mask;
            number ^= number >> (self.bits / 2 + 1);
            number = number.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
            number ^= number >> (self.bits / 2 + 1);
            if number < self.count {
                return number;
            }
        }
    }

    /// The name of a number below the count.
    #[inline]
    pub(crate) fn name(&mut self, number: u64) -> &[u8] {
        let mut left = number;
        for digit in self.bytes[PREFIX.len()..].iter_mut().rev() {
            *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
            left /= 10;
        }
        &self.bytes
    }
}

/// The name of one of several directories.
pub(crate) fn directory_name(number: u64) -> String {
    format!("dir.{number:03}")
}

/// How long the content of a file is.
pub(crate) fn content_bytes(number: u64, [least, most]: [u32; 2]) -> usize {
    let room = u64::from(most - least) + 1;
    let more = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % room;
    usize::try_from(u64::from(least) + more).unwrap_or(0)
}

#[cfg(test)]
mod tests;
