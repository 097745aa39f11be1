//! `cudele cp`: files into, out of and within the namespace.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Fs, Path, Result};
use serde_json::json;
use terminal::context::Context;

use crate::copy::{Copier, Source, Target};
use crate::space;

/// Copy files: into DEST if it is a directory, else to that name. A file that exists is replaced
/// as a whole: readers see the old or the new content.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A path is one of the namespace. `local:PATH` is a file of this machine, `-` is standard input or
output. (A name in the namespace that begins with `local:` is written `/local:...`.)

Examples:
  cudele cp local:notes.txt /home/alice/
  cudele cp -rp local:src /src
  cudele cp /home/alice/notes.txt -
  tar c dir | cudele cp - /backup/dir.tar

Symbolic links are copied, not followed. Without -p the new file has the permissions of the old one
without set-id and sticky bits, the caller as its owner and the time of the copy."
)]
pub(crate) struct Args {
    /// Directories as well, with everything below
    #[arg(short, long)]
    recursive: bool,
    /// Keep mode, times and, where that is permitted, owner and group
    #[arg(short, long)]
    preserve: bool,
    /// Fail if a file to be written exists
    #[arg(short = 'n', long)]
    no_replace: bool,
    /// The sources, then the destination
    #[arg(value_names = ["SOURCE", "DEST"], required = true, num_args = 2..)]
    paths: Vec<OsString>,
}

/// Where a path of the command line is.
enum Side {
    Space(Path),
    Local(PathBuf),
    Stream,
}

impl Side {
    fn of(argument: &OsStr) -> Result<Self> {
        let bytes = argument.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        match bytes.strip_prefix(b"local:") {
            Some(b"") => {
                Err(Error::new(Errno::Invalid, "local:", "no path follows")
                    .remedy("write local:PATH"))
            }
            Some(path) => Ok(Self::Local(OsStr::from_bytes(path).into())),
            None => space::parse(argument).map(Self::Space),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Space(path) => path.to_string(),
            Self::Local(path) => format!("local:{}", path.display()),
            Self::Stream => "-".to_owned(),
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let Some((dest, sources)) = args.paths.split_last() else { return Ok(()) };
    let dest = Side::of(dest)?;
    let sources = sources.iter().map(|path| Side::of(path)).collect::<Result<Vec<_>>>()?;
    let outside = |side: &Side| !matches!(side, Side::Space(_));
    if let Some(source) = sources.iter().find(|source| outside(source) && outside(&dest)) {
        let subject = format!("{} to {}", source.shown(), dest.shown());
        return Err(Error::new(Errno::Invalid, subject, "neither is in the namespace")
            .remedy("use cp(1) for that; only `local:` paths are files of this machine"));
    }
    let fs = context.mount()?;
    if sources.len() > 1 && !is_dir(&fs, &dest)? {
        let cause = "several sources need a directory to copy into";
        return Err(Error::new(Errno::NotDirectory, dest.shown(), cause)
            .remedy("make it first, or name one source only"));
    }
    let mut copier = Copier::new(fs.clone(), args.recursive, args.preserve, args.no_replace);
    let result = sources.iter().try_for_each(|source| -> Result<()> {
        let source = open(&fs, source)?;
        let target = resolve(&fs, &dest, &source)?;
        copier.copy_root(source, target)
    });
    if matches!(dest, Side::Space(_)) {
        space::sync_after(&fs, result)?
    } else {
        result?
    };
    if matches!(dest, Side::Stream) {
        // The content has standard output for itself.
        return Ok(());
    }
    let value = json!({
        "files": copier.files,
        "directories": copier.directories,
        "others": copier.others,
        "bytes": copier.bytes,
    });
    context.print(&value, String::new)
}

fn is_dir(fs: &Fs, dest: &Side) -> Result<bool> {
    Ok(match dest {
        Side::Space(path) => space::at(fs, path.clone())?.is_dir(),
        Side::Local(path) => path.is_dir(),
        Side::Stream => false,
    })
}

fn open(fs: &Arc<Fs>, side: &Side) -> Result<Source> {
    match side {
        Side::Space(path) => {
            let attr = space::at(fs, path.clone())?.existing()?;
            Ok(Source::Space { path: path.clone(), attr })
        }
        Side::Local(path) => Source::local(path.clone()),
        Side::Stream => Ok(Source::Stdin),
    }
}

/// Where exactly a source goes: into the destination if that is a directory.
fn resolve(fs: &Arc<Fs>, dest: &Side, source: &Source) -> Result<Target> {
    let name: Option<Vec<u8>> = source.name();
    let nameless = |dest: &Side| {
        Error::new(Errno::IsDirectory, dest.shown(), "is a directory").remedy("name a file in it")
    };
    match dest {
        Side::Stream => Ok(Target::Stdout),
        Side::Local(path) if path.is_dir() => match name {
            Some(name) => Ok(Target::Local(path.join(OsStr::from_bytes(&name)))),
            None => Err(nameless(dest)),
        },
        Side::Local(path) => Ok(Target::Local(path.clone())),
        Side::Space(path) => {
            let place = match &name {
                Some(name) => space::target(fs, path.clone(), name)?,
                None => space::at(fs, path.clone())?,
            };
            let Some((above, last)) = place.path.split_last() else { return Err(nameless(dest)) };
            if name.is_none() && place.is_dir() {
                return Err(nameless(dest));
            }
            Ok(Target::Space { dir: fs.open_dir(above.to_bytes())?, name: last.to_vec() })
        }
    }
}
