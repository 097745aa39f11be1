//! A configuration file: its tables are commands, its keys are options.

use std::path::{Path, PathBuf};

use clap::Command;
use cudele::{Errno, Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::{self, Choice};
use super::{Setting, Source};

/// The text of a configuration file.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    text: String,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, or `EINVAL` if it is no text.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| terminal::io(path, &error))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::new(Errno::Invalid, path.display().to_string(), "the file is no UTF-8 text")
                .remedy("a configuration file is TOML: `dir = \"/var/lib/cudele\"`")
        })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// The settings of a program with these commands.
    ///
    /// # Errors
    /// `EINVAL` for anything but TOML, an unknown command or option, and a value of another kind
    /// than the option's.
    pub(crate) fn settings(&self, command: &Command) -> Result<Vec<Setting>> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message().to_owned(), "the file is TOML; see https://toml.io")
        })?;
        let mut settings = Vec::new();
        self.read_table(command, &[], table.get_ref(), &mut settings)?;
        Ok(settings)
    }

    fn error(&self, at: usize, cause: impl Into<String>, remedy: &str) -> Error {
        let subject = format!("{}:{}", self.path.display(), self.line(at));
        Error::new(Errno::Invalid, subject, cause.into()).remedy(remedy)
    }

    /// The number of the line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    fn read_table(
        &self,
        command: &Command,
        path: &[String],
        table: &DeTable<'_>,
        settings: &mut Vec<Setting>,
    ) -> Result<()> {
        for (key, value) in table {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            if let DeValue::Table(below) = value.get_ref() {
                let sub = command.get_subcommands().find(|sub| sub.get_name() == name);
                let sub = sub.ok_or_else(|| {
                    let cause = format!("{} has no command {name:?}", title(path));
                    self.error(at, cause, &format!("`{} --help` lists them", title(path)))
                })?;
                let path = [path, &[name.to_owned()]].concat();
                self.read_table(sub, &path, below, settings)?;
                continue;
            }
            let Some(choice) = options::choice(command, name) else {
                let cause = format!("{} has no option {name:?}", title(path));
                let remedy = format!("`cudele config show --all {}` lists them", path.join(" "));
                return Err(self.error(at, cause, remedy.trim_end()));
            };
            let values = self.values(&choice, value)?;
            let source = Source::File { path: self.path.clone(), line: self.line(at) };
            let option = name.to_owned();
            settings.push(Setting { command: path.to_vec(), option, values, source });
        }
        Ok(())
    }

    fn values(&self, choice: &Choice<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>> {
        let refused = |cause: &str, remedy: &str| {
            let cause = format!("{}: {cause}", choice.name);
            Err(self.error(value.span().start, cause, remedy))
        };
        match (scalar(value.get_ref()), value.get_ref()) {
            (Some(_), DeValue::Boolean(_)) if !choice.is_flag() => {
                refused("the option takes a value", "write the value in quotes")
            }
            (Some(text), DeValue::Boolean(_)) => Ok(vec![text]),
            (Some(_), _) if choice.is_flag() => {
                refused("the option takes no value", "write true or false")
            }
            (Some(text), _) => Ok(vec![text]),
            (None, DeValue::Array(list)) if choice.is_list() => {
                let texts: Option<Vec<String>> =
                    list.iter().map(|item| scalar(item.get_ref())).collect();
                texts.map_or_else(
                    || refused("a list has texts and numbers only", "write [\"a\", \"b\"]"),
                    Ok,
                )
            }
            _ => refused("a value is a text, a number, true or false", "write it in quotes"),
        }
    }
}

/// A command as its user calls it.
fn title(path: &[String]) -> String {
    [&["cudele".to_owned()][..], path].concat().join(" ")
}

/// The text of a value that is no list.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}
