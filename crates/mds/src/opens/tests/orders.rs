//! Every order in which two clients can open and close one file while the server shares it between
//! them: messages that cross each other, answers that wait for the journal, threads that are
//! delayed at any step.
//!
//! The table is the real one. The clients are a model of `client::held` and `vfs`: their open files
//! are counted where messages are sent and received, and programs know a file only some time after
//! the answer arrived.

use crate::ReplyTo;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{ClientId, ConnId, Ino, Moment, Seq, Tid};

use super::super::{Opens, Verdict};

const FILE: Ino = Ino(1 << 41);

/// The rules that clients obey.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A thread that has opened a file gives it up if a recall arrived before the file was known.
    join: bool,
    /// A recall counts for the files that were open when it arrived, and for no other.
    exact: bool,
    /// A close is sent at once if the file was recalled.
    prompt: bool,
    /// A client's hold after a failure of the store is known as held.
    restored: bool,
}

const ALL: Rules = Rules { join: true, exact: true, prompt: true, restored: true };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToServer {
    Open(u32),
    Yield(u32),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToClient {
    Opened { tid: u32, shared: bool },
    Refused { tid: u32 },
    Yielded { tid: u32, done: bool },
    Recall,
}

/// A client's counts where it sends and receives: `client::held`.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    count: u32,
    since: u32,
    granted: bool,
    recalled: bool,
    shared: bool,
}

/// The next step of a client's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// Waits for the answer to an open.
    Asked(u32),
    /// Has it, and no other thread knows.
    Answered {
        shared: bool,
    },
    /// The file is known.
    Known {
        file: u32,
        shared: bool,
    },
    /// Holds the file while it gives it up, having opened it or for a recall.
    Yielding {
        file: u32,
        tid: u32,
        opened: bool,
    },
    Yielded {
        file: u32,
        done: bool,
        opened: bool,
    },
    /// A program may read and write.
    Open {
        file: u32,
    },
    /// The kernel closes it: the client does not know it any more, and perhaps the server neither.
    Closing,
    /// A recall is to be answered.
    Recalled,
    /// The same of a file that is not known.
    YieldingNothing,
}

#[derive(Clone, Debug, Default)]
struct Client {
    held: Held,
    threads: Vec<Thread>,
    /// Opens that programs are still to make.
    to_open: u32,
    next: u32,
    /// The file that is known, and how often it is open.
    file: Option<(u32, u32)>,
    /// Whether files are taken for shared, and which are being given up.
    shared: BTreeMap<u32, bool>,
    locked: BTreeSet<u32>,
    out: VecDeque<ToServer>,
    /// How many of them are in transit.
    sent: usize,
    back: VecDeque<ToClient>,
    /// Answers that wait for the journal.
    later: VecDeque<ToClient>,
}

#[derive(Clone, Debug)]
struct World {
    rules: Rules,
    opens: Opens,
    clients: [Client; 2],
    /// The content is moving to the store, which may refuse it.
    moving: bool,
    refusals: u32,
}

