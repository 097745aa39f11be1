//! `cudele top`: the cluster live, on a terminal or as lines of JSON.

mod rates;
mod screen;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use cudele::{ClusterMap, Errno, Error, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};
use terminal::context::{Context, say};

use rates::{History, Sample};

/// Show the load of the metadata servers, the decoupled subtrees and the findings of `cudele
/// health`, live. Keys: q ends, p pauses, + and - change the interval.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  cudele top\n  cudele top --json --count 10 > load.jsonl")]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    interval: f64,
    /// End after so many looks
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

/// The shortest and the longest interval, in seconds. Servers report to the monitor a few times a
/// second.
const INTERVALS: (f64, f64) = (0.2, 3600.0);

fn interval(text: &str) -> std::result::Result<f64, String> {
    let (shortest, longest) = INTERVALS;
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_possible = (shortest..=longest).contains(&seconds);
    is_possible.then_some(seconds).ok_or_else(|| format!("from {shortest} to {longest} seconds"))
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let cluster = context.cluster()?;
    let look = || cluster.status();
    if context.json {
        return lines(args, look);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::new(Errno::Invalid, "top", "standard output is no terminal")
            .remedy("`cudele top --json` writes a line for each look"));
    }
    // A signal ends the loop, which leaves the terminal as it was.
    let is_ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGTERM] {
        signal_hook::flag::register(signal, is_ended.clone()).map_err(failed)?;
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = live(&mut terminal, args, &is_ended, look);
    ratatui::restore();
    ended
}

/// A line of JSON for each look but the first, which has no rates.
fn lines(args: &Args, look: impl Fn() -> Result<ClusterMap>) -> Result<()> {
    let mut before = Sample::new(Instant::now(), look()?);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        let sample = Sample::new(Instant::now(), look()?);
        say(&format!("{}\n", sample.to_json(&before)))?;
        before = sample;
        left -= 1;
    }
    Ok(())
}

fn live(
    terminal: &mut DefaultTerminal,
    args: &Args,
    is_ended: &AtomicBool,
    look: impl Fn() -> Result<ClusterMap>,
) -> Result<()> {
    let mut history = History::new(Sample::new(Instant::now(), look()?));
    let mut interval = args.interval;
    let (mut is_paused, mut left) = (false, args.count.unwrap_or(u64::MAX));
    let mut fault = None;
    while left > 0 {
        let drawn = terminal.draw(|frame| {
            screen::draw(
                frame,
                &history,
                &screen::Mode { interval, is_paused, fault: fault.as_deref() },
            );
        });
        drawn.map_err(failed)?;
        match key_within(Duration::from_secs_f64(interval), is_ended)? {
            Some(Key::End) => return Ok(()),
            Some(Key::Pause) => is_paused = !is_paused,
            Some(Key::Faster) => interval = (interval / 2.0).max(INTERVALS.0),
            Some(Key::Slower) => interval = (interval * 2.0).min(INTERVALS.1),
            Some(Key::Other) => {}
            None if is_paused => {}
            None => {
                // A monitor that is away comes back; the servers go on without it.
                match look() {
                    Ok(map) => {
                        history.push(Sample::new(Instant::now(), map));
                        fault = None;
                    }
                    Err(error) => fault = Some(error.to_string()),
                }
                left -= 1;
            }
        }
    }
    Ok(())
}

/// How soon a signal ends the picture.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);

enum Key {
    End,
    Pause,
    Faster,
    Slower,
    /// Another key, or a new size of the terminal.
    Other,
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn failed(error: std::io::Error) -> Error {
    Error::new(Errno::Io, "terminal", error.to_string())
}

/// The next key, or the end by a signal; `None` after the time.
#[allow(clippy::wildcard_enum_match_arm, reason = "all other keys and events draw again")]
fn key_within(patience: Duration, is_ended: &AtomicBool) -> Result<Option<Key>> {
    let end = Instant::now() + patience;
    loop {
        if is_ended.load(Ordering::Relaxed) {
            return Ok(Some(Key::End));
        }
        let left = end.saturating_duration_since(Instant::now());
        if event::poll(left.min(SIGNALS_EVERY)).map_err(failed)? {
            break;
        }
        if left <= SIGNALS_EVERY {
            return Ok(None);
        }
    }
    let Event::Key(key) = event::read().map_err(failed)? else { return Ok(Some(Key::Other)) };
    if key.kind == KeyEventKind::Release {
        return Ok(Some(Key::Other));
    }
    Ok(Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
        KeyCode::Char('q') | KeyCode::Esc => Key::End,
        KeyCode::Char('p' | ' ') => Key::Pause,
        KeyCode::Char('+') => Key::Faster,
        KeyCode::Char('-') => Key::Slower,
        _ => Key::Other,
    }))
}
