use std::io::Read;

use cudele::{Errno, Result};

use super::{EntrySink, Skip, SourceEntry, SourceKind, archive};

#[derive(Default)]
struct Seen {
    entries: Vec<String>,
    skipped: Vec<String>,
    bytes: u64,
}

impl EntrySink for Seen {
    fn take(&mut self, entry: &SourceEntry<'_>, content: &mut dyn Read) -> Result<()> {
        let kind = match entry.kind {
            SourceKind::Directory => "dir",
            SourceKind::File { .. } => "file",
            SourceKind::Hollow { .. } => "hollow",
            SourceKind::Symlink(_) => "symlink",
            SourceKind::Special { .. } => "special",
            SourceKind::HardLink(_) => "hard link",
        };
        self.entries.push(format!("{} {kind}", super::shown(entry.path)));
        let copied = std::io::copy(content, &mut std::io::sink());
        self.bytes += copied.map_err(|error| super::tree::failed(entry.path, &error))?;
        Ok(())
    }

    fn skip(&mut self, skip: Skip) {
        self.skipped.push(skip.reason);
    }
}

fn read(bytes: &[u8]) -> (Seen, Result<()>) {
    let mut seen = Seen::default();
    let result = archive::read("test.tar", Box::new(bytes), &mut seen);
    (seen, result)
}

fn small() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for name in ["a/", "a/one", "a/two"] {
        let directory = name.ends_with('/');
        let content = if directory { vec![] } else { vec![b'x'; 700] };
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_mode(0o755);
        header.set_mtime(1);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        header.set_entry_type(if directory {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        header.set_cksum();
        builder.append(&header, &content[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn paths_of_archives_are_reduced_to_what_they_mean_or_refused() {
    let clean = |path: &str| archive::clean(path.as_bytes());
    assert_eq!(clean("./a//b/./c/"), Ok(b"a/b/c".to_vec()));
    assert_eq!(clean("./"), Ok(vec![]));
    for bad in ["/a", "..", "a/..", "a/../b", "a/b/.."] {
        assert!(clean(bad).is_err(), "{bad}");
    }
    assert!(clean(&"x".repeat(256)).is_err());
    assert!(clean(&"abc/".repeat(1100)).is_err());
    assert!(clean("a\0b").is_err());
    assert_eq!(clean("..a/b.."), Ok(b"..a/b..".to_vec()), "dots within names are names");
}

#[test]
fn a_whole_archive_is_read() {
    let (seen, result) = read(&small());
    assert_eq!(result, Ok(()));
    assert_eq!(seen.entries, ["a dir", "a/one file", "a/two file"]);
    assert_eq!(seen.bytes, 1400);
}

#[test]
fn every_truncation_of_an_archive_is_noticed() {
    let whole = small();
    // Three headers, two contents of two blocks each; then the end mark.
    let end_mark = 7 * 512;
    for keep in 0..end_mark {
        let (_, result) = read(&whole[..keep]);
        let error = result.expect_err("cut off");
        assert_eq!(error.errno, Errno::BadMessage, "{keep}: {error}");
    }
    let (_, result) = read(&whole[..end_mark + 512]);
    assert_eq!(result, Ok(()));
}

#[test]
fn truncation_of_content_names_the_entry() {
    let (_, result) = read(&small()[..512 * 2 + 100]);
    let error = result.expect_err("cut off").to_string();
    assert!(error.contains("a/one"), "{error}");
}

#[test]
fn any_bytes_are_read_without_panic() {
    let whole = small();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] = bytes[at].wrapping_add(0x55);
        let _ = read(&bytes);
    }
    for magic in [&[0x1f, 0x8b][..], &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]]
    {
        let bytes = [magic, &whole].concat();
        assert!(read(&bytes).1.is_err());
    }
}
