//! The changes that can happen to a namespace.

#[cfg(doc)]
use crate::Loss;
use types::{Attr, AttrChange, ClientId, EntryName, FileType, Ino, Stripe, Tid, Timestamp};

/// One change of a namespace. Borrowed: planning and decoding build events without allocating.
///
/// Events hold *the resulting state*, not the steps towards it: replaying an event that already
/// took effect changes nothing. Permission and existence were checked, if at all, before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A new inode under a name: file, directory, symbolic link, device, FIFO or socket.
    Create(Create<'a>),
    /// One more name for an inode.
    Link {
        /// Directory of the new name.
        parent: Ino,
        /// The new name.
        name: &'a [u8],
        /// What it names.
        ino: Ino,
        /// The directory that stored the inode so far.
        home: Ino,
        /// The inode as it is afterwards.
        inode: InodeSnapshot<'a>,
        /// When.
        time: Timestamp,
    },
    /// A name of anything but a directory goes away.
    Unlink {
        /// Directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
        /// What it names: replay must take the link away even where the name is gone already.
        /// 0 if the writer does not know.
        ino: Ino,
        /// When.
        time: Timestamp,
    },
    /// An empty directory goes away.
    Rmdir {
        /// Directory above it.
        parent: Ino,
        /// Its name.
        name: &'a [u8],
        /// The directory itself, or 0 if the writer does not know.
        ino: Ino,
        /// When.
        time: Timestamp,
    },
    /// A name moves and replaces an entry of the new name; or two names swap.
    Rename {
        /// Old directory.
        parent: Ino,
        /// Old name.
        name: &'a [u8],
        /// New directory.
        new_parent: Ino,
        /// New name.
        new_name: &'a [u8],
        /// The inode that moves, as it is afterwards.
        moved: InodeSnapshot<'a>,
        /// The inode that moves the other way (`RENAME_EXCHANGE`); without it, an entry of the new
        /// name is replaced.
        exchanged: Option<InodeSnapshot<'a>>,
        /// The inode that had the new name and is replaced, as with `ino` of [`Event::Unlink`]; 0
        /// for none.
        replaced: Ino,
        /// When.
        time: Timestamp,
    },
    /// Attributes change.
    SetAttr {
        /// Of which inode.
        ino: Ino,
        /// The directory that stores the inode: where to find it when it is not in memory.
        home: Ino,
        /// To what.
        change: AttrChange,
        /// When (becomes ctime).
        time: Timestamp,
    },
    /// An extended attribute changes or, with `None`, goes away.
    SetXattr {
        /// Of which inode.
        ino: Ino,
        /// The directory that stores the inode: where to find it when it is not in memory.
        home: Ino,
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
        /// When.
        time: Timestamp,
    },
    /// The inline content of a small file is replaced, and with it its size.
    SetData {
        /// Of which inode.
        ino: Ino,
        /// The directory that stores the inode: where to find it when it is not in memory.
        home: Ino,
        /// The content; empty when it moved to the object store.
        data: &'a [u8],
        /// The size of the file, at least the length of `data`.
        size: u64,
        /// When (becomes mtime and ctime).
        time: Timestamp,
    },
    /// The policy stored in a directory inode changes; empty removes it.
    SetPolicy {
        /// The directory.
        ino: Ino,
        /// The directory that stores its inode.
        home: Ino,
        /// Canonical policy text.
        policy: &'a [u8],
        /// When.
        time: Timestamp,
    },
    /// Every request of `client` up to `tid` is complete: this makes requests idempotent across a
    /// restart. Written at the start of each segment.
    Session {
        /// The client.
        client: ClientId,
        /// Its newest completed request.
        tid: Tid,
    },
    /// Some creates of a client journal that is stored as an object were applied at this point, in
    /// memory only: recovery applies them again from the object. A merge runs between requests, so
    /// it is recorded in slices, each at its position. The other events of a client journal follow
    /// as events of their own.
    Merged {
        /// Root of the decoupled subtree.
        subtree: Ino,
        /// Whose journal.
        client: ClientId,
        /// Name of the journal object.
        object: &'a [u8],
        /// The first event of the slice, counted from 0.
        first: u64,
        /// How many events, all of them creates.
        events: u64,
        /// Whether the merge is complete.
        last: bool,
        /// The entries that the slice replaced, as [`Loss::all`] reads them. The store may already
        /// have the winner's name while only the memory has the change of the loser.
        losses: &'a [u8],
    },
    /// A directory was about to be written to the metadata store with changes that no journal
    /// holds. If the store has that write, replay drops the effect of earlier events on the
    /// directory and takes the stored directory.
    Stored {
        /// The directory.
        dir: Ino,
    },
}

