//! `cudele config`: the values of options, and where each comes from.

use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory, Subcommand};
use cudele::Result;
use serde_json::json;
use terminal::context::Context;

use crate::config::{self, Choice, Config, File, each};

/// Show where the values of options come from, and check configuration files.
///
/// A file is TOML. A key outside of tables is an option of every command, `[up]` has the options of
/// `cudele up`, `[auth.add]` those of `cudele auth add`. The first of these counts: the command
/// line, the variable CUDELE_COMMAND_OPTION, the file of the user
/// ($XDG_CONFIG_HOME/cudele/cudele.toml, else ~/.config/cudele/cudele.toml), and
/// /etc/cudele/cudele.toml. `--config FILE` or $CUDELE_CONFIG replaces both files.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele config show up")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the configured options, or all options of a command
    #[command(after_help = "Examples:\n  cudele config show\n  cudele config show up\n  \
                            cudele config show --all --json")]
    Show {
        /// Also options that have their defaults
        #[arg(long)]
        all: bool,
        /// The command, such as `auth add`
        command: Vec<String>,
    },
    /// Check the configuration files, or these files
    #[command(
        after_help = "Examples:\n  cudele config check\n  cudele config check /etc/cudele/cudele.toml"
    )]
    Check {
        /// The files
        files: Vec<PathBuf>,
    },
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.action {
        Action::Show { all, command } => show(context, *all, command),
        Action::Check { files } => check(context, files),
    }
}

/// An option with its value, as it is shown.
struct Row {
    command: String,
    option: String,
    value: Option<String>,
    source: String,
}

fn show(context: &Context, all: bool, wanted: &[String]) -> Result<()> {
    let command = crate::Arguments::command();
    let given: Vec<_> = std::env::args_os().collect();
    let config = Config::read(&command, &config::paths(&given))?;
    let mut rows = Vec::new();
    each(&command, &mut |path, choice| {
        let row = row(&config, path, choice);
        let is_wanted = !wanted.is_empty() && path == wanted;
        if is_wanted || (path.starts_with(wanted) && (all || row.source != "default")) {
            rows.push(row);
        }
    });
    let value: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "command": row.command, "option": row.option, "value": row.value,
                "source": row.source,
            })
        })
        .collect();
    context.print(&json!(value), || {
        if rows.is_empty() {
            return "No option is configured; `cudele config show --all` lists all of them.\n"
                .into();
        }
        let head = Row {
            command: "command".into(),
            option: "option".into(),
            value: Some("value".into()),
            source: "source".into(),
        };
        rows.insert(0, head);
        let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
        let (first, second) = (width(|row| &row.command), width(|row| &row.option));
        let third = width(Row::value);
        let line = |row: &Row| {
            let (command, option, value) = (&row.command, &row.option, row.value());
            format!("{command:first$}  {option:second$}  {value:third$}  {}\n", row.source)
        };
        rows.iter().map(line).collect()
    })
}

impl Row {
    fn value(&self) -> &str {
        self.value.as_deref().unwrap_or("-")
    }
}

fn row(config: &Config, path: &[String], choice: Choice<'_>) -> Row {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let known = config.of(&words, choice.name);
    let defaults = choice.option.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy().into_owned()).collect();
    let default = (!defaults.is_empty()).then(|| defaults.join(","));
    Row {
        command: if path.is_empty() { "(all)".into() } else { path.join(" ") },
        option: choice.name.to_owned(),
        value: known.map_or(default, |setting| Some(setting.values.join(","))),
        source: known.map_or("default".into(), |setting| setting.source.to_string()),
    }
}

fn check(context: &Context, files: &[PathBuf]) -> Result<()> {
    let command = crate::Arguments::command();
    let given: Vec<_> = std::env::args_os().collect();
    let files = if files.is_empty() { config::paths(&given) } else { files.to_vec() };
    let mut checked = Vec::new();
    for path in files {
        let config = Config { settings: File::read(&path)?.settings(&command)? };
        config.check(&command)?;
        checked.push((path, config.settings.len()));
    }
    let value: Vec<_> =
        checked.iter().map(|(path, count)| json!({ "file": path, "settings": count })).collect();
    context.print(&json!(value), || {
        if checked.is_empty() {
            return "There is no configuration file.\n".into();
        }
        let line = |(path, count): &(PathBuf, usize)| {
            format!("{}: {count} settings, all of them known\n", path.display())
        };
        checked.iter().map(line).collect()
    })
}
