//! The clients of `soak`: writers with a record, readers, and a client that hoards open files.
//!
//! Invariant: a writer appends the intention before it sends the request, and the answer before it
//! sends the next one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cudele::{Dir, Errno, Error, Fs, NewFile, RenameFlags, Result};
use types::rng::Rng;

use super::dialogue::{await_start, sleep_until};
use super::{soak_decoupled, soak_probe};
use crate::harness::clock::clock_ns;
use crate::harness::job::JobOutcome;
use crate::harness::soak::{RecordLine, SoakJob, SoakRole, soak_name, soak_number};

/// Names of a writer before it begins to remove its oldest ones.
const NAMES: usize = 600;
/// Operations between two syncs of a writer.
const SYNC_EVERY: u64 = 50;
/// How long a writer waits after an error, so that a full store does not fill the record.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Works until the parent ends this process.
pub(super) fn work(fs: &Arc<Fs>, job: &SoakJob) -> Result<JobOutcome> {
    // A parent that was killed cannot end its clients.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Error::new(Errno::Io, "soak", error.to_string()))?;
    // As mounts do: the client gets capabilities, and returns to a restarted server unasked.
    fs.listen(|_| {})?;
    match job.role {
        SoakRole::Write => Writer::new(fs, job)?.run(job),
        SoakRole::Read => read(fs, job),
        SoakRole::Probe => soak_probe::probe(fs, job),
        SoakRole::Hoard { files } => hoard(fs, job, files),
        SoakRole::Decouple => soak_decoupled::work(fs, job),
        SoakRole::Resume => soak_decoupled::resume(fs, job),
    }
}

struct Writer {
    fs: Arc<Fs>,
    number: u32,
    /// Names with even numbers are in the first directory, odd ones in the second.
    dirs: [Dir; 2],
    record: File,
    next: u64,
    live: [VecDeque<u64>; 2],
    random: Rng,
}

impl Writer {
    fn new(fs: &Arc<Fs>, job: &SoakJob) -> Result<Self> {
        let [own, shared] = job.dirs.as_slice() else {
            return Err(Error::new(Errno::Invalid, "soak", "a writer has two directories"));
        };
        let next = first_unused(&job.record)?;
        let record = File::options().create(true).append(true).open(&job.record);
        let record = record.map_err(|error| terminal::io(&job.record, &error))?;
        let mut writer = Self {
            fs: fs.clone(),
            number: job.number,
            dirs: [fs.open_dir(own)?, fs.open_dir(shared)?],
            record,
            next,
            live: [VecDeque::new(), VecDeque::new()],
            random: Rng::new(next ^ u64::from(job.number)),
        };
        writer.note(&RecordLine::Process)?;
        writer.take_over()?;
        Ok(writer)
    }

    /// The names of the processes before this one are removed first.
    fn take_over(&mut self) -> Result<()> {
        for (at, dir) in self.dirs.iter().enumerate() {
            let names = dir.list()?.into_iter().filter_map(|entry| soak_number(&entry.name));
            let own = names.filter(|(writer, _)| *writer == self.number);
            let mut numbers: Vec<u64> = own.map(|(_, number)| number).collect();
            numbers.sort_unstable();
            self.live[at] = numbers.into();
        }
        Ok(())
    }

    fn run(mut self, job: &SoakJob) -> Result<JobOutcome> {
        await_start()?;
        let pace = u64::try_from(job.pace.as_nanos()).unwrap_or(u64::MAX);
        let mut due_ns = clock_ns();
        for count in 1.. {
            sleep_until(due_ns);
            // A late writer does not catch up: its load would come all at once.
            due_ns = due_ns.saturating_add(pace).max(clock_ns());
            self.one()?;
            if count % SYNC_EVERY == 0 {
                self.note(&RecordLine::Sync)?;
                let synced = self.fs.sync().map(drop);
                self.answer(&synced)?;
            }
        }
        Ok(JobOutcome::default())
    }

