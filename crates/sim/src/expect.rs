//! The expected answer to a request, computed with the model.
//!
//! Not here: when a request takes effect. The caller carries requests out on the model in the
//! order in which the server answered them.

use model::{Model, New};
use types::{Attr, Cred, EntryName, Errno, FileType, Ino, Path, Timestamp, XattrChange, name_hash};
use wire::Answer;

use crate::call::{Call, CallKind};

const READ: u32 = 4;
const EXECUTE: u32 = 1;

/// The answer that a request must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing but success.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Where a path leads.
    Walked(Ino, Option<Attr>),
    /// Entries, with all attributes or only type and number, and whether there may be more.
    Entries(Vec<(Vec<u8>, Attr)>, bool, bool),
    /// Content or value.
    Data(Vec<u8>),
    /// Names, sorted.
    Names(Vec<Vec<u8>>),
    /// Anything: the model does not know.
    Anything,
}

/// Carries a request out on the model: a change changes it, at `time` and with `ino` for a new
/// inode.
///
/// # Errors
/// The error that the client must get.
pub(crate) fn perform(
    model: &mut Model,
    call: &Call,
    time: Timestamp,
    ino: Ino,
) -> Result<Expected, Errno> {
    if call.what.touched().0.iter().any(|ino| model.is_removed(*ino)) {
        return Err(Errno::NotFound);
    }
    if call.what.is_change() { change(model, call, time, ino) } else { question(model, call) }
}

fn change(model: &mut Model, call: &Call, time: Timestamp, ino: Ino) -> Result<Expected, Errno> {
    let cred = &call.cred;
    match &call.what {
        CallKind::Create { parent, name, mode, size, data } => {
            let new = New { mode: *mode, size: *size, data, time, ..New::default() };
            model.create(cred, EntryName::new(*parent, name.as_bytes()), &new, ino)?;
            return Ok(Expected::Attr(model.getattr(ino)?));
        }
        CallKind::Link { ino, parent, name } => {
            model.link(cred, *ino, EntryName::new(*parent, name.as_bytes()), time)?;
        }
        CallKind::Unlink { parent, name } => {
            model.unlink(cred, EntryName::new(*parent, name.as_bytes()), time)?
        }
        CallKind::Rmdir { parent, name } => {
            model.rmdir(cred, EntryName::new(*parent, name.as_bytes()), time)?
        }
        CallKind::Discard { parent, name } => {
            model.discard(cred, EntryName::new(*parent, name.as_bytes()), time)?
        }
        CallKind::Restore { ino, parent, name } => {
            model.restore(cred, *ino, EntryName::new(*parent, name.as_bytes()), time)?
        }
        CallKind::EmptyTrash { ino } => model.empty_trash(cred, *ino)?,
        CallKind::Rename { from, to, flags } => {
            let from = EntryName::new(from.0, from.1.as_bytes());
            let to = EntryName::new(to.0, to.1.as_bytes());
            model.rename(cred, from, to, *flags, time)?;
        }
        CallKind::SetAttr { ino, change } => model.setattr(cred, *ino, change, time)?,
        CallKind::SetXattr { ino, name, value, flags } => {
            let (name, value) = (name.as_bytes(), value.as_deref());
            let change = XattrChange { name, value, flags: *flags };
            model.setxattr(cred, *ino, change, time)?;
        }
        CallKind::SetData { ino, data, size } => model.setdata(cred, *ino, data, *size, time)?,
        _ => {}
    }
    Ok(Expected::Done)
}

