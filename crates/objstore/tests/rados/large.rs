//! Objects that consist of several RADOS objects.

use objstore::{Expect, ObjectStore, PutOutcome, Version};

use crate::cluster::up;

/// The size of one RADOS object.
const PIECE: usize = 4 << 20;

fn bytes(length: usize, seed: u32) -> Vec<u8> {
    let next = |at: usize| (u32::try_from(at).unwrap().wrapping_mul(2_654_435_761) ^ seed) >> 11;
    (0..length).map(|at| next(at).to_le_bytes()[0]).collect()
}

fn same(store: &dyn ObjectStore, name: &str, wanted: &[u8]) {
    let (content, version) = store.get(name).unwrap();
    assert_eq!(content.len(), wanted.len(), "{name}");
    assert!(content == wanted, "{name} has other bytes");
    assert_eq!(version, Version::of(wanted));
    assert_eq!(store.stat(name).unwrap().size, wanted.len() as u64);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_large_object_is_replaced_as_a_whole_and_leaves_nothing() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    let pieces = || ceph.objects("test", "cudele.metadata.pieces").len();
    let (first, second) = (bytes(5 * PIECE + 7, 1), bytes(2 * PIECE, 2));
    let done = |outcome: types::Result<PutOutcome>| {
        assert!(matches!(outcome, Ok(PutOutcome::Done(_))), "{outcome:?}");
    };
    done(store.put("a", &first, Expect::Absent));
    assert_eq!(pieces(), 5);
    same(&*store, "a", &first);
    done(store.put("a", &second, Expect::Is(Version::of(&first))));
    assert_eq!(pieces(), 1, "the first content's pieces are gone");
    same(&*store, "a", &second);
    let late = store.put("a", &first, Expect::Is(Version::of(&first)));
    assert_eq!(late, Ok(PutOutcome::Conflict(Some(Version::of(&second)))));
    let late = store.put("a", &first, Expect::Absent);
    assert_eq!(late, Ok(PutOutcome::Conflict(Some(Version::of(&second)))));
    assert_eq!(pieces(), 1, "a put that lost leaves nothing");
    done(store.put("a", b"small", Expect::Any));
    same(&*store, "a", b"small");
    assert_eq!(pieces(), 0);
    done(store.put("a", &first, Expect::Any));
    assert_eq!(store.delete("a"), Ok(true));
    assert_eq!((store.delete("a"), pieces()), (Ok(false), 0));
    assert_eq!(store.list("").unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn appends_and_ranges_go_across_pieces() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    // Two connections, so that neither can rely on its cache.
    let other = ceph.open("");
    let mut model = Vec::new();
    for (number, length) in [PIECE - 3, 1, 7, PIECE, 0, 2 * PIECE + 1, 5].into_iter().enumerate() {
        let data = bytes(length, u32::try_from(number).unwrap());
        let at = if number % 2 == 0 { &store } else { &other }.append("journal/log", &data);
        assert_eq!(at, Ok(model.len() as u64), "append {number}");
        model.extend_from_slice(&data);
    }
    same(&*store, "journal/log", &model);
    let across = bytes(PIECE + 100, 9);
    store.write_range("journal/log", (PIECE - 50) as u64, &across).unwrap();
    model[PIECE - 50..2 * PIECE + 50].copy_from_slice(&across);
    same(&*other, "journal/log", &model);
    for (offset, length) in [(PIECE - 1, 2), (3 * PIECE, PIECE + 9), (0, usize::MAX), (PIECE, 0)] {
        let end = offset.saturating_add(length).min(model.len());
        let read = other.read_range("journal/log", offset as u64, length).unwrap();
        assert!(read == model[offset.min(end)..end], "{length} bytes at {offset}");
    }
    let version = Version::of(&model);
    store.write_range("journal/log", (2 * PIECE) as u64, b"changed").unwrap();
    // Only a piece has changed: a conditional change must notice all the same.
    let late = other.put("journal/log", b"late", Expect::Is(version));
    assert!(matches!(late, Ok(PutOutcome::Conflict(Some(_)))), "{late:?}");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn unwritten_ranges_read_as_zeros() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    store.write_range("data/00/1.0", (3 * PIECE + 5) as u64, b"end").unwrap();
    let mut model = vec![0; 3 * PIECE + 8];
    model[3 * PIECE + 5..].copy_from_slice(b"end");
    same(&*store, "data/00/1.0", &model);
    store.write_range("data/00/1.0", 10, b"start").unwrap();
    model[10..15].copy_from_slice(b"start");
    same(&*store, "data/00/1.0", &model);
    let mut buffer = vec![7; 100];
    assert_eq!(store.read_into("data/00/1.0", 5, &mut buffer), Ok(100));
    assert!(buffer == model[5..105]);
    // An object that was a gap is replaced, and does not remember.
    assert_eq!(store.delete("data/00/1.0"), Ok(true));
    store.write_range("data/00/1.0", (PIECE + 1) as u64, b"x").unwrap();
    model.truncate(PIECE + 1);
    model.fill(0);
    model.push(b'x');
    same(&*store, "data/00/1.0", &model);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn readers_see_one_content_or_the_other() {
    const ROUNDS: u32 = 12;
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    let of = |round: u32| vec![u8::try_from(round).unwrap(); (2 + round as usize % 3) * PIECE];
    let _ = store.put("a", &of(0), Expect::Any).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..ROUNDS {
                let _ = store.put("a", &of(round), Expect::Any).unwrap();
            }
        });
        let reader = ceph.open("");
        let mut reads = 0;
        while !writer.is_finished() || reads == 0 {
            let (content, _) = reader.get("a").unwrap();
            assert!(content == of(u32::from(content[0])), "a mixture");
            reads += 1;
        }
    });
    assert!(store.get("a").unwrap().0 == of(ROUNDS - 1));
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_sweep_removes_what_nothing_refers_to_and_nothing_else() {
    const HOURS_S: i64 = 3600;
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    let large = |byte: u8| vec![byte; 2 * PIECE + 5];
    let file = "data/01/0000000000000101.00000000";
    store.write_range(file, 0, &large(1)).unwrap();
    let _ = store.put("journal/kept", &large(2), Expect::Any).unwrap();
    // As writers leave it that died before they wrote the head, or after they removed it.
    for name in ["journal/kept", "journal/never", "journal/odd.1"] {
        let _ = store.put(name, &large(3), Expect::Any).unwrap();
        let head = ceph.rados("test", "cudele.journal", &["rm", name]);
        assert!(head.success());
    }
    let _ = store.put("journal/kept", &large(4), Expect::Any).unwrap();
    let pieces = || ceph.objects("test", "cudele.journal.pieces").len();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    assert_eq!(pieces(), 8);
    // A writer may be about to refer to a young piece.
    let young = store.sweep(now, false).unwrap();
    assert_eq!((young.garbage, young.young, young.pieces), (0, 6, 10));
    let look = store.sweep(now + 3 * HOURS_S, true).unwrap();
    assert_eq!((look.garbage, look.bytes, pieces()), (6, 3 * (PIECE as u64 + 5), 8));
    assert_eq!(store.sweep(now + 3 * HOURS_S, false).unwrap(), look);
    assert_eq!(pieces(), 2);
    assert_eq!(store.sweep(now + 3 * HOURS_S, false).unwrap().garbage, 0);
    for (name, content) in [("journal/kept", large(4)), (file, large(1))] {
        assert!(store.get(name).unwrap().0 == content, "{name}");
    }
}
