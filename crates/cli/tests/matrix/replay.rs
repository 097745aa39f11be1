//! The replay of the log of a strong client with local durability: after a crash of the server,
//! before any further request of its client, and by a later process if the client is dead. And the
//! cases without a replay, because the server was stopped and other clients continued from there.

use std::path::{Path, PathBuf};

use crate::case::{files, name_of};
use crate::client::Task;
use crate::site::{Client, Site};

const PATH: &str = "/job";

fn state(site: &Site) -> PathBuf {
    site.path("state")
}

/// A client that has created `f` in a directory that it keeps open.
fn held(site: &Site, name: &str) -> Client {
    let task = Task::Hold { name: name.into() };
    let mut client = site.client(task, PATH, &state(site), &["created"]);
    client.await_place("created");
    client
}

fn names(site: &Site) -> Vec<String> {
    site.look(PATH).into_keys().collect()
}

/// A later process on a machine, which only looks.
fn names_from(site: &Site, state: &Path) -> Vec<String> {
    site.client(Task::Look, PATH, state, &[]).result().unwrap().into_keys().collect()
}

fn logs(state: &Path) -> usize {
    files(state).iter().filter(|path| name_of(path).starts_with("strong.")).count()
}

fn crash(site: &Site) {
    site.kill_mds();
    site.up();
}

fn restart(site: &Site) {
    site.run(&["down"]);
    site.up();
}

/// A stop is no failure: logged changes from before it are stored, and other clients may have
/// removed them.
#[test]
fn a_log_is_not_replayed_after_a_clean_stop() {
    let site = Site::new();
    let client = held(&site, "g");
    site.run(&["rm", "/job/f"]);
    assert_eq!(names(&site), [""; 0]);
    restart(&site);
    assert_eq!(names(&site), [""; 0]);
    client.go_to_the_end().unwrap();
    assert_eq!(names(&site), ["g"]);

    // The new log works like the first.
    crash(&site);
    assert_eq!(names(&site), [""; 0]);
    assert_eq!(names_from(&site, &state(&site)), ["g"]);
}

#[test]
fn a_log_is_replayed_before_the_first_request_after_a_crash() {
    let site = Site::new();
    let client = held(&site, "f");
    crash(&site);
    client.go_to_the_end().unwrap();
    assert_eq!(names(&site), [""; 0]);
}

/// A dead client's logged changes are back as soon as a process runs on its machine; and then they
/// are stored, so that they come back once.
#[test]
fn a_dead_clients_log_is_replayed_once_by_the_next_process_there() {
    let site = Site::new();
    let (mut client, state) = (held(&site, "g"), state(&site));
    client.kill();
    assert_eq!(names_from(&site, &state), ["f"]);
    assert_eq!(logs(&state), 1, "it is needed should the server crash");
    crash(&site);
    assert_eq!(names(&site), [""; 0]);
    assert_eq!(names_from(&site, &state), ["f"]);
    assert_eq!(logs(&state), 0);
    site.run(&["rm", "/job/f"]);
    restart(&site);
    crash(&site);
    assert_eq!(names_from(&site, &state), [""; 0]);
}

/// A process that changes the policy replays the logs of the dead on its machine, even if it lived
/// before the server crashed: afterwards no process would need them.
#[test]
fn a_dead_clients_log_is_replayed_before_the_policy_is_changed() {
    for cell in ["strong-none", "weak-none"] {
        let site = Site::new();
        let (mut client, state) = (held(&site, "g"), state(&site));
        client.kill();
        let mut late = site.client(Task::Set { cell: cell.into() }, PATH, &state, &["mounted"]);
        late.await_place("mounted");
        assert_eq!(logs(&state), 1, "it is needed should the server crash");
        crash(&site);
        assert_eq!(names(&site), [""; 0]);
        late.go_to_the_end().unwrap();
        assert_eq!(names(&site), ["f"], "{cell}");
        assert_eq!(logs(&state), 0);
    }
}

/// The log of a client that lives is its own business.
#[test]
fn no_process_replays_the_log_of_a_living_client() {
    let site = Site::new();
    let (client, state) = (held(&site, "g"), state(&site));
    crash(&site);
    assert_eq!(names_from(&site, &state), [""; 0]);
    assert_eq!(logs(&state), 1);
    client.go_to_the_end().unwrap();
    assert_eq!(names(&site), ["f", "g"]);

    // No process needs it after a clean stop.
    restart(&site);
    assert_eq!(names_from(&site, &state), ["f", "g"]);
    assert_eq!(logs(&state), 0);
}
