//! Changes that clients answer themselves, before the server hears of them.

use types::Tid;

use super::{Key, Oracle};

impl Oracle {
    /// Its client has answered it.
    pub(crate) fn answer_async(&mut self, key: Key) {
        let issued = self.request(key);
        (issued.is_async, issued.delivered) = (true, true);
    }

    /// Whether a client has answered a request itself.
    pub(crate) fn is_async(&self, key: Key) -> bool {
        self.requests.get(&key).is_some_and(|issued| issued.is_async)
    }

    /// The server will not carry it out, and its client is dead or told so.
    pub(crate) fn lost_async(&mut self, key: Key) {
        if let Some(issued) = self.requests.get_mut(&key) {
            issued.reported_lost = true;
        }
    }

    /// Whether something is lost that a client had answered itself before.
    pub(super) fn is_async_lost(&self, key: Key) -> bool {
        let mut before = self.requests.range((key.0, Tid(0))..=key);
        before.any(|(_, issued)| issued.is_async && issued.reported_lost)
    }
}
