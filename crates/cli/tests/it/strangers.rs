//! Attacks by another user, each by a process of that user: on files of root, on the cluster, on
//! other clients, and through a journal of their own.
//!
//! A test starts this test program again as the other user, with the name of an attack; the attack
//! ends with an error if it obtains anything. `unshare` puts the attacker into a user namespace,
//! where it is root.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use cudele::{Cluster as Library, Errno, Fs, Locator, NewFile, Policy, StateDir, Subtree};
use journal::{Create, Event, InodeSnapshot, JournalBuffer, SegmentHeader, Writer};
use net::{Address, Connection, Keyring};
use types::acl::{self, ACCESS_LIST, AccessList};
use types::bytes::Put;
use types::quota;
use types::{
    Attr, AttrChange, ClientId, Cred, Epoch, Ino, Lock, LockKind, LockMode, Origin, Rank, Seq, Tid,
    Timestamp, XattrChange, XattrFlags,
};
use wire::{
    Access, Beacon, ChangeOp, Hello, JobOp, MdsState, Message, MonOp, NewInode, Op, PeerBody,
    PeerMessage, ReadOp, Replay, Request, SessionOp,
};

use crate::cluster::{Cluster, eventually, text};

/// The other user, and their group.
const USER: u32 = 4242;
/// The environment of an attack: the directory of the cluster.
const TARGET: &str = "CUDELE_TEST_TARGET";
/// And the number of the secret's inode.
const SECRET: &str = "CUDELE_TEST_SECRET";

/// Whether this process can become another user.
fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        println!("skipped: only root can become another user");
    }
    is_root
}

/// A cluster that the group of the other user may use, with a secret of root's.
fn shared() -> Cluster {
    let cluster = Cluster::up_with(&["--group", &USER.to_string()]);
    // The way to it.
    fs::set_permissions(&cluster.home, fs::Permissions::from_mode(0o711)).unwrap();
    let fs = cluster.mount();
    fs.make_dir("/private", 0o700).unwrap();
    let secret = fs.open_dir("/private").unwrap().create("secret", &NewFile::default()).unwrap();
    fs.open_dir("/private").unwrap().set_data(secret.ino, b"the secret", 10).unwrap();
    fs.make_dir("/open", 0o777).unwrap();
    let ino = fs.stat("/open").unwrap().ino;
    let change = AttrChange { mode: Some(0o1777), ..AttrChange::default() };
    fs.call_as(&Cred::root(), Op::Change(ChangeOp::SetAttr { ino, change })).unwrap();
    let open = fs.open_dir("/open").unwrap();
    let readable = open.create("readable", &NewFile::default()).unwrap();
    open.set_data(readable.ino, b"readable", 8).unwrap();
    let only_executed = NewFile { permissions: 0o711, ..NewFile::default() };
    open.create("program", &only_executed).unwrap();
    fs.sync().unwrap();
    cluster
}

/// Starts this program again as the other user, with one attack.
fn attack(cluster: &Cluster, owner: &Fs, name: &str) -> Output {
    attack_on(cluster, owner.stat("/private/secret").unwrap().ino, name)
}

/// The same, without a look at the secret with this number.
fn attack_on(cluster: &Cluster, secret: Ino, name: &str) -> Output {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", &format!("strangers::{name}"), "--ignored", "--nocapture"]);
    command.env(SECRET, secret.0.to_string());
    output_of(cluster, &mut command)
}

/// The same in a user namespace of the attacker's.
fn attack_as_root_of_a_namespace(cluster: &Cluster, owner: &Fs, name: &str) -> Output {
    // The other user may not look into this process, so the program is handed down.
    let program = fs::File::open("/proc/self/exe").unwrap();
    rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]);
    command.arg(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.args(["--exact", &format!("strangers::{name}"), "--ignored", "--nocapture"]);
    command.env(SECRET, owner.stat("/private/secret").unwrap().ino.0.to_string());
    output_of(cluster, &mut command)
}