fn id(at: usize) -> ClientId {
    ClientId(at as u64 + 1)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl World {
    fn new(rules: Rules, opens: [u32; 2], refusals: u32) -> Self {
        let clients = opens.map(|to_open| Client { to_open, ..Client::default() });
        Self { rules, opens: Opens::default(), clients, moving: false, refusals }
    }

    fn send(&mut self, at: usize, message: ToServer, now: bool) {
        let client = &mut self.clients[at];
        client.out.push_back(message);
        if now {
            client.sent = client.out.len();
        }
    }

    fn tid(&mut self, at: usize) -> u32 {
        self.clients[at].next += 1;
        self.clients[at].next
    }

    /// All that can happen next.
    fn steps(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        for (at, client) in self.clients.iter().enumerate() {
            if client.to_open > 0 {
                step(&|world| world.open(at));
            }
            if client.sent > 0 {
                step(&|world| world.serve(at));
            }
            if !client.back.is_empty() {
                step(&|world| world.hear(at));
            }
            if !client.later.is_empty() {
                step(&|world| {
                    let answer = world.clients[at].later.pop_front().unwrap();
                    world.clients[at].back.push_back(answer);
                });
            }
            for thread in 0..client.threads.len() {
                if self.may_run(at, client.threads[thread]) {
                    step(&|world| world.run(at, thread));
                }
            }
        }
        if self.moving {
            step(&|world| world.stored(true));
            if self.refusals > 0 {
                step(&|world| {
                    world.refusals -= 1;
                    world.stored(false);
                });
            }
        }
        all
    }

    fn may_run(&self, at: usize, thread: Thread) -> bool {
        let client = &self.clients[at];
        let free = |file: &u32| !client.locked.contains(file);
        match thread {
            Thread::Asked(_) | Thread::Yielding { .. } | Thread::YieldingNothing => false,
            Thread::Known { file, .. } | Thread::Open { file } => free(&file),
            Thread::Recalled => client.file.is_none_or(|(file, _)| free(&file)),
            Thread::Answered { .. } | Thread::Yielded { .. } | Thread::Closing => true,
        }
    }

    fn open(&mut self, at: usize) {
        let tid = self.tid(at);
        let client = &mut self.clients[at];
        client.to_open -= 1;
        if client.held.count == 0 {
            client.held = Held { since: tid, ..Held::default() };
        }
        client.held.count += 1;
        client.threads.push(Thread::Asked(tid));
        self.send(at, ToServer::Open(tid), true);
    }

    fn run(&mut self, at: usize, number: usize) {
        let thread = self.clients[at].threads.swap_remove(number);
        match thread {
            Thread::Answered { shared } => self.know(at, shared),
            Thread::Known { file, shared } => self.join(at, file, shared),
            Thread::Yielded { file, done, opened } => {
                self.clients[at].locked.remove(&file);
                if done && let Some(shared) = self.clients[at].shared.get_mut(&file) {
                    *shared = true;
                }
                if opened {
                    self.opened(at, file);
                }
            }
            Thread::Open { file } => {
                // Writes are sent first; that is done.
                let client = &mut self.clients[at];
                let (known, count) = client.file.unwrap();
                assert_eq!(known, file);
                client.file = (count > 1).then_some((file, count - 1));
                if count == 1 {
                    client.shared.remove(&file);
                }
                client.threads.push(Thread::Closing);
            }
            Thread::Closing => {
                let held = &mut self.clients[at].held;
                held.count -= 1;
                let awaited = self.rules.prompt && held.recalled && !held.shared;
                if held.count == 0 {
                    *held = Held::default();
                    self.send(at, ToServer::Close, awaited);
                }
            }
            Thread::Recalled => self.give_up(at),
            Thread::Asked(_) | Thread::Yielding { .. } | Thread::YieldingNothing => {
                unreachable!("it waits")
            }
        }
    }

    fn know(&mut self, at: usize, shared: bool) {
        let client = &mut self.clients[at];
        let new = client.next;
        let (file, count) = client.file.unwrap_or((new, 0));
        if count == 0 {
            client.next += 1;
            client.shared.insert(file, false);
        }
        client.file = Some((file, count + 1));
        client.threads.push(Thread::Known { file, shared });
    }

    fn join(&mut self, at: usize, file: u32, shared: bool) {
        let held = self.clients[at].held;
        if self.rules.join && held.recalled && !held.shared {
            return self.send_yield(at, file, true);
        }
        if !self.rules.join && shared {
            self.clients[at].shared.insert(file, true);
        }
        self.opened(at, file);
    }

    fn opened(&mut self, at: usize, file: u32) {
        let client = &mut self.clients[at];
        if self.rules.join {
            client.shared.insert(file, client.held.shared);
        }
        client.threads.push(Thread::Open { file });
    }

    fn give_up(&mut self, at: usize) {
        let client = &self.clients[at];
        let wanted = client.held.recalled && !client.held.shared;
        match client.file {
            Some((file, _)) if wanted || !self.rules.exact => self.send_yield(at, file, false),
            None if wanted || !self.rules.exact => {
                let tid = self.tid(at);
                self.clients[at].threads.push(Thread::YieldingNothing);
                self.send(at, ToServer::Yield(tid), true);
            }
            Some(_) | None => {}
        }
    }

    fn send_yield(&mut self, at: usize, file: u32, opened: bool) {
        let tid = self.tid(at);
        self.clients[at].locked.insert(file);
        self.clients[at].threads.push(Thread::Yielding { file, tid, opened });
        self.send(at, ToServer::Yield(tid), true);
    }

    /// A client takes in a message: `client::session`.
    fn hear(&mut self, at: usize) {
        let exact = self.rules.exact;
        let client = &mut self.clients[at];
        let message = client.back.pop_front().unwrap();
        let held = &mut client.held;
        match message {
            ToClient::Opened { tid, shared } => {
                held.granted = true;
                held.shared = shared;
                held.recalled &= shared;
                client.replace(Thread::Asked(tid), Thread::Answered { shared });
            }
            ToClient::Refused { tid } => {
                held.count -= 1;
                client.threads.retain(|thread| *thread != Thread::Asked(tid));
                if held.count == 0 {
                    let granted = std::mem::take(held).granted;
                    if granted {
                        client.out.push_back(ToServer::Close);
                    }
                }
            }
            ToClient::Yielded { tid, done } => {
                if held.count > 0 && held.since < tid && done {
                    held.shared = true;
                }
                client.yielded(tid, done);
            }
            ToClient::Recall => {
                if held.count > 0 && held.granted {
                    held.recalled = true;
                    client.threads.push(Thread::Recalled);
                } else if !exact {
                    client.threads.push(Thread::Recalled);
                }
            }
        }
        // All pending messages are sent.
        client.sent = client.out.len();
    }

    /// The server takes in a message: `op::open`.
    fn serve(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.sent -= 1;
        match client.out.pop_front().unwrap() {
            ToServer::Open(tid) => self.serve_open(at, tid),
            ToServer::Yield(tid) => {
                if self.opens.yielded(id(at), FILE) {
                    self.begin(at);
                }
                let Some(sharing) = self.opens.sharing(FILE) else {
                    let answer = ToClient::Yielded { tid, done: true };
                    return self.clients[at].back.push_back(answer);
                };
                sharing.yields.push(ReplyTo { conn: ConnId(at as u64), tid: Tid(tid.into()) });
                self.share();
            }
            ToServer::Close => {
                self.opens.close(id(at), FILE, true);
                self.share();
            }
        }
    }

    fn serve_open(&mut self, at: usize, tid: u32) {
        match self.opens.judge(id(at), FILE, true) {
            Verdict::Private => {
                self.opens.enter(id(at), FILE, true);
                self.clients[at].back.push_back(ToClient::Opened { tid, shared: false });
            }
            Verdict::Shared(_) => {
                self.opens.enter(id(at), FILE, true);
                self.clients[at].later.push_back(ToClient::Opened { tid, shared: true });
            }
            Verdict::Wait => {
                self.begin(at);
                let frame = tid.to_le_bytes().to_vec();
                let sharing = self.opens.sharing(FILE).unwrap();
                sharing.waiting.push((ConnId(at as u64), frame));
                self.share();
            }
        }
    }

    fn begin(&mut self, asker: usize) {
        for client in self.opens.begin(FILE, id(asker), Moment(1)) {
            self.clients[index(client.0) - 1].back.push_back(ToClient::Recall);
        }
    }

    fn share(&mut self) {
        if !self.opens.start_moving(FILE) {
            return;
        }
        if self.opens.is_open(FILE) {
            self.moving = true;
        } else {
            self.finish(Ok(None));
        }
    }

    fn stored(&mut self, done: bool) {
        self.moving = false;
        self.finish(if done { Ok(Some(Seq(1))) } else { Err(()) });
    }

    fn finish(&mut self, moved: Result<Option<Seq>, ()>) {
        let Some(sharing) = self.opens.finish(FILE, moved.ok().flatten()) else { return };
        if moved.is_err() && !self.rules.restored {
            for client in 0..2 {
                self.opens.yielded(id(client), FILE);
            }
        }
        for ReplyTo { conn, tid } in sharing.yields {
            let tid = u32::try_from(tid.0).unwrap();
            let answer = ToClient::Yielded { tid, done: moved.is_ok() };
            self.clients[index(conn.0)].later.push_back(answer);
        }
        for (conn, frame) in sharing.waiting {
            let (at, tid) = (index(conn.0), u32::from_le_bytes(frame.try_into().unwrap()));
            match moved {
                Ok(_) => self.serve_open(at, tid),
                Err(()) => self.clients[at].back.push_back(ToClient::Refused { tid }),
            }
        }
    }

    /// The properties on which programs rely.
    fn check(&self) -> Result<(), &'static str> {
        let using = |client: &Client| {
            let (file, _) = client.file.filter(|(file, _)| !client.locked.contains(file))?;
            client.threads.contains(&Thread::Open { file }).then(|| client.shared[&file])
        };
        let [one, two] = self.clients.each_ref().map(using);
        if let (Some(one), Some(two)) = (one, two)
            && !(one && two)
        {
            return Err("one takes the file for its own, and another has it, too");
        }
        if [one, two].contains(&Some(true)) && !self.opens.is_shared(FILE) {
            return Err("one takes a private file for shared");
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.threads.is_empty() && client.to_open == 0)
    }
}

