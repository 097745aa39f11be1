//! `cudele sync PATH COPY`: the copy of a directory, brought up to date once or continually.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Cluster, Errno, Error, Fs, Locator, Path, Result, WatchEvent};
use mirror::{
    ChangedNames, CopyPlace, Mirror, MirrorCounts, MirrorDeed, MirrorObserver, MirrorOptions,
};
use net::Keyring;
use serde_json::{Map, Value, json};
use terminal::context::{Context, is_read, say};
use terminal::figures;
use terminal::format;
use terminal::progress::ProgressCounter;

use super::Args;
use crate::space;
use crate::tree::Faults;

/// How long one call waits for a change.
const WAIT: Duration = Duration::from_secs(3600);
/// A round of --follow begins so long after the last change, but not later than the second time
/// after its first one: names that change together are compared once.
const SETTLED: Duration = Duration::from_millis(100);
const ROUND_MAX: Duration = Duration::from_secs(1);

/// Prints deeds as lines, if that was asked for, and counts names on a terminal.
#[derive(Debug)]
struct Reporter<'a> {
    context: &'a Context,
    is_verbose: bool,
    progress: ProgressCounter,
    faults: Faults,
    /// The first error of standard output.
    unsaid: Result<()>,
}

impl MirrorObserver for Reporter<'_> {
    fn done(&mut self, deed: MirrorDeed, name: &[u8]) {
        if !self.is_verbose || self.unsaid.is_err() {
            return;
        }
        let name = if name.is_empty() { b"." } else { name };
        let line = if self.context.json {
            let mut object = Map::new();
            object.insert("kind".to_owned(), deed.word().into());
            format::put_bytes(&mut object, "path", name);
            Value::Object(object).to_string()
        } else {
            format!("{:<11} {}", deed.word(), format::quoted(name))
        };
        self.unsaid = say(&format!("{line}\n"));
    }

    fn compared(&mut self) {
        self.progress.step();
    }

    fn failed(&mut self, error: Error) {
        self.faults.note(error);
    }
}

pub(super) fn run(context: &Context, args: &Args, to: &OsStr) -> Result<()> {
    let root = space::parse(&args.path)?;
    let fs = context.mount()?;
    space::at(&fs, root.clone())?.existing()?;
    let copy = place(args, &fs, &root, to)?;
    let mut reporter = Reporter {
        context,
        is_verbose: args.verbose || args.dry_run,
        progress: ProgressCounter::new("compared"),
        faults: Faults::default(),
        unsaid: Ok(()),
    };
    let options =
        MirrorOptions { delete: args.delete, dry_run: args.dry_run, checksum: args.checksum };
    let mut watch = if args.follow { Some(fs.watch(root.to_bytes(), None)?) } else { None };
    let begun = Instant::now();
    let mut mirror = Mirror::new(fs, root.clone(), copy, options, &mut reporter);
    mirror.whole()?;
    let mut before = mirror.counts();
    let mut goes_on = report(context, before, begun.elapsed())?;
    while let (Some(watch), true) = (&mut watch, goes_on) {
        let mut changed = ChangedNames::default();
        let mut event = watch.next_event(WAIT)?;
        let begun = Instant::now();
        while let Some(noted) = event {
            match noted {
                WatchEvent::Change(change) => changed.note(&root, &change),
                WatchEvent::Lost(_) => changed.note_everything(),
            }
            let left = ROUND_MAX.saturating_sub(begun.elapsed());
            event = if left.is_zero() { None } else { watch.next_event(SETTLED.min(left))? };
        }
        if changed.is_empty() {
            continue;
        }
        mirror.take(&changed)?;
        let counts = mirror.counts();
        goes_on = report(context, counts.since(&before), begun.elapsed())?;
        before = counts;
    }
    drop(mirror);
    reporter.unsaid?;
    reporter.faults.result()
}

/// Prints what was done. Returns whether standard output still has a reader.
fn report(context: &Context, counts: MirrorCounts, took: Duration) -> Result<bool> {
    let MirrorCounts { compared, copied, attributes, moved, removed, bytes, vanished, failed } =
        counts;
    if context.json {
        let value = json!({
            "compared": compared,
            "copied": copied,
            "attributes": attributes,
            "moved": moved,
            "removed": removed,
            "bytes": bytes,
            "vanished": vanished,
            "failed": failed,
            "seconds": took.as_secs_f64(),
        });
        return is_read(&format!("{value}\n"));
    }
    let mut parts = vec![
        format!("{} compared", figures::count(compared)),
        format!("{} copied ({})", figures::count(copied), figures::bytes(bytes)),
    ];
    let more = [
        (attributes, "with other attributes"),
        (moved, "moved"),
        (removed, "removed"),
        (vanished, "vanished"),
        (failed, "failed"),
    ];
    let more = more.into_iter().filter(|(number, _)| *number > 0);
    parts.extend(more.map(|(number, word)| format!("{} {word}", figures::count(number))));
    is_read(&format!("{} ({})\n", parts.join(", "), figures::seconds(took.as_secs_f64())))
}

/// The directory of the copy.
fn place(args: &Args, fs: &Arc<Fs>, root: &Path, to: &OsStr) -> Result<CopyPlace> {
    if let Some(path) = to.as_bytes().strip_prefix(b"local:") {
        if path.is_empty() {
            return Err(
                Error::new(Errno::Invalid, "local:", "no path follows").remedy("write local:DIR")
            );
        }
        return CopyPlace::local(std::path::Path::new(OsStr::from_bytes(path)));
    }
    let other = match (&args.to_dir, &args.to_mon) {
        (Some(dir), _) => {
            Cluster::connect_with(&Locator::monitor_of(dir), &Keyring::of_cluster(dir))?.mount()?
        }
        (None, Some(address)) => {
            let keys = args.to_key.as_deref().map(Keyring::of).unwrap_or_default();
            Cluster::connect_with(&address.parse()?, &keys)?.mount()?
        }
        (None, None) => fs.clone(),
    };
    let path = space::parse(to)?;
    let is_same = other.cluster_id() == fs.cluster_id();
    if is_same && (path.starts_with(root) || root.starts_with(&path)) {
        let cause = "one of both directories lies in the other";
        let subject = format!("{} and {}", root.quoted(), path.quoted());
        return Err(Error::new(Errno::Invalid, subject, cause).remedy("choose a copy outside"));
    }
    other.make_dir(path.to_bytes(), 0o755)?;
    CopyPlace::space(&other, &path)
}
