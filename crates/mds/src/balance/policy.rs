//! The policy in force, and its state (B-14, B-24): both are objects.

use balancer::{BalancerPolicy, State};
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use types::bytes::{Malformed, Put, Reader};
use types::{Errno, Moment, Span};
use wire::BalancerEntry;

use super::{BalanceCx, Move};
use crate::MdsEffects;
use crate::store::Waiting;

/// How long to wait before an object is read again that could not be.
const RETRY: Span = Span::from_millis(500);

/// Objects that are read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The policy of this version.
    Policy(u64),
    /// The state of the policy from before the server was started.
    State,
    /// That is being stored.
    StateStored,
}

/// How far reading is.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Since when something is under way.
    since: Option<Moment>,
    /// When something is tried again.
    again: Option<Moment>,
    /// The state was read.
    has_state: bool,
    /// Why the policy in force is not in force here.
    failure: Option<String>,
    /// The version that was read last, or could not be.
    version: u64,
}

impl Reading {
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl BalanceCx<'_> {
    /// The map names the policy in force.
    pub(crate) fn note_balancer(&mut self) {
        let Some(map) = self.map else { return };
        let entry = map.balancer();
        if entry.version > self.balance.entry.version {
            self.balance.entry = entry;
            self.balance.reading.again = None;
            self.balance.reading.failure = None;
            self.balance.fault = None;
        }
    }

    /// Reads the policy in force, unless it is known.
    pub(super) fn read_policy(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let reading = &mut self.balance.reading;
        if let Some(since) = reading.since {
            let patience = Span(self.settings.balance_interval.0 / 2);
            if now.since(since) >= patience && reading.failure.is_none() {
                let text = "the object store does not answer (ETIMEDOUT)";
                reading.failure = Some(text.to_owned());
            }
            return;
        }
        if reading.again.is_some_and(|again| now < again) {
            return;
        }
        if !reading.has_state {
            reading.since = Some(now);
            let object = state_name(self.rank.0);
            self.store.begin(Waiting::Balance(Object::State), StoreOp::Get { object }, effects);
            return;
        }
        let BalancerEntry { version, object, name, .. } = &self.balance.entry;
        let (version, object) = (*version, *object);
        if version <= reading.version {
            return;
        }
        if object == 0 {
            match balancer::preset(name) {
                Some(policy) => self.install(version, policy),
                None => self.policy_failed(version, "this program has none of this name".into()),
            }
            return;
        }
        reading.since = Some(now);
        let get = StoreOp::Get { object: BalancerEntry::object_name(object) };
        self.store.begin(Waiting::Balance(Object::Policy(version)), get, effects);
    }

    /// Why the policy cannot be asked yet, if so.
    pub(super) fn policy_not_ready(&self) -> Option<String> {
        let BalancerEntry { version, name, .. } = &self.balance.entry;
        let reading = &self.balance.reading;
        if let Some(failure) = &reading.failure {
            return Some(format!("policy {name} (version {version}) is not in force: {failure}"));
        }
        if !reading.has_state || *version > reading.version {
            return Some(format!("policy {name} (version {version}) is being read"));
        }
        None
    }

    /// An object was read or stored, or not.
    pub(crate) fn stored(&mut self, what: Object, result: Result<StoreResult, Box<StoreFailure>>) {
        let again = Some(self.clock.now + RETRY);
        if what == Object::StateStored {
            return self.state_stored(result.is_ok());
        }
        self.balance.reading.since = None;
        self.balance.reading.failure = None;
        match (what, result) {
            (Object::State, Ok(StoreResult::Bytes(bytes, _))) => {
                // A damaged state counts as none.
                self.balance.saved = decode(&bytes).ok();
                self.balance.reading.has_state = true;
            }
            (Object::State, Ok(_)) => self.balance.reading.has_state = true,
            (Object::Policy(version), Ok(StoreResult::Bytes(bytes, _))) => {
                if version == self.balance.entry.version {
                    let parsed = BalancerPolicy::parse_bytes(&self.balance.entry.name, &bytes);
                    match parsed {
                        Ok(policy) => self.install(version, policy),
                        Err(fault) => self.policy_failed(version, fault.to_string()),
                    }
                }
            }
            (Object::Policy(_), Ok(_)) => {
                let cause =
                    format!("its object is not in the store ({})", Errno::NotFound.symbol());
                (self.balance.reading.again, self.balance.reading.failure) = (again, Some(cause));
            }
            (_, Err(failure)) => {
                let cause = failure.error.to_string();
                (self.balance.reading.again, self.balance.reading.failure) = (again, Some(cause));
            }
            (Object::StateStored, Ok(_)) => {}
        }
    }

    fn install(&mut self, version: u64, policy: BalancerPolicy) {
        self.balance.reading.version = version;
        self.balance.versions.install(version, policy);
        self.balance.fault = None;
        self.forget_state();
    }

    /// The version cannot be had. The one before stays, and nothing is decided.
    fn policy_failed(&mut self, version: u64, cause: String) {
        self.balance.reading.version = version;
        self.balance.reading.failure = Some(cause);
    }

    /// Another version is in force: it begins with the state that it saved itself, or with none.
    pub(super) fn forget_state(&mut self) {
        let version = self.balance.versions.current().0;
        let saved = self.balance.saved.as_ref().filter(|(of, _)| *of == version);
        self.balance.state = saved.map_or(State::Nothing, |(_, state)| state.clone());
    }

    /// Adopts the state of a decision, and begins its moves when the store has the state.
    pub(super) fn remember(&mut self, state: State, moves: Vec<Move>, effects: &mut MdsEffects) {
        let version = self.balance.versions.current().0;
        let known =
            self.balance.saved.as_ref().is_some_and(|saved| *saved == (version, state.clone()));
        let nothing = state == State::Nothing
            && self.balance.saved.as_ref().is_none_or(|(of, _)| *of != version);
        if known || nothing {
            self.balance.state = state;
            return self.plan_moves(moves);
        }
        self.balance.storing = Some(moves);
        self.balance.saved = Some((version, state.clone()));
        let put = StoreOp::Put {
            object: state_name(self.rank.0),
            data: encode(version, &state),
            condition: Condition::Any,
        };
        self.balance.state = state;
        self.store.begin(Waiting::Balance(Object::StateStored), put, effects);
    }

    fn state_stored(&mut self, stored: bool) {
        let Some(moves) = self.balance.storing.take() else { return };
        if stored {
            self.plan_moves(moves);
        } else {
            // The state is stored with the next decision; the moves of this one are dropped.
            self.balance.saved = None;
        }
    }
}

/// The object with the state of a rank's policy.
fn state_name(rank: u16) -> String {
    format!("balancer/state/{rank:04x}")
}

const VERSION: u8 = 1;

fn encode(version: u64, state: &State) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.put_u64(version);
    out.extend_from_slice(&state.encode());
    out
}

fn decode(bytes: &[u8]) -> Result<(u64, State), Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(reader.malformed("version 1"));
    }
    let version = reader.u64()?;
    Ok((version, State::decode(reader.rest())?))
}

#[cfg(test)]
mod tests {
    use balancer::Scalar;

    use super::*;

    #[test]
    fn the_state_of_a_policy_reads_back_and_truncation_is_detected() {
        let state = State::One(Scalar::Number(2.0));
        let bytes = encode(7, &state);
        assert_eq!(decode(&bytes), Ok((7, state)));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
        }
    }
}