pub(crate) fn question(model: &Model, call: &Call) -> Result<Expected, Errno> {
    let cred = &call.cred;
    let node = |ino: &Ino| model.node(*ino).ok_or(Errno::Stale);
    Ok(match &call.what {
        CallKind::Lookup { parent, name } => {
            Expected::Attr(model.lookup(cred, *parent, name.as_bytes())?)
        }
        CallKind::Walk { base, path } => walk(model, cred, *base, path)?,
        CallKind::GetAttr { ino } => Expected::Attr(model.getattr(*ino)?),
        CallKind::GetXattr { ino, name } => {
            let value = node(ino)?.xattrs.get(name.as_bytes()).ok_or(Errno::NoData)?;
            Expected::Data(value.clone())
        }
        CallKind::ListXattr { ino } => Expected::Names(node(ino)?.xattrs.keys().cloned().collect()),
        CallKind::GetData { ino } => {
            model.access(cred, *ino, READ)?;
            Expected::Data(node(ino)?.data.clone())
        }
        CallKind::List { dir, after, limit, attrs } => {
            let after = after.as_ref().map(String::as_bytes);
            list(model, cred, *dir, after, *limit as usize, *attrs)?
        }
        CallKind::GetPolicy { dir } => {
            model.getattr(*dir)?;
            Expected::Anything
        }
        _ => Expected::Anything,
    })
}

fn walk(model: &Model, cred: &Cred, base: Ino, path: &str) -> Result<Expected, Errno> {
    let path = Path::parse(path)?;
    let (mut at, mut parent) = (base, base);
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let node = model.node(at).ok_or(Errno::Stale)?;
        if !node.attr.is_dir() {
            return Err(Errno::NotDirectory);
        }
        model.access(cred, at, EXECUTE)?;
        parent = at;
        match model.peek(at, name) {
            Some(ino) => at = ino,
            None if names.peek().is_none() => return Ok(Expected::Walked(parent, None)),
            None => return Err(Errno::NotFound),
        }
        let is_link = model.node(at).is_some_and(|node| node.attr.file_type() == FileType::Symlink);
        if names.peek().is_some() && is_link {
            return Err(Errno::Loop);
        }
    }
    Ok(Expected::Walked(parent, Some(model.getattr(at)?)))
}

fn list(
    model: &Model,
    cred: &Cred,
    dir: Ino,
    after: Option<&[u8]>,
    limit: usize,
    attrs: bool,
) -> Result<Expected, Errno> {
    let mut entries = model.list(cred, dir)?;
    entries.sort_by_key(|(name, _)| (name_hash(name), name.clone()));
    if let Some(after) = after {
        entries.retain(|(name, _)| (name_hash(name), name.as_slice()) > (name_hash(after), after));
    }
    entries.truncate(limit);
    let more = entries.len() == limit;
    Ok(Expected::Entries(entries, attrs, more))
}

/// Whether an answer is the expected one. `blur` removes unknown values from attributes.
#[must_use]
pub(crate) fn agrees(expected: &Expected, answer: &Answer, blur: impl Fn(&Attr) -> Attr) -> bool {
    match (expected, answer) {
        (Expected::Anything, _) | (Expected::Done, Answer::Done) => true,
        (Expected::Attr(expected), Answer::Attr(attr)) => blur(expected) == blur(attr),
        (Expected::Walked(parent, attr), Answer::Walked { parent: at, attr: found }) => {
            parent == at && attr.as_ref().map(&blur) == found.as_ref().map(&blur)
        }
        (Expected::Entries(expected, attrs, more), Answer::Entries { entries, more: further }) => {
            more == further
                && expected.len() == entries.len()
                && expected.iter().zip(entries).all(|((name, attr), (found, found_attr))| {
                    name == found && same_entry(&blur(attr), &blur(found_attr), *attrs)
                })
        }
        (Expected::Data(expected), Answer::Data(data)) => expected == data,
        (Expected::Names(expected), Answer::Names(names)) => expected == names,
        _ => false,
    }
}

/// Listings do not say how many entries a sub-directory has unless it is in memory, nor, after a
/// crash, when that changed last.
fn same_entry(expected: &Attr, found: &Attr, attrs: bool) -> bool {
    if !attrs {
        return expected.ino == found.ino && expected.file_type() == found.file_type();
    }
    if expected.is_dir() {
        let Attr { nlink, size, mtime, ctime, .. } = *expected;
        return *expected == Attr { nlink, size, mtime, ctime, ..*found };
    }
    expected == found
}
