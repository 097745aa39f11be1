//! `cudele completions`: the script with which a shell completes commands and options.

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::Shell;
use cudele::Result;
use terminal::context::say;

/// Print the script with which a shell completes the commands and options of this version. The
/// packages install those of bash, fish and zsh.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  cudele completions bash > ~/.local/share/bash-completion/completions/cudele"
)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Arguments::command(), "cudele", &mut script);
    say(&String::from_utf8_lossy(&script))
}
