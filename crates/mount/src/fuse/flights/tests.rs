use super::*;

/// This test's thread, which has no signal pending.
fn me() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// A thread that the watcher takes for one with a pending signal.
const SIGNALLED_THREAD: u32 = u32::MAX;

/// Watches until something is due.
fn due(flights: &Flights, is_due: impl Fn(&Due) -> bool) -> Due {
    for _ in 0..50 {
        let found = flights.watch().expect("mounted");
        if is_due(&found) {
            return found;
        }
    }
    panic!("nothing is due after five seconds");
}

#[test]
fn a_slow_thread_is_replaced_and_ends_later() {
    let flights = Flights::new(1);
    flights.begin(1, me(), false);
    assert_eq!(due(&flights, |due| due.threads > 0).threads, 1);
    // The replacement works on a fast request, and both requests have callers that wait.
    flights.begin(2, me(), false);
    assert_eq!(flights.end(2), (true, true));
    assert_eq!(flights.end(1), (true, false));
}

#[test]
fn an_interrupted_request_is_answered_once() {
    let flights = Flights::new(3);
    flights.begin(1, SIGNALLED_THREAD, false);
    flights.begin(2, me(), false);
    flights.begin(3, SIGNALLED_THREAD, false);
    assert!(flights.interrupt(1) && flights.interrupt(2));
    assert!(!flights.interrupt(4), "an unknown request");
    assert_eq!(due(&flights, |due| !due.interrupted.is_empty()).interrupted, [1]);
    assert!(flights.watch().expect("mounted").interrupted.is_empty());
    assert!(!flights.end(1).0, "the caller has left");
    // No signal is pending for the second caller, and the third was not interrupted.
    assert!(flights.end(2).0 && flights.end(3).0);
}

#[test]
fn a_wait_for_a_lock_is_cancelled_before_its_caller_is_answered() {
    let flights = Flights::new(1);
    flights.begin(1, SIGNALLED_THREAD, false);
    let cancel: Cancel = Arc::new(|| {});
    assert_eq!(flights.waits(1, cancel), 1, "a thread takes its place at once");
    assert!(flights.interrupt(1));
    let first = due(&flights, |due| !due.cancels.is_empty());
    assert!(first.interrupted.is_empty());
    // A cancellation that runs is not repeated, but its caller does not wait for it.
    let later = due(&flights, |due| !due.interrupted.is_empty());
    assert!(later.cancels.is_empty());
    drop(first);
    assert_eq!(due(&flights, |due| !due.cancels.is_empty()).cancels.len(), 1);
    assert_eq!(flights.end(1), (false, false));
}

#[test]
fn requests_that_follow_each_other_closely_are_noticed_and_their_end_too() {
    let flights = Flights::new(1);
    flights.begin(1, me(), false);
    flights.end(1);
    flights.begin(2, me(), false);
    assert!(!flights.watch().expect("mounted").is_busy, "two are few");
    for unique in 3..=3 + BUSY {
        flights.begin(unique, me(), false);
        flights.end(unique);
    }
    assert!(flights.watch().expect("mounted").is_busy);
    flights.end(2);
    assert!(!flights.watch().expect("mounted").is_busy, "no request since the last look");
}

#[test]
fn the_watcher_ends_with_the_mount() {
    let flights = Flights::new(1);
    flights.leave(true, true);
    assert!(flights.is_over() && flights.watch().is_none());
    flights.leave(false, true);
    flights.wait();
}
