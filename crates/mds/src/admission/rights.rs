//! The rights of a key: a request must be where a rule of its sender's key gives the right to it.
//!
//! A rule names a path, so a request is held against the paths of its inodes as they are now. To
//! reach a subtree, a process may look at the directories above it, but not list them. A name is
//! changed by the right to its directory.
//!
//! An inode with several names has no one path: every rule of the key must give the right, and the
//! client must have been shown the inode. A file that the client has open is read, and written if
//! it is open for that, wherever it is by now.

use namespace::{Namespace, Refusal};
use types::{Errno, Ino, KeyRule, KeyRules, Path, Rights};
use wire::{About, ChangeOp, JobOp, Op, ReadOp};

use super::{Incoming, Verdict};
use crate::op::Refused;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.identities.are_trusted() { Verdict::Pass } else { verdict(mds, from) }
}

// Apart, so that the check is inlined where every peer is trusted.
#[inline(never)]
fn verdict(mds: &Mds, from: Incoming<'_>) -> Verdict {
    let (Some(rules), Some(rights)) = (mds.identities.rules(from.conn), from.op().rights()) else {
        return Verdict::Pass;
    };
    let question = Question { mds, from, rules, rights };
    question.ask().map_or_else(Verdict::Refuse, |()| Verdict::Pass)
}

/// A request of a peer with a limited key.
struct Question<'a> {
    mds: &'a Mds,
    from: Incoming<'a>,
    rules: &'a KeyRules,
    rights: Rights,
}

/// The inodes and names that a request needs the right to.
fn about<'a>(op: &Op<'a>) -> About<'a> {
    if let Op::Job(JobOp::Adopt { subtree, .. }) = *op {
        return About { inode: Some(subtree), ..About::default() };
    }
    op.about()
}

/// Whether a request asks for attributes, as the requests of a process on its way do.
fn is_walking(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Read(
            ReadOp::Lookup { .. }
                | ReadOp::Walk { .. }
                | ReadOp::GetAttr { .. }
                | ReadOp::GetXattr { .. }
                | ReadOp::ListXattr { .. }
                | ReadOp::GetPolicy { .. }
        )
    )
}

impl Question<'_> {
    fn ask(&self) -> Result<(), Refused> {
        let op = self.from.op();
        // The tree that comes back may be of any directory.
        if matches!(op, Op::Change(ChangeOp::Restore { .. })) {
            return self.judge_anywhere();
        }
        // All ranks answer it: the path need not be here.
        if let Op::Read(ReadOp::Watch { path, .. }) = *op {
            return self.judge(&Path::parse(path)?);
        }
        if let Some((base, path)) = op.path() {
            let end = Path::parse(path)?;
            return match self.path_of(base) {
                Some(base) => {
                    self.judge(&end.components().fold(base, |path, name| path.join(name)))
                }
                None => self.judge_unknown(base),
            };
        }
        if let Op::Read(ReadOp::Lookup { parent, name }) = *op {
            types::check_name(name)?;
            if self.is_inside(parent) {
                return Ok(());
            }
            return match self.path_of(parent) {
                Some(dir) => self.judge(&dir.join(name)),
                None => self.judge_unknown(parent),
            };
        }
        let about = about(op);
        if about.inode.is_none() {
            return self.judge_anywhere();
        }
        about.inodes().try_for_each(|ino| self.judge_inode(ino))
    }

    fn path_of(&self, ino: Ino) -> Option<Path> {
        self.mds.namespace.path_of(ino)
    }

    /// Whether a rule gives the right in a directory, or to an inode, by the names above it. Most
    /// requests end here, so no path is made.
    fn is_inside(&self, ino: Ino) -> bool {
        let namespace = &self.mds.namespace;
        let gives = |rule: &KeyRule| {
            rule.rights.has(self.rights) && namespace.is_quickly_below(ino, &rule.subtree)
        };
        self.rules.all().iter().any(gives)
    }

    fn judge_inode(&self, ino: Ino) -> Result<(), Refused> {
        if self.is_inside(ino) {
            return Ok(());
        }
        let Mds { namespace, opens, sessions, .. } = self.mds;
        let client = self.from.client;
        let has_open =
            |write: bool| opens.has(client, ino) && (!write || opens.writes(client, ino));
        match self.rights {
            Rights::READ if has_open(false) => return Ok(()),
            Rights::WRITE if has_open(true) => return Ok(()),
            _ => {}
        }
        if let Some(path) = self.path_of(ino) {
            return self.judge(&path);
        }
        let is_shown = sessions.get(client).is_some_and(|session| session.shown.has(ino));
        if is_shown && has_several_names(namespace, ino) && self.rules.all_give(self.rights) {
            return Ok(());
        }
        self.judge_unknown(ino)
    }

    /// Refuses the request about an inode without a known path, unless a rule gives the right
    /// everywhere. With `ESTALE` the client walks to an inode that is not in memory. In several
    /// ranks another one has the second inode then, and programs copy (`EXDEV`).
    fn judge_unknown(&self, ino: Ino) -> Result<(), Refused> {
        if self.mds.namespace.knows(ino) || self.gives(&Path::root()) {
            return self.judge_anywhere();
        }
        let is_second = self.from.op().about().second == Some(ino);
        let is_elsewhere = is_second && !self.mds.authority.is_plain();
        let errno = if is_elsewhere { Errno::CrossDevice } else { Errno::Stale };
        Err(Refused::Refusal(Refusal::Errno(errno)))
    }

    /// Refuses the request unless a rule gives the right at a path.
    fn judge(&self, path: &Path) -> Result<(), Refused> {
        let may_pass = || is_walking(self.from.op()) && self.rules.lead_over(path);
        if self.gives(path) || may_pass() { Ok(()) } else { self.refuse(path) }
    }

    /// Refuses the request, which has no known place, unless a rule gives the right everywhere.
    fn judge_anywhere(&self) -> Result<(), Refused> {
        let root = Path::root();
        if self.gives(&root) { Ok(()) } else { self.refuse(&root) }
    }

    fn gives(&self, path: &Path) -> bool {
        self.rules.giving(self.rights, path).is_some()
    }

    fn refuse(&self, path: &Path) -> Result<(), Refused> {
        // Only a path that the sender has stated as a whole may be told.
        let stated = self.from.op().path().filter(|(base, _)| *base == Ino::ROOT);
        let failure = wire::refusal(self.rules, self.rights, stated.map(|_| path));
        Err(Refused::Failure(failure))
    }
}

fn has_several_names(namespace: &Namespace, ino: Ino) -> bool {
    namespace.home_of(ino) == Some(Ino::LINKS)
}
