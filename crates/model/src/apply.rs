//! Journal events, carried out blindly: the rules of merging.
//!
//! *The journal wins, name by name.* After an event its inode has the event's name, even if another
//! inode had it before; names that no event mentions stay. A directory that replaces a directory
//! takes over the names in it. An inode that another client moved since stays in its new place. An
//! event is rejected if it would remove a directory with entries, put a directory below itself, or
//! give or take a name in a removed directory.

use journal::{Create, Event, InodeSnapshot};
use types::{Attr, EntryName, Ino, Timestamp};

use crate::{Model, Node};

/// The side effects of applying an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// Nothing.
    Done,
    /// Another inode lost a name to it.
    Replaced(Ino),
    /// It was not carried out.
    Rejected,
}

impl Model {
    /// Applies an event of a journal that is merged. `extra` decodes the extended attributes of a
    /// snapshot: the model does not know the namespace's encoding.
    pub fn apply(&mut self, event: &Event<'_>, extra: impl Fn(&[u8], &mut Node)) -> ModelOutcome {
        let node = |snapshot: &InodeSnapshot<'_>| {
            let data = snapshot.data.to_vec();
            let mut node = Node { attr: snapshot.attr, data, ..Node::default() };
            extra(snapshot.extra, &mut node);
            node
        };
        if self.lacks_place(event) {
            return ModelOutcome::Rejected;
        }
        match *event {
            Event::Create(ref create) => self.apply_create(create, extra),
            Event::Link { parent, name, ino, ref inode, time, home: _ } => {
                self.apply_link(EntryName::new(parent, name), ino, node(inode), time)
            }
            Event::Unlink { parent, name, time, ino: _ } => {
                self.apply_removal(parent, name, false, time)
            }
            Event::Rmdir { parent, name, time, ino: _ } => {
                self.apply_removal(parent, name, true, time)
            }
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                time,
                replaced: _,
            } => {
                let (from, to) =
                    (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
                match exchanged {
                    None => self.apply_rename(from, to, node(&moved), time),
                    Some(back) => self.apply_exchange(from, to, node(&moved), node(&back), time),
                }
            }
            Event::SetAttr { ino, change, time, .. } => {
                self.with_node(ino, |node| node.change(&change, time))
            }
            Event::SetXattr { ino, name, value, time, .. } => self.with_node(ino, |node| {
                if types::acl::is_list(name) {
                    node.set_recorded_list(name, value);
                    node.attr.ctime = time;
                } else {
                    node.set_xattr(name, value, time);
                }
            }),
            Event::SetData { ino, data, size, time, .. } => {
                self.with_node(ino, |node| node.set_data(data, size, time))
            }
            Event::SetPolicy { ino, policy, time, .. } => self.with_node(ino, |node| {
                node.policy = policy.to_vec();
                node.attr.ctime = time;
            }),
            Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => {
                ModelOutcome::Done
            }
        }
    }

    /// Whether a directory does not exist that the event gives or takes a name in.
    fn lacks_place(&self, event: &Event<'_>) -> bool {
        let lacks = |dir| !self.nodes.contains_key(&dir);
        let other = matches!(*event, Event::Rename { new_parent, .. } if lacks(new_parent));
        other || event.dentry().is_some_and(|(dir, _)| lacks(dir))
    }

    fn with_node(&mut self, ino: Ino, change: impl FnOnce(&mut Node)) -> ModelOutcome {
        let Some(node) = self.nodes.get_mut(&ino) else { return ModelOutcome::Rejected };
        change(node);
        ModelOutcome::Done
    }

    fn apply_create(
        &mut self,
        create: &Create<'_>,
        extra: impl Fn(&[u8], &mut Node),
    ) -> ModelOutcome {
        let Create { parent, name, ino, mode, uid, gid, rdev, stripe, .. } = *create;
        let Create { size, time, mtime, atime, data, .. } = *create;
        self.touch(parent, time);
        if self.nodes.contains_key(&ino) {
            // This journal was merged before. Later changes of the inode stay.
            return ModelOutcome::Done;
        }
        let mut attr = Attr { ino, mode, uid, gid, rdev, stripe, size, ..Attr::default() };
        (attr.atime, attr.mtime, attr.ctime, attr.btime) = (atime, mtime, time, time);
        let mut node = Node { attr, data: data.to_vec(), ..Node::default() };
        extra(create.extra, &mut node);
        self.nodes.insert(ino, node);
        self.give_name(EntryName::new(parent, name), ino, time)
    }

    fn apply_link(
        &mut self,
        at: EntryName<'_>,
        ino: Ino,
        snapshot: Node,
        time: Timestamp,
    ) -> ModelOutcome {
        let node = self.nodes.entry(ino).or_insert(snapshot);
        if node.attr.is_dir() {
            if self.names_of(ino).is_empty() {
                self.nodes.remove(&ino);
            }
            return ModelOutcome::Rejected;
        }
        (node.attr.ctime, node.linked) = (node.attr.ctime.max(time), true);
        self.touch(at.dir, time);
        self.give_name(at, ino, time)
    }

    fn apply_removal(
        &mut self,
        dir: Ino,
        name: &[u8],
        of_dir: bool,
        time: Timestamp,
    ) -> ModelOutcome {
        let named = self.peek(dir, name);
        if let Some(ino) = named
            && (self.is_dir(ino) != of_dir || self.entries(ino).next().is_some())
        {
            return ModelOutcome::Rejected;
        }
        self.names.remove(&(dir, name.to_vec()));
        self.touch(dir, time);
        if let Some(ino) = named {
            self.lost_name(ino, time);
        }
        ModelOutcome::Done
    }

    fn apply_rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        moved: Node,
        time: Timestamp,
    ) -> ModelOutcome {
        let ino = moved.attr.ino;
        if moved.attr.is_dir() && self.is_within(to.dir, ino) {
            return ModelOutcome::Rejected;
        }
        // The event must not touch another inode that has taken the old name.
        if self.peek(from.dir, from.name).is_none_or(|named| named == ino) {
            self.touch(from.dir, time);
        }
        self.place(self.stays(from, ino), from, to, moved, time)
    }

    fn apply_exchange(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        moved: Node,
        back: Node,
        time: Timestamp,
    ) -> ModelOutcome {
        for node in [&moved, &back] {
            let within = |dir| self.is_within(dir, node.attr.ino);
            if node.attr.is_dir() && (within(from.dir) || within(to.dir)) {
                return ModelOutcome::Rejected;
            }
        }
        // Both are decided before either moves: the first may take the place of the second.
        let stays = [self.stays(from, moved.attr.ino), self.stays(to, back.attr.ino)];
        if !stays[1] {
            self.take(to, back.attr.ino);
        }
        let first = self.place(stays[0], from, to, moved, time);
        let second = self.place(stays[1], to, from, back, time);
        if first == ModelOutcome::Done { second } else { first }
    }

    /// Whether an inode has left the name from which an event takes it: another client moved it
    /// since, or this journal was merged before. A later event of the journal brings a removed
    /// inode back.
    fn stays(&self, from: EntryName<'_>, ino: Ino) -> bool {
        self.peek(from.dir, from.name) != Some(ino) && self.nodes.contains_key(&ino)
    }

    fn take(&mut self, from: EntryName<'_>, ino: Ino) {
        if self.peek(from.dir, from.name) == Some(ino) {
            self.names.remove(&(from.dir, from.name.to_vec()));
        }
    }

    /// Moves an inode from a name to another, unless it stays where it is.
    fn place(
        &mut self,
        stays: bool,
        from: EntryName<'_>,
        to: EntryName<'_>,
        snapshot: Node,
        time: Timestamp,
    ) -> ModelOutcome {
        let ino = snapshot.attr.ino;
        if stays {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.attr.ctime = time;
            }
            self.touch(to.dir, time);
            return ModelOutcome::Done;
        }
        self.take(from, ino);
        self.put(to, snapshot, time)
    }

    fn put(&mut self, at: EntryName<'_>, snapshot: Node, time: Timestamp) -> ModelOutcome {
        let ino = snapshot.attr.ino;
        let node = self.nodes.entry(ino).or_insert(snapshot);
        node.attr.ctime = node.attr.ctime.max(time);
        self.touch(at.dir, time);
        self.give_name(at, ino, time)
    }

    /// Points a name to an inode and replaces an earlier entry.
    fn give_name(&mut self, at: EntryName<'_>, ino: Ino, time: Timestamp) -> ModelOutcome {
        match self.names.insert((at.dir, at.name.to_vec()), ino) {
            None => ModelOutcome::Done,
            Some(before) if before == ino => ModelOutcome::Done,
            Some(before) => {
                if self.is_dir(before) && self.is_dir(ino) {
                    self.adopt(before, ino);
                }
                self.lost_name(before, time);
                ModelOutcome::Replaced(before)
            }
        }
    }

    /// A directory takes over the names of a directory that it replaces. Of a name in both, the
    /// winner's entry stays; if both entries are directories, the same happens one level down.
    fn adopt(&mut self, loser: Ino, winner: Ino) {
        let names: Vec<_> = self.entries(loser).map(|(name, ino)| (name.to_vec(), ino)).collect();
        for (name, ino) in names {
            match self.peek(winner, &name) {
                None => {
                    self.names.remove(&(loser, name.clone()));
                    self.names.insert((winner, name), ino);
                }
                Some(own) if self.is_dir(own) && self.is_dir(ino) => self.adopt(ino, own),
                Some(_) => {}
            }
        }
    }
}
