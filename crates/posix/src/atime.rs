//! The reads that change the time of a file's last access.

use types::{Attr, Timestamp};

/// A time of the last access is good enough for this long, in nanoseconds.
const GOOD_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// The reads that are noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// None.
    Never,
    /// The first after a change, and one a day.
    #[default]
    Relative,
    /// All.
    Always,
}

impl Atime {
    /// Whether a read at this time is noted.
    #[must_use]
    pub fn is_due(self, attr: &Attr, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::Relative => {
                let age = now.0.saturating_sub(attr.atime.0);
                attr.atime <= attr.mtime.max(attr.ctime) || age >= GOOD_NANOS
            }
            Self::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_noted_after_a_change_and_once_a_day() {
        let attr = |atime, mtime, ctime| Attr {
            atime: Timestamp(atime),
            mtime: Timestamp(mtime),
            ctime: Timestamp(ctime),
            ..Attr::default()
        };
        let due = |attr, now| Atime::Relative.is_due(&attr, Timestamp(now));
        assert!(due(attr(5, 5, 4), 6), "as it was made");
        assert!(due(attr(5, 4, 6), 7), "changed since");
        assert!(!due(attr(5, 4, 4), 7));
        assert!(!due(attr(5, 4, 4), 4 + GOOD_NANOS));
        assert!(due(attr(5, 4, 4), 5 + GOOD_NANOS));
        assert!(!due(attr(9, 4, 4), 5), "set to what is to come");
        assert!(Atime::Always.is_due(&attr(5, 4, 4), Timestamp(7)));
        assert!(!Atime::Never.is_due(&attr(5, 5, 5), Timestamp(7)));
    }
}
