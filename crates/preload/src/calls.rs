//! The functions that take the place of libc's, by subject.
#![allow(unreachable_pub, reason = "the functions are called by programs, not by this crate")]

mod aliases;
mod attributes;
mod content;
mod directories;
mod durability;
mod memory;
mod names;
mod nodes;
mod numbers;
mod open;
mod permissions;
mod process;
mod space;
mod streams;
mod times;
mod transfer;
mod working;
mod xattrs;

use std::ffi::c_int;

use jobtree::{Denied, Identity, Inode, JobRegion, may};

/// Refuses an access to an inode that the identity may not have.
fn check(region: &JobRegion, inode: Inode, wanted: u32, cred: &Identity<'_>) -> Result<(), Denied> {
    if may(region, inode, wanted, cred) { Ok(()) } else { Err(Denied::Errno(libc::EACCES)) }
}

/// Whether an identity owns an inode, or is root.
fn owns(region: &JobRegion, inode: Inode, cred: &Identity<'_>) -> bool {
    cred.uid == 0 || region.owner(inode).0 == cred.uid
}

/// The result of a system call of the kernel, made outside of the region.
fn made(result: i64) -> Result<c_int, Denied> {
    if result < 0 { Err(Denied::Errno(crate::real::errno())) } else { Ok(result as c_int) }
}
