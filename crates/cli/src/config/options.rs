//! The options of the commands, as files and the environment name them.

use clap::{Arg, ArgAction, Command};
use cudele::Result;

use super::{Setting, Source};

/// An option that can be configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) name: &'a str,
    pub(crate) option: &'a Arg,
}

impl Choice<'_> {
    /// Whether it is on or off.
    pub(super) fn is_flag(&self) -> bool {
        matches!(self.option.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
    }

    /// Whether it has several values.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.option.get_action(), ArgAction::Append)
    }
}

/// The name of an option in a file; `None` for an option that is no user's.
fn name_of(option: &Arg) -> Option<&str> {
    let actions = matches!(
        option.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::SetFalse
    );
    // `--config` itself cannot be configured.
    let is_option = !option.is_positional() && option.get_id() != "config";
    (actions && is_option && !option.is_hide_set())
        .then(|| option.get_long().unwrap_or_else(|| option.get_id().as_str()))
}

/// The option of a command with this name.
pub(super) fn choice<'a>(command: &'a Command, name: &str) -> Option<Choice<'a>> {
    let named = |option: &'a Arg| {
        let found = name_of(option).filter(|found| *found == name)?;
        Some(Choice { name: found, option })
    };
    command.get_arguments().find_map(named)
}

/// Calls `look` for each option that can be configured, with the subcommands that lead to it.
pub(crate) fn each<'a>(command: &'a Command, look: &mut dyn FnMut(&[String], Choice<'a>)) {
    fn walk<'a>(
        command: &'a Command,
        path: &[String],
        look: &mut dyn FnMut(&[String], Choice<'a>),
    ) {
        for option in command.get_arguments() {
            if let Some(name) = name_of(option) {
                look(path, Choice { name, option });
            }
        }
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            walk(sub, &[path, &[sub.get_name().to_owned()]].concat(), look);
        }
    }
    walk(command, &[], look);
}

/// The name of the variable of an option.
pub(super) fn variable(path: &[String], name: &str) -> String {
    let words = ["cudele"].into_iter().chain(path.iter().map(String::as_str)).chain([name]);
    words.collect::<Vec<_>>().join("_").replace('-', "_").to_ascii_uppercase()
}

/// The value of an option in the environment.
pub(super) fn from_environment(path: &[String], choice: Choice<'_>) -> Option<Setting> {
    let variable = variable(path, choice.name);
    let value = std::env::var(&variable).ok().filter(|value| !value.is_empty())?;
    let option = choice.name.to_owned();
    let source = Source::Environment(variable);
    Some(Setting { command: path.to_vec(), option, values: vec![value], source })
}

/// Whether an option may not be set because the command line gives an option that excludes it.
pub(super) fn is_excluded(
    whole: &Command,
    path: &[&str],
    setting: &Setting,
    explicit: &[(Vec<String>, String)],
) -> bool {
    let mut command = whole;
    for name in path {
        let Some(sub) = command.find_subcommand(name) else { return false };
        command = sub;
    }
    let Some(own) = choice(command, &setting.option) else { return false };
    let given = explicit.iter().filter(|(at, _)| *at == setting.command);
    let mut given = given.filter_map(|(_, id)| {
        command.get_arguments().find(|option| option.get_id().as_str() == id)
    });
    let excludes = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|option| option.get_id() == other.get_id())
    };
    given.any(|given| excludes(given, own.option) || excludes(own.option, given))
}

/// The command with a value for an option that the command line does not give.
pub(super) fn with_default(command: Command, path: &[&str], setting: &Setting) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(*first, |sub| with_default(sub, rest, setting));
    }
    let Some(id) =
        choice(&command, &setting.option).map(|choice| choice.option.get_id().to_string())
    else {
        return command;
    };
    let values = setting.values.clone();
    command.mut_arg(id, move |option| option.required(false).default_values(values))
}

/// Checks that an option takes the value that is configured for it.
///
/// # Errors
/// `EINVAL`, with the source of the value.
pub(super) fn check(command: &Command, setting: &Setting) -> Result<()> {
    use clap::error::{ContextKind, ErrorKind};
    let path: Vec<&str> = setting.command.iter().map(String::as_str).collect();
    let with = with_default(command.clone(), &path, setting);
    let line = ["cudele"].into_iter().chain(path.iter().copied());
    let Err(error) = with.try_get_matches_from(line) else { return Ok(()) };
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        // The trial gives no operands.
        return Ok(());
    }
    let valid = error.get(ContextKind::ValidValue).map(|values| format!("one of {values}"));
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let cause = valid.or(source).unwrap_or_else(|| "the option does not take this value".into());
    Err(setting.rejected(&cause))
}
