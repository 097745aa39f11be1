//! Requests that come while the monitor reads its map: they wait for it, so that a command that
//! follows the start of a monitor closely, and a standby that a service manager starts beside it,
//! need not try again.

use types::{ConnId, Moment, Span};
use wire::{Failure, Message, frame};

use crate::effects::Asker;
use crate::{MonEffects, WAITING_MAX, again};

/// After this time the answer is `EAGAIN`, which says what the monitor waits for; a client would
/// only know that the monitor does not answer.
const PATIENCE: Span = Span::from_millis(2000);
/// Requests with more bytes do not wait: a policy may be larger, and so would be all of them.
const BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
struct Held {
    asker: Asker,
    since: Moment,
    frame: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Early {
    held: Vec<Held>,
}

impl Early {
    /// Keeps a request.
    ///
    /// # Errors
    /// `EAGAIN` if it is large, or too many wait already.
    pub(crate) fn hold(
        &mut self,
        now: Moment,
        asker: Asker,
        request: &Message<'_>,
    ) -> Result<(), Failure> {
        let frame = request.to_frame();
        if self.held.len() >= WAITING_MAX || frame.len() > BYTES_MAX {
            return Err(still_reading());
        }
        self.held.push(Held { asker, since: now, frame });
        Ok(())
    }

    /// The requests and their connections, in the order in which they came.
    pub(crate) fn release(&mut self) -> impl Iterator<Item = (ConnId, Vec<u8>)> + use<> {
        std::mem::take(&mut self.held).into_iter().map(|held| (held.asker.conn, held.frame))
    }

    /// Answers those that have waited for long.
    pub(crate) fn tick(&mut self, now: Moment, effects: &mut MonEffects) {
        for held in self.held.extract_if(.., |held| now.since(held.since) >= PATIENCE) {
            effects.reply(held.asker, Err(still_reading()));
        }
    }

    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.held.retain(|held| held.asker.conn != conn);
    }
}

/// The request in a frame of this module's making.
pub(crate) fn request(bytes: &[u8]) -> Option<Message<'_>> {
    let (frame, _) = frame::decode(bytes).ok()??;
    Message::decode(frame.payload).ok()
}

fn still_reading() -> Failure {
    again("the monitor is still reading its map")
}
