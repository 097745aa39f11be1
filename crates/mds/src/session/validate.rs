//! The invariants of the sessions.

use types::{ClientId, Tid};

use super::{AsyncOps, RANGES_MAX, REFUSED_MAX, REMEMBERED_MAX, Session, Sessions};

impl Sessions {
    /// Checks the invariants of all sessions, between two inputs.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        assert!(self.absent.is_none(), "no request of an absent client is being executed");
        for (conn, client) in &self.by_conn {
            let known = self.by_client.get(client).and_then(|session| session.conn);
            assert!(known == Some(*conn), "{client} is behind {conn:?}, and not behind {known:?}");
        }
        for (client, session) in &self.by_client {
            if let Some(conn) = session.conn {
                let known = self.by_conn.get(&conn);
                assert!(known == Some(client), "{conn:?} leads to {client}, and not to {known:?}");
                assert!(*client != ClientId(0), "the monitor has no session of a client");
            }
            session.validate(*client);
        }
    }
}

impl Session {
    fn validate(&self, client: ClientId) {
        assert!(self.remembered.len() <= REMEMBERED_MAX, "{client}: cached replies are bounded");
        assert!(self.refused.len() <= REFUSED_MAX, "{client}: refused requests are bounded");
        let newest = self.remembered.iter().map(|known| known.tid).max().unwrap_or(Tid(0));
        assert!(newest <= self.floor, "{client}: {newest} is done, and so is each up to the floor");
        let forgotten = self.forgotten;
        assert!(forgotten <= self.floor, "{client}: {forgotten} was forgotten, and not done");
        let connected = self.conn.is_some();
        assert!(!self.awaited || !connected, "{client}: the server awaits absent clients only");
        assert!(!self.resending || connected, "{client}: a client resends over a connection");
        let returns = self.returning.is_some();
        assert!(!returns || connected, "{client}: a client reports over a connection");
        self.async_ops.validate(client);
        self.shown.validate();
    }
}

impl AsyncOps {
    fn validate(&self, client: ClientId) {
        assert!(self.numbers.len() <= RANGES_MAX, "{client}: ranges of numbers are bounded");
    }
}
