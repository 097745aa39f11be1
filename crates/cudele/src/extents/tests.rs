use objstore::{
    Capacity, Counting, Expect, Fencing, LockGuard, Memory, ObjectStore, Operation, Pools,
    PutOutcome, Space, Stat, Sweeping, Tuned, Version,
};

use super::*;

const PIB: u64 = 1 << 50;
const MIB: u64 = 1 << 20;
const STRIPE: u64 = 4 * MIB;

/// Runs something on a file of a pebibyte with these objects, whole. Returns the numbers of those
/// that are left, and how often the store was asked.
fn on_sparse(numbers: &[u64], act: impl FnOnce(Objects<'_>)) -> (Vec<u64>, u64) {
    let store = Counting::new(Memory::new());
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, StripedFile::new(Ino(0x77), Stripe::DEFAULT));
    for number in numbers {
        store.write_range(&objects.name(*number), 0, &[7; 1000]).unwrap();
    }
    // Somebody else's.
    store.write_range(&metastore::data_name(Ino(0x177), types::Pool::USUAL, 5), 0, b"x").unwrap();
    let before = store.counters().counts();
    act(objects);
    let calls = store.counters().counts().since(&before).calls();
    assert!(store.stat(&metastore::data_name(Ino(0x177), types::Pool::USUAL, 5)).is_ok());
    (objects.numbers(0..1 << 44).unwrap(), calls)
}

#[test]
fn operations_on_a_sparse_file_touch_only_existing_objects() {
    let held = [0, 3, 1 << 20, (1 << 28) - 1];
    let all = |act: fn(Objects<'_>)| on_sparse(&held, act);
    assert_eq!(all(|objects| objects.delete_data(PIB).unwrap()), (vec![], 5));
    assert_eq!(all(|objects| objects.sync_all(PIB).unwrap()), (held.to_vec(), 1));
    assert_eq!(
        all(|objects| objects.zero_range(PIB, 10..10 + PIB).unwrap()),
        (vec![0], 7),
        "of the first only what is behind ten bytes: one stat, one write; one list of checksums"
    );
    assert_eq!(
        all(|objects| objects.zero_range(PIB, STRIPE..STRIPE + PIB / 2).unwrap()),
        (vec![0, (1 << 28) - 1], 4)
    );
}

#[test]
fn data_and_holes_are_found_without_looking_at_every_object() {
    let far = 1 << 20;
    let (_, calls) = on_sparse(&[0, 1, far], |objects| {
        let next = |offset| (objects.next_data(PIB, offset), objects.next_hole(PIB, offset));
        assert_eq!(next(0), (Ok(Some(0)), Ok(1000)));
        assert_eq!(next(999), (Ok(Some(999)), Ok(1000)));
        assert_eq!(next(1000), (Ok(Some(STRIPE)), Ok(1000)));
        assert_eq!(next(STRIPE + 1000), (Ok(Some(far * STRIPE)), Ok(STRIPE + 1000)));
        assert_eq!(next(far * STRIPE + 1000), (Ok(None), Ok(far * STRIPE + 1000)));
    });
    assert!(calls < 300, "{calls}");
    // The end of a file is a hole, wherever its last object ends.
    on_sparse(&[0], |objects| {
        assert_eq!(objects.next_hole(500, 0), Ok(500));
        assert_eq!(objects.next_data(500, 499), Ok(Some(499)));
    });
}

#[test]
fn an_unsynced_stripe_of_a_sparse_file_is_absent_after_a_crash() {
    let memory = Memory::new();
    let sums = Sums::default();
    let objects = Objects::new(&memory, &sums, StripedFile::new(Ino(9), Stripe::MIN));
    objects.write_at(PIB - 4, b"last").unwrap();
    objects.sync_all(PIB).unwrap();
    objects.write_at(0, b"lost").unwrap();
    memory.crash(|_, _| 0);
    assert_eq!(objects.numbers(0..1 << 44), Ok(vec![(PIB - 4) / Stripe::MIN.bytes()]));
}

#[test]
fn a_sync_of_some_objects_asks_for_no_other() {
    let (_, calls) = on_sparse(&[1, 2, 3, 4], |objects| {
        objects.sync(&[2, 900]).unwrap();
    });
    assert_eq!(calls, 2);
    let store = Counting::new(Memory::new());
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, StripedFile::new(Ino(7), Stripe::DEFAULT));
    objects.sync(&(0..100).collect::<Vec<_>>()).unwrap();
    assert_eq!(store.counters().counts().of(Operation::Sync).calls, 100, "each once");
    assert_eq!(objects.sync(&[]), Ok(()));
}

