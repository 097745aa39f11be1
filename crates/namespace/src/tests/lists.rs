//! Access control lists: who may do what, how new inodes inherit them, and the same in a replay.

use journal::{Create, Event};
use types::acl::{
    ACCESS_LIST, AccessList, DEFAULT_LIST, GROUP, GROUP_OBJ, MASK, NO_NUMBER, OTHER, USER,
    USER_OBJ, linux_form,
};
use types::{AttrChange, Cred, EntryName, Errno, Ino, Seq, Timestamp, XattrChange, XattrFlags};

use crate::{Extra, Judge, Mode, Namespace, Planned, PlannedInode, Refusal};

const DIR: Ino = Ino(10);
const OWNER: u32 = 1;
const READ: u32 = 4;
const WRITE: u32 = 2;

fn cred(uid: u32, gid: u32) -> Cred {
    Cred { uid, gid, groups: Vec::new() }
}

/// A list in the form of Linux: permissions of the owner, user 7, the group, group 70, the mask
/// and the others.
fn linux([owner, user, group, named_group, mask, other]: [u16; 6]) -> Vec<u8> {
    linux_form(&[
        (USER_OBJ, owner, NO_NUMBER),
        (USER, user, 7),
        (GROUP_OBJ, group, NO_NUMBER),
        (GROUP, named_group, 70),
        (MASK, mask, NO_NUMBER),
        (OTHER, other, NO_NUMBER),
    ])
}

/// A namespace, and the events that made it.
struct World {
    namespace: Namespace,
    next: u64,
}

impl World {
    /// `/d`, a directory of [`OWNER`] that all may use.
    fn new() -> Self {
        let mut world = Self { namespace: Namespace::with_root(Timestamp(1)), next: 1 };
        let new = PlannedInode {
            mode: 0o040_777,
            owner: Some((OWNER, 50)),
            time: Timestamp(2),
            ..PlannedInode::default()
        };
        let entry = EntryName::new(Ino::ROOT, b"d");
        let planned = world.namespace.plan().make(&Cred::root(), entry, &new, DIR).unwrap();
        world.apply(&planned);
        world
    }

    fn apply(&mut self, planned: &Planned<'_>) {
        self.namespace.apply(Seq(self.next), Mode::Live, &planned.event());
        self.next += 1;
    }

    fn create(&mut self, who: &Cred, name: &[u8], mode: u32, umask: u32) -> Result<Ino, Refusal> {
        let ino = Ino(100 + self.next);
        let new = PlannedInode { mode, umask, time: Timestamp(3), ..PlannedInode::default() };
        let entry = EntryName::new(DIR, name);
        let planned = self.namespace.plan().make(who, entry, &new, ino)?;
        self.apply(&planned);
        Ok(ino)
    }

    fn set(
        &mut self,
        who: &Cred,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let change = XattrChange { name, value, flags: XattrFlags::default() };
        let planned = self.namespace.plan().setxattr(who, ino, change, Timestamp(4))?;
        self.apply(&planned);
        Ok(())
    }

    fn chmod(&mut self, who: &Cred, ino: Ino, mode: u32) -> Result<(), Refusal> {
        let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
        let planned = self.namespace.plan().setattr(who, ino, &change, Timestamp(5))?;
        self.apply(&planned);
        Ok(())
    }

    fn mode(&self, ino: Ino) -> u32 {
        self.namespace.permissions_of(ino).unwrap().mode & 0o7777
    }

    fn may(&self, who: &Cred, ino: Ino, want: u32) -> bool {
        self.namespace.access(who, ino, want).is_ok()
    }

    fn list(&self, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
        self.namespace.xattr(ino, name).ok().map(std::borrow::Cow::into_owned)
    }
}

#[test]
fn a_list_says_who_may_use_a_file_and_chmod_changes_its_mask() {
    let mut world = World::new();
    let (owner, user, member) = (cred(OWNER, 50), cred(7, 1), cred(8, 70));
    let file = world.create(&owner, b"f", 0o100_600, 0).unwrap();
    assert!(!world.may(&user, file, READ));
    let list = linux([6, 6, 0, 4, 6, 0]);
    let refused = world.set(&user, file, ACCESS_LIST, Some(&list));
    assert_eq!(refused, Err(Errno::NotPermitted.into()), "a list is set by the owner");
    world.set(&owner, file, ACCESS_LIST, Some(&list)).unwrap();
    assert_eq!((world.mode(file), world.list(file, ACCESS_LIST)), (0o660, Some(list)));
    assert!(world.may(&user, file, READ | WRITE) && world.may(&member, file, READ));
    assert!(!world.may(&member, file, WRITE), "its entry has no such permission");
    assert!(!world.may(&cred(8, 50), file, READ), "the owning group has none");
    world.chmod(&owner, file, 0o640).unwrap();
    assert!(world.may(&user, file, READ) && !world.may(&user, file, WRITE));
    assert_eq!(world.list(file, ACCESS_LIST), Some(linux([6, 6, 0, 4, 4, 0])));
    world.set(&owner, file, ACCESS_LIST, None).unwrap();
    assert!(!world.may(&user, file, READ) && world.may(&cred(8, 50), file, READ));
    assert_eq!((world.mode(file), world.list(file, ACCESS_LIST)), (0o640, None));
}

