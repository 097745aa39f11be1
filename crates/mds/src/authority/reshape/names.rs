//! Moving the names of a directory to its fragments, or back.

use namespace::{Mode, Refusal};
use types::{AttrChange, EntryName, FileType, Ino, Origin, Timestamp, name_hash};

use super::{ReshapeCx, ReshapeStage, SLICE, part_name};
use crate::authority::preload::Goal;

/// The times of a directory, or of several together.
#[derive(Clone, Copy)]
struct Times {
    mtime: Timestamp,
    atime: Timestamp,
    ctime: Timestamp,
}

impl ReshapeCx<'_> {
    /// The hits of moving names are not load.
    fn forget_hits(&mut self, dir: Ino, parts: &[Ino]) {
        parts.iter().chain([&dir]).for_each(|ino| self.apply.namespace.forget_hits(*ino));
    }

    /// Moves a slice of names; later calls move the rest.
    pub(super) fn move_names(&mut self) -> Result<Option<ReshapeStage>, Refusal> {
        let Some(reshape) = &self.authority.reshape else { return Ok(None) };
        let (dir, frag, parts, joins) = (reshape.dir, reshape.frag, reshape.parts, reshape.joins);
        if !self.apply.namespace.knows(dir) {
            self.authority.preload(Goal::Find(dir));
            self.authority.reshape_listed(true, self.apply.now);
            return Ok(None);
        }
        if !self.apply.namespace.is_complete(dir) {
            return Err(Refusal::Cold(dir));
        }
        let times = self.times_of(dir, &parts)?;
        if !joins {
            self.make_parts(dir, &parts, times)?;
        }
        let cursor = self.authority.reshape.as_ref().and_then(|reshape| reshape.cursor.clone());
        for from in if joins { parts.to_vec() } else { vec![dir] } {
            if !self.apply.namespace.knows(from) {
                // It was removed before a crash, when it was empty.
                continue;
            }
            if !self.apply.namespace.is_complete(from) {
                return Err(Refusal::Cold(from));
            }
            let names = self.apply.namespace.dirs().names_in(from, cursor.as_deref(), SLICE);
            let last = names.last().map(|(name, _)| name.clone());
            for (name, ino) in names.into_iter().filter(|(_, ino)| !parts.contains(ino)) {
                let to = if joins { dir } else { parts[frag.place_of(name_hash(&name))] };
                self.move_name(EntryName::new(from, &name), ino, to)?;
            }
            if last.is_some() {
                // A join takes the visited names out of the fragment: the next slice begins at the
                // start again.
                let cursor = last.filter(|_| !joins);
                self.authority.reshape.iter_mut().for_each(|it| it.cursor.clone_from(&cursor));
                self.restore_times(dir, &parts, times);
                self.forget_hits(dir, &parts);
                return Ok(None);
            }
        }
        if joins {
            self.remove_parts(dir, &parts);
        }
        self.restore_times(dir, &parts, times);
        self.apply.note_freed(true);
        self.forget_hits(dir, &parts);
        self.balance.count_after_reshape(dir, &parts, joins, self.apply.now);
        Ok(Some(ReshapeStage::Flush(self.apply.log.last())))
    }

    fn journal_quietly(&mut self, event: &journal::Event<'_>) {
        let seq = self.apply.log.append(self.apply.now, Origin::default(), event);
        self.apply.namespace.apply(seq, Mode::Live, event);
    }

    fn move_name(&mut self, from: EntryName<'_>, ino: Ino, to: Ino) -> Result<(), Refusal> {
        debug_assert!(from.dir != to, "{ino}: a name moves to another directory");
        let planned = self.apply.namespace.plan().relocate(from, ino, to)?;
        self.journal_quietly(&planned.event());
        Ok(())
    }

    fn make_parts(&mut self, dir: Ino, parts: &[Ino], times: Times) -> Result<(), Refusal> {
        let attr = self.apply.namespace.getattr(dir)?;
        for (number, ino) in parts.iter().enumerate() {
            if self.apply.namespace.knows(*ino) {
                continue;
            }
            let name = part_name(number);
            let create = journal::Create {
                parent: dir,
                name: &name,
                ino: *ino,
                mode: FileType::Directory.mode_bits() | (attr.mode & types::MODE_PERMISSIONS),
                uid: attr.uid,
                gid: attr.gid,
                time: times.ctime,
                mtime: times.mtime,
                atime: times.atime,
                ..journal::Create::default()
            };
            self.journal_quietly(&journal::Event::Create(create));
        }
        Ok(())
    }

    fn remove_parts(&mut self, dir: Ino, parts: &[Ino]) {
        for (number, ino) in parts.iter().enumerate() {
            if self.apply.namespace.knows(*ino) {
                let (name, time) = (part_name(number), self.time);
                let event = journal::Event::Rmdir { parent: dir, name: &name, ino: *ino, time };
                self.journal_quietly(&event);
            }
        }
    }

    /// The times of a directory and its fragments together.
    fn times_of(&self, dir: Ino, parts: &[Ino]) -> Result<Times, Refusal> {
        let attr = self.apply.namespace.getattr(dir)?;
        let mut times = Times { mtime: attr.mtime, atime: attr.atime, ctime: attr.ctime };
        for attr in parts.iter().filter_map(|part| self.apply.namespace.getattr(*part).ok()) {
            times.mtime = times.mtime.max(attr.mtime);
            times.atime = times.atime.max(attr.atime);
            times.ctime = times.ctime.max(attr.ctime);
        }
        Ok(times)
    }

    /// Moving names changes neither the directory's content nor its times.
    fn restore_times(&mut self, dir: Ino, parts: &[Ino], times: Times) {
        let Times { mtime, atime, ctime } = times;
        let change = AttrChange { mtime: Some(mtime), atime: Some(atime), ..AttrChange::default() };
        for ino in std::iter::once(&dir).chain(parts).copied() {
            if self.apply.namespace.knows(ino) {
                self.set_quietly(ino, change, ctime);
            }
        }
    }
}