fn output_of(cluster: &Cluster, command: &mut Command) -> Output {
    let state = cluster.home.join("state.of.user");
    fs::create_dir_all(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(USER), Some(USER)).unwrap();
    command.env(TARGET, &cluster.dir).env("CUDELE_STATE", state).current_dir("/");
    command.uid(USER).gid(USER).output().unwrap()
}

#[track_caller]
fn obtains_nothing(output: &Output) {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// The directory of the cluster that is attacked.
fn target() -> PathBuf {
    std::env::var_os(TARGET).expect("the test that names this attack starts it").into()
}

fn server() -> Address {
    Address::Unix(target().join("mds.0.sock"))
}

/// The attacker as a client that does not hide.
fn client() -> Arc<Fs> {
    Library::connect(&Locator::monitor_of(&target())).unwrap().mount().unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, cudele::Error>, errno: Errno) {
    assert_eq!(result.map_err(|error| error.errno).unwrap_err(), errno);
}

/// Whether the peer ends the connection, and says nothing before that.
#[track_caller]
fn is_cut_off(address: &Address, message: &Message<'_>) {
    let mut connection = Connection::open(address, &Keyring::default()).unwrap();
    connection.set_timeout(Some(Duration::from_secs(10))).unwrap();
    connection.send(&message.to_frame()).unwrap();
    let answer = connection.receive().map(<[u8]>::to_vec);
    assert_eq!(answer.map_err(|error| error.errno), Err(Errno::Io));
}

/// The secret of root.
fn secret() -> Ino {
    Ino(std::env::var(SECRET).unwrap().parse().unwrap())
}

fn user() -> Cred {
    Cred { uid: USER, gid: USER, groups: Vec::new() }
}

#[test]
#[ignore = "an attack, which another test starts"]
fn in_the_name_of_root() {
    let fs = client();
    let secret = secret();
    let root = Cred::root();
    // Served for the user that asks.
    refused(fs.call_as(&root, Op::Read(ReadOp::GetData { ino: secret })), Errno::Access);
    let change = AttrChange { mode: Some(0o777), ..AttrChange::default() };
    let open = Op::Change(ChangeOp::SetAttr { ino: secret, change });
    refused(fs.call_as(&root, open), Errno::Access);
    let base = Ino::ROOT;
    let walk = Op::Read(ReadOp::Walk { base, path: b"/private/secret" });
    refused(fs.call_as(&root, walk), Errno::Access);
    // As somebody else, with root's group, or with root's group among others.
    let others = [Cred { uid: 4243, ..user() }, Cred { gid: 0, ..user() }];
    for cred in others.into_iter().chain([Cred { groups: vec![0], ..user() }]) {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let create = ChangeOp::Create { parent: Ino::ROOT, name: b"x", new };
        refused(fs.call_as(&cred, Op::Change(create)), Errno::NotPermitted);
    }
}

#[test]
#[ignore = "an attack, which another test starts"]
fn as_root_of_a_namespace() {
    assert!(rustix::process::getuid().is_root(), "the namespace maps its user to root");
    // This client says, and believes, that it is root.
    let fs = client();
    refused(fs.stat("/private/secret"), Errno::Access);
    assert_eq!(fs.client().user(), USER);
    let made = fs.make_dir("/open/x", 0o755).unwrap();
    assert_eq!((made.uid, made.gid), (USER, USER));
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_the_number_of_an_inode() {
    let fs = client();
    let secret = secret();
    for op in [
        ReadOp::GetData { ino: secret },
        ReadOp::GetAttr { ino: secret },
        ReadOp::ListXattr { ino: secret },
    ] {
        refused(fs.call_as(&user(), Op::Read(op)), Errno::Access);
    }
    let open = Op::Session(SessionOp::Open { ino: secret, write: false });
    refused(fs.call_as(&user(), open), Errno::Access);
    // The file itself is for everybody, and so is its number in a directory that may be searched.
    let readable = fs.stat("/open/readable").unwrap().ino;
    let read = fs.call_as(&user(), Op::Read(ReadOp::GetData { ino: readable })).unwrap();
    assert_eq!(read, wire::Answer::Data(b"readable".to_vec()));
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_file_that_is_said_to_be_open() {
    let fs = client();
    let ask = |op| fs.call_as(&user(), op);
    let reopen = |ino, read, write| {
        let access = Access { read, write, shared: false };
        ask(Op::Session(SessionOp::Reopen { ino, access }))
    };
    let readable = fs.stat("/open/readable").unwrap().ino;
    for (ino, read, write) in [(secret(), true, false), (readable, true, true)] {
        refused(reopen(ino, read, write), Errno::Access);
        refused(ask(Op::Change(ChangeOp::Grow { ino, size: 1000 })), Errno::Access);
    }
    refused(ask(Op::Read(ReadOp::GetData { ino: secret() })), Errno::Access);
    let lock = Lock {
        owner: 1,
        pid: 1,
        kind: LockKind::Flock,
        mode: LockMode::Write,
        start: 0,
        end: u64::MAX,
    };
    let set = SessionOp::Lock { ino: secret(), lock, wait: false };
    refused(ask(Op::Session(set)), Errno::Access);
    let program = fs.stat("/open/program").unwrap().ino;
    refused(ask(Op::Session(SessionOp::Open { ino: program, write: false })), Errno::Access);
    // And not because it is a number.
    let open = ask(Op::Session(SessionOp::Open { ino: readable, write: false }));
    assert!(matches!(open, Ok(wire::Answer::Opened(_))), "{open:?}");
    assert!(reopen(readable, true, false).is_ok());
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_subtree_for_another_client() {
    let fs = client();
    fs.make_dir("/open/mine", 0o777).unwrap();
    let policy = b"consistency: append_client_journal".as_slice();
    let decouple = |client| Op::Job(JobOp::Decouple { path: b"/open/mine", client, policy });
    for other in [ClientId(1), ClientId(fs.client().0 + 1)] {
        refused(fs.call_as(&user(), decouple(other)), Errno::NotPermitted);
    }
    assert!(fs.call_as(&user(), decouple(fs.client())).is_ok());
}

/// No attack: a user who has a file open while the server is killed.
#[test]
#[ignore = "a user, whom another test starts"]
fn with_an_open_file() {
    let fs = client();
    fs.make_dir("/open/theirs", 0o755).unwrap();
    let dir = fs.open_dir("/open/theirs").unwrap();
    let ino = dir.create("file", &NewFile::default()).unwrap().ino;
    fs.open_as(&user(), ino, true).unwrap();
    fs.make_dir("/open/ready", 0o755).unwrap();
    fs.sync().unwrap();
    eventually("the server was killed", || fs.stat("/open/go").is_ok());
    dir.set_data(ino, b"content", 7).unwrap();
    dir.create("more", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.stat("/open/theirs/file").unwrap().size, 7);
}

#[test]
#[ignore = "an attack, which another test starts"]
fn as_the_client_of_another() {
    for client in [1, 2, 3, 1000, 1 << 32 | 1].map(ClientId) {
        let hello = Hello { client, epoch: Epoch(0), unsafe_requests: 0 };
        is_cut_off(&server(), &Message::Hello(hello));
    }
    let own = client().client();
    assert_eq!(own.user(), USER);
}

#[test]
#[ignore = "an attack, which another test starts"]
fn as_an_administrator() {
    let address = Locator::monitor_of(&target());
    let ops = [
        MonOp::Stop,
        MonOp::Fail { rank: Rank(0) },
        MonOp::Remove { rank: Rank(0) },
        MonOp::SetBalancer { name: b"mine", text: b"" },
        MonOp::RevertBalancer,
        MonOp::Decouple { path: b"/private", client: ClientId(1), policy: b"batchfs" },
        MonOp::Decouple { path: b"/open", client: ClientId(0), policy: b"batchfs" },
        MonOp::SetPolicy { path: b"/open", policy: b"", client: ClientId(1) },
    ];
    for (cred, op) in ops.iter().flat_map(|op| [(user(), *op), (Cred::root(), *op)]) {
        let mut connection = Connection::open(&address, &Keyring::default()).unwrap();
        connection.set_timeout(Some(Duration::from_secs(10))).unwrap();
        connection.send(&Message::MonRequest { tid: Tid(1), cred, op }.to_frame()).unwrap();
        let answer = Message::decode(connection.receive().unwrap()).unwrap();
        let Message::MonReply { result, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(result.unwrap_err().errno, Errno::NotPermitted, "{op:?}");
    }
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_trace() {
    // The steps would name clients and objects of others.
    let op = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
    refused(client().trace(&op), Errno::NotPermitted);
}

#[test]
#[ignore = "an attack, which another test starts"]
fn as_a_server() {
    let beacon = Beacon {
        rank: Rank(0),
        epoch: Epoch(1 << 40),
        address: "unix:/tmp/mine".to_owned(),
        state: MdsState::Active,
        pid: std::process::id(),
        counters: Vec::new(),
        decoupled: Vec::new(),
        warnings: Vec::new(),
        given_up: (0, String::new()),
    };
    is_cut_off(&Locator::monitor_of(&target()), &Message::Beacon(beacon));
    let (from, term, to) = (Rank(1), Epoch(1), Rank(0));
    let hello = PeerMessage { from, term, to, body: PeerBody::Hello };
    is_cut_off(&server(), &Message::Peer(Box::new(hello)));
}

/// A journal that its client did not write: these creates in the root of a subtree.
fn forged(job: &mut Subtree, fs: &Fs, creates: &[Create<'_>], events: &[Event<'_>]) -> Vec<u8> {
    let header = SegmentHeader::decode(&job.journals()[0]).unwrap();
    let writer = Writer::Client { client: fs.client(), subtree: job.root() };
    let mut journal = JournalBuffer::new(header.first_seq, false);
    for create in creates {
        journal.append(Origin::default(), &Event::Create(*create));
    }
    for event in events {
        journal.append(Origin::default(), event);
    }
    journal.close_block();
    let mut bytes = SegmentHeader { writer, ..header }.encode().to_vec();
    journal.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
    bytes
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_journal() {
    let fs = client();
    fs.make_dir("/open/mine", 0o755).unwrap();
    let policy = Policy::from_name_or_text("consistency: append_client_journal").unwrap().policy;
    let mut job = fs.decouple("/open/mine", &policy).unwrap();
    let (root, name) = (job.root(), b"file".as_slice());
    let ino = job.create(root, name, &NewFile::default()).unwrap();
    let fine = Create {
        parent: root,
        name,
        ino,
        mode: 0o100_755,
        uid: USER,
        gid: USER,
        time: Timestamp(1),
        ..Create::default()
    };
    let powerful = [
        Create { uid: 0, ..fine },
        Create { uid: 0, mode: 0o104_755, ..fine },
        Create { gid: 0, mode: 0o102_755, ..fine },
        Create { mode: 0o060_666, rdev: 0x0800, ..fine },
        Create { mode: 0o020_666, rdev: 0x0101, ..fine },
    ];
    for create in powerful {
        let journal = forged(&mut job, &fs, &[create], &[]);
        refused(fs.apply_journal(root, &journal, false), Errno::NotPermitted);
    }
    let (home, time) = (root, Timestamp(2));
    let change = |change| Event::SetAttr { ino, home, change, time };
    let (name, value) = (b"security.capability".as_slice(), Some(b"x".as_slice()));
    let attr = Attr { ino, mode: 0o104_755, ..Attr::default() };
    let moved = InodeSnapshot { attr, data: b"", extra: b"" };
    let events = [
        change(AttrChange { uid: Some(0), ..AttrChange::default() }),
        change(AttrChange { gid: Some(0), ..AttrChange::default() }),
        Event::SetXattr { ino, home, name, value, time },
        Event::Rename {
            parent: root,
            name: b"file",
            new_parent: root,
            new_name: b"program of root",
            moved,
            exchanged: None,
            replaced: Ino(0),
            time,
        },
    ];
    for event in events {
        let journal = forged(&mut job, &fs, &[fine], &[event]);
        refused(fs.apply_journal(root, &journal, false), Errno::NotPermitted);
    }
    // And not because they are forged.
    let own_program = Create { mode: 0o104_755, ..fine };
    let journal = forged(&mut job, &fs, &[own_program], &[]);
    assert_eq!(fs.apply_journal(root, &journal, false).unwrap().created, 1);
    let attr = client().stat("/open/mine/file").unwrap();
    assert_eq!((attr.uid, attr.mode), (USER, 0o104_755));
}

/// The number of the secret, which the server has in its store only.
#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_number_that_an_answer_is_said_to_have_had() {
    let fs = client();
    let parent = fs.stat("/open").unwrap().ino;
    let mut connection = Connection::open(&server(), &Keyring::default()).unwrap();
    connection.set_timeout(Some(Duration::from_secs(10))).unwrap();
    let hello = Hello { client: fs.client(), epoch: Epoch(1), unsafe_requests: 1 };
    connection.send(&Message::Hello(hello).to_frame()).unwrap();
    for (tid, mode, name) in [(1001, 0o040_777, b"dir"), (1002, 0o100_666, b"non")] {
        let new = NewInode { mode, ..NewInode::default() };
        let op = Op::Change(ChangeOp::Create { parent, name, new });
        let replay = Some(Replay { ino: secret(), ..Replay::default() });
        let request = Request { replay, ..Request::new(Tid(tid), Tid(0), user(), op) };
        connection.send(&Message::Request(request).to_frame()).unwrap();
        let reply = loop {
            let frame = connection.receive().unwrap().to_vec();
            if let Message::Reply(reply) = Message::decode(&frame).unwrap() {
                break reply;
            }
        };
        assert_eq!(reply.tid, Tid(tid));
        assert_eq!(reply.result.map_err(|failure| failure.errno), Err(Errno::Stale));
    }
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_log() {
    let fs = client();
    let dir = fs.stat("/open/logged").unwrap().ino;
    let (theirs, secret) = (fs.stat("/open/logged/theirs").unwrap().ino, secret());
    // A number that the server has given to this user.
    let open = fs.open_dir("/open/logged").unwrap();
    let own = open.create("for its number", &NewFile::default()).unwrap().ino;
    open.unlink("for its number").unwrap();
    let writer = Writer::Client { client: fs.client(), subtree: dir };
    let mut log = JournalBuffer::new(Seq(1), false);
    let (uid, gid, time, home) = (USER, USER, Timestamp(1), dir);
    let create = |name: &'static str, ino| {
        let (parent, name, mode) = (dir, name.as_bytes(), 0o100_644);
        Event::Create(Create { parent, name, ino, mode, uid, gid, time, ..Create::default() })
    };
    let write = |ino| Event::SetData { ino, home, data: b"forged", size: 6, time };
    for event in [
        create("own", own),
        write(own),
        create("claimed", Ino(secret.0 - 1)),
        create("never given", Ino(1 << 50)),
        create("taken", secret),
        write(secret),
        write(theirs),
        Event::Unlink { parent: dir, name: b"theirs", ino: Ino(0), time },
    ] {
        log.append(Origin::default(), &event);
    }
    log.close_block();
    let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(1) };
    let state = StateDir::of(fs.cluster_id(), dir).unwrap();
    fs::create_dir_all(state.path()).unwrap();
    let file = state.path().join(format!("strong.{:016x}.{:x}", 1, fs.client().0));
    fs::write(file, [header.encode().to_vec(), log.blocks().concat()].concat()).unwrap();
    // The next process of the user replays the log of the dead one.
    assert_eq!(client().stat("/open/logged/own").unwrap().size, 6);
}

/// A list that lets a user read and write.
fn list_for(user: u32) -> Vec<u8> {
    acl::linux_form(&[
        (acl::USER_OBJ, 6, acl::NO_NUMBER),
        (acl::USER, 6, user),
        (acl::GROUP_OBJ, 0, acl::NO_NUMBER),
        (acl::MASK, 6, acl::NO_NUMBER),
        (acl::OTHER, 0, acl::NO_NUMBER),
    ])
}

#[test]
#[ignore = "an attack, which another test starts"]
fn by_a_list_in_a_journal() {
    let fs = client();
    let policy = Policy::from_name_or_text("consistency: append_client_journal").unwrap().policy;
    let theirs = fs.stat("/open/mine/plan").unwrap();
    let mut job = fs.decouple("/open/mine", &policy).unwrap();
    let root = job.root();
    job.create(root, b"other", &NewFile::default()).unwrap();
    let record = AccessList::from_linux(&list_for(USER)).unwrap().encode();
    let mut extra = vec![1];
    [ACCESS_LIST, &record].into_iter().for_each(|part| extra.put_bytes(part));
    let (home, name, time) = (root, b"plan".as_slice(), Timestamp(2));
    let events = [
        Event::SetXattr { ino: theirs.ino, home, name: ACCESS_LIST, value: Some(&record), time },
        Event::Rename {
            parent: root,
            name,
            new_parent: root,
            new_name: b"taken",
            moved: InodeSnapshot { attr: theirs, data: b"the plan", extra: &extra },
            exchanged: None,
            replaced: Ino(0),
            time,
        },
    ];
    let journal = forged(&mut job, &fs, &[], &events);
    // Names are the choice of the directory's owner.
    assert_eq!(fs.apply_journal(root, &journal, false).unwrap().rejected, 1);
    fs.stat("/open/mine/taken").unwrap();
    for write in [false, true] {
        let open = Op::Session(SessionOp::Open { ino: theirs.ino, write });
        refused(fs.call_as(&user(), open), Errno::Access);
    }
}

/// Carries an attack out, which must obtain nothing and disturb nobody.
fn survives(name: &str) {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let fs = cluster.mount();
    obtains_nothing(&attack(&cluster, &fs, name));
    assert_eq!(cluster.run(&["cp", "/private/secret", "-"]), b"the secret");
    assert_eq!(fs.stat("/private/secret").unwrap().mode & 0o777, 0o644);
    assert_eq!(cluster.names("/"), ["open", "private"]);
    assert_eq!(cluster.json(&["status"])["mds"][0]["epoch"], 1, "nobody has taken the rank over");
}

#[test]
fn nobody_asks_in_the_name_of_root() {
    survives("in_the_name_of_root");
}

#[test]
fn a_number_of_an_inode_is_no_right() {
    survives("by_the_number_of_an_inode");
}

#[test]
fn what_a_user_says_to_have_open_must_be_a_file_that_the_user_may_open() {
    survives("by_a_file_that_is_said_to_be_open");
}

#[test]
fn a_client_gets_a_subtree_for_itself_only() {
    survives("by_a_subtree_for_another_client");
}

#[test]
fn a_user_continues_after_a_kill_of_the_server() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let fs = cluster.mount();
    std::thread::scope(|scope| {
        let user = scope.spawn(|| attack(&cluster, &fs, "with_an_open_file"));
        eventually("the file is open", || fs.stat("/open/ready").is_ok());
        cluster.kill("mds");
        cluster.start();
        fs.make_dir("/open/go", 0o755).unwrap();
        obtains_nothing(&user.join().unwrap());
    });
    assert_eq!(cluster.run(&["cp", "/open/theirs/file", "-"]), b"content");
    assert_eq!(cluster.names("/open/theirs"), ["file", "more"]);
}

#[test]
fn nobody_is_the_client_of_another_user() {
    survives("as_the_client_of_another");
}

#[test]
fn only_the_owner_commands_the_cluster() {
    survives("as_an_administrator");
}

#[test]
fn only_the_owner_sees_the_course_of_requests() {
    survives("by_a_trace");
}

#[test]
fn nobody_plays_a_server() {
    survives("as_a_server");
}

#[test]
fn a_journal_of_a_user_makes_nothing_with_power() {
    survives("by_a_journal");
}

#[test]
fn a_journal_of_a_user_changes_no_list_of_another_user() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let fs = cluster.mount();
    let dir = fs.make_dir("/open/mine", 0o755).unwrap().ino;
    let mine = fs.open_dir("/open/mine").unwrap();
    let closed = NewFile { permissions: 0o660, ..NewFile::default() };
    let plan = mine.create("plan", &closed).unwrap();
    mine.set_data(plan.ino, b"the plan", 8).unwrap();
    let (root, list) = (Cred::root(), list_for(USER + 1));
    let root = fs.as_user(&root);
    let (value, flags) = (Some(&list[..]), XattrFlags::default());
    root.set_xattr(dir, plan.ino, &XattrChange { name: ACCESS_LIST, value, flags }).unwrap();
    let change = AttrChange { uid: Some(USER), gid: Some(USER), ..AttrChange::default() };
    fs.set_attr(dir, &change).unwrap();
    fs.sync().unwrap();
    obtains_nothing(&attack(&cluster, &fs, "by_a_list_in_a_journal"));
    assert_eq!(cluster.names("/open/mine"), ["taken"]);
    assert_eq!(root.xattr(plan.ino, ACCESS_LIST).unwrap(), list);
}

#[test]
fn a_log_of_a_user_changes_nothing_that_the_user_may_not_change() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let fs = cluster.mount();
    fs.make_dir("/open/logged", 0o1777).unwrap();
    let theirs = fs.open_dir("/open/logged").unwrap();
    let theirs = (theirs.create("theirs", &NewFile::default()).unwrap().ino, theirs);
    theirs.1.set_data(theirs.0, b"content", 7).unwrap();
    cluster.run(&["policy", "set", "/open/logged", "strong-local"]);
    // Only a crash makes clients replay their logs.
    cluster.kill("mds");
    cluster.start();
    // The server has the secret in memory.
    assert_eq!(cluster.run(&["cp", "/private/secret", "-"]), b"the secret");
    obtains_nothing(&attack(&cluster, &fs, "by_a_log"));
    assert_eq!(cluster.run(&["cp", "/private/secret", "-"]), b"the secret");
    assert_eq!(cluster.run(&["cp", "/open/logged/theirs", "-"]), b"content");
    assert_eq!(cluster.names("/open/logged"), ["own", "theirs"]);
}

#[test]
fn a_user_takes_no_number_of_an_inode_that_only_the_store_has() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let secret = cluster.mount().stat("/private/secret").unwrap().ino;
    cluster.run(&["down"]);
    cluster.start();
    obtains_nothing(&attack_on(&cluster, secret, "by_a_number_that_an_answer_is_said_to_have_had"));
    assert_eq!(cluster.names("/open"), ["program", "readable"]);
    assert_eq!(cluster.run(&["cp", "/private/secret", "-"]), b"the secret");
}

#[test]
fn only_root_sets_limits() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let fs = cluster.mount();
    let dir = fs.make_dir("/open/mine", 0o755).unwrap().ino;
    let change = AttrChange { uid: Some(USER), gid: Some(USER), ..AttrChange::default() };
    fs.set_attr(dir, &change).unwrap();
    cluster.run(&["quota", "set", "/open/mine", "--inodes", "2"]);
    obtains_nothing(&attack(&cluster, &fs, "on_limits"));
    assert_eq!(cluster.names("/open/mine"), ["a", "b"]);
    let told = cluster.json(&["quota", "get", "/open/mine"]);
    assert_eq!(told["quotas"][0]["inodes"]["limit"], 2);
}

