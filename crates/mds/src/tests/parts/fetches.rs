use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{Errno, Error, Ino, Rank, Seq};

use crate::fetch::{FetchCx, Waiter, Woken};
use crate::{Mds, MdsEffects, Settings};

const DIR: Ino = Ino(1 << 41);

/// The end of a read of a directory.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Its rows are there.
    Arrived,
    /// Its waiters fail with this error.
    Failed(Errno),
    /// It is read again later, and its waiters wait.
    Later,
}

fn end_of(mds: &mut Mds) -> End {
    if mds.fetches.has_work() {
        return End::Arrived;
    }
    match mds.fetches.next_woken() {
        Some(Woken::Failed(dir, Waiter::Search, error)) if dir == DIR => End::Failed(error.errno),
        Some(woken) => panic!("{woken:?}"),
        None => {
            assert!(mds.fetches.is_waited_for(DIR) && !mds.fetches.is_under_way(DIR));
            End::Later
        }
    }
}

#[test]
fn a_directory_that_cannot_be_read_fails_unless_resent_changes_wait_for_it() {
    let bad = Errno::BadMessage;
    let cases = [
        ("read", None, false, false, End::Arrived),
        ("read, and withheld", None, true, false, End::Failed(bad)),
        ("unreadable", Some(Errno::Io), false, false, End::Failed(Errno::Io)),
        ("unreadable, for a resent change", Some(Errno::Io), false, true, End::Later),
        ("damaged, for a resent change", Some(bad), false, true, End::Failed(bad)),
    ];
    for (what, errno, is_withheld, is_resend_busy, expected) in cases {
        let mut mds = Mds::new(Rank(0), Settings::default());
        let failure = |errno| Error::new(errno, "the directory", "the test says so");
        if is_withheld {
            mds.damage.withhold(&mut mds.namespace, DIR, Seq(1), &failure(bad));
        }
        let mut fetching = FetchCx::of(&mut mds);
        fetching.is_resend_busy = is_resend_busy;
        fetching.wait_for_whole(DIR, Waiter::Search, &mut MdsEffects::default());
        let result = match errno {
            None => Ok(StoreResult::Missing),
            Some(errno) => {
                let op = StoreOp::LoadDir { ino: DIR };
                Err(Box::new(StoreFailure { error: failure(errno), op }))
            }
        };
        fetching.stored(DIR, result);
        assert_eq!(end_of(&mut mds), expected, "{what}");
        let is_known = matches!(expected, End::Failed(errno) if errno == bad);
        assert_eq!(mds.damage.warning(&mds.namespace).is_some(), is_known, "{what}");
    }
}
