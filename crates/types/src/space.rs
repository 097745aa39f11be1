//! The room of a store or a file system.

use crate::quota::QuotaReport;

/// How much a store or a file system can hold, in bytes and in inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// The rest, as far as this process may use it.
    pub available: u64,
    /// The most inodes; 0 where there is no limit.
    pub inodes: u64,
    /// The rest of these.
    pub inodes_available: u64,
}

impl Space {
    /// Of a store, which limits no inodes.
    #[must_use]
    pub fn of_bytes(total: u64, available: u64) -> Self {
        Self { total, available, inodes: 0, inodes_available: 0 }
    }

    /// The same for a directory with this quota: the smaller of the two.
    #[must_use]
    pub fn within(self, quota: &QuotaReport) -> Self {
        let QuotaReport { limits, used, reserved, .. } = quota;
        let mut space = self;
        if let Some(bytes) = limits.bytes {
            space.total = space.total.min(bytes);
            space.available = space.available.min(bytes.saturating_sub(used.bytes));
        }
        if let Some(inodes) = limits.inodes {
            let left = inodes.saturating_sub(used.inodes).saturating_sub(*reserved);
            let is_first = space.inodes == 0;
            space.inodes = if is_first { inodes } else { space.inodes.min(inodes) };
            space.inodes_available = if is_first { left } else { space.inodes_available.min(left) };
        }
        space
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{QuotaLimits, Usage};

    #[test]
    fn the_smallest_of_several_limits_is_the_space() {
        let store = Space::of_bytes(1000, 900);
        let quota = |inodes, bytes, used| QuotaReport {
            limits: QuotaLimits { inodes, bytes },
            used: Usage { inodes: used, bytes: used },
            reserved: 1,
            ..QuotaReport::default()
        };
        let inner = store.within(&quota(Some(10), Some(100), 40));
        assert_eq!((inner.total, inner.available), (100, 60));
        assert_eq!((inner.inodes, inner.inodes_available), (10, 0), "over the limit");
        let outer =
            store.within(&quota(Some(90), None, 40)).within(&quota(Some(60), Some(5000), 0));
        assert_eq!((outer.total, outer.available), (1000, 900));
        assert_eq!((outer.inodes, outer.inodes_available), (60, 49));
    }
}
