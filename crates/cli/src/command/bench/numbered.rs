//! File names that count: `file.0000000`, `file.0000001`, and so on.
//!
//! A name is made by changing digits in place, so that making it costs a few nanoseconds and
//! allocates nothing: what is measured is the system, not the formatting of names.

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

    /// Goes on to the next number.
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

#[cfg(test)]
mod tests;
