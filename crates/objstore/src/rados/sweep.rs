//! Finding pieces that nothing refers to, and removing them.
//!
//! A large object is written pieces first, then the head that refers to them; it is removed head
//! first. A process that dies in between leaves pieces. No reader needs them, and only their names
//! identify their objects: so all names of pieces are compared with the heads.
//!
//! A living writer has pieces without a head, too, for as long as it takes to write them. So only
//! pieces that are older than [`OLDEST_WRITER`] by far are removed, and a writer that took longer
//! than that gives up instead of referring to its pieces ([`Begun`]).
//!
//! Invariant: a piece that a head refers to, or that a writer may still refer to, is not removed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use types::{Errno, Error, Result};

use super::Rados;
use super::errors::to_error;
use super::head::Large;
use super::places::PoolPlace;
use super::sys::{Code, Read, Step};
use crate::Swept;

/// No writer takes longer from its first piece to the head.
const OLDEST_WRITER: Duration = Duration::from_secs(30 * 60);
/// Younger pieces stay: the same with room for wrong clocks.
pub(super) const YOUNGEST_GARBAGE_S: u64 = 2 * 60 * 60;

/// When a writer began with its pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(Instant);

impl Begun {
    #[allow(clippy::disallowed_methods, reason = "the age of what this process writes")]
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    /// Whether the pieces are surely still there.
    ///
    /// # Errors
    /// `ETIMEDOUT` if a sweep might have taken them.
    pub(super) fn is_recent(self, name: &str) -> Result<()> {
        if self.0.elapsed() <= OLDEST_WRITER {
            return Ok(());
        }
        Err(Error::new(Errno::TimedOut, name, "writing it took more than half an hour")
            .remedy("see `ceph health detail` for why the cluster is slow, and write it again"))
    }
}

impl Rados {
    /// Removes unreferenced pieces that were written before `before_s`, in seconds since 1970; only
    /// counts them with `look`.
    pub(super) fn sweep_pieces(&self, before_s: i64, look: bool) -> Result<Swept> {
        let mut swept = Swept::default();
        for place in self.places.all()? {
            self.sweep_place(&place, before_s, look, &mut swept)?;
        }
        Ok(swept)
    }

    fn sweep_place(
        &self,
        place: &PoolPlace,
        before_s: i64,
        look: bool,
        swept: &mut Swept,
    ) -> Result<()> {
        // Pieces of one object have one head.
        let mut objects: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
        let add = |name: &str| {
            if let Some((object, number, index)) = Large::of_piece(name) {
                objects.entry(object.to_owned()).or_default().push((number, index));
            }
        };
        place.pieces.names(add).map_err(|code| to_error(&self.url, "list pieces", code))?;
        for (object, pieces) in objects {
            swept.pieces += pieces.len() as u64;
            let head = self.look(place, &object)?.and_then(|head| head.large);
            let used = |(number, index): &Piece| {
                head.is_some_and(|head| head.number == *number && head.pieces().contains(index))
            };
            for (number, index) in pieces.into_iter().filter(|piece| !used(piece)) {
                let name = Large { number, size: 0 }.piece(&object, index);
                self.sweep_piece(place, &name, (before_s, look), swept)?;
            }
        }
        Ok(())
    }

    fn sweep_piece(
        &self,
        place: &PoolPlace,
        name: &str,
        (before_s, look): (i64, bool),
        swept: &mut Swept,
    ) -> Result<()> {
        let read =
            Read { object: name.into(), offset: 0, buffer: &mut [], version: None, attr: None };
        let seen = match place.pieces.read(read) {
            Ok(seen) => seen,
            // The process that was about to remove it did.
            Err(Code::NOT_FOUND) => return Ok(()),
            Err(code) => return Err(to_error(name, "look at", code)),
        };
        if seen.changed_s >= before_s {
            swept.young += 1;
            return Ok(());
        }
        if !look {
            // Not if a process writes it at this moment.
            match place.pieces.change(name, &[Step::AssertVersion(seen.version), Step::Remove]) {
                Ok(_) => {}
                Err(Code::NOT_FOUND | Code::RANGE | Code::OVERFLOW) => return Ok(()),
                Err(code) => return Err(to_error(name, "remove", code)),
            }
        }
        swept.garbage += 1;
        swept.bytes += seen.size;
        Ok(())
    }
}

/// The number of an object's pieces, and which of them.
type Piece = ((u64, u64), u64);
