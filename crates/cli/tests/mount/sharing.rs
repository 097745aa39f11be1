//! Two mounts of the same files: what one has closed, the other finds when it opens.

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use crate::mounts::{Mount, cluster};

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
fn both_append_in_turn() {
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
