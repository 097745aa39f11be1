//! Starting other programs, and how a chore can fail.
//!
//! Not a general process library: every command runs in the repository's top directory with the
//! terminal of the caller.
//!
//! Invariant: a program that ends with anything but success makes the chore fail.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Why a chore ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The chore was called wrongly; the usage text helps (exit code 2).
    Usage(String),
    /// The chore failed; the message has the reason and the remedy (exit code 1).
    Failed(String),
    /// The chore was done and found faults, which are already on the terminal (exit code 1).
    Reported,
}

impl Failure {
    /// The reason, without the usage text.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => message.clone(),
            Failure::Reported => "its output is above".into(),
        }
    }
}

/// The result of every chore.
pub(crate) type Outcome = Result<(), Failure>;

/// One call of cargo: its arguments and the variables set for it.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Cargo {
    pub(crate) fn new(arguments: &[&str]) -> Cargo {
        Cargo { arguments: Vec::new(), variables: Vec::new() }.and(arguments)
    }

    /// The same call with more arguments.
    pub(crate) fn and(mut self, arguments: &[&str]) -> Cargo {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// The same call with a variable set for it.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Cargo {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new("cargo");
        command.args(&self.arguments).current_dir(root);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs to the end, output going to the terminal.
    pub(crate) fn run(&self, root: &Path) -> Outcome {
        match self.command(root).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Failure::Failed(format!("`{self}` failed; its output is above"))),
            Err(error) => Err(Failure::Failed(format!("cannot start `{self}`: {error}"))),
        }
    }

    /// Whether the call succeeds; nothing is shown. For asking whether a tool is installed.
    pub(crate) fn succeeds(&self, root: &Path) -> bool {
        let mut command = self.command(root);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl fmt::Display for Cargo {
    /// The line a developer can paste to repeat the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "cargo {}", self.arguments.join(" "))
    }
}
