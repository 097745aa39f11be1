//! `cudele mkdir`: directories.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use cudele::{Attr, NewFile, Path, Result};
use serde_json::{Map, Value};
use terminal::context::Context;
use terminal::format;

use crate::space;

/// Make directories. They are as durable as their policy promises when the command ends.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele mkdir -p -m 700 /home/alice/private")]
pub(crate) struct Args {
    /// Make those above as well, and do not mind a directory that exists
    #[arg(short, long)]
    parents: bool,
    /// Permissions in octal; those above that are made have 755
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = permissions)]
    mode: u32,
    /// What to make
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Reads permissions in octal.
fn permissions(text: &str) -> std::result::Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "write permissions as octal digits, such as 755".to_owned())
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let mut made: Vec<(Path, Attr)> = Vec::new();
    let result = args.paths.iter().try_for_each(|path| -> Result<()> {
        let path = space::parse(path)?;
        let attr = if args.parents {
            if let Some((above, _)) = path.split_last() {
                fs.make_dir(above.to_bytes(), 0o755)?;
            }
            fs.make_dir(path.to_bytes(), args.mode)?
        } else {
            let (dir, name) = space::parent(&fs, &path)?;
            let new = NewFile { permissions: args.mode, ..NewFile::directory() };
            dir.create(&name, &new)?
        };
        made.push((path, attr));
        Ok(())
    });
    // Directories that were made before a failure are kept as well.
    space::sync_after(&fs, result)?;
    let rows = made.iter().map(|(path, attr)| {
        let mut object = Map::new();
        format::put_bytes(&mut object, "path", &path.to_bytes());
        format::put_attr(&mut object, attr);
        Value::Object(object)
    });
    context.print(&rows.collect(), String::new)
}
