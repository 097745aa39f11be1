//! Answers from the cache.

use types::acl;
use types::{Attr, Cred, Errno, Ino, check_name};
use wire::{Answer, Failure, Op, ReadOp};

use super::{ANY, Cache};

/// Search permission.
const EXECUTE: u32 = 1;

impl Cache {
    /// The answer to a request, if it is known; not of a walk.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a new operation is not known")]
    pub(crate) fn answer(&self, cred: &Cred, op: &Op<'_>) -> Option<Result<Answer, Failure>> {
        match *op {
            Op::Read(ReadOp::Lookup { parent, name }) => match self.look(cred, parent, name)? {
                Ok(Some(ino)) => self.attr_below(parent, ino).map(|attr| Ok(Answer::Attr(attr))),
                Ok(None) => Some(Err(Errno::NotFound.into())),
                Err(errno) => Some(Err(errno.into())),
            },
            Op::Read(ReadOp::GetAttr { ino }) => self.attr(ino).map(|attr| Ok(Answer::Attr(attr))),
            // The server lets no client cache the attributes of an inode with lists.
            Op::Read(ReadOp::GetXattr { ino, name }) if acl::is_list(name) => {
                self.attr(ino).map(|_| Err(Errno::NoData.into()))
            }
            _ => None,
        }
    }

    /// The inode of a name, if that is cached.
    pub(crate) fn look(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Option<Result<Option<Ino>, Errno>> {
        let dir = self.dirs.get(&parent)?;
        let attr = dir.attr?;
        if self.is_changing(parent) || check_name(name).is_err() {
            return None;
        }
        if !may_search(cred, &attr) {
            return Some(Err(Errno::Access));
        }
        match dir.names.get(name) {
            Some(named) => Some(Ok(*named)),
            None => dir.complete.then_some(Ok(None)),
        }
    }

    /// The attributes of an inode, if they are known.
    pub(crate) fn attr(&self, ino: Ino) -> Option<Attr> {
        if self.is_changing(ino) {
            return None;
        }
        match self.dirs.get(&ino) {
            Some(dir) => dir.attr,
            None => self.dirs.get(self.homes.get(&ino)?)?.files.get(&ino).copied(),
        }
    }

    /// The same, and the directory whose capability covers them.
    pub(crate) fn attr_and_home(&self, ino: Ino) -> Option<(Attr, Ino)> {
        let home = if self.dirs.contains_key(&ino) { ino } else { *self.homes.get(&ino)? };
        self.attr(ino).map(|attr| (attr, home))
    }

    /// The same of an inode with a name in a directory, where nearly all attributes are.
    fn attr_below(&self, parent: Ino, ino: Ino) -> Option<Attr> {
        if self.homes.get(&ino) != Some(&parent) {
            return self.attr(ino);
        }
        if self.is_changing(ino) {
            return None;
        }
        self.dirs.get(&parent)?.files.get(&ino).copied()
    }

    fn is_changing(&self, ino: Ino) -> bool {
        self.changing.iter().any(|(_, changing)| *changing == ino || *changing == ANY)
    }
}

/// The rule of the server, for directories.
pub(crate) fn may_search(cred: &Cred, attr: &Attr) -> bool {
    let class = if cred.uid == attr.uid {
        6
    } else if cred.in_group(attr.gid) {
        3
    } else {
        0
    };
    cred.is_root() || (attr.mode >> class) & EXECUTE != 0
}
