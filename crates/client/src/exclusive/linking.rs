//! A second name that is about to be the only one.
//!
//! Programs that replace no file, like git, write a temporary file, give it its name with `link`,
//! and remove the temporary name. An inode with two names is stored apart and stays there (decision
//! 19), and each later request about it goes to the server. So a link in the directory of the file
//! is held back, with its request number. If its other name is removed before anything else depends
//! on the link, the server receives a rename in its place, which replaces nothing. Otherwise it
//! receives the link.
//!
//! No other client sees the difference: the directory is this client's alone, and the link or the
//! rename goes out before the directory does.

use types::{Attr, Cred, EntryName, Ino, Timestamp};
use wire::{Answer, ChangeOp, Op, ReadOp, RenameFlags, Replay};

use super::{ExclusiveDirs, Here, LocalResult, Not};

/// A link that the server has not received. The view does not have it.
#[derive(Debug)]
pub(super) struct Linking {
    cred: Cred,
    dir: Ino,
    name: Vec<u8>,
    /// The file with both names.
    attr: Attr,
    time: Timestamp,
    /// The client has paused for it.
    has_waited: bool,
}

impl Linking {
    fn op(&self) -> Op<'_> {
        Op::Change(ChangeOp::Link { ino: self.attr.ino, parent: self.dir, name: &self.name })
    }

    /// Whether neither a request nor its answer depends on the link.
    fn is_apart_from(&self, op: &Op<'_>) -> bool {
        let about = op.about();
        let mut inodes = about.inodes().chain(about.names().map(|entry| entry.dir));
        about.inode.is_some() && inodes.all(|ino| ino != self.dir && ino != self.attr.ino)
    }
}

impl ExclusiveDirs {
    /// Gives a file one more name in its directory.
    ///
    /// # Errors
    /// That of the request, or why it is not answered.
    // Inside of `change` it would cost each create 50 instructions.
    #[inline(never)]
    pub(super) fn link(
        &mut self,
        cred: &Cred,
        ino: Ino,
        entry: EntryName<'_>,
        time: Timestamp,
    ) -> LocalResult {
        self.named(entry.dir, entry.name)?;
        self.governed(ino)?;
        if self.view.home_of(ino) != Some(entry.dir) {
            return Err(Not::Known);
        }
        self.view.plan().link(cred, ino, entry, time)?;
        self.link_now();
        let attr = self.view.getattr(ino)?;
        let attr = Attr { nlink: attr.nlink + 1, ctime: time, ..attr };
        let (cred, name) = (cred.clone(), entry.name.to_vec());
        self.linking = Some(Linking { cred, dir: entry.dir, name, attr, time, has_waited: false });
        Ok(Here::Done(Answer::Done, Replay { time, ..Replay::default() }))
    }

    /// The answer to a request that depends on a held link. `None` if the view can answer: then it
    /// has the link, or the request does not depend on it.
    #[cold]
    #[allow(clippy::wildcard_enum_match_arm, reason = "others come behind the link")]
    pub(super) fn answer_while_linking(&mut self, cred: &Cred, op: &Op<'_>) -> Option<LocalResult> {
        let Linking { dir, ref name, attr, .. } = *self.linking.as_ref()?;
        match *op {
            // With their attributes as of now.
            Op::Read(ReadOp::GetAttr { ino }) if ino == dir || ino == attr.ino => return None,
            Op::Read(ReadOp::Lookup { parent, name: asked }) if parent == dir => {
                return (asked == name).then(|| {
                    self.view.access(cred, dir, 1)?;
                    Ok(Here::Said(Answer::Attr(attr)))
                });
            }
            Op::Change(ChangeOp::Unlink { parent, name: removed })
                if parent == dir && self.rename_instead(cred, removed) =>
            {
                return Some(Ok(Here::Said(Answer::Done)));
            }
            _ => {}
        }
        if !self.linking.as_ref()?.is_apart_from(op) {
            self.link_now();
        }
        None
    }

    /// The attributes of an inode of the view, with the held link.
    pub(super) fn while_linking(&self, attr: Attr) -> Attr {
        match &self.linking {
            Some(linking) if linking.attr.ino == attr.ino => linking.attr,
            Some(Linking { dir, time, .. }) if *dir == attr.ino => {
                Attr { size: attr.size + 1, mtime: *time, ctime: *time, ..attr }
            }
            Some(_) | None => attr,
        }
    }

    /// Makes a held link a rename from a name that is removed. Returns false if it cannot be one.
    fn rename_instead(&mut self, cred: &Cred, removed: &[u8]) -> bool {
        let Some(Linking { dir, attr, time, .. }) = self.linking else { return false };
        let Some(linking) = self.linking.take_if(|linking| {
            linking.cred == *cred
                && linking.name != removed
                && self.view.peek(dir, removed) == Ok(Some(attr.ino))
        }) else {
            return false;
        };
        let (from, to) = (EntryName::new(dir, removed), EntryName::new(dir, &linking.name));
        let flags = RenameFlags { no_replace: true, ..RenameFlags::default() };
        let Ok(Some(planned)) = self.view.plan().rename(cred, from, to, flags, time) else {
            self.linking = Some(linking);
            return false;
        };
        self.apply(&planned.event());
        self.groups.release(&Op::Change(ChangeOp::Rename {
            parent: dir,
            name: removed,
            new_parent: dir,
            new_name: &linking.name,
            flags,
        }));
        true
    }

    /// Makes a held link in the view, and lets the server receive it.
    pub(super) fn link_now(&mut self) {
        let Some(linking) = self.linking.take() else { return };
        let entry = EntryName::new(linking.dir, &linking.name);
        let planned = self.view.plan().link(&Cred::root(), linking.attr.ino, entry, linking.time);
        debug_assert!(planned.is_ok(), "{planned:?}: nothing has changed in the directory");
        if let Ok(planned) = planned {
            self.apply(&planned.event());
        }
        self.groups.release(&linking.op());
    }

    /// The same if its directory is not this client's any more, without the view.
    pub(super) fn link_elsewhere(&mut self, is_forgotten: impl Fn(Ino) -> bool) {
        if let Some(linking) = self.linking.take_if(|linking| is_forgotten(linking.dir)) {
            self.groups.release(&linking.op());
        }
    }

    /// Whether there is a link for which the client has not paused yet.
    pub(crate) fn is_newly_linking(&mut self) -> bool {
        let linking = self.linking.as_mut();
        linking.is_some_and(|linking| !std::mem::replace(&mut linking.has_waited, true))
    }

    /// The inode that a held link gives a name.
    pub(super) fn linked(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let linking = self.linking.as_ref()?;
        (linking.dir == dir && linking.name == name).then_some(linking.attr.ino)
    }

    pub(super) fn validate_linking(&self) {
        let dir = self.linking.as_ref().map(|linking| (linking.dir, linking.attr.ino));
        assert!(dir.is_some() == self.groups.is_holding(), "a held link has a held request");
        if let Some((dir, ino)) = dir {
            assert!(self.dirs.contains_key(&dir), "{dir} with a held link is here");
            assert!(self.view.home_of(ino) == Some(dir), "{ino} has one name, in {dir}");
        }
    }
}
