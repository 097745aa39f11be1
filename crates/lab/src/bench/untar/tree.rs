//! The source tree of `untar` and `programs`: `--archive`, or C sources that cargo has fetched to
//! build this program.
//!
//! The sources of zstd come with the library that reads compressed archives, as they were
//! published, but without their own build files; so the archive has a `configure` that tries
//! headers, and a `Makefile`. Other libraries' sources are unpacked with them, and not compiled.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudele::{Errno, Error, Result};
use tempfile::TempDir;
use terminal::io;
use walkdir::WalkDir;

use crate::harness::lab::Lab;

/// The crate with the C sources that are compiled.
const COMPILED: &str = "zstd-sys-";
/// Entries beyond which no further library is packed; and for `--quick`.
const ENTRIES_MIN: usize = 4_000;
const ENTRIES_MIN_QUICK: usize = 100;

const CONFIGURE: &str = "#!/bin/sh
set -e
: > config.h
for header in stdio.h stdlib.h string.h unistd.h stdint.h pthread.h sys/stat.h sys/types.h malloc.h \\
    fcntl.h errno.h time.h limits.h inttypes.h sys/mman.h sys/socket.h dirent.h signal.h io.h windows.h; do
    printf '#include <%s>\\nint main(void) { return 0; }\\n' \"$header\" > conftest.c
    name=$(printf %s \"$header\" | tr 'a-z./' 'A-Z__')
    if cc -c conftest.c -o conftest.o 2>/dev/null; then
        echo \"#define HAVE_$name 1\" >> config.h
    fi
    rm -f conftest.c conftest.o
done
";

const MAKEFILE: &str = "SOURCES := $(shell find DIRECTORIES -name '*.c')
OBJECTS := $(SOURCES:.c=.o)
FLAGS := -O0 -include config.h -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=5 -Izstd/lib -Izstd/lib/common

libzstd.a: $(OBJECTS)
\tar rcs $@ $(OBJECTS)

%.o: %.c config.h
\t$(CC) $(FLAGS) -c $< -o $@
";

/// See the module documentation.
pub(in crate::bench) struct Tree {
    archive: PathBuf,
    entries: u64,
    /// Removed with it.
    _home: Option<TempDir>,
}

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "the source tree", cause.into())
        .remedy("name an archive of sources with --archive")
}

impl Tree {
    pub(in crate::bench) fn of(lab: &Lab) -> Result<Self> {
        if let Some(path) = &lab.archive {
            let archive = std::path::absolute(path).map_err(|error| io(path, &error))?;
            return Ok(Self { entries: count(&archive)?, archive, _home: None });
        }
        let parent = &lab.place.parent;
        let home = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
        let tree = home.path().join("sources");
        std::fs::create_dir(&tree).map_err(|error| io(&tree, &error))?;
        gather(&tree, lab.quick)?;
        let archive = home.path().join("sources.tar");
        let mut tar = Command::new("tar");
        tar.arg("cf").arg(&archive).arg("-C").arg(home.path()).arg("sources");
        done(&mut tar)?;
        std::fs::remove_dir_all(&tree).map_err(|error| io(&tree, &error))?;
        Ok(Self { entries: count(&archive)?, archive, _home: Some(home) })
    }

    pub(in crate::bench) fn archive(&self) -> &Path {
        &self.archive
    }

    /// Files, directories and links in it.
    pub(in crate::bench) fn entries(&self) -> u64 {
        self.entries
    }
}

/// Puts the sources into a directory.
fn gather(tree: &Path, quick: bool) -> Result<()> {
    let sources = fetched()?;
    let least = if quick { ENTRIES_MIN_QUICK } else { ENTRIES_MIN };
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (compiled, others): (Vec<_>, Vec<_>) =
        sources.into_iter().partition(|path| name(path).starts_with(COMPILED));
    let Some(compiled) = compiled.last() else {
        return Err(failed(format!("cargo has not fetched {COMPILED}* on this machine")));
    };
    copy(&compiled.join("zstd"), &tree.join("zstd"))?;
    let mut entries = WalkDir::new(tree).into_iter().count();
    for other in others {
        if entries >= least {
            break;
        }
        entries += WalkDir::new(&other).into_iter().count();
        copy(&other, &tree.join(name(&other)))?;
    }
    let compiled = if quick { "zstd/lib/common" } else { "zstd/lib" };
    let makefile = MAKEFILE.replace("DIRECTORIES", compiled);
    for (name, text, mode) in
        [("Makefile", makefile.as_str(), 0o644), ("configure", CONFIGURE, 0o755)]
    {
        let path = tree.join(name);
        std::fs::write(&path, text).map_err(|error| io(&path, &error))?;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).map_err(|error| io(&path, &error))?;
    }
    Ok(())
}

/// Directories of the libraries that cargo has fetched, by name.
fn fetched() -> Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let Some(home) = home else { return Err(failed("no HOME says where cargo keeps sources")) };
    let walk =
        WalkDir::new(home.join("registry/src")).min_depth(2).max_depth(2).sort_by_file_name();
    Ok(walk
        .into_iter()
        .filter_map(std::result::Result::ok)
        .map(walkdir::DirEntry::into_path)
        .collect())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    done(Command::new("cp").arg("-r").arg(from).arg(to))
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn count(archive: &Path) -> Result<u64> {
    let output = Command::new("tar").arg("tf").arg(archive).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}