#[test]
fn pieces_cover_a_range_without_gaps() {
    for stripe in [Stripe::MIN, Stripe::DEFAULT, Stripe::MAX] {
        let bytes = stripe.bytes();
        let all: Vec<_> = pieces(stripe, bytes - 1, bytes + 2).collect();
        let piece = |stripe, offset, length| Piece { stripe, offset, length };
        assert_eq!(all, [piece(0, bytes - 1, 1), piece(1, 0, bytes), piece(2, 0, 1)]);
        assert_eq!(pieces(stripe, 5, 0).count(), 0);
        assert_eq!(pieces(stripe, u64::MAX - 1, 1).count(), 1);
        let range = bytes - 1..2 * bytes + 1;
        let one_by_one = (0..3).map(|number| piece_of(stripe, number, &range));
        assert!(one_by_one.eq(all), "{stripe:?}");
    }
}

/// A store that takes as long for a list as it has objects, and likes much at a time.
#[derive(Debug)]
struct Elsewhere(Counting<Memory>);

impl ObjectStore for Elsewhere {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        self.0.put(name, data, expect)
    }
    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        self.0.append(name, data)
    }
    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_range(name, offset, data)
    }
    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        self.0.get(name)
    }
    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.0.read_range(name, offset, length)
    }
    fn stat(&self, name: &str) -> Result<Stat> {
        self.0.stat(name)
    }
    fn delete(&self, name: &str) -> Result<bool> {
        self.0.delete(name)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.0.list(prefix)
    }
    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        self.0.sync(scope)
    }
}

impl Tuned for Elsewhere {
    fn lists_what_it_finds(&self) -> bool {
        false
    }
    fn bytes_at_once(&self) -> usize {
        32 << 20
    }
    fn period(&self) -> u32 {
        self.0.period()
    }
}

impl Capacity for Elsewhere {
    fn space(&self) -> Result<Space> {
        self.0.space()
    }
}

impl Fencing for Elsewhere {
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        self.0.lock(name, owner)
    }
}

impl Pools for Elsewhere {}

impl Sweeping for Elsewhere {}

#[test]
fn a_file_of_many_objects_is_cut_off_and_searched_without_a_list() {
    let store = Elsewhere(Counting::new(Memory::new()));
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, StripedFile::new(Ino(7), Stripe::DEFAULT));
    let (size, far) = (60_000 * STRIPE, 50_000 * STRIPE);
    for at in [0, 2 * STRIPE, far] {
        objects.write_at(at, b"here").unwrap();
    }
    assert_eq!(objects.next_data(size, STRIPE), Ok(Some(2 * STRIPE)));
    assert_eq!(objects.next_data(size, 2 * STRIPE + 4), Ok(Some(far)));
    assert_eq!(objects.next_data(size, far + 4), Ok(None));
    objects.zero_range(size, STRIPE..STRIPE + size).unwrap();
    assert_eq!(objects.next_data(size, 4), Ok(None));
    objects.delete_data(size).unwrap();
    assert_eq!(store.0.counters().counts().of(Operation::List).calls, 0);
    assert_eq!(store.list("data/"), Ok(vec![]));
}

#[test]
fn many_objects_written_and_read_at_a_time_hold_what_was_written() {
    let store = Elsewhere(Counting::new(Memory::new()));
    let sums = Sums::default();
    let objects = Objects::new(&store, &sums, StripedFile::new(Ino(7), Stripe::MIN));
    assert_eq!(at_once(&store, Stripe::MIN), OBJECTS_AT_ONCE);
    assert_eq!(at_once(&store, Stripe::MAX), 1);
    assert_eq!(at_once(&Memory::new(), Stripe::DEFAULT), 1);
    let content: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    objects.write_at(100_001, &content).unwrap();
    let mut read = vec![1; content.len() + 5];
    objects.read_into(100_000, &mut read).unwrap();
    assert!(read[0] == 0 && read[1..=content.len()] == content && read.ends_with(&[0; 4]));
    let error = store.0.put("x", b"", Expect::Absent).and_then(|_| store.get("y").map(|_| ()));
    let failed = objects.side_by_side(4, (0..100).collect(), |number| match number {
        40 => error.clone(),
        _ => Ok(()),
    });
    assert_eq!(failed.unwrap_err().errno, Errno::NotFound);
}
