//! Errors of Ceph, for people: the request, its meaning, the remedy.

use types::{Errno, Error};

use super::sys::Code;

/// The error of a request: its subject, the operation, and Ceph's code.
pub(super) fn to_error(subject: &str, doing: &str, code: Code) -> Error {
    let errno = u16::try_from(-code.0).map_or(Errno::Io, Errno::from_code);
    let (errno, cause, remedy) = match -code.0 {
        // ENOSPC, EDQUOT
        28 | 122 => (
            Errno::NoSpace,
            "the pool, its quota or an OSD is full".to_owned(),
            "see `ceph df` and `ceph health detail`; delete, or add OSDs, or raise the quota",
        ),
        // ESHUTDOWN
        108 => (
            Errno::Stale,
            "this process was shut out of the store (blocklisted): another took over from it"
                .to_owned(),
            "nothing to do if that one serves; else start this one again",
        ),
        110 => (
            Errno::TimedOut,
            "the cluster did not answer in time; whether it was done is not known".to_owned(),
            "see `ceph health detail`; op_timeout in the address of the store sets the time",
        ),
        // EPERM, EACCES
        1 | 13 => (
            Errno::Access,
            "Ceph does not allow this user to do that".to_owned(),
            "see `ceph auth get client.ID`; the administrator's guide lists what is needed",
        ),
        // Ceph's settings limit the size of objects, and of one write.
        27 | 90 => (
            Errno::TooBig,
            "larger than the cluster allows".to_owned(),
            "leave osd_max_object_size and osd_max_write_size at 5 MiB or more",
        ),
        // ENOTCONN
        107 => (Errno::Io, "not connected to the cluster".to_owned(), "see `ceph status`"),
        _ if errno == Errno::Io => {
            (errno, format!("error {} of the cluster", -code.0), "see `ceph health detail`")
        }
        _ => (errno, errno.text().to_owned(), "see `ceph health detail`"),
    };
    Error::new(errno, subject, format!("cannot {doing}: {cause}")).remedy(remedy)
}
