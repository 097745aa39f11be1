//! The audit log: a line of JSON for each request that takes more than the rights to read and
//! write: to decouple, merge, take over or give up a subtree, to set policies, to move directories,
//! to take snapshots, and to command the cluster. Refused requests are in it, too.
//!
//! Each line has the hash of the line before it and of itself, so a line that was changed, added or
//! removed in the middle shows ([`verify`]). The end of a file can be cut off unseen; keep the
//! newest hash elsewhere if that matters.
//!
//! A user cannot push the lines of others out of the log with refused requests: of one user, and of
//! all hosts together, the log has so many refusals a minute, and then their number.
//!
//! The driver sees requests and replies pass, so the state machines do not know of this log. A disk
//! that is full must not stop a cluster: the daemon's log says that lines are missing.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use types::{ConnId, Cred, Peer, Tid, Timestamp};
use wire::{AdminOp, Failure, JobOp, Message, MonOp, Op, RankOp};

use crate::Log;

/// A longer file is renamed, and a new one begun.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Renamed files that are kept.
const KEPT: u32 = 9;
/// Refusals of one user that have lines of their own, in so much time.
const REFUSALS_MAX: u32 = 100;
const REFUSALS_TIME: i64 = 60_000_000_000;
/// Users whose refusals are counted.
const REFUSED_MAX: usize = 1024;
/// The operation of a line with the number of refusals that have none.
const OMITTED: &str = "omitted";
/// The hash before the first line.
const NO_HASH: &str = "";
/// The fields of a line with hashes.
const BEFORE: &str = "before";
const HASH: &str = "hash";

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    file: Option<AuditFile>,
    /// Peers that are not trusted, in words.
    peers: BTreeMap<ConnId, String>,
    pending: BTreeMap<(ConnId, Tid), AuditedRequest>,
    refusals: Refusals,
}

/// The refusals of peers in the present minute, by the words for the peer: a request may state
/// any user.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<String, Refused>);

/// The refusals of one user.
#[derive(Debug)]
struct Refused {
    since: Timestamp,
    noted: u32,
    omitted: u64,
}

impl Refusals {
    /// Notes a refusal at a time. Returns whether it has a line, and how many had none in the time
    /// that ended with it.
    fn note(&mut self, peer: &str, now: Timestamp) -> (bool, u64) {
        let is_over = |known: &Refused| now.0 - known.since.0 >= REFUSALS_TIME;
        if self.0.len() >= REFUSED_MAX && !self.0.contains_key(peer) {
            self.0.retain(|_, known| known.omitted > 0 || !is_over(known));
        }
        let begun = Refused { since: now, noted: 0, omitted: 0 };
        if self.0.len() >= REFUSED_MAX && !self.0.contains_key(peer) {
            return (true, 0);
        }
        let known = self.0.entry(peer.to_owned()).or_insert(begun);
        let mut before = 0;
        if is_over(known) {
            before = known.omitted;
            *known = Refused { since: now, noted: 0, omitted: 0 };
        }
        let has_line = known.noted < REFUSALS_MAX;
        if has_line {
            known.noted += 1;
        } else {
            known.omitted += 1;
        }
        (has_line, before)
    }

    /// Takes the number of refusals of a peer that have no line yet, and the time of the first.
    fn take_omitted(&mut self, peer: &str) -> Option<(Timestamp, u64)> {
        let known = self.0.get_mut(peer)?;
        let omitted = std::mem::take(&mut known.omitted);
        (omitted > 0).then_some((known.since, omitted))
    }
}

#[derive(Debug)]
struct AuditFile {
    daemon: String,
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The hash of the last line.
    hash: String,
    log: Log,
    /// The last line was cut off: the disk was full, or the daemon killed.
    failed: bool,
}

/// A request without a reply yet.
#[derive(Debug)]
struct AuditedRequest {
    time: Timestamp,
    cred: Cred,
    op: &'static str,
    about: String,
}

