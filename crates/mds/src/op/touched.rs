//! The part of [`wire::About`] by which a request is admitted.

use namespace::Namespace;
use types::{Ino, Path};
use wire::{About, Op, SessionOp};

/// The inodes and names that must be here, and free, for a request to be executed.
pub(crate) fn touched<'a>(op: &Op<'a>) -> About<'a> {
    match op {
        // Open and lock state has no name, and a client gives up only its own.
        Op::Session(op) if !matches!(op, SessionOp::Open { .. }) => About::default(),
        // These are about the decoupling.
        Op::Job(_) => About::default(),
        Op::Read(_) | Op::Change(_) | Op::Session(_) | Op::Rank(_) | Op::Admin(_) => op.about(),
    }
}

/// The directories on a path, as far as they are in memory, and the one in which it ends.
pub(crate) fn way(namespace: &Namespace, base: Ino, path: &[u8]) -> Vec<Ino> {
    let mut way = vec![base];
    let Ok(path) = Path::parse(path) else { return way };
    let mut at = base;
    for name in path.components() {
        let Ok(Some(ino)) = namespace.peek(at, name) else { break };
        way.extend(place_of(namespace, ino));
        at = ino;
    }
    way
}

/// The inode itself if it is a directory, else its home.
pub(crate) fn place_of(namespace: &Namespace, ino: Ino) -> Option<Ino> {
    if namespace.is_dir(ino) { Some(ino) } else { namespace.home_of(ino) }
}
