//! Sets of user ids, or of group ids.

use std::fmt;
use std::str::FromStr;

/// Ranges of ids, in order and apart from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRanges(Vec<(u32, u32)>);

impl IdRanges {
    /// Most ranges of one set.
    pub const MAX: usize = 64;

    /// Every id.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![(0, u32::MAX)])
    }

    /// Every id but root's.
    #[must_use]
    pub fn without_root() -> Self {
        Self(vec![(1, u32::MAX)])
    }

    /// Whether an id is in the set.
    #[must_use]
    pub fn has(&self, id: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&id))
    }
}

impl fmt::Display for IdRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.write_str(&self.0.iter().map(range).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for IdRanges {
    type Err = String;

    /// Reads `1000-1999,2500`.
    ///
    /// # Errors
    /// A sentence about what is no range of ids.
    fn from_str(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (first <= last).then_some((first, last))
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let range = range(part);
            ranges.push(range.ok_or_else(|| {
                format!("{part:?} is no range of ids; write 1000-1999, or 1000-1999,2500")
            })?);
        }
        ranges.sort_unstable();
        // Two ranges that overlap, or meet, are one.
        let mut apart: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match apart.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                Some(_) | None => apart.push((first, last)),
            }
        }
        if apart.len() > Self::MAX {
            return Err(format!("there are {} ranges; {} are the most", apart.len(), Self::MAX));
        }
        Ok(Self(apart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_ids_of_its_ranges() {
        let ids: IdRanges = "2500,1000-1999".parse().unwrap();
        let has = [0, 999, 1000, 1999, 2000, 2500, 2501].map(|id| ids.has(id));
        assert_eq!(has, [false, false, true, true, false, true, false]);
        assert!(IdRanges::all().has(0) && IdRanges::all().has(u32::MAX));
        assert!(!IdRanges::without_root().has(0) && IdRanges::without_root().has(u32::MAX));
    }

    #[test]
    fn a_set_is_written_as_it_is_read() {
        for (text, written) in [
            ("7", "7"),
            ("2500,1000-1999", "1000-1999,2500"),
            ("1-5,3-9,10", "1-10"),
            ("0-4294967295,7", "0-4294967295"),
        ] {
            let ids: IdRanges = text.parse().unwrap();
            assert_eq!((ids.to_string().as_str(), ids.to_string().parse()), (written, Ok(ids)));
        }
        for text in ["", "a", "5-3", "1,,2", "-1", "4294967296", "1-2-3", "1 - 2"] {
            assert!(text.parse::<IdRanges>().is_err(), "{text:?}");
        }
        let many: Vec<String> = (0..=IdRanges::MAX).map(|id| (2 * id).to_string()).collect();
        assert!(many.join(",").parse::<IdRanges>().unwrap_err().contains("are the most"));
    }
}
