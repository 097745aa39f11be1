//! The identity of a caller and the manner of a call: both go with a request unchanged from the
//! client to the rules.

/// The identity for which a request is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cred {
    /// User; 0 may do everything.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// The superuser.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Whether this is the superuser.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the user is a member of a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail with `EEXIST` instead of replacing (`RENAME_NOREPLACE`).
    pub no_replace: bool,
    /// Swap the two names (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

/// A change of an extended attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrChange<'a> {
    /// The attribute's name.
    pub name: &'a [u8],
    /// Its new value; `None` removes the attribute.
    pub value: Option<&'a [u8]>,
    /// Whether it must be new, or must exist.
    pub flags: XattrFlags,
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFlags {
    /// Fail with `EEXIST` if the attribute exists (`XATTR_CREATE`).
    pub create: bool,
    /// Fail with `ENODATA` if it is not (`XATTR_REPLACE`).
    pub replace: bool,
}
