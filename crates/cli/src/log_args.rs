//! The options of a daemon's log.

use clap::Args;
use daemon::{Log, LogFilter, LogFormat};

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogArgs {
    /// Events that have a line in the log: error, warning, info or debug, and others for parts of
    /// the program, as in `warning,store=debug` [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogFilter>,
    /// The form of the log: text or json [default: text]
    #[arg(long, value_name = "FORM")]
    log_format: Option<LogFormat>,
}

impl LogArgs {
    /// The log of a daemon.
    pub(crate) fn log(&self, name: impl Into<String>) -> Log {
        let filter = self.log_level.clone().unwrap_or_default();
        Log::of(name).with(filter, self.log_format.unwrap_or_default())
    }

    /// The same options for another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let level = self.log_level.iter().map(|level| format!("--log-level={level}"));
        let format = self.log_format.iter().map(|format| format!("--log-format={format}"));
        level.chain(format).collect()
    }
}
