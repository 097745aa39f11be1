//! A destination under a strong policy: one request per entry, visible to all clients at once.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{
    Attr, AttrChange, Cluster, Dir, Errno, Error, FileType, Fs, Ino, NewFile, Path, Policy, Result,
    StripedFile, XattrChange, XattrFlags,
};
use types::{Map, Seq};

use super::{IntakeReport, IntakeTally, Phase, Target};
use crate::source::shown;

/// How long to wait for the server's counters, which come with its beacons.
const PATIENCE: Duration = Duration::from_secs(3);
/// For fewer entries the intake does not wait for the server's count of written bytes.
const WORTH_WAITING: u64 = 1000;

pub(super) struct Strong {
    fs: Arc<Fs>,
    path: Path,
    /// Whether the destination was made for this.
    made: bool,
    root: Ino,
    policy: Policy,
    dirs: Map<Ino, Dir>,
    journal_bytes: u64,
    requests: u64,
}

impl Strong {
    pub(super) fn open(fs: &Arc<Fs>, destination: &str) -> Result<Self> {
        let path = cudele::parse_path(destination)?;
        let made = is_missing(fs, &path)?;
        let root = fs.make_dir(destination, 0o755)?.ino;
        let dir = fs.open_dir(destination)?;
        let (policy, _) = fs.policy(destination)?;
        Ok(Self {
            path,
            made,
            root,
            policy,
            dirs: Map::from_iter([(root, dir)]),
            journal_bytes: counter(fs.cluster(), "journal_bytes")?,
            requests: fs.requests(),
            fs: fs.clone(),
        })
    }

    fn dir(&self, ino: Ino) -> Result<&Dir> {
        self.dirs.get(&ino).ok_or_else(|| Error::of(Errno::Stale, shown(&self.path.to_bytes())))
    }

    /// The destination gets the attributes of the source's root if it was made for it.
    pub(super) fn set_root(&mut self, change: &AttrChange) -> Result<()> {
        if !self.made || self.path.is_root() {
            return Ok(());
        }
        let (parent, _) = self.fs.open_parent(self.path.to_bytes())?;
        parent.set_attr_of(self.root, change)
    }

    pub(super) fn finish(self, tally: IntakeTally, start: Instant) -> Result<IntakeReport> {
        let before_data = Instant::now();
        self.fs.sync_data()?;
        let data = before_data.elapsed();
        let before_sync = Instant::now();
        let seq = self.fs.sync()?;
        let sync = before_sync.elapsed();
        let requests = self.fs.requests() - self.requests;
        let mut report = IntakeReport::new(tally, start);
        let composition = self.policy.effective().to_string();
        report.phases.push(Phase {
            name: composition,
            seconds: (report.tally.metadata() + sync).as_secs_f64(),
            bytes: 0,
        });
        report.data_seconds += data.as_secs_f64();
        report.requests = requests;
        report.seconds = start.elapsed().as_secs_f64();
        if self.policy.streams() && report.tally.entries() >= WORTH_WAITING {
            report.journal_bytes = self.journalled(seq)?;
        }
        report.policy = Some(self.policy);
        report.visible = true;
        Ok(report)
    }

    /// The bytes of the server's journal up to this position, once the server has reported them.
    fn journalled(&self, seq: Seq) -> Result<u64> {
        let start = Instant::now();
        let cluster = self.fs.cluster();
        while counter(cluster, "journal_safe")? < seq.0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(counter(cluster, "journal_bytes")?.saturating_sub(self.journal_bytes))
    }
}

/// A counter of the metadata server, as of its last beacon.
fn counter(cluster: &Cluster, name: &str) -> Result<u64> {
    let map = cluster.status()?;
    let counters = map.mds.iter().flat_map(|entry| &entry.counters);
    Ok(counters.filter(|(known, _)| known == name).map(|(_, value)| value).sum())
}

/// Whether there is nothing at a path.
pub(super) fn is_missing(fs: &Fs, path: &Path) -> Result<bool> {
    match fs.walk(path) {
        Ok((_, attr)) => Ok(attr.is_none()),
        Err(error) if error.errno == Errno::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

impl Target for Strong {
    fn root(&self) -> Ino {
        self.root
    }

    fn create(&mut self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<StripedFile> {
        let parent = self.dir(dir)?;
        let attr = match parent.create(name, new) {
            Ok(attr) => attr,
            Err(error) if error.errno == Errno::Exists => {
                let found = parent.lookup(name)?;
                if new.file_type != FileType::Directory || !found.is_dir() {
                    return Err(error.remedy("bring it in elsewhere, or remove what is there"));
                }
                found
            }
            Err(error) => return Err(error),
        };
        if new.file_type == FileType::Directory {
            let below = parent.enter(name, attr.ino)?;
            self.dirs.insert(attr.ino, below);
        }
        Ok(attr.striped())
    }

    fn existing(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.dir(dir)?.lookup(name) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.read_link(ino)
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        self.dir(dir)?.link(ino, name)
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        self.dir(dir)?.unlink(name)
    }

    fn set_attr(&mut self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        self.dir(home)?.set_attr_of(ino, change)
    }

    fn set_xattr(&mut self, home: Ino, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        let change = XattrChange { name, value: Some(value), flags: XattrFlags::default() };
        self.fs.as_user(self.fs.cred()).set_xattr(home, ino, &change)
    }

    fn inline_bytes(&mut self, dir: Ino) -> Result<u32> {
        Ok(self.dir(dir)?.inline_bytes())
    }

    fn write(&mut self, made: StripedFile, head: &[u8], rest: &mut dyn Read) -> Result<u64> {
        self.fs.want_sums(made.ino, self.policy.checksums == cudele::Checksums::On);
        self.fs.write_large(made, head, rest)
    }

    fn size_comes_last(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
