//! The requests of a client to a metadata server.

mod kind;
mod parts;

use types::bytes::{Malformed, Put, Reader};
use types::{AttrChange, ClientId, Ino, Lock, Rank, RenameFlags, Timestamp, XattrFlags};

use crate::UnusedNumbers;
use crate::codec::{boolean, change, lock, option, put_change, put_lock, put_option, timestamp};
pub use kind::OpClass;
pub(crate) use parts::{flags, ino};
use parts::{merge_bits, new, put_ino, put_name, put_new, put_number};

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Owner and group, if not the caller's (only root may choose).
    pub owner: Option<(u32, u32)>,
    /// Device number of a device file.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Its mtime, if not the time of the request.
    pub mtime: Option<Timestamp>,
    /// Its atime, if not its mtime.
    pub atime: Option<Timestamp>,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
    /// It is a file that the client has open for writing from then on ([`Op::Open`]).
    pub open: bool,
}

/// How to merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeFlags {
    /// Only report the result of a merge.
    pub dry_run: bool,
    /// Release the subtree when done.
    pub release: bool,
    /// Leave out and report events that break a rule (`check: merge`, F-07). The server does so in
    /// any case if the policy demands it.
    pub check: bool,
    /// The journal is a client's log of strong operations, re-applied after the server lost them
    /// (strong consistency with local durability); no decoupled subtree is involved.
    pub strong_log: bool,
    /// Answer when the result is in the metadata store (Nonvolatile Apply, M-05).
    pub store: bool,
    /// In front of the journal is a list of runs that the client stored (merge by reference).
    pub by_reference: bool,
}

