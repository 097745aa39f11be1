//! Identifiers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// An inode number. Zero is never a valid inode.
    Ino(u64), "ino:"
);
id!(
    /// The number of an active metadata server.
    Rank(u16), "mds."
);
id!(
    /// A generation of the cluster map, of a rank's term or of a lock: larger is newer.
    Epoch(u64), "e"
);
id!(
    /// A client, unique for the life of the cluster. The upper half is the user who registered it
    /// ([`ClientId::of_user`]).
    ClientId(u64), "client."
);
id!(
    /// A request of one client; strictly increasing within a client.
    Tid(u64), "tid:"
);
id!(
    /// The position of an event in one journal; strictly increasing, the first event is 1.
    Seq(u64), "seq:"
);

id!(
    /// A connection of one process to its peers; the driver that accepts or makes connections
    /// hands the numbers out and never uses one twice.
    ConnId(u64), "conn."
);

impl Rank {
    /// No rank: a subtree pinned to it is not pinned.
    pub const NONE: Rank = Rank(u16::MAX);
}

impl ConnId {
    /// The connection of a server to the monitor.
    pub const MONITOR: ConnId = ConnId(0);
    /// The requester of work that a server does without a request: no reply is sent.
    pub const NOBODY: ConnId = ConnId(u64::MAX);
    /// A server's balancer as the requester of a move: the reply notifies the balancer of the
    /// result.
    pub const BALANCER: ConnId = ConnId(u64::MAX - 1);
    /// In place of a connection for the questions of other ranks: the answers are messages, too.
    pub const PEER: ConnId = ConnId(u64::MAX - 2);

    /// Whether a client sends its requests here: it has a session, and sends again what was not
    /// answered. The other requesters do not.
    #[must_use]
    pub fn is_of_client(self) -> bool {
        ![Self::MONITOR, Self::NOBODY, Self::BALANCER, Self::PEER].contains(&self)
    }
}

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
    /// The hidden directory that is home to every inode with more than one name. Its entries
    /// are named by the inode number in hexadecimal.
    pub const LINKS: Ino = Ino(2);
    /// The hidden directory whose only entry, `root`, is home to the root's inode.
    pub const ANCHOR: Ino = Ino(3);
    /// The directory `/lost+found`, in which a repair puts inodes without a name. It exists only
    /// while it has entries.
    pub const LOST_AND_FOUND: Ino = Ino(4);
    /// The hidden directory that is home to the roots of removed trees, until their room is given
    /// back. The names in it are those of [`crate::TrashEntry`].
    pub const TRASH: Ino = Ino(5);
    /// The first number a rank or client may be given.
    pub const FIRST_FREE: u64 = 1 << 40;

    /// First inode number that `rank` allocates from: ranks own disjoint 2^40-wide spaces, so
    /// that two ranks never hand out one number.
    #[must_use]
    pub fn space_of(rank: Rank) -> InoRange {
        let start = Self::FIRST_FREE * (u64::from(rank.0) + 1);
        InoRange { start, end: start + Self::FIRST_FREE }
    }

    /// The rank that allocated the number; rank 0 for the fixed numbers.
    #[must_use]
    pub fn given_by(self) -> Rank {
        let space = (self.0 / Self::FIRST_FREE).saturating_sub(1);
        Rank(u16::try_from(space).unwrap_or_default())
    }

    /// The hidden directory that is home to the root of a subtree on the rank that serves the
    /// subtree, if its name is on another rank.
    #[must_use]
    pub fn mount_stub(root: Ino) -> Ino {
        Ino(root.0 | Self::ABOVE)
    }

    /// The number that the object store uses for [`Ino::LINKS`] of a rank. The store has this
    /// directory of each rank; a rank knows only its own.
    #[must_use]
    pub fn links_of(rank: Rank) -> Ino {
        Self::LINKS.stored_by(rank)
    }

    /// The number that the object store uses for a directory of a rank. The store has
    /// [`Ino::LINKS`] and [`Ino::TRASH`] of each rank, and every other directory once.
    #[must_use]
    pub fn stored_by(self, rank: Rank) -> Ino {
        if rank.0 == 0 || !matches!(self, Self::LINKS | Self::TRASH) {
            return self;
        }
        // No root has a number as small, so it is above none.
        Ino(Self::ABOVE | u64::from(rank.0) << 8 | self.0)
    }

    /// Whether this is [`Ino::links_of`] some rank.
    #[must_use]
    pub fn is_links(self) -> bool {
        let rank = (self.0 & !Self::ABOVE) >> 8;
        u16::try_from(rank).is_ok_and(|rank| self == Self::links_of(Rank(rank)))
    }

    /// Whether this is a hidden directory that only some ranks have. No rank has numbers as large.
    #[must_use]
    pub fn is_mount_stub(self) -> bool {
        self.0 & Self::ABOVE != 0
    }

    const ABOVE: u64 = 1 << 63;
}

