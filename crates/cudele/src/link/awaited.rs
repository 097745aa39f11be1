//! Reports for how long threads have waited for the metadata server.

use std::time::{Duration, Instant};

use super::Link;
use crate::waiting::{Awaited, ServerWait};

impl Awaited for Link {
    fn awaited(&self) -> Option<ServerWait> {
        let server = format!("the metadata server {}", self.rank);
        if let Some((since, cause)) = self.away.get() {
            return Some(ServerWait { since, server, cause });
        }
        // A thread that holds the lock for long makes a connection, which `away` reports.
        let state = self.state.try_lock().ok()?;
        let unanswered = state.waiting.values().filter(|waiting| waiting.answer.is_none());
        let (asked, name) = unanswered.map(|waiting| waiting.asked).min()?;
        let waited = Duration::from_nanos(crate::moment().since(asked).0);
        let since = Instant::now().checked_sub(waited)?;
        Some(ServerWait { since, server, cause: format!("it has not answered: {name}") })
    }
}