/// A request to a metadata server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum Op<'a> {
    /// Attributes of a name in a directory.
    Lookup { parent: Ino, name: &'a [u8] },
    /// Where a path leads from a directory.
    Walk { base: Ino, path: &'a [u8] },
    /// Attributes of an inode.
    GetAttr { ino: Ino },
    /// `create`, `mkdir`, `symlink`, `mknod`.
    Create { parent: Ino, name: &'a [u8], new: NewInode<'a> },
    /// One more name for an inode.
    Link { ino: Ino, parent: Ino, name: &'a [u8] },
    /// Removes a name of anything but a directory.
    Unlink { parent: Ino, name: &'a [u8] },
    /// Removes an empty directory.
    Rmdir { parent: Ino, name: &'a [u8] },
    /// Moves or swaps names.
    Rename { parent: Ino, name: &'a [u8], new_parent: Ino, new_name: &'a [u8], flags: RenameFlags },
    /// Changes attributes.
    SetAttr { ino: Ino, change: AttrChange },
    /// Content was read then: the time of the last access, unless a later one is known. Nothing
    /// else changes.
    Accessed { ino: Ino, at: Timestamp },
    /// An extended attribute.
    GetXattr { ino: Ino, name: &'a [u8] },
    /// The names of all extended attributes.
    ListXattr { ino: Ino },
    /// Sets or, without a value, removes an extended attribute.
    SetXattr { ino: Ino, name: &'a [u8], value: Option<&'a [u8]>, flags: XattrFlags },
    /// Inline content or link target.
    GetData { ino: Ino },
    /// Replaces inline content, and sets the size.
    SetData { ino: Ino, data: &'a [u8], size: u64 },
    /// Up to `limit` entries after a name.
    List { dir: Ino, after: Option<&'a [u8]>, limit: u32, attrs: bool },
    /// Answered when everything this client was told is durable (`fsync`).
    Sync,
    /// The effective policy of a directory.
    GetPolicy { dir: Ino },
    /// Stores a policy in a directory, or removes it; sent by the monitor on behalf of a client (0
    /// for one that owns no subtree).
    SetPolicy { path: &'a [u8], policy: &'a [u8], client: ClientId },
    /// Gives a subtree to one client; sent by the monitor.
    Decouple { path: &'a [u8], client: ClientId, policy: &'a [u8] },
    /// More inode numbers for a decoupled subtree or, with 0 in its place, for the client's creates
    /// in directories with an exclusive capability ([`crate::Grants::exclusive`]).
    Extend { subtree: Ino, count: u64 },
    /// Announces a merge: `bytes` of journal follow as chunks with this request's id. `object` is
    /// where the journal is kept in the object store, if it is (Global Persist). Numbers that are
    /// `unused` go back with the subtree, if it is released.
    Merge {
        subtree: Ino,
        bytes: u64,
        object: &'a [u8],
        flags: MergeFlags,
        unused: UnusedNumbers<'a>,
    },
    /// Ends a decoupling without a merge.
    Release { subtree: Ino, unused: UnusedNumbers<'a> },
    /// Makes a decoupled subtree the asking client's, and fences the client that had it.
    TakeOver { subtree: Ino },
    /// Writes everything to the metadata store and trims the journal.
    Checkpoint,
    /// Opens a file: its attributes and inline content, and whether it is shared. Opening it twice
    /// is opening it once; reading and writing count apart.
    Open { ino: Ino, write: bool },
    /// Ends one or more `Open` of this kind.
    Close { ino: Ino, write: bool },
    /// Registers the client's open file at a server that does not know it.
    Reopen { ino: Ino, access: Access },
    /// The answer to a recall: unwritten data is written, and the file is shared from now on. For
    /// the root of a subtree that the client has decoupled: its journal is merged.
    Yield { ino: Ino },
    /// Makes a file at least this long.
    Grow { ino: Ino, size: u64 },
    /// Makes a file so many bytes longer: the caller writes there, before the new end.
    Append { ino: Ino, length: u64 },
    /// Sets, changes or gives up a lock. With `wait` it is answered when the lock is set.
    Lock { ino: Ino, lock: Lock, wait: bool },
    /// Ends a pending wait for a lock.
    CancelLock { ino: Ino, lock: Lock },
    /// The first lock of another owner that this one would have to wait for.
    GetLock { ino: Ino, lock: Lock },
    /// The client remembers nothing about a directory any more, and gives its capability back.
    Return { dir: Ino },
    /// Answered when everything is carried out that the client sent before without waiting for an
    /// answer ([`crate::Request::is_async`]), with the position of the last of it.
    AwaitAsync,
    /// Has a directory and everything below it served by another rank, while clients work there
    /// (B-03). Answered when that rank is the authority.
    Export { dir: Ino, rank: Rank },
    /// Of another rank only: moves a directory to a rank, because one rank must serve both ends of
    /// a link or rename; for a file, the directory that has its only name. Pinned subtrees stay.
    /// The user needs write permission there. Answered as `Export`.
    Colocate { ino: Ino, rank: Rank },
    /// Takes a snapshot of a directory and everything visible below it. The requester chooses an
    /// unused `id` (BF-03).
    Snapshot { dir: Ino, id: u64 },
    /// Takes a subtree for the requesting client to merge the branch of this name, with the inode
    /// numbers of that branch. With `block` other clients get EBUSY there until the end.
    Adopt { subtree: Ino, branch: &'a [u8], block: bool },
    /// Writes all of a directory to the metadata store, for a client that reads it there (U-04): of
    /// the one under a name, or of `parent` itself if the name is empty. Answered after that, with
    /// its attributes; numbers of entries and links are left out.
    WriteDown { parent: Ino, name: &'a [u8] },
    /// The client that may still have runs linked in a directory with this number: the owner of the
    /// decoupled subtree with this root, or of the number. The answer is the client's number as
    /// eight bytes, 0 for none.
    Held { ino: Ino },
    /// Splits a directory, or a fragment of one, into eight fragments by the hashes of its names,
    /// while clients work there (B-04). Answered at the end.
    Split { dir: Ino },
    /// Joins the fragments of a directory again. All of them must be on the directory's rank.
    Join { dir: Ino },
    /// Of another rank only: takes the name that this rank offers, into the directory that the
    /// offer names (F-13).
    Arrive { dir: Ino, from: Rank, cross_rename: u64 },
}

/// How a client has a file open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// It keeps nothing about the file.
    pub shared: bool,
}

impl Op<'_> {
    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Op::Lookup { parent, name } => put_name(out, 1, parent, name),
            Op::Walk { base, path } => put_name(out, 2, base, path),
            Op::GetAttr { ino } => put_ino(out, 3, ino),
            Op::Create { parent, name, ref new } => {
                put_name(out, 4, parent, name);
                put_new(out, new);
            }
            Op::Link { ino, parent, name } => {
                put_name(out, 5, parent, name);
                out.put_varint(ino.0);
            }
            Op::Unlink { parent, name } => put_name(out, 6, parent, name),
            Op::Rmdir { parent, name } => put_name(out, 7, parent, name),
            Op::Rename { parent, name, new_parent, new_name, flags } => {
                put_name(out, 8, parent, name);
                out.put_varint(new_parent.0);
                out.put_bytes(new_name);
                out.put_u8(u8::from(flags.no_replace) | u8::from(flags.exchange) << 1);
            }
            Op::SetAttr { ino, ref change } => {
                put_ino(out, 9, ino);
                put_change(out, change);
            }
            Op::GetXattr { ino, name } => put_name(out, 10, ino, name),
            Op::ListXattr { ino } => put_ino(out, 11, ino),
            Op::SetXattr { ino, name, value, flags } => {
                put_name(out, 12, ino, name);
                put_option(out, value, |out, value| out.put_bytes(value));
                out.put_u8(u8::from(flags.create) | u8::from(flags.replace) << 1);
            }
            Op::GetData { ino } => put_ino(out, 13, ino),
            Op::SetData { ino, data, size } => {
                put_name(out, 14, ino, data);
                out.put_varint(size);
            }
            Op::List { dir, after, limit, attrs } => {
                put_ino(out, 15, dir);
                put_option(out, after, |out, after| out.put_bytes(after));
                out.put_varint(u64::from(limit));
                out.put_u8(u8::from(attrs));
            }
            Op::Sync => out.put_u8(16),
            Op::GetPolicy { dir } => put_ino(out, 17, dir),
            Op::SetPolicy { path, policy, client } => {
                out.put_u8(18);
                out.put_bytes(path);
                out.put_bytes(policy);
                out.put_varint(client.0);
            }
            Op::Decouple { path, client, policy } => {
                out.put_u8(19);
                out.put_bytes(path);
                out.put_varint(client.0);
                out.put_bytes(policy);
            }
            Op::Extend { subtree, count } => {
                put_ino(out, 20, subtree);
                out.put_varint(count);
            }
            Op::Merge { subtree, bytes, object, flags, unused } => {
                put_name(out, 21, subtree, object);
                out.put_varint(bytes);
                out.put_u8(merge_bits(flags));
                out.put_bytes(unused.bytes());
            }
            Op::Release { subtree, unused } => put_name(out, 22, subtree, unused.bytes()),
            Op::Checkpoint => out.put_u8(23),
            Op::TakeOver { subtree } => put_ino(out, 24, subtree),
            Op::Open { ino, write } => put_number(out, 25, ino, u64::from(write)),
            Op::Close { ino, write } => put_number(out, 26, ino, u64::from(write)),
            Op::Reopen { ino, access } => {
                put_ino(out, 27, ino);
                let Access { read, write, shared } = access;
                out.put_u8(u8::from(read) | u8::from(write) << 1 | u8::from(shared) << 2);
            }
            Op::Yield { ino } => put_ino(out, 28, ino),
            Op::Grow { ino, size } => put_number(out, 29, ino, size),
            Op::Append { ino, length } => put_number(out, 30, ino, length),
            Op::Lock { ino, ref lock, wait } => {
                put_ino(out, 31, ino);
                put_lock(out, lock);
                out.put_u8(u8::from(wait));
            }
            Op::CancelLock { ino, ref lock } => {
                put_ino(out, 32, ino);
                put_lock(out, lock);
            }
            Op::GetLock { ino, ref lock } => {
                put_ino(out, 33, ino);
                put_lock(out, lock);
            }
            Op::Return { dir } => put_ino(out, 35, dir),
            Op::AwaitAsync => out.put_u8(36),
            Op::Export { dir, rank } => {
                put_ino(out, 37, dir);
                out.put_varint(u64::from(rank.0));
            }
            Op::Colocate { ino, rank } => {
                put_ino(out, 52, ino);
                out.put_varint(u64::from(rank.0));
            }
            Op::Snapshot { dir, id } => put_number(out, 45, dir, id),
            Op::Adopt { subtree, branch, block } => {
                put_name(out, 46, subtree, branch);
                out.put_u8(u8::from(block));
            }
            Op::WriteDown { parent, name } => put_name(out, 38, parent, name),
            Op::Held { ino } => put_ino(out, 39, ino),
            Op::Split { dir } => put_ino(out, 47, dir),
            Op::Join { dir } => put_ino(out, 48, dir),
            Op::Arrive { dir, from, cross_rename } => {
                put_number(out, 50, dir, cross_rename);
                out.put_varint(u64::from(from.0));
            }
            Op::Accessed { ino, at } => {
                put_ino(out, 34, ino);
                out.put_signed(at.0);
            }
        }
    }
}

impl<'a> Op<'a> {
    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            1 => Op::Lookup { parent: ino(reader)?, name: reader.bytes()? },
            2 => Op::Walk { base: ino(reader)?, path: reader.bytes()? },
            3 => Op::GetAttr { ino: ino(reader)? },
            4 => Op::Create { parent: ino(reader)?, name: reader.bytes()?, new: new(reader)? },
            5 => {
                let (parent, name) = (ino(reader)?, reader.bytes()?);
                Op::Link { ino: ino(reader)?, parent, name }
            }
            6 => Op::Unlink { parent: ino(reader)?, name: reader.bytes()? },
            7 => Op::Rmdir { parent: ino(reader)?, name: reader.bytes()? },
            8 => Op::Rename {
                parent: ino(reader)?,
                name: reader.bytes()?,
                new_parent: ino(reader)?,
                new_name: reader.bytes()?,
                flags: {
                    let [no_replace, exchange, ..] = flags(reader, 2)?;
                    RenameFlags { no_replace, exchange }
                },
            },
            9 => Op::SetAttr { ino: ino(reader)?, change: change(reader)? },
            10 => Op::GetXattr { ino: ino(reader)?, name: reader.bytes()? },
            11 => Op::ListXattr { ino: ino(reader)? },
            12 => Op::SetXattr {
                ino: ino(reader)?,
                name: reader.bytes()?,
                value: option(reader, Reader::bytes)?,
                flags: {
                    let [create, replace, ..] = flags(reader, 2)?;
                    XattrFlags { create, replace }
                },
            },
            13 => Op::GetData { ino: ino(reader)? },
            14 => Op::SetData { ino: ino(reader)?, data: reader.bytes()?, size: reader.varint()? },
            15 => Op::List {
                dir: ino(reader)?,
                after: option(reader, Reader::bytes)?,
                limit: reader.varint_u32()?,
                attrs: boolean(reader)?,
            },
            16 => Op::Sync,
            17 => Op::GetPolicy { dir: ino(reader)? },
            18 => Op::SetPolicy {
                path: reader.bytes()?,
                policy: reader.bytes()?,
                client: ClientId(reader.varint()?),
            },
            19 => Op::Decouple {
                path: reader.bytes()?,
                client: ClientId(reader.varint()?),
                policy: reader.bytes()?,
            },
            20 => Op::Extend { subtree: ino(reader)?, count: reader.varint()? },
            21 => {
                let (subtree, object) = (ino(reader)?, reader.bytes()?);
                let bytes = reader.varint()?;
                let [dry_run, release, check, strong_log, store, by_reference] = flags(reader, 6)?;
                let flags = MergeFlags { dry_run, release, check, strong_log, store, by_reference };
                Op::Merge { subtree, bytes, object, flags, unused: UnusedNumbers::decode(reader)? }
            }
            22 => Op::Release { subtree: ino(reader)?, unused: UnusedNumbers::decode(reader)? },
            23 => Op::Checkpoint,
            24 => Op::TakeOver { subtree: ino(reader)? },
            25 => Op::Open { ino: ino(reader)?, write: boolean(reader)? },
            26 => Op::Close { ino: ino(reader)?, write: boolean(reader)? },
            27 => {
                let ino = ino(reader)?;
                let [read, write, shared, ..] = flags(reader, 3)?;
                Op::Reopen { ino, access: Access { read, write, shared } }
            }
            28 => Op::Yield { ino: ino(reader)? },
            29 => Op::Grow { ino: ino(reader)?, size: reader.varint()? },
            30 => Op::Append { ino: ino(reader)?, length: reader.varint()? },
            31 => Op::Lock { ino: ino(reader)?, lock: lock(reader)?, wait: boolean(reader)? },
            32 => Op::CancelLock { ino: ino(reader)?, lock: lock(reader)? },
            33 => Op::GetLock { ino: ino(reader)?, lock: lock(reader)? },
            35 => Op::Return { dir: ino(reader)? },
            36 => Op::AwaitAsync,
            39 => Op::Held { ino: ino(reader)? },
            47 => Op::Split { dir: ino(reader)? },
            48 => Op::Join { dir: ino(reader)? },
            50 => {
                let (dir, cross_rename) = (ino(reader)?, reader.varint()?);
                Op::Arrive { dir, from: crate::map::rank(reader)?, cross_rename }
            }
            38 => Op::WriteDown { parent: ino(reader)?, name: reader.bytes()? },
            37 => Op::Export { dir: ino(reader)?, rank: crate::map::rank(reader)? },
            52 => Op::Colocate { ino: ino(reader)?, rank: crate::map::rank(reader)? },
            45 => Op::Snapshot { dir: ino(reader)?, id: reader.varint()? },
            46 => Op::Adopt {
                subtree: ino(reader)?,
                branch: reader.bytes()?,
                block: boolean(reader)?,
            },
            34 => Op::Accessed { ino: ino(reader)?, at: timestamp(reader)? },
            _ => return Err(start.malformed("a known operation")),
        })
    }
}
