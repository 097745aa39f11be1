//! Logs of clients that are dead, on the disk of the machine on which they ran: the next process of
//! the same user replays them.

use client::{LogNeed, LogState, LogStep};
use types::{Errno, Error, Ino, Result};
use wire::MergeFlags;

use super::file::{self, LogFile};
use crate::state::io_error;
use crate::{Fs, StateDir};

/// Replays events that only these logs have, and removes logs that are not needed any more.
pub(crate) fn replay(fs: &Fs) -> Result<()> {
    while !replay_to_one_server(fs)? {}
    Ok(())
}

/// Returns whether one server answered throughout. A server that answered only at the end never had
/// the replayed events in memory.
fn replay_to_one_server(fs: &Fs) -> Result<bool> {
    let logs = find(fs.cluster_id())?;
    if logs.is_empty() {
        return Ok(true);
    }
    // The term of the server may not be known yet.
    fs.reach()?;
    let (epoch, crashed) = fs.terms();
    let (mut kept, mut replayed) = (Vec::new(), false);
    for mut log in logs {
        let path = log.path().to_owned();
        let need = LogNeed::of(log.header().epoch, epoch, crashed);
        let step = LogState::step_of_dead(need, log.events());
        if step == LogStep::Remove {
            log.remove().map_err(|error| io_error(&path, &error))?;
            continue;
        }
        if step == LogStep::Replay {
            replay_one(fs, &log).map_err(|error| error.about(path.display().to_string()))?;
            log.set_epoch(epoch).map_err(|error| io_error(&path, &error))?;
            replayed = true;
        }
        kept.push(log);
    }
    if !LogState::is_store_due(kept.len(), replayed) {
        return Ok(true);
    }
    fs.checkpoint()?;
    if fs.terms().0 != epoch {
        return Ok(false);
    }
    for log in kept {
        log.remove().map_err(|error| io_error(log.path(), &error))?;
    }
    Ok(true)
}

/// The logs of dead clients, in the order in which they were begun.
fn find(cluster: &str) -> Result<Vec<LogFile>> {
    let mut paths = Vec::new();
    for state in StateDir::all(cluster)? {
        let failed = |error| io_error(state.path(), &error);
        for entry in std::fs::read_dir(state.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            paths.extend(file::beginning(&path).map(|at| (at, path)));
        }
    }
    paths.sort();
    let mut found = Vec::new();
    for (_, path) in paths {
        match LogFile::of_the_dead(&path) {
            Ok(log) => found.extend(log),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let cause = format!("the log of a dead client is damaged: {error}");
                return Err(Error::new(Errno::BadMessage, path.display().to_string(), cause)
                    .remedy("move the file away: what it says is not applied then"));
            }
            Err(error) => return Err(io_error(&path, &error)),
        }
    }
    Ok(found)
}

fn replay_one(fs: &Fs, log: &LogFile) -> Result<()> {
    let failed = |error| io_error(log.path(), &error);
    let (bytes, _) = log.intact().map_err(failed)?;
    let mut header = log.header();
    let mut subtree = Ino(0);
    // This client acts for the dead one, which another client may have fenced.
    if let journal::Writer::Client { client, subtree: root } = &mut header.writer {
        (*client, subtree) = (fs.client(), *root);
    }
    let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
    fs.merge_journal(subtree, &header.put_on(&bytes), flags, wire::UnusedNumbers::default())
        .map(drop)
}