/// An inode as it is after an event that gives it a new place in the metadata store.
///
/// Directories are checkpointed one by one, so after a crash the old place may already have
/// forgotten the inode while the new one has not heard of it. Carrying the inode in the event
/// makes replay independent of the order of checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeSnapshot<'a> {
    /// Attributes, the inode number among them.
    pub attr: Attr,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
    /// Extended attributes and policy, as the namespace encodes them.
    pub extra: &'a [u8],
}

/// The fields of [`Event::Create`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Create<'a> {
    /// Directory.
    pub parent: Ino,
    /// Name in it.
    pub name: &'a [u8],
    /// The new inode.
    pub ino: Ino,
    /// File type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// How the content of a file is striped if it is not inline.
    pub stripe: Stripe,
    /// Length in bytes.
    pub size: u64,
    /// When it was created: its ctime and btime, and the directory's mtime.
    pub time: Timestamp,
    /// Its mtime.
    pub mtime: Timestamp,
    /// Its atime.
    pub atime: Timestamp,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
    /// Extended attributes that it has from the beginning, as the namespace encodes them: the lists
    /// that it inherits from its directory ([`types::acl`]).
    pub extra: &'a [u8],
}

impl<'a> Create<'a> {
    /// The create that makes an inode as it is now, under this name. The length of a directory
    /// (its names) is left out: each name has its own event.
    #[must_use]
    pub fn of(at: EntryName<'a>, inode: InodeSnapshot<'a>) -> Self {
        let InodeSnapshot { attr, data, extra } = inode;
        let Attr { ino, mode, uid, gid, rdev, stripe, size, mtime, atime, ctime: time, .. } = attr;
        let (parent, name, size) = (at.dir, at.name, if attr.is_dir() { 0 } else { size });
        Self {
            parent,
            name,
            ino,
            mode,
            uid,
            gid,
            rdev,
            stripe,
            size,
            time,
            mtime,
            atime,
            data,
            extra,
        }
    }

    /// The file type that the mode names.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or_default()
    }
}

