//! Balancer policies: the version in force on all ranks (B-24), and the ranks' reports of their
//! balancing.
//!
//! A policy is stored as an object of its own before the map names it, and is never replaced: a
//! number belongs to the first monitor that put its object. The ranks read the object when they
//! receive the map, so all of them switch with one change of it. Heartbeats and records pass
//! through: the monitor forwards the former and stores the latter (`log`).
//!
//! Invariant: the map names only policies that are in the store, or come with the program.

pub(crate) mod log;

use balancer::{BalancerPolicy, DEFAULT_POLICY, NO_POLICY, SOURCE_BYTES_MAX};
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult, Token};
use types::{Clock, ConnId, Errno, Timestamp};
use wire::{BalancerEntry, Failure, Message, MonAnswer};

use crate::effects::Asker;
use crate::{Mon, MonEffects, explain, failure};
use log::Log;

/// How many versions the map names.
const VERSIONS_MAX: usize = 32;
/// How long the name of a policy may be.
const NAME_BYTES_MAX: usize = 255;
/// The most numbers that are tried for a policy: a used number has the object of a monitor that
/// died before the map named it.
const NUMBERS_MAX: u64 = 64;
/// Tells operations on policies from those on the map.
const TOKENS: u64 = 1 << 63;

/// A policy that is being stored.
#[derive(Debug)]
struct Storing {
    token: Token,
    /// The requester; None if its connection is gone.
    asker: Option<Asker>,
    version: u64,
    tried: u64,
    name: String,
    text: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Balancing {
    storing: Option<Storing>,
    last_token: u64,
    pub(crate) log: Log,
}

impl Balancing {
    /// Drops requesters at this connection. Their requests are executed all the same.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        if let Some(storing) = &mut self.storing {
            storing.asker = storing.asker.filter(|asker| asker.conn != conn);
        }
        self.log.forget(conn);
    }

    /// Answers waiting requesters with a failure.
    pub(crate) fn fail_waiting(&mut self, reply: &Failure, effects: &mut MonEffects) {
        if let Some(asker) = self.storing.take().and_then(|storing| storing.asker) {
            effects.reply(asker, Err(reply.clone()));
        }
        self.log.fail_waiting(reply, effects);
    }

    /// Whether an operation is about a policy, or about the log.
    pub(crate) fn is_mine(token: Token) -> bool {
        token.0 & TOKENS != 0
    }

    fn put(&mut self, mut storing: Storing, effects: &mut MonEffects) {
        self.last_token += 1;
        storing.token = Token(TOKENS | self.last_token);
        let op = StoreOp::Put {
            object: BalancerEntry::object_name(storing.version),
            data: storing.text.clone(),
            condition: Condition::Absent,
        };
        effects.store.push((storing.token, op));
        self.storing = Some(storing);
    }
}

