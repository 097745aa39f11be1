//! `cudele bench` with tiny sizes: every experiment runs, and prints the rows that tools rely on.
//!
//! The values of figures are not tested: they are the machine's. Their presence, and certain
//! relations between them, are. The clusters are those of `cudele` beside the program under test,
//! which `cargo test -p cli -p lab` builds.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start the program, read what it prints and say what they skip"
)]

mod soak;

use std::process::Command;

use serde_json::Value;

/// Runs an experiment with so many files, once, and returns its rows without the machine's own.
fn rows(name: &str, files: u64, more: &[&str]) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cudele-lab"))
        .args(["bench", name, "--json", "--quick", "--repeat", "1", "--files"])
        .arg(files.to_string())
        .arg("--dir")
        .arg(dir.path())
        .args(more)
        .env("HOME", dir.path())
        .env_remove("CUDELE_MON")
        .env_remove("CUDELE_DIR")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "bench {name} failed: {errors}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "bench {name} left something behind: {left:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    rows.iter().for_each(check);
    assert_eq!(rows[0]["name"], "round_trip_64_bytes", "the machine's own figure comes first");
    rows.into_iter().filter(|row| row["bench"] != "probe").collect()
}

/// The figures that every row has.
fn check(row: &Value) {
    for field in ["bench", "name", "store", "version"] {
        assert!(row[field].is_string(), "{field} of {row}");
    }
    for field in ["files", "clients", "median", "min", "max"] {
        assert!(row[field].is_number(), "{field} of {row}");
    }
    for field in ["per_second", "slowdown", "bytes_per_event", "replication"] {
        assert!(row.get(field).is_some(), "{field} of {row}");
    }
    let seconds: Vec<f64> = serde_json::from_value(row["seconds"].clone()).unwrap();
    // One without sync before each with it.
    let runs = if row["name"] == "no_sync" { 2 } else { 1 };
    assert_eq!(seconds.len(), runs, "one repetition in {row}");
    let [min, median, max] = ["min", "median", "max"].map(|key| row[key].as_f64().unwrap());
    assert!(0.0 <= min && min <= median && median <= max, "the time of {row}");
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
}

#[test]
fn batch_jobs_ask_for_nothing_while_they_create() {
    let rows = rows("batch", 20_000, &["--clients", "2"]);
    assert_eq!(names(&rows), ["jobs_1", "jobs_2"]);
    for row in &rows {
        assert_eq!(row["taken_back_per_create"], 0.0, "{row}");
        for counter in ["requests_per_create", "waits_per_create", "lookups_per_create"] {
            assert!(row[counter].as_f64().unwrap() < 0.005, "{counter} of {row}");
        }
        assert!(row["bytes_per_event"].as_f64().unwrap() < 20.0, "{row}");
    }
    assert!(rows[1]["slope_per_processor"].is_number());
}

#[test]
fn mechanisms_are_measured_alone_and_beside_the_disk() {
    let rows = rows("mechanisms", 300, &[]);
    let expected = [
        "append_client_journal",
        "rpcs",
        "rpcs+stream",
        "rpcs+local_persist",
        "local_persist",
        "sequential_write_local",
        "global_persist",
        "sequential_write_store",
        "volatile_apply",
        "nonvolatile_apply",
        "nonvolatile_apply_reference",
    ];
    assert_eq!(names(&rows), expected);
    let append = row(&rows, "append_client_journal");
    assert_eq!(append["requests"], 0.0, "appending asks nobody");
    assert_eq!(append["slowdown"], 1.0);
    assert!(append["bytes_per_event"].as_f64().unwrap() < 12.0);
    assert!(row(&rows, "rpcs")["slowdown"].as_f64().unwrap() > 1.0);
}

#[test]
fn every_preset_and_every_cell_is_measured_end_to_end() {
    let rows = rows("compositions", 100, &[]);
    let names = names(&rows);
    let presets = ["posix", "posix-volatile", "indexfs", "batchfs", "deltafs", "ramdisk", "hdfs"];
    for consistency in ["invisible", "weak", "strong"] {
        for durability in ["none", "local", "global"] {
            assert!(names.contains(&format!("{consistency}-{durability}").as_str()));
        }
    }
    assert!(presets.iter().all(|preset| names.contains(preset)));
    assert_eq!(
        names.len(),
        1 + presets.len() + 9 + 3,
        "nonvolatile, and two persists in both ways"
    );
}

