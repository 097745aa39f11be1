use std::path::PathBuf;

use super::file::DumpFile;
use super::line::{DumpLine, text};
use super::{DUMP_VERSION, DumpEnd, DumpHeader, DumpProgress, DumpSkip};

fn header() -> DumpHeader {
    DumpHeader {
        cudele_dump: DUMP_VERSION,
        path: "/a".to_owned(),
        branch: "dump-1".to_owned(),
        branch_is_temporary: true,
        time_ns: 5,
    }
}

/// A directory with a dump, of which these lines are the frames.
fn begun(frames: &[&[&str]]) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("dump");
    let mut file = DumpFile::create(&path).unwrap();
    file.begin(&header()).unwrap();
    for frame in frames {
        for name in *frame {
            let file_type = if name.ends_with('/') { "directory" } else { "file" };
            let path = name.trim_end_matches('/').into();
            let line = DumpLine { path, file_type: file_type.into(), ..DumpLine::default() };
            file.push(&line).unwrap();
        }
        file.flush().unwrap();
    }
    (place, path)
}

#[test]
fn a_cut_dump_has_its_whole_frames() {
    let (_place, path) = begun(&[&["a/", "a/x"], &["b/"]]);
    let whole = std::fs::read(&path).unwrap();
    let all = DumpProgress::read(&path).unwrap();
    assert_eq!((all.entries, all.bytes, all.is_complete), (3, whole.len() as u64, false));
    let last = all.last.unwrap();
    assert_eq!((&last.path[..], last.is_directory), (&b"b"[..], true));
    let mut seen = [0; 4];
    for length in 1..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        match DumpProgress::read(&path) {
            Ok(progress) => {
                assert!(progress.bytes <= length as u64, "no part of a frame counts");
                seen[usize::try_from(progress.entries).unwrap()] += 1;
            }
            Err(error) => assert_eq!(error.errno, cudele::Errno::BadMessage, "{error}"),
        }
    }
    assert!(seen[0] > 0 && seen[1] == 0 && seen[2] > 0 && seen[3] == 0, "{seen:?}");
}

#[test]
fn a_damaged_frame_is_no_progress() {
    let (_place, path) = begun(&[&["a/", "a/x"], &["b/"]]);
    let whole = std::fs::read(&path).unwrap();
    let undamaged = DumpProgress::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        // A checksum finds the change, or the frames end before it.
        if let Ok(progress) = DumpProgress::read(&path) {
            // Some bits of a frame mean nothing, so that the text is the same without them.
            let is_same = progress == undamaged;
            assert!(progress.entries < 3 || is_same, "byte {at} was changed");
        }
    }
}

#[test]
fn a_dump_continues_where_its_frames_end() {
    let (_place, path) = begun(&[&["a/", "a/x"]]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[0x28, 0xb5, 0x2f]);
    std::fs::write(&path, &bytes).unwrap();
    let progress = DumpProgress::read(&path).unwrap();
    let mut file = DumpFile::append(&path, &progress).unwrap();
    file.finish(DumpEnd { entries: 2, skipped: 0, end: true }).unwrap();
    let progress = DumpProgress::read(&path).unwrap();
    assert_eq!((progress.entries, progress.is_complete), (2, true));
}

#[test]
fn names_that_are_no_text_come_back() {
    for bytes in [&b"plain"[..], b"line\nend", b"\xff\xfe", "\u{fffd}".as_bytes()] {
        let (path, path_hex) = text(bytes);
        let line = DumpLine { path, path_hex, ..DumpLine::default() };
        let written = serde_json::to_vec(&line).unwrap();
        let read: DumpLine<'_> = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.path_bytes().as_deref(), Ok(bytes));
    }
}

#[test]
fn a_continued_dump_knows_the_faults_before_it() {
    let (_place, path) = begun(&[&["a/", "a/x"]]);
    let progress = DumpProgress::read(&path).unwrap();
    let mut file = DumpFile::append(&path, &progress).unwrap();
    let (not_dumped, reason) = ("a/y".to_owned(), "it is damaged".to_owned());
    file.push(&DumpSkip { not_dumped, reason }).unwrap();
    file.flush().unwrap();
    let progress = DumpProgress::read(&path).unwrap();
    assert_eq!((progress.entries, progress.skipped), (2, 1));
    assert_eq!(progress.last.unwrap().path, b"a/x");
}