#[test]
fn a_list_that_says_no_more_than_the_mode_sets_the_mode() {
    let mut world = World::new();
    let owner = cred(OWNER, 50);
    let file = world.create(&owner, b"f", 0o100_600, 0).unwrap();
    world.set(&owner, file, ACCESS_LIST, Some(&linux([6, 6, 0, 4, 6, 0]))).unwrap();
    let minimal = AccessList::default().to_linux(0o751);
    world.set(&owner, file, ACCESS_LIST, Some(&minimal)).unwrap();
    assert_eq!((world.mode(file), world.list(file, ACCESS_LIST)), (0o751, None));
}

#[test]
fn an_owner_outside_the_group_loses_set_group_id() {
    let mut world = World::new();
    for (name, mode) in [(b"f", 0o102_750), (b"d", 0o042_750)] {
        let it = world.create(&cred(OWNER, 50), name, mode, 0).unwrap();
        world.set(&cred(OWNER, 50), it, ACCESS_LIST, Some(&linux([7, 7, 5, 0, 7, 0]))).unwrap();
        assert_eq!(world.mode(it), 0o2770, "a member keeps it");
        world.set(&cred(OWNER, 9), it, ACCESS_LIST, Some(&linux([7, 7, 5, 0, 7, 0]))).unwrap();
        assert_eq!(world.mode(it), 0o770);
    }
}

#[test]
fn new_inodes_inherit_the_default_list_in_place_of_the_mask_of_their_maker() {
    let mut world = World::new();
    let owner = cred(OWNER, 50);
    let plain = world.create(&owner, b"plain", 0o100_666, 0o027).unwrap();
    assert_eq!(world.mode(plain), 0o640, "without a default list the mask counts");
    let list = linux([7, 6, 5, 0, 7, 0]);
    let of_file = world.set(&owner, plain, DEFAULT_LIST, Some(&list));
    assert_eq!(of_file, Err(Errno::Access.into()), "only directories have one");
    world.set(&owner, DIR, DEFAULT_LIST, Some(&list)).unwrap();
    assert_eq!(world.mode(DIR), 0o777, "it does not concern the directory itself");
    let file = world.create(&owner, b"f", 0o100_666, 0o027).unwrap();
    assert_eq!(world.mode(file), 0o660);
    assert_eq!(world.list(file, ACCESS_LIST), Some(linux([6, 6, 5, 0, 6, 0])));
    assert_eq!(world.list(file, DEFAULT_LIST), None);
    assert!(world.may(&cred(7, 1), file, READ | WRITE));
    let below = world.create(&owner, b"below", 0o040_755, 0o077).unwrap();
    assert_eq!(world.list(below, DEFAULT_LIST), Some(list));
    assert_eq!(world.mode(below), 0o750);
    let link = world.create(&owner, b"link", 0o120_777, 0o077);
    assert_eq!(link, Err(Errno::Invalid.into()), "a link needs a target");
    assert!(world.namespace.has_lists(DIR) && world.namespace.has_lists(below));
    world.set(&owner, DIR, DEFAULT_LIST, None).unwrap();
    assert!(!world.namespace.has_lists(DIR));
    assert_eq!(world.create(&owner, b"g", 0o100_666, 0o022).map(|ino| world.mode(ino)), Ok(0o644));
}

#[test]
fn bytes_that_are_no_list_are_refused_and_change_nothing_in_a_replay() {
    let mut world = World::new();
    let owner = cred(OWNER, 50);
    let file = world.create(&owner, b"f", 0o100_600, 0).unwrap();
    let refused = world.set(&owner, file, ACCESS_LIST, Some(b"\x02\0\0\0\x01"));
    assert_eq!(refused, Err(Errno::Invalid.into()));
    let (name, time, home) = (ACCESS_LIST, Timestamp(9), DIR);
    let event = Event::SetXattr { ino: file, home, name, value: Some(b"nonsense"), time };
    world.namespace.apply(Seq(world.next), Mode::Live, &event);
    assert_eq!((world.mode(file), world.list(file, ACCESS_LIST)), (0o600, None));
    world.namespace.validate();
}

#[test]
fn a_client_gives_its_new_files_lists_and_no_other_attributes() {
    let user = cred(OWNER, 50);
    let list = AccessList::from_linux(&linux([6, 6, 0, 4, 6, 0])).unwrap().encode();
    let judge = Judge { cred: &user, subtree: DIR };
    let judged = |name: &[u8], value: &[u8]| {
        let mut namespace = World::new().namespace;
        let mut extra = Extra::default();
        extra.set_xattr(name, Some(value));
        let (time, ino) = (Timestamp(6), Ino(500));
        let create = Create {
            parent: DIR,
            name: b"made",
            ino,
            mode: 0o100_660,
            uid: OWNER,
            gid: 50,
            time,
            mtime: time,
            atime: time,
            extra: extra.encoded(),
            ..Create::default()
        };
        let event = Event::Create(create);
        let planned = namespace.plan().judge(&judge, &event, true)?;
        let planned = planned.ok_or(Refusal::Errno(Errno::Invalid))?;
        assert_eq!(planned.event(), event, "recovery reads the event again");
        namespace.apply(Seq(2), Mode::Merge, &event);
        namespace.access(&cred(7, 1), ino, READ | WRITE)
    };
    assert_eq!(judged(ACCESS_LIST, &list), Ok(()));
    assert_eq!(judged(b"security.capability", b"x"), Err(Errno::NotPermitted.into()));
    assert_eq!(judged(ACCESS_LIST, b"nonsense"), Err(Errno::NotPermitted.into()));
}