#[test]
fn everything_is_measured_on_each_store_that_is_named() {
    let stores = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let urls = stores.each_ref().map(|store| format!("dir:{}", store.path().display()));
    let rows = rows("journal-size", 100, &["--store", &urls[0], "--store", &urls[1]]);
    let (first, second) = rows.split_at(rows.len() / 2);
    assert!(!first.is_empty() && names(first) == names(second));
    for (rows, url) in [(first, &urls[0]), (second, &urls[1])] {
        assert!(rows.iter().all(|row| row["store"].as_str().unwrap().starts_with(url.as_str())));
    }
}

#[test]
fn clients_are_counted_where_there_are_several() {
    let rows = rows("creates", 100, &["--clients", "3"]);
    let expected = [
        "decoupled_1_client",
        "rpcs_1_client",
        "sync_1_client",
        "rpcs_3_clients",
        "sync_3_clients",
        "two_clients_one_directory",
        "async_1_client",
        "async_rpcs_1_client",
    ];
    assert_eq!(names(&rows), expected);
    let several = row(&rows, "sync_3_clients");
    assert_eq!(several["clients"], 3);
    let rate = several["per_second"].as_f64().unwrap();
    let expected = 300.0 / several["median"].as_f64().unwrap();
    assert!((rate / expected - 1.0).abs() < 1e-9, "the rate is of all clients together");
}

#[test]
fn a_lone_client_sends_no_lookups_and_an_interfered_one_does() {
    // A client that hears nothing for a second knows nothing any more: on a machine that is that
    // busy the bench measures something else, which it is allowed twice.
    let mut found = Vec::new();
    for _ in 0..3 {
        let rows = rows("interference", 400, &[]);
        assert_eq!(names(&rows), ["lone", "interfered", "stat_cached", "stat_uncached"]);
        let of = |name: &str, figure: &str| row(&rows, name)[figure].as_f64().unwrap();
        assert!(of("interfered", "other_creates_per_second") > 0.0);
        assert_eq!(of("stat_uncached", "requests_per_stat"), 1.0);
        let lone = of("lone", "requests_per_create");
        let before = of("interfered", "requests_per_create_before");
        let after = of("interfered", "requests_per_create_after");
        let counted = of("lone", "lookups_per_create");
        let cached = of("stat_cached", "requests_per_stat");
        found.push((lone, before, after, counted, cached));
        let few = [lone, before].iter().all(|requests| (1.0..1.8).contains(requests));
        let known = counted < 0.8 && cached < 0.8;
        if few && known && (1.3..=2.1).contains(&after) && lone < after {
            return;
        }
    }
    panic!("requests per create alone, before, beside another; lookups; cached: {found:?}");
}

#[test]
fn the_knee_is_one_of_the_numbers_or_there_is_none() {
    let rows = rows("knee", 50, &["--clients", "2"]);
    assert_eq!(names(&rows)[..2], ["clients_1", "clients_2"]);
    assert_eq!(rows.len(), 3);
    assert_eq!(row(&rows, "clients_1")["slowdown"], 1.0);
    let [one, two] = [0, 1].map(|at| rows[at]["per_second"].as_f64().unwrap());
    let (name, clients) = if two < one * 1.05 { ("knee", 1) } else { ("no_knee_up_to_2", 2) };
    assert_eq!((rows[2]["name"].as_str(), &rows[2]["clients"]), (Some(name), &clients.into()));
    assert!(two * rows[1]["median"].as_f64().unwrap() > 99.0, "the rate is of both clients");
}

#[test]
fn a_waiting_client_is_served_beside_pipelining_clients() {
    let rows = rows("overload", 1, &["--clients", "2"]);
    let expected =
        ["waiting_alone", "saturated_2", "twice_2", "saturated_4", "deep_2", "pipelined_8"];
    assert_eq!(names(&rows), expected);
    for row in &rows {
        assert!(row["waiting_per_second"].as_f64().unwrap() > 0.0, "{row}");
        let others = row["name"] != "waiting_alone";
        assert_eq!(row["served_per_second"].as_f64().is_some_and(|rate| rate > 0.0), others);
    }
    assert!(row(&rows, "twice_2")["of_saturated"].as_f64().unwrap() > 0.0);
}

