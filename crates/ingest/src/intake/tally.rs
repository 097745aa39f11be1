//! The number of entries that were brought in, and the time it took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use cudele::{Completion, FileType, MergeReport, Policy};
use serde_json::{Value, json};
use terminal::figures::{average, bytes, count, per_second, rate, seconds};

use crate::source::{Skip, shown};

/// Skipped paths that are listed.
const SKIPPED_SHOWN: usize = 10;

/// Counts and times while entries come in.
#[derive(Clone, Debug, Default)]
pub struct IntakeTally {
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
    /// Further names of inodes.
    pub hard_links: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Entries that took the place of an earlier one of the same source.
    pub replaced: u64,
    /// Entries that the destination had, unchanged.
    pub unchanged: u64,
    /// Entries that replaced a different one of the destination.
    pub updated: u64,
    /// Files whose content is in the object store.
    pub large: u64,
    /// Files with a hole in the place of their content, which the source does not have.
    pub hollow: u64,
    /// Bytes of content.
    pub content_bytes: u64,
    /// Of them, those stored with the metadata.
    pub inline_bytes: u64,
    /// Entries that are left out.
    pub skipped: Vec<Skip>,
    /// Policies of directories: path below the root, and policy file.
    pub policies: Vec<(Vec<u8>, String)>,
    /// Time of the calls that create.
    pub create: Duration,
    /// Time of the calls that link and set attributes.
    pub attributes: Duration,
    /// Time of writing content to the object store.
    pub data: Duration,
}

impl IntakeTally {
    pub(crate) fn count(&mut self, file_type: FileType) {
        let number = match file_type {
            FileType::Directory => &mut self.directories,
            FileType::Regular => &mut self.files,
            FileType::Symlink => &mut self.symlinks,
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                &mut self.specials
            }
        };
        *number += 1;
    }

    /// Inodes created.
    pub fn creates(&self) -> u64 {
        self.directories + self.files + self.symlinks + self.specials
    }

    /// Inodes and further names.
    pub fn entries(&self) -> u64 {
        self.creates() + self.hard_links
    }

    /// Time of all calls of metadata.
    pub fn metadata(&self) -> Duration {
        self.create + self.attributes
    }
}

/// The phase after the creates, for postponed links and attributes.
pub const LINKS_AND_ATTRIBUTES: &str = "links and attributes";

/// A part of the metadata work that is timed on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// A mechanism, a composition, or a name for the phase.
    pub name: String,
    /// Its time.
    pub seconds: f64,
    /// Bytes written or transferred; 0 if that says nothing.
    pub bytes: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct IntakeReport {
    /// Counts and times.
    pub tally: IntakeTally,
    /// The timed parts of the metadata work.
    pub phases: Vec<Phase>,
    /// Events in the client's journal; 0 where there was none.
    pub events: u64,
    /// Bytes of the journal: the client's, or those that the server wrote to its own.
    pub journal_bytes: u64,
    /// Requests to the metadata servers.
    pub requests: u64,
    /// Reading the source.
    pub source_seconds: f64,
    /// Writing content to the object store, and making it durable.
    pub data_seconds: f64,
    /// Everything.
    pub seconds: f64,
    /// The report of the merge, if there was one.
    pub merge: Option<MergeReport>,
    /// The policy of the destination.
    pub policy: Option<Policy>,
    /// Others see it.
    pub visible: bool,
    /// The policy keeps nothing, and the process that held it ends.
    pub gone: bool,
}

impl IntakeReport {
    /// The report when the source has been read.
    pub(crate) fn new(tally: IntakeTally, start: Instant) -> Self {
        let elapsed = start.elapsed();
        let source = elapsed.saturating_sub(tally.metadata() + tally.data);
        Self {
            phases: Vec::new(),
            events: 0,
            journal_bytes: 0,
            requests: 0,
            source_seconds: source.as_secs_f64(),
            data_seconds: tally.data.as_secs_f64(),
            seconds: elapsed.as_secs_f64(),
            merge: None,
            policy: None,
            visible: false,
            gone: false,
            tally,
        }
    }

    pub(crate) fn take(&mut self, completion: Completion) {
        let steps = completion.steps.into_iter();
        self.phases.extend(steps.map(|step| Phase {
            name: step.mechanism.name().to_owned(),
            seconds: step.seconds,
            bytes: step.bytes,
        }));
        self.events = completion.events;
        self.merge = completion.merge;
    }

