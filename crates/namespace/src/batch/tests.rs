use journal::{Create, Event};
use types::{FileType, Ino, Seq, Timestamp};

use crate::{ApplyOutcome, CreateBatch, Mode, Namespace};

fn create(number: u64, name: &[u8]) -> Create<'_> {
    // Some directories, some files in them, some with content, some under one name.
    let is_dir = number.is_multiple_of(7);
    let file_type = if is_dir { FileType::Directory } else { FileType::Regular };
    let parent = if number < 50 { Ino::ROOT } else { Ino(4096 + number % 50) };
    Create {
        parent,
        name,
        ino: Ino(4096 + number),
        mode: file_type.mode_bits() | 0o644,
        time: Timestamp(i64::try_from(number).unwrap()),
        data: if number.is_multiple_of(5) && !is_dir { b"content" } else { b"" },
        ..Create::default()
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("name.{}", number % 300).into_bytes()
}

#[test]
fn a_batch_does_what_its_creates_do_one_by_one() {
    let mut single = Namespace::with_root(Timestamp(1));
    let (mut batched, outcomes) = in_batches();
    let mut expected = Vec::new();
    for number in 0..1000 {
        let name = name(number);
        expected.push(single.apply(Seq(9), Mode::Merge, &Event::Create(create(number, &name))));
    }
    assert_eq!(outcomes, expected);
    assert!(expected.iter().any(|outcome| *outcome != ApplyOutcome::Done), "some names collide");
    assert_eq!(batched.dirs().directory_list(), single.dirs().directory_list());
    for dir in single.dirs().directory_list() {
        assert_eq!(batched.dirs().counts(dir), single.dirs().counts(dir));
    }
    for number in 0..1000 {
        let ino = Ino(4096 + number);
        assert_eq!(batched.getattr(ino), single.getattr(ino));
        assert_eq!(batched.data(ino), single.data(ino));
    }
    assert_eq!(batched.take_freed(), single.take_freed());
}

/// The same creates, in batches of various sizes.
fn in_batches() -> (Namespace, Vec<ApplyOutcome>) {
    let mut namespace = Namespace::with_root(Timestamp(1));
    let mut outcomes = Vec::new();
    let mut batch = CreateBatch::default();
    for number in 0..1000 {
        let name = name(number);
        batch.push(Seq(9), &create(number, &name));
        if batch.len() as u64 > number % 41 {
            let first = outcomes.len() as u64;
            let mut next = first;
            namespace.apply_batch(Mode::Merge, &mut batch, |create, outcome| {
                assert_eq!(create.ino, Ino(4096 + next));
                outcomes.push(outcome);
                next += 1;
            });
            assert!(batch.is_empty());
        }
    }
    namespace.apply_batch(Mode::Merge, &mut batch, |_, outcome| outcomes.push(outcome));
    (namespace, outcomes)
}
