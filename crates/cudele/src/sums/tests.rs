#![allow(clippy::cast_possible_truncation, reason = "generated numbers are cut to size on purpose")]

use metastore::{SUM_BLOCK_BYTES, SUM_BYTES};
use objstore::{Expect, Memory, ObjectStore, SyncScope};
use types::rng::Rng;
use types::{Errno, Ino, Stripe, StripedFile};

use super::{Seal, Sums};
use crate::extents::Objects;

const INO: Ino = Ino(0x77);
const PLACE: StripedFile = StripedFile::new(INO, Stripe::MIN);
const STRIPE: usize = 64 << 10;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8 | 1).collect()
}

/// A store with a file of this content, whose entries hold for good.
fn sealed(content: &[u8]) -> Memory {
    let (store, sums) = (Memory::new(), Sums::default());
    let objects = Objects::new(&store, &sums, PLACE);
    objects.write_at(0, content).unwrap();
    store.sync(SyncScope::All).unwrap();
    objects.seal(Seal::Durable);
    store.sync(SyncScope::All).unwrap();
    store
}

fn read(store: &Memory, offset: usize, length: usize) -> types::Result<Vec<u8>> {
    let mut bytes = vec![9; length];
    let sums = Sums::default();
    Objects::new(store, &sums, PLACE).read_into(offset as u64, &mut bytes)?;
    Ok(bytes)
}

fn stripe(store: &Memory, number: u64) -> (String, Vec<u8>) {
    let sums = Sums::default();
    let name = Objects::new(store, &sums, PLACE).name(number);
    let bytes = store.get(&name).unwrap().0;
    (name, bytes)
}

fn put(store: &Memory, name: &str, bytes: &[u8]) {
    let _version = store.put(name, bytes, Expect::Any).unwrap();
}

#[test]
fn a_read_of_any_part_of_a_block_finds_a_flipped_bit() {
    let content = content(2 * STRIPE + 1000);
    let store = sealed(&content);
    assert_eq!(read(&store, 0, content.len()).unwrap(), content);
    let (name, bytes) = stripe(&store, 1);
    for at in [0, 1, 16_383, 16_384, STRIPE - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 16;
        put(&store, &name, &flipped);
        let error = read(&store, 0, content.len()).unwrap_err();
        assert_eq!(error.errno, Errno::Io);
        let block = (STRIPE + at) / 16_384;
        let said = error.to_string();
        assert!(said.contains(&format!("block {block} ")) && said.contains(&name), "{said}");
        assert!(said.contains("inode 119"), "{said}");
        // Of the same block other bytes than the one that was changed.
        assert!(read(&store, block * 16_384 + 100, 50).is_err());
        assert!(read(&store, block * 16_384, 1).is_err());
        // Another block.
        let other = if block.is_multiple_of(2) { block + 1 } else { block - 1 } * 16_384;
        assert_eq!(read(&store, other, 16_384).unwrap(), content[other..other + 16_384]);
    }
    put(&store, &name, &bytes);
    assert_eq!(read(&store, 0, content.len()).unwrap(), content);
}

#[test]
fn a_stripe_that_was_cut_zeroed_or_removed_is_found_and_a_hole_is_none() {
    let content = content(3 * STRIPE);
    for damage in 0..4 {
        let store = sealed(&content);
        let (name, bytes) = stripe(&store, 1);
        match damage {
            0 => assert!(store.delete(&name).unwrap()),
            1 => put(&store, &name, &bytes[..STRIPE - 1]),
            2 => put(&store, &name, &vec![0; STRIPE]),
            _ => put(&store, &name, &stripe(&store, 0).1),
        }
        assert_eq!(read(&store, 0, content.len()).unwrap_err().errno, Errno::Io, "{damage}");
        assert_eq!(read(&store, 0, STRIPE).unwrap(), content[..STRIPE]);
    }
    let (store, sums) = (Memory::new(), Sums::default());
    let objects = Objects::new(&store, &sums, PLACE);
    objects.write_at(5, b"front").unwrap();
    objects.write_at(3 * STRIPE as u64 + 77, b"behind").unwrap();
    objects.seal(Seal::Durable);
    let found = read(&store, 0, 4 * STRIPE).unwrap();
    assert_eq!((&found[5..10], &found[3 * STRIPE + 77..][..6]), (&b"front"[..], &b"behind"[..]));
    assert!(found[10..3 * STRIPE].iter().all(|byte| *byte == 0));
}