    /// Seconds of all metadata work.
    pub fn metadata_seconds(&self) -> f64 {
        self.phases.iter().map(|phase| phase.seconds).sum()
    }

    /// Journal bytes per create: with the content of small files, and without.
    pub fn bytes_per_create(&self) -> (f64, f64) {
        let creates = self.tally.creates();
        let bare = self.journal_bytes.saturating_sub(self.tally.inline_bytes);
        (average(self.journal_bytes, creates), average(bare, creates))
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let tally = &self.tally;
        let creates = tally.creates();
        let (with_inline, without_inline) = self.bytes_per_create();
        json!({
            "entries": tally.entries(), "creates": creates,
            "directories": tally.directories, "files": tally.files, "symlinks": tally.symlinks,
            "specials": tally.specials, "hard_links": tally.hard_links, "xattrs": tally.xattrs,
            "hollow": tally.hollow, "policies": tally.policies.len(),
            "replaced": tally.replaced, "unchanged": tally.unchanged, "updated": tally.updated,
            "content_bytes": tally.content_bytes,
            "inline_bytes": tally.inline_bytes, "files_in_store": tally.large,
            "skipped": tally.skipped.len(),
            "skipped_paths": tally.skipped.iter().take(SKIPPED_SHOWN).map(|skip| json!({
                "path": shown(&skip.path), "reason": skip.reason,
            })).collect::<Vec<_>>(),
            "phases": self.phases.iter().map(|phase| json!({
                "name": phase.name, "seconds": phase.seconds, "bytes": phase.bytes,
                "per_second": rate(creates, phase.seconds),
            })).collect::<Vec<_>>(),
            "metadata_seconds": self.metadata_seconds(), "data_seconds": self.data_seconds,
            "source_seconds": self.source_seconds, "seconds": self.seconds,
            "creates_per_second": rate(creates, self.metadata_seconds()),
            "requests": self.requests, "events": self.events,
            "journal_bytes": self.journal_bytes,
            "journal_bytes_per_create": with_inline,
            "journal_bytes_per_create_without_inline": without_inline,
            "replaced_in_merge": self.merge.as_ref().map(|merge| merge.replaced),
            "rejected_in_merge": self.merge.as_ref().map(|merge| merge.rejected),
            "visible": self.visible, "gone": self.gone,
        })
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let tally = &self.tally;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "  {} entries: {} directories, {} files, {} links, {} hard links, {} others; {}",
            count(tally.entries()),
            count(tally.directories),
            count(tally.files),
            count(tally.symlinks),
            count(tally.hard_links),
            count(tally.specials),
            bytes(tally.content_bytes),
        );
        if tally.unchanged + tally.updated > 0 {
            let (unchanged, updated) = (count(tally.unchanged), count(tally.updated));
            let _ = writeln!(text, "  {unchanged} were there already, {updated} were replaced");
        }
        if tally.hollow > 0 {
            let _ = writeln!(text, "  {} files are holes without content", count(tally.hollow));
        }
        for phase in &self.phases {
            let rate = if phase.name == LINKS_AND_ATTRIBUTES {
                String::new()
            } else {
                format!("   {:>12} creates/s", per_second(tally.creates(), phase.seconds))
            };
            let _ = writeln!(text, "  {:<24} {:>10}{rate}", phase.name, seconds(phase.seconds));
        }
        let _ = writeln!(
            text,
            "  metadata {}, data {}, reading the source {}, in all {}",
            seconds(self.metadata_seconds()),
            seconds(self.data_seconds),
            seconds(self.source_seconds),
            seconds(self.seconds)
        );
        if self.journal_bytes > 0 {
            let (with, without) = self.bytes_per_create();
            let _ = writeln!(
                text,
                "  journal {}: {with:.0} bytes per create, {without:.0} without the content of \
                 small files",
                bytes(self.journal_bytes)
            );
        }
        self.skipped(&mut text);
        text
    }

    fn skipped(&self, text: &mut String) {
        let skipped = &self.tally.skipped;
        if skipped.is_empty() {
            return;
        }
        let _ = writeln!(text, "  skipped {}:", count(skipped.len() as u64));
        for skip in skipped.iter().take(SKIPPED_SHOWN) {
            let _ = writeln!(text, "    {}: {}", shown(&skip.path), skip.reason);
        }
        if skipped.len() > SKIPPED_SHOWN {
            let _ = writeln!(text, "    ...");
        }
    }
}