#[test]
#[ignore = "an attack, which another test starts"]
fn on_limits() {
    let fs = client();
    let mine = fs.open_dir("/open/mine").unwrap();
    let dir = fs.stat("/open/mine").unwrap().ino;
    for value in [Some(b"inodes=1000".as_slice()), None] {
        refused(fs.set_xattr(dir, quota::LIMITS, value), Errno::NotPermitted);
    }
    for name in ["a", "b"] {
        mine.create(name, &NewFile::default()).unwrap();
    }
    refused(mine.create("c", &NewFile::default()), Errno::Quota);
    // A job of the user would need more inodes than the quota has.

    let text = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 1\n";
    let policy = Policy::parse(text).unwrap().policy;
    refused(fs.decouple("/open/mine", &policy), Errno::Quota);
    // Nor does the user limit another directory.

    let other = fs.make_dir("/open/other", 0o755).unwrap().ino;
    refused(fs.set_xattr(other, quota::LIMITS, Some(b"inodes=1")), Errno::NotPermitted);
}

#[test]
fn root_of_a_user_namespace_is_the_user_who_made_it() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let mut probe = Command::new("unshare");
    let has_namespaces =
        probe.args(["--user", "--map-root-user", "true"]).uid(USER).gid(USER).status();
    if !has_namespaces.is_ok_and(|status| status.success()) {
        println!("skipped: no user namespaces here");
        return;
    }
    let fs = cluster.mount();
    obtains_nothing(&attack_as_root_of_a_namespace(&cluster, &fs, "as_root_of_a_namespace"));
    assert_eq!(cluster.names("/open"), ["program", "readable", "x"]);
}

