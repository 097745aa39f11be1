//! Numbers of users and groups of this machine, and the same users in the cluster.
//!
//! A machine may number its users differently. A mount translates in both directions: a caller, and
//! an owner that a program sets, to the cluster's numbers; an owner that a program sees to the
//! machine's. A number without another one is that of [`NOBODY`], who has no rights.
//!
//! Invariant: the ranges of one kind do not overlap, neither here nor in the cluster.

use types::{Errno, Error, NOBODY, Result};

/// Most ranges of a kind.
const RANGES_MAX: usize = 16;

/// Numbers that follow one another in the same order, here and in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MappedRange {
    here: u32,
    there: u32,
    count: u32,
}

/// Another number in a range that begins at `from` and corresponds to one that begins at `to`.
fn moved(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let offset = id.checked_sub(from).filter(|offset| *offset < count)?;
    to.checked_add(offset)
}

/// The ranges of users, or of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedRanges {
    ranges: [MappedRange; RANGES_MAX],
    length: usize,
}

impl MappedRanges {
    fn all(&self) -> &[MappedRange] {
        &self.ranges[..self.length]
    }

    /// Adds `HERE:CLUSTER:COUNT`.
    ///
    /// # Errors
    /// `EINVAL` for other text, for a range that overlaps another one, and for too many.
    pub fn add(&mut self, text: &str) -> Result<()> {
        let wrong = |cause: &str| {
            Error::new(Errno::Invalid, text, cause)
                .remedy("write HERE:CLUSTER:COUNT, such as 1000:101000:500")
        };
        let numbers: std::result::Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        let Ok(&[here, there, count]) = numbers.as_deref() else {
            return Err(wrong("these are not three numbers"));
        };
        let range = MappedRange { here, there, count };
        let is_whole = [here, there].iter().all(|first| first.checked_add(count).is_some());
        if count == 0 || !is_whole {
            return Err(wrong("the range is empty, or beyond the largest number"));
        }
        let meets = |a: u32, b: u32, other: u32| a < b.saturating_add(other) && b < a + count;
        let overlaps =
            |it: &&MappedRange| meets(here, it.here, it.count) || meets(there, it.there, it.count);
        if self.all().iter().find(overlaps).is_some() {
            return Err(wrong("it overlaps another range"));
        }
        let place = self.ranges.get_mut(self.length).ok_or_else(|| wrong("too many ranges"))?;
        *place = range;
        self.length += 1;
        Ok(())
    }

    fn cluster_number(&self, id: u32) -> Option<u32> {
        if self.length == 0 {
            return Some(id);
        }
        self.all().iter().find_map(|range| moved(id, range.here, range.there, range.count))
    }

    fn machine_number(&self, id: u32) -> Option<u32> {
        if self.length == 0 {
            return Some(id);
        }
        self.all().iter().find_map(|range| moved(id, range.there, range.here, range.count))
    }
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// Users; without a range, all have the same numbers.
    pub users: MappedRanges,
    /// Groups; the same.
    pub groups: MappedRanges,
    /// All callers are this user, with this group and no other.
    pub all: Option<(u32, u32)>,
}

impl IdMap {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The user in the cluster that a user here is; `None` for a user that is nobody there.
    #[must_use]
    pub fn user(&self, here: u32) -> Option<u32> {
        self.users.cluster_number(here)
    }

    /// The same for a group.
    #[must_use]
    pub fn group(&self, here: u32) -> Option<u32> {
        self.groups.cluster_number(here)
    }

    /// The user and the group as which a caller acts.
    #[must_use]
    pub fn caller(&self, user: u32, group: u32) -> (u32, u32) {
        let mapped = (self.user(user).unwrap_or(NOBODY), self.group(group).unwrap_or(NOBODY));
        self.all.unwrap_or(mapped)
    }

    /// The further groups with which a caller acts.
    #[must_use]
    pub fn further_groups(&self, here: Vec<u32>) -> Vec<u32> {
        if self.all.is_some() {
            return Vec::new();
        }
        here.into_iter().filter_map(|group| self.group(group)).collect()
    }

    /// The user here that a user in the cluster is.
    #[must_use]
    pub fn user_here(&self, there: u32) -> u32 {
        self.users.machine_number(there).unwrap_or(NOBODY)
    }

    /// The same for a group.
    #[must_use]
    pub fn group_here(&self, there: u32) -> u32 {
        self.groups.machine_number(there).unwrap_or(NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[&str]) -> Result<MappedRanges> {
        let mut ranges = MappedRanges::default();
        all.iter().try_for_each(|text| ranges.add(text))?;
        Ok(ranges)
    }

    #[test]
    fn numbers_are_translated_in_both_directions() {
        let users = ranges(&["0:100000:1", "1000:101000:500"]).unwrap();
        let map = IdMap { users, ..IdMap::default() };
        for (here, there) in [(0, 100_000), (1000, 101_000), (1499, 101_499)] {
            assert_eq!((map.user(here), map.user_here(there)), (Some(there), here));
        }
        for here in [1, 999, 1500, 101_000, u32::MAX] {
            assert_eq!(map.user(here), None, "{here}");
        }
        assert_eq!((map.user_here(0), map.user_here(101_500)), (NOBODY, NOBODY));
        assert_eq!(map.caller(1500, 7), (NOBODY, 7), "groups keep their numbers");
        assert_eq!(map.further_groups(vec![7, 8]), [7, 8]);
    }

    #[test]
    fn one_user_may_stand_for_all() {
        let map = IdMap { all: Some((9, 90)), ..IdMap::default() };
        assert_eq!((map.caller(0, 0), map.caller(5, 6)), ((9, 90), (9, 90)));
        assert_eq!(map.further_groups(vec![0, 7]), [0; 0]);
        assert_eq!(map.user_here(5), 5, "owners are shown as they are");
    }

    #[test]
    fn ranges_that_overlap_or_are_none_are_refused() {
        let last = u32::MAX;
        for wrong in ["", "1", "1:2", "1:2:3:4", "a:b:c", "-1:0:1", "1:1:0", &format!("{last}:0:1")]
        {
            assert!(ranges(&[wrong]).is_err(), "{wrong}");
        }
        for second in ["5:900:1", "14:900:1", "0:900:6", "900:109:3", "900:100:1"] {
            assert!(ranges(&["5:100:10", second]).is_err(), "{second}");
        }
        assert!(ranges(&["5:100:10", "15:110:10", "0:95:5"]).is_ok());
        let many: Vec<String> = (0..17).map(|number| format!("{number}:{number}:1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(ranges(&many[..16]).is_ok() && ranges(&many).is_err());
    }
}
