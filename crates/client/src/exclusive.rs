//! Directories with an exclusive capability: the client answers requests about them, and changes
//! them, before the server receives the changes (asynchronous operations).
//!
//! A view holds the content of such a directory: the server's own namespace code, applied to the
//! content that the server sent with the capability, and to the client's changes since. A change
//! takes its inode number from a range that the server granted, and its time from the client's
//! clock; the request carries both, so that the server does the same ([`wire::Request::ahead`]).
//! Changes are collected ([`group`]) and sent in their order: before any other request, or at the
//! caller's command.
//!
//! The client asks the server about everything that the view does not know: an answer from here
//! equals the server's answer, or there is none. When another client wants to look, the directory
//! is given back behind all changes in it. So the difference shows only when a client dies: unsent
//! changes are lost, unless the client waited for them (`SessionOp::Sync`).
//!
//! Invariants: a directory is in `dirs` while the server counts it as exclusive to this client;
//! every name in it is in the view, with all attributes of its files unless they are `bare`.

mod group;
mod linking;
mod load;
mod numbers;
mod validate;

use journal::{Create, Event};
use namespace::{FreedInode, ListedEntry, Mode, Namespace, Planned, PlannedInode, Refusal};
use types::{
    Attr, AttrChange, Cred, EntryName, Errno, FileType, Ino, Map, Seq, Set, Stripe, Tid, Timestamp,
    XattrChange, check_name,
};
use types::{acl, quota};
use wire::{Answer, ChangeOp, Op, Opened, ReadOp, Replay, SessionOp, WantsExclusive};

use group::Group;
pub(crate) use group::Groups;
use linking::Linking;
use load::Loading;
pub(crate) use load::Next;
use numbers::Numbers;

/// Inodes in the view; when there are more, all directories are given back.
const INODES_MAX: u64 = 4_000_000;
/// The same of directories: a part of the capabilities that a server grants to one client.
const DIRS_MAX: usize = 16_384;
/// As many entries as a server lists at once.
const LIST_MAX: usize = 4_096;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct ExclusiveDirs {
    pub(crate) wants: WantsExclusive,
    view: Namespace,
    /// Position of the last change in the view.
    seq: Seq,
    dirs: Map<Ino, Stripe>,
    /// Directories that are being read, and the requests that do it.
    loading: Map<Ino, Loading>,
    listing: Map<Tid, Ino>,
    /// Directories that are not worth having.
    unwanted: Set<Ino>,
    /// Files that were there before: their content and extended attributes are not known.
    bare: Set<Ino>,
    pub(crate) numbers: Numbers,
    /// The newest link, as long as it may become a rename.
    linking: Option<Linking>,
    pub(crate) groups: Groups,
}

/// The answer from the view.
#[derive(Debug)]
pub(crate) enum Here {
    /// A question, or a change that has nothing to do.
    Said(Answer),
    /// A change that is carried out. The server must be told, with this.
    Done(Answer, Replay),
}

/// Why nothing is, or that it is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Not {
    /// The answer is this error.
    Refused(Errno),
    /// The server must be asked.
    Known,
    /// More inode numbers are needed first.
    Numbered,
}

impl From<Refusal> for Not {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Errno(errno) => Self::Refused(errno),
            Refusal::Cold(_) => Self::Known,
        }
    }
}

type LocalResult = Result<Here, Not>;

impl ExclusiveDirs {
    pub(crate) fn new(wants: WantsExclusive) -> Self {
        Self {
            wants,
            view: Namespace::new(),
            seq: Seq(0),
            dirs: Map::default(),
            loading: Map::default(),
            listing: Map::default(),
            unwanted: Set::default(),
            bare: Set::default(),
            numbers: Numbers::default(),
            linking: None,
            groups: Groups::default(),
        }
    }

    /// Whether any directory is this client's alone, or about to be.
    pub(crate) fn is_any(&self) -> bool {
        !self.dirs.is_empty() || self.is_loading()
    }

