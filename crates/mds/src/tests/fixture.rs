//! A small tree on one server, and one client: the start of the tests of requests.

use std::ops::{Deref, DerefMut};

use journal::{Event, JournalBuffer, SegmentHeader, Writer};
use types::{ClientId, Cred, Epoch, Errno, Ino, Origin, Seq, acl};
use wire::{Answer, ChangeOp, NewInode, Op};

use super::Cluster;
use super::cluster::{DIR, FILE, LINK, user};
use crate::Settings;

/// `/dir/{file,link,sub,full/x}` of root, and `/open`, in which every user may make names.
pub(crate) struct Tree {
    cluster: Cluster,
    pub(crate) dir: Ino,
    pub(crate) file: Ino,
    pub(crate) link: Ino,
    pub(crate) sub: Ino,
    pub(crate) full: Ino,
    pub(crate) open: Ino,
}

/// An inode that does not exist.
pub(crate) const NOTHING: Ino = Ino((1 << 40) + 999_999);

/// A user that owns nothing of the tree.
pub(crate) fn guest() -> Cred {
    user(7)
}

/// The log of requests of a client, as a file.
pub(crate) fn log_of(client: ClientId, subtree: Ino, events: &[Event<'_>]) -> Vec<u8> {
    client_journal(client, subtree, Epoch(1), events)
}

/// A journal of a client, as a file.
pub(crate) fn client_journal(
    client: ClientId,
    subtree: Ino,
    epoch: Epoch,
    events: &[Event<'_>],
) -> Vec<u8> {
    let writer = Writer::Client { client, subtree };
    let header = SegmentHeader { writer, epoch, first_seq: Seq(1) };
    let mut buffer = JournalBuffer::new(Seq(1), false);
    for event in events {
        buffer.append(Origin::default(), event);
    }
    buffer.close_block();
    [header.encode().to_vec(), buffer.take_blocks().concat()].concat()
}

/// A name of 256 bytes.
pub(crate) const LONG: [u8; 256] = [b'x'; 256];

impl Tree {
    pub(crate) fn new() -> Self {
        Self::on(Cluster::new())
    }

    /// The tree on a cluster.
    pub(crate) fn on(mut cluster: Cluster) -> Self {
        cluster.connect(1);
        let dir = cluster.dir(Ino::ROOT, "dir");
        let new = NewInode { mode: FILE, data: b"abc", size: 3, ..NewInode::default() };
        let op = Op::Change(ChangeOp::Create { parent: dir, name: b"file", new });
        let Ok(Answer::Attr(file)) = cluster.answer(op) else { panic!("no file") };
        let new = NewInode { mode: LINK, data: b"file", ..NewInode::default() };
        let op = Op::Change(ChangeOp::Create { parent: dir, name: b"link", new });
        let Ok(Answer::Attr(link)) = cluster.answer(op) else { panic!("no link") };
        let sub = cluster.dir(dir, "sub");
        let full = cluster.dir(dir, "full");
        cluster.file(full, "x");
        let open = cluster.make(Ino::ROOT, "open", DIR | 0o777);
        Self { cluster, dir, file: file.ino, link: link.ino, sub, full, open }
    }

    /// Why a request of root is refused.
    pub(crate) fn refusal(&mut self, op: Op<'_>) -> Option<Errno> {
        self.cluster.answer(op).err()
    }

    /// The tree on rank 0 of two.
    pub(crate) fn of_two_ranks() -> Self {
        Self::on(Cluster::with(Settings::default(), 2))
    }

    /// Why a question of rank 1 in the name of root is refused.
    pub(crate) fn peer_refusal(&mut self, op: Op<'_>) -> Option<Errno> {
        self.cluster.peer_answer(&Cred::root(), op).err()
    }

    /// Why a request of a user that owns nothing is refused.
    pub(crate) fn guest_refusal(&mut self, op: Op<'_>) -> Option<Errno> {
        self.cluster.answer_as(&guest(), op).err()
    }

    /// Why a create of a file by a user is refused.
    pub(crate) fn create_refusal(
        &mut self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Option<Errno> {
        let new = NewInode { mode: FILE, ..NewInode::default() };
        self.cluster.answer_as(cred, Op::Change(ChangeOp::Create { parent, name, new })).err()
    }
}

impl Deref for Tree {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Tree {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// The access control list `u::rwx,g::rx,m::rwx,o::rx` in the form of Linux.
pub(super) fn access_list() -> Vec<u8> {
    let tags = [(acl::USER_OBJ, 7), (acl::GROUP_OBJ, 5), (acl::MASK, 7), (acl::OTHER, 5)];
    acl::linux_form(&tags.map(|(tag, permissions)| (tag, permissions, acl::NO_NUMBER)))
}

/// Sets a list, or takes it away.
pub(super) fn set_list<'a>(ino: Ino, name: &'a [u8], value: Option<&'a [u8]>) -> Op<'a> {
    Op::Change(ChangeOp::SetXattr { ino, name, value, flags: types::XattrFlags::default() })
}
