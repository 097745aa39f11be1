//! The steps of servers in words, for transcripts: one line for each input, with its effects behind
//! an arrow. Inodes are shown as paths, journal segments as events, directories as names.
//!
//! Left out: inputs without an effect, and reports to the monitor about the server's state.

#![allow(clippy::wildcard_enum_match_arm, reason = "a transcript shows what its steps need")]

use journal::{Block, Event, SegmentHeader, segment};
use metastore::request::{Condition, StoreOp, StoreResult, Token};
use metastore::{RowValue, SUBTREES_NAME, Subtrees};
use namespace::Namespace;
use types::{ClientId, ConnId, FileType, Ino, Map, Tid};
use wire::{
    Answer, ChangeOp, JobOp, Message, Op, PeerBody, PeerMessage, RankOp, ReadOp, Reply, Request,
    SessionOp, TransferStep,
};

use crate::session::GONE;
use crate::{MdsEffects, MdsInput};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Words {
    lines: Vec<String>,
    input: String,
    /// The paths of inodes, as they were seen last.
    paths: Map<Ino, String>,
    clients: Map<ConnId, u64>,
    /// The names that requests under way create.
    creates: Map<(ConnId, Tid), (Ino, Vec<u8>)>,
    /// Operations of the store under way.
    ops: Map<(usize, Token), String>,
    rank: usize,
}

impl Words {
    /// The lines so far.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// A line of the test's own.
    pub(crate) fn note(&mut self, text: &str) {
        self.lines.push(format!("# {text}"));
    }

    /// A connection is of a client.
    pub(crate) fn is_of(&mut self, conn: ConnId, client: u64) {
        self.clients.insert(conn, client);
    }

    /// A server is about to handle an input.
    pub(crate) fn input(&mut self, rank: usize, input: &MdsInput<'_>, namespace: &Namespace) {
        self.rank = rank;
        let text = match input {
            MdsInput::Start => "start".to_owned(),
            MdsInput::Opened(..) => "connection opened".to_owned(),
            MdsInput::Closed(conn) => format!("{} is gone", self.client(*conn)),
            MdsInput::Message(conn, message) => self.message(*conn, message, namespace),
            MdsInput::FromMonitor(Message::Map(_)) => "monitor: map".to_owned(),
            MdsInput::FromMonitor(Message::Heartbeat(_)) => "monitor: heartbeat".to_owned(),
            MdsInput::FromMonitor(message) => self.message(ConnId::MONITOR, message, namespace),
            MdsInput::Stored(token, ended) => {
                let op = self.ops.remove(&(rank, *token)).unwrap_or_default();
                let ended = match ended {
                    Ok(result) => result_text(result),
                    Err(failure) => format!("failed with {}", failure.error.errno.symbol()),
                };
                format!("store: {op}: {ended}")
            }
            MdsInput::ResourceUse(_) => "vitals".to_owned(),
            MdsInput::Room(_) => "room of the store".to_owned(),
            MdsInput::Answered(answer) => {
                let exports = answer.decision.iter().flat_map(|decision| &decision.exports);
                let exports: Vec<String> = exports
                    .map(|export| {
                        format!("{} to {}", self.path(export.id.ino, namespace), export.to)
                    })
                    .collect();
                let skipped = answer.question.skipped.clone();
                match (exports.as_slice(), skipped) {
                    ([], Some(why)) => format!("balancer: no decision, because {why}"),
                    ([], None) => "balancer: move nothing".to_owned(),
                    (exports, _) => format!("balancer: move {}", exports.join(", ")),
                }
            }
            MdsInput::Work => "work".to_owned(),
            MdsInput::Tick => "tick".to_owned(),
            MdsInput::Terminate => "terminate".to_owned(),
        };
        self.input = format!("mds.{rank} <- {text}");
    }