/// The kind of an event, for filters and summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// [`Event::Create`].
    Create = 0,
    /// [`Event::Link`].
    Link = 1,
    /// [`Event::Unlink`].
    Unlink = 2,
    /// [`Event::Rmdir`].
    Rmdir = 3,
    /// [`Event::Rename`].
    Rename = 4,
    /// [`Event::SetAttr`].
    SetAttr = 5,
    /// [`Event::SetXattr`].
    SetXattr = 6,
    /// [`Event::SetData`].
    SetData = 7,
    /// [`Event::SetPolicy`].
    SetPolicy = 8,
    /// [`Event::Session`].
    Session = 9,
    /// [`Event::Merged`].
    Merged = 10,
    /// [`Event::Stored`].
    Stored = 11,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 12] = [
        Self::Create,
        Self::Link,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::SetAttr,
        Self::SetXattr,
        Self::SetData,
        Self::SetPolicy,
        Self::Session,
        Self::Merged,
        Self::Stored,
    ];

    /// The word used in filters and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::SetAttr => "setattr",
            Self::SetXattr => "setxattr",
            Self::SetData => "setdata",
            Self::SetPolicy => "setpolicy",
            Self::Session => "session",
            Self::Merged => "merged",
            Self::Stored => "stored",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl<'a> Event<'a> {
    /// An event without effect, in the place of an event that was erased from a journal or lost
    /// from it, so that the events behind it keep their positions. No client has the number 0, so
    /// the number of the request has no meaning.
    pub const NOTHING: Event<'static> = Event::Session { client: ClientId(0), tid: Tid(0) };

    /// Whether it says nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Session { client: ClientId(0), .. })
    }

    /// The replacement of this event when it is erased. The inode number of a create stays: it was
    /// used, and must not be used again.
    #[must_use]
    pub fn erased(&self) -> Event<'static> {
        let tid = match *self {
            Self::Create(Create { ino, .. }) => Tid(ino.0),
            Self::Session { client: ClientId(0), tid } => tid,
            Self::Session { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::SetAttr { .. }
            | Self::SetXattr { .. }
            | Self::SetData { .. }
            | Self::SetPolicy { .. }
            | Self::Merged { .. }
            | Self::Stored { .. } => Tid(0),
        };
        Event::Session { client: ClientId(0), tid }
    }

    /// The file whose content is in the object store according to the event, and the content's
    /// length: not for a file without content, nor for content inside the event.
    #[inline]
    #[must_use]
    pub fn content_elsewhere(&self) -> Option<(Ino, u64)> {
        let (ino, size) = match *self {
            Self::Create(Create { ino, size, data: [], .. })
            | Self::SetData { ino, data: [], size, .. } => (ino, size),
            Self::SetAttr { ino, ref change, .. } => (ino, change.size.unwrap_or(0)),
            Self::Create(_)
            | Self::SetData { .. }
            | Self::Session { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::SetXattr { .. }
            | Self::SetPolicy { .. }
            | Self::Merged { .. }
            | Self::Stored { .. } => return None,
        };
        (size > 0).then_some((ino, size))
    }

    /// The inode that the event numbered, or that the erased create numbered.
    #[must_use]
    pub fn numbered(&self) -> Option<Ino> {
        match *self {
            Self::Create(Create { ino, .. }) => Some(ino),
            Self::Session { client: ClientId(0), tid } => (tid.0 != 0).then_some(Ino(tid.0)),
            Self::Session { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::SetAttr { .. }
            | Self::SetXattr { .. }
            | Self::SetData { .. }
            | Self::SetPolicy { .. }
            | Self::Merged { .. }
            | Self::Stored { .. } => None,
        }
    }

    /// Which kind this is.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Create(_) => EventKind::Create,
            Self::Link { .. } => EventKind::Link,
            Self::Unlink { .. } => EventKind::Unlink,
            Self::Rmdir { .. } => EventKind::Rmdir,
            Self::Rename { .. } => EventKind::Rename,
            Self::SetAttr { .. } => EventKind::SetAttr,
            Self::SetXattr { .. } => EventKind::SetXattr,
            Self::SetData { .. } => EventKind::SetData,
            Self::SetPolicy { .. } => EventKind::SetPolicy,
            Self::Session { .. } => EventKind::Session,
            Self::Merged { .. } => EventKind::Merged,
            Self::Stored { .. } => EventKind::Stored,
        }
    }

    /// The directory and name that the event is about, if it is about one.
    #[must_use]
    pub fn dentry(&self) -> Option<(Ino, &'a [u8])> {
        match *self {
            Self::Create(Create { parent, name, .. })
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name, .. }
            | Self::Rmdir { parent, name, .. }
            | Self::Rename { parent, name, .. } => Some((parent, name)),
            Self::SetAttr { .. }
            | Self::SetXattr { .. }
            | Self::SetData { .. }
            | Self::SetPolicy { .. }
            | Self::Session { .. }
            | Self::Merged { .. }
            | Self::Stored { .. } => None,
        }
    }

    /// The directory and name that the event moves something to, if it does.
    #[must_use]
    pub fn destination(&self) -> Option<(Ino, &'a [u8])> {
        if let Self::Rename { new_parent, new_name, .. } = *self {
            Some((new_parent, new_name))
        } else {
            None
        }
    }

    /// The inode that the event names directly, if it does.
    #[must_use]
    pub fn inode(&self) -> Option<Ino> {
        match *self {
            Self::Create(Create { ino, .. })
            | Self::Link { ino, .. }
            | Self::SetAttr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::SetData { ino, .. }
            | Self::SetPolicy { ino, .. } => Some(ino),
            Self::Unlink { ino, .. } | Self::Rmdir { ino, .. } => (ino.0 != 0).then_some(ino),
            Self::Merged { subtree: dir, .. } | Self::Stored { dir } => Some(dir),
            Self::Rename { moved, .. } => Some(moved.attr.ino),
            Self::Session { .. } => None,
        }
    }
}
