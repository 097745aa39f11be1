use super::*;

fn processors_of(thread: Option<rustix::process::Pid>) -> u32 {
    rustix::thread::sched_getaffinity(thread).unwrap().count()
}

#[test]
fn a_thread_that_a_bound_one_starts_is_freed() {
    let bound = Bound::default();
    std::thread::scope(|scope| {
        let bound = &bound;
        scope.spawn(move || {
            let all = processors_of(None);
            let binding = bound.bind(0);
            assert_eq!(processors_of(None), 1);
            let (begun, go) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
            let heir = scope.spawn(move || {
                begun.0.send(rustix::thread::gettid()).unwrap();
                go.1.recv().unwrap();
            });
            let thread = begun.1.recv().unwrap();
            assert_eq!(processors_of(Some(thread)), 1, "inherited");
            bound.free_heirs();
            assert_eq!(processors_of(Some(thread)), all);
            assert_eq!(processors_of(None), 1, "the bound one stays");
            go.0.send(()).unwrap();
            heir.join().unwrap();
            drop(binding);
            assert_eq!(processors_of(None), all);
        });
    });
}

#[test]
fn this_machine_has_queues_or_too_many_processors() {
    let online = std::thread::available_parallelism().unwrap().get();
    assert!(queue_count().is_none_or(|count| usize::from(count) >= online));
    assert!(is_online(0));
}
