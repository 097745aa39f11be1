//! The tree that the client of every case makes, one act after the other, and its shared view.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use cudele::{AttrChange, Errno, Error, FileType, Fs, Ino, NewFile, Result, Subtree, Timestamp};

/// Names below the root of the subtree, with everything that must survive about each.
pub(crate) type Tree = BTreeMap<String, String>;

/// One update.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Make { dir: &'static str, name: String, file_type: FileType, mode: u32, content: String },
    Chmod { dir: &'static str, name: String, mode: u32 },
}

const TIMES_FROM: i64 = 1_600_000_000;

fn make(dir: &'static str, name: String, file_type: FileType, mode: u32) -> Act {
    let content = if file_type == FileType::Directory {
        String::new()
    } else {
        format!("{dir}{name} has mode {mode:o}")
    };
    Act::Make { dir, name, file_type, mode, content }
}

/// All of them.
pub(crate) fn acts() -> Vec<Act> {
    let files = |dir, letter: char, count: u32| {
        let mode = |number| if number % 2 == 0 { 0o640 } else { 0o755 };
        (0..count)
            .map(move |n| make(dir, format!("{letter}{n:02}"), FileType::Regular, mode(n)))
            .collect::<Vec<_>>()
    };
    let mut acts = files("", 'f', 5);
    acts.push(make("", "sub".into(), FileType::Directory, 0o750));
    acts.extend(files("sub/", 'g', 5));
    acts.push(make("sub/", "link".into(), FileType::Symlink, 0o777));
    acts.push(make("sub/", "deep".into(), FileType::Directory, 0o700));
    acts.extend(files("sub/deep/", 'h', 3));
    acts.push(Act::Chmod { dir: "", name: "f01".into(), mode: 0o400 });
    acts.push(Act::Chmod { dir: "sub/", name: "g02".into(), mode: 0o604 });
    acts
}

/// How it looks after the first of them.
pub(crate) fn after(count: usize) -> Tree {
    let mut tree = Tree::new();
    let mut modes = BTreeMap::new();
    for act in &acts()[..count] {
        let (dir, name, mode) = match act {
            Act::Make { dir, name, mode, .. } | Act::Chmod { dir, name, mode } => (dir, name, mode),
        };
        if let Act::Make { file_type, content, .. } = act {
            modes.insert(format!("{dir}{name}"), (*file_type, content.clone()));
        }
        let path = format!("{dir}{name}");
        let (file_type, content) = &modes[&path];
        let line = describe(*file_type, *mode, time_of(content).0, content.as_bytes());
        tree.insert(path, line);
    }
    tree
}

/// A time that says which file it is.
fn time_of(content: &str) -> Timestamp {
    Timestamp::from_parts(TIMES_FROM + i64::try_from(content.len()).unwrap(), 7)
}

fn describe(file_type: FileType, mode: u32, mtime: i64, content: &[u8]) -> String {
    let mode = mode & 0o7777;
    if file_type == FileType::Directory {
        // Its times and size change with its entries.
        return format!("{file_type:?} {mode:o}");
    }
    format!("{file_type:?} {mode:o} {mtime} {}", String::from_utf8_lossy(content))
}

impl Act {
    fn new_file(content: &str, file_type: FileType, mode: u32) -> NewFile<'_> {
        let mtime = (file_type != FileType::Directory).then(|| time_of(content));
        let size = content.len() as u64;
        let data = content.as_bytes();
        NewFile { file_type, permissions: mode, size, mtime, data, ..NewFile::default() }
    }

    fn chmod(mode: u32) -> AttrChange {
        AttrChange { mode: Some(mode), ..AttrChange::default() }
    }
}

/// Inode numbers of the created files, by path; the root is the empty path.
pub(crate) type Known = BTreeMap<String, Ino>;

/// Appends an act to a decoupled subtree's journal.
pub(crate) fn append(act: &Act, subtree: &mut Subtree, known: &mut Known) -> Result<()> {
    match act {
        Act::Make { dir, name, file_type, mode, content } => {
            let new = Act::new_file(content, *file_type, *mode);
            let ino = subtree.create(known[dir.trim_end_matches('/')], name.as_bytes(), &new)?;
            known.insert(format!("{dir}{name}"), ino);
        }
        Act::Chmod { dir, name, mode } => {
            let (home, ino) = (known[dir.trim_end_matches('/')], known[&format!("{dir}{name}")]);
            subtree.set_attr_blindly(home, ino, &Act::chmod(*mode));
        }
    }
    Ok(())
}

/// Carries an act out by requests.
pub(crate) fn request(act: &Act, fs: &Arc<Fs>, root: &str) -> Result<()> {
    let open = |dir: &str| fs.open_dir(format!("{root}/{dir}"));
    match act {
        Act::Make { dir, name, file_type, mode, content } => {
            open(dir)?.create(name, &Act::new_file(content, *file_type, *mode)).map(|_| ())
        }
        Act::Chmod { dir, name, mode } => open(dir)?.set_attr(name, &Act::chmod(*mode)),
    }
}

/// The tree below a directory in a client's view.
pub(crate) fn look(fs: &Arc<Fs>, root: &str) -> Result<Tree> {
    let mut tree = Tree::new();
    // A directory is missing if its server was killed before it was durable.
    let Ok(root) = fs.open_dir(root) else { return Ok(tree) };
    let mut pending = vec![(String::new(), root)];
    while let Some((path, dir)) = pending.pop() {
        for entry in dir.list()? {
            let name = format!("{path}{}", String::from_utf8_lossy(&entry.name));
            let attr = entry.attr;
            let mut content = Vec::new();
            if attr.file_type() == FileType::Directory {
                pending.push((format!("{name}/"), dir.enter(&entry.name, attr.ino)?));
            } else if attr.file_type() == FileType::Symlink {
                content = fs.read_link(attr.ino)?;
            } else {
                let read = fs.open_file(&attr)?.read_to_end(&mut content);
                read.map_err(|error| Error::new(Errno::Io, name.clone(), error.to_string()))?;
            }
            let line = describe(attr.file_type(), attr.mode, attr.mtime.0, &content);
            tree.insert(name, line);
        }
    }
    Ok(tree)
}
