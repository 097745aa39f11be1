//! Reports on a terminal for which server a command waits.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use cudele::ServerWait;

/// The interval between checks.
const LOOK: Duration = Duration::from_millis(500);
/// Shorter waits are not reported.
const PATIENCE: Duration = Duration::from_secs(3);

/// Starts to report waits, if standard error is a terminal.
pub fn say_on_terminal() {
    if std::io::stderr().is_terminal() {
        // Without this thread the command still works.
        let _ = std::thread::Builder::new().name("waiting".to_owned()).spawn(say);
    }
}

fn say() {
    let mut said: Option<Instant> = None;
    loop {
        std::thread::sleep(LOOK);
        match (cudele::longest_wait(), said) {
            (Some(wait), None) if wait.since.elapsed() >= PATIENCE => {
                eprintln!("{}", line(&wait));
                said = Some(wait.since);
            }
            (Some(wait), Some(since)) if wait.since <= since => {}
            (_, Some(since)) => {
                eprintln!("cudele: it answered after {} s", since.elapsed().as_secs());
                said = None;
            }
            (_, None) => {}
        }
    }
}

fn line(wait: &ServerWait) -> String {
    let ServerWait { since, server, cause } = wait;
    let seconds = since.elapsed().as_secs();
    format!(
        "cudele: waiting for {server} since {seconds} s: {cause}; Ctrl-C ends this, `cudele status` shows the servers"
    )
}