impl Mon {
    /// Stores a policy, and puts it in force then.
    pub(crate) fn set_balancer(
        &mut self,
        asker: Asker,
        name: &[u8],
        text: &[u8],
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        self.check_not_stopping()?;
        if self.balancing.storing.is_some() {
            return Err(crate::again("another balancer policy is being stored"));
        }
        let invalid = |text: &str| failure(Errno::Invalid, text);
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(invalid("the name of a balancer policy has 1 to 255 bytes"));
        }
        if text.len() > SOURCE_BYTES_MAX {
            return Err(invalid("a balancer policy has at most 64 KiB"));
        }
        let name = std::str::from_utf8(name).map_err(|_| invalid("the name is not UTF-8"))?;
        if let Err(fault) = BalancerPolicy::parse_bytes(name, text) {
            return Err(explain(&fault.to_error(name)));
        }
        let version = self.ledger.map().balancer().version + 1;
        let (name, text) = (name.to_owned(), text.to_vec());
        let (token, asker) = (Token(0), Some(asker));
        let storing = Storing { token, asker, version, tried: 0, name, text };
        self.balancing.put(storing, effects);
        Ok(())
    }

    /// The object of a policy was put, or not.
    pub(crate) fn balancer_stored(
        &mut self,
        clock: Clock,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MonEffects,
    ) {
        if Log::is_mine(token) {
            return self.balancing.log.stored(clock.now, token, result, effects);
        }
        let Some(mut storing) = self.balancing.storing.take() else { return };
        if storing.token != token {
            self.balancing.storing = Some(storing);
            return;
        }
        match result {
            Ok(StoreResult::Conflict) if storing.tried < NUMBERS_MAX => {
                storing.version += 1;
                storing.tried += 1;
                self.balancing.put(storing, effects);
            }
            Ok(StoreResult::Stored(_)) => {
                // A rank may have given another version up since.
                let newest = self.ledger.map().balancer().version;
                let (version, object) = (storing.version.max(newest + 1), storing.version);
                let (name, time) = (storing.name, clock.time);
                let entry = BalancerEntry { version, object, name, time, ..Default::default() };
                self.install(storing.asker, entry, effects);
            }
            Ok(_) => {
                let reply = failure(Errno::Io, "the store did not take the balancer policy");
                storing
                    .asker
                    .into_iter()
                    .for_each(|asker| effects.reply(asker, Err(reply.clone())));
            }
            Err(error) => {
                let text = format!(
                    "the store did not take the balancer policy ({}); the one before stays in force",
                    explain(&error.error).text
                );
                let reply = failure(error.error.errno, text);
                storing
                    .asker
                    .into_iter()
                    .for_each(|asker| effects.reply(asker, Err(reply.clone())));
            }
        }
    }

    /// Puts the policy before the one in force in force again.
    pub(crate) fn revert_balancer(
        &mut self,
        clock: Clock,
        asker: Asker,
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        self.check_not_stopping()?;
        let current = self.ledger.map().balancer();
        let Some(mut entry) = self.good_balancer(clock.time) else {
            let text = format!("no balancer policy was in force before {}", current.name);
            return Err(failure(Errno::NoData, text));
        };
        entry.why = format!("version {} was reverted", current.version);
        self.install(Some(asker), entry, effects);
        Ok(())
    }

    /// A rank has given a policy up: if it is the one in force, all ranks go back.
    pub(crate) fn balancer_given_up(&mut self, time: Timestamp, said: &str, version: u64) {
        if version == 0 || self.ledger.map().balancer().version != version {
            return;
        }
        let Some(mut entry) = self.good_balancer(time) else { return };
        entry.why = said.to_owned();
        if let Some(last) = self.ledger.change().balancers.last_mut() {
            last.failed = true;
        }
        self.record_balancer(entry);
    }

    /// The next version after a failure: the newest earlier policy that differs and did not fail.
    /// Before the first policy there was no balancing, so that is the last resort.
    fn good_balancer(&self, time: Timestamp) -> Option<BalancerEntry> {
        let known = &self.ledger.map().balancers;
        let (current, earlier) = known.split_last()?;
        let same =
            |entry: &BalancerEntry| (entry.object, &entry.name) == (current.object, &current.name);
        let failed = |entry: &BalancerEntry| {
            known.iter().any(|other| {
                other.failed && (other.object, &other.name) == (entry.object, &entry.name)
            })
        };
        let good = earlier.iter().rev().find(|entry| !same(entry) && !failed(entry)).cloned();
        let nothing = || BalancerEntry { name: NO_POLICY.to_owned(), ..BalancerEntry::default() };
        let good = good.or_else(|| Some(nothing()).filter(|entry| !same(entry)))?;
        let version = current.version + 1;
        Some(BalancerEntry { version, time, failed: false, ..good })
    }

    fn install(&mut self, asker: Option<Asker>, entry: BalancerEntry, effects: &mut MonEffects) {
        self.record_balancer(entry.clone());
        if let Some(asker) = asker {
            self.ledger.reply_when_stored(asker, MonAnswer::Balancer(entry), effects);
        }
    }

    fn record_balancer(&mut self, entry: BalancerEntry) {
        let known = &mut self.ledger.change().balancers;
        known.push(entry);
        let over = known.len().saturating_sub(VERSIONS_MAX);
        known.drain(..over);
    }

    /// A map that never had a balancer gets one.
    pub(crate) fn begin_balancing(&mut self, time: Timestamp) {
        if self.ledger.map().balancers.is_empty() {
            let name = DEFAULT_POLICY.to_owned();
            let entry = BalancerEntry { version: 1, name, time, ..BalancerEntry::default() };
            self.record_balancer(entry);
        }
    }

    /// A rank reports its load: the monitor forwards it to all ranks.
    pub(crate) fn heartbeat(&mut self, conn: ConnId, bytes: &[u8], effects: &mut MonEffects) {
        if self.servers.rank_of(conn).is_none() {
            return;
        }
        for (_, other) in self.servers.connected().filter(|(_, other)| *other != conn) {
            effects.send(other, &Message::Heartbeat(bytes));
        }
    }

    /// A rank reports its decision, or the result of a move.
    pub(crate) fn balanced(&mut self, conn: ConnId, record: &[u8]) {
        if self.servers.rank_of(conn).is_some() {
            self.balancing.log.record(record);
        }
    }
}
