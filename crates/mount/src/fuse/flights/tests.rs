use super::*;

/// This test's thread, which has no signal pending.
fn me() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// A thread that the watcher takes for one with a pending signal.
const SIGNALLED_THREAD: u32 = u32::MAX;

fn begun(unique: u64, caller: u32) -> Begun {
    Begun { unique, caller, is_flush: false, crew: DEVICE, entry: None }
}

/// A request of the first queue.
fn queued(unique: u64, caller: u32) -> Begun {
    Begun { crew: DEVICE + 1, entry: Some(Entry::new()), ..begun(unique, caller) }
}

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
    let flights = Flights::new(&[1]);
    flights.begin(begun(1, me()));
    assert_eq!(due(&flights, |due| !due.threads.is_empty()).threads, [(DEVICE, 1)]);
    // The replacement works on a fast request, and both requests have callers that wait.
    flights.begin(begun(2, me()));
    let (second, first) = (flights.end(2), flights.end(1));
    assert!(second.is_awaited && second.is_needed);
    assert!(first.is_awaited && !first.is_needed);
}

#[test]
fn an_interrupted_request_is_answered_once() {
    let flights = Flights::new(&[3]);
    flights.begin(begun(1, SIGNALLED_THREAD));
    flights.begin(begun(2, me()));
    flights.begin(begun(3, SIGNALLED_THREAD));
    assert!(flights.interrupt(1) && flights.interrupt(2));
    assert!(!flights.interrupt(4), "an unknown request");
    assert_eq!(due(&flights, |due| !due.interrupted.is_empty()).interrupted, [1]);
    assert!(flights.watch().expect("mounted").interrupted.is_empty());
    assert!(!flights.end(1).is_awaited, "the caller has left");
    // No signal is pending for the second caller, and the third was not interrupted.
    assert!(flights.end(2).is_awaited && flights.end(3).is_awaited);
}

#[test]
fn a_wait_for_a_lock_is_cancelled_before_its_caller_is_answered() {
    let flights = Flights::new(&[1]);
    flights.begin(begun(1, SIGNALLED_THREAD));
    let cancel: Cancel = Arc::new(|| {});
    assert_eq!(
        flights.waits(1, cancel).unwrap(),
        [(DEVICE, 1)],
        "a thread takes its place at once"
    );
    assert!(flights.interrupt(1));
    let first = due(&flights, |due| !due.cancels.is_empty());
    assert!(first.interrupted.is_empty());
    // A cancellation that runs is not repeated, but its caller does not wait for it.
    let later = due(&flights, |due| !due.interrupted.is_empty());
    assert!(later.cancels.is_empty());
    drop(first);
    assert_eq!(due(&flights, |due| !due.cancels.is_empty()).cancels.len(), 1);
    let ended = flights.end(1);
    assert!(!ended.is_awaited && !ended.is_needed);
}

#[test]
fn waits_for_locks_leave_threads_for_their_ends() {
    let flights = Flights::new(&[1]);
    let wait = |unique| {
        flights.begin(begun(unique, me()));
        flights.waits(unique, Arc::new(|| {}))
    };
    let (first, last) = (1, WAITS_MAX as u64);
    assert!((first..=last).all(|unique| wait(unique).is_ok()));
    assert_eq!(wait(last + 1).unwrap_err().errno, Errno::NoLocks);
    flights.end(first);
    assert!(wait(last + 2).is_ok());
}

#[test]
fn requests_that_follow_each_other_closely_are_noticed_and_their_end_too() {
    let flights = Flights::new(&[1]);
    flights.begin(begun(1, me()));
    flights.end(1);
    flights.begin(begun(2, me()));
    assert!(!flights.watch().expect("mounted").is_busy, "two are few");
    for unique in 3..=3 + BUSY {
        flights.begin(begun(unique, me()));
        flights.end(unique);
    }
    assert!(flights.watch().expect("mounted").is_busy);
    flights.end(2);
    assert!(!flights.watch().expect("mounted").is_busy, "no request since the last look");
}

#[test]
fn the_watcher_ends_with_the_mount() {
    let flights = Flights::new(&[1]);
    flights.leave(DEVICE, true, true);
    assert!(flights.is_over() && flights.watch().is_none());
    flights.leave_watch();
    flights.wait();
}

#[test]
fn an_early_answer_takes_the_entry_to_another_thread() {
    let flights = Flights::new(&[1, 1]);
    flights.begin(queued(1, SIGNALLED_THREAD));
    assert!(flights.interrupt(1));
    assert_eq!(due(&flights, |due| !due.to_take.is_empty()).to_take, [(1, DEVICE + 1)]);
    // Until a thread takes the entry, the caller is not answered.
    assert_eq!(due(&flights, |due| !due.to_take.is_empty()).to_take, [(1, DEVICE + 1)]);
    assert!(flights.join() && flights.take_entry(1).is_some());
    assert!(flights.take_entry(1).is_none(), "once");
    assert!(flights.watch().expect("mounted").to_take.is_empty());
    let ended = flights.end(1);
    assert!(!ended.is_awaited && !ended.is_needed && ended.entry.is_none());
    flights.leave(DEVICE + 1, false, false);
    assert!(flights.take_entry(1).is_none(), "the request has ended");
}

#[test]
fn a_blocked_thread_of_a_queue_is_replaced_and_stays() {
    let flights = Flights::new(&[1, 1, 1]);
    flights.begin(queued(1, me()));
    assert_eq!(flights.waits(1, Arc::new(|| {})).unwrap(), [(DEVICE + 1, 1)]);
    let ended = flights.end(1);
    assert!(ended.is_awaited && ended.entry.is_some(), "its entry cannot leave the queue");
    // Two are ready now, so one may block.
    flights.begin(queued(2, me()));
    assert_eq!(flights.waits(2, Arc::new(|| {})).unwrap(), []);
}

#[test]
fn an_interrupt_may_overtake_a_request_of_a_queue() {
    let flights = Flights::new(&[1, 1]);
    assert!(!flights.interrupt(1));
    flights.begin(queued(1, SIGNALLED_THREAD));
    assert_eq!(due(&flights, |due| !due.to_take.is_empty()).to_take, [(1, DEVICE + 1)]);
    for unique in 2..200 {
        assert!(!flights.interrupt(unique));
    }
    assert_eq!(flights.lock().early.len(), EARLY_MAX);
}
