//! How far long work is: a line on the terminal's standard error, nothing anywhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// A counter of things done. It disappears when dropped.
#[derive(Debug)]
pub struct ProgressCounter {
    bar: Option<ProgressBar>,
    verb: &'static str,
    done: u64,
    start: std::time::Instant,
}

impl ProgressCounter {
    /// A counter of things `verb`, such as `copied`.
    pub fn new(verb: &'static str) -> Self {
        Self { bar: None, verb, done: 0, start: std::time::Instant::now() }
    }

    /// One more is done.
    pub fn step(&mut self) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None if self.done.is_multiple_of(64) && self.start.elapsed() > PATIENCE => {
                let bar = ProgressBar::new_spinner();
                let style = ProgressStyle::with_template("{spinner} {human_pos} {msg} ({per_sec})");
                if let Ok(style) = style {
                    bar.set_style(style);
                }
                bar.set_message(self.verb);
                bar.set_position(self.done);
                self.bar = Some(bar);
            }
            None => {}
        }
    }
}

impl Drop for ProgressCounter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