impl Seq {
    /// Lower bound of the positions in the journal of a rank. Positions of different ranks never
    /// overlap, because several ranks may have written the metadata store's objects of one subtree.
    #[must_use]
    pub fn before_first(rank: Rank) -> Seq {
        Seq(u64::from(rank.0) << Self::RANK_SHIFT)
    }

    /// The position as far as it means something in the journal of a rank: one of another rank is
    /// before everything that this one ever wrote.
    #[must_use]
    pub fn seen_by(self, rank: Rank) -> Seq {
        if self.0 >> Self::RANK_SHIFT == u64::from(rank.0) { self } else { Seq(0) }
    }

    const RANK_SHIFT: u32 = 48;
}

impl Epoch {
    /// The term of the server of a rank, with its rank: terms of different ranks are different.
    #[must_use]
    pub fn at(self, rank: Rank) -> Self {
        Self(self.0 | u64::from(rank.0) << TERM_BITS)
    }

    /// Whether a server was restarted between this term and another one, both with their ranks. The
    /// state of a subtree is stored before it moves to another rank.
    #[must_use]
    pub fn is_restarted(self, now: Self) -> bool {
        self != now && self.0 >> TERM_BITS == now.0 >> TERM_BITS
    }
}

/// The bits of a term; the bits above hold its rank.
const TERM_BITS: u32 = 48;

impl ClientId {
    /// The client with this number, as a user registers it. So no process of another user can be
    /// taken for it, and no table is needed to know that.
    #[must_use]
    pub const fn of_user(uid: u32, number: u32) -> Self {
        Self((uid as u64) << 32 | number as u64)
    }

    /// The user who registered it; 0 for a client that speaks for every user.
    #[must_use]
    pub const fn user(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The origin of an event: which request of which client caused it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Who asked.
    pub client: ClientId,
    /// Which of its requests.
    pub tid: Tid,
}

/// A half-open range of inode numbers, `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InoRange {
    /// First number inside.
    pub start: u64,
    /// First number after.
    pub end: u64,
}

impl InoRange {
    /// Whether `ino` lies in the range.
    #[must_use]
    pub fn contains(self, ino: Ino) -> bool {
        self.start <= ino.0 && ino.0 < self.end
    }

    /// How many numbers the range holds.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Takes the first number out of the range.
    pub fn take(&mut self) -> Option<Ino> {
        if self.is_empty() {
            return None;
        }
        let ino = Ino(self.start);
        self.start += 1;
        Some(ino)
    }
}

/// A part of a directory: the names whose hash starts with the `bits` high bits of `value`. The
/// whole directory is [`Frag::WHOLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frag {
    /// How many leading bits are fixed, 0 to 24.
    pub bits: u8,
    /// The fixed bits, left-aligned in 32 bits.
    pub value: u32,
}

impl Frag {
    /// The fragment that is the whole directory.
    pub const WHOLE: Frag = Frag { bits: 0, value: 0 };
    /// By how many bits a fragment is split.
    pub const SPLIT_BITS: u8 = 3;
    /// Into how many fragments one is split.
    pub const SPLIT_WAYS: usize = 1 << Self::SPLIT_BITS;
    /// How many bits may be fixed.
    pub const BITS_MAX: u8 = 24;

    /// Whether only the bits that the fragment fixes are set, and they are not too many.
    #[must_use]
    pub fn is_legal(self) -> bool {
        self.bits <= Self::BITS_MAX && self.value << self.bits == 0
    }

    /// The fragments into which this one is split, by their hashes; `None` if it is too small.
    #[must_use]
    pub fn split(self) -> Option<[Frag; Self::SPLIT_WAYS]> {
        let bits = self.bits + Self::SPLIT_BITS;
        let part = |at: u32| Frag { bits, value: self.value | at << (32 - u32::from(bits)) };
        (bits <= Self::BITS_MAX).then(|| [0, 1, 2, 3, 4, 5, 6, 7].map(part))
    }

    /// Which of the fragments into which this one is split has the names of this hash.
    #[must_use]
    pub fn place_of(self, hash: u32) -> usize {
        let bits = u32::from(self.bits + Self::SPLIT_BITS).min(32);
        (hash >> (32 - bits)) as usize & (Self::SPLIT_WAYS - 1)
    }

    /// Whether a name of this hash belongs to the fragment.
    #[must_use]
    pub fn contains(self, hash: u32) -> bool {
        self.bits == 0 || (hash ^ self.value) >> (32 - u32::from(self.bits)) == 0
    }
}

/// A directory fragment: the unit of authority and of storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirFragId {
    /// The directory.
    pub ino: Ino,
    /// Which part of it.
    pub frag: Frag,
}

impl fmt::Display for DirFragId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:08x}.{}", self.ino.0, self.frag.value, self.frag.bits)
    }
}
