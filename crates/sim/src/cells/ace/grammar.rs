//! The operations of the workloads, with all of their arguments, in a fixed order.
//!
//! Files are `A/foo`, `A/bar` and `B/foo`, directories `A`, `B` and `A/C`, as in ACE. The core has
//! content as the inline bytes and the size of an inode: *write* and *append* replace the bytes,
//! *truncate* and *falloc* set the size. It has one request for `fsync`, `fdatasync` and `sync`.

use std::fmt;

/// An operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AceOp {
    /// A new empty file.
    Create(&'static str),
    /// A new directory.
    Mkdir(&'static str),
    /// A second name for a file.
    Link(&'static str, &'static str),
    /// A symbolic link.
    Symlink(&'static str),
    /// A file or directory gets another name, and replaces an entry of that name.
    Rename(&'static str, &'static str),
    /// Two files swap their names.
    Exchange(&'static str, &'static str),
    /// A name of a file goes.
    Unlink(&'static str),
    /// An empty directory goes.
    Rmdir(&'static str),
    /// The content is replaced.
    Write(&'static str),
    /// The content becomes longer.
    Append(&'static str),
    /// The content becomes shorter.
    Truncate(&'static str),
    /// The size grows, without content.
    Falloc(&'static str),
    /// Permissions, owner and time of the last change.
    SetAttr(&'static str),
    /// An extended attribute gets a value.
    SetXattr(&'static str),
    /// An extended attribute goes.
    RemoveXattr(&'static str),
    /// The policy is completed, or the requests become durable.
    Sync,
    /// Namespace sync: the pending updates are merged as a part.
    SyncPart,
    /// The client takes the subtree.
    Decouple,
    /// The client merges its updates and gives the subtree back.
    Merge,
    /// Another cell becomes the policy of the subtree.
    Policy(&'static str),
    /// A snapshot of the subtree, which is the begin of each branch.
    Branch,
}

use AceOp::{
    Append, Branch, Create, Decouple, Exchange, Falloc, Link, Merge, Mkdir, Policy, RemoveXattr,
    Rename, Rmdir, SetAttr, SetXattr, Symlink, Sync, SyncPart, Truncate, Unlink, Write,
};

/// Every operation with every argument. The position of an operation is a digit of the numbers of
/// workloads, so new operations go to the end.
pub(super) const ALPHABET: [AceOp; 39] = [
    Create("A/foo"),
    Create("A/bar"),
    Create("B/foo"),
    Mkdir("A/C"),
    Mkdir("B"),
    Link("A/foo", "A/bar"),
    Link("A/foo", "B/foo"),
    Symlink("A/bar"),
    Rename("A/foo", "A/bar"),
    Rename("A/bar", "A/foo"),
    Rename("A/foo", "B/foo"),
    Rename("B/foo", "A/foo"),
    Rename("A/C", "B"),
    Rename("A", "B"),
    Exchange("A/foo", "B/foo"),
    Unlink("A/foo"),
    Unlink("A/bar"),
    Unlink("B/foo"),
    Rmdir("A/C"),
    Rmdir("B"),
    Write("A/foo"),
    Write("B/foo"),
    Append("A/foo"),
    Truncate("A/foo"),
    Falloc("A/foo"),
    SetAttr("A/foo"),
    SetAttr("A"),
    SetXattr("A/foo"),
    SetXattr("A"),
    RemoveXattr("A/foo"),
    Sync,
    SyncPart,
    Decouple,
    Merge,
    Policy("strong-global"),
    Policy("strong-none"),
    Policy("weak-local"),
    Policy("invisible-global"),
    Branch,
];

impl fmt::Display for AceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Create(path) => write!(f, "create {path}"),
            Mkdir(path) => write!(f, "mkdir {path}"),
            Link(from, to) => write!(f, "link {from} {to}"),
            Symlink(path) => write!(f, "symlink {path}"),
            Rename(from, to) => write!(f, "rename {from} {to}"),
            Exchange(one, two) => write!(f, "exchange {one} {two}"),
            Unlink(path) => write!(f, "unlink {path}"),
            Rmdir(path) => write!(f, "rmdir {path}"),
            Write(path) => write!(f, "write {path}"),
            Append(path) => write!(f, "append {path}"),
            Truncate(path) => write!(f, "truncate {path}"),
            Falloc(path) => write!(f, "falloc {path}"),
            SetAttr(path) => write!(f, "setattr {path}"),
            SetXattr(path) => write!(f, "setxattr {path}"),
            RemoveXattr(path) => write!(f, "removexattr {path}"),
            Sync => write!(f, "sync"),
            SyncPart => write!(f, "sync part"),
            Decouple => write!(f, "decouple"),
            Merge => write!(f, "merge"),
            Policy(cell) => write!(f, "policy {cell}"),
            Branch => write!(f, "branch"),
        }
    }
}
