//! Random operations: few names and few directories, so that they meet often.

use std::sync::LazyLock;

use journal::{Create, Event};
use model::Model;
use proptest::prelude::*;
use types::acl;
use types::{Attr, AttrChange, EntryName, Errno, Ino, Stripe, Timestamp, XattrChange};

use super::tree::{Fetch, warm};
use crate::{Cred, Namespace, Planned, PlannedInode, Refusal, RenameFlags, XattrFlags};

const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"\xff\xfe", b"..", b"e/f", &[b'n'; 256]];
const TYPES: [u32; 5] = [0o100_000, 0o040_000, 0o120_000, 0o010_000, 0];
const MODES: [u32; 9] = [0o777, 0o755, 0o1777, 0o2775, 0o644, 0o666, 0o700, 0o6755, 0o000];
const DATA: [&[u8]; 4] = [b"", b"x", b"content", b"a/\0"];
const XATTRS: [&[u8]; 6] =
    [b"user.a", b"user.b", b"", &[b'x'; 256], acl::ACCESS_LIST, acl::DEFAULT_LIST];
/// Masks of new inodes.
const UMASKS: [u32; 2] = [0, 0o027];

/// The users that operations are made for.
pub(super) fn cred(number: u8) -> Cred {
    match number % 4 {
        0 => Cred::root(),
        1 => Cred { uid: 1, gid: 10, groups: vec![] },
        2 => Cred { uid: 2, gid: 20, groups: vec![10] },
        _ => Cred { uid: 3, gid: 30, groups: vec![] },
    }
}

/// A name somewhere: names to follow from the root as far as they exist, and the name.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    path: [u8; 2],
    depth: u8,
    name: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Create {
        at: At,
        file_type: u8,
        mode: u8,
        owner: Option<(u32, u32)>,
        data: u8,
    },
    Link {
        from: At,
        to: At,
    },
    Unlink(At),
    Rmdir(At),
    Rename {
        from: At,
        to: At,
        flags: RenameFlags,
    },
    SetAttr {
        at: At,
        change: AttrChange,
    },
    SetXattr {
        at: At,
        name: u8,
        value: Option<u8>,
        flags: XattrFlags,
    },
    SetData {
        at: At,
        data: u8,
        size: u64,
    },
    SetPolicy {
        at: At,
        policy: u8,
    },
    Discard(At),
    /// Restores the removed tree of this number.
    Restore {
        at: At,
        which: u8,
    },
    Lookup(At),
    List(At),
    Access {
        at: At,
        want: u8,
    },
}

fn name() -> impl Strategy<Value = u8> {
    prop_oneof![30 => 0..4u8, 1 => 4..8u8]
}

pub(super) fn at() -> impl Strategy<Value = At> {
    let path = [0..4u8, 0..4u8];
    (path, prop_oneof![Just(0u8), Just(1u8), Just(2u8)], name())
        .prop_map(|(path, depth, name)| At { path, depth, name })
}

fn change() -> impl Strategy<Value = AttrChange> {
    let rarely = prop::option::weighted(0.3, 0..4u32);
    let mode = prop::option::weighted(0.4, 0..MODES.len());
    let size = prop::option::weighted(0.2, 0..100u64);
    let time = prop::option::weighted(0.2, 0..100i64);
    (mode, rarely.clone(), rarely, size, time.clone(), time).prop_map(
        |(mode, uid, gid, size, atime, mtime)| AttrChange {
            mode: mode.map(|mode| MODES[mode]),
            uid,
            gid: gid.map(|gid| gid * 10),
            size,
            atime: atime.map(Timestamp),
            mtime: mtime.map(Timestamp),
        },
    )
}

fn rename_flags() -> impl Strategy<Value = RenameFlags> {
    (prop::bool::weighted(0.1), prop::bool::weighted(0.2))
        .prop_map(|(no_replace, exchange)| RenameFlags { no_replace, exchange })
}

