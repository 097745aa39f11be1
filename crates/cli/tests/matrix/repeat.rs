//! Compositions that are interrupted during a repetition, or run on a journal that has grown:
//! updates of an earlier complete persist stay, and nothing exists twice.

use std::path::PathBuf;

use crate::case::{files, name_of};
use crate::client::Task;
use crate::site::{Client, Site};
use crate::tree::{Tree, acts, after};

/// Acts that are persisted before the rest are appended.
const FIRST: usize = 12;

/// A site, and one client with a growing journal.
struct Scene {
    site: Site,
    state: PathBuf,
    client: Client,
}

const PATH: &str = "/job";

impl Scene {
    fn new(cell: &str, parts: [usize; 2], stops: &[&str]) -> Self {
        let site = Site::new();
        let state = site.path("state");
        let work = Task::Work { cell: cell.into(), parts };
        let client = site.client(work, PATH, &state, stops);
        Self { site, state, client }
    }

    fn restart_server(&self) {
        self.site.kill_mds();
        self.site.up();
    }

    /// A later process on the same disk merges the leftovers.
    fn recover(&self) -> Tree {
        let recover = Task::Recover { end: true };
        self.site.client(recover, PATH, &self.state, &[]).result().unwrap();
        self.site.look(PATH)
    }

    fn objects(&self) -> Vec<String> {
        self.site.objects("journal/client/")
    }

    /// Takes the last bytes of the journal on the client's disk away.
    fn tear_file(&self) {
        let mut files = files(&self.state);
        files.retain(|path| name_of(path).starts_with("journal."));
        assert_eq!(files.len(), 1, "the journal is one file");
        let file = std::fs::OpenOptions::new().write(true).open(&files[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    }
}

#[test]
fn a_persist_that_is_repeated_takes_nothing_away_meanwhile() {
    for place in ["again local_persist:opened", "again local_persist:written"] {
        let all = acts().len();
        let mut scene = Scene::new("weak-local", [all; 2], &["volatile_apply:sending", place]);
        scene.client.await_place("volatile_apply:sending");
        scene.restart_server();
        scene.client.go();
        scene.client.await_place(place);
        scene.client.kill();
        assert_eq!(scene.recover(), after(all), "{place}");
    }
}

#[test]
fn a_grown_journal_that_is_persisted_twice_can_be_merged_again() {
    let all = acts().len();
    let stops = ["again volatile_apply:sending", "merged", "forgotten"];
    let mut scene = Scene::new("weak-local", [FIRST, all], &stops);
    scene.client.await_place("again volatile_apply:sending");
    scene.restart_server();
    scene.client.go();
    scene.client.await_place("merged");
    assert_eq!(scene.site.look(PATH), after(all), "also what the server had forgotten");
    scene.client.kill();
    scene.restart_server();
    assert_eq!(scene.site.look(PATH), Tree::new());
    assert_eq!(scene.recover(), after(all));

    // A journal that grows is one file, if nothing was merged in between.
    let mut scene = Scene::new("invisible-local", [FIRST; 2], &stops);
    scene.client.await_place("again volatile_apply:sending");
    scene.restart_server();
    scene.client.go();
    scene.client.await_place("merged");
    scene.client.kill();
    scene.restart_server();
    assert_eq!(scene.recover(), after(all));
}

#[test]
fn a_torn_end_of_a_grown_journal_leaves_the_rest() {
    let all = acts().len();
    for (cell, place) in [
        ("invisible-local", "again local_persist:written"),
        ("invisible-global", "again global_persist:written"),
    ] {
        for torn in [false, true] {
            let mut scene = Scene::new(cell, [FIRST, all], &[place]);
            scene.client.await_place(place);
            scene.client.kill();
            match torn {
                true if cell == "invisible-local" => scene.tear_file(),
                true => scene.site.tear_object(&scene.objects()[0], |length| length - 5),
                false => {}
            }
            let expected = if torn { FIRST } else { all };
            assert_eq!(scene.recover(), after(expected), "{cell}, torn: {torn}");
            // The server has it from the object, of which nothing is torn any more.
            scene.restart_server();
            let seen = scene.site.look(PATH);
            let kept = if cell == "invisible-local" { Tree::new() } else { after(expected) };
            assert_eq!(seen, kept, "{cell}, torn: {torn}");
        }
    }
}

#[test]
fn an_unfinished_object_blocks_no_later_persist() {
    for length in [0, 5] {
        let mut scene = Scene::new("weak-global", [acts().len(); 2], &["global_persist:written"]);
        scene.client.await_place("global_persist:written");
        scene.client.kill();
        let unfinished = scene.objects().remove(0);
        scene.site.tear_object(&unfinished, |_| length);
        assert_eq!(scene.recover(), Tree::new());
        assert!(!scene.objects().contains(&unfinished));
    }
}

#[test]
fn a_later_process_uses_other_inode_numbers() {
    let site = Site::new();
    for cell in ["weak-none", "weak-local", "weak-global"] {
        let (path, state) = (format!("/{cell}"), site.path(cell));
        let numbers: Vec<String> = ["one", "two", "three"]
            .into_iter()
            .map(|name| {
                let task = Task::Append { cell: cell.into(), name: name.into() };
                site.client(task, &path, &state, &[]).result().unwrap()[name].clone()
            })
            .collect();
        let different: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), 3, "{cell}: {numbers:?}");
    }
}