    /// One operation on one of the two directories.
    fn one(&mut self) -> Result<()> {
        let at = usize::from(self.next % 2 == 1);
        let (full, draw) = (self.live[at].len() >= NAMES, self.random.below(10));
        let oldest = self.live[at].front().copied();
        match oldest {
            Some(old) if draw == 0 => self.rename(at, old),
            Some(old) if full || draw < 4 => self.unlink(at, old),
            _ => self.create(at),
        }
    }

    fn create(&mut self, at: usize) -> Result<()> {
        let number = self.fresh();
        self.note(&RecordLine::Create(number))?;
        let done = self.dirs[at].create(soak_name(self.number, number), &NewFile::default());
        if self.answer(&done.map(drop))? {
            self.live[at].push_back(number);
        }
        Ok(())
    }

    fn unlink(&mut self, at: usize, number: u64) -> Result<()> {
        self.live[at].pop_front();
        self.next += 1;
        self.note(&RecordLine::Unlink(number))?;
        let done = self.dirs[at].unlink(soak_name(self.number, number));
        if !self.answer(&done)? {
            // It is removed by a later process, or by this one.
            self.live[at].push_back(number);
        }
        Ok(())
    }

    fn rename(&mut self, at: usize, from: u64) -> Result<()> {
        self.live[at].pop_front();
        let to = self.fresh();
        self.note(&RecordLine::Rename(from, to))?;
        let (dir, names) =
            (&self.dirs[at], [from, to].map(|number| soak_name(self.number, number)));
        let done = dir.rename(&names[0], dir, &names[1], RenameFlags::default());
        let done = self.answer(&done.map(drop))?;
        self.live[at].push_back(if done { to } else { from });
        Ok(())
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn note(&mut self, line: &RecordLine) -> Result<()> {
        let text = format!("{line}\n");
        let written = self.record.write_all(text.as_bytes());
        written.map_err(|error| Error::new(Errno::Io, "the record of a writer", error.to_string()))
    }

    /// Notes the answer, and says whether the operation was done.
    fn answer(&mut self, result: &Result<()>) -> Result<bool> {
        match result {
            Ok(()) => self.note(&RecordLine::Done)?,
            Err(error) => {
                self.note(&RecordLine::Failed(error.errno.symbol().to_owned()))?;
                std::thread::sleep(AFTER_ERROR);
            }
        }
        Ok(result.is_ok())
    }
}

/// A number that no line of the record names.
fn first_unused(record: &Path) -> Result<u64> {
    let file = match File::open(record) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(terminal::io(record, &error)),
    };
    let mut next = 0;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| terminal::io(record, &error))?;
        if let Some(RecordLine::Create(number) | RecordLine::Rename(_, number)) =
            RecordLine::parse(&line)
        {
            next = next.max(number + 1);
        }
    }
    // Even: the order of the two directories is kept.
    Ok(next + next % 2)
}

/// Lists the directories in turn, and looks some of their names up.
fn read(fs: &Arc<Fs>, job: &SoakJob) -> Result<JobOutcome> {
    let dirs = job.dirs.iter().map(|dir| fs.open_dir(dir)).collect::<Result<Vec<_>>>()?;
    await_start()?;
    let mut random = Rng::new(u64::from(job.number));
    loop {
        let dir = &dirs[random.index(dirs.len())];
        // The store may be full, or a server missing: writers and the probe judge that.
        if let Ok(entries) = dir.list() {
            for entry in entries.iter().step_by(7) {
                let _ = dir.lookup(&entry.name);
            }
        }
        std::thread::sleep(job.pace);
    }
}

/// Opens files and lists directories, so that the server must remember them, and waits.
fn hoard(fs: &Arc<Fs>, job: &SoakJob, files: u64) -> Result<JobOutcome> {
    let mut opened = Vec::new();
    for (at, path) in job.dirs.iter().enumerate() {
        let dir = fs.open_dir(path)?;
        for number in 0..files {
            let name = format!("hoard.{}.{at}.{number}", job.number);
            let attr = dir.create(&name, &NewFile::default())?;
            fs.open_as(fs.cred(), attr.ino, true)?;
            opened.push(attr.ino);
        }
        for entry in dir.list()? {
            dir.lookup(&entry.name)?;
        }
    }
    await_start()?;
    for ino in opened {
        fs.close_file(ino, true);
    }
    Ok(JobOutcome::default())
}
