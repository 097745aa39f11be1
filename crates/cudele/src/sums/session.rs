//! What a client of the library says about files that it has open, so that their checksums are right.

use types::{Ino, Stripe};

use super::Seal;
use crate::Fs;

impl Fs {
    /// Writes the checksums of what this process has written to a file that no other client has open. With
    /// `read_again` also of blocks that were written in the middle, which are read for it.
    pub fn seal(&self, place: (Ino, Stripe), seal: Seal, read_again: bool) {
        self.sums.seal(&self.objects(place), seal, read_again);
    }

    /// Whether this process has written content of a file and not all of its checksums.
    #[must_use]
    pub fn is_unsealed(&self, ino: Ino) -> bool {
        self.sums.is_pending(ino)
    }

    /// A file was made just now, by this process.
    pub fn begin_sums(&self, ino: Ino) {
        self.sums.begin(ino);
    }

    /// Whether other clients may write a file that is open: then nobody writes checksums of it.
    pub fn share_sums(&self, ino: Ino, shared: bool) {
        self.sums.share(ino, shared);
    }

    /// Whether the policy wants checksums of a file that is written.
    pub fn want_sums(&self, ino: Ino, wanted: bool) {
        self.sums.want(ino, wanted);
    }

    /// Nothing that is known of the checksums of a file is used any more: others may have written it.
    pub fn forget_sums(&self, ino: Ino) {
        self.sums.forget(ino);
    }
}
