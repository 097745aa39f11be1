//! The agreement between the keeper of a region and the programs of its job: values in the region,
//! and requests over a socket.

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
