//! Policies that were set, and the present paths of their directories.
//!
//! The cluster map has the inode of each directory and its path at the time of the setting. If the
//! path leads to another inode now, the server knows the new path of a directory in its memory.
//! Other directories are searched for in the whole namespace, all in one walk: after a restart of
//! the server, a directory that was renamed or removed.

use std::collections::BTreeMap;

use types::{Errno, Ino, Result};
use wire::{Answer, Op, PolicyEntry, ReadOp};

use crate::Fs;
use crate::fs::parse;

/// Entries asked for at a time.
const ENTRIES: u32 = 4096;

pub(crate) fn today(fs: &Fs, entries: Vec<PolicyEntry>) -> Result<Vec<PolicyEntry>> {
    let (mut known, mut unknown) = (Vec::new(), BTreeMap::new());
    for mut entry in entries {
        if entry.ino.0 == 0 || leads_to(fs, &entry)? {
            known.push(entry);
        } else if let Some(path) = path_at_server(fs, entry.ino)? {
            entry.path = path;
            known.push(entry);
        } else {
            unknown.insert(entry.ino, entry);
        }
    }
    known.extend(search(fs, unknown)?);
    known.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(known)
}

/// Whether a path does not exist, or may not be searched.
fn is_unknown(errno: Errno) -> bool {
    use Errno::{Access, Busy, NotDirectory, NotFound, Stale};
    [Access, Busy, NotDirectory, NotFound, Stale].contains(&errno)
}

/// Whether a directory still has the path that it had.
fn leads_to(fs: &Fs, entry: &PolicyEntry) -> Result<bool> {
    match fs.call(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: &entry.path })) {
        Ok(Answer::Walked { attr, .. }) => Ok(attr.is_some_and(|attr| attr.ino == entry.ino)),
        Ok(_) => Ok(false),
        // A subtree that other clients may not search.
        Err(error) if error.errno == Errno::Busy => Ok(true),
        Err(error) if is_unknown(error.errno) => Ok(false),
        Err(error) => Err(error),
    }
}

fn path_at_server(fs: &Fs, ino: Ino) -> Result<Option<Vec<u8>>> {
    match fs.call(Op::Read(ReadOp::GetPolicy { dir: ino })) {
        Ok(Answer::Policy(policy)) => {
            Ok(Some(policy.source_path).filter(|path| policy.source == ino && !path.is_empty()))
        }
        Ok(_) => Ok(None),
        Err(error) if is_unknown(error.errno) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks for directories everywhere, until all are found.
fn search(fs: &Fs, mut wanted: BTreeMap<Ino, PolicyEntry>) -> Result<Vec<PolicyEntry>> {
    let (mut found, mut pending) = (Vec::new(), vec![(Vec::new(), Ino::ROOT)]);
    while !wanted.is_empty()
        && let Some((path, dir)) = pending.pop()
    {
        for (name, ino) in directories(fs, &path, dir)? {
            let path = [&path[..], b"/", &name[..]].concat();
            if let Some(entry) = wanted.remove(&ino) {
                found.push(PolicyEntry { path: path.clone(), ..entry });
            }
            pending.push((path, ino));
        }
    }
    Ok(found)
}

/// The directories in a directory.
fn directories(fs: &Fs, path: &[u8], dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>> {
    let path = parse(path)?;
    let (mut found, mut after) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let op =
            Op::Read(ReadOp::List { dir, after: after.as_deref(), limit: ENTRIES, attrs: true });
        let (entries, more) = match fs.walked(&[(&path, dir)], || fs.call(op)) {
            Ok(Answer::Entries { entries, more }) => (entries, more),
            Ok(_) => return Ok(found),
            Err(error) if is_unknown(error.errno) => return Ok(found),
            Err(error) => return Err(error),
        };
        after = entries.last().map(|(name, _)| name.clone());
        let dirs = entries.into_iter().filter(|(_, attr)| attr.is_dir());
        found.extend(dirs.map(|(name, attr)| (name, attr.ino)));
        if !more || after.is_none() {
            return Ok(found);
        }
    }
}
