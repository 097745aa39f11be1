//! Frames that arrive before the server can handle them: during recovery, and while it executes
//! requests from before a crash again.
//!
//! Invariant: the frames take a bounded amount of memory. The server closes a connection that sends
//! more; its client connects again and repeats every request without an answer.

use std::collections::VecDeque;

use types::ConnId;

use crate::MdsEffects;

/// Bytes of frames that wait at most. Clients that wait for their answers have far less under way.
const BYTES_MAX: usize = 256 << 20;
/// Memory that a frame takes beside its bytes.
const FRAME_BYTES: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct EarlyFrames {
    frames: VecDeque<(ConnId, Vec<u8>)>,
    bytes: usize,
}

impl EarlyFrames {
    /// Adds a frame at the end, unless there is no room for it.
    #[must_use]
    fn push(&mut self, conn: ConnId, frame: Vec<u8>, bytes_max: usize) -> bool {
        debug_assert!(self.frames.is_empty() == (self.bytes == 0), "early frames are counted");
        let bytes = self.bytes + frame.len() + FRAME_BYTES;
        let fits = bytes <= bytes_max;
        if fits {
            self.bytes = bytes;
            self.frames.push_back((conn, frame));
        }
        fits
    }

    /// Keeps a frame for later, or closes the connection if there is no room for it.
    pub(crate) fn keep(&mut self, conn: ConnId, frame: Vec<u8>, effects: &mut MdsEffects) {
        if !self.push(conn, frame, BYTES_MAX) {
            effects.close.push(conn);
        }
    }

    /// All frames, in the order in which they came.
    pub(crate) fn take(&mut self) -> VecDeque<(ConnId, Vec<u8>)> {
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }

    /// The first frame that is wanted, behind the frames of its connection before it.
    pub(crate) fn take_up_to(
        &mut self,
        is_wanted: impl Fn(ConnId, &[u8]) -> bool,
    ) -> Option<VecDeque<(ConnId, Vec<u8>)>> {
        let last = self.frames.iter().position(|(conn, frame)| is_wanted(*conn, frame))?;
        let wanted = self.frames[last].0;
        let rest = self.frames.split_off(last + 1);
        let (taken, stays): (VecDeque<_>, _) =
            std::mem::take(&mut self.frames).into_iter().partition(|(conn, _)| *conn == wanted);
        self.frames = stays;
        self.frames.extend(rest);
        self.bytes -= taken.iter().map(|(_, frame)| frame.len() + FRAME_BYTES).sum::<usize>();
        Some(taken)
    }

    /// Whether a wanted frame waits.
    pub(crate) fn is_any(&self, is_wanted: impl Fn(ConnId, &[u8]) -> bool) -> bool {
        self.frames.iter().any(|(conn, frame)| is_wanted(*conn, frame))
    }

    /// Forgets all frames of a connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        let bytes = &mut self.bytes;
        self.frames.retain(|(from, frame)| {
            let stays = *from != conn;
            *bytes -= if stays { 0 } else { frame.len() + FRAME_BYTES };
            stays
        });
    }

    /// Whether a frame of this connection waits.
    pub(crate) fn is_any_of(&self, conn: ConnId) -> bool {
        self.frames.iter().any(|(from, _)| *from == conn)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Checks that the frames take the memory that is counted, and that it is bounded.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self) {
        let bytes: usize = self.frames.iter().map(|(_, frame)| frame.len() + FRAME_BYTES).sum();
        assert!(bytes == self.bytes, "early frames take {bytes} bytes, not {}", self.bytes);
        assert!(bytes <= BYTES_MAX, "the memory of early frames is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_frames_are_bounded_and_counted() {
        let (one, two) = (ConnId(1), ConnId(2));
        let mut early = EarlyFrames::default();
        let most = 3 * (10 + FRAME_BYTES);
        assert!(early.push(one, vec![1; 10], most) && early.push(two, vec![2; 10], most));
        assert!(early.push(one, vec![3; 10], most) && !early.push(two, vec![4; 10], most));
        early.forget(one);
        assert!(!early.is_any_of(one) && early.is_any_of(two));
        assert!(early.push(one, vec![5; 10], most) && early.push(one, vec![6; 10], most));
        let order: Vec<u8> = early.take().into_iter().map(|(_, frame)| frame[0]).collect();
        assert_eq!(order, [2, 5, 6]);
        assert!(early.is_empty() && early.bytes == 0);
        assert!(early.push(two, vec![7; 10], most));
    }

    #[test]
    fn a_wanted_frame_is_taken_behind_the_frames_of_its_connection_before_it() {
        let (one, two) = (ConnId(1), ConnId(2));
        let mut early = EarlyFrames::default();
        for (conn, byte) in [(one, 1), (two, 2), (one, 3), (one, 4), (two, 5)] {
            assert!(early.push(conn, vec![byte], BYTES_MAX));
        }
        assert_eq!(early.take_up_to(|conn, frame| conn == two && frame == [3]), None);
        let taken = early.take_up_to(|_, frame| frame == [3]);
        assert_eq!(taken, Some(VecDeque::from([(one, vec![1]), (one, vec![3])])));
        early.validate();
        let order: Vec<u8> = early.take().into_iter().map(|(_, frame)| frame[0]).collect();
        assert_eq!(order, [2, 4, 5]);
    }

    #[test]
    fn a_connection_whose_frame_has_no_room_is_closed() {
        let (conn, mut early, mut effects) =
            (ConnId(1), EarlyFrames::default(), MdsEffects::default());
        early.keep(conn, vec![0; 10], &mut effects);
        assert!(effects.close.is_empty() && early.is_any_of(conn));
        early.bytes = BYTES_MAX;
        early.keep(ConnId(2), vec![0; 10], &mut effects);
        assert!(effects.close == [ConnId(2)] && !early.is_any_of(ConnId(2)));
    }
}