#[test]
fn without_a_group_no_other_user_connects_or_reads_the_store_under_any_umask() {
    if !is_root() {
        return;
    }
    let cluster = Cluster::down();
    fs::set_permissions(&cluster.home, fs::Permissions::from_mode(0o711)).unwrap();
    let started = Command::new("sh")
        .args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_cudele"), "--dir"])
        .arg(&cluster.dir)
        .args(["up", "--mds", "2"])
        .env("CUDELE_STATE", cluster.home.join("state"))
        .output()
        .unwrap();
    assert!(started.status.success(), "{}", text(&started.stderr));
    cluster.run_with_input(&["cp", "-", "/file"], &[7; 100_000]);
    let mut seen = 0;
    let mut left = vec![cluster.dir.clone(), cluster.home.join("state")];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o077, 0, "{}: {:o}", path.display(), meta.mode());
        seen += 1;
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 10, "sockets, logs, the store, and the state of the user");
    for socket in ["mon.sock", "mds.0.sock"] {
        let mut connect = Command::new("sh");
        let script = format!("test -e {0} || ls {0}", cluster.dir.join(socket).display());
        let denied = connect.args(["-c", &script]).uid(USER).gid(USER).output().unwrap();
        assert!(text(&denied.stderr).contains("Permission denied"), "{}", text(&denied.stderr));
    }
}

