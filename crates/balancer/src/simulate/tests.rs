use super::*;
use crate::preset;

fn run(name: &str, setup: &Setup) -> SimulationReport {
    let policy = preset(name).unwrap();
    let setup = Setup { pinned: name == "static", ..*setup };
    simulate(&policy, &setup, &Expired::never())
}

#[test]
fn equal_setups_give_equal_reports_and_other_seeds_others() {
    let setup = Setup { seconds: 60, ..Setup::new(Workload::Compile, 4) };
    let first = run("adaptable", &setup);
    assert_eq!(first, run("adaptable", &setup));
    assert_ne!(first, run("adaptable", &Setup { seed: 2, ..setup }));
}

/// The median throughput of three seeds.
fn rate(name: &str, setup: &Setup) -> f64 {
    let mut rates: Vec<f64> =
        (1..=3).map(|seed| run(name, &Setup { seed, ..*setup }).per_second).collect();
    rates.sort_by(f64::total_cmp);
    rates[1]
}

fn shares(report: &SimulationReport) -> Vec<f64> {
    let last = &report.series[report.series.len() - 1];
    let all: f64 = last.iter().sum();
    last.iter().map(|requests| requests / all).collect()
}

#[test]
fn one_rank_is_busy_with_four_clients_and_no_faster_with_more() {
    let rate = |clients| {
        let setup = Setup { clients, seconds: 30, ..Setup::new(Workload::Private, 1) };
        run("static", &setup).per_second
    };
    let capacity = 1.0 / SimulationModel::default().request_seconds;
    assert!((900.0..1000.1).contains(&rate(1)), "{}", rate(1));
    assert!(rate(4) > 2.8 * rate(1) && rate(4) < capacity, "{}", rate(4));
    for clients in [8, 64, 512] {
        let rate = rate(clients);
        assert!(rate > 0.93 * capacity && rate <= capacity * 1.0001, "{clients}: {rate}");
    }
}

#[test]
fn no_rank_does_more_than_it_can() {
    for workload in Workload::ALL {
        let setup = Setup { seconds: 120, clients: 40, ..Setup::new(workload, 5) };
        let report = run("adaptable-too-aggressive", &setup);
        assert_eq!(report.fault, None);
        assert!(report.migrations > 0, "{}", workload.name());
        // The lightest request of a workload is two fifths of a create.
        let most = 2.5 / setup.model.request_seconds;
        let worst = report.series.iter().flatten().copied().fold(0.0, f64::max);
        assert!(worst <= most, "{}: {worst}", workload.name());
    }
}

#[test]
fn the_shapes_of_figure_7() {
    let setup = Setup { ranks: 4, clients: 16, seconds: 200, ..Setup::new(Workload::Shared, 4) };
    let uneven = shares(&run("greedy-spill", &setup));
    assert!(uneven[0] > 1.7 * uneven[1] && uneven[1] > 1.7 * uneven[2], "{uneven:?}");
    let even = shares(&run("greedy-spill-even", &setup));
    assert!(even.iter().all(|share| (0.2..0.3).contains(share)), "{even:?}");
    let fill = run("fill-and-spill-10", &setup);
    let first = &fill.events[0];
    assert!(first.second >= 20, "three ticks above 48 %: {first:?}");
}

#[test]
fn too_aggressive_moves_more_and_wins_nothing() {
    let setup = Setup { seconds: 200, ..Setup::new(Workload::Compile, 5) };
    let (calm, wild) = (run("adaptable", &setup), run("adaptable-too-aggressive", &setup));
    assert!(wild.migrations > 10 * calm.migrations);
    assert!(wild.forwards_per_thousand > 5.0 * calm.forwards_per_thousand);
    assert!(wild.per_second < calm.per_second);
}

#[test]
fn the_default_policy_reaches_the_rate_of_manual_pins() {
    let setup = Setup { seconds: 120, ..Setup::new(Workload::Private, 4) };
    assert!(rate("cudele", &setup) > 0.98 * rate("static", &setup));
    assert!(rate("cudele", &setup) >= 0.99 * rate("cephfs", &setup));
}

#[test]
fn a_hundred_and_twenty_eight_ranks_balance_without_a_fault() {
    let setup = Setup { seconds: 25, ..Setup::new(Workload::Private, 128) };
    let report = run("cudele", &setup);
    assert_eq!((report.faults, report.fault), (0, None));
    assert!(report.migrations >= 128);
    let last = &report.series[24];
    assert!(last.iter().filter(|requests| **requests > 0.0).count() > 100, "{last:?}");
}

#[test]
fn a_policy_that_fails_moves_nothing_and_is_counted() {
    let policy =
        BalancerPolicy::parse("bad", "-- When policy\nif MDSs[9].load > 1 then\n").unwrap();
    let setup = Setup { seconds: 60, ..Setup::new(Workload::Private, 2) };
    let report = simulate(&policy, &setup, &Expired::never());
    assert_eq!((report.migrations, report.faults), (0, 12));
    assert_eq!(report.fault.unwrap().line, Some(2));
}

#[test]
fn pictures_show_every_rank() {
    let setup = Setup { seconds: 40, ..Setup::new(Workload::Private, 3) };
    let report = run("cephfs", &setup);
    let bars = report.bars(20);
    assert_eq!(bars.lines().filter(|line| line.starts_with("rank ")).count(), 3, "{bars}");
    assert!(bars.contains('█'), "{bars}");
    let svg = report.svg("a < b & c");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polygon").count(), 3);
    assert!(svg.contains("a &lt; b &amp; c"));
    assert!(SimulationReport::default().bars(0).contains("0 s"), "nothing to show is no fault");
    assert!(!SimulationReport::default().svg("").contains("NaN"));
}
