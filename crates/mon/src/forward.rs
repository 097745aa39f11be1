//! Policies and decouplings: checked here, carried out by a metadata server, recorded here.
//!
//! A client asks the monitor. The monitor checks the policy, passes the request on to the
//! server of rank 0 on behalf of the same user, and when the server has done it records the policy
//! in the map and stores that before it replies. Whether the directory exists and whether
//! the user may is decided by the server alone.
//!
//! The directory's inode identifies a policy: its path is the name of the directory at that time.
//!
//! Invariant: for one directory at most one request is under way, so the map records policies in
//! the order in which the server carried them out.

use std::collections::BTreeMap;

use policy::Policy;
use types::{ClientId, ConnId, Epoch, Errno, Ino, Path, Rank, Tid};
use wire::{
    Answer, ChangeOp, Failure, JobOp, MdsState, Message, MonAnswer, MonOp, Op, PolicyEntry, Reply,
    Request,
};

use crate::effects::Asker;
use crate::{Call, Mon, MonEffects, POLICY_BYTES_MAX, again, failure};

/// The rank that carries policies and decouplings out.
const RANK: Rank = Rank(0);
/// The most bytes of a policy in the map besides its path and text.
const ENTRY_BYTES: usize = 32;

/// A request that a server was asked to carry out.
#[derive(Debug)]
struct Forward {
    /// The requester; None if its connection is gone.
    asker: Option<Asker>,
    /// Who was asked.
    server: ConnId,
    /// Canonical.
    path: Vec<u8>,
    /// Canonical; empty to remove it.
    policy: String,
    decouple: bool,
}

impl Forward {
    /// The server's answer as the monitor's, and which directory it is about.
    fn translate(&self, answer: Answer) -> Result<(MonAnswer, Ino), Failure> {
        if let Answer::Attr(dir) = answer
            && !self.decouple
        {
            return Ok((MonAnswer::Done, dir.ino));
        }
        // Nothing but that it is done: then the directory is known by its path.
        if answer == Answer::Done && !self.decouple {
            return Ok((MonAnswer::Done, Ino(0)));
        }
        if let Answer::Pending(client) = answer
            && !self.decouple
        {
            return Ok((MonAnswer::Pending(client), Ino(0)));
        }
        if let Answer::Decoupled(decoupled) = answer
            && self.decouple
        {
            let ino = decoupled.root.ino;
            return Ok((MonAnswer::Decoupled(decoupled), ino));
        }
        Err(failure(Errno::Io, "the metadata server answered something else"))
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    by_tid: BTreeMap<Tid, Forward>,
    last: Tid,
}

impl Forwards {
    /// Numbers requests from an epoch that no monitor before had, so that a server does not take
    /// a request for one of an earlier monitor.
    pub(crate) fn start_at(&mut self, epoch: Epoch) {
        self.last = Tid(epoch.0 << 32);
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.by_tid.len()
    }

    /// Drops requesters at this connection. Their requests are executed all the same.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for forward in self.by_tid.values_mut() {
            forward.asker = forward.asker.filter(|asker| asker.conn != conn);
        }
    }

    /// Nothing will be heard from the server at this connection.
    pub(crate) fn server_gone(&mut self, server: ConnId, effects: &mut MonEffects) {
        let text = "the metadata server went away; ask `cudele status` whether it took effect";
        let gone = self.by_tid.extract_if(.., |_, forward| forward.server == server);
        for asker in gone.filter_map(|(_, forward)| forward.asker) {
            effects.reply(asker, Err(failure(Errno::Io, text)));
        }
    }

    /// Answers all requesters with a failure.
    pub(crate) fn fail_all(&mut self, reply: &Failure, effects: &mut MonEffects) {
        for asker in std::mem::take(&mut self.by_tid).into_values().filter_map(|f| f.asker) {
            effects.reply(asker, Err(reply.clone()));
        }
    }

    /// Checks the invariants between the fields.
    pub(crate) fn check(&self, is_server: impl Fn(ConnId) -> bool) -> Result<(), &'static str> {
        if self.by_tid.keys().any(|tid| *tid > self.last) {
            return Err("numbers are given out in order");
        }
        if !self.by_tid.values().all(|forward| is_server(forward.server)) {
            return Err("only a connected server can answer");
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.by_tid.values().map(|forward| entry_bytes(&forward.path, &forward.policy)).sum()
    }
}

