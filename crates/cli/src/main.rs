//! `cudele`: the one binary.
//!
//! Each command is a file in `command` with its arguments and a `run` function. Facts go to
//! standard output, as text or with `--json` as JSON; everything else goes to standard error. The
//! exit code is 0 for done, 1 for failed, 2 for used wrongly.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: the command line talks to people, processes and files"
)]

mod access;
mod command;
mod config;
mod copy;
mod fstab;
mod glob;
mod journals;
mod log_args;
mod marker;
mod memory;
mod owned;
mod private;
mod promise;
mod space;
mod stores;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use terminal::context::Context;
use terminal::waiting;

/// One namespace in which every subtree chooses its own consistency and durability.
#[derive(Debug, Parser)]
#[command(name = "cudele", version, about, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    context: Context,
    /// Configuration file [default: $CUDELE_CONFIG, else `cudele config --help` names the places]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  cudele up                                   start a cluster on this machine
  cudele ingest --policy batchfs /etc /etc    bring a tree in as a batch job
  cudele ls -l /etc                           look at it
  cudele down                                 stop the cluster

Environment:
  CUDELE_DIR     directory of the cluster, as --dir
  CUDELE_MON     address of the monitor, as --mon
  CUDELE_KEY     file with the key for connections over TCP, as --key
  CUDELE_CONFIG  configuration file, as --config; `cudele config --help` says what it holds
  CUDELE_STATE   what this user keeps on this machine: which clusters were started, which subtrees
                 are decoupled with their journals, logs of mounts. On a local disk, one for each
                 user [default: $XDG_STATE_HOME/cudele, else ~/.local/state/cudele]
Without CUDELE_DIR, CUDELE_MON, --dir and --mon a command means the cluster that you started last, and
fails if another one of yours is alive.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster on this machine, in the background
    Up(command::up::Args),
    /// Make a cluster without starting it, for service managers
    Init(command::init::Args),
    /// Stop a cluster cleanly
    Down(command::down::Args),
    /// Show the cluster, its servers and its decoupled subtrees
    Status(command::status::Args),
    /// Show the faults of the cluster, and their remedies
    Health(command::health::Args),
    /// Watch the load of the servers, the decoupled subtrees and the faults, live
    Top(command::top::Args),
    Web(command::web::Args),
    /// Run a monitor in the foreground
    Mon(command::mon::Args),
    /// Run a metadata server in the foreground
    Mds(command::mds::Args),
    /// Mount the namespace on a directory
    Mount(command::mount::Args),
    /// Unmount a directory
    Umount(command::umount::Args),
    /// List a directory
    Ls(command::ls::Args),
    /// Show the attributes and the policy of a file
    Stat(command::stat::Args),
    /// Make directories
    Mkdir(command::mkdir::Args),
    /// Remove names
    Rm(command::rm::Args),
    /// Show who decoupled, merged, set policies or commanded the cluster
    Audit(command::audit::Args),
    /// Make, list and revoke the keys of other hosts and users
    Auth(command::auth::Args),
    /// Limit the inodes and bytes of directories, and show their use
    Quota(command::quota::Args),
    /// Look into the trash, and restore or empty it
    Trash(command::trash::Args),
    /// Move or rename
    Mv(command::mv::Args),
    /// Copy files in, out or within the namespace
    Cp(command::cp::Args),
    /// Find names below a directory
    Find(command::find::Args),
    /// Count files and bytes below a directory
    Du(command::du::Args),
    /// Print the changes below a directory as they happen
    Watch(command::watch::Args),
    /// Carry one request out, and print its steps at client, server, journal and store
    Trace(command::trace::Args),
    /// Bring a directory tree or an archive into the namespace
    Ingest(command::ingest::Args),
    /// Write the names and attributes of a directory into a file, as they are at one moment
    Dump(command::dump::Args),
    /// Bring the names and attributes of a dump into the namespace
    Load(command::load::Args),
    /// Run the main job on real input: ingest, merge, verify, and print the table
    Demo(command::demo::Args),
    /// Run a command as a batch job in a subtree of its own
    Run(command::run::Args),
    /// Check, set, show and remove policies
    Policy(command::policy::Args),
    /// Take a subtree for this client alone
    Decouple(command::decouple::Args),
    /// Merge a decoupled subtree into the namespace
    Merge(command::merge::Args),
    /// Show all clients the present work in a decoupled subtree
    Sync(command::sync::Args),
    /// Take over a decoupled subtree whose client is gone
    Recover(command::recover::Args),
    /// Give a decoupled subtree up without merging it
    Discard(command::discard::Args),
    /// Show the changes that a merge would make
    Diff(command::diff::Args),
    /// Read, keep, repair and empty journals
    Journal(command::journal::Args),
    /// Work on snapshots of the namespace, invisible to other clients, without servers
    Branch(command::branch::Args),
    /// Declare a branch complete, so that it can be merged
    Publish(command::branch::publish::Args),
    /// Remove leftovers of crashes in the object store
    Sweep(command::sweep::Args),
    /// Check the store of a cluster that is stopped, and mend it
    Fsck(command::fsck::Args),
    /// Check everything in the store while the cluster works
    Scrub(command::fsck::ScrubArgs),
    /// Judge a job's changes, for a metadata server that trusts no client
    Verify(command::verify::Args),
    /// Check balancer policies, put one in force, and see its decisions
    Balancer(command::balancer::Args),
    /// Show where the values of options come from, and check configuration files
    Config(command::config::Args),
    /// Print the completions of a shell
    Completions(command::completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(command::man::Args),
    /// Run an experiment and print its rows
    Bench(command::bench::Args),
}

