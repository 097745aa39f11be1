//! The judge: compares the records of the writers with the names in the namespace.
//!
//! A name that the system acknowledged must exist until its removal is sent, and after the answer
//! to the removal the name must not exist. An operation is uncertain if it has no answer, or an
//! error, or if its client was killed before the next sync. Invariant: the writers work while the
//! judge looks, so an operation between two readings of a record is uncertain for that comparison.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudele::{Fs, Result};
use terminal::io;
use types::Set;

use crate::harness::soak::{RecordLine, soak_name, soak_number};

/// The result of one comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Names that were found.
    pub(crate) names: u64,
    /// Operations in the records since the last comparison.
    pub(crate) operations: u64,
    /// Operations among them that had an error.
    pub(crate) refused: u64,
    /// The first broken promise, or an error that is not allowed.
    pub(crate) fault: Option<String>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Judge {
    writers: Vec<RecordReader>,
    /// The directory in which all writers work, besides the one of each.
    shared: String,
}

impl Judge {
    /// A judge of writers with these directories and records.
    pub(crate) fn new(shared: &str, writers: Vec<(String, PathBuf)>) -> Self {
        let reader = |(dir, path)| RecordReader { dir, path, ..RecordReader::default() };
        Self { writers: writers.into_iter().map(reader).collect(), shared: shared.to_owned() }
    }

    /// Compares everything, in the view of this client.
    pub(crate) fn compare(&mut self, fs: &Arc<Fs>, allowed: &[&str]) -> Result<Verdict> {
        let mut before = Vec::new();
        for writer in &mut self.writers {
            writer.read()?;
            before.push(writer.known.clone());
        }
        let shared = numbers(fs, &self.shared)?;
        let mut verdict = Verdict::default();
        for (at, (writer, before)) in self.writers.iter_mut().zip(before).enumerate() {
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let own = numbers(fs, &writer.dir)?;
            let all = own.iter().chain(&shared).filter(|(of, _)| *of == number);
            let listed: Set<u64> = all.map(|(_, number)| *number).collect();
            writer.read()?;
            verdict.names += listed.len() as u64;
            verdict.operations += std::mem::take(&mut writer.operations);
            let errors = std::mem::take(&mut writer.errors);
            verdict.refused += errors.len() as u64;
            let foreign = errors.iter().find(|symbol| !allowed.contains(&symbol.as_str()));
            let error =
                foreign.map(|symbol| format!("answers: writer.{number} got the error {symbol}"));
            let broken = before.broken(&listed, &writer.touched, number);
            verdict.fault = verdict.fault.or(broken).or(error);
        }
        Ok(verdict)
    }
}

fn numbers(fs: &Arc<Fs>, dir: &str) -> Result<Vec<(u32, u64)>> {
    let entries = fs.open_dir(dir)?.list()?;
    Ok(entries.iter().filter_map(|entry| soak_number(&entry.name)).collect())
}

/// The names that must and may exist.
#[derive(Clone, Debug, Default)]
struct KnownNames {
    certain: Set<u64>,
    uncertain: Set<u64>,
    /// Operations since the last sync: a death of the client and of a server loses them.
    unsynced: Vec<u64>,
    /// The operation without an answer.
    open: Option<RecordLine>,
}

impl KnownNames {
    fn take(&mut self, line: RecordLine) -> Option<String> {
        match line {
            RecordLine::Process => {
                let lost = std::mem::take(&mut self.unsynced);
                lost.into_iter().chain(self.open_numbers()).for_each(|one| self.doubt(one));
                self.open = None;
            }
            RecordLine::Done => self.done(),
            RecordLine::Failed(symbol) => {
                self.open_numbers().into_iter().for_each(|one| self.doubt(one));
                self.open = None;
                return Some(symbol);
            }
            RecordLine::Create(_)
            | RecordLine::Unlink(_)
            | RecordLine::Rename(..)
            | RecordLine::Sync => self.open = Some(line),
        }
        None
    }

    fn done(&mut self) {
        let numbers = self.open_numbers();
        for number in &numbers {
            self.uncertain.remove(number);
        }
        match self.open.take() {
            Some(RecordLine::Create(number)) => {
                self.certain.insert(number);
            }
            Some(RecordLine::Unlink(number)) => {
                self.certain.remove(&number);
            }
            Some(RecordLine::Rename(from, to)) => {
                self.certain.remove(&from);
                self.certain.insert(to);
            }
            Some(RecordLine::Sync) => self.unsynced.clear(),
            _ => {}
        }
        self.unsynced.extend(numbers);
    }

