//! Balancer policies, states and heartbeats of unknown origin.

#![no_main]

use balancer::{Heartbeat, Metrics, Policy, Record, State, View, decide};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(state) = State::decode(bytes) {
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }
    let _ = Heartbeat::decode(bytes);
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
    if let Ok(policy) = Policy::parse_bytes("fuzz", bytes) {
        let view = View { ranks: vec![Metrics::default(); 3], ..View::default() };
        let decision = decide(&policy, &view, &State::Nothing);
        assert_eq!(decision.targets.len(), 3);
        assert!(decision.targets.iter().all(|target| *target >= 0.0));
    }
});
