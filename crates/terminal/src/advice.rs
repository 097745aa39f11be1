//! Remedies for errors that carry none.
//!
//! Invariant: a remedy of the error itself takes precedence over the general one here.

use cudele::Errno;

/// The general remedy for an error number; empty if there is none.
pub(crate) fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NotPermitted => "only the owner or root may do this",
        Errno::NotFound => "`cudele ls` on the directory above shows what is there",
        Errno::Access => "`cudele stat` shows owner and mode; ask the owner, or act as root",
        Errno::Busy => {
            "another client works here alone: wait for its merge (`cudele status` shows who), or \
             give its work up with `cudele discard`"
        }
        Errno::Exists => "choose another name, or remove what is there first",
        Errno::NotDirectory => "a part of the path that must be a directory is none",
        Errno::IsDirectory => "name a file; commands that take directories need -r",
        Errno::NotEmpty => "empty it first, or remove it with `cudele rm -r`",
        Errno::NameTooLong => "a name has at most 255 bytes, a path 4095",
        Errno::NoSpace => "make room in the object store; reading goes on meanwhile",
        Errno::ReadOnly => "mount the store writable",
        Errno::TooManyLinks => "copy the file instead of linking it",
        Errno::Loop => "symbolic links are not followed: give the path of their target",
        Errno::Again => "try again in a moment; `cudele status` shows the state of the servers",
        Errno::TimedOut | Errno::Refused => {
            "`cudele status` shows what runs; `cudele up` starts what does not"
        }
        Errno::Stale => "it was removed or replaced meanwhile; run the command again",
        Errno::Quota => {
            "`cudele quota get` shows the limits of a directory; `allocated_inodes` and `limit` are \
             keys of its policy"
        }
        // The logs tell more: `Context::report` names them.
        Errno::BadMessage => "the data is damaged: keep a copy",
        Errno::Io => "",
        Errno::Invalid => "`--help` after the command shows its use",
        Errno::Interrupted
        | Errno::NoSuchPlace
        | Errno::NoLocks
        | Errno::Deadlock
        | Errno::CrossDevice
        | Errno::Remote
        | Errno::TooBig
        | Errno::Range
        | Errno::NoData
        | Errno::NotImplemented
        | Errno::NotSupported
        | Errno::AddressInUse
        | Errno::Canceled => "",
    }
}
