//! Virtual extended attributes: facts and operations of Cudele on a file or directory, for
//! `getfattr` and `setfattr`. Names begin with `cudele.`; like Ceph's they are not listed.
//!
//! Of directories:
//! * `cudele.dir.policy`: the policy in force, and which directory it comes from; can be set (name
//!   or text) and removed
//! * `cudele.dir.state`: whether a client has the subtree; `decouple`, `complete`, `sync`, `merge`,
//!   `keep`, `discard` can be asked for
//! * `cudele.dir.entries`, `.files`, `.subdirs`: counts of this directory
//! * `cudele.dir.rentries`, `.rfiles`, `.rsubdirs`, `.rbytes`, `.rctime`: figures of everything
//!   below it, counted when asked
//! * `cudele.dir.quota`: the quotas that hold there and their use, a line each, the innermost
//!   first; root can set and remove the directory's own, such as `inodes=1000 bytes=1048576`
//! * `cudele.dir.layout`: where the content of new files goes; can be set
//!
//! Of all other files:
//! * `cudele.file.layout`: where the content of the file is
//!
//! Of both:
//! * `cudele.file.durable`: `none`, `local` or `global`: the failures that it survives now
//! * `cudele.file.visible`: `yes` if other clients see its present state, else `no`

use std::fmt::Write as _;

use cudele::{Attr, Durability, Errno, Error, Fs, Ino, Policy, Result, StateStorage, XattrFlags};
use posix::Caller;
use types::quota;

use crate::Ending;
use crate::attrs::AttrsCx;
use crate::caller::OnBehalf;
use crate::content::ContentCx;
use crate::owned::SubtreesCx;
use crate::tree::{Tree, Trees};

const PREFIX: &[u8] = b"cudele.";
/// Entries read at a time when counting.
const PAGE: u32 = 4096;

/// Whether a name is one of these, whether or not there is such a one.
pub(crate) fn is_virtual(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

fn none() -> Error {
    Error::of(Errno::NoData, "extended attribute")
}

/// Sums over everything below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    files: u64,
    subdirs: u64,
    bytes: u64,
    ctime: i64,
}

impl Sums {
    fn add(&mut self, attr: &Attr) {
        self.ctime = self.ctime.max(attr.ctime.0);
        if attr.is_dir() {
            self.subdirs += 1;
        } else {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(attr.size);
        }
    }
}

/// Virtual extended attributes, with all that they may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualXattrsCx<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) trees: &'a Trees,
    pub(crate) content: ContentCx<'a>,
    pub(crate) attrs: AttrsCx<'a>,
    pub(crate) subtrees: SubtreesCx<'a>,
}

