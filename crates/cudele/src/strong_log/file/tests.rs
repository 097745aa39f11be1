use types::{ClientId, Ino};

use super::*;

const HEADER: SegmentHeader = SegmentHeader {
    writer: journal::Writer::Client { client: ClientId(7), subtree: Ino(9) },
    epoch: Epoch(3),
    first_seq: Seq(1),
};

fn event(name: &[u8]) -> Event<'_> {
    Event::Unlink { parent: Ino(9), name, ino: Ino(0), time: Timestamp(1) }
}

fn names(log: &LogFile) -> Vec<Vec<u8>> {
    let (bytes, _) = log.intact().unwrap();
    let mut reader = SegmentReader::open(&bytes).unwrap();
    let mut names = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        let mut events = block.events();
        while let Some(record) = events.next_event().unwrap() {
            names.extend(record.event.dentry().map(|(_, name)| name.to_vec()));
        }
    }
    names
}

fn log_of(dir: &Path, events: &[&[u8]]) -> LogFile {
    let path = dir.join("sub").join(name(ClientId(7), Timestamp(5)));
    let mut log = LogFile::start(&path, HEADER, &[]).unwrap();
    for name in events {
        log.append(&event(name), || {}).unwrap();
    }
    log
}

#[test]
fn only_the_log_of_a_dead_process_can_be_had() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_of(dir.path(), &[b"a", b"b"]);
    let path = log.path().to_owned();
    assert_eq!(beginning(&path), Some((5, 7)));
    assert!(LogFile::of_the_dead(&path).unwrap().is_none());
    drop(log);
    let log = LogFile::of_the_dead(&path).unwrap().unwrap();
    assert_eq!((log.header(), log.events(), log.next()), (HEADER, 2, Seq(3)));
    assert_eq!(names(&log), [b"a", b"b"]);
    assert!(LogFile::of_the_dead(&path).unwrap().is_none(), "it has one heir");
    log.remove().unwrap();
    assert!(LogFile::of_the_dead(&path).unwrap().is_none());
}

#[test]
fn a_log_that_begins_anew_keeps_what_is_needed_and_stays_locked() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_of(dir.path(), &[b"a", b"b", b"c"]);
    log.set_epoch(Epoch(4)).unwrap();
    assert_eq!((log.header().epoch, names(&log).len()), (Epoch(4), 3));
    log.restart(Epoch(5), Seq(3)).unwrap();
    assert_eq!((log.header().epoch, log.events(), names(&log)), (Epoch(5), 1, vec![b"c".to_vec()]));
    log.append(&event(b"d"), || {}).unwrap();
    assert!(LogFile::of_the_dead(log.path()).unwrap().is_none());
    log.restart(Epoch(6), log.next()).unwrap();
    assert_eq!(log.events(), 0);
    log.append(&event(b"e"), || {}).unwrap();
    let path = log.path().to_owned();
    drop(log);
    assert_eq!(names(&LogFile::of_the_dead(&path).unwrap().unwrap()), [b"e"]);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_torn_end_is_left_out_and_damage_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_of(dir.path(), &[b"a", b"b"]);
    let path = log.path().to_owned();
    let (whole, _) = log.intact().unwrap();
    drop(log);
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    assert_eq!(names(&LogFile::of_the_dead(&path).unwrap().unwrap()), [b"a"]);
    let mut damaged = whole;
    damaged[HEADER_BYTES + 20] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(LogFile::of_the_dead(&path).unwrap_err().kind(), ErrorKind::InvalidData);
}
