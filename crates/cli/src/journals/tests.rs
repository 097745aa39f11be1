use cudele::{FileType, Ino};
use journal::{Create, Event, JournalBuffer, SegmentHeader, Writer};
use types::{ClientId, Epoch, Origin, Seq, Timestamp};

use super::{Names, Story, each_event};

fn sample() -> Vec<u8> {
    let mut buffer = JournalBuffer::new(Seq(1), false);
    let create = |parent, name: &'static [u8], ino, file_type: FileType| {
        Event::Create(Create {
            parent: Ino(parent),
            name,
            ino: Ino(ino),
            mode: file_type.mode_bits() | 0o755,
            ..Create::default()
        })
    };
    let time = Timestamp(1);
    for event in [
        create(100, b"dir", 101, FileType::Directory),
        create(101, b"file", 102, FileType::Regular),
        create(7, b"elsewhere", 103, FileType::Regular),
        Event::Unlink { parent: Ino(101), name: b"file", ino: Ino(102), time },
    ] {
        buffer.append(Origin::default(), &event);
    }
    buffer.close_block();
    let writer = Writer::Client { client: ClientId(3), subtree: Ino(100) };
    let mut bytes = SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(1) }.encode().to_vec();
    bytes.extend(buffer.blocks().concat());
    bytes
}

fn lines(bytes: &[u8]) -> (Vec<String>, bool) {
    let mut names = Names::default();
    names.know_root(Ino(100), &cudele::Path::parse("/job").unwrap());
    let mut all = Vec::new();
    let mut show = |story: &Story<'_>| {
        let _ = story.to_json();
        all.push(story.line());
    };
    let ok = each_event(bytes, &mut names, &mut show).is_ok();
    (all, ok)
}

#[test]
fn paths_are_put_together_from_what_the_journal_itself_says() {
    let (lines, ok) = lines(&sample());
    assert!(ok);
    assert!(lines[0].contains("create    /job/dir  d0755"), "{}", lines[0]);
    assert!(lines[1].contains("/job/dir/file"), "{}", lines[1]);
    assert!(lines[2].contains("#7/elsewhere"), "what nothing tells has its number: {}", lines[2]);
    assert!(lines[3].contains("unlink    /job/dir/file"), "{}", lines[3]);
}

#[test]
fn directories_that_contain_each_other_do_not_hang() {
    let mut names = Names::default();
    for (ino, parent) in [(1000, 1001), (1001, 1000)] {
        names.known.insert(Ino(ino), (Ino(parent), b"x".to_vec()));
    }
    assert!(names.path_of(Ino(1000)).starts_with(b"#"));
}

#[test]
fn damaged_bytes_are_described_without_panic() {
    let whole = sample();
    for keep in 0..whole.len() {
        let (_, ok) = lines(&whole[..keep]);
        assert_eq!(ok, keep == journal::segment::HEADER_BYTES, "{keep}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        lines(&bytes);
    }
}