#[test]
fn damaged_or_lost_checksums_take_nothing_away() {
    let content = content(STRIPE);
    let store = sealed(&content);
    let sums = Sums::default();
    let name = Objects::new(&store, &sums, PLACE).sums_name(0);
    let mut bytes = store.get(&name).unwrap().0;
    assert_eq!(bytes.len(), 4 * SUM_BYTES);
    bytes[5] ^= 1;
    put(&store, &name, &bytes);
    assert_eq!(read(&store, 0, STRIPE).unwrap(), content);
    store.delete(&name).unwrap();
    assert_eq!(read(&store, 0, STRIPE).unwrap(), content);
}

#[test]
fn an_append_keeps_the_checksum_of_what_was_there() {
    let store = sealed(&content(1000));
    let (name, mut bytes) = stripe(&store, 0);
    bytes[3] ^= 1;
    put(&store, &name, &bytes);
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, PLACE);
    objects.write_at(1000, b"more").unwrap();
    assert!(read(&store, 0, 1004).is_err());
    objects.seal(Seal::Durable);
    assert!(read(&store, 1000, 4).is_err(), "the entry of the longer block is made of the old one");
}

#[test]
fn content_under_concurrent_writes_has_no_checksum_and_never_fails() {
    let content = content(STRIPE);
    let store = sealed(&content);
    let (one, other) = (Sums::default(), Sums::default());
    [&one, &other].iter().for_each(|sums| sums.share(INO, true));
    let (a, b) = (Objects::new(&store, &one, PLACE), Objects::new(&store, &other, PLACE));
    for round in 0..50_u64 {
        a.write_at(round * 300, &[1; 100]).unwrap();
        b.write_at(round * 300 + 100, &[2; 100]).unwrap();
        let mut bytes = vec![0; 200];
        b.read_into(round * 300, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[199]), (1, 2));
    }
    a.seal(Seal::Durable);
    b.seal(Seal::Durable);
    let expected: Vec<u8> = (0..SUM_BLOCK_BYTES)
        .map(|at| match at % 300 {
            _ if at >= 15_000 => content[at as usize],
            0..100 => 1,
            100..200 => 2,
            _ => content[at as usize],
        })
        .collect();
    assert_eq!(read(&store, 0, SUM_BLOCK_BYTES as usize).unwrap(), expected);
}

#[test]
fn a_write_inside_a_block_reads_the_block_for_its_checksum() {
    let mut content = content(STRIPE);
    let store = sealed(&content);
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, PLACE);
    objects.write_at(20_000, b"in the middle").unwrap();
    content[20_000..20_013].copy_from_slice(b"in the middle");
    assert_eq!(read(&store, 0, STRIPE).unwrap(), content);
    objects.seal(Seal::Durable);
    let (name, mut bytes) = stripe(&store, 0);
    assert_eq!(read(&store, 0, STRIPE).unwrap(), content);
    bytes[17_000] ^= 1;
    put(&store, &name, &bytes);
    assert!(read(&store, 20_000, 1).is_err());
}

const FILE: u64 = 3 * STRIPE as u64;

/// Two clients have a file in turn, or both at a time.
struct Run {
    store: Memory,
    clients: [Sums; 2],
    model: Vec<u8>,
    owner: usize,
    shared: bool,
    /// All content is durable.
    synced: bool,
}

impl Run {
    fn write(&mut self, client: usize, (at, length): (u64, u64), byte: u8) {
        let objects = Objects::new(&self.store, &self.clients[client], PLACE);
        let range = at as usize..(at + length) as usize;
        if byte == 0 {
            objects.zero_range(FILE, at..at + length).unwrap();
        } else {
            objects.write_at(at, &vec![byte; range.len()]).unwrap();
        }
        self.model[range].fill(byte);
        self.synced = false;
    }

    fn sync(&mut self, client: usize, read_again: bool) {
        let sums = &self.clients[client];
        let objects = Objects::new(&self.store, sums, PLACE);
        // Of content and of nothing else.
        for number in 0..3 {
            self.store.sync(SyncScope::Object(&objects.name(number))).unwrap();
        }
        self.synced = true;
        sums.seal(&objects, Seal::Durable, read_again);
    }

