use serde_json::json;

use super::{Row, side_by_side, table, title};

fn row() -> Row {
    let mut row = Row::new("merge", "by_value_1K", 1000).clients(2);
    row.store = "dir:/x".into();
    for (seconds, base) in [(2.0, 1.0), (4.0, 1.0), (3.0, 2.0)] {
        row.push(seconds);
        row.against(base);
        row.note("verify_ms", seconds * 10.0);
    }
    row
}

#[test]
fn a_row_carries_every_repetition_and_figures_of_all_of_them() {
    let value = row().to_json();
    assert_eq!(value["seconds"], json!([2.0, 4.0, 3.0]));
    assert_eq!(value["median"], json!(3.0));
    assert_eq!((&value["min"], &value["max"]), (&json!(2.0), &json!(4.0)));
    assert_eq!(value["slowdown"], json!(2.0));
    assert_eq!(value["verify_ms"], json!(30.0));
    assert_eq!(value["replication"], json!(1));
    assert!(value["bytes_per_event"].is_null());
}

#[test]
fn a_rate_counts_the_operations_of_all_clients() {
    let rate = row().per_second().expect("there are repetitions");
    assert!((rate - 2000.0 / 3.0).abs() < 1e-9);
    assert_eq!(Row::new("merge", "nothing", 5).per_second(), None);
}

#[test]
fn a_goal_is_about_the_median_and_says_whether_it_was_met() {
    let mut row = row();
    row.goal("verify_ms", 30.0);
    row.goal("never_measured", 1.0);
    let goal = |met: bool| json!([{"figure": "verify_ms", "at_least": 30.0, "met": met}]);
    assert_eq!(row.to_json()["goals"], goal(true));
    assert_eq!(row.to_json()["each"]["verify_ms"], json!([20.0, 40.0, 30.0]));
    assert!(table(std::slice::from_ref(&row)).contains("goal verify_ms 30 met"));
    row.note("verify_ms", 0.0);
    assert!(table(&[row]).contains("goal verify_ms 30 missed"));
}

#[test]
fn a_limit_is_met_below_it() {
    let mut row = row();
    row.limit("verify_ms", 30.0);
    let goal = |met: bool| json!([{"figure": "verify_ms", "at_most": 30.0, "met": met}]);
    assert_eq!(row.to_json()["goals"], goal(true));
    row.note("verify_ms", 99.0);
    assert_eq!(row.to_json()["goals"], goal(false));
}

#[test]
fn a_store_of_unknown_kind_claims_no_replication() {
    let row = Row { store: "rados:pool".into(), ..row() };
    assert!(row.to_json()["replication"].is_null());
}

#[test]
fn the_table_has_a_line_per_row_under_a_head() {
    let text = table(&[row(), Row::new("merge", "x", 1)]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("per second"));
    assert!(lines[1].starts_with("by_value_1K") && lines[1].ends_with("verify_ms 30 (20..40)"));
    assert!(lines.iter().all(|line| !line.ends_with(' ')));
}

#[test]
fn rows_on_several_stores_stand_side_by_side() {
    let mut slower = row();
    slower.store = "memory:".into();
    slower.seconds = vec![6.0];
    let (here, there) = ([row(), Row::new("merge", "only_here", 1)], [slower]);
    assert_eq!(title(&here, true), "merge on dir, 1 copy");
    assert_eq!(title(&here, false), "merge");
    let text = side_by_side(&[&here, &there]);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "per second (dir, 1 copy) per second (memory, 1 copy)";
    assert_eq!(lines[0].join(" "), head);
    assert_eq!(lines[1], ["by_value_1K", "667", "333", "(0.50x)"]);
    assert_eq!(lines[2], ["only_here"]);
}
