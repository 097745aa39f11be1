//! A progress bar on a terminal, and the interrupt of a user with Ctrl-C.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{Errno, Error, Result};
use indicatif::{ProgressBar, ProgressStyle};

use crate::source::Source;

/// Entries between two updates.
const EVERY: u64 = 256;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    done: u64,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// A bar for so many entries, if that is known. Once `stop` is set, the next step fails.
    pub(super) fn new(total: Option<u64>, stop: &Arc<AtomicBool>) -> Self {
        let bar = match (std::io::stderr().is_terminal(), total) {
            (false, _) => ProgressBar::hidden(),
            (true, Some(total)) => ProgressBar::new(total),
            (true, None) => ProgressBar::new_spinner(),
        };
        let template = if total.is_some() {
            "{bar:30} {human_pos}/{human_len} entries, {per_sec}"
        } else {
            "{spinner} {human_pos} entries, {per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, done: 0, stop: stop.clone() }
    }

    /// The number of entries, if a terminal shows it.
    pub(super) fn total(source: &Source) -> Option<u64> {
        if std::io::stderr().is_terminal() { source.count() } else { None }
    }

    /// One more entry.
    ///
    /// # Errors
    /// `ECANCELED` if the user wishes so.
    pub(super) fn step(&mut self) -> Result<()> {
        self.done += 1;
        if self.done.is_multiple_of(EVERY) {
            self.bar.set_position(self.done);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(Errno::Canceled, "", "stopped by the user"));
        }
        Ok(())
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