impl Client {
    fn replace(&mut self, before: Thread, after: Thread) {
        let at = self.threads.iter().position(|thread| *thread == before).unwrap();
        self.threads[at] = after;
    }

    fn yielded(&mut self, answered: u32, done: bool) {
        for thread in &mut self.threads {
            if let Thread::Yielding { file, tid, opened } = *thread
                && tid == answered
            {
                *thread = Thread::Yielded { file, done, opened };
                return;
            }
        }
        self.threads.retain(|thread| *thread != Thread::YieldingNothing);
    }
}

/// Explores all states. Returns their number, or the fault of one.
fn explore(start: World) -> Result<usize, String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![start];
    while let Some(world) = next.pop() {
        if !seen.insert(fingerprint(&world)) {
            continue;
        }
        world.check().map_err(|wrong| format!("{wrong}: {world:#?}"))?;
        let steps = world.steps();
        if steps.is_empty() && !world.is_over() {
            return Err(format!("somebody waits for ever: {world:#?}"));
        }
        next.extend(steps);
    }
    Ok(seen.len())
}

fn fingerprint(world: &World) -> u64 {
    let text = format!("{world:?}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn no_order_of_messages_lets_two_clients_take_a_file_for_different_things() {
    for (opens, refusals) in [([2, 1], 1), ([2, 2], 0)] {
        let states = explore(World::new(ALL, opens, refusals)).unwrap();
        println!("{opens:?}, {refusals}: {states} states");
    }
}

#[test]
fn each_rule_is_needed() {
    let wrong = |rules, refusals| explore(World::new(rules, [2, 2], refusals)).is_err();
    assert!(wrong(Rules { join: false, ..ALL }, 0));
    assert!(wrong(Rules { exact: false, ..ALL }, 0));
    assert!(wrong(Rules { prompt: false, ..ALL }, 0));
    assert!(wrong(Rules { restored: false, ..ALL }, 1));
}