#[test]
fn a_member_of_the_group_works_with_what_is_theirs() {
    if !is_root() {
        return;
    }
    let cluster = shared();
    let program = env!("CARGO_BIN_EXE_cudele");
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg("--dir").arg(&cluster.dir).args(arguments);
        output_of(&cluster, &mut command)
    };
    // The directory of the build may be closed to other users.
    if Command::new(program).arg("--version").uid(USER).gid(USER).output().is_err() {
        println!("skipped: the other user cannot run the program");
        return;
    }
    let done = |arguments: &[&str]| {
        let output = as_user(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    done(&["mkdir", "/open/theirs"]);
    assert_eq!(done(&["ls", "/open"]), "program\nreadable\ntheirs\n");
    assert_eq!(done(&["cp", "/open/readable", "-"]), "readable");
    let denied = as_user(&["ls", "/private"]);
    assert!(text(&denied.stderr).contains("EACCES"), "{}", text(&denied.stderr));
    let denied = as_user(&["down"]);
    assert!(text(&denied.stderr).contains("does not administer"), "{}", text(&denied.stderr));
    let owner = cluster.mount().stat("/open/theirs").unwrap();
    assert_eq!((owner.uid, owner.gid), (USER, USER));
    // The group stays when the cluster is started again without the option.
    cluster.run(&["down"]);
    cluster.run(&["up"]);
    done(&["mkdir", "/open/again"]);
}
