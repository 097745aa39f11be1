//! The inodes and names of a request, to decide whether it may be executed now and here.
//!
//! Not here: paths, which are known only where they are walked.

use namespace::Namespace;
use types::{Ino, Path};
use wire::Op;

type Touched<'a> = ([Option<Ino>; 2], [Option<(Ino, &'a [u8])>; 2]);

/// The inodes and names that a request is about.
pub(crate) fn touched<'a>(op: &Op<'a>) -> Touched<'a> {
    match *op {
        Op::WriteDown { parent, name: b"" } => ([Some(parent), None], [None; 2]),
        Op::Lookup { parent, name }
        | Op::WriteDown { parent, name }
        | Op::Create { parent, name, .. }
        | Op::Unlink { parent, name }
        | Op::Rmdir { parent, name } => ([Some(parent), None], [Some((parent, name)), None]),
        Op::Link { ino, parent, name } => ([Some(parent), Some(ino)], [Some((parent, name)), None]),
        Op::Arrive { dir, .. } => ([Some(dir), None], [None; 2]),
        Op::Rename { parent, name, new_parent, new_name, .. } => {
            ([Some(parent), Some(new_parent)], [Some((parent, name)), Some((new_parent, new_name))])
        }
        Op::GetAttr { ino }
        | Op::SetAttr { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::GetXattr { ino, .. }
        | Op::ListXattr { ino }
        | Op::SetXattr { ino, .. }
        | Op::GetData { ino }
        | Op::SetData { ino, .. }
        | Op::Open { ino, .. }
        | Op::Grow { ino, .. }
        | Op::Append { ino, .. }
        | Op::Export { dir: ino, .. }
        | Op::Colocate { ino, .. }
        | Op::Split { dir: ino }
        | Op::Join { dir: ino }
        | Op::Snapshot { dir: ino, .. }
        | Op::GetPolicy { dir: ino }
        | Op::List { dir: ino, .. } => ([Some(ino), None], [None; 2]),
        Op::Walk { base, .. } => ([Some(base), None], [None; 2]),
        // Open and lock state has no name, and a client gives up only its own.
        Op::Close { .. }
        | Op::Reopen { .. }
        | Op::Yield { .. }
        | Op::Lock { .. }
        | Op::CancelLock { .. }
        | Op::GetLock { .. }
        | Op::AwaitAsync
        | Op::Return { .. } => ([None; 2], [None; 2]),
        // These are about the decoupling.
        Op::Held { .. }
        | Op::Sync
        | Op::SetPolicy { .. }
        | Op::Decouple { .. }
        | Op::Extend { .. }
        | Op::Merge { .. }
        | Op::Release { .. }
        | Op::Adopt { .. }
        | Op::TakeOver { .. }
        | Op::Checkpoint => ([None; 2], [None; 2]),
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
