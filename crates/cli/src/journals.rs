//! Journals for people: events with the paths that the journals themselves tell.
//!
//! Invariant: any bytes are shown as far as they are intact, and then their fault.

use std::fmt::Write as _;

use cudele::{AttrChange, ClientId, FileType, Ino, Path, Timestamp};
use journal::{Create, Event, EventKind, JournalError, Record, SegmentReader};
use serde_json::{Value, json};
use types::Map;

use ingest::source::shown;

/// Longest chain of directories that is followed: a path has at most so many components.
const DEPTH_MAX: usize = 2048;

/// The names of directories, as far as journals tell.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Map<Ino, (Ino, Vec<u8>)>,
    roots: Map<Ino, Vec<u8>>,
}

impl Names {
    /// Takes the path of a directory from another source.
    pub(crate) fn know_root(&mut self, ino: Ino, path: &Path) {
        self.roots.insert(ino, path.to_bytes());
    }

    fn learn(&mut self, event: &Event<'_>) {
        match *event {
            Event::Create(Create { parent, name, ino, .. })
            | Event::Link { parent, name, ino, .. } => {
                self.known.insert(ino, (parent, name.to_vec()));
            }
            Event::Rename {
                parent, name, new_parent, new_name, ref moved, ref exchanged, ..
            } => {
                self.known.insert(moved.attr.ino, (new_parent, new_name.to_vec()));
                if let Some(back) = exchanged {
                    self.known.insert(back.attr.ino, (parent, name.to_vec()));
                }
            }
            Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => {}
        }
    }

    /// The path of an inode; an unknown parent is shown by its number.
    pub(crate) fn path_of(&self, ino: Ino) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if let Some(root) = self.roots.get(&at) {
                break if root == b"/" { Vec::new() } else { root.clone() };
            }
            if at == Ino::ROOT {
                break Vec::new();
            }
            match self.known.get(&at) {
                Some((parent, name)) if names.len() < DEPTH_MAX => {
                    names.push(name);
                    at = *parent;
                }
                Some(_) | None => break format!("#{}", at.0).into_bytes(),
            }
        };
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    fn join(&self, parent: Ino, name: &[u8]) -> Vec<u8> {
        let mut path = self.path_of(parent);
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

/// An event with its path.
#[derive(Debug)]
pub(crate) struct Story<'a> {
    pub(crate) record: Record<'a>,
    /// The path of the event's object; empty if it has none.
    pub(crate) path: Vec<u8>,
    /// Where it moves to.
    pub(crate) to: Option<Vec<u8>>,
}

impl Names {
    /// Takes in an event and returns its story. Events must come in their order.
    pub(crate) fn story<'a>(&mut self, record: &Record<'a>) -> Story<'a> {
        // A removed name is shown before it is dropped, a new one after it is learned.
        self.learn(&record.event);
        let path = match (record.event.dentry(), record.event.inode()) {
            (Some((parent, name)), _) => self.join(parent, name),
            (None, Some(ino)) => self.path_of(ino),
            (None, None) => Vec::new(),
        };
        let to = record.event.destination().map(|(parent, name)| self.join(parent, name));
        Story { record: *record, path, to }
    }
}

/// Hands out every intact event of a journal. Returns at the end or at the first damage.
///
/// # Errors
/// The damage.
pub(crate) fn each_event(
    bytes: &[u8],
    names: &mut Names,
    show: &mut dyn FnMut(&Story<'_>),
) -> Result<(), JournalError> {
    let mut reader = SegmentReader::open(bytes)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            show(&names.story(&record));
        }
    }
    Ok(())
}

