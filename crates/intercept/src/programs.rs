//! Which programs the library can serve: those that the dynamic linker of glibc starts.
//!
//! The source of the format is the ELF specification (System V ABI, chapters 4 and 5).

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes at the start of a file that are read: linkers put the program headers and the path of the
/// dynamic linker there.
const HEAD: u64 = 64 << 10;
/// A script's interpreter may be a script, as in the kernel.
const SCRIPTS_MAX: usize = 4;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// How a program reaches the files of a job under `--preload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The library answers its system calls.
    Library,
    /// Through the mount: it has no dynamic linker.
    Static,
    /// Through the mount: the dynamic linker loads no library for a set-user-ID program.
    SetId,
    /// Through the mount: its libc is another one.
    OtherLibc,
    /// It cannot be read.
    Unknown,
}

impl Reach {
    /// The program as a reader of a report calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "dynamically linked with glibc",
            Self::Static => "statically linked",
            Self::SetId => "set-user-ID or set-group-ID",
            Self::OtherLibc => "linked with another libc",
            Self::Unknown => "not readable on this machine",
        }
    }

    /// How the program at a path reaches the files.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let mut path = path.to_owned();
        for _ in 0..SCRIPTS_MAX {
            let Ok((mode, head)) = head(&path) else { return Self::Unknown };
            match ProgramFormat::of(&head) {
                ProgramFormat::Script(interpreter) => path = interpreter,
                ProgramFormat::Linked(_) | ProgramFormat::Static if mode & SET_ID != 0 => {
                    return Self::SetId;
                }
                ProgramFormat::Linked(linker) if names_glibc(&linker) => return Self::Library,
                ProgramFormat::Linked(_) => return Self::OtherLibc,
                ProgramFormat::Static => return Self::Static,
                ProgramFormat::Other => return Self::Unknown,
            }
        }
        Self::Unknown
    }
}

fn names_glibc(linker: &[u8]) -> bool {
    let name = linker.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so")
}

fn head(path: &Path) -> std::io::Result<(u32, Vec<u8>)> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        // An open of a pipe would wait for a writer.
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok((found.mode(), head))
}

#[derive(Debug, PartialEq, Eq)]
enum ProgramFormat {
    /// An ELF program with the path of its dynamic linker.
    Linked(Vec<u8>),
    /// An ELF program without one.
    Static,
    /// A script with the path of its interpreter.
    Script(PathBuf),
    Other,
}

impl ProgramFormat {
    fn of(head: &[u8]) -> Self {
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
            let path = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            return Self::Script(PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        }
        // 64 bits, the least significant byte first: the machines for which there is a library.
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return Self::Other;
        }
        match linker(head) {
            Ok(Some(linker)) => Self::Linked(linker),
            Ok(None) => Self::Static,
            Err(Truncated) => Self::Other,
        }
    }
}

#[derive(Debug)]
struct Truncated;

/// The path of the dynamic linker in a program header of the type `PT_INTERP`.
fn linker(head: &[u8]) -> Result<Option<Vec<u8>>, Truncated> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| -> Result<u64, Truncated> {
        let field = at.checked_add(bytes).and_then(|end| head.get(at..end)).ok_or(Truncated)?;
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let place = |number: u64| usize::try_from(number).map_err(|_| Truncated);
    let (start, size, count) = (place(number(32, 8)?)?, place(number(54, 2)?)?, number(56, 2)?);
    for index in 0..place(count)? {
        let at = index.checked_mul(size).and_then(|at| at.checked_add(start)).ok_or(Truncated)?;
        if number(at, 4)? == PT_INTERP {
            let (from, bytes) = (place(number(at + 8, 8)?)?, place(number(at + 32, 8)?)?);
            let to = from.checked_add(bytes).ok_or(Truncated)?;
            let path = head.get(from..to).ok_or(Truncated)?;
            return Ok(Some(path.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_told_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let written = |name: &str, content: &[u8], mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).expect("room");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mine");
            path
        };
        let shell = std::fs::read("/bin/sh").expect("a shell");
        assert_eq!(Reach::of(Path::new("/bin/sh")), Reach::Library);
        assert_eq!(Reach::of(&written("set-id", &shell, 0o4755)), Reach::SetId);
        let mut other = shell.clone();
        let name = b"/ld-linux";
        let at = other.windows(name.len()).position(|bytes| bytes == name).expect("a linker");
        other[at..at + name.len()].copy_from_slice(b"/ld-musl-");
        assert_eq!(Reach::of(&written("other", &other, 0o755)), Reach::OtherLibc);
        let mut alone = shell;
        // No program headers.
        alone[56..58].fill(0);
        let alone = written("static", &alone, 0o755);
        assert_eq!(Reach::of(&alone), Reach::Static);
        let script = format!("#!{} -e\n", alone.display());
        assert_eq!(Reach::of(&written("script", script.as_bytes(), 0o755)), Reach::Static);
        assert_eq!(Reach::of(&written("text", b"text", 0o644)), Reach::Unknown);
        assert_eq!(Reach::of(&dir.path().join("none")), Reach::Unknown);
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        assert_eq!(Reach::of(&pipe), Reach::Unknown);
    }

    #[test]
    fn a_cut_or_damaged_head_is_not_a_program() {
        let (_, head) = head(Path::new("/bin/sh")).expect("a program");
        assert!(matches!(ProgramFormat::of(&head), ProgramFormat::Linked(_)));
        for length in 0..1024 {
            let _ = ProgramFormat::of(&head[..length]);
        }
        assert_eq!(ProgramFormat::of(&head[..60]), ProgramFormat::Other);
        for at in 0..256 {
            let mut damaged = head.clone();
            damaged[at] ^= 0xff;
            let _ = ProgramFormat::of(&damaged);
        }
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let script = |text: &[u8]| ProgramFormat::of(text);
        assert_eq!(script(b"#! /bin/sh -e\nx"), ProgramFormat::Script("/bin/sh".into()));
        assert_eq!(script(b"#!"), ProgramFormat::Script(PathBuf::new()));
    }
}
