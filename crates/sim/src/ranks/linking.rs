//! One more name for a file whose names another rank has: one directory goes to the other's rank
//! first, or the other one, and if both stay there is no such name (B-02).

use types::{Errno, Ino};

use super::Ranks;
use super::register::Place;
use super::script::{Role, Script};
use crate::call::CallKind;

impl Ranks {
    /// A further name for an inode that has one already, if there is such an inode.
    pub(super) fn choose_link(&self, from: Place, to: Place) -> Option<Script> {
        let ino = self.registers.now(&from)?;
        let stays = |place: &Place| self.is_about_job(place.0);
        let may_be = self.registers.now(&to).is_none() && !stays(&from) && !stays(&to);
        let (parent, name) = to;
        let call = CallKind::Link { ino, parent, name };
        may_be.then_some(Script { call, role: Role::File(from) })
    }

    /// Whether a server may reject a name because one rank must serve the two directories: a
    /// decoupled directory has names of its own only, and all names of a file are on one rank.
    pub(super) fn is_kept_apart(
        &mut self,
        client: usize,
        script: &Script,
        errno: Option<Errno>,
    ) -> bool {
        if errno != Some(Errno::CrossDevice) {
            return false;
        }
        match &script.call {
            CallKind::Link { .. } => self.world.tally.count("second names not made", 1),
            CallKind::Rename { from, to, .. } => {
                let known = &self.world.clients[client];
                let ino = self.registers.now(from);
                let several = ino.is_some_and(|ino| self.registers.had_several(ino));
                let stays = several || self.is_about_job(from.0) || self.is_about_job(to.0);
                return stays && known.dir_of(from) != known.dir_of(to);
            }
            _ => return false,
        }
        true
    }

    /// Something to say of a file, which is the same through all of its names.
    pub(super) fn choose_to_say(&mut self, place: Place) -> Script {
        let ino = self.registers.now(&place).filter(|_| !self.is_about_job(place.0));
        let Some(ino) = ino else { return Script::look_up(place) };
        let before = self.registers.said.get(&ino).copied().unwrap_or(0);
        Script::set_mode(ino, (before + 1) & types::MODE_PERMISSIONS, Role::File(place))
    }

    /// A file has a name more.
    pub(super) fn linked(&mut self, ino: Ino, to: Place, when: (u64, u64)) {
        self.world.tally.count("second names made", 1);
        self.registers.linked.insert(ino);
        self.registers.changed(to, Some(ino), when);
    }

    /// Whether a file of a client has as many names as it should, and is as that client said last.
    pub(super) fn judge_file(
        &self,
        client: usize,
        place: &Place,
        attr: &types::Attr,
    ) -> Result<(), &'static str> {
        let is_own = place.1.starts_with(&format!("c{client}."));
        let Some(ino) = self.registers.now(place).filter(|_| is_own) else { return Ok(()) };
        if self.registers.names_of(ino) != attr.nlink as usize {
            return Err("the file has more names, or fewer");
        }
        let said = self.registers.said.get(&ino);
        if said.is_some_and(|said| attr.mode & types::MODE_PERMISSIONS != *said) {
            return Err("that was not said of the file last");
        }
        Ok(())
    }
}
