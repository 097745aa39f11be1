//! Messages and store operations in one line each, for traces and transcripts.

use metastore::request::{StoreOp, StoreResult};
use wire::Message;

/// A store operation.
#[must_use]
pub(crate) fn store_op(op: &StoreOp) -> String {
    match op {
        StoreOp::Append { object, data } => format!("append {object} {}B", data.len()),
        StoreOp::Put { object, data, .. } if object == metastore::SUBTREES_NAME => {
            let list = metastore::Subtrees::decode(data).unwrap_or_default();
            let all = list.iter().map(|it| {
                let flags = [
                    (it.joined, "j"),
                    (it.follows, "f"),
                    (it.pinned, "p"),
                    (!it.inode.is_empty(), "i"),
                ];
                let flags: String =
                    flags.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
                format!("{}@{}{flags}<{}", it.root.0, it.rank.0, it.outer.0)
            });
            format!("put {object} {}", all.collect::<Vec<_>>().join(" "))
        }
        StoreOp::Put { object, data, condition } => {
            format!("put {object} {}B if {condition:?}", data.len())
        }
        StoreOp::Get { object } => format!("get {object}"),
        StoreOp::List { prefix } => format!("list {prefix}"),
        StoreOp::Delete { objects } => format!("delete {}", objects.join(" ")),
        StoreOp::PurgeData { ino, .. } => format!("purge data of {ino}"),
        StoreOp::PurgeDir { ino } => format!("purge directory {ino}"),
        StoreOp::LoadDir { ino } => format!("load {ino}"),
        StoreOp::LookUp { ino, names } => format!("look up {} names of {ino}", names.len()),
        StoreOp::CompactDir { ino } => format!("merge runs of {ino}"),
        StoreOp::AttachDirs { dirs, .. } => {
            format!("attach {} directories", dirs.chunk_by(|one, next| one.dir == next.dir).count())
        }
        StoreOp::ProveRuns { runs } => {
            let each = runs.iter().map(|run| format!("prove {} of {}", run.run.id, run.dir));
            each.collect::<Vec<_>>().join(", ")
        }
        StoreOp::TakeSnapshot { snapshot } => format!("take a snapshot of {}", snapshot.root.ino),
        StoreOp::CommitDir { ino, rows, counts: (entries, subdirs, exact), attach, .. } => {
            let about = if *exact { "" } else { "at least " };
            let attached = if attach.is_some() { ", and a run" } else { "" };
            format!(
                "commit {ino}: {} rows, {about}{entries} entries, {subdirs} directories{attached}",
                rows.len()
            )
        }
    }
}

/// The result of a store operation.
#[must_use]
pub(crate) fn store_result(result: &StoreResult) -> String {
    match result {
        StoreResult::Done | StoreResult::Written { .. } => "done".into(),
        StoreResult::Stored(_) => "stored".into(),
        StoreResult::Conflict => "conflict".into(),
        StoreResult::Missing => "missing".into(),
        StoreResult::Bytes(bytes, _) => format!("{}B", bytes.len()),
        StoreResult::Names(names) => format!("{} names", names.len()),
        StoreResult::Found(loaded) => format!("{} names found", loaded.rows.len()),
        StoreResult::Dir(loaded) => format!("{} rows", loaded.rows.len()),
    }
}

/// A message; bytes of journals are counted, not shown.
#[must_use]
pub(crate) fn message(message: &Message<'_>) -> String {
    match message {
        Message::Chunk { tid, bytes } => format!("Chunk {{ tid: {tid}, {}B }}", bytes.len()),
        other => format!("{other:?}"),
    }
}

/// How an operation on the store ended.
pub(crate) fn ended(ended: &crate::disk::Ended) -> String {
    match ended {
        Ok(result) => store_result(result),
        Err(failure) => format!("failed: {}", failure.error),
    }
}
