//! The journal of a metadata server, from an archive.
//!
//! The journal becomes that of the archive. If the replaced journal had come further, positions
//! continue from its end: directories may be stored as of any of its positions, and recovery would
//! skip later events with the same positions.

use cudele::{Errno, Error, Result};
use journal::{Rewritten, SegmentHeader, Writer};
use metastore::request::{journal_prefix, segment_name};
use objstore::{Expect, Version};
use terminal::context::Context;
use types::{Rank, Seq};

use super::super::archive;
use super::super::files;
use super::super::rework::Surveys;
use super::super::source::{Access, Source};
use super::{Args, Done, check};

pub(super) fn import(context: &Context, args: &Args, rank: Rank, bytes: &[u8]) -> Result<Done> {
    let mut segments = archive::unpack(&args.file.display().to_string(), bytes)?;
    for (name, bytes) in &segments {
        check_segment(name, bytes, rank)?;
    }
    segments.sort();
    let surveys = Surveys::of_pieces(segments.iter().map(|(n, b)| (n.as_str(), &**b)), true);
    check(args, &surveys.serious())?;
    let access = if args.dry_run { Access::Read } else { Access::Change };
    let there = Source::open(context, &rank.to_string(), access)?;
    let mut done = Done { damage: surveys.damage(), ..Done::default() };
    let same = |name: &str, bytes: &[u8]| {
        there.pieces.iter().any(|piece| piece.name == name && piece.bytes == bytes)
    };
    done.unchanged = segments.iter().filter(|(name, bytes)| same(name, bytes)).count();
    if done.unchanged == segments.len() && segments.len() == there.pieces.len() {
        return Ok(done);
    }
    if !there.pieces.is_empty() && !args.force {
        return Err(files::exists(&there.name));
    }
    let goes_on = goes_on(&there, &surveys, rank)?;
    drop(surveys);
    if let Some((end, filler)) = goes_on {
        let index = |name: &str| u64::from_str_radix(name.rsplit('/').next()?, 16).ok();
        let all = segments.iter().map(|(name, _)| name.as_str());
        let used = all.chain(there.pieces.iter().map(|piece| &*piece.name)).filter_map(index).max();
        segments.push((segment_name(rank, used.map_or(0, |used| used + 1)), filler));
        done.goes_on = Some(end.0);
    }
    let changed = segments.iter().filter(|(name, bytes)| !same(name, bytes));
    done.written = changed.map(|(name, _)| name.clone()).collect();
    let stays = |name: &str| segments.iter().any(|(stays, _)| stays == name);
    let gone = there.pieces.iter().filter(|piece| !stays(&piece.name));
    done.removed = gone.map(|piece| piece.name.clone()).collect();
    if args.dry_run {
        return Ok(done);
    }
    done.kept = args.backup.keep(&there)?;
    for (name, bytes) in segments.iter().filter(|(name, bytes)| !same(name, bytes)) {
        let before = there.pieces.iter().find(|piece| piece.name == *name);
        let expect = before.map_or(Expect::Absent, |p| Expect::Is(Version::of(&p.bytes)));
        there.put(name, bytes, expect)?;
    }
    there.remove(done.removed.iter().map(String::as_str))?;
    Ok(done)
}

/// An empty segment with the next position, if the replaced journal has come further than the
/// imported one.
fn goes_on(there: &Source, new: &Surveys<'_>, rank: Rank) -> Result<Option<(Seq, Vec<u8>)>> {
    if there.pieces.is_empty() {
        return Ok(None);
    }
    let old = Surveys::of(there);
    let (old_end, new_end) = (old.free_seq(), new.next_seq());
    if old_end <= new_end {
        return Ok(None);
    }
    if old_end.0 - new_end.0 > 2 * journal::GAP_EVENTS_MAX {
        let cause = format!("it ends at event {}, the imported one at {}", old_end.0, new_end.0);
        return Err(Error::new(Errno::Range, there.name.clone(), cause)
            .remedy("reset the journal first, then import nothing older than that"));
    }
    let writer = Writer::Mds { rank };
    let epoch = old.epoch().max(new.epoch());
    let header = SegmentHeader { writer, epoch, first_seq: new_end };
    let mut filler = Rewritten::empty(&header);
    filler.fill(old_end);
    Ok(Some((old_end, filler.bytes)))
}

/// Whether this is a segment of the rank, as far as its name and header say.
fn check_segment(name: &str, bytes: &[u8], rank: Rank) -> Result<()> {
    let foreign = |cause: String| {
        Error::new(Errno::BadMessage, name, cause)
            .remedy(format!("import what `cudele journal export {rank}` wrote"))
    };
    let index = name.strip_prefix(&journal_prefix(rank));
    let index = index.and_then(|index| u64::from_str_radix(index, 16).ok());
    if index.is_none_or(|index| segment_name(rank, index) != name) {
        return Err(foreign(format!("this is no segment of the journal of {rank}")));
    }
    match SegmentHeader::decode(bytes) {
        Ok(SegmentHeader { writer, .. }) if writer != (Writer::Mds { rank }) => {
            Err(foreign("the header says that another journal is in it".to_owned()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