fn create() -> impl Strategy<Value = Op> {
    let file_type = prop_oneof![8 => Just(0u8), 8 => Just(1u8), 2 => Just(2u8), 1 => 3..5u8];
    let owner = prop::option::weighted(0.1, (0..3u32, prop_oneof![Just(0u32), Just(10), Just(20)]));
    (at(), file_type, 0..MODES.len() as u8, owner, 0..4u8).prop_map(
        |(at, file_type, mode, owner, data)| Op::Create { at, file_type, mode, owner, data },
    )
}

/// Operations that change names and inodes.
pub(super) fn change_op() -> impl Strategy<Value = Op> {
    let flag = || prop::bool::weighted(0.2);
    let flags = (flag(), flag()).prop_map(|(create, replace)| XattrFlags { create, replace });
    prop_oneof![
        12 => create(),
        4 => (at(), at()).prop_map(|(from, to)| Op::Link { from, to }),
        5 => at().prop_map(Op::Unlink),
        4 => at().prop_map(Op::Rmdir),
        9 => (at(), at(), rename_flags()).prop_map(|(from, to, flags)| Op::Rename { from, to, flags }),
        4 => (at(), change()).prop_map(|(at, change)| Op::SetAttr { at, change }),
        5 => (at(), 0..XATTRS.len() as u8, prop::option::weighted(0.8, 0..8u8), flags)
            .prop_map(|(at, name, value, flags)| Op::SetXattr { at, name, value, flags }),
        2 => (at(), 0..4u8, 0..20u64).prop_map(|(at, data, size)| Op::SetData { at, data, size }),
    ]
}

/// Trees that are removed at once, and restored.
fn trash_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        at().prop_map(Op::Discard),
        (at(), any::<u8>()).prop_map(|(at, which)| Op::Restore { at, which }),
    ]
}

/// All operations but those on policies, which the model does not check.
pub(super) fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => change_op(),
        1 => trash_op(),
        1 => at().prop_map(Op::Lookup),
        1 => at().prop_map(Op::List),
        1 => (at(), 1..8u8).prop_map(|(at, want)| Op::Access { at, want }),
    ]
}

/// Changes, those of policies among them.
pub(super) fn change_or_policy() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => change_op(),
        1 => (at(), 0..3u8).prop_map(|(at, policy)| Op::SetPolicy { at, policy }),
        3 => trash_op(),
    ]
}

/// Where an operation points to in the tree as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) dir: Ino,
    pub(super) name: &'static [u8],
    /// The inode of the name, or one that never existed.
    pub(super) ino: Ino,
}

/// Follows names as far as they lead.
pub(super) fn resolve(at: At, mut peek: impl FnMut(Ino, &[u8]) -> Option<Ino>) -> Target {
    let mut dir = Ino::ROOT;
    for step in &at.path[..usize::from(at.depth)] {
        let Some(next) = peek(dir, NAMES[usize::from(*step)]) else { break };
        dir = next;
    }
    let name = NAMES[usize::from(at.name)];
    Target { dir, name, ino: peek(dir, name).unwrap_or(Ino(77)) }
}

impl Op {
    /// The places that the operation is about.
    pub(super) fn places(&self) -> (At, At) {
        match *self {
            Op::Link { from, to } | Op::Rename { from, to, .. } => (from, to),
            Op::Create { at, .. }
            | Op::Unlink(at)
            | Op::Rmdir(at)
            | Op::SetAttr { at, .. }
            | Op::SetXattr { at, .. }
            | Op::SetData { at, .. }
            | Op::SetPolicy { at, .. }
            | Op::Discard(at)
            | Op::Restore { at, .. }
            | Op::Lookup(at)
            | Op::List(at)
            | Op::Access { at, .. } => (at, at),
        }
    }

