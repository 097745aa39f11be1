use super::*;

#[test]
fn every_queue_has_threads() {
    let crews = crews(4);
    assert!(crews.iter().all(|&threads| threads > 0), "{crews:?}");
}

#[test]
fn the_gate_opens_for_all_and_reports_a_missing_ring() {
    let gate = Gate::default();
    std::thread::scope(|scope| {
        for has_ring in [true, false] {
            let gate = &gate;
            scope.spawn(move || {
                gate.arrive(has_ring);
                assert!(!gate.pass());
            });
        }
        assert!(!gate.await_all(2), "one has no ring");
        gate.open(false);
    });
}