impl Mon {
    /// Passes a request on.
    pub(crate) fn forward(
        &mut self,
        call: Call<'_>,
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        let Call { asker, cred, op } = call;
        self.check_not_stopping()?;
        let mut owner = ClientId(0);
        let (path, text, client) = match op {
            MonOp::Decouple { path, client, policy } => (path, policy, Some(client)),
            MonOp::SetPolicy { path, policy, client } => {
                owner = client;
                (path, policy, None)
            }
            MonOp::Register
            | MonOp::Status
            | MonOp::Stop
            | MonOp::Fail { .. }
            | MonOp::SetBalancer { .. }
            | MonOp::RevertBalancer
            | MonOp::BalancerLog { .. }
            | MonOp::Remove { .. } => {
                debug_assert!(false, "the monitor does these itself");
                return Err(Errno::Invalid.into());
            }
        };
        let path = canonical_path(path)?;
        // Empty text removes a policy; a client that decouples with it gets the default.
        let remove = text.is_empty() && client.is_none();
        let policy = if remove { String::new() } else { canonical_policy(text)? };
        self.check_room(&path, &policy)?;
        let server = self.active_server()?;

        self.forwards.last.0 += 1;
        let tid = self.forwards.last;
        let op = match client {
            Some(client) => {
                Op::Job(JobOp::Decouple { path: &path, client, policy: policy.as_bytes() })
            }
            None => Op::Change(ChangeOp::SetPolicy {
                path: &path,
                policy: policy.as_bytes(),
                client: owner,
            }),
        };
        let request = Request::new(tid, Tid(0), cred, op);
        effects.send(server, &Message::Request(request));
        let decouple = client.is_some();
        let forward = Forward { asker: Some(asker), server, path, policy, decouple };
        self.forwards.by_tid.insert(tid, forward);
        Ok(())
    }

    /// A server answered.
    pub(crate) fn forward_done(&mut self, conn: ConnId, reply: Reply, effects: &mut MonEffects) {
        if self.servers.rank_of(conn).is_none() {
            // Only a server replies, and a server introduces itself.
            self.close(conn, effects);
            return;
        }
        let Some(forward) = self.forwards.by_tid.get(&reply.tid) else { return };
        if forward.server != conn {
            return;
        }
        let forward = self.forwards.by_tid.remove(&reply.tid).expect("it was found just now");
        let result = reply.result.and_then(|answer| forward.translate(answer));
        let asker = forward.asker;
        // A waiting policy is recorded when the server reports that the subtree is shared again.
        if let Ok((answer, ino)) = &result
            && !matches!(answer, MonAnswer::Pending(_))
        {
            self.record_policy(forward.path, *ino, forward.policy);
        }
        match (asker, result) {
            (Some(asker), Ok((answer, _))) => self.ledger.reply_when_stored(asker, answer, effects),
            (Some(asker), Err(failure)) => effects.reply(asker, Err(failure)),
            (None, _) => {}
        }
    }

    /// Puts a policy into the map, or takes it out. The directory may have had another name when it
    /// got its last one, and another directory may have had this name.
    pub(crate) fn record_policy(&mut self, path: Vec<u8>, ino: Ino, policy: String) {
        let policies = &self.ledger.map().policies;
        let same = |entry: &PolicyEntry| match entry.ino {
            // From before it was noted which directory it was.
            Ino(0) => entry.path == path,
            known => known == ino,
        };
        let found = policies.iter().position(same);
        if found.is_none() && policy.is_empty() {
            return;
        }
        let policies = &mut self.ledger.change().policies;
        let before = found.map_or(0, |index| policies.remove(index).version);
        if policy.is_empty() {
            return;
        }
        let entry = PolicyEntry { path, version: before.saturating_add(1), policy, ino };
        let place = policies.partition_point(|known| (&known.path, known.ino) < (&entry.path, ino));
        policies.insert(place, entry);
    }

    /// Refuses a second request for a directory, and more policies than the map holds.
    fn check_room(&self, path: &[u8], policy: &str) -> Result<(), Failure> {
        if self.forwards.by_tid.values().any(|forward| forward.path == path) {
            let text = "another request for this directory is under way";
            return Err(failure(Errno::Busy, text));
        }
        let held = self.ledger.map().policies.iter();
        let held: usize = held.map(|entry| entry_bytes(&entry.path, &entry.policy)).sum();
        let wanted = entry_bytes(path, policy);
        if !policy.is_empty() && held + self.forwards.bytes() + wanted > POLICY_BYTES_MAX {
            let text =
                "the cluster map holds no more policies; remove some with `cudele policy rm`";
            return Err(failure(Errno::NoSpace, text));
        }
        Ok(())
    }

    fn active_server(&self) -> Result<ConnId, Failure> {
        let state = self.entry(RANK).map(|entry| entry.state);
        if let Some(conn) = self.servers.conn_of(RANK)
            && state == Some(MdsState::Active)
        {
            return Ok(conn);
        }
        let state = state.map_or("unknown", MdsState::word);
        Err(again(&format!("{RANK} is {state}: no metadata server can do this now")))
    }
}

fn entry_bytes(path: &[u8], policy: &str) -> usize {
    path.len() + policy.len() + ENTRY_BYTES
}

/// The path from the root, as the map has it. A relative path starts at the root.
fn canonical_path(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let parsed = Path::parse(path).map_err(|errno| {
        let shown = String::from_utf8_lossy(&path[..path.len().min(types::NAME_BYTES_MAX)]);
        failure(errno, format!("{shown:?} is not a path within the namespace: {}", errno.text()))
    })?;
    Ok(parsed.to_bytes())
}

/// The policy that a text means, in canonical form (A-05: anything else changes nothing).
fn canonical_policy(text: &[u8]) -> Result<String, Failure> {
    match Policy::parse_bytes(text) {
        Ok(parsed) => Ok(parsed.policy.to_yaml()),
        Err(error) => Err(failure(Errno::Invalid, error.to_string())),
    }
}
