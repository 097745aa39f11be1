//! xfstests, which is built by its user: the tests of the group `auto` that any file system has.
//!
//! `check` makes its own mounts, with `mount -t fuse.cudele`. The case shows it a `/usr/sbin` with
//! the helper of that type, in its own mount namespace. `check` knows no types `fuse.NAME` but
//! those of two file systems, so its `df` shows the type `fuse`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::case::{Case, Reading};
use super::catalog::{Place, Suite};
use super::ltp::revision;
use crate::run::Failure;

const TIME_MAX: Duration = Duration::from_secs(900);
/// The group.
const GROUP: &str = "auto";
/// The tests that any file system has.
const TESTS: &str = "tests/generic";

/// Prepares the directories, runs one test and unmounts: the daemon ends before its namespace.
const SCRIPT: &str = r#"
mkdir -m 777 "$1/test" "$1/scratch"
mkdir "$2/up" "$2/work" "$2/test" "$2/scratch" "$2/results"
mount -t overlay -o "lowerdir=/usr/sbin,upperdir=$2/up,workdir=$2/work" none /usr/sbin
ln -s "$SUITES_PROGRAM" /usr/sbin/mount.fuse.cudele
mkdir "$2/bin"
printf '#!/bin/sh\n%s "$@" | sed "s/fuse[.]cudele/fuse       /"\n' "$(command -v df)" >"$2/bin/df"
chmod 755 "$2/bin/df"
export PATH="$2/bin:$PATH"
at=/suite/$(basename "$1")
options=allow_other,suid,dev$SUITES_OPTIONS
export FSTYP=fuse FUSE_SUBTYP=.cudele RESULT_BASE="$2/results"
export TEST_DEV="cudele:$at/test" TEST_DIR="$2/test"
export SCRATCH_DEV="cudele:$at/scratch" SCRATCH_MNT="$2/scratch"
export TEST_FS_MOUNT_OPTS="-oroot=$at/test,$options"
export MOUNT_OPTIONS="-oroot=$at/scratch,$options"
cd "$XFSTESTS"
code=0
./check "$XFSTEST" || code=$?
for file in "$2/results/$XFSTEST".*; do
    test ! -f "$file" || { echo "--- $file"; tail -n 60 "$file"; }
done
for place in "$2/test" "$2/scratch"; do
    ! mountpoint -q "$place" || umount "$place" || code=1
done
exit "$code"
"#;

/// The suite.
///
/// # Errors
/// The directory has no built xfstests.
pub(super) fn suite(at: &Path) -> Result<Suite, Failure> {
    let list = at.join(TESTS).join("group.list");
    let text = fs::read_to_string(&list).map_err(|error| {
        let (shown, list) = (at.display(), list.display());
        Failure::Failed(format!(
            "cannot use --xfstests {shown}: it is no built xfstests (make): {list}: {error}"
        ))
    })?;
    let case = |number: &str| Case {
        name: format!("generic/{number}"),
        script: format!("export XFSTESTS='{}' XFSTEST='generic/{number}'\n{SCRIPT}", at.display()),
        time_max: TIME_MAX,
        reading: Reading::Xfstests,
    };
    let cases = numbers(&text).map(case).collect();
    let place = Place::Mounted;
    Ok(Suite { name: "xfstests".into(), version: revision(at), cases, place })
}

/// The tests of the group, in the list of all tests: `NUMBER GROUP...`.
fn numbers(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = words.next().filter(|number| number.bytes().all(|b| b.is_ascii_digit()))?;
        words.any(|group| group == GROUP).then_some(number)
    })
}
