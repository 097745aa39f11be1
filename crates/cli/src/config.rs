//! Values of options from the environment and from configuration files.
//!
//! Every option of every command has a place in a file, `[command.subcommand]` `option = value`,
//! and a variable, `CUDELE_COMMAND_SUBCOMMAND_OPTION`. The command line comes first, then the
//! environment, then the user's file, then the file of the machine, then the default.
//!
//! The place of the cluster (`mon`, `dir`) and the key are no ordinary options: two of them can
//! name different clusters. A file's value counts only if neither the command line nor the
//! environment names a cluster.

mod file;
mod options;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use cudele::{Errno, Error, Result};
use terminal::context::Context;

pub(crate) use file::File;
pub(crate) use options::{Choice, each};

/// The file of the machine.
const OF_MACHINE: &str = "/etc/cudele/cudele.toml";
/// Names another file, in place of the user's and the machine's.
const VARIABLE: &str = "CUDELE_CONFIG";
/// Options that say which cluster a command means.
const PLACE: [&str; 3] = ["mon", "dir", "key"];

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Environment(String),
    File { path: PathBuf, line: usize },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "${name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// The value of an option that the command line does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The names of the subcommands that lead to the option.
    pub(crate) command: Vec<String>,
    /// The option's name in a file.
    pub(crate) option: String,
    /// One value, or several if the option may be repeated.
    pub(crate) values: Vec<String>,
    pub(crate) source: Source,
}

impl Setting {
    /// The error of a value that its option does not take.
    fn rejected(&self, cause: &str) -> Error {
        let subject = format!("{}: {} = {:?}", self.source, self.option, self.values.join(","));
        let command = [&["cudele".to_owned()][..], &self.command].concat().join(" ");
        Error::new(Errno::Invalid, subject, cause)
            .remedy(format!("`{command} --help` lists the values"))
    }
}

/// The configuration of a command.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The setting that counts comes first.
    pub(crate) settings: Vec<Setting>,
}

/// The files that count, the most important one first: the file that the command line or the
/// environment names, else the user's file and the machine's, as far as they exist.
pub(crate) fn paths(given: &[OsString]) -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = named(given).or_else(|| variable(VARIABLE)) {
        return vec![named.into()];
    }
    let home = || Some(Path::new(&variable("HOME")?).join(".config"));
    let of_user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let of_user = of_user.map(|dir| dir.join("cudele/cudele.toml"));
    let all = of_user.into_iter().chain([PathBuf::from(OF_MACHINE)]);
    all.filter(|path| path.exists()).collect()
}

/// The file of `--config` before the command.
fn named(given: &[OsString]) -> Option<OsString> {
    let mut rest = given.iter().skip(1);
    while let Some(argument) = rest.next() {
        let text = argument.to_str()?;
        if !text.starts_with('-') {
            return None;
        }
        if let Some(file) = text.strip_prefix("--config=") {
            return Some(file.into());
        }
        let value = PLACE.iter().any(|name| text.strip_prefix("--") == Some(*name));
        if text == "--config" {
            return rest.next().cloned();
        }
        if value {
            rest.next();
        }
    }
    None
}

impl Config {
    /// Reads the environment and these files for a program with these commands.
    ///
    /// # Errors
    /// `EINVAL` for a file that is no TOML, and for an unknown name, with the line.
    pub(crate) fn read(command: &Command, paths: &[PathBuf]) -> Result<Self> {
        let mut settings = Vec::new();
        each(command, &mut |path, option| settings.extend(options::from_environment(path, option)));
        for path in paths {
            settings.extend(File::read(path)?.settings(command)?);
        }
        Ok(Self { settings })
    }

    /// The value of an option, unless the command line gives it.
    pub(crate) fn of(&self, command: &[&str], option: &str) -> Option<&Setting> {
        self.settings.iter().find(|known| known.command == command && known.option == option)
    }

    /// The matches of a command line, whose own result is `plain`. Options that it does not give
    /// have the values of this configuration.
    ///
    /// # Errors
    /// `EINVAL` if an option does not take the value of a file or of the environment. Other errors
    /// end the process, as `clap` does, with a message.
    pub(crate) fn complete(
        &self,
        command: &Command,
        plain: std::result::Result<ArgMatches, clap::Error>,
        given: &[OsString],
    ) -> Result<ArgMatches> {
        let is_option = |setting: &&Setting| {
            !setting.command.is_empty() || !PLACE.contains(&setting.option.as_str())
        };
        let mut settings = self.settings.iter().filter(is_option).peekable();
        if settings.peek().is_none() {
            return plain.or_else(|error| error.exit());
        }
        let explicit = plain.as_ref().map(|found| given_options(command, found, &[]));
        let explicit = explicit.unwrap_or_default();
        let mut whole = command.clone();
        whole.build();
        // The first setting of an option counts.
        let mut known = BTreeSet::new();
        let mut with = command.clone();
        for setting in settings {
            let path: Vec<&str> = setting.command.iter().map(String::as_str).collect();
            let is_first = known.insert((path.clone(), setting.option.as_str()));
            if is_first && !options::is_excluded(&whole, &path, setting, &explicit) {
                with = options::with_default(with, &path, setting);
            }
        }
        with.try_get_matches_from(given).or_else(|error| {
            use clap::error::ErrorKind::{InvalidValue, ValueValidation};
            if matches!(error.kind(), InvalidValue | ValueValidation) {
                self.check(command)?;
            }
            error.exit()
        })
    }

    /// Checks that every option takes the value that is configured for it.
    ///
    /// # Errors
    /// `EINVAL`, with the source of the value.
    pub(crate) fn check(&self, command: &Command) -> Result<()> {
        self.settings.iter().try_for_each(|setting| options::check(command, setting))
    }

    /// Names the cluster and the key of the configuration, if nothing else names them.
    pub(crate) fn fill(&self, context: &mut Context) {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let value = |option| self.of(&[], option).and_then(|known| known.values.first().cloned());
        let is_named = context.mon.is_some() || context.dir.is_some();
        if !is_named && !is_set("CUDELE_MON") && !is_set("CUDELE_DIR") {
            (context.mon, context.dir) = (value("mon"), value("dir").map(PathBuf::from));
        }
        if context.key.is_none() && !is_set("CUDELE_KEY") {
            context.key = value("key").map(PathBuf::from);
        }
    }
}

/// The options that a command line gives, with the subcommands that lead to them.
fn given_options(
    command: &Command,
    matches: &ArgMatches,
    path: &[String],
) -> Vec<(Vec<String>, String)> {
    // The matches of a command also name global options of its subcommands.
    let own = command.get_arguments().map(|option| option.get_id().as_str());
    let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let mut all: Vec<_> = own.filter(is_given).map(|id| (path.to_vec(), id.to_owned())).collect();
    if let Some((name, matches)) = matches.subcommand()
        && let Some(below) = command.find_subcommand(name)
    {
        all.extend(given_options(below, matches, &[path, &[name.to_owned()]].concat()));
    }
    all
}

#[cfg(test)]
mod tests;
