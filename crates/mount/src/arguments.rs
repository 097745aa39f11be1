//! Arguments of requests in the types of the file system.

use posix::OpenMode;
use types::{Errno, Error, RenameFlags, Result, Timestamp};

use crate::fuse::Time;

pub(crate) const O_ACCMODE: i32 = 3;
const O_RDONLY: i32 = 0;
pub(crate) const O_WRONLY: i32 = 1;
pub(crate) const O_APPEND: i32 = 0o2000;
const O_EXCL: i32 = 0o200;
pub(crate) const O_TRUNC: i32 = 0o1000;
pub(crate) const F_RDLCK: i32 = 0;
pub(crate) const F_WRLCK: i32 = 1;
pub(crate) const F_UNLCK: i32 = 2;
pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

pub(crate) fn open_mode(flags: i32) -> OpenMode {
    OpenMode {
        write: flags & O_ACCMODE != O_RDONLY,
        truncate: flags & O_TRUNC != 0,
        exclusive: flags & O_EXCL != 0,
    }
}

pub(crate) fn time(at: Time) -> Timestamp {
    match at {
        Time::At(seconds, nanos) => {
            let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            let bounded = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
            Timestamp(i64::try_from(bounded).unwrap_or_default())
        }
        Time::Now => now(),
    }
}

/// The civil time.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}

pub(crate) fn rename_flags(flags: u32) -> Result<RenameFlags> {
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
        return Err(Error::of(Errno::Invalid, "rename"));
    }
    let (no_replace, exchange) = (flags & RENAME_NOREPLACE != 0, flags & RENAME_EXCHANGE != 0);
    Ok(RenameFlags { no_replace, exchange })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_counted_forwards() {
        for (seconds, nanos) in [(0, 0), (0, 1), (5, 7), (-1, 0), (-1, 999_999_999), (-5, 7)] {
            let wanted = Timestamp::from_parts(seconds, nanos.into());
            assert_eq!(time(Time::At(seconds, nanos)), wanted, "{seconds} {nanos}");
        }
    }
}
