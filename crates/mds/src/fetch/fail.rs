//! Failed fetches: the waiting requests fail, or try again.

use metastore::request::StoreFailure;
use types::{ClientId, ConnId, Errno, Ino};
use wire::Message;

use super::{Waiter, decode};
use crate::damage::is_damage;
use crate::op::Release;
use crate::{Mds, MdsEffects};

impl Mds {
    pub(super) fn fetch_failed(
        &mut self,
        dir: Ino,
        failure: &StoreFailure,
        effects: &mut MdsEffects,
    ) {
        let fetched = self.fetches.under_way.remove(&dir);
        assert!(fetched, "{dir}: the fetch was under way");
        self.damage.note(dir, &failure.error);
        let damaged = is_damage(failure.error.errno);
        if self.is_resend_busy() && !damaged {
            // A change that its client knows as applied must not fail now.
            self.fetches.failed.push((dir, self.clock.now));
            return;
        }
        // Programs expect EIO for an unreadable directory.
        let errno = if damaged { Errno::Io } else { failure.error.errno };
        let error = wire::Failure { errno, text: failure.error.to_string() };
        let mut merge = None;
        let needed = self.fetches.needed.remove(&dir);
        for waiter in self.fetches.waiting.remove(&dir).unwrap_or_default() {
            match waiter {
                Waiter::Merge if self.merge_waits_on(error.errno) => merge = Some(waiter),
                Waiter::Question(conn, frame) => self.fail_frame(conn, &frame, &error, effects),
                Waiter::Changes(client) => self.fail_change(client, &error, effects),
                Waiter::Ahead(client) => self.fail_async(client, &error, effects),
                Waiter::Merge => self.fail_merge(&error, effects),
                // The subtree is merged, and still its client's: merging it again is harmless.
                Waiter::Release(Release { at: (conn, tid), .. }) => {
                    self.reply_error(conn, tid, error.clone(), effects);
                }
                Waiter::Recovery => {
                    if !self.recover_without(dir, &failure.error, effects) {
                        effects.fatal = Some(failure.error.clone());
                    }
                }
                // It is tried again when some time has passed.
                Waiter::Search => self.search_fetched(),
                Waiter::Preload => self.preload_fetched(),
                Waiter::Balancer => self.balancer_fetched(effects),
            }
        }
        if let Some(merge) = merge {
            self.fetches.needed.extend(needed.map(|needed| (dir, needed)));
            let waiters = self.fetches.waiting.entry(dir).or_default();
            if waiters.is_empty() {
                self.fetches.failed.push((dir, self.clock.now));
            }
            waiters.push(merge);
        }
    }

    /// The first waiting asynchronous operation of a client fails.
    fn fail_async(&mut self, client: ClientId, error: &wire::Failure, effects: &mut MdsEffects) {
        let frame = self.sessions.get_mut(client).ahead.waiting.pop_front();
        if let (Some(conn), Some(frame)) = (self.sessions.conn_of(client), frame)
            && let Some(Message::Request(request)) = decode(&frame)
        {
            self.refuse(conn, client, &request, error.clone(), effects);
        }
        self.retry_async(client, effects);
    }

    /// The first blocked change of a client fails; the next ones need not.
    fn fail_change(&mut self, client: ClientId, error: &wire::Failure, effects: &mut MdsEffects) {
        let frame = self.sessions.get_mut(client).blocked.pop_front();
        if let (Some(conn), Some(frame)) = (self.sessions.conn_of(client), frame)
            && let Some(Message::Request(request)) = decode(&frame)
        {
            self.refuse(conn, client, &request, error.clone(), effects);
        }
        self.retry_changes(client, effects);
    }

    fn fail_frame(
        &mut self,
        conn: ConnId,
        frame: &[u8],
        error: &wire::Failure,
        effects: &mut MdsEffects,
    ) {
        if let Some(Message::Request(request)) = decode(frame) {
            self.reply_error(conn, request.tid, error.clone(), effects);
        }
    }
}
