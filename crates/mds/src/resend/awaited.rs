//! The requests on which a change from before a crash may depend.
//!
//! The server answered both before the crash, but only the client of the change received its
//! answer. The other client repeats its request like a new one, so only the operation shows that
//! the change depended on it.

use types::{EntryName, Errno};
use wire::{ChangeOp, Op};

/// Whether a request may remove the cause for which the server refuses a change.
#[allow(clippy::wildcard_enum_match_arm, reason = "few errors come from what another request did")]
pub(super) fn may_enable(request: &Op<'_>, change: &Op<'_>, errno: Errno) -> bool {
    let (Op::Change(request), Op::Change(change)) = (request, change) else { return false };
    match errno {
        Errno::NotFound => {
            let filled = Effect::of(request).filled;
            Effect::of(change).used().any(|name| filled.contains(&Some(name)))
        }
        // A removal or a rename frees the names that it uses.
        Errno::Exists | Errno::IsDirectory | Errno::NotDirectory => {
            let mut freed = Effect::of(request).used();
            freed.any(|name| change.about().names().any(|wanted| wanted == name))
        }
        // The target was below the directory that is renamed.
        Errno::Invalid => {
            let both = (request, change);
            matches!(both, (ChangeOp::Rename { .. }, ChangeOp::Rename { .. }))
        }
        // The number of the directory that must be empty is not in the change.
        Errno::NotEmpty => Effect::of(request).used().next().is_some(),
        Errno::Access | Errno::NotPermitted => {
            let ChangeOp::SetAttr { ino, .. } = request else { return false };
            change.about().inodes().any(|inode| inode == *ino)
        }
        _ => false,
    }
}

/// The effect of a change on names.
#[derive(Default)]
struct Effect<'a> {
    /// Names that must exist, and that the change removes or moves.
    used: [Option<EntryName<'a>>; 2],
    /// Names that exist behind the change, and may be new.
    filled: [Option<EntryName<'a>>; 2],
}

impl<'a> Effect<'a> {
    fn of(op: &ChangeOp<'a>) -> Self {
        match *op {
            ChangeOp::Create { parent, name, .. } | ChangeOp::Link { parent, name, .. } => {
                Self { filled: [Some(EntryName::new(parent, name)), None], ..Self::default() }
            }
            ChangeOp::Restore { parent, name, .. } => {
                Self { filled: [Some(EntryName::new(parent, name)), None], ..Self::default() }
            }
            ChangeOp::Unlink { parent, name }
            | ChangeOp::Rmdir { parent, name }
            | ChangeOp::Discard { parent, name } => {
                Self { used: [Some(EntryName::new(parent, name)), None], ..Self::default() }
            }
            ChangeOp::Rename { parent, name, new_parent, new_name, flags } => {
                let (from, to) =
                    (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
                let exchanged = |other| flags.exchange.then_some(other);
                Self { used: [Some(from), exchanged(to)], filled: [Some(to), exchanged(from)] }
            }
            ChangeOp::SetAttr { .. }
            | ChangeOp::Accessed { .. }
            | ChangeOp::SetXattr { .. }
            | ChangeOp::SetData { .. }
            | ChangeOp::SetPolicy { .. }
            | ChangeOp::Grow { .. }
            | ChangeOp::Append { .. }
            | ChangeOp::EmptyTrash { .. } => Self::default(),
        }
    }

    fn used(&self) -> impl Iterator<Item = EntryName<'a>> + use<'a> {
        self.used.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use types::{AttrChange, Ino};
    use wire::{NewInode, ReadOp, RenameFlags};

    use super::*;

    const DIR: Ino = Ino(7);

    fn create(name: &[u8]) -> Op<'_> {
        Op::Change(ChangeOp::Create { parent: DIR, name, new: NewInode::default() })
    }

    fn unlink(name: &[u8]) -> Op<'_> {
        Op::Change(ChangeOp::Unlink { parent: DIR, name })
    }

    fn rename<'a>(name: &'a [u8], new_name: &'a [u8], exchange: bool) -> Op<'a> {
        let flags = RenameFlags { exchange, no_replace: false };
        Op::Change(ChangeOp::Rename { parent: DIR, name, new_parent: DIR, new_name, flags })
    }

    #[test]
    fn a_change_that_lacks_a_name_awaits_a_request_that_makes_it() {
        for (change, request, expected) in [
            (unlink(b"a"), create(b"a"), true),
            (unlink(b"a"), create(b"b"), false),
            (unlink(b"a"), rename(b"b", b"a", false), true),
            (unlink(b"a"), rename(b"a", b"b", false), false),
            (unlink(b"a"), rename(b"a", b"b", true), true),
            (rename(b"a", b"b", false), create(b"a"), true),
            (rename(b"a", b"b", false), create(b"b"), false),
            (rename(b"a", b"b", true), create(b"b"), true),
            (create(b"a"), create(b"a"), false),
            (unlink(b"a"), Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" }), false),
        ] {
            let found = may_enable(&request, &change, Errno::NotFound);
            assert_eq!(found, expected, "{request:?} before {change:?}");
        }
    }

    #[test]
    fn a_change_that_lacks_a_free_name_awaits_a_request_that_frees_it() {
        for (change, request, expected) in [
            (create(b"a"), unlink(b"a"), true),
            (create(b"a"), unlink(b"b"), false),
            (create(b"a"), rename(b"a", b"b", false), true),
            (create(b"a"), rename(b"b", b"a", false), false),
            (rename(b"b", b"a", false), unlink(b"a"), true),
            (create(b"a"), create(b"a"), false),
        ] {
            for errno in [Errno::Exists, Errno::IsDirectory, Errno::NotDirectory] {
                let found = may_enable(&request, &change, errno);
                assert_eq!(found, expected, "{request:?} before {change:?}, {errno:?}");
            }
        }
    }

    #[test]
    fn a_change_that_lacks_an_empty_directory_awaits_any_removal() {
        let change = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"d" });
        assert!(may_enable(&unlink(b"a"), &change, Errno::NotEmpty));
        assert!(!may_enable(&create(b"a"), &change, Errno::NotEmpty));
    }

    #[test]
    fn a_rename_below_itself_awaits_any_rename() {
        let change = rename(b"a", b"b", false);
        assert!(may_enable(&rename(b"c", b"d", false), &change, Errno::Invalid));
        assert!(!may_enable(&unlink(b"c"), &change, Errno::Invalid));
        assert!(!may_enable(&rename(b"c", b"d", false), &create(b"a"), Errno::Invalid));
    }

    #[test]
    fn a_change_that_lacks_permission_awaits_new_attributes_of_its_directory() {
        let mode = |ino| Op::Change(ChangeOp::SetAttr { ino, change: AttrChange::default() });
        for errno in [Errno::Access, Errno::NotPermitted] {
            assert!(may_enable(&mode(DIR), &create(b"a"), errno));
            assert!(!may_enable(&mode(Ino::ROOT), &create(b"a"), errno));
        }
    }

    #[test]
    fn no_request_removes_another_cause() {
        for errno in [Errno::Stale, Errno::NoSpace, Errno::Busy] {
            assert!(!may_enable(&create(b"a"), &unlink(b"a"), errno), "{errno:?}");
        }
    }
}
