//! The peers: other file systems and stores that are measured in the same run.

pub(crate) mod cephfs;
pub(crate) mod juicefs;
mod mounted;
pub(crate) mod rados;
pub(crate) mod seaweedfs;

pub(crate) use mounted::Fuse;