    fn doubt(&mut self, number: u64) {
        self.certain.remove(&number);
        self.uncertain.insert(number);
    }

    fn open_numbers(&self) -> Vec<u64> {
        match &self.open {
            Some(RecordLine::Create(number) | RecordLine::Unlink(number)) => vec![*number],
            Some(RecordLine::Rename(from, to)) => vec![*from, *to],
            _ => Vec::new(),
        }
    }

    /// The sentence about a name that is lost, or exists although it was removed.
    fn broken(&self, listed: &Set<u64>, touched: &Set<u64>, writer: u32) -> Option<String> {
        let mut lost = self.certain.iter().filter(|one| !listed.contains(*one));
        if let Some(number) = lost.find(|one| !touched.contains(*one)) {
            let name = soak_name(writer, *number);
            return Some(format!("names: the acknowledged {name} of writer.{writer} is lost"));
        }
        let known = |one: &u64| {
            [&self.certain, &self.uncertain, touched].iter().any(|set| set.contains(one))
        };
        let number = listed.iter().find(|one| !known(one))?;
        let name = soak_name(writer, *number);
        Some(format!(
            "names: {name} exists, and writer.{writer} has the answer that it was removed"
        ))
    }
}

/// A record, and the names in its lines so far.
#[derive(Debug, Default)]
struct RecordReader {
    dir: String,
    path: PathBuf,
    offset: u64,
    known: KnownNames,
    /// Numbers of the lines since the comparison before.
    touched: Set<u64>,
    operations: u64,
    errors: Vec<String>,
}

impl RecordReader {
    /// Reads the complete lines that are new.
    fn read(&mut self) -> Result<()> {
        let text = tail(&self.path, self.offset)?;
        self.offset += text.len() as u64;
        self.touched.clear();
        self.touched.extend(self.known.open_numbers());
        for line in text.lines().filter_map(RecordLine::parse) {
            self.operations += u64::from(line == RecordLine::Done);
            // A restart makes all unsynced operations uncertain, also for this comparison.
            if line == RecordLine::Process {
                self.touched.extend(self.known.unsynced.iter().copied());
            }
            self.errors.extend(self.known.take(line));
            self.touched.extend(self.known.open_numbers());
        }
        Ok(())
    }
}

/// The complete lines of a file from an offset on.
pub(crate) fn tail(path: &Path, offset: u64) -> Result<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(io(path, &error)),
    };
    let mut text = String::new();
    file.seek(SeekFrom::Start(offset)).map_err(|error| io(path, &error))?;
    file.read_to_string(&mut text).map_err(|error| io(path, &error))?;
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(lines: &str) -> KnownNames {
        let mut known = KnownNames::default();
        for line in lines.split(", ") {
            known.take(RecordLine::parse(line).expect("a line"));
        }
        known
    }

    fn said(lines: &str, listed: &[u64], touched: &[u64]) -> String {
        let [listed, touched] =
            [listed, touched].map(|all| all.iter().copied().collect::<Set<u64>>());
        known(lines).broken(&listed, &touched, 2).unwrap_or_default()
    }

    #[test]
    fn an_acknowledged_name_is_missed_and_a_removed_one_is_found() {
        let lines = "k, c 0, =, c 1, =, u 0, =, r 1 4, =";
        assert_eq!(said(lines, &[4], &[]), "");
        assert!(said(lines, &[], &[]).contains("w2.4 of writer.2 is lost"));
        assert_eq!(said(lines, &[], &[4]), "");
        assert!(said(lines, &[4, 0], &[]).contains("w2.0 exists"));
    }

    #[test]
    fn without_an_answer_or_a_sync_before_a_kill_both_is_right() {
        for listed in [&[0, 1, 2][..], &[0]] {
            assert_eq!(said("k, c 0, =, s, =, c 1, =, c 2, k", listed, &[]), "");
        }
        assert!(said("k, c 0, =, s, =, c 1, =, k", &[1], &[]).contains("w2.0 of"));
        assert_eq!(said("k, c 0, ! ENOSPC", &[0], &[]), "");
        assert_eq!(said("k, c 0, ! ENOSPC", &[], &[]), "");
    }
}
