//! Requests about inodes that a server may have evicted, or not loaded since its start.
//!
//! A request names an inode by its number, and the object store finds an inode only through the
//! directory that has its name. A server without the inode in memory answers `ESTALE`; the client
//! then walks the path, which makes the server load the inode, and sends the request again.
//!
//! Invariant: `ESTALE` means that the path leads to nothing, or to another inode.

use types::{Errno, Ino, Result};
use wire::Answer;

use super::unexpected_answer;

/// Most walks for one request: more than one only if the server is restarted, or evicts the inode,
/// between the walk and the request.
pub const WALKS_MAX: u32 = 8;

/// The next step of a request with known paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// Send the request.
    Request,
    /// Walk to the inode with this index among those of the request.
    Walk(usize),
    /// Return the result of the last request.
    End,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Walks {
    places: usize,
    /// The number of requests so far.
    requests: u32,
    /// The next inode to walk to.
    next: usize,
}

impl Walks {
    /// A request about so many inodes with known paths.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self { places, requests: 0, next: 0 }
    }

    /// The first step, and the one after each answer. `good` says of a request whether it is
    /// answered, with anything but `ESTALE`; and of a walk whether it led to the inode.
    pub fn next(&mut self, good: bool) -> WalkStep {
        assert!(self.next <= self.places, "each walk is to an inode of the request");
        assert!(self.requests <= WALKS_MAX + 1, "the number of requests is bounded");
        if self.requests == 0 {
            self.requests = 1;
            return WalkStep::Request;
        }
        let walked = self.next > 0;
        if good != walked {
            // The request has its answer, or the path does not lead to the inode.
            return WalkStep::End;
        }
        if self.next < self.places && self.requests <= WALKS_MAX {
            self.next += 1;
            return WalkStep::Walk(self.next - 1);
        }
        if !walked {
            return WalkStep::End;
        }
        self.next = 0;
        self.requests += 1;
        WalkStep::Request
    }
}

/// Whether the answer to a walk shows that the path leads to an inode.
///
/// # Errors
/// Those of the walk; a path that leads nowhere is none.
pub fn leads_to(ino: Ino, answer: Result<Answer>) -> Result<bool> {
    match answer {
        Ok(Answer::Walked { attr, .. }) => Ok(attr.is_some_and(|attr| attr.ino == ino)),
        Ok(answer) => Err(unexpected_answer(&answer)),
        Err(error) if leads_nowhere(error.errno) => Ok(false),
        Err(error) => Err(error),
    }
}

fn leads_nowhere(errno: Errno) -> bool {
    matches!(errno, Errno::NotFound | Errno::NotDirectory | Errno::Loop)
}

#[cfg(test)]
mod tests {
    use types::Error;

    use super::*;

    #[test]
    fn a_walk_that_fails_does_not_say_that_the_path_leads_nowhere() {
        let failed = |errno| leads_to(Ino(7), Err(Error::of(errno, "walk")));
        assert_eq!(failed(Errno::NotFound).map_err(|error| error.errno), Ok(false));
        assert_eq!(failed(Errno::NoSpace).map_err(|error| error.errno), Err(Errno::NoSpace));
    }

    #[test]
    fn a_request_is_repeated_after_a_walk_to_each_of_its_inodes() {
        let mut walks = Walks::new(2);
        let steps = [false, false, true, true].map(|good| walks.next(good));
        let expected = [WalkStep::Request, WalkStep::Walk(0), WalkStep::Walk(1), WalkStep::Request];
        assert_eq!(steps, expected);
        assert_eq!(walks.next(true), WalkStep::End);
    }

    #[test]
    fn a_path_that_leads_to_another_inode_ends_the_request() {
        let mut walks = Walks::new(1);
        assert_eq!(walks.next(false), WalkStep::Request);
        assert_eq!(walks.next(false), WalkStep::Walk(0));
        assert_eq!(walks.next(false), WalkStep::End);
    }

    #[test]
    fn walks_end_after_a_bounded_number_of_requests() {
        let mut walks = Walks::new(1);
        let (mut requests, mut good) = (0, false);
        loop {
            match walks.next(good) {
                WalkStep::Request => {
                    requests += 1;
                    good = false;
                }
                WalkStep::Walk(_) => good = true,
                WalkStep::End => break,
            }
        }
        assert_eq!(requests, WALKS_MAX + 1);
    }
}
