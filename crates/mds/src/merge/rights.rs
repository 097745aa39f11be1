//! The rights of the user who merges: what no journal may say, although nothing else of it is
//! judged (`check: none`).
//!
//! A user who has a subtree decides there what exists and what is in it. Owners, groups, set-id
//! bits, device files and capabilities give power elsewhere: a program that starts with the rights
//! of root, a disk. So a user other than root makes only inodes of their own, and changes
//! permissions only of those. Every check takes constant time.

use journal::{Create, Event, InodeSnapshot};
use namespace::{Extra, Namespace, Permissions};
use types::acl::{self, ACCESS_LIST, AccessList};
use types::{Attr, Cred, Errno, FileType, Ino};

use super::verify::VerifyError;

/// The bit of a mode by which a program runs with its file's group.
const SET_GROUP_ID: u32 = 0o2000;
/// Extended attributes with these names give a file power, or are root's.
const RESERVED: [&[u8]; 2] = [b"security.", b"trusted."];

/// The user who merges, if that is not root.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    cred: Cred,
    /// The group of the subtree's root: directories with the set-group-id bit pass it on.
    inherited: u32,
}

impl Rights {
    /// The rights of a user in a subtree with this root; `None` for root, who has all.
    pub(super) fn of(cred: &Cred, root: Option<Permissions>) -> Option<Self> {
        let inherited = root.map_or(cred.gid, |root| root.gid);
        (!cred.is_root()).then(|| Self { cred: cred.clone(), inherited })
    }

    /// Whether the user may make an inode with these attributes.
    fn may_make(&self, mode: u32, uid: u32, gid: u32) -> bool {
        let file_type = FileType::from_mode(mode).unwrap_or_default();
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let is_member = self.cred.in_group(gid);
        let sets_group = mode & SET_GROUP_ID != 0 && file_type != FileType::Directory;
        uid == self.cred.uid
            && (is_member || gid == self.inherited)
            && (is_member || !sets_group)
            && !is_device
    }

    /// `EPERM` if a create makes an inode that the user may not make.
    #[inline]
    pub(super) fn check_create(&self, create: &Create<'_>) -> Result<(), VerifyError> {
        let Create { mode, uid, gid, extra, .. } = *create;
        let has_lists_only = extra.is_empty() || Extra::are_lists(extra, mode);
        let may = has_lists_only && self.may_make(mode, uid, gid);
        if may { Ok(()) } else { Err(Errno::NotPermitted.into()) }
    }

    /// The same for the events that change an inode, or carry one. `is_new` says whether the
    /// journal has made it.
    pub(super) fn check(
        &self,
        namespace: &Namespace,
        event: &Event<'_>,
        is_new: impl Fn(Ino) -> bool,
    ) -> Result<(), VerifyError> {
        match *event {
            Event::Rename { ref moved, ref exchanged, .. } => {
                self.check_snapshot(namespace, moved, &is_new)?;
                let back = exchanged.as_ref();
                back.map_or(Ok(()), |back| self.check_snapshot(namespace, back, &is_new))
            }
            Event::Link { ref inode, .. } => self.check_snapshot(namespace, inode, &is_new),
            Event::SetAttr { ino, ref change, .. } => {
                let is_foreign = change.uid.is_some_and(|uid| uid != self.cred.uid)
                    || change.gid.is_some_and(|gid| !self.cred.in_group(gid));
                let sets_group = change.mode.is_some_and(|mode| mode & SET_GROUP_ID != 0);
                if is_foreign || (sets_group && !self.cred.in_group(self.inherited)) {
                    return Err(Errno::NotPermitted.into());
                }
                let is_permission =
                    change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
                if is_permission { self.check_owner(namespace, ino, is_new) } else { Ok(()) }
            }
            Event::SetXattr { name, .. } if RESERVED.iter().any(|it| name.starts_with(it)) => {
                Err(Errno::NotPermitted.into())
            }
            Event::SetXattr { ino, name, value, .. } if acl::is_list(name) => {
                let list = value.map(|value| AccessList::decode(value).ok_or(Errno::Invalid));
                let list = list.transpose()?.filter(|_| name == ACCESS_LIST);
                let sets_group = list.is_some_and(|list| list.mode & SET_GROUP_ID != 0);
                if sets_group && !self.cred.in_group(self.inherited) {
                    return Err(Errno::NotPermitted.into());
                }
                self.check_owner(namespace, ino, is_new)
            }
            Event::Create(_)
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => Ok(()),
        }
    }

    /// The permissions of an inode are its owner's.
    fn check_owner(
        &self,
        namespace: &Namespace,
        ino: Ino,
        is_new: impl Fn(Ino) -> bool,
    ) -> Result<(), VerifyError> {
        match namespace.permissions_of(ino) {
            Some(known) if known.uid == self.cred.uid => Ok(()),
            Some(_) => Err(VerifyError::Gone),
            None if is_new(ino) => Ok(()),
            None => Err(VerifyError::Unknown(ino)),
        }
    }

