//! A holder of a lock that is dead, or only looks so, never writes again.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{eventually, up};

/// The store's address; its presence makes this process a child.
const STORE: &str = "OBJSTORE_FENCE_STORE";

/// Not a test of its own: a child process runs it. It takes the lock and appends a byte for each
/// line of its input, and prints the result.
#[test]
fn child_of_the_fence_tests() {
    let Ok(url) = std::env::var(STORE) else { return };
    let say = |text: &str| {
        let mut output = std::io::stdout().lock();
        writeln!(output, "\nsays {text}").unwrap();
        output.flush().unwrap();
    };
    let store = objstore::open(&url).unwrap();
    let guard = store.lock("rank/0000.lock", "the child").unwrap();
    say("locked");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "end" => break,
            "await" => {
                eventually("it is told", || guard.is_lost());
                say("lost");
                continue;
            }
            _ => {}
        }
        match store.append("journal/log", b"c") {
            Ok(_) => say("done"),
            Err(error) => say(&error.to_string()),
        }
    }
    drop(guard);
}

struct Holder {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["fence::child_of_the_fence_tests", "--exact", "--nocapture"])
            .env(STORE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut holder = Self { child, said };
        assert_eq!(holder.says(), "locked");
        holder
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    fn says(&mut self) -> String {
        for line in &mut self.said {
            if let Some(text) = line.unwrap().strip_prefix("says ") {
                return text.to_owned();
            }
        }
        panic!("the child ended");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and waits until it has stopped.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        eventually("the child stands still", || {
            std::fs::read_to_string(&stat).unwrap().contains(") T ")
        });
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_holder_that_was_asleep_cannot_write_when_it_wakes_up() {
    let Some(ceph) = up(|_| {}) else { return };
    let url = ceph.url("test");
    let mut holder = Holder::start(&url);
    holder.tell("append");
    assert_eq!(holder.says(), "done");
    let store = ceph.open("");
    let error = store.lock("rank/0000.lock", "the next").unwrap_err();
    assert!(error.to_string().contains("held by the child"), "{error}");

    holder.stop();
    // It is asleep in the middle of its work: this request is under way when it wakes up.
    holder.tell("append");
    let start = Instant::now();
    let guard = store.lock("rank/0000.lock", "the next").unwrap();
    println!("taken over from a sleeping holder after {:?}", start.elapsed());
    let (before, _) = store.get("journal/log").unwrap();
    assert_eq!(before, b"c");
    holder.signal(Signal::CONT);
    let awake = Instant::now();
    let said = holder.says();
    assert!(said.contains("(ESTALE)") && said.contains("shut out"), "{said}");
    holder.tell("append");
    let said = holder.says();
    assert!(said.contains("(ESTALE)"), "for good: {said}");
    assert_eq!(store.append("journal/log", b"n"), Ok(1), "nothing of it has arrived");
    // It hears of it without asking for anything, too.
    holder.tell("await");
    assert_eq!(holder.says(), "lost");
    println!("told after {:?}", awake.elapsed());
    assert!(!guard.is_lost());
    holder.tell("end");
    holder.child.wait().unwrap();
    // The old holder's release of a lost lock changes nothing.
    let other = ceph.open("");
    let error = other.lock("rank/0000.lock", "a third").unwrap_err();
    assert!(error.to_string().contains("held by the next"), "{error}");
    drop(guard);
    drop(other.lock("rank/0000.lock", "a third").unwrap());
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_killed_holder_is_replaced_within_two_seconds() {
    let Some(ceph) = up(|_| {}) else { return };
    let url = ceph.url("test");
    let store = ceph.open("");
    for _ in 0..3 {
        let mut holder = Holder::start(&url);
        holder.signal(Signal::KILL);
        holder.child.wait().unwrap();
        let start = Instant::now();
        drop(store.lock("rank/0000.lock", "the next").unwrap());
        println!("taken over from a killed holder after {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn fencing_excludes_all_processes_of_a_client_and_no_other() {
    let Some(ceph) = up(|_| {}) else { return };
    let (gone, other) = (types::ClientId(7), types::ClientId(8));
    let [first, second, bystander, next] = [(); 4].map(|()| ceph.open(""));
    let of_clients = || {
        let names = ceph.objects("test", "cudele.locks");
        names.into_iter().filter(|name| name.starts_with("clients/")).collect::<Vec<_>>()
    };
    let here = [
        first.enter(gone).unwrap(),
        first.enter(gone).unwrap(),
        second.enter(gone).unwrap(),
        bystander.enter(other).unwrap(),
        // The new owner worked as the same client, too.
        next.enter(gone).unwrap(),
    ];
    for store in [&first, &second, &bystander, &next] {
        store.append("journal/log", b"1").unwrap();
    }
    assert_eq!(of_clients(), ["clients/7", "clients/8"]);
    assert_eq!(next.shut_out(gone), Ok(true));
    let before = next.get("journal/log").unwrap().0;
    for store in [&first, &second] {
        for result in [
            store.append("journal/log", b"2").map(|_| ()),
            store.write_range("data/00/0.0", 0, b"2"),
            store.put("journal/client.7/1", b"2", objstore::Expect::Any).map(|_| ()),
            store.delete("journal/log").map(|_| ()),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.errno, types::Errno::Stale, "{error}");
        }
    }
    assert_eq!(next.get("journal/log").unwrap().0, before);
    for store in [&bystander, &next] {
        store.append("journal/log", b"3").unwrap();
    }
    // The exclusion is of connections: a new process of the same machine and client works.
    let new = ceph.open("");
    let entered = new.enter(gone).unwrap();
    new.append("journal/log", b"4").unwrap();
    drop((here, entered));
    assert_eq!(of_clients(), Vec::<String>::new(), "nothing is left of those who have left");
    assert_eq!(next.shut_out(gone), Ok(true), "of one that nobody works as");
}
