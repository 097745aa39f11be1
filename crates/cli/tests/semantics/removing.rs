//! The content of removed files.

use std::sync::Arc;

use cudele::{Attr, Dir, Fs, NewFile, RenameFlags};
use objstore::ObjectStore;

use crate::fixture::World;
use crate::tools::{eventually, mount};

/// Bytes of all objects in the store.
fn taken(store: &dyn ObjectStore) -> u64 {
    let names = store.list("").unwrap();
    names.iter().map(|name| store.stat(name).map_or(0, |stat| stat.size)).sum()
}

/// Makes a file with its content in data objects, which need not be durable.
fn make(fs: &Arc<Fs>, dir: &Dir, name: &str) -> Attr {
    let attr = dir.create(name, &NewFile::default()).unwrap();
    let content = [7; 100_000];
    let size = fs.write_large(attr.striped(), &content, &mut std::io::empty()).unwrap();
    dir.set_data(attr.ino, &[], size).unwrap();
    attr
}

#[test]
fn removed_files_free_their_space_within_seconds() {
    const PIECE: u64 = 2 << 20;
    let world = World::new();
    let fs = mount(&world);
    let dir = fs.open_dir("/").unwrap();
    let store = world.store();
    let before = taken(&*store);
    for number in 0..100_u8 {
        let content = vec![number; usize::try_from(PIECE).unwrap()];
        // Both ways to replace a checkpoint: by its name, and by removing the one before.
        if number % 2 == 0 {
            fs.create_file(&dir, "next", &NewFile::default(), &mut &content[..]).unwrap();
            dir.rename("next", &dir, "even", RenameFlags::default()).unwrap();
        } else {
            let _none_yet = dir.unlink("odd");
            fs.create_file(&dir, "odd", &NewFile::default(), &mut &content[..]).unwrap();
        }
        // As 300 MB are to checkpoints of 40 MB.
        eventually("there is room for the next", || taken(&*store) - before < PIECE * 13 / 2);
    }
    // Small files are in the journal, and in their directory.
    let data = [7; 4000];
    let new = NewFile { size: 4000, data: &data, ..NewFile::default() };
    for number in 0..3000 {
        dir.create(format!("f{number}"), &new).unwrap();
    }
    fs.checkpoint().unwrap();
    assert!(taken(&*store) - before > 3000 * 4000);
    (0..3000).for_each(|number| dir.unlink(format!("f{number}")).unwrap());
    ["even", "odd"].iter().for_each(|name| dir.unlink(name).unwrap());
    eventually("all room is given back", || taken(&*store) < before + 1_000_000);
}

#[test]
fn the_next_server_deletes_the_content_that_a_killed_one_left() {
    const FILES: usize = 1200;
    let world = World::new();
    let fs = mount(&world);
    let dir = fs.open_dir("/").unwrap();
    let name = |number: usize| format!("f{number:04}");
    for number in 0..FILES {
        make(&fs, &dir, &name(number));
    }
    make(&fs, &dir, "stays");
    fs.sync().unwrap();
    let objects = || world.store().list("data/").unwrap().len();
    // Each file has a stripe and an object of checksums.
    assert_eq!(objects(), 2 * (FILES + 1));
    (0..FILES).for_each(|number| dir.unlink(name(number)).unwrap());
    fs.sync().unwrap();
    world.kill_server();
    world.run(&["up"]).done();
    eventually("the content is gone", || objects() == 2);
    drop((dir, fs));
    world.run(&["down"]).done();
    let found = world.json(&["fsck"]);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert!(found["incomplete"].is_null(), "{found:#}");
}
