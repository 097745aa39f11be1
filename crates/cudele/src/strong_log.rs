//! Strong consistency with local durability (`rpcs+local_persist`): every request of this client
//! is also logged on its own disk before it returns. When the metadata server comes back from a
//! crash without its memory, the client applies its log again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use journal::{Create, Event, JournalBuffer, SegmentHeader, Snapshot, Writer};
use policy::Mechanism;
use types::{Attr, AttrChange, Errno, Error, FileType, Ino, Origin, Result, Seq};
use wire::MergeFlags;

use crate::observe::Observed;
use crate::state::{io_error, sync_parent};
use crate::{Fs, Stage, StateDir};

/// The logs of a client, by the directory whose policy asks for them.
#[derive(Debug, Default)]
pub(crate) struct StrongLogs {
    logs: Mutex<BTreeMap<Ino, Arc<StrongLog>>>,
}

/// A log on the local disk.
#[derive(Debug)]
pub(crate) struct StrongLog {
    path: PathBuf,
    subtree: Ino,
    open: Mutex<Open>,
    observed: Observed,
}

#[derive(Debug)]
struct Open {
    file: File,
    next: Seq,
    /// A write failed: what follows would leave a hole.
    failed: bool,
}

impl StrongLogs {
    /// The log for operations in a directory, if its policy asks for one.
    pub(crate) fn for_dir(&self, fs: &Fs, dir: Ino) -> Result<Option<Arc<StrongLog>>> {
        let (policy, effective) = fs.policy_of(dir)?;
        if !policy.contains(Mechanism::Rpcs) || !policy.contains(Mechanism::LocalPersist) {
            return Ok(None);
        }
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(&effective.source) {
            return Ok(Some(log.clone()));
        }
        let log = Arc::new(StrongLog::create(fs, effective.source)?);
        logs.insert(effective.source, log.clone());
        Ok(Some(log))
    }

    /// Applies every log to a server that lost its memory. Harmless if it did not.
    pub(crate) fn reapply(&self, fs: &Fs) -> Result<()> {
        let logs: Vec<_> = {
            let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
            logs.values().cloned().collect()
        };
        for log in logs {
            let bytes = std::fs::read(&log.path).map_err(|error| io_error(&log.path, &error))?;
            let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
            fs.merge_journal(log.subtree, &bytes, flags)?;
        }
        Ok(())
    }
}

impl StrongLog {
    fn create(fs: &Fs, subtree: Ino) -> Result<Self> {
        let state = StateDir::of(fs.cluster_id(), subtree)?;
        let path = state.path().join(format!("strong.{:x}", fs.client().0));
        let writer = Writer::Client { client: fs.client(), subtree };
        let header = SegmentHeader { writer, epoch: fs.server_epoch(), first_seq: Seq(1) };
        let create = || -> std::io::Result<File> {
            std::fs::create_dir_all(state.path())?;
            let mut file = File::create(&path)?;
            file.write_all(&header.encode())?;
            file.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(|error| io_error(&path, &error))?;
        sync_parent(&path)?;
        let open = Mutex::new(Open { file, next: Seq(1), failed: false });
        Ok(Self { path, subtree, open, observed: fs.observed().clone() })
    }

    /// Logs an event durably.
    fn append(&self, event: &Event<'_>) -> Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.failed {
            return Err(Error::new(
                Errno::Io,
                self.path.display().to_string(),
                "an earlier write failed",
            )
            .remedy(
                "the operation is applied but not logged; free space and open the directory again",
            ));
        }
        let mut buffer = JournalBuffer::new(open.next, false);
        buffer.append(Origin::default(), event);
        buffer.close_block();
        let block = buffer.blocks().concat();
        let note = |stage| self.observed.note(Mechanism::LocalPersist, stage);
        note(Stage::Begun);
        let written = open.file.write_all(&block).and_then(|()| {
            note(Stage::Written);
            open.file.sync_data()
        });
        if let Err(error) = written {
            open.failed = true;
            return Err(io_error(&self.path, &error));
        }
        open.next.0 += 1;
        note(Stage::Ended);
        Ok(())
    }

    pub(crate) fn created(&self, parent: Ino, name: &[u8], attr: &Attr, data: &[u8]) -> Result<()> {
        let Attr { ino, mode, uid, gid, rdev, size, mtime, atime, ctime, .. } = *attr;
        let size = if attr.file_type() == FileType::Directory { 0 } else { size };
        self.append(&Event::Create(Create {
            parent,
            name,
            ino,
            mode,
            uid,
            gid,
            rdev,
            size,
            time: ctime,
            mtime,
            atime,
            data,
        }))
    }

    pub(crate) fn linked(&self, parent: Ino, name: &[u8], attr: &Attr) -> Result<()> {
        let inode = Snapshot { attr: *attr, data: &[], extra: &[] };
        let home = Ino::LINKS;
        self.append(&Event::Link { parent, name, ino: attr.ino, home, inode, time: attr.ctime })
    }

    pub(crate) fn removed(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        // The server knows which inode it was; here it was never asked for.
        let (ino, time) = (Ino(0), crate::now());
        self.append(&if directory {
            Event::Rmdir { parent, name, ino, time }
        } else {
            Event::Unlink { parent, name, ino, time }
        })
    }

    pub(crate) fn renamed(
        &self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        moved: &Attr,
        back: Option<&Attr>,
    ) -> Result<()> {
        let moved = Snapshot { attr: *moved, data: &[], extra: &[] };
        let exchanged = back.map(|attr| Snapshot { attr: *attr, data: &[], extra: &[] });
        let time = crate::now();
        self.append(&Event::Rename {
            parent,
            name,
            new_parent,
            new_name,
            moved,
            exchanged,
            replaced: Ino(0),
            time,
        })
    }

    pub(crate) fn set_attr(&self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        self.append(&Event::SetAttr { ino, home, change: *change, time: crate::now() })
    }

    pub(crate) fn set_data(&self, home: Ino, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        self.append(&Event::SetData { ino, home, data, size, time: crate::now() })
    }
}