impl Story<'_> {
    /// The client of the causing request, if the journal has it; or the client in the event.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self.record.event {
            Event::Session { client, .. } | Event::Merged { client, .. } => Some(client),
            Event::Stored { .. } => None,
            Event::Create(_)
            | Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. } => {
                Some(self.record.origin.client).filter(|client| client.0 != 0)
            }
        }
    }

    /// Bytes of file content that it carries.
    pub(crate) fn inline_bytes(&self) -> u64 {
        match self.record.event {
            Event::Create(ref create) if create.file_type() == FileType::Regular => {
                create.data.len() as u64
            }
            Event::SetData { data, .. } => data.len() as u64,
            Event::Create(_)
            | Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => 0,
        }
    }

    /// The word for its kind.
    pub(crate) fn word(&self) -> &'static str {
        let event = &self.record.event;
        if event.is_nothing() { "nothing" } else { event.kind().name() }
    }

    /// One line: position, kind, path, and the important part of the rest.
    pub(crate) fn line(&self) -> String {
        let kind = self.word();
        let mut line = format!("{:>8} {kind:<9}", self.record.seq.0);
        if !self.path.is_empty() {
            let _ = write!(line, " {}", shown(&self.path));
        }
        if let Some(to) = &self.to {
            let _ = write!(line, " -> {}", shown(to));
        }
        line.push_str(&self.details());
        line
    }

    fn details(&self) -> String {
        match self.record.event {
            Event::Create(ref create) => {
                let file_type = create.file_type();
                let mut text = format!(
                    "  {}{:04o} {}:{}",
                    file_type.letter(),
                    create.mode & 0o7777,
                    create.uid,
                    create.gid
                );
                if file_type == FileType::Symlink {
                    let _ = write!(text, " -> {}", shown(create.data));
                } else if file_type == FileType::Regular {
                    let _ = write!(text, " {} bytes", create.size);
                }
                let _ = write!(text, " inode {}", create.ino.0);
                text
            }
            Event::Link { ino, .. } => format!("  inode {}", ino.0),
            Event::SetAttr { ref change, .. } => format!("  {}", change_text(change)),
            Event::SetXattr { name, value, .. } => match value {
                Some(value) => format!("  {} = {} bytes", shown(name), value.len()),
                None => format!("  {} removed", shown(name)),
            },
            Event::SetData { data, size, .. } => {
                format!("  {size} bytes, {} of them inline", data.len())
            }
            Event::SetPolicy { policy, .. } => {
                format!("  {}", String::from_utf8_lossy(policy).trim().replace('\n', ", "))
            }
            Event::Session { .. } if self.record.event.is_nothing() => {
                let ino = self.record.event.numbered();
                ino.map_or(String::new(), |ino| format!("  inode {} is used", ino.0))
            }
            Event::Session { client, tid } => format!(" {client} up to request {}", tid.0),
            Event::Merged { client, object, first, events, .. } => {
                format!("  {events} events of {client} after {first} from {}", shown(object))
            }
            Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::Stored { .. } => String::new(),
        }
    }

    /// The event as JSON. Bytes that are not UTF-8 are replaced.
    pub(crate) fn to_json(&self) -> Value {
        let Record { seq, origin, ref event } = self.record;
        let mut value = json!({ "seq": seq.0, "type": self.word() });
        let mut set = |key: &str, field: Value| value[key] = field;
        if !self.path.is_empty() {
            set("path", json!(String::from_utf8_lossy(&self.path)));
        }
        if let Some(to) = &self.to {
            set("to", json!(String::from_utf8_lossy(to)));
        }
        if let Some(ino) = event.inode() {
            set("ino", json!(ino.0));
        }
        if let Some((parent, _)) = event.dentry() {
            set("parent", json!(parent.0));
        }
        if origin.client.0 != 0 {
            set("client", json!(origin.client.0));
            set("tid", json!(origin.tid.0));
        }
        if let Event::Create(create) = event {
            set("file_type", json!(create.file_type().word()));
            set("mode", json!(format!("{:04o}", create.mode & 0o7777)));
            set("uid", json!(create.uid));
            set("gid", json!(create.gid));
            set("size", json!(create.size));
            set("mtime", json!(decimal(create.mtime)));
            set("inline_bytes", json!(create.data.len()));
        }
        let details = self.details();
        if event.kind() != EventKind::Create && !details.is_empty() {
            set("details", json!(details.trim()));
        }
        value
    }
}

fn decimal(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds(), time.nanoseconds())
}

fn change_text(change: &AttrChange) -> String {
    let AttrChange { mode, uid, gid, size, atime, mtime } = change;
    let mut parts = Vec::new();
    parts.extend(mode.map(|mode| format!("mode {:04o}", mode & 0o7777)));
    parts.extend(uid.map(|uid| format!("uid {uid}")));
    parts.extend(gid.map(|gid| format!("gid {gid}")));
    parts.extend(size.map(|size| format!("size {size}")));
    parts.extend(atime.map(|time| format!("atime {}", decimal(time))));
    parts.extend(mtime.map(|time| format!("mtime {}", decimal(time))));
    parts.join(", ")
}

#[cfg(test)]
mod tests;