    /// The server has handled it.
    pub(crate) fn effects(&mut self, effects: &MdsEffects, namespace: &Namespace) {
        let mut all = Vec::new();
        for (conn, frame) in effects.outbox.iter() {
            if let Ok(Some((frame, _))) = wire::frame::decode(frame)
                && let Ok(message) = Message::decode(frame.payload)
            {
                let to = self.client(conn);
                let text = self.sent(conn, &message, namespace);
                all.push(format!("{to}: {text}"));
            }
        }
        let mut rest = effects.to_monitor.as_slice();
        while let Ok(Some((frame, length))) = wire::frame::decode(rest) {
            rest = &rest[length..];
            match Message::decode(frame.payload) {
                Ok(message @ Message::Reply(_)) => {
                    let text = self.sent(ConnId::MONITOR, &message, namespace);
                    all.push(format!("monitor: {text}"));
                }
                Ok(Message::Heartbeat(_)) => all.push("monitor: heartbeat".to_owned()),
                _ => {}
            }
        }
        for frame in &effects.to_peers {
            if let Ok(Some((payload, _))) = wire::frame::decode(&frame.frame)
                && let Ok(Message::Peer(peer)) = Message::decode(payload.payload)
            {
                all.push(format!("{}: {}", frame.to, self.peer(&peer, namespace)));
            }
        }
        for (token, op) in &effects.store {
            let text = self.store_op(op, namespace);
            self.ops.insert((self.rank, *token), short(op));
            all.push(format!("store: {text}"));
        }
        all.extend(effects.questions.iter().map(|_| "ask the balancer".to_owned()));
        all.extend(effects.close.iter().map(|conn| format!("close {}", self.client(*conn))));
        all.extend(effects.stopped.then(|| "stopped".to_owned()));
        all.extend(effects.fatal.iter().map(|error| format!("give up: {error}")));
        if !all.is_empty() {
            self.lines.push(format!("{} -> {}", self.input, all.join("; ")));
        } else if !["tick", "work"].iter().any(|quiet| self.input.ends_with(quiet)) {
            self.lines.push(format!("{} -> nothing", self.input));
        }
    }

    fn client(&self, conn: ConnId) -> String {
        match self.clients.get(&conn) {
            _ if conn == ConnId::MONITOR => "monitor".to_owned(),
            Some(client) => format!("client {client}"),
            None => "a client".to_owned(),
        }
    }

    fn peer(&mut self, peer: &PeerMessage<'_>, namespace: &Namespace) -> String {
        let short = |number: &u64| format!("{}.{}", number >> 32, number & u64::from(u32::MAX));
        let (giver, number, step) = match &peer.body {
            PeerBody::Hello => return "hello".to_owned(),
            PeerBody::Transfer { giver, number, step } => (giver, number, step),
            PeerBody::Ask { number, op, .. } => {
                return format!("question {}: {}", short(number), self.op(op, namespace));
            }
            PeerBody::Answer { number, result: Ok(answer) } => {
                return format!("answer {}: {answer:?}", short(number));
            }
            PeerBody::Answer { number, result: Err(failure) } => {
                return format!("answer {}: {}, {}", short(number), failure.errno, failure.text);
            }
        };
        let of = format!("transfer {} of {giver}", short(number));
        match step {
            TransferStep::AskSubtree { root } => {
                format!("{of}: may {} come", self.path(*root, namespace))
            }
            TransferStep::Reserved { .. } => format!("{of}: it may come"),
            TransferStep::Refused { why, .. } => format!("{of}: refused, {why}"),
            TransferStep::Committed => format!("{of}: committed"),
            TransferStep::Stayed => format!("{of}: it stays"),
        }
    }

    fn message(&mut self, conn: ConnId, message: &Message<'_>, namespace: &Namespace) -> String {
        if let Message::Hello(hello) = message {
            self.clients.insert(conn, hello.client.0);
        }
        if let Message::Peer(peer) = message {
            return format!("{}: {}", peer.from, self.peer(peer, namespace));
        }
        let from = self.client(conn);
        match message {
            Message::Hello(hello) => format!("{from}: hello, term {}", hello.epoch.0),
            Message::Request(request) => {
                format!("{from}: {}", self.request(conn, request, namespace))
            }
            Message::Chunk { bytes, .. } => {
                format!("{from}: journal with {}", self.events(bytes, namespace))
            }
            other => format!("{from}: {other:?}"),
        }
    }