/// The request of a message, if it is in the log, and the object that it is about.
fn audited<'a>(message: &'a Message<'_>) -> Option<(Tid, &'a Cred, &'static str, String)> {
    if let Message::Request(request) = message {
        return Some((request.tid, &request.cred, request.op.name(), about(&request.op)?));
    }
    let Message::MonRequest { tid, cred, op } = message else { return None };
    let (name, about) = match op {
        MonOp::Status | MonOp::Register | MonOp::BalancerLog { .. } => return None,
        MonOp::Decouple { path, client, .. } => {
            ("decouple", format!("{} for {client}", lossy(path)))
        }
        MonOp::SetPolicy { path, .. } => ("setpolicy", lossy(path)),
        MonOp::Stop => ("stop", String::new()),
        MonOp::Fail { rank } => ("fail", rank.to_string()),
        MonOp::Remove { rank } => ("remove", rank.to_string()),
        MonOp::SetBalancer { name, .. } => ("balancer", lossy(name)),
        MonOp::RevertBalancer => ("balancer", "revert".to_owned()),
    };
    Some((*tid, cred, name, about))
}

/// The object of an operation, if the operation is in the log.
fn about(op: &Op<'_>) -> Option<String> {
    match op {
        Op::Read(_)
        | Op::Change(_)
        | Op::Session(_)
        | Op::Job(JobOp::Extend { .. })
        | Op::Admin(AdminOp::Checkpoint) => None,
        Op::Rank(RankOp::Export { dir, rank }) => Some(format!("{dir} to {rank}")),
        Op::Job(_) | Op::Rank(_) | Op::Admin(_) => {
            let path = op.path().map(|(_, path)| lossy(path));
            path.or_else(|| Some(op.about().inode.map(|ino| ino.to_string()).unwrap_or_default()))
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A peer in words.
pub(crate) fn words(peer: &Peer) -> String {
    match peer {
        Peer::Trusted => "owner".to_owned(),
        Peer::Host { .. } if *peer == Peer::host() => "host".to_owned(),
        Peer::Host { .. } if *peer == Peer::host_without_root() => "host without root".to_owned(),
        Peer::Host { users, .. } => format!("host of users {users}"),
        Peer::User(cred) => format!("user {}", cred.uid),
        Peer::Limited(peer, rules) => format!("{} with {rules}", words(peer)),
    }
}

impl Audit {
    /// The log of a daemon in this folder.
    pub(crate) fn in_folder(folder: Option<&Path>, daemon: &str, log: &Log) -> Self {
        let file = folder.and_then(|folder| AuditFile::open(folder, daemon, log));
        Self { file, ..Self::default() }
    }

    /// A peer connected.
    pub(crate) fn opened(&mut self, conn: ConnId, peer: &Peer) {
        if self.file.is_some() && !peer.is_trusted() {
            self.peers.insert(conn, words(peer));
        }
    }

    /// A message arrived.
    pub(crate) fn arrived(&mut self, conn: ConnId, time: Timestamp, message: &Message<'_>) {
        if self.file.is_none() {
            return;
        }
        if let Some((tid, cred, op, about)) = audited(message) {
            let request = AuditedRequest { time, cred: cred.clone(), op, about };
            self.pending.insert((conn, tid), request);
        }
    }

    /// Whether a reply to this peer would be noted.
    #[inline]
    pub(crate) fn awaits(&self, conn: ConnId) -> bool {
        !self.pending.is_empty()
            && self.pending.range((conn, Tid(0))..=(conn, Tid(u64::MAX))).next().is_some()
    }

    /// Frames go to a peer, which came from there.
    pub(crate) fn sent(&mut self, conn: ConnId, mut frames: &[u8], from: &str) {
        while let Ok(Some((frame, length))) = wire::frame::decode(frames) {
            let (tid, failure) = match Message::decode(frame.payload) {
                Ok(Message::Reply(reply)) => (reply.tid, reply.result.err()),
                Ok(Message::MonReply { tid, result }) => (tid, result.err()),
                _ => (Tid(u64::MAX), None),
            };
            if let Some(request) = self.pending.remove(&(conn, tid)) {
                self.write(conn, &request, failure.as_ref(), from);
            }
            frames = &frames[length..];
        }
    }

    /// A connection is gone. The outcome of its requests is unknown here.
    pub(crate) fn closed(&mut self, conn: ConnId) {
        while let Some((&key, _)) =
            self.pending.range((conn, Tid(0))..=(conn, Tid(u64::MAX))).next()
        {
            if let Some(request) = self.pending.remove(&key) {
                let failure = Failure {
                    errno: types::Errno::Io,
                    text: "the connection ended before the reply".into(),
                };
                self.write(conn, &request, Some(&failure), "gone");
            }
        }
        if let Some(peer) = self.peers.remove(&conn)
            && let Some(file) = &mut self.file
            && let Some((since, omitted)) = self.refusals.take_omitted(&peer)
        {
            let mut line = Map::new();
            let mut put = |name: &str, value: Value| drop(line.insert(name.to_owned(), value));
            put("time", since.utc().into());
            put("daemon", file.daemon.as_str().into());
            put("peer", peer.into());
            put("op", OMITTED.into());
            put("about", format!("{omitted} refusals").into());
            file.append(line);
        }
    }

    fn write(
        &mut self,
        conn: ConnId,
        request: &AuditedRequest,
        failure: Option<&Failure>,
        from: &str,
    ) {
        let Some(file) = &mut self.file else { return };
        let known = self.peers.get(&conn).map(String::as_str);
        let peer = known.unwrap_or("owner");
        let (has_line, omitted) = match known.filter(|_| failure.is_some()) {
            Some(peer) => self.refusals.note(peer, request.time),
            None => (true, 0),
        };
        let begin = |op: &str, about: &str| {
            let mut line = Map::new();
            let mut put = |name: &str, value: Value| drop(line.insert(name.to_owned(), value));
            put("time", request.time.utc().into());
            put("daemon", file.daemon.as_str().into());
            put("peer", peer.into());
            put("from", from.into());
            put("uid", request.cred.uid.into());
            put("gid", request.cred.gid.into());
            put("op", op.into());
            put("about", about.into());
            line
        };
        let summary = (omitted > 0).then(|| begin(OMITTED, &format!("{omitted} refusals")));
        let line = has_line.then(|| begin(request.op, &request.about));
        if let Some(summary) = summary {
            file.append(summary);
        }
        let Some(mut line) = line else { return };
        let mut put = |name: &str, value: Value| drop(line.insert(name.to_owned(), value));
        put("result", failure.map_or("ok", |failure| failure.errno.symbol()).into());
        if let Some(failure) = failure {
            put("cause", failure.text.as_str().into());
        }
        file.append(line);
    }
}

impl AuditFile {
    fn open(folder: &Path, daemon: &str, log: &Log) -> Option<Self> {
        let path = folder.join(format!("audit.{daemon}.jsonl"));
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let opened = std::fs::create_dir_all(folder).and_then(|()| options.open(&path));
        let (file, hash) = match opened.and_then(|file| last_hash(&file).map(|hash| (file, hash))) {
            Ok(opened) => opened,
            Err(error) => {
                log.error(
                    "audit.none",
                    format_args!("no audit log is written: {}: {error}", path.display()),
                );
                return None;
            }
        };
        let bytes = file.metadata().map_or(0, |known| known.len());
        let is_torn = bytes > 0 && hash.is_empty();
        let (daemon, log) = (daemon.to_owned(), log.clone());
        Some(Self { daemon, path, file, bytes, hash, log, failed: is_torn })
    }

    fn append(&mut self, mut line: Map<String, Value>) {
        line.insert(BEFORE.to_owned(), self.hash.as_str().into());
        let hash = hash_of(&line);
        line.insert(HASH.to_owned(), hash.as_str().into());
        // The rest of a line that was cut off stays a line of its own.
        let begin = if self.failed { "\n" } else { "" };
        let text = format!("{begin}{}\n", Value::Object(line));
        match self.file.write_all(text.as_bytes()) {
            Ok(()) => {
                self.hash = hash;
                self.bytes += text.len() as u64;
                self.failed = false;
            }
            Err(error) if !self.failed => {
                self.failed = true;
                self.log.error(
                    "audit.missing",
                    format_args!("lines of the audit log are missing: {error}"),
                );
            }
            Err(_) => {}
        }
        if self.bytes > FILE_BYTES_MAX {
            self.rotate();
        }
    }

    /// Renames the file, and the renamed ones before it. The chain of hashes goes on.
    fn rotate(&mut self) {
        let numbered = |number: u32| self.path.with_extension(format!("{number}.jsonl"));
        for number in (1..KEPT).rev() {
            let _ = std::fs::rename(numbered(number), numbered(number + 1));
        }
        let made = std::fs::rename(&self.path, numbered(1)).and_then(|()| {
            OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
        });
        match made {
            Ok(file) => (self.file, self.bytes) = (file, 0),
            Err(error) => {
                // Tried again after as many lines as a file has.
                self.bytes = 0;
                self.log.warning(
                    "audit.renamed",
                    format_args!("the audit log is not renamed: {error}"),
                );
            }
        }
    }
}

/// The hash of a line, which has no hash of its own yet.
fn hash_of(line: &Map<String, Value>) -> String {
    let text = Value::Object(line.clone()).to_string();
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn last_hash(file: &File) -> std::io::Result<String> {
    let mut hash = NO_HASH.to_owned();
    for line in BufReader::new(file).lines() {
        let known = serde_json::from_str::<Value>(&line?).ok();
        // A line that was cut off is followed by one that does not fit, and that shows.
        hash = known.and_then(|line| Some(line[HASH].as_str()?.to_owned())).unwrap_or_default();
    }
    Ok(hash)
}

/// Reads an audit log and holds its lines against their hashes. `before` is the hash of the line
/// before the first, if the file before this one is known. Returns the lines, and the number of
/// the first that does not fit, if any.
#[must_use]
pub fn verify(text: &str, before: Option<&str>) -> (Vec<Value>, Option<usize>) {
    let mut before = before.map(str::to_owned);
    let (mut lines, mut altered) = (Vec::new(), None);
    for (number, text) in text.lines().enumerate() {
        let line = serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!({ "text": text }));
        let fits = line.as_object().is_some_and(|known| {
            let mut known = known.clone();
            let hash = known.remove(HASH);
            let follows = before.as_deref().is_none_or(|before| line[BEFORE] == before);
            follows && hash.is_some_and(|hash| hash == hash_of(&known).as_str())
        });
        if !fits {
            altered.get_or_insert(number + 1);
        }
        before = Some(line[HASH].as_str().unwrap_or_default().to_owned());
        lines.push(line);
    }
    (lines, altered)
}

#[cfg(test)]
mod tests {
    use types::{ClientId, Errno, Ino, KeyRules, Rank};
    use wire::{MonAnswer, ReadOp, Request};

    use super::*;

    fn decouple(tid: u64, path: &[u8]) -> Message<'_> {
        let op = MonOp::Decouple { path, client: ClientId(1), policy: b"batchfs" };
        let cred = Cred { uid: 7, gid: 70, groups: Vec::new() };
        Message::MonRequest { tid: Tid(tid), cred, op }
    }

    fn reply(tid: u64, result: Result<MonAnswer, Failure>) -> Vec<u8> {
        Message::MonReply { tid: Tid(tid), result }.to_frame()
    }

    fn audit(folder: &Path) -> Audit {
        Audit::in_folder(Some(folder), "mon", &Log::none())
    }

    fn text(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("audit.mon.jsonl")).unwrap()
    }

    #[test]
    fn a_user_fills_the_log_with_no_refusals() {
        let folder = tempfile::tempdir().unwrap();
        let mut audit = audit(folder.path());
        let (one, owner) = (ConnId(1), ConnId(2));
        audit.opened(one, &Peer::User(Cred { uid: 7, gid: 70, groups: Vec::new() }));
        let mut refuse = |conn, number: u64, second: i64| {
            let refused = Failure { errno: Errno::Access, text: "no".into() };
            audit.arrived(conn, Timestamp(second * 1_000_000_000), &decouple(number, b"/a"));
            audit.sent(conn, &reply(number, Err(refused)), "unix");
        };
        for number in 0..1000 {
            refuse(one, number, 1);
        }
        refuse(owner, 1, 2);
        assert_eq!(text(folder.path()).lines().count(), 101, "and one of the owner");
        refuse(one, 1000, 62);
        let (lines, altered) = verify(&text(folder.path()), None);
        assert_eq!((lines.len(), altered), (103, None));
        assert_eq!(lines[101]["op"], "omitted");
        assert_eq!(lines[101]["about"], "900 refusals");
        // The end of the connection tells the number, too.
        for number in 2000..2150 {
            refuse(one, number, 63);
        }
        audit.closed(one);
        let (lines, altered) = verify(&text(folder.path()), None);
        assert_eq!((lines.last().unwrap()["about"].clone(), altered), (json!("51 refusals"), None));
    }

    #[test]
    fn the_refusals_of_many_users_take_little_memory() {
        let mut refusals = Refusals::default();
        for uid in 0..5000 {
            assert_eq!(refusals.note(&format!("user {uid}"), Timestamp(0)), (true, 0));
        }
        assert_eq!(refusals.0.len(), REFUSED_MAX);
        assert_eq!(refusals.note("user 9999", Timestamp(REFUSALS_TIME)), (true, 0));
        assert_eq!(refusals.0.len(), 1, "of the minute before only the omitted ones count");
    }

    #[test]
    fn requests_are_noted_with_their_user_and_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let mut audit = audit(folder.path());
        let (one, other) = (ConnId(1), ConnId(2));
        let user = Cred { uid: 7, gid: 70, groups: Vec::new() };
        audit.opened(other, &Peer::Limited(Box::new(Peer::User(user)), KeyRules::reading()));
        audit.arrived(one, Timestamp(0), &decouple(1, b"/a\n\x1b[2J"));
        audit.arrived(other, Timestamp(0), &decouple(1, b"/b"));
        audit.arrived(other, Timestamp(0), &decouple(2, b"/c"));
        assert!(audit.awaits(one) && audit.awaits(other) && !audit.awaits(ConnId(3)));
        let refused = Failure { errno: Errno::ReadOnly, text: "no".into() };
        audit.sent(other, &reply(1, Err(refused)), "unix");
        audit.sent(one, &reply(1, Ok(MonAnswer::Done)), "tcp 10.0.0.1:5 key 1f");
        audit.closed(other);
        assert!(!audit.awaits(one) && !audit.awaits(other));
        let text = text(folder.path());
        assert_eq!(text.lines().count(), 3, "names cannot make lines: {text}");
        let (lines, altered) = verify(&text, Some(NO_HASH));
        assert_eq!(altered, None, "{text}");
        assert_eq!(
            (&lines[0]["peer"], &lines[0]["result"]),
            (&json!("user 7 with read:/"), &json!("EROFS"))
        );
        assert_eq!(lines[1]["about"], "/a\n\u{1b}[2J for client.1");
        assert_eq!((&lines[1]["peer"], &lines[1]["result"]), (&json!("owner"), &json!("ok")));
        assert_eq!((&lines[2]["result"], &lines[2]["uid"]), (&json!("EIO"), &json!(7)));
    }

    #[test]
    fn questions_and_ordinary_changes_are_not_noted() {
        let read = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
        let request = |op| Message::Request(Request::new(Tid(1), Tid(0), Cred::root(), op));
        assert!(audited(&request(read)).is_none());
        assert!(audited(&request(Op::Admin(AdminOp::Checkpoint))).is_none());
        let export = Op::Rank(RankOp::Export { dir: Ino(300), rank: Rank(1) });
        let (_, _, op, about) =
            audited(&request(export)).map(|(a, _, b, c)| (a, (), b, c)).unwrap();
        assert_eq!((op, about.as_str()), ("export", "ino:300 to mds.1"));
    }

    #[test]
    fn a_line_that_was_changed_added_or_removed_shows() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = audit(folder.path());
        for tid in 1..=3 {
            first.arrived(ConnId(1), Timestamp(0), &decouple(tid, b"/a"));
            first.sent(ConnId(1), &reply(tid, Ok(MonAnswer::Done)), "unix");
        }
        drop(first);
        // Another process goes on with the chain.
        let mut second = audit(folder.path());
        second.arrived(ConnId(1), Timestamp(0), &decouple(9, b"/b"));
        second.sent(ConnId(1), &reply(9, Ok(MonAnswer::Done)), "unix");
        let whole = text(folder.path());
        assert_eq!(verify(&whole, None).1, None);
        let lines: Vec<&str> = whole.lines().collect();
        assert_eq!(verify(&whole.replacen("/a", "/x", 1), None).1, Some(1));
        assert_eq!(verify(&[lines[0], lines[2], lines[3]].join("\n"), None).1, Some(2));
        assert_eq!(verify(&[lines[0], lines[1], lines[1], lines[2]].join("\n"), None).1, Some(3));
        assert_eq!(verify(&lines[1..].join("\n"), Some(NO_HASH)).1, Some(1));
        assert_eq!(verify("no json", None).1, Some(1));
        // A line that a kill cut off shows, and spoils no line behind it.
        std::fs::write(folder.path().join("audit.mon.jsonl"), &whole[..whole.len() - 9]).unwrap();
        let mut third = audit(folder.path());
        third.arrived(ConnId(1), Timestamp(0), &decouple(1, b"/c"));
        third.sent(ConnId(1), &reply(1, Ok(MonAnswer::Done)), "unix");
        let (lines, altered) = verify(&text(folder.path()), None);
        assert_eq!((altered, lines.len()), (Some(4), 5));
        assert_eq!(lines[4]["about"], "/c for client.1");
    }
}
