//! Files that are much longer than their content. Nothing here waits for a clock: code that looked
//! at every object that such a file might have would not come to its end.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cudele::{Cluster, Locator};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, job, script, transcript, until};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const PIB: u64 = 1 << 50;
/// Usual ones.
const STRIPE: u64 = 4 * MIB;

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

/// The number of content objects in the store, without the objects of checksums.
fn objects(world: &World) -> usize {
    let names = world.store().list("data/").unwrap();
    names.iter().filter(|name| !name.contains(".sums.")).count()
}

fn data_at(file: &File, offset: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Data(offset))
}

fn hole_at(file: &File, offset: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(offset))
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![1; length];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn a_pebibyte_is_synced_cut_off_and_removed() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let path = mount.path("f");
    let file = create(&path);
    file.set_len(PIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(objects(&world), 0);
    for at in [0, 5 * TIB + 12_345, PIB - 3] {
        file.write_all_at(b"abc", at).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(objects(&world), 3);
    assert_eq!(read(&file, 5 * TIB + 12_344, 5), b"\0abc\0");
    assert_eq!(read(&file, 700 * TIB - 1, 3 << 20), vec![0; 3 << 20]);
    // A program that opens it again syncs the earlier writes, and finds them.
    drop(file);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    assert_eq!(read(&file, PIB - 4, 4), b"\0abc");
    file.set_len(TIB).unwrap();
    assert_eq!(objects(&world), 1);
    file.set_len(PIB).unwrap();
    assert_eq!(read(&file, 5 * TIB + 12_344, 5), [0; 5], "what was cut off is gone");
    assert_eq!(read(&file, 0, 3), b"abc");
    file.set_len(0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(objects(&world), 0);
    file.set_len(PIB).unwrap();
    file.write_all_at(b"abc", PIB / 2).unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();
    let client = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    let client = client.mount().unwrap();
    until("nothing of it is left", || {
        // Content is deleted when the removal is stored.
        client.checkpoint().unwrap();
        objects(&world) == 0
    });
    mount.end();
}

#[test]
fn a_tebibyte_is_punched_out() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let file = create(&mount.path("f"));
    file.set_len(2 * TIB).unwrap();
    for at in [0, 3 * MIB, TIB / 2, TIB, 2 * TIB - 3] {
        file.write_all_at(b"abc", at).unwrap();
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1, TIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * TIB);
    assert_eq!(read(&file, 0, 4), b"a\0\0\0");
    assert_eq!(read(&file, 3 * MIB, 3), [0; 3]);
    assert_eq!(read(&file, TIB / 2, 3), [0; 3]);
    assert_eq!(read(&file, TIB, 3), b"\0bc");
    assert_eq!(read(&file, 2 * TIB - 3, 3), b"abc");
    // The first, the one with the end of the hole, and the last.
    assert_eq!(objects(&world), 3);
    fallocate(&file, FallocateFlags::empty(), 0, PIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), PIB);
    drop(file);
    mount.end();
}

#[test]
fn data_and_holes_can_be_looked_for() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let inline = create(&mount.path("inline"));
    inline.write_all_at(b"abc", 0).unwrap();
    assert_eq!((data_at(&inline, 1), hole_at(&inline, 1)), (Ok(1), Ok(3)));
    assert_eq!((data_at(&inline, 3), hole_at(&inline, 3)), (Err(Errno::NXIO), Err(Errno::NXIO)));
    let file = create(&mount.path("f"));
    file.set_len(PIB).unwrap();
    assert_eq!((data_at(&file, 0), hole_at(&file, 0)), (Err(Errno::NXIO), Ok(0)));
    file.write_all_at(&vec![7; 5 << 20], 0).unwrap();
    file.write_all_at(b"abc", TIB + MIB).unwrap();
    // Writes that have not reached the store yet are data.
    assert_eq!((data_at(&file, 5), hole_at(&file, 5)), (Ok(5), Ok(STRIPE + MIB)));
    // Where in its object something begins is not known; it is found all the same.
    assert_eq!(data_at(&file, STRIPE + MIB), Ok(TIB));
    assert_eq!(hole_at(&file, TIB), Ok(TIB + MIB + 3));
    assert_eq!(data_at(&file, TIB + MIB + 3), Err(Errno::NXIO));
    assert_eq!(hole_at(&file, PIB - 1), Ok(PIB - 1));
    assert_eq!(hole_at(&file, PIB), Err(Errno::NXIO));
    drop((file, inline));
    mount.end();
}

/// Programs that look for holes copy the content of a file, in a posix subtree and in a decoupled
/// one.
const COPY: &str = r#"
cd "$1"
truncate -s 1T f
for at in 0 77 500000 1048575; do
    head -c 100000 /dev/urandom | dd of=f bs=1M seek="$at" conv=notrunc status=none
done
cp --sparse=always f g
cp f h
dd if=f of=small bs=1000003 count=5 skip=1234 status=none
test "$(stat -c %s g h small | xargs)" = "1099511627776 1099511627776 5000015"
tar -cSf "$2/f.tar" f
test "$(stat -c %s "$2/f.tar")" -lt 20000000
mkdir x && tar -C x -xf "$2/f.tar"
for at in 0 77 500000 1048575; do
    for copy in g h x/f; do
        cmp -n 1048576 -i "$((at * 1048576))" f "$copy"
    done
done
sync f g h
rm -r f g h x small
"#;

#[test]
fn programs_copy_what_a_file_holds() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let (dir, out) = (mount.path("d"), world.path("out"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&out).unwrap();
    let (well, said) = transcript(&mut script(COPY, &[dir.as_os_str(), out.as_os_str()]));
    assert!(well, "{said}");
    mount.end();
    let mut command = job(&world, "/job", COPY, &["{}".as_ref(), out.as_os_str()]);
    let (well, said) = transcript(&mut command);
    assert!(well, "in a job: {said}");
}

#[test]
fn no_file_is_longer_than_an_exbibyte() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let file = create(&mount.path("f"));
    let longest = 1 << 60;
    file.set_len(longest).unwrap();
    file.sync_all().unwrap();
    let too_big = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    };
    too_big(file.set_len(longest + 1));
    too_big(file.write_all_at(b"x", longest));
    too_big(fallocate(&file, FallocateFlags::empty(), longest, 1).map_err(Into::into));
    assert_eq!(file.metadata().unwrap().size(), longest);
    // Shared with another client, too, where the server is asked for the length.
    let other = Mount::new(&world);
    let theirs = File::options().read(true).write(true).open(other.path("f")).unwrap();
    too_big(theirs.set_len(longest + 1));
    too_big(theirs.write_all_at(b"x", longest));
    theirs.write_all_at(b"x", longest - 1).unwrap();
    assert_eq!(read(&file, longest - 2, 2), b"\0x");
    file.set_len(0).unwrap();
    drop((file, theirs));
    other.end();
    mount.end();
}
