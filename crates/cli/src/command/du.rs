//! `cudele du`: how many files and bytes there are.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::Args as ClapArgs;
use cudele::{Attr, Dir, DirEntry, Error, FileType, Ino, Result};
use serde_json::{Map, Value};
use terminal::context::Context;
use terminal::format;

use crate::tree::{Faults, Go, Visitor, When};
use crate::{space, tree};

/// Count files, directories and bytes. A directory counts itself; a file with several names below
/// PATH counts once. Bytes are the lengths of files, not the space they take in the store.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele du /src --json")]
pub(crate) struct Args {
    /// Where to count [default: the root]
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<OsString>,
}

#[derive(Debug, Default)]
struct Count {
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    bytes: u64,
    /// Inodes with several names that were counted.
    seen: BTreeSet<Ino>,
    faults: Faults,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let mut faults = Faults::default();
    let mut rows = Vec::new();
    let mut text = String::new();
    for path in &args.paths {
        let place = space::find(&fs, path)?;
        let attr = place.existing()?;
        let mut count = Count { faults, ..Count::default() };
        count.add(&attr);
        if attr.is_dir() {
            tree::walk(fs.open_dir(place.path.to_bytes())?, &mut count)?;
        }
        let path = place.path.to_bytes();
        rows.push(count.to_json(&path));
        text.push_str(&count.to_text(&path));
        faults = count.faults;
    }
    // One path, one object; several, an array.
    let value = if rows.len() == 1 { rows.swap_remove(0) } else { Value::Array(rows) };
    context.print(&value, || text)?;
    faults.result()
}

impl Count {
    fn add(&mut self, attr: &Attr) {
        if !attr.is_dir() && attr.nlink > 1 && !self.seen.insert(attr.ino) {
            return;
        }
        match attr.file_type() {
            FileType::Regular => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(attr.size);
            }
            FileType::Directory => self.directories += 1,
            FileType::Symlink => self.symlinks += 1,
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                self.others += 1;
            }
        }
    }

    fn to_json(&self, path: &[u8]) -> Value {
        let mut object = Map::new();
        format::put_bytes(&mut object, "path", path);
        for (key, value) in [
            ("files", self.files),
            ("directories", self.directories),
            ("symlinks", self.symlinks),
            ("others", self.others),
            ("bytes", self.bytes),
        ] {
            object.insert(key.to_owned(), value.into());
        }
        Value::Object(object)
    }

    fn to_text(&self, path: &[u8]) -> String {
        let Self { files, directories, symlinks, others, bytes, .. } = self;
        let mut text = format!(
            "{}: {files} files, {directories} directories, {bytes} bytes ({})",
            format::quoted(path),
            format::size(*bytes),
        );
        for (count, what) in [(symlinks, "symbolic links"), (others, "others")] {
            if *count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text.push('\n');
        text
    }
}

impl Visitor for Count {
    fn visit(&mut self, when: When, _: &Dir, entry: &DirEntry) -> Result<Go> {
        if when == When::Before {
            self.add(&entry.attr);
        }
        Ok(Go::On)
    }

    fn fault(&mut self, error: Error) -> Result<()> {
        self.faults.note(error);
        Ok(())
    }
}