    /// Whether a directory is being read.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.dirs.len()
    }

    /// The inodes in a directory, and whether they are directories.
    pub(crate) fn entries(&self, dir: Ino) -> Option<Vec<(Ino, bool)>> {
        self.dirs.get(&dir)?;
        let entries = self.view.list(&Cred::root(), dir, None, usize::MAX, false).ok()?;
        Some(entries.into_iter().map(|entry| (entry.attr.ino, entry.attr.is_dir())).collect())
    }

    /// Whether a directory is this client's alone, or about to be.
    pub(crate) fn has(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir) || self.loading.contains_key(&dir)
    }

    /// Whether the view says all of an inode that the server would.
    fn governs(&self, ino: Ino) -> bool {
        if self.dirs.contains_key(&ino) {
            return true;
        }
        let home = self.view.home_of(ino);
        home.is_some_and(|home| self.dirs.contains_key(&home))
            && self.view.getattr(ino).is_ok_and(|attr| !attr.is_dir() && attr.nlink < 2)
    }

    /// The object of a name in a directory: none, an inode of an exclusive directory, or an object
    /// that only the server knows.
    fn named(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, Not> {
        if !self.dirs.contains_key(&parent) || check_name(name).is_err() {
            return Err(Not::Known);
        }
        match self.view.peek(parent, name)? {
            Some(ino) if !self.governs(ino) => Err(Not::Known),
            named => Ok(named),
        }
    }

    /// Looks a name up; `None` if the server must be asked.
    pub(crate) fn look(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Option<Result<Option<Ino>, Errno>> {
        if !self.dirs.contains_key(&parent) || check_name(name).is_err() {
            return None;
        }
        if self.view.access(cred, parent, 1).is_err() {
            return Some(Err(Errno::Access));
        }
        if let Some(linked) = self.linked(parent, name) {
            return Some(Ok(Some(linked)));
        }
        self.view.peek(parent, name).ok().map(Ok)
    }

    /// The attributes of an inode; `None` if the server must be asked.
    pub(crate) fn attr(&self, ino: Ino) -> Option<Attr> {
        if !self.governs(ino) {
            return None;
        }
        self.view.getattr(ino).ok().map(|attr| self.while_linking(attr))
    }

    /// The same, and the exclusive directory that covers them.
    pub(crate) fn attr_and_home(&self, ino: Ino) -> Option<(Attr, Ino)> {
        let attr = self.attr(ino)?;
        let home = if self.dirs.contains_key(&ino) { ino } else { self.view.home_of(ino)? };
        Some((attr, home))
    }

    /// Answers a request, and carries it out if it is a change.
    ///
    /// # Errors
    /// That of the request, or why it is not answered.
    pub(crate) fn perform(
        &mut self,
        cred: &Cred,
        op: &Op<'_>,
        now: Timestamp,
    ) -> Result<Here, Not> {
        if self.dirs.is_empty() {
            return Err(Not::Known);
        }
        if self.linking.is_some()
            && let Some(answer) = self.answer_while_linking(cred, op)
        {
            return answer;
        }
        if op.is_mutation() { self.change(cred, op, now) } else { self.question(cred, op) }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the server answers a new operation")]
    fn question(&self, cred: &Cred, op: &Op<'_>) -> LocalResult {
        let answer = match *op {
            Op::Read(ReadOp::Lookup { parent, name }) => {
                self.named(parent, name)?;
                Answer::Attr(self.while_linking(self.view.lookup(cred, parent, name)?))
            }
            Op::Read(ReadOp::GetAttr { ino }) => Answer::Attr(self.attr(ino).ok_or(Not::Known)?),
            Op::Read(ReadOp::List { dir, after, limit, attrs }) => {
                if !self.dirs.contains_key(&dir) {
                    return Err(Not::Known);
                }
                let limit = (limit as usize).clamp(1, LIST_MAX);
                let entries = self.view.list(cred, dir, after, limit, attrs)?;
                if attrs && !entries.iter().all(|entry| self.governs(entry.attr.ino)) {
                    return Err(Not::Known);
                }
                let more = entries.len() == limit;
                let named = |entry: ListedEntry| (entry.name, self.while_linking(entry.attr));
                let entries = entries.into_iter().map(named).collect();
                Answer::Entries { entries, more }
            }
            Op::Read(ReadOp::GetData { ino }) => {
                self.whole(ino)?;
                self.view.access(cred, ino, 4)?;
                Answer::Data(self.view.data(ino)?.to_vec())
            }
            // The server counts quotas, and enforces them.
            Op::Read(ReadOp::GetXattr { name: quota::REPORT, .. }) => return Err(Not::Known),
            Op::Read(ReadOp::GetXattr { ino, name }) => {
                self.knows_attribute(ino, name)?;
                Answer::Data(self.view.xattr(ino, name)?.into_owned())
            }
            Op::Read(ReadOp::ListXattr { ino }) => {
                self.whole(ino)?;
                let names = self.view.xattr_names(ino)?;
                Answer::Names(names.into_iter().map(<[u8]>::to_vec).collect())
            }
            Op::Session(SessionOp::Open { ino, .. }) => return self.open(cred, ino),
            _ => return Err(Not::Known),
        };
        Ok(Here::Said(answer))
    }

    /// Everything about an inode is in the view, also its content and extended attributes.
    fn whole(&self, ino: Ino) -> Result<(), Not> {
        if self.governs(ino) && !self.bare.contains(&ino) { Ok(()) } else { Err(Not::Known) }
    }

    /// Whether an extended attribute is in the view, or known not to exist. The server gives no
    /// attributes of an inode that has access control lists, so those in the view are all.
    fn knows_attribute(&self, ino: Ino, name: &[u8]) -> Result<(), Not> {
        if acl::is_list(name) { self.governed(ino) } else { self.whole(ino) }
    }

    fn open(&self, cred: &Cred, ino: Ino) -> LocalResult {
        self.whole(ino)?;
        let attr = self.view.getattr(ino)?;
        // Only the server knows the rule that lets other users in.
        if attr.file_type() != FileType::Regular || cred.uid != attr.uid {
            return Err(Not::Known);
        }
        let data = self.view.data(ino)?.to_vec();
        let answer = Answer::Opened(Opened { attr, data, shared: false });
        Ok(Here::Done(answer, Replay::default()))
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the server carries out a new operation")]
    fn change(&mut self, cred: &Cred, op: &Op<'_>, now: Timestamp) -> LocalResult {
        match *op {
            Op::Change(ChangeOp::Create { parent, name, ref new }) => {
                self.create(cred, EntryName::new(parent, name), new, now)
            }
            Op::Change(ChangeOp::Link { ino, parent, name }) => {
                self.link(cred, ino, EntryName::new(parent, name), now)
            }
            Op::Change(ChangeOp::Unlink { parent, name }) => {
                self.named(parent, name)?;
                let planned = self.view.plan().unlink(cred, parent, name, now)?;
                Ok(self.execute(&planned, now))
            }
            Op::Change(ChangeOp::Rmdir { parent, name }) => {
                let gone = self.named(parent, name)?;
                let planned = self.view.plan().rmdir(cred, parent, name, now)?;
                let answer = self.execute(&planned, now);
                if let Some(gone) = gone {
                    self.dirs.remove(&gone);
                }
                Ok(answer)
            }
            Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) => {
                let moved = self.named(parent, name)?;
                let over = self.named(new_parent, new_name)?;
                let is_dir = |ino: Option<Ino>| ino.is_some_and(|ino| self.view.is_dir(ino));
                if parent != new_parent && (is_dir(moved) || is_dir(over)) {
                    // Whether a directory would come to stand below itself is not known here.
                    return Err(Not::Known);
                }
                let from = EntryName::new(parent, name);
                let to = EntryName::new(new_parent, new_name);
                let planned = self.view.plan().rename(cred, from, to, flags, now)?;
                let Some(planned) = planned else { return Ok(Here::Said(Answer::Done)) };
                let answer = self.execute(&planned, now);
                if let Some(over) = over.filter(|over| !flags.exchange && Some(*over) != moved) {
                    self.dirs.remove(&over);
                }
                Ok(answer)
            }
            Op::Change(ChangeOp::SetAttr { ino, ref change }) => {
                self.governed(ino)?;
                let planned = self.view.plan().setattr(cred, ino, change, now)?;
                Ok(self.execute(&planned, now))
            }
            Op::Change(ChangeOp::Accessed { ino, at }) => {
                self.governed(ino)?;
                let Attr { atime, ctime, .. } = self.view.getattr(ino)?;
                if at <= atime {
                    return Ok(Here::Said(Answer::Done));
                }
                let change = AttrChange { atime: Some(at), ..AttrChange::default() };
                let planned = self.view.plan().setattr(cred, ino, &change, ctime)?;
                Ok(self.execute(&planned, now))
            }
            Op::Change(ChangeOp::SetXattr { name: quota::LIMITS, .. }) => Err(Not::Known),
            Op::Change(ChangeOp::SetXattr { ino, name, value, flags }) => {
                self.knows_attribute(ino, name)?;
                let change = XattrChange { name, value, flags };
                let planned = self.view.plan().setxattr(cred, ino, change, now)?;
                Ok(self.execute(&planned, now))
            }
            Op::Change(ChangeOp::SetData { ino, data, size }) => {
                self.whole(ino)?;
                let planned = self.view.plan().setdata(cred, ino, data, size, now)?;
                Ok(self.execute(&planned, now))
            }
            _ => Err(Not::Known),
        }
    }

    fn governed(&self, ino: Ino) -> Result<(), Not> {
        if self.governs(ino) { Ok(()) } else { Err(Not::Known) }
    }

    /// Makes a change in the view; returns the message for the server.
    fn execute(&mut self, planned: &Planned<'_>, time: Timestamp) -> Here {
        self.apply(&planned.event());
        Here::Done(Answer::Done, Replay { time, ..Replay::default() })
    }

    fn apply(&mut self, event: &Event<'_>) {
        self.seq.0 += 1;
        self.view.apply(self.seq, Mode::Live, event);
        // The server removes the content of files that are gone.
        for FreedInode { ino, .. } in self.view.take_freed() {
            self.bare.remove(&ino);
        }
        // A symbolic link or a device has no content, and is not among them.
        if let Event::Unlink { ino, .. } | Event::Rename { replaced: ino, .. } = *event
            && !self.view.knows(ino)
        {
            self.bare.remove(&ino);
        }
    }

    /// A change was answered, and the server is to receive it.
    pub(crate) fn tell(&mut self, tid: Tid, acked: Tid, cred: &Cred, replay: Replay, op: &Op<'_>) {
        match self.linking {
            Some(_) if matches!(op, Op::Change(ChangeOp::Link { .. })) => {
                self.groups.hold(tid, acked, cred, replay);
            }
            Some(_) | None => self.groups.add(tid, acked, cred, replay, op),
        }
    }

    /// Takes the collected changes out, for sending.
    pub(crate) fn take_group(&mut self, frames: &mut Vec<u8>) -> Option<Group> {
        self.link_now();
        self.groups.take(frames)
    }

    fn create(
        &mut self,
        cred: &Cred,
        entry: EntryName<'_>,
        new: &wire::NewInode<'_>,
        time: Timestamp,
    ) -> LocalResult {
        let Some(stripe) = self.dirs.get(&entry.dir).copied() else { return Err(Not::Known) };
        let wire::NewInode { mode, umask, owner, rdev, size, mtime, atime, data, open: _ } = *new;
        let (inode, mut inherited) =
            (PlannedInode { mode, umask, owner, rdev, ..PlannedInode::default() }, Vec::new());
        let new = PlannedInode { stripe, size, time, mtime, atime, data, ..inode };
        let plan = self.view.plan();
        let planned = plan.create(cred, entry, &new, Ino(u64::MAX), &mut inherited)?;
        let Some(ino) = self.numbers.take() else { return Err(Not::Numbered) };
        self.apply(&Event::Create(Create { ino, ..planned }));
        let attr = self.view.getattr(ino)?;
        assert!(attr.ino == ino, "{ino} is the new inode");
        if attr.is_dir() {
            self.dirs.insert(ino, stripe);
        }
        let replay = Replay { seq: Seq(0), ino, time, stripe: attr.stripe };
        Ok(Here::Done(Answer::Attr(attr), replay))
    }

    /// How many inode numbers are to be asked for, if it is time to do so.
    pub(crate) fn wants_numbers(&self) -> Option<u64> {
        if self.dirs.is_empty() { None } else { self.numbers.wanted() }
    }

    /// Whether there is too much to remember.
    pub(crate) fn is_full(&self) -> bool {
        self.dirs.len() > DIRS_MAX || self.view.inodes() > INODES_MAX
    }

    /// A directory is not this client's any more. Says whether it was.
    pub(crate) fn forget(&mut self, dir: Ino) -> bool {
        self.link_elsewhere(|linked| linked == dir);
        let was = self.dirs.remove(&dir).is_some() | self.loading.remove(&dir).is_some();
        if self.dirs.is_empty() {
            self.forget_view();
        } else if was {
            for ino in self.view.store().forget(dir) {
                self.bare.remove(&ino);
            }
        }
        was
    }

    fn forget_view(&mut self) {
        self.view = Namespace::new();
        self.bare.clear();
    }

    /// None is. Returns those that were.
    pub(crate) fn forget_all(&mut self) -> Vec<Ino> {
        self.link_elsewhere(|_| true);
        let dirs = self.dirs.drain().map(|(dir, _)| dir);
        let mut had: Vec<Ino> = dirs.chain(self.loading.drain().map(|(dir, _)| dir)).collect();
        had.sort_unstable();
        self.listing.clear();
        self.forget_view();
        had
    }
}