#[test]
fn journals_are_sized_for_numbers_and_for_real_names() {
    let tree = tempfile::tempdir().unwrap();
    for name in ["a", "a/read me", "a/link", "b"] {
        let path = tree.path().join(name);
        match name {
            "a" => std::fs::create_dir(path).unwrap(),
            "a/link" => std::os::unix::fs::symlink("read me", path).unwrap(),
            _ => std::fs::write(path, name).unwrap(),
        }
    }
    let source = tree.path().to_str().unwrap();
    let rows = rows("journal-size", 100, &["--names", source]);
    assert_eq!(names(&rows), ["numbered_10", "numbered_100", "real_10"]);
    assert_eq!(row(&rows, "real_10")["files"], 4, "the tree has no more");
}

#[test]
fn merges_grow_by_size_and_arrive_together() {
    let rows = rows("merge", 1_000, &["--clients", "2"]);
    // Only root works as another user, too.
    let is_root = rustix::process::geteuid().is_root();
    let of_users: &[&str] = if is_root { &["of_root_1K", "of_user_1K"] } else { &[] };
    let others = [
        "into_full_1K",
        "arriving_together_2",
        "one_after_another_2",
        "arriving_staggered_2",
        "one_directory_2",
        "rpcs+stream_2",
    ];
    assert_eq!(names(&rows), [&["by_value_1K"], of_users, &others].concat());
    if is_root {
        assert!(row(&rows, "of_user_1K")["of_root"].as_f64().unwrap() > 0.0);
    }
    let together = row(&rows, "arriving_together_2");
    let goals: Vec<_> = together["goals"].as_array().unwrap().iter().collect();
    assert_eq!(goals.len(), 2, "creates in all, and against requests");
    assert!(goals.iter().all(|goal| goal["met"].is_boolean()));
    let rate = together["creates_per_second"].as_f64().unwrap();
    let by_rpc = row(&rows, "rpcs+stream_2")["creates_per_second"].as_f64().unwrap();
    let ratio = together["of_rpcs+stream"].as_f64().unwrap();
    assert!((ratio * by_rpc / rate - 1.0).abs() < 1e-6, "of the same repetition");
    assert!(row(&rows, "arriving_staggered_2")["interval_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn blocked_clients_are_refused_while_the_owner_continues() {
    let rows = rows("block-allow", 1, &["--clients", "2"]);
    let expected = [
        "owner_alone",
        "beside_2",
        "block_2",
        "allow_2",
        "beside_2_paced",
        "block_2_paced",
        "beside_2_one_in_flight",
        "block_2_one_in_flight",
    ];
    assert_eq!(names(&rows), expected);
    for row in &rows {
        assert!(row["files"].as_u64().unwrap() > 0, "the owner created files: {row}");
        assert_eq!(row["owner_requests"], 0.0, "the owner asked nobody: {row}");
        let refused = row["refused_per_second"].as_f64();
        let served = row["served_per_second"].as_f64();
        let name = row["name"].as_str().unwrap();
        // A client that gets another answer than its case says fails, and the experiment with it.
        assert_eq!(refused.is_some_and(|rate| rate > 0.0), name.starts_with("block"), "{row}");
        let others_served = name.starts_with("beside") || name.starts_with("allow");
        assert_eq!(served.is_some_and(|rate| rate > 0.0), others_served, "{row}");
    }
    assert!(row(&rows, "block_2")["refused_p99_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn work_is_merged_while_it_goes_on() {
    let rows = rows("sync", 3_000, &[]);
    assert_eq!(names(&rows), ["no_sync", "sync_1s", "sync_5s"]);
    let synced = row(&rows, "sync_1s");
    assert!(synced["syncs"].as_f64().unwrap() >= 1.0, "{synced}");
    assert!(synced["of_no_sync"].as_f64().unwrap() > 0.0, "{synced}");
}

#[test]
fn a_killed_server_recovers_every_event() {
    let rows = rows("recovery", 500, &["--clients", "2"]);
    assert_eq!(names(&rows), ["empty_journal", "journal_500"]);
    assert!(row(&rows, "journal_500")["recovered_events"].as_f64().unwrap() >= 500.0);
}

#[test]
fn the_other_experiments_run() {
    let few = ["--clients", "2"];
    assert_eq!(names(&rows("memory", 500, &few)), ["by_merge", "by_rpcs", "by_rpcs+stream"]);
    let rows = rows("trim", 500, &[]);
    assert_eq!(names(&rows), ["no_trimming", "trimming"]);
    assert!(rows.iter().all(|row| row["max_us"].as_f64() >= row["p50_us"].as_f64()));
}

#[test]
fn directories_are_listed_completely_in_every_way() {
    let rows = rows("readdir", 1_000, &[]);
    assert_eq!(
        names(&rows),
        ["rpc_warm_1K", "rpc_cold_1K", "stored_cold_1K", "view_1K", "view_again_1K"]
    );
    for row in &rows[..4] {
        assert_eq!(row["entries"], 1_000.0, "{row}");
    }
}

#[test]
fn the_mount_is_measured_beside_one_that_does_nothing() {
    if !mounts() {
        return;
    }
    let rows = rows("fuse", 200, &[]);
    let pairs = ["create", "stat", "readdir", "write", "read", "tar"];
    for pair in pairs {
        for way in ["nothing", "batchfs"] {
            assert!(row(&rows, &format!("{pair}_{way}"))["median"].as_f64().unwrap() > 0.0);
        }
    }
    for way in ["nothing", "batchfs", "posix", "wsync"] {
        assert_eq!(row(&rows, &format!("readdir_{way}"))["entries"], 200.0);
    }
    assert!(row(&rows, "create_posix")["of_nothing"].as_f64().unwrap() > 0.0);
    assert!(row(&rows, "read_batchfs")["of_store"].as_f64().unwrap() > 0.0);
    assert!(row(&rows, "ingest_batchfs")["times_local_tar"].as_f64().unwrap() > 0.0);
}

/// Whether this machine can mount.
fn mounts() -> bool {
    let helper = std::process::Command::new("fusermount3").arg("-V").output().is_ok();
    let may = helper || rustix::process::geteuid().is_root();
    std::path::Path::new("/dev/fuse").exists() && may
}

/// An archive of a tree with cp as compiler, because machines that test need none.
fn small_sources(home: &std::path::Path) -> std::path::PathBuf {
    let tree = home.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("Makefile"), "all: a.o\n%.o: %.c config.h\n\tcp $< $@\n").unwrap();
    std::fs::write(tree.join("a.c"), "#include <a.h>\nint a;\n").unwrap();
    std::fs::write(tree.join("configure"), "#!/bin/sh\n: > config.h\n").unwrap();
    let archive = home.join("tree.tar");
    let pack = "chmod +x \"$1/tree/configure\" && tar cf \"$0\" -C \"$1\" tree";
    let mut shell = Command::new("sh");
    shell.args(["-c", pack]).arg(&archive).arg(home);
    assert!(shell.status().unwrap().success());
    archive
}

#[test]
fn a_source_tree_is_unpacked_configured_compiled_and_removed() {
    if !mounts() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let archive = small_sources(home.path());
    if Command::new("make").arg("--version").output().is_err() {
        return;
    }
    let rows = rows("untar", 1, &["--archive", archive.to_str().unwrap()]);
    let mut expected = Vec::new();
    for way in ["posix", "batchfs"] {
        expected
            .extend(["untar", "configure", "compile", "remove"].map(|it| format!("{it}_{way}")));
    }
    assert_eq!(names(&rows), expected);
    let of = |name: &str, figure: &str| row(&rows, name)[figure].as_f64().unwrap();
    assert_eq!(of("untar_posix", "files"), 4.0, "a directory and three files");
    // Three files are made, and three more by configure and make.
    assert!(of("untar_posix", "requests") >= 4.0 && of("remove_posix", "requests") >= 6.0);
    assert!(of("compile_posix", "local_seconds") > 0.0);
}

#[test]
fn programs_run_unchanged_in_every_place() {
    if !mounts() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let archive = small_sources(home.path());
    // The bench compares what tar and cp made with the archive.
    let rows = rows("programs", 1, &["--archive", archive.to_str().unwrap()]);
    for program in
        ["tar_x", "find", "find_again", "du", "ls_lR", "grep_r", "cp_a", "tar_c", "rm_rf"]
    {
        for place in ["mount", "decoupled"] {
            let row = row(&rows, &format!("{program}_{place}"));
            assert!(row["times_local"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert!(row(&rows, "rm_rf_decoupled")["merge_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn intercepted_programs_are_measured_beside_the_mount_and_memory() {
    if !mounts() || Command::new("cc").arg("--version").output().is_err() {
        return;
    }
    let rows = rows("intercept", 500, &[]);
    for run in ["easy", "two", "hard"] {
        for phase in ["create", "stat", "delete"] {
            let row = row(&rows, &format!("{run}_{phase}"));
            assert!(row["of_tmpfs"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["of_mount"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert!(row(&rows, "two_create")["of_one_process"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_tree_is_removed_restored_and_reaped_beside_a_client() {
    // Only root removes a tree at once.
    if !cudele::own_cred().is_root() {
        return;
    }
    let rows = rows("remove", 500, &[]);
    for name in ["gone", "restored"] {
        assert!(row(&rows, name)["ms"].as_f64().unwrap() > 0.0);
    }
    assert!(row(&rows, "others")["of_alone"].as_f64().unwrap() > 0.0);
    // The room of so small a tree may be given back before the measurement begins.
    assert!(row(&rows, "reaped")["names_per_second"].as_f64().unwrap() >= 0.0);
    assert!(row(&rows, "one_by_one")["us_per_name"].as_f64().unwrap() > 0.0);
}

#[test]
fn creates_are_measured_over_each_kind_of_connection() {
    let rows = rows("network", 500, &[]);
    // Beside a few connections, with `--quick`.
    assert!(row(&rows, "sync_crowd")["of_tcp"].as_f64().unwrap() > 0.0);
    for how in ["sync", "async"] {
        for kind in ["unix", "plain", "tcp", "rules"] {
            assert_eq!(row(&rows, &format!("{how}_{kind}"))["files"], 500);
        }
        for kind in ["tcp", "rules"] {
            let row = row(&rows, &format!("{how}_{kind}"));
            assert!(row["of_plain"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn checkpoints_are_written_in_both_patterns_and_found_again() {
    // Altered content fails the bench itself: another client walks through all of it.
    let rows = rows("checkpoint", 3, &["--clients", "2"]);
    for pattern in ["nn", "n1"] {
        for way in ["local", "posix", "posix-volatile", "batchfs", "hdfs", "deltafs", "ramdisk"] {
            let row = row(&rows, &format!("{pattern}_{way}"));
            assert_eq!((&row["files"], &row["clients"]), (&6.into(), &2.into()), "{row}");
            let of = |figure: &str| row[figure].as_f64();
            let returned = of("return_seconds").unwrap();
            assert!(returned > 0.0 && of("mb_per_second").unwrap() > 0.0, "{row}");
            let durable = of("durable_seconds");
            assert_eq!(durable.is_none(), matches!(way, "posix-volatile" | "ramdisk"), "{row}");
            assert!(durable.is_none_or(|seconds| seconds >= returned), "{row}");
            let invisible = matches!(way, "deltafs" | "ramdisk");
            assert_eq!(of("visible_seconds").is_none(), invisible, "{row}");
            assert_eq!(of("explicit_merge_seconds").is_some(), invisible, "{row}");
        }
    }
}

#[test]
fn a_job_and_a_checkpoint_work_beside_each_other_and_are_watched() {
    // Progress that does not only grow, and leftovers of attempts that do not count, fail the
    // bench.
    let rows = rows("workflow", 12, &["--clients", "2"]);
    let settings = ["local", "alone", "both_posix", "own", "own_synced"];
    let expected: Vec<_> =
        settings.iter().flat_map(|it| [format!("job_{it}"), format!("checkpoint_{it}")]).collect();
    assert_eq!(names(&rows), expected);
    for job in rows.iter().step_by(2) {
        assert_eq!(job["files"], 12, "{job}");
        assert!(job["progress_steps"].as_f64().unwrap() >= 1.0, "the observer saw parts: {job}");
        assert!(job["looks"].as_f64() >= job["progress_steps"].as_f64(), "{job}");
    }
    for checkpoint in rows.iter().skip(1).step_by(2) {
        assert_eq!((&checkpoint["files"], &checkpoint["clients"]), (&12.into(), &2.into()));
        assert!(checkpoint["mb_per_second"].as_f64().unwrap() > 0.0, "{checkpoint}");
    }
}

#[test]
fn a_data_set_is_read_in_random_order_from_everywhere() {
    // The bench compares the read content with the written one.
    let rows = rows("dataset", 50, &["--clients", "2"]);
    let mut expected = vec!["made_local".to_owned(), "made_batch".to_owned()];
    for (way, several) in [
        ("local", ""),
        ("requests", ""),
        ("view", ""),
        ("local", "_2_readers"),
        ("requests", "_2_readers"),
    ] {
        expected.extend(["cold", "warm"].map(|heat| format!("{way}_{heat}{several}")));
    }
    assert_eq!(names(&rows), expected);
    let of = |name: &str, figure: &str| row(&rows, name)[figure].as_f64().unwrap();
    assert!(of("requests_warm", "requests_per_file") >= 1.0, "nothing is remembered");
    assert!(of("view_warm", "requests_per_file") < 0.5, "the view asks nobody for a file");
    assert_eq!(of("local_cold", "requests_per_file"), 0.0);
    assert!(of("requests_cold", "times_local") > 0.0);
}

#[test]
fn no_content_is_moved_when_a_policy_changes() {
    let rows = rows("policy-change", 300, &[]);
    let expected = [
        "strong_to_weak",
        "decouple",
        "weak_to_strong",
        "weak_to_strong_held",
        "durable_to_volatile",
        "volatile_to_durable",
    ];
    assert_eq!(names(&rows), expected);
    for row in &rows {
        assert_eq!(row["data_bytes"], 0.0, "{row}");
        assert_eq!(row["goals"][0]["met"], true, "{row}");
    }
    let metadata = row(&rows, "weak_to_strong_held")["metadata_bytes"].as_f64().unwrap();
    assert!(metadata > 0.0, "what was held is written down");
}

#[test]
fn jobs_run_with_everything_on_a_disk_or_in_memory() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let rows = rows("placement", 60, &[]);
    let cells =
        ["weak-none", "weak-local", "weak-global", "strong-none", "strong-local", "strong-global"];
    let places = ["disk_disk", "disk_memory", "memory_disk", "memory_memory"];
    let expected: Vec<_> =
        cells.iter().flat_map(|cell| places.map(|place| format!("{cell}_{place}"))).collect();
    assert_eq!(names(&rows), expected);
    for row in &rows {
        assert!(row["times_all_on_disk"].as_f64().unwrap() > 0.0, "{row}");
    }
    let left = std::fs::read_dir("/dev/shm").unwrap().filter_map(Result::ok);
    // Other processes may be measuring at the same time.
    let ours =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with("cudele-bench."));
    for entry in ours {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.split('.').nth(1).unwrap_or_default().to_owned();
        let alive = std::path::Path::new("/proc").join(&pid).exists();
        assert!(alive, "{name} is left of a process that has ended");
    }
}

#[test]
fn journal_settings_are_swept() {
    let rows = rows("segments", 50, &[]);
    assert_eq!(names(&rows)[..2], ["no_journal", "default"]);
    assert_eq!(rows.len(), 11);
}

#[test]
fn an_experiment_that_does_not_exist_is_a_wrong_use() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_cudele-lab")).args(["bench", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn insert_has_rows_of_both_ways_and_of_single_requests_to_a_large_directory() {
    let rows = rows("insert", 20_000, &[]);
    let whole = ["by_reference", "by_reference_ready", "by_value", "content"];
    let ours = whole.iter().chain(&["cold_stat", "cold_create"]);
    let ours: Vec<_> = ours.map(|name| format!("{name}_20K")).collect();
    // The peer's follow where its library is installed.
    assert_eq!(names(&rows)[..6], ours);
    assert!(rows.len() == 6 || rows.len() == 8, "{}", rows.len());
    for row in &rows[..3] {
        assert_eq!(row["files"], 20_000, "{row}");
    }
    for row in [&rows[0], &rows[2]] {
        let peak = row["server_peak_mb"].as_f64().unwrap();
        assert!((1.0..10_000.0).contains(&peak), "{peak} MB");
        assert!(row["written_mb"].as_f64().unwrap() > 0.1, "{row}");
    }
    for row in &rows[4..6] {
        assert!(row["median_us"].as_f64().unwrap() > 0.0, "{row}");
    }
}

/// Whether control groups can be made that limit processors, as these experiments do.
fn has_shares(test: &str) -> bool {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let first = root.join("cpu");
    let parent = if first.join("tasks").exists() { first } else { root.to_owned() };
    let dir = parent.join(format!("cudele-test.{}.{test}", std::process::id()));
    let _ = std::fs::write(parent.join("cgroup.subtree_control"), "+cpu");
    let made = std::fs::create_dir(&dir);
    let limits = ["cpu.cfs_quota_us", "cpu.max"].iter().any(|file| dir.join(file).exists());
    if made.is_ok() {
        std::fs::remove_dir(&dir).unwrap();
    }
    if !limits {
        println!("skipped: no control groups that limit processors can be made here: {made:?}");
    }
    limits
}

#[test]
fn ranks_with_a_share_of_a_processor_work_together() {
    if !has_shares("balancers") {
        return;
    }
    let rows = rows("balancers", 40, &["--share", "10"]);
    let private = ["private_2_ranks", "private_4_ranks", "private_8_ranks", "shared_4_ranks"];
    assert_eq!(names(&rows)[..4], private);
    for row in &rows[..4] {
        assert!(row["speedup"].as_f64() > Some(0.0), "{row}");
        assert!(row["of_the_best"].as_f64() <= row["speedup"].as_f64(), "{row}");
        assert!(row["one_rank_per_second"].as_f64() > Some(0.0), "{row}");
        assert!(row["clients_processors"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["share_of_a_processor"], 0.1, "{row}");
        assert_eq!(row["moves"], 0.0, "nobody decides: {row}");
    }
    assert!(row(&rows, "tick")["cost_percent"].is_number());
    assert!(row(&rows, "move_100K")["frozen_ms"].as_f64() > Some(0.0));
}

#[test]
fn a_tree_on_three_ranks_forwards_what_one_rank_answers() {
    if !has_shares("locality") {
        return;
    }
    let rows = rows("locality", 2, &[]);
    assert_eq!(names(&rows), ["one_rank", "three_even", "three_uneven"]);
    assert_eq!(rows[0]["forwards"], 0.0);
    // A request that was sent to another rank first is repeated there; clients count that
    // themselves.
    let [one, even, uneven] = [0, 1, 2].map(|at| rows[at]["requests"].as_f64().unwrap());
    assert!(one < uneven && uneven < even, "{rows:?}");
    assert!(rows.iter().all(|row| row["moves"] == 0.0), "{rows:?}");
}

#[test]
fn directories_are_hot_while_they_are_worked_in() {
    if !has_shares("heat") {
        return;
    }
    let rows = rows("heat", 10, &[]);
    assert_eq!(rows[0]["name"], "job");
    let warm = |row: &&Value| row["part_00"].as_f64() > Some(0.0);
    assert!(rows[1..].iter().any(|row| warm(&row)), "{rows:?}");
}

#[test]
fn a_compile_job_asks_for_the_same_under_every_policy() {
    if !has_shares("compile") {
        return;
    }
    let rows = rows("compile", 2, &[]);
    let jobs: Vec<&Value> =
        rows.iter().filter(|row| !row["name"].as_str().unwrap().contains("_second_")).collect();
    assert_eq!(jobs.len(), 4);
    for job in &jobs[2..] {
        assert!(job["speedup"].as_f64() > Some(0.0), "{job}");
        // A request that was sent to another rank first is repeated there.
        let one = jobs.iter().find(|one| one["clients"] == job["clients"]).unwrap();
        let [asked, once] = [*job, *one].map(|row| row["requests"].as_f64().unwrap());
        assert!(once > 0.0 && asked >= once * 0.9 && asked <= once * 1.5, "{job} {one}");
    }
}