    /// An inode that an event carries must have the owner and the permissions of the inode in
    /// memory, or be the user's. The inode in memory keeps its extended attributes, and with them
    /// its access control lists ([`namespace::Mode::Merge`]).
    fn check_snapshot(
        &self,
        namespace: &Namespace,
        inode: &InodeSnapshot<'_>,
        is_new: impl Fn(Ino) -> bool,
    ) -> Result<(), VerifyError> {
        let Attr { ino, mode, uid, gid, .. } = inode.attr;
        let is_reserved = |word: &[u8]| inode.extra.windows(word.len()).any(|part| part == word);
        if RESERVED.iter().any(|word| is_reserved(word)) {
            return Err(VerifyError::Gone);
        }
        match namespace.permissions_of(ino) {
            Some(known) if known == Permissions { mode, uid, gid } => Ok(()),
            // Another user's file that was changed since is left in its place.
            Some(known) if known.uid != self.cred.uid => Err(VerifyError::Gone),
            None if !is_new(ino) => Err(VerifyError::Unknown(ino)),
            Some(_) | None if self.may_make(mode, uid, gid) => Ok(()),
            Some(_) | None => Err(Errno::NotPermitted.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::acl::DEFAULT_LIST;
    use types::bytes::Put;

    use super::*;

    const FILE: u32 = 0o100_000;

    /// The record of a list without named users and groups.
    fn list(mode: u32) -> Vec<u8> {
        let mut list = AccessList::default();
        list.mode = mode;
        list.encode()
    }

    /// An extended attribute in the form of [`Extra`].
    fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut field = vec![1];
        [name, value].into_iter().for_each(|part| field.put_bytes(part));
        field
    }

    fn rights() -> Rights {
        let cred = Cred { uid: 7, gid: 70, groups: vec![71] };
        let root = Permissions { mode: 0o042_775, uid: 0, gid: 90 };
        Rights::of(&cred, Some(root)).unwrap()
    }

    fn made(mode: u32, uid: u32, gid: u32) -> bool {
        rights().check_create(&Create { mode, uid, gid, ..Create::default() }).is_ok()
    }

    #[test]
    fn a_user_makes_inodes_of_their_own_only() {
        assert!(Rights::of(&Cred::root(), None).is_none(), "root has all rights");
        assert!(made(FILE | 0o4755, 7, 70), "a program that runs as this user gives nothing");
        assert!(made(FILE | 0o2755, 7, 71) && made(FILE | 0o644, 7, 90));
        assert!(!made(FILE | 0o644, 0, 70) && !made(FILE | 0o644, 7, 0));
        assert!(!made(FILE | 0o2755, 7, 90), "a program with the group of the directory");
        for device in [0o020_666, 0o060_666] {
            assert!(!made(device, 7, 70));
        }
    }

    #[test]
    fn attributes_that_give_power_are_not_set() {
        let namespace = Namespace::new();
        let check = |event: &Event<'_>| rights().check(&namespace, event, |_| true);
        let (ino, home, time) = (Ino(99), Ino::ROOT, types::Timestamp(1));
        let xattr = |name: &[u8], value: &[u8]| {
            check(&Event::SetXattr { ino, home, name, value: Some(value), time }).is_ok()
        };
        assert!(xattr(b"user.note", b"x") && !xattr(b"security.capability", b"x"));
        assert!(xattr(ACCESS_LIST, &list(0o4755)) && !xattr(ACCESS_LIST, b"x"));
        assert!(!xattr(ACCESS_LIST, &list(0o2755)), "set-group-id of a foreign group");
        let made = |extra: &[u8]| {
            let create = Create { mode: FILE, uid: 7, gid: 70, extra, ..Create::default() };
            rights().check_create(&create).is_ok()
        };
        let (access, default) =
            (field(ACCESS_LIST, &list(0o640)), field(DEFAULT_LIST, &list(0o640)));
        assert!(made(&access) && made(b""));
        assert!(!made(&default), "a default list of a file");
        assert!(!made(&[access.clone(), access].concat()), "the same list twice");
        assert!(!made(&field(b"security.capability", b"x")) && !made(b"security.capability"));
        let change = |change| Event::SetAttr {
            ino: Ino(99),
            home: Ino::ROOT,
            change,
            time: types::Timestamp(1),
        };
        let owner = |uid| types::AttrChange { uid: Some(uid), ..types::AttrChange::default() };
        assert!(check(&change(owner(7))).is_ok() && check(&change(owner(0))).is_err());
        let mode = |mode| types::AttrChange { mode: Some(mode), ..types::AttrChange::default() };
        assert!(check(&change(mode(0o4755))).is_ok() && check(&change(mode(0o2755))).is_err());
    }

    #[test]
    fn permissions_of_another_users_inode_stay_and_of_an_unknown_one_it_is_asked() {
        let mut namespace = Namespace::new();
        let (ino, parent, name) = (Ino(Ino::FIRST_FREE), Ino::ROOT, b"theirs".as_slice());
        let create = Create { parent, name, ino, mode: FILE | 0o644, ..Create::default() };
        let _ = namespace.apply(types::Seq(1), namespace::Mode::Live, &Event::Create(create));
        let change = types::AttrChange { mode: Some(0o777), ..types::AttrChange::default() };
        let (home, time) = (Ino::ROOT, types::Timestamp(1));
        let check = |ino| {
            rights().check(&namespace, &Event::SetAttr { ino, home, change, time }, |_| false)
        };
        assert!(matches!(check(ino), Err(VerifyError::Gone)));
        assert!(matches!(check(Ino(ino.0 + 1)), Err(VerifyError::Unknown(_))));
    }

    #[test]
    fn a_carried_inode_brings_no_other_owner() {
        let namespace = Namespace::new();
        let carried = |mode, uid, extra: &'static [u8]| InodeSnapshot {
            attr: Attr { ino: Ino(99), mode, uid, gid: 70, ..Attr::default() },
            data: b"",
            extra,
        };
        let check =
            |inode: &InodeSnapshot<'_>| rights().check_snapshot(&namespace, inode, |_| true);
        assert!(check(&carried(FILE | 0o4755, 7, b"")).is_ok());
        assert!(check(&carried(FILE | 0o4755, 0, b"")).is_err());
        assert!(check(&carried(FILE | 0o755, 7, b"..security.capability..")).is_err());
        let unknown = rights().check_snapshot(&namespace, &carried(FILE, 7, b""), |_| false);
        assert!(matches!(unknown, Err(VerifyError::Unknown(_))));
    }
}