    fn request(&mut self, conn: ConnId, request: &Request<'_>, namespace: &Namespace) -> String {
        if let Op::Change(ChangeOp::Create { parent, name, .. }) = request.op {
            self.creates.insert((conn, request.tid), (parent, name.to_vec()));
        }
        let again = if request.replay.is_some() { "again, " } else { "" };
        let number = request.tid.0;
        format!("request {number}, {again}{}", self.op(&request.op, namespace))
    }

    fn op(&mut self, op: &Op<'_>, namespace: &Namespace) -> String {
        match *op {
            Op::Change(ChangeOp::Create { parent, name, ref new }) => {
                let is_dir = FileType::from_mode(new.mode) == Some(FileType::Directory);
                let what = if is_dir { "make directory" } else { "create" };
                format!("{what} {}", self.name(parent, name, namespace))
            }
            Op::Read(ReadOp::Lookup { parent, name }) => {
                format!("look up {}", self.name(parent, name, namespace))
            }
            Op::Change(ChangeOp::Unlink { parent, name }) => {
                format!("unlink {}", self.name(parent, name, namespace))
            }
            Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, .. }) => format!(
                "rename {} to {}",
                self.name(parent, name, namespace),
                self.name(new_parent, new_name, namespace)
            ),
            Op::Read(ReadOp::List { dir, .. }) => format!("list {}", self.path(dir, namespace)),
            Op::Read(ReadOp::GetAttr { ino }) => {
                format!("attributes of {}", self.path(ino, namespace))
            }
            Op::Rank(RankOp::Export { dir, rank }) => {
                format!("move {} to {rank}", self.path(dir, namespace))
            }
            Op::Job(JobOp::Decouple { path, client, policy }) => format!(
                "decouple {} for client {} with {:?}",
                String::from_utf8_lossy(path),
                client.0,
                String::from_utf8_lossy(policy)
            ),
            Op::Change(ChangeOp::SetPolicy { path, policy, .. }) => format!(
                "set policy of {} to {:?}",
                String::from_utf8_lossy(path),
                String::from_utf8_lossy(policy)
            ),
            Op::Job(JobOp::Merge { subtree, flags, .. }) => {
                let release = if flags.release { " and release it" } else { "" };
                format!("merge into {}{release}", self.path(subtree, namespace))
            }
            Op::Session(SessionOp::Return { dir }) => {
                format!("return {}", self.path(dir, namespace))
            }
            ref other => other.name().to_owned(),
        }
    }

    fn sent(&mut self, conn: ConnId, message: &Message<'_>, namespace: &Namespace) -> String {
        match message {
            Message::Welcome(welcome) => {
                let (term, done) = (welcome.epoch.0, welcome.completed.0);
                format!("welcome, term {term}, requests up to {done} are done")
            }
            Message::Reply(reply) => self.reply(conn, reply, namespace),
            Message::Recall { ino } => format!("recall {}", self.path(*ino, namespace)),
            Message::Revoke { dir } => format!("revoke {}", self.path(*dir, namespace)),
            Message::Moved { to, files } => format!("{} files move to {to}", files.len()),
            other => format!("{other:?}"),
        }
    }

    fn reply(&mut self, conn: ConnId, reply: &Reply, namespace: &Namespace) -> String {
        let Reply { tid, seq, safe, result, .. } = reply;
        if let Some((parent, name)) = self.creates.remove(&(conn, *tid))
            && let Ok(Answer::Attr(attr)) = result
        {
            let path = self.name(parent, &name, namespace);
            self.paths.insert(attr.ino, path);
        }
        let text = match result {
            Ok(Answer::Done) => "done".to_owned(),
            Ok(Answer::Attr(attr)) => format!("is {}", self.path(attr.ino, namespace)),
            Ok(Answer::Redirect(to)) => format!("ask {}", to.rank),
            Ok(Answer::Safe(seq)) => format!("safe up to event {}", seq.0),
            Ok(Answer::Decoupled(given)) => {
                format!("decoupled, with {} inode numbers", given.range.len())
            }
            Ok(Answer::Merged(report)) => format!(
                "merged: {} events, {} created, {} replaced, {} rejected",
                report.events, report.created, report.replaced, report.rejected
            ),
            Ok(Answer::Entries { entries, .. }) => {
                let names = entries.iter().map(|(name, _)| String::from_utf8_lossy(name));
                let mut names: Vec<_> = names.collect();
                names.sort_unstable();
                format!(
                    "has {}",
                    if names.is_empty() { "no names".into() } else { names.join(" ") }
                )
            }
            Ok(other) => format!("{other:?}"),
            Err(failure) => failure.errno.symbol().to_owned(),
        };
        let when = match (seq.0, *seq <= *safe) {
            (0, _) => String::new(),
            (event, true) => format!(", event {event} is safe"),
            (event, false) => format!(", event {event} is applied"),
        };
        format!("reply {}, {text}{when}", tid.0)
    }

    fn store_op(&mut self, op: &StoreOp, namespace: &Namespace) -> String {
        match op {
            StoreOp::Append { object, data } => {
                format!("append to {object}: {}", self.events(data, namespace))
            }
            StoreOp::Put { object, data, .. } if object == SUBTREES_NAME => {
                let list = Subtrees::decode(data).unwrap_or_default();
                let each = list.iter().map(|it| {
                    let pinned = if it.pinned { ", pinned" } else { "" };
                    let arrives = if it.inode.is_empty() { "" } else { ", with its inode" };
                    format!("{} at {}{pinned}{arrives}", self.path(it.root, namespace), it.rank)
                });
                let each: Vec<String> = each.collect();
                format!("replace {object}: {}", each.join(", "))
            }
            StoreOp::CommitDir { ino, rows, .. } => {
                let each = rows.iter().map(|row| {
                    let name = String::from_utf8_lossy(row.name);
                    match row.value {
                        RowValue::Removed => format!("{name} removed"),
                        RowValue::Remote { .. } => format!("{name} linked"),
                        RowValue::Inode(_) => name.into_owned(),
                    }
                });
                let each: Vec<String> = each.collect();
                format!("write {}: {}", self.path(*ino, namespace), each.join(", "))
            }
            StoreOp::LoadDir { ino } => format!("load {}", self.path(*ino, namespace)),
            StoreOp::LookUp { ino, names } => {
                let names = names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
                let names: Vec<String> = names.collect();
                format!("look up {} in {}", names.join(", "), self.path(*ino, namespace))
            }
            other => short(other),
        }
    }

    fn events(&mut self, bytes: &[u8], namespace: &Namespace) -> String {
        let has_header = SegmentHeader::decode(bytes).is_ok();
        let mut offset = if has_header { segment::HEADER_BYTES } else { 0 };
        let mut all = Vec::new();
        while let Ok((block, next)) = Block::read(bytes, offset) {
            let mut events = block.events();
            let mut create = None;
            while let Ok(Some(record)) = events.next_event() {
                let event = match record.event {
                    Event::Session { client, tid } => session_event(&mut create, client, tid),
                    event => Some(self.event(&event, namespace)),
                };
                all.extend(event.map(|event| format!("{} {event}", record.seq.0)));
            }
            offset = next;
        }
        all.join(", ")
    }

    fn event(&mut self, event: &Event<'_>, namespace: &Namespace) -> String {
        match *event {
            Event::Create(ref create) => {
                let path = self.name(create.parent, create.name, namespace);
                self.paths.insert(create.ino, path.clone());
                format!("create {path}")
            }
            Event::Unlink { parent, name, .. } => {
                format!("unlink {}", self.name(parent, name, namespace))
            }
            Event::Rename { parent, name, new_parent, new_name, .. } => format!(
                "rename {} to {}",
                self.name(parent, name, namespace),
                self.name(new_parent, new_name, namespace)
            ),
            Event::SetPolicy { ino, .. } => format!("policy of {}", self.path(ino, namespace)),
            Event::Stored { dir } => format!("{} is being stored", self.path(dir, namespace)),
            Event::Merged { subtree, events, .. } => {
                format!("{events} creates merged into {}", self.path(subtree, namespace))
            }
            ref other => format!("{:?}", other.kind()),
        }
    }

    fn name(&mut self, parent: Ino, name: &[u8], namespace: &Namespace) -> String {
        let above = self.path(parent, namespace);
        let name = String::from_utf8_lossy(name);
        if above == "/" { format!("/{name}") } else { format!("{above}/{name}") }
    }

    fn path(&mut self, ino: Ino, namespace: &Namespace) -> String {
        let hidden = match ino {
            Ino::ANCHOR => Some("the anchor"),
            Ino::LINKS => Some("the directory of links"),
            Ino::TRASH => Some("the trash"),
            _ => None,
        };
        if let Some(hidden) = hidden {
            return hidden.to_owned();
        }
        if ino.is_mount_stub() {
            return "a mount stub".to_owned();
        }
        if let Some(path) = namespace.path_of(ino) {
            self.paths.insert(ino, path.to_string());
        }
        self.paths.get(&ino).cloned().unwrap_or_else(|| format!("inode {}", ino.0))
    }
}

