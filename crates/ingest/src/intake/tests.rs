use std::io::Read;
use std::sync::Arc;

use cudele::{AttrChange, Errno, Ino, NewFile, Result, Stripe, StripedFile, Timestamp};

use super::{Intake, Progress, Target};
use crate::source::{EntrySink, SourceEntry, SourceKind};

/// Records its calls.
#[derive(Default)]
struct Recorder {
    calls: Vec<String>,
    last: u64,
}

impl Target for Recorder {
    fn root(&self) -> Ino {
        Ino(1)
    }

    fn create(&mut self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<StripedFile> {
        let ino = Ino(100 + self.last);
        self.last += 1;
        let name = String::from_utf8_lossy(name);
        let kind = new.file_type.word();
        self.calls.push(format!("create {kind} {}/{name} {} = {}", dir.0, new.size, ino.0));
        Ok(StripedFile { ino, stripe: Stripe::default() })
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        self.calls.push(format!("link {} {}/{}", ino.0, dir.0, String::from_utf8_lossy(name)));
        Ok(())
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        self.calls.push(format!("unlink {}/{}", dir.0, String::from_utf8_lossy(name)));
        Ok(())
    }

    fn set_attr(&mut self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        let size = change.size.map(|size| format!(" size {size}")).unwrap_or_default();
        self.calls.push(format!("attributes {}/{}{size}", home.0, ino.0));
        Ok(())
    }

    fn set_xattr(&mut self, _: Ino, ino: Ino, name: &[u8], _: &[u8]) -> Result<()> {
        self.calls.push(format!("xattr {} {}", ino.0, String::from_utf8_lossy(name)));
        Ok(())
    }

    fn inline_bytes(&mut self, _: Ino) -> Result<u32> {
        Ok(cudele::INLINE_BYTES)
    }

    fn write(&mut self, made: StripedFile, head: &[u8], rest: &mut dyn Read) -> Result<u64> {
        let rest = std::io::copy(rest, &mut std::io::sink()).expect("memory");
        let length = head.len() as u64 + rest;
        self.calls.push(format!("write {} {length}", made.ino.0));
        Ok(length)
    }

    fn size_comes_last(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<()> {
        self.calls.push("flush".to_owned());
        Ok(())
    }
}

fn entry<'a>(path: &'a str, kind: SourceKind<'a>) -> SourceEntry<'a> {
    SourceEntry {
        path: path.as_bytes(),
        kind,
        permissions: 0o644,
        owner: (0, 0),
        mtime: Timestamp(1),
        atime: None,
        xattrs: &[],
    }
}

/// Takes entries, files with as many zeros as their size; returns the target's calls, or the error.
fn taken(entries: &[SourceEntry<'_>]) -> Result<Vec<String>> {
    let mut target = Recorder::default();
    let mut intake = Intake::new(&mut target, Progress::new(None, &Arc::default()));
    for entry in entries {
        let size = if let SourceKind::File { size } = entry.kind { size } else { 0 };
        intake.take(entry, &mut std::io::repeat(0).take(size))?;
    }
    intake.finish()?;
    Ok(target.calls)
}

#[test]
fn directories_get_their_times_after_their_content() {
    let calls = taken(&[
        entry("", SourceKind::Directory),
        entry("d", SourceKind::Directory),
        entry("d/small", SourceKind::File { size: 5 }),
        entry("d/large", SourceKind::File { size: 5000 }),
        entry("d/hard", SourceKind::HardLink(b"d/small")),
    ]);
    assert_eq!(
        calls.expect("all legal"),
        [
            "create directory 1/d 0 = 100",
            "create file 100/small 5 = 101",
            "create file 100/large 0 = 102",
            "write 102 5000",
            "attributes 100/102 size 5000",
            "link 101 100/hard",
            "flush",
            "attributes 1/100",
        ]
    );
}

#[test]
fn directories_that_are_taken_for_granted_are_made() {
    let calls = taken(&[entry("a/b/file", SourceKind::File { size: 0 })]).expect("legal");
    assert_eq!(calls[..2], ["create directory 1/a 0 = 100", "create directory 100/b 0 = 101"]);
}

#[test]
fn nothing_is_created_through_what_is_no_directory() {
    let through =
        [entry("s", SourceKind::Symlink(b"/etc")), entry("s/passwd", SourceKind::File { size: 1 })];
    assert_eq!(taken(&through).expect_err("refused").errno, Errno::NotDirectory);
    let outside = [entry("h", SourceKind::HardLink(b"unknown"))];
    assert_eq!(taken(&outside).expect_err("refused").errno, Errno::BadMessage);
    let directory = [entry("d", SourceKind::Directory), entry("h", SourceKind::HardLink(b"d"))];
    assert_eq!(taken(&directory).expect_err("refused").errno, Errno::BadMessage);
    let turned = [entry("d", SourceKind::Directory), entry("d", SourceKind::Symlink(b"/etc"))];
    assert_eq!(taken(&turned).expect_err("refused").errno, Errno::IsDirectory);
}

#[test]
fn of_two_entries_with_one_name_the_later_counts() {
    let calls = taken(&[
        entry("x", SourceKind::File { size: 1 }),
        entry("x", SourceKind::Symlink(b"y")),
        entry("x", SourceKind::HardLink(b"x")),
    ]);
    assert_eq!(
        calls.expect("legal"),
        ["create file 1/x 1 = 100", "unlink 1/x", "create symlink 1/x 1 = 101", "flush"]
    );
}