fn main() -> ExitCode {
    let given = fstab::arguments(std::env::args_os().collect());
    let arguments = match configured(&command::bench::arguments(given)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("cudele: {error}");
            return ExitCode::from(2);
        }
    };
    let context = &arguments.context;
    waiting::say_on_terminal();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            context.report(&error);
            ExitCode::from(if error.errno == types::Errno::Invalid { 2 } else { 1 })
        }
    }
}

/// The arguments of this process, with the values of the environment and of the configuration
/// files. A fault of a file does not keep its user from help, nor from the command `config`, which
/// reads the files itself.
fn configured(given: &[OsString]) -> types::Result<Arguments> {
    let command = Arguments::command();
    let plain = command.clone().try_get_matches_from(given);
    if let Some(answer) = plain.as_ref().err().filter(|error| !error.use_stderr()) {
        answer.exit();
    }
    let is_about = plain.as_ref().is_ok_and(|found| found.subcommand_name() == Some("config"));
    let config = config::Config::read(&command, &config::paths(given));
    let config = if is_about { config.unwrap_or_default() } else { config? };
    let matches = config.complete(&command, plain, given)?;
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    config.fill(&mut arguments.context);
    Ok(arguments)
}

fn run(arguments: &Arguments) -> types::Result<ExitCode> {
    let context = &arguments.context;
    let mut code = ExitCode::SUCCESS;
    match &arguments.command {
        Command::Run(args) => command::run::run(context, args).map(|status| code = status),
        Command::Up(args) => command::up::run(context, args),
        Command::Init(args) => command::init::run(context, args),
        Command::Down(args) => command::down::run(context, args),
        Command::Status(args) => command::status::run(context, args),
        Command::Top(args) => command::top::run(context, args),
        Command::Web(args) => command::web::run(context, args),
        Command::Health(args) => command::health::run(context, args).map(|state| code = state),
        Command::Mon(args) => command::mon::run(context, args),
        Command::Mds(args) => command::mds::run(context, args),
        Command::Mount(args) => command::mount::run(context, args),
        Command::Umount(args) => command::umount::run(context, args),
        Command::Ls(args) => command::ls::run(context, args),
        Command::Stat(args) => command::stat::run(context, args),
        Command::Mkdir(args) => command::mkdir::run(context, args),
        Command::Rm(args) => command::rm::run(context, args),
        Command::Audit(args) => command::audit::run(context, args),
        Command::Auth(args) => command::auth::run(context, args),
        Command::Quota(args) => command::quota::run(context, args),
        Command::Trash(args) => command::trash::run(context, args),
        Command::Mv(args) => command::mv::run(context, args),
        Command::Cp(args) => command::cp::run(context, args),
        Command::Find(args) => command::find::run(context, args),
        Command::Du(args) => command::du::run(context, args),
        Command::Trace(args) => command::trace::run(context, args),
        Command::Watch(args) => command::watch::run(context, args).map(|state| code = state),
        Command::Ingest(args) => command::ingest::run(context, args),
        Command::Dump(args) => command::dump::run(context, args),
        Command::Load(args) => command::load::run(context, args),
        Command::Demo(args) => command::demo::run(context, args),
        Command::Policy(args) => command::policy::run(context, args),
        Command::Decouple(args) => command::decouple::run(context, args),
        Command::Merge(args) => command::merge::run(context, args),
        Command::Sync(args) => command::sync::run(context, args),
        Command::Recover(args) => command::recover::run(context, args),
        Command::Discard(args) => command::discard::run(context, args),
        Command::Diff(args) => command::diff::run(context, args),
        Command::Journal(args) => command::journal::run(context, args),
        Command::Branch(args) => command::branch::run(context, args),
        Command::Publish(args) => command::branch::publish::run(context, args),
        Command::Sweep(args) => command::sweep::run(context, args),
        Command::Fsck(args) => command::fsck::run(context, args),
        Command::Scrub(args) => command::fsck::scrub(context, args),
        Command::Verify(args) => command::verify::run(context, args),
        Command::Balancer(args) => command::balancer::run(context, args),
        Command::Config(args) => command::config::run(context, args),
        Command::Completions(args) => command::completions::run(args),
        Command::Man(args) => command::man::run(args),
        Command::Bench(args) => command::bench::run(context, args),
    }?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::Arguments;

    fn walk(command: &Command, path: &str, look: &mut dyn FnMut(&Command, &str)) {
        look(command, path);
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            walk(sub, &format!("{path} {}", sub.get_name()), look);
        }
    }

    /// The example lines of a command's help.
    fn examples(command: &Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().map(str::trim).filter(|line| line.contains("cudele "));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn every_command_has_an_example() {
        let (mut without, mut commands) = (Vec::new(), 0);
        walk(&Arguments::command(), "cudele", &mut |command, path| {
            commands += 1;
            let is_example = |line: &String| line.contains(path);
            let has = examples(command).iter().any(is_example);
            if !has && !command.is_hide_set() {
                without.push(path.to_owned());
            }
        });
        assert!(commands > 80, "{commands}");
        assert_eq!(without, [""; 0], "commands without an example in their --help");
    }

    #[test]
    fn every_example_is_understood() {
        let mut tried = 0;
        walk(&Arguments::command(), "cudele", &mut |command, _| {
            for line in examples(command) {
                let from = line.find("cudele ").unwrap_or_default();
                let ends = ["  ", " | ", " || ", " && ", " > ", " < "];
                let end = ends.iter().filter_map(|end| line[from..].find(end)).min();
                let text = &line[from..from + end.unwrap_or(line.len() - from)];
                if text.contains(['\'', '"', '$', '`']) {
                    continue;
                }
                tried += 1;
                let parsed = Arguments::try_parse_from(text.split_whitespace());
                assert!(parsed.is_ok(), "{text}: {}", parsed.unwrap_err());
            }
        });
        assert!(tried > 80, "{tried}");
    }
}
