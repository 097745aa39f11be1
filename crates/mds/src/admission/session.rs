//! The session: which client a connection belongs to. Each request also acknowledges replies.

use types::{ClientId, ConnId, Moment, Tid};

use crate::session::Sessions;

/// The client behind a connection, if it has said hello. It has the replies up to `acknowledged`.
#[inline]
pub(super) fn client(
    sessions: &mut Sessions,
    conn: ConnId,
    acknowledged: Tid,
    now: Moment,
) -> Option<ClientId> {
    let client = sessions.client(conn)?;
    if client.0 != 0 {
        sessions.get_mut(client).note_acknowledged(acknowledged, now);
    }
    Some(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(7);

    #[test]
    fn a_connection_without_a_hello_belongs_to_no_client() {
        let mut sessions = Sessions::default();
        assert_eq!(client(&mut sessions, ConnId(1), Tid(0), NOW), None);
    }

    #[test]
    fn the_monitor_is_client_0_and_acknowledges_nothing() {
        let mut sessions = Sessions::default();
        assert_eq!(client(&mut sessions, ConnId::MONITOR, Tid(3), NOW), Some(ClientId(0)));
        assert!(sessions.get(ClientId(0)).is_none());
    }

    #[test]
    fn a_request_of_an_absent_client_notes_when_it_asked() {
        let mut sessions = Sessions::default();
        sessions.act_for(Some(ClientId(5)));
        assert_eq!(client(&mut sessions, ConnId::NOBODY, Tid(3), NOW), Some(ClientId(5)));
        assert_eq!(sessions.get(ClientId(5)).unwrap().asked, NOW);
    }
}
