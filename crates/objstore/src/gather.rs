//! Data that lies in several places in memory, and is to be written as if it were one.

/// The remaining bytes, from front to back. A copy keeps its own place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather<'a> {
    /// Its first bytes may be gone already.
    first: &'a [u8],
    others: &'a [&'a [u8]],
}

impl<'a> Gather<'a> {
    pub(crate) fn of(parts: &'a [&'a [u8]]) -> Self {
        Self { first: &[], others: parts }
    }

    /// Data that lies in one place.
    pub(crate) fn one(data: &'a [u8]) -> Self {
        Self { first: data, others: &[] }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.others.iter().map(|part| part.len()).sum::<usize>()
    }

    /// Leaves the next bytes out.
    pub(crate) fn skip(&mut self, mut bytes: usize) {
        while bytes > self.first.len() {
            bytes -= self.first.len();
            let Some((next, others)) = self.others.split_first() else {
                bytes = 0;
                self.first = &[];
                break;
            };
            (self.first, self.others) = (next, others);
        }
        self.first = &self.first[bytes..];
    }

    /// Takes the next bytes, fewer at the end: in place or, if they are in several buffers, joined
    /// in the given buffer.
    pub(crate) fn take<'b>(&mut self, bytes: usize, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        buffer.clear();
        loop {
            let wanted = bytes - buffer.len();
            if wanted <= self.first.len() {
                let (now, later) = self.first.split_at(wanted);
                self.first = later;
                if buffer.is_empty() {
                    return now;
                }
                buffer.extend_from_slice(now);
                return buffer;
            }
            buffer.extend_from_slice(self.first);
            let Some((next, others)) = self.others.split_first() else {
                self.first = &[];
                return buffer;
            };
            (self.first, self.others) = (next, others);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Gather;

    proptest! {
        #[test]
        fn the_slices_are_taken_in_order(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9),
            sizes in proptest::collection::vec(1_usize..12, 1..9),
        ) {
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let (mut left, mut buffer, mut taken) = (Gather::of(&slices), Vec::new(), Vec::new());
            for size in sizes.iter().cycle() {
                let before = left.len();
                let now = left.take(*size, &mut buffer);
                prop_assert_eq!(now.len(), before.min(*size));
                taken.extend_from_slice(now);
                if left.len() == 0 {
                    break;
                }
            }
            prop_assert_eq!(taken, parts.concat());
        }
    }
}
