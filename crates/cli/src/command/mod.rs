//! The commands, a file each.

pub(crate) mod bench;
pub(crate) mod cp;
pub(crate) mod decouple;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod down;
pub(crate) mod du;
pub(crate) mod find;
pub(crate) mod ingest;
pub(crate) mod journal;
pub(crate) mod ls;
pub(crate) mod mds;
pub(crate) mod merge;
pub(crate) mod mkdir;
pub(crate) mod mon;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod policy;
pub(crate) mod recover;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod umount;
pub(crate) mod up;
