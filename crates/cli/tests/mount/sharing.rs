//! Two mounts of the same files: a file that one has closed is complete when the other opens it.

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use types::rng::Rng;

use crate::mounts::{Mount, cluster, until};

/// As `rsync --inplace` or `cp --preserve` leave it.
#[test]
fn content_is_read_anew_though_time_and_length_are_those_of_before() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    let before = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1000));
    for length in [100, 100_000] {
        for byte in b'a'..b'f' {
            let mut file = File::create(one.path("file")).unwrap();
            file.write_all(&vec![byte; length]).unwrap();
            file.set_times(before).unwrap();
            drop(file);
            assert!(fs::read(two.path("file")).unwrap() == vec![byte; length], "{length} {byte}");
        }
    }
    two.end();
    one.end();
}

#[test]
fn two_mounts_append_in_turn() {
    let Some(world) = cluster() else { return };
    let both = [Mount::new(&world), Mount::new(&world)];
    let mut expected = String::new();
    // Over the border at which content leaves the inode.
    for number in 0..700_usize {
        let line = format!("{number:09}\n");
        let path = both[number % 2].path("log");
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        drop(file);
        expected += &line;
        if number % 50 == 0 {
            let mut found = String::new();
            let other = both[(number + 1) % 2].path("log");
            File::open(other).unwrap().read_to_string(&mut found).unwrap();
            assert!(found == expected, "after {number}");
        }
    }
    for mount in both {
        assert!(fs::read_to_string(mount.path("log")).unwrap() == expected);
        mount.end();
    }
}

#[test]
fn a_directory_that_is_listed_stays_whole_while_the_other_changes_it() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    fs::create_dir(one.path("d")).unwrap();
    for number in 0..3000 {
        File::create(one.path(&format!("d/stays.{number}"))).unwrap();
    }
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(two.path("d")).unwrap().enumerate() {
        seen.push(entry.unwrap().file_name());
        if number % 10 == 0 {
            File::create(one.path(&format!("d/comes.{number}"))).unwrap();
            fs::remove_file(one.path(&format!("d/comes.{number}"))).unwrap();
        }
    }
    seen.sort();
    seen.dedup();
    let stays = seen.iter().filter(|name| name.to_string_lossy().starts_with("stays")).count();
    assert_eq!(stays, 3000);
    two.end();
    one.end();
}

/// Unsent writes of another client are cut off with the rest, and do not come back when it closes
/// the file.
#[test]
fn a_file_is_cut_off_by_its_name_while_another_mount_writes_it() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    for length in [3000, 300_000] {
        let path = one.path("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(&vec![7; length], 0).unwrap();
        // By its name, which the standard library cannot.
        let cut = std::process::Command::new("perl")
            .args(["-e", "truncate($ARGV[0], 5) or die $!"])
            .arg(two.path("file"))
            .status();
        assert!(cut.unwrap().success());
        assert_eq!(file.metadata().unwrap().len(), 5, "of {length}");
        file.write_all_at(b"x", 7).unwrap();
        drop(file);
        assert_eq!(
            fs::read(two.path("file")).unwrap(),
            b"\x07\x07\x07\x07\x07\0\0x",
            "of {length}"
        );
        fs::remove_file(path).unwrap();
    }
    two.end();
    one.end();
}

#[test]
fn a_shared_file_that_lost_its_name_is_cut_off_and_goes_on() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(one.path("file")).unwrap();
    file.write_all_at(&[b'a'; 200_000], 0).unwrap();
    let other = File::open(two.path("file")).unwrap();
    fs::remove_file(one.path("file")).unwrap();
    for length in [100_000_u32, 4096, 100, 0, 5000] {
        file.set_len(length.into()).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        let mut found = vec![0; 5];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, b"begin", "{length}");
        assert_eq!(file.metadata().unwrap().len(), u64::from(length.max(5)));
    }
    drop((file, other));
    two.end();
    one.end();
}

/// A log that a program keeps open for days.
#[test]
fn write_back_happens_while_the_file_stays_open() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let mut log = File::create(mount.path("log")).unwrap();
    let mut expected = Vec::new();
    for length in [10, 100_000] {
        let line = vec![b'x'; length];
        log.write_all(&line).unwrap();
        expected.extend_from_slice(&line);
        // The server answers this; an open in another mount would recall the file at once.
        until("the file was written back", || {
            world.json(&["stat", "/log"])["size"] == expected.len()
        });
    }
    assert!(fs::read(mount.path("log")).unwrap() == expected);
    drop(log);
    mount.end();
}

/// One handle that only writes, beside the kernel's memory, and further ones that read through it.
#[test]
fn readers_see_unflushed_writes_at_once() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let writer = File::create(mount.path("file")).unwrap();
    let reader = File::open(mount.path("file")).unwrap();
    let mut expected = vec![0; 3 << 20];
    let mut chance = Rng::new(0x9e37_79b9);
    for round in 0..300_u32 {
        // Some in order, some not, some across the pieces that go to the store.
        let at = if round % 3 == 0 {
            chance.index(2 << 20)
        } else {
            usize::try_from(round).unwrap() * 4096
        };
        let piece = vec![u8::try_from(round % 251).unwrap(); 1 + chance.index(1 << 14)];
        writer.write_all_at(&piece, at as u64).unwrap();
        expected[at..at + piece.len()].copy_from_slice(&piece);
        let mut found = vec![0; piece.len() + 100];
        let from = at.saturating_sub(50);
        let count = reader.read_at(&mut found, from as u64).unwrap();
        assert!(found[..count] == expected[from..from + count], "round {round}");
    }
    drop((writer, reader));
    let found = fs::read(mount.path("file")).unwrap();
    assert!(found == expected[..found.len()]);
    mount.end();
}

/// Writes from before the last close are synced, too. A test could not see that before the power
/// fails: so the object is put out of reach, and a sync that looks for it fails.
#[test]
fn a_sync_covers_the_writes_of_earlier_opens() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    fs::write(one.path("file"), vec![7; 100_000]).unwrap();
    let objects = walkdir::WalkDir::new(world.path("c/store/objects/data%"));
    let files: Vec<_> = objects.into_iter().map(|entry| entry.unwrap()).collect();
    let object = files.iter().find(|entry| {
        entry.file_type().is_file() && !entry.file_name().to_string_lossy().contains(".sums.")
    });
    let object = object.unwrap().path();
    let aside = world.path("aside");
    fs::rename(object, &aside).unwrap();
    fs::create_dir(object).unwrap();
    for mount in [&one, &two] {
        assert!(File::open(mount.path("file")).unwrap().sync_all().is_err());
    }
    fs::remove_dir(object).unwrap();
    fs::rename(&aside, object).unwrap();
    two.end();
    one.end();
    // After a failed sync of an object that process does not trust it any more.
    let mount = Mount::new(&world);
    File::open(mount.path("file")).unwrap().sync_all().unwrap();
    mount.end();
}
