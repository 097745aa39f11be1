//! Errors: one errno each, and for people the path, the cause and the remedy.

use std::fmt;

use crate::quote::{printable, quoted};

/// The result of anything that can fail in front of a user.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal, $text:literal;)*) => {
        /// The error numbers this system returns, with Linux's values. A kind exists only if a
        /// caller can act on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Errno { $($(#[$doc])* $name = $code,)* }

        impl Errno {
            /// The symbol, such as `ENOENT`.
            #[must_use]
            pub fn symbol(self) -> &'static str {
                match self { $(Self::$name => $symbol,)* }
            }

            /// A few words, such as `no such file or directory`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// From Linux's number; unknown numbers become [`Errno::Io`].
            #[must_use]
            pub fn from_code(code: u16) -> Self {
                match code { $($code => Self::$name,)* _ => Self::Io }
            }
        }
    };
}

errnos! {
    /// Permitted only to the owner or root.
    NotPermitted = 1, "EPERM", "operation not permitted";
    /// No such name or inode.
    NotFound = 2, "ENOENT", "no such file or directory";
    /// Waiting was ended from outside.
    Interrupted = 4, "EINTR", "interrupted";
    /// The store or the network failed.
    Io = 5, "EIO", "input/output error";
    /// Nothing is there: beyond the end, or beyond the last data of a file.
    NoSuchPlace = 6, "ENXIO", "no such place";
    /// Try the request again later.
    Again = 11, "EAGAIN", "not now, try again";
    /// Permission denied.
    Access = 13, "EACCES", "permission denied";
    /// A decoupled subtree blocks other clients, or another owner holds the lock.
    Busy = 16, "EBUSY", "device or resource busy";
    /// The name exists.
    Exists = 17, "EEXIST", "file exists";
    /// A rename or link would cross a border that must not be crossed.
    CrossDevice = 18, "EXDEV", "not in the same subtree";
    /// A directory was needed.
    NotDirectory = 20, "ENOTDIR", "not a directory";
    /// A directory was given where it must not be.
    IsDirectory = 21, "EISDIR", "is a directory";
    /// Malformed input.
    Invalid = 22, "EINVAL", "invalid argument";
    /// Larger than the format or the limit allows.
    TooBig = 27, "EFBIG", "too large";
    /// The store is full, or a range of inodes is used up.
    NoSpace = 28, "ENOSPC", "no space left";
    /// The mount or the store is read-only.
    ReadOnly = 30, "EROFS", "read-only";
    /// The link count is at its maximum.
    TooManyLinks = 31, "EMLINK", "too many links";
    /// A result does not fit.
    Range = 34, "ERANGE", "result too large";
    /// Waiting for a lock would never end.
    Deadlock = 35, "EDEADLK", "waiting would never end";
    /// A name is longer than 255 bytes, or a path than 4095.
    NameTooLong = 36, "ENAMETOOLONG", "name too long";
    /// No more locks can be waited for.
    NoLocks = 37, "ENOLCK", "no locks available";
    /// The file system does not have this operation: a kernel uses a substitute of its own.
    NotImplemented = 38, "ENOSYS", "not implemented";
    /// The directory has entries.
    NotEmpty = 39, "ENOTEMPTY", "directory not empty";
    /// Too many symbolic links on the way.
    Loop = 40, "ELOOP", "too many symbolic links";
    /// No such extended attribute.
    NoData = 61, "ENODATA", "no such attribute";
    /// Another metadata server has the authority: send the request there.
    Remote = 66, "EREMOTE", "served by another metadata server";
    /// The bytes are not in the format they claim: truncated, corrupt or foreign.
    BadMessage = 74, "EBADMSG", "bad message";
    /// The operation or mechanism is not available here.
    NotSupported = 95, "EOPNOTSUPP", "operation not supported";
    /// The address is in use.
    AddressInUse = 98, "EADDRINUSE", "address already in use";
    /// No answer came in time.
    TimedOut = 110, "ETIMEDOUT", "timed out";
    /// Nobody listens there.
    Refused = 111, "ECONNREFUSED", "connection refused";
    /// The handle belongs to an earlier life of the server or the subtree.
    Stale = 116, "ESTALE", "stale handle";
    /// A quota of a directory, or a hard limit of a policy, is reached.
    Quota = 122, "EDQUOT", "quota or limit of the policy reached";
    /// The operation was cancelled.
    Canceled = 125, "ECANCELED", "cancelled";
}

impl Errno {
    /// Linux's number.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.symbol())
    }
}

impl std::error::Error for Errno {}

/// An error for people: its object, its cause, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The one error number it maps to.
    pub errno: Errno,
    /// The path, object or option it is about; may be empty.
    pub subject: String,
    /// The cause, in words.
    pub cause: String,
    /// The remedy; may be empty.
    pub remedy: String,
}

impl Error {
    /// An error with a cause.
    #[must_use]
    pub fn new(errno: Errno, subject: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { errno, subject: subject.into(), cause: cause.into(), remedy: String::new() }
    }

    /// An error with the errno as its cause.
    #[must_use]
    pub fn of(errno: Errno, subject: impl Into<String>) -> Self {
        Self::new(errno, subject, errno.text())
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Names the subject if none is named yet.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        if self.subject.is_empty() {
            self.subject = subject.into();
        }
        self
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::of(errno, "")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each may contain a name that a user chose in order to forge this message.
        if self.subject.contains(char::is_control) {
            write!(f, "{}: ", quoted(self.subject.as_bytes()))?;
        } else if !self.subject.is_empty() {
            write!(f, "{}: ", self.subject)?;
        }
        write!(f, "{} ({})", printable(&self.cause), self.errno.symbol())?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", printable(&self.remedy))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
