//! Admission of the parts of a journal that follow a merge request.

use types::{ConnId, Tid};
use wire::Message;

use crate::merge::MergeCx;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

impl Mds {
    /// A part of a journal that a client merges. It waits as the request before it does.
    pub(crate) fn chunk(&mut self, conn: ConnId, tid: Tid, bytes: &[u8], effects: &mut MdsEffects) {
        let waits = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        if waits || self.early.is_any_of(conn) {
            self.early.keep(conn, Message::Chunk { tid, bytes }.to_frame(), effects);
            return;
        }
        let client = self.sessions.client(conn);
        if client.is_some_and(|client| self.chunk_waits_for_async(client, tid, bytes)) {
            return;
        }
        if let Some(client) = client
            && self.sessions.first_blocked(client).is_some()
        {
            // Its merge may be among the waiting requests.
            let frame = Message::Chunk { tid, bytes }.to_frame();
            self.sessions.get_mut(client).blocked.push_back(frame);
            return;
        }
        MergeCx::of(self).take_chunk(ReplyTo { conn, tid }, bytes, effects);
    }
}