    /// A create that asks for nothing, as a decoupled client makes it.
    pub(super) fn blindly(
        self,
        at: Target,
        (ino, time): (Ino, Timestamp),
    ) -> Option<Planned<'static>> {
        let Op::Create { .. } = self else { return None };
        let PlannedInode { mode, stripe, size, data, .. } = self.new_inode(time);
        let known = types::FileType::from_mode(mode);
        if known.is_none() || types::check_name(at.name).is_err() {
            return None;
        }
        let file = known == Some(types::FileType::Regular);
        let stripe = if file { stripe } else { Stripe::default() };
        let (parent, name) = (at.dir, at.name);
        let (mtime, atime) = (time, time);
        let create = Create { parent, name, ino, mode, stripe, size, ..Create::default() };
        let create = Create { time, mtime, atime, data, ..create };
        Some(Planned::plain(Event::Create(create)))
    }

    fn new_inode(self, time: Timestamp) -> PlannedInode<'static> {
        let Op::Create { file_type, mode, owner, data, .. } = self else {
            return PlannedInode::default();
        };
        let is_dir = file_type == 1;
        let mode = TYPES[usize::from(file_type)] | MODES[usize::from(mode)];
        let data = if is_dir { b"" } else { DATA[usize::from(data)] };
        let stripe = if data.is_empty() { Stripe::default() } else { Stripe::MIN };
        let size = data.len() as u64;
        let umask = UMASKS[data.len() % 2];
        PlannedInode { mode, umask, owner, stripe, time, data, size, ..PlannedInode::default() }
    }

    /// The value of an extended attribute: a list for the attributes that are one, mostly. The
    /// largest other one is too large.
    fn value(name: &[u8], number: u8) -> &'static [u8] {
        const VALUES: [&[u8]; 4] = [b"", b"v", b"value", &[7; 65_537]];
        static LISTS: LazyLock<[Vec<u8>; 6]> = LazyLock::new(|| {
            let list = acl::linux_form;
            [
                // Of users 1 and 2, and of groups 10 and 30.
                list(&[(1, 7, 0), (2, 5, 1), (4, 0, 0), (16, 7, 0), (32, 0, 0)]),
                list(&[(1, 6, 0), (2, 6, 2), (4, 4, 0), (8, 3, 10), (16, 5, 0), (32, 1, 0)]),
                list(&[(1, 7, 0), (4, 7, 0), (8, 7, 30), (8, 1, 10), (16, 3, 0), (32, 7, 0)]),
                list(&[(1, 7, 0), (4, 5, 0), (32, 1, 0)]),
                list(&[(1, 7, 0), (4, 5, 0), (16, 7, 0), (32, 1, 0)]),
                list(&[(1, 7, 0), (2, 5, 1), (4, 0, 0), (32, 0, 0)]),
            ]
        });
        match LISTS.get(usize::from(number)) {
            Some(list) if acl::is_list(name) => list,
            _ => VALUES[usize::from(number % 4)],
        }
    }
}

/// Plans an operation. Questions are planned as nothing.
pub(super) fn plan(
    namespace: &Namespace,
    who: &Cred,
    op: Op,
    (one, two): (Target, Target),
    (ino, time): (Ino, Timestamp),
) -> Result<Option<Planned<'static>>, Refusal> {
    let at = EntryName::new(one.dir, one.name);
    let to = EntryName::new(two.dir, two.name);
    match op {
        Op::Create { .. } => namespace.plan().make(who, at, &op.new_inode(time), ino).map(Some),
        Op::Link { .. } => namespace.plan().link(who, one.ino, to, time).map(Some),
        Op::Unlink(_) => namespace.plan().unlink(who, one.dir, one.name, time).map(Some),
        Op::Rmdir(_) => namespace.plan().rmdir(who, one.dir, one.name, time).map(Some),
        Op::Rename { flags, .. } => namespace.plan().rename(who, at, to, flags, time),
        Op::SetAttr { change, .. } => {
            namespace.plan().setattr(who, one.ino, &change, time).map(Some)
        }
        Op::SetXattr { name, value, flags, .. } => {
            let name = XATTRS[usize::from(name)];
            let value = value.map(|value| Op::value(name, value));
            let change = XattrChange { name, value, flags };
            namespace.plan().setxattr(who, one.ino, change, time).map(Some)
        }
        Op::SetData { data, size, .. } => {
            namespace.plan().setdata(who, one.ino, DATA[usize::from(data)], size, time).map(Some)
        }
        Op::SetPolicy { policy, .. } => {
            let text: [&[u8]; 3] = [b"", POLICIES[0], POLICIES[1]];
            namespace.plan().setpolicy(who, one.ino, text[usize::from(policy)], time).map(Some)
        }
        Op::Discard(_) => {
            let root = namespace.plan().discarded(who, at)?;
            if !who.is_root() {
                return Err(Errno::NotPermitted.into());
            }
            let kept_as = leaked(root.to_string().as_bytes());
            namespace.plan().discard(who, at, kept_as, time).map(Some)
        }
        Op::Restore { which, .. } => {
            if !namespace.is_complete(Ino::TRASH) {
                return Err(Refusal::Cold(Ino::TRASH));
            }
            let mut kept = namespace.dirs().names_in(Ino::TRASH, None, usize::MAX);
            kept.sort_unstable();
            let number = usize::from(which).checked_rem(kept.len()).ok_or(Errno::NotFound)?;
            if !who.is_root() {
                return Err(Errno::NotPermitted.into());
            }
            namespace.plan().restore(who, leaked(&kept[number].0), at, time).map(Some)
        }
        Op::Lookup(_) => namespace.lookup(who, one.dir, one.name).map(|_| None),
        Op::List(_) => namespace.list(who, one.dir, None, 9, false).map(|_| None),
        Op::Access { want, .. } => namespace.access(who, one.ino, u32::from(want)).map(|()| None),
    }
}

