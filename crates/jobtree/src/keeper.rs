//! The agreement between the keeper of a region and the programs of its job: values in the region,
//! and requests over a socket.

use crate::Inode;

/// How the names of stand-ins begin.
const STAND_IN: &str = "cudele-stand-in-";

/// A value that the keeper tells the programs: see [`JobRegion::note`](crate::JobRegion::note).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Note {
    /// The device of the files in the mount.
    Device = 0,
    /// The device of the stand-ins.
    StandInDevice = 1,
    /// Not 0 if the policy persists: `fsync` is a request.
    Persists = 2,
    /// The PID namespace of the keeper: numbers of threads mean the same only there.
    PidNamespace = 3,
}

/// A request to the keeper. Its answer is an error number or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum KeeperRequest {
    /// Close the region: a call cannot be answered from it.
    Close = 1,
    /// No inode number is left.
    Numbers = 2,
    /// A descriptor for an open file description, which comes with the answer.
    Descriptor = 3,
    /// Make an inode as durable as the policy promises.
    Sync = 4,
}

impl KeeperRequest {
    /// Bytes of a request.
    pub const BYTES: usize = 16;
    const ALL: [Self; 4] = [Self::Close, Self::Numbers, Self::Descriptor, Self::Sync];

    /// The request as bytes, with the description or the inode that it is about, or 0.
    #[must_use]
    pub fn message(self, about: u64) -> [u8; Self::BYTES] {
        let mut message = [0; Self::BYTES];
        let (kind, rest) = message.split_at_mut(8);
        kind.copy_from_slice(&u64::from(self as u32).to_ne_bytes());
        rest.copy_from_slice(&about.to_ne_bytes());
        message
    }

    /// Reads such bytes.
    #[must_use]
    pub fn parse(message: [u8; Self::BYTES]) -> Option<(Self, u64)> {
        let (kind, about) = message.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
        let (kind, about) = (number(kind)?, number(about)?);
        let request = Self::ALL.into_iter().find(|request| u64::from(*request as u32) == kind);
        Some((request?, about))
    }
}

/// The beginning of the former name of a stand-in's file, by which a program that has a descriptor
/// of the file finds the inode.
#[must_use]
pub fn stand_in_prefix(inode: Inode) -> String {
    format!("{STAND_IN}{:x}.", inode.0)
}

/// The inode in what the kernel says of a descriptor (`/proc/self/fd`).
#[must_use]
pub fn inode_of_link(link: &[u8]) -> Option<Inode> {
    let name = link.rsplit(|byte| *byte == b'/').next()?;
    let digits = name.strip_prefix(STAND_IN.as_bytes())?.split(|byte| *byte == b'.').next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(Inode)
}