impl VirtualXattrsCx<'_> {
    /// The value of a virtual attribute.
    pub(crate) fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let attr = self.attrs.attr(ino)?.attr;
        let name = std::str::from_utf8(name).map_err(|_| none())?;
        let value = match (name, attr.is_dir()) {
            ("cudele.dir.policy", true) => self.policy_text(ino)?,
            ("cudele.dir.state", true) => self.state_text(ino)?,
            ("cudele.dir.entries", true) => attr.size.to_string(),
            ("cudele.dir.subdirs", true) => subdirs(&attr).to_string(),
            ("cudele.dir.files", true) => (attr.size - subdirs(&attr).min(attr.size)).to_string(),
            ("cudele.dir.quota", true) => return self.attrs.quotas(ino),
            ("cudele.dir.layout", true) => self.layout_text(ino)?,
            ("cudele.file.layout", false) => self.file_layout_text(ino, &attr)?,
            ("cudele.file.durable", _) => self.durable_now(ino)?.name().to_owned(),
            ("cudele.file.visible", _) => {
                if self.is_visible(ino)? {
                    "yes".to_owned()
                } else {
                    "no".to_owned()
                }
            }
            (_, true) => {
                let Some(which) = name.strip_prefix("cudele.dir.r") else { return Err(none()) };
                if !matches!(which, "entries" | "files" | "subdirs" | "bytes" | "ctime") {
                    return Err(none());
                }
                recursive(which, &self.sums_below(caller, &attr)?)
            }
            (_, false) => return Err(none()),
        };
        Ok(value.into_bytes())
    }

    /// Sets or, without a value, removes a virtual attribute.
    pub(crate) fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.trees.check_writable()?;
        let attr = self.attrs.attr(ino)?.attr;
        if caller.uid != 0 && caller.uid != attr.uid {
            return Err(Error::new(
                Errno::NotPermitted,
                String::from_utf8_lossy(name),
                "only the owner of the directory, or root, may",
            ));
        }
        let text =
            value.map(|value| std::str::from_utf8(value).map(|text| text.trim_end_matches('\0')));
        let text = text.transpose().map_err(|_| Error::of(Errno::Invalid, "value"))?;
        match (name, text, attr.is_dir()) {
            (b"cudele.dir.policy", text, true) => self.set_policy_text(ino, text),
            (b"cudele.dir.state", Some(wish), true) => self.wish(ino, wish.trim()),
            (b"cudele.dir.quota", text, true) => {
                let limits = text.map(|text| text.trim().as_bytes());
                let flags = XattrFlags::default();
                self.attrs.set_xattr(caller, ino, quota::LIMITS, limits, flags)
            }
            (b"cudele.dir.layout", Some(text), true) => self.set_layout(ino, text),
            (_, None, _) => Err(none()),
            (_, Some(_), _) => Err(Error::new(
                Errno::NotSupported,
                String::from_utf8_lossy(name),
                "this attribute cannot be set",
            )),
        }
    }

    fn policy_text(&self, ino: Ino) -> Result<String> {
        let (policy, effective) = self.trees.walked(ino, || self.fs.policy_at(ino))?;
        let mut text = policy.to_yaml();
        let source = match effective.source {
            Ino(0) => "the default".to_owned(),
            source if source == ino => "set here".to_owned(),
            _ => format!("inherited from {}", String::from_utf8_lossy(&effective.source_path)),
        };
        let _ = write!(text, "# {source}");
        Ok(text)
    }

    fn set_policy_text(&self, ino: Ino, text: Option<&str>) -> Result<()> {
        let policy = text.map(Policy::from_name_or_text).transpose()?;
        self.set_policy(ino, policy.map(|parsed| parsed.policy).as_ref())
    }

    /// Changes the policy of a directory or, without one, removes its own.
    pub(crate) fn set_policy(&self, ino: Ino, policy: Option<&Policy>) -> Result<()> {
        let path = self.trees.known_path(ino)?;
        if let (Tree::Owned(owned), Some(policy)) = (self.trees.tree(ino), policy)
            && owned.root() == ino
        {
            return self.subtrees.change_policy(ino, policy);
        }
        let yaml = policy.map(Policy::to_yaml);
        self.fs.cluster().set_policy(&path.to_bytes(), yaml.as_deref())?;
        self.fs.ask_policies_anew();
        Ok(())
    }

    fn state_text(&self, ino: Ino) -> Result<String> {
        if let Tree::Owned(owned) = self.trees.tree(ino) {
            let pending =
                owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.pending_events()))?;
            return Ok(format!("decoupled here, {pending} events pending"));
        }
        let (_, effective) = self.trees.walked(ino, || self.fs.policy_at(ino))?;
        if effective.owner.0 != 0 {
            return Ok(format!("decoupled by {}", effective.owner));
        }
        Ok(format!("shared, {}", effective.storage.text()))
    }

    fn wish(&self, ino: Ino, wish: &str) -> Result<()> {
        let ending = match wish {
            "complete" => Ending::Complete,
            "keep" => Ending::Keep,
            "merge" => Ending::Merge,
            "discard" => Ending::Discard,
            "sync" => return self.subtrees.sync(ino).map(drop),
            "decouple" => {
                let (policy, _) = self.trees.walked(ino, || self.fs.policy_at(ino))?;
                return self.subtrees.decouple(&self.trees.known_path(ino)?, &policy).map(|_| ());
            }
            _ => match wish.strip_prefix("decouple ") {
                Some(policy) => {
                    let policy = Policy::from_name_or_text(policy.trim())?.policy;
                    return self
                        .subtrees
                        .decouple(&self.trees.known_path(ino)?, &policy)
                        .map(|_| ());
                }
                None => {
                    return Err(Error::new(
                        Errno::Invalid,
                        wish,
                        "not something that can be asked for",
                    )
                    .remedy("decouple, complete, sync, merge, keep or discard"));
                }
            },
        };
        self.subtrees.end(ino, ending).map(|_| ())
    }

    /// The failures that a file or directory survives now.
    fn durable_now(&self, ino: Ino) -> Result<Durability> {
        if self.content.is_unwritten(ino) {
            return Ok(Durability::None);
        }
        match self.trees.tree(ino) {
            Tree::Owned(owned) => {
                owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.durable_now()))
            }
            Tree::Server => {
                let dir = if self.trees.stored_attr(ino)?.is_dir() {
                    ino
                } else {
                    self.trees.nodes().parent(ino)
                };
                let (policy, effective) = self.trees.walked(dir, || self.fs.policy_at(dir))?;
                let promised = policy.cell().map_or(Durability::None, |cell| cell.durability);
                Ok(match effective.storage {
                    StateStorage::Stored | StateStorage::Journalled => Durability::Global,
                    // Every change is on the disk of the client that made it.
                    StateStorage::Applied | StateStorage::Memory => promised.min(Durability::Local),
                })
            }
        }
    }

    fn is_visible(&self, ino: Ino) -> Result<bool> {
        if self.content.is_unwritten(ino) {
            return Ok(false);
        }
        match self.trees.tree(ino) {
            Tree::Server => Ok(true),
            Tree::Owned(owned) => {
                owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.is_visible_now()))
            }
        }
    }

    /// Counts everything below a directory: as many requests as it has directories.
    fn sums_below(&self, caller: &Caller, dir: &Attr) -> Result<Sums> {
        let mut sums = Sums { ctime: dir.ctime.0, ..Sums::default() };
        let mut left = vec![dir.ino];
        while let Some(dir) = left.pop() {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let (page, more) = self.trees.run(
                    dir,
                    caller,
                    |user| user.list(dir, after.as_deref(), PAGE, true),
                    |subtree| {
                        let page = subtree.list_from(dir, after.as_deref(), PAGE as usize, true)?;
                        let more = page.len() == PAGE as usize;
                        Ok((page, more))
                    },
                )?;
                for entry in &page {
                    sums.add(&entry.attr);
                    if entry.attr.is_dir() {
                        left.push(entry.attr.ino);
                    }
                }
                let Some(last) = page.last().filter(|_| more) else { break };
                after = Some(last.name.clone());
            }
        }
        Ok(sums)
    }
}

fn subdirs(attr: &Attr) -> u64 {
    u64::from(attr.nlink.saturating_sub(2))
}

fn recursive(which: &str, sums: &Sums) -> String {
    match which {
        "entries" => (sums.files + sums.subdirs).to_string(),
        "files" => sums.files.to_string(),
        "subdirs" => sums.subdirs.to_string(),
        "bytes" => sums.bytes.to_string(),
        _ => format!(
            "{}.{:09}",
            sums.ctime.div_euclid(1_000_000_000),
            sums.ctime.rem_euclid(1_000_000_000)
        ),
    }
}