/// A name for a planned event of any test.
fn leaked(name: &[u8]) -> &'static [u8] {
    Box::leak(name.into())
}

/// Two policies in canonical text.
pub(super) const POLICIES: [&[u8]; 2] = [b"consistency: strong\n", b"durability: none\n"];

/// Carries an operation out on the model.
pub(super) fn on_model(
    model: &mut Model,
    who: &Cred,
    op: Op,
    (one, two): (Target, Target),
    (ino, time): (Ino, Timestamp),
) -> Result<(), Errno> {
    let (at, to) = (EntryName::new(one.dir, one.name), EntryName::new(two.dir, two.name));
    match op {
        Op::Create { .. } => {
            let PlannedInode { mode, owner, rdev, stripe, size, mtime, .. } = op.new_inode(time);
            let PlannedInode { atime, data, umask, .. } = op.new_inode(time);
            let new =
                model::New { mode, umask, owner, rdev, stripe, size, time, mtime, atime, data };
            model.create(who, at, &new, ino)
        }
        Op::Link { .. } => model.link(who, one.ino, to, time),
        Op::Unlink(_) => model.unlink(who, at, time),
        Op::Rmdir(_) => model.rmdir(who, at, time),
        Op::Rename { flags, .. } => model.rename(who, at, to, flags, time),
        Op::SetAttr { change, .. } => model.setattr(who, one.ino, &change, time),
        Op::SetXattr { name, value, flags, .. } => {
            let name = XATTRS[usize::from(name)];
            let value = value.map(|value| Op::value(name, value));
            model.setxattr(who, one.ino, XattrChange { name, value, flags }, time)
        }
        Op::SetData { data, size, .. } => {
            model.setdata(who, one.ino, DATA[usize::from(data)], size, time)
        }
        Op::SetPolicy { .. } => Ok(()),
        Op::Discard(_) => model.discard(who, at, time),
        Op::Restore { which, .. } => {
            let kept: Vec<Ino> = model.entries(Ino::TRASH).map(|(_, ino)| ino).collect();
            let number = usize::from(which).checked_rem(kept.len()).ok_or(Errno::NotFound)?;
            model.restore(who, kept[number], at, time)
        }
        Op::Lookup(_) => model.lookup(who, one.dir, one.name).map(|_: Attr| ()),
        Op::List(_) => model.list(who, one.dir).map(|_| ()),
        Op::Access { want, .. } => model.access(who, one.ino, u32::from(want)),
    }
}

/// The object of a name, with all fetches that this needs.
pub(super) fn peek(
    namespace: &mut Namespace,
    fetch: Fetch<'_>,
    dir: Ino,
    name: &[u8],
) -> Option<Ino> {
    warm(namespace, fetch, |namespace| namespace.peek(dir, name)).ok().flatten()
}
