//! The files of the repository, as tidy sees them.
//!
//! Holds the files that git tracks or would track (new files count, ignored ones do not). Not a
//! file system: a test builds a tree from strings and plants one fault in it.
//!
//! Invariant: files are sorted by path, and a path has forward slashes and starts at the top.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// A bigger file is not read: it is reported for its size.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Left out when there is no git to ask, as in an unpacked archive.
const NOT_SOURCE: [&str; 2] = ["target", ".git"];

/// Crates that share a folder below `crates/`: their folders and names.
const GROUPED: [(&str, &str); 2] =
    [("crates/metastore/engine", "engine"), ("crates/metastore/format", "metastore")];

/// The folder of a crate.
pub(crate) fn folder_of(name: &str) -> String {
    match GROUPED.iter().find(|(_, grouped)| *grouped == name) {
        Some((folder, _)) => (*folder).to_owned(),
        None if name == "xtask" => "xtask".to_owned(),
        None => format!("crates/{name}"),
    }
}

/// The names of the crates that share a folder.
pub(crate) fn grouped() -> impl Iterator<Item = &'static str> {
    GROUPED.iter().map(|(_, name)| *name)
}

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// From the repository's top.
    pub(crate) path: String,
    /// Size on disk.
    pub(crate) bytes: u64,
    /// None when the file is not UTF-8 or larger than [`FILE_BYTES_MAX`].
    pub(crate) text: Option<String>,
}

impl File {
    /// The text; empty for a binary file, in which there is nothing to find.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Whether it is Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it holds tests only: a test module in its own file, or an integration test.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || ["/tests/", "/benches/"].iter().any(|part| self.path.contains(part))
    }

    /// The crate the file belongs to: `crates/mds/src/log.rs` belongs to `mds`.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        let holds = |folder: &str| {
            self.path.strip_prefix(folder).is_some_and(|inside| inside.starts_with('/'))
        };
        if let Some((_, name)) = GROUPED.iter().find(|(folder, _)| holds(folder)) {
            return Some(name);
        }
        match self.path.split_once('/')? {
            ("crates", rest) => rest.split_once('/').map(|(name, _)| name),
            ("xtask", _) => Some("xtask"),
            _ => None,
        }
    }
}

/// All files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn load(root: &Path) -> io::Result<Tree> {
        let paths = match tracked(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            // A file deleted from the directory but not yet from the index has nothing to check.
            let Ok(metadata) = fs::symlink_metadata(root.join(&path)) else { continue };
            if !metadata.is_file() {
                continue;
            }
            let bytes = metadata.len();
            let content =
                if bytes > FILE_BYTES_MAX { None } else { Some(fs::read(root.join(&path))?) };
            let text = content.and_then(|content| String::from_utf8(content).ok());
            files.push(File { path, bytes, text });
        }
        Ok(Tree { files })
    }

    /// The file at a path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file has this path or a directory with this path holds one.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = |file: &File| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.files.iter().any(inside)
    }

    /// The Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// A tree made of strings.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            bytes: text.len() as u64,
            text: Some((*text).to_owned()),
        };
        Tree { files: files.iter().map(file).collect() }
    }
}

/// The files that git tracks or would track; None without git or outside a repository.
fn tracked(root: &Path) -> Option<BTreeSet<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output().ok()?;
    let paths = String::from_utf8(output.stdout).ok()?;
    // An archive unpacked inside some other repository that ignores it lists nothing.
    let paths: BTreeSet<String> =
        paths.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if NOT_SOURCE.iter().any(|skip| name == *skip) {
                continue;
            }
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if let Ok(relative) = path.strip_prefix(root) {
                paths.insert(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_git_the_sources_are_found() {
        let root = crate::root();
        let tree = Tree::load(&root).expect("the repository can be read");
        let this = tree.get("xtask/src/tree.rs").expect("this file is part of it");
        assert!(this.is_rust() && !this.is_test());
        assert_eq!(this.crate_name(), Some("xtask"));
        assert!(tree.contains("xtask/src") && !tree.contains("xtask/sr"));
        let run = tree.get("crates/metastore/format/src/run.rs").expect("it is in the repository");
        assert_eq!(run.crate_name(), Some("metastore"));
        assert_eq!(folder_of("metastore"), "crates/metastore/format");
        assert_eq!((folder_of("mds"), folder_of("xtask")), ("crates/mds".into(), "xtask".into()));
        let walked = walk(&root.join("xtask")).expect("the directory can be read");
        assert!(walked.contains("src/tree.rs"), "{walked:?}");
    }
}
