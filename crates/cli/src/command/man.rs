//! `cudele man`: the manual pages, one for each command, for packages.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, CommandFactory};
use cudele::Result;
use terminal::io;

/// Write the manual pages of all commands into a directory.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// The directory
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.dir).map_err(|error| io(&args.dir, &error))?;
    let mut command = crate::Arguments::command();
    command.build();
    write(&args.dir, &command, "cudele")
}

fn write(dir: &Path, command: &clap::Command, name: &str) -> Result<()> {
    let page = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    // The page's own name joins the words of the command, so that `man cudele-up` finds it.
    let titled = command.clone().name(name.to_owned()).disable_help_subcommand(true);
    let written = clap_mangen::Man::new(titled).render(&mut text);
    written.and_then(|()| std::fs::write(&page, text)).map_err(|error| io(&page, &error))?;
    let below = command.get_subcommands();
    for sub in below.filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        write(dir, sub, &format!("{name}-{}", sub.get_name()))?;
    }
    Ok(())
}