/// The part of a session's summary that an event holds. A create is three events: only the first
/// is shown.
fn session_event(create: &mut Option<u64>, client: ClientId, tid: Tid) -> Option<String> {
    if let Some(left) = create {
        *left -= 1;
        *create = create.filter(|left| *left > 0);
        return None;
    }
    let (client, number) = (client.0, tid.0 & !(3 << 62));
    Some(match tid.0 >> 62 {
        _ if tid == GONE => format!("client {client} is gone"),
        0 => format!("client {client} is done up to request {number}"),
        1 => {
            *create = Some(2);
            format!("client {client} created by request {number}")
        }
        _ => format!("client {client} was refused request {number}"),
    })
}

/// An operation of the store without its content.
fn short(op: &StoreOp) -> String {
    match op {
        StoreOp::Append { object, .. } => format!("append to {object}"),
        StoreOp::Put { object, condition: Condition::Absent, .. } => format!("make {object}"),
        StoreOp::Put { object, .. } => format!("replace {object}"),
        StoreOp::Get { object } => format!("read {object}"),
        StoreOp::List { prefix } => format!("list {prefix}"),
        StoreOp::Delete { objects } => format!("delete {}", objects.join(", ")),
        StoreOp::PurgeData { .. } => "purge the data of a file".to_owned(),
        StoreOp::PurgeDir { .. } => "purge a directory".to_owned(),
        StoreOp::LoadDir { .. } => "load a directory".to_owned(),
        StoreOp::LookUp { .. } => "look up names".to_owned(),
        StoreOp::CompactDir { .. } => "compact a directory".to_owned(),
        StoreOp::CommitDir { .. } => "write a directory".to_owned(),
        StoreOp::AttachDirs { .. } => "attach directories".to_owned(),
        StoreOp::ProveRuns { .. } => "prove runs".to_owned(),
        StoreOp::TakeSnapshot { .. } => "take a snapshot".to_owned(),
    }
}

fn result_text(result: &StoreResult) -> String {
    match result {
        StoreResult::Done | StoreResult::Written { .. } | StoreResult::Stored(_) => "done".into(),
        StoreResult::Conflict => "conflict".into(),
        StoreResult::Missing => "missing".into(),
        StoreResult::Bytes(bytes, _) => format!("{} bytes", bytes.len()),
        StoreResult::Names(names) => format!("{} names", names.len()),
        StoreResult::Found(loaded) => format!("{} names found", loaded.rows.len()),
        StoreResult::Dir(loaded) => format!("{} names", loaded.rows.len()),
    }
}
