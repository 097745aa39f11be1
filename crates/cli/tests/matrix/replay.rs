//! What the log of a strong client with local durability does not promise yet, although the table
//! does. These tests hold what happens now, so that whoever repairs it finds them.

use crate::client::Task;
use crate::site::{Client, Site};

const PATH: &str = "/job";

/// A client that has created `f` in a directory that it keeps open.
fn held(site: &Site, name: &str) -> Client {
    let task = Task::Hold { name: name.into() };
    let mut client = site.client(task, PATH, &site.path("state"), &["created"]);
    client.await_place("created");
    client
}

fn names(site: &Site) -> Vec<String> {
    site.look(PATH).into_keys().collect()
}

/// The table: strong updates are seen at once, and a stop is no failure. But a log is replayed as a
/// whole whenever the server is another one, over whatever others did since.
#[test]
fn known_a_replayed_log_brings_back_what_others_removed() {
    let site = Site::new();
    let client = held(&site, "g");
    site.run(&["rm", "/job/f"]);
    assert_eq!(names(&site), [""; 0]);
    site.run(&["down"]);
    site.up();
    assert_eq!(names(&site), [""; 0]);
    client.go_to_the_end().unwrap();
    assert_eq!(names(&site), ["f", "g"], "f is gone: repaired, and this test is to say so");
}

/// The table: kept, the client replays its log. But the request that finds the new server is
/// carried out there before the log is.
#[test]
fn known_the_first_request_after_a_restart_comes_before_the_replay() {
    let site = Site::new();
    let client = held(&site, "f");
    site.kill_mds();
    site.up();
    let said = client.go_to_the_end().unwrap_err();
    assert!(said.contains("ENOENT"), "it is removed: repaired, and this test is to say so: {said}");
    assert_eq!(names(&site), ["f"]);
}
