//! The part of the interface in which a client of the library reports the state of its open files,
//! so that their checksums are right.

use types::{Ino, StripedFile};

use super::Seal;
use crate::Fs;

impl Fs {
    /// Writes the checksums of the blocks that this process has written to a file that no other
    /// client has open. With `read_again` it reads blocks that were written in the middle, and
    /// writes their checksums also.
    pub fn seal(&self, file: StripedFile, seal: Seal, read_again: bool) {
        self.sums.seal(&self.objects(file), seal, read_again);
    }

    /// Whether this process has written content of a file whose checksums are still to be written.
    #[must_use]
    pub fn is_unsealed(&self, ino: Ino) -> bool {
        self.sums.is_pending(ino)
    }

    /// Registers a file that this process has created just now.
    pub fn begin_sums(&self, ino: Ino) {
        self.sums.begin(ino);
    }

    /// Sets whether other clients can write an open file: then no client writes its checksums.
    pub fn share_sums(&self, ino: Ino, shared: bool) {
        self.sums.share(ino, shared);
    }

    /// Sets whether the policy demands checksums of a file that is written.
    pub fn want_sums(&self, ino: Ino, wanted: bool) {
        self.sums.want(ino, wanted);
    }

    /// Drops all knowledge of the checksums of a file, which other clients may have written.
    pub fn forget_sums(&self, ino: Ino) {
        self.sums.forget(ino);
    }
}
