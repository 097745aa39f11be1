//! `probe`: the speed of the machine itself, so that our figures can be read as ratios.

use cudele::Result;

use crate::harness::crew::Crew;
use crate::harness::job::{Job, Task};
use crate::harness::lab::Lab;
use crate::harness::row::Row;
use crate::harness::stats::seconds_between;

/// Round trips of 64 bytes over a Unix socket between two processes: the limit of `rpcs`.
pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let rounds = if lab.quick { 2_000 } else { 100_000 };
    let mut row = Row::new("probe", "round_trip_64_bytes", rounds);
    let home = scratch(lab)?;
    let socket = home.join("echo");
    let job = |task| [Job { mon: String::new(), key: None, user: None, task }];
    for repetition in 0..lab.repeat {
        lab.progress("probe", repetition, "round trips");
        let mut echo = Crew::ready(&job(Task::Echo { socket: socket.clone() }), &home)?;
        let ping = Task::Ping { socket: socket.clone(), rounds };
        let ping = Crew::ready(&job(ping), &home)?;
        echo.release()?;
        let outcome = ping.go()?.first()?.clone();
        let seconds = seconds_between(outcome.start_ns, outcome.end_ns);
        row.push(seconds);
        row.note("round_trip_us", seconds * 1e6 / crate::harness::stats::real(rounds));
        // The answering process ends when its peer has left.
        drop(echo);
        let _ = std::fs::remove_file(&socket);
    }
    let _ = std::fs::remove_dir_all(&home);
    lab.report("", [row]);
    Ok(())
}

fn scratch(lab: &Lab) -> Result<std::path::PathBuf> {
    let home = lab.place.parent.join(format!("cudele-probe.{}", std::process::id()));
    std::fs::create_dir_all(&home).map_err(|error| terminal::io(&home, &error))?;
    Ok(home)
}
