//! File content that was altered in the store, read through a mount.

use std::fs;
use std::io::Write;

use objstore::Expect;

use crate::mounts::{Mount, cluster};

const EIO: i32 = 5;

#[test]
fn a_mount_reads_no_altered_content_whether_it_was_synced_or_only_closed() {
    let Some(world) = cluster() else { return };
    let content: Vec<u8> = (0..300_000_usize).map(|at| (at % 251).to_le_bytes()[0]).collect();
    for name in ["synced", "closed"] {
        let mount = Mount::new(&world);
        let mut file = fs::File::create(mount.path(name)).unwrap();
        // Small pieces do not begin or end at block boundaries.
        content.chunks(7_777).for_each(|piece| file.write_all(piece).unwrap());
        if name == "synced" {
            file.sync_all().unwrap();
        }
        drop(file);
        mount.end();
        let store = world.store();
        let mut names = store.list("data/").unwrap();
        names.retain(|name| !name.contains(".sums."));
        assert_eq!(names.len(), 1);
        let whole = store.get(&names[0]).unwrap().0;
        let mut flipped = whole.clone();
        flipped[150_000] ^= 1;
        for (altered, is_whole) in [(&flipped, false), (&whole, true)] {
            assert!(store.put(&names[0], altered, Expect::Any).is_ok());
            let mount = Mount::new(&world);
            let read = fs::read(mount.path(name));
            match read {
                Ok(read) => assert!(is_whole && read == content, "{name}"),
                Err(error) => assert_eq!((is_whole, error.raw_os_error()), (false, Some(EIO))),
            }
            mount.end();
        }
        assert!(store.delete(&names[0]).unwrap());
        let mount = Mount::new(&world);
        let error = fs::read(mount.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{name}");
        mount.end();
    }
}