    fn seal(&self, client: usize) {
        let seal = if self.synced { Seal::Durable } else { Seal::Written };
        Objects::new(&self.store, &self.clients[client], PLACE).seal(seal);
    }

    fn empty(&mut self, client: usize) {
        let objects = Objects::new(&self.store, &self.clients[client], PLACE);
        self.clients[client].remove(&objects, FILE, false).unwrap();
        for number in 0..3 {
            self.store.delete(&objects.name(number)).unwrap();
        }
        self.model.fill(0);
        self.synced = false;
    }

    fn forget(&self) {
        for sums in &self.clients {
            sums.forget(INO);
            sums.share(INO, self.shared);
        }
    }

    /// Loses any part of the unsynced content.
    fn lose_power(&mut self, chance: &mut Rng, at: &str) {
        self.store.crash(|_, length| chance.below(2 * length as u64 + 1) as usize);
        self.forget();
        let found = read(&self.store, 0, FILE as usize);
        self.model = found.unwrap_or_else(|error| panic!("{at}: {error}"));
        self.synced = false;
    }

    fn step(&mut self, chance: &mut Rng, at: &str) {
        let client = if self.shared { chance.below(2) as usize } else { self.owner };
        let place = chance.below(FILE);
        let longest = [50, 5000, 40_000][chance.below(3) as usize];
        let length = (1 + chance.below(longest)).min(FILE - place);
        let aligned = chance.below(3) == 0;
        let place = if aligned { place / SUM_BLOCK_BYTES * SUM_BLOCK_BYTES } else { place };
        match chance.below(12) {
            0..=4 => self.write(client, (place, length), 1 + chance.below(255) as u8),
            5 => self.write(client, (place, length), 0),
            6 => Objects::new(&self.store, &self.clients[client], PLACE).seal(Seal::Written),
            7 => self.sync(client, chance.below(2) == 0),
            8 => self.empty(client),
            9 if !self.shared => {
                // It is closed here and opened there.
                self.seal(client);
                self.owner = 1 - self.owner;
                self.forget();
            }
            10 => {
                if !self.shared {
                    self.seal(client);
                }
                self.shared = !self.shared;
                self.forget();
            }
            11 if chance.below(2) == 0 => self.lose_power(chance, at),
            // The client is killed, and its successor knows nothing.
            _ => self.clients[client].share(INO, self.shared),
        }
    }
}

/// The power fails at any moment. No read reports damage, and without a power failure each read
/// returns the written bytes.
#[test]
fn no_order_of_writes_syncs_and_power_failures_makes_content_unreadable() {
    for seed in 0..300 {
        let mut chance = Rng::new(seed);
        let mut run = Run {
            store: Memory::new(),
            clients: [Sums::default(), Sums::default()],
            model: vec![0; FILE as usize],
            owner: 0,
            shared: false,
            synced: true,
        };
        for step in 0..60 {
            let at = format!("seed {seed}, step {step}");
            run.step(&mut chance, &at);
            let found = read(&run.store, 0, FILE as usize);
            let found = found.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(found == run.model, "{at}");
        }
    }
}

#[test]
fn a_sync_of_another_file_writes_no_checksum_of_a_block_that_is_being_zeroed() {
    for zeroed in [1..2, 1..40_000, 0..1 << 20] {
        let (store, sums) = (Memory::new(), Sums::default());
        let objects = Objects::new(&store, &sums, PLACE);
        let mut content = content(50_000);
        objects.write_at(0, &content).unwrap();
        objects.seal(Seal::Written);
        // Another thread has begun to sync the whole store.
        let written = sums.written();
        store.sync(SyncScope::All).unwrap();
        let end = zeroed.end.min(content.len());
        let range = zeroed.start as u64..end as u64;
        sums.zero(&objects, content.len() as u64, &range, || {
            // It ends when the entries are removed, and the zeros are not written.
            sums.hold_for_good(&store, &written);
            objects.seal(Seal::Durable);
            objects.write_unverified(range.start, &vec![0; end - zeroed.start])
        })
        .unwrap();
        content[zeroed.start..end].fill(0);
        assert_eq!(read(&store, 0, content.len()).unwrap(), content, "{zeroed:?}");
        objects.seal(Seal::Durable);
        assert_eq!(read(&store, 0, content.len()).unwrap(), content, "{zeroed:?}");
    }
}
