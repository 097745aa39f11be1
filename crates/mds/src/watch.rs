//! Watchers: the changes of the namespace, kept for a while for clients that ask for them.
//!
//! A watcher is a path and a user. While there is one, each change at a path of a watcher goes into
//! a ring, with the path at that moment, and with the watchers that may see the change: neither a
//! later rename nor a later `chmod` changes the line, or the users that get the line. The ring has
//! a limit in bytes. A watcher that reads too slowly, or that was away for too long, learns that
//! changes are lost. Without a watcher, a change costs one comparison.
//!
//! A restarted server has an empty ring and another term: watchers learn that changes are lost.
//!
//! Limits: an inode with several names does not know them, so a change of its attributes has no
//! path, and only root sees the change. For users other than root, a rank can judge only
//! directories that the rank has: their watch ends at a subtree with a name on another rank.

mod record;
mod ring;

use types::{Cred, Errno, Moment, Path, Span};
use wire::{Answer, Failure, WatchPage, WatchPoint};

use crate::admission::Incoming;
use crate::authority::Authority;
use crate::op::{Performed, Performing, Refused};
use crate::tables::Tables;
use crate::{Clock, MdsEffects, ReplyTo, Settings};
use ring::Ring;

/// Most watchers of a rank: each has a bit in the masks of the ring.
pub(crate) const WATCHERS_MAX: usize = 64;
/// Most watchers of one user other than root: no user takes all. So many places are root's, which
/// several users together cannot take.
pub(crate) const WATCHERS_OF_USER: usize = 16;
/// Most requests that wait for a change.
const WAITING_MAX: usize = 1024;
/// The longest wait of a request, and the most bytes and visited changes of an answer.
const WAIT_MAX: Span = Span::from_millis(10_000);
const PAGE_BYTES: usize = 256 << 10;
const PAGE_VISITS: u64 = 1 << 16;

#[derive(Clone, Debug)]
struct Watcher {
    path: Path,
    cred: Cred,
    /// The number of the first change that was kept for it.
    since: u64,
    asked: Moment,
    /// A change could not be judged.
    is_blind: bool,
}

/// A request that waits for a change.
#[derive(Debug)]
struct WaitingPage {
    at: ReplyTo,
    watcher: usize,
    after: u64,
    until: Moment,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watchers: Vec<Option<Watcher>>,
    /// Whether there is a watcher.
    any: bool,
    ring: Ring,
    waiting: Vec<WaitingPage>,
}

impl Watches {
    /// No watcher, and room for so many bytes of changes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { ring: Ring::new(bytes_max), ..Self::default() }
    }

    /// Whether there is a watcher: only then changes are noted.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.any
    }

    /// Figures for status output. Clients know by these that the server has watches.
    pub(crate) fn counters(&self) -> [(String, u64); 2] {
        let (watchers, bytes) = (self.all().count(), self.ring.bytes());
        [("watchers", watchers), ("watched_bytes", bytes)]
            .map(|(name, value)| (name.to_owned(), value as u64))
    }

    /// Whether a request is about to be answered: the next tick should not be late.
    pub(crate) fn has_news(&self) -> bool {
        self.waiting.iter().any(|waiting| self.ring.has_for(waiting.watcher, waiting.after))
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Watcher)> {
        let watchers = self.watchers.iter().enumerate();
        watchers.filter_map(|(at, watcher)| Some((at, watcher.as_ref()?)))
    }

    /// The watcher of a path and a user, from now on if there was none.
    ///
    /// # Errors
    /// `EBUSY` if there are too many.
    fn enter(&mut self, path: &Path, cred: &Cred, now: Moment) -> Result<usize, Failure> {
        let known = self.all().find(|(_, it)| it.path == *path && it.cred == *cred);
        if let Some((at, _)) = known {
            self.watchers[at].iter_mut().for_each(|watcher| watcher.asked = now);
            return Ok(at);
        }
        let free = self.watchers.iter().position(Option::is_none).unwrap_or(self.watchers.len());
        let of_user = self.all().filter(|(_, it)| it.cred.uid == cred.uid).count();
        let of_users = self.all().filter(|(_, it)| !it.cred.is_root()).count();
        let is_refused = of_user >= WATCHERS_OF_USER || of_users >= WATCHERS_MAX - WATCHERS_OF_USER;
        if free >= WATCHERS_MAX || (is_refused && !cred.is_root()) {
            let text = format!(
                "the metadata server has {WATCHERS_MAX} watchers already, or as many as users other \
                 than root may have, or {WATCHERS_OF_USER} of this user; end one, and wait until the \
                 server has forgotten it"
            );
            return Err(Failure { errno: Errno::Busy, text });
        }
        if free == self.watchers.len() {
            self.watchers.push(None);
        }
        let (path, cred, since) = (path.clone(), cred.clone(), self.ring.end());
        let watcher = Watcher { path, cred, since, asked: now, is_blind: false };
        self.watchers[free] = Some(watcher);
        self.any = true;
        Ok(free)
    }

    /// The changes for a watcher behind a number. `None` if there is none that it may see.
    fn page(&self, watcher: usize, after: u64) -> Option<WatchPage> {
        let known = self.watchers.get(watcher)?.as_ref()?;
        let is_unknown = after < known.since || after > self.ring.end();
        if is_unknown || self.ring.has_dropped(watcher, after) {
            return Some(WatchPage { lost: true, ..WatchPage::default() });
        }
        let has_any = self.ring.has_for(watcher, after);
        has_any.then(|| self.ring.page(watcher, after, PAGE_BYTES, PAGE_VISITS))
    }

    /// Forgets watchers that have not asked for so long, and the ring with the last of them.
    fn forget_silent(&mut self, now: Moment, span: Span) {
        for (at, slot) in self.watchers.iter_mut().enumerate() {
            let waits = || self.waiting.iter().any(|waiting| waiting.watcher == at);
            if slot.as_ref().is_some_and(|it| now.since(it.asked) >= span) && !waits() {
                *slot = None;
            }
        }
        self.any = self.watchers.iter().any(Option::is_some);
        if !self.any {
            self.ring.clear();
        }
    }

    /// No watcher can have all changes: each learns that it lost some.
    pub(crate) fn lose_all(&mut self) {
        self.ring.clear();
    }

    /// Checks that the ring is within its limit, and belongs to watchers.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self) {
        assert!(self.any == self.watchers.iter().any(Option::is_some), "watchers are counted");
        assert!(self.any || self.ring.bytes() == 0, "changes are kept for watchers only");
        self.ring.validate();
    }
}

fn blind() -> Failure {
    let text = "the metadata server of a subtree there does not have the directories above it, and \
                cannot judge the rights of this user; watch as root, or bring the subtree back \
                (`cudele mds move`)";
    Failure { errno: Errno::Access, text: text.into() }
}

/// All that the answers to watchers touch.
pub(crate) struct WatchCx<'a> {
    pub(crate) watches: &'a mut Watches,
    pub(crate) authority: &'a mut Authority,
    pub(crate) tables: &'a Tables,
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
}

impl WatchCx<'_> {
    /// Answers a watcher, or keeps the request until there is a change.
    pub(crate) fn answer(
        &mut self,
        from: Incoming<'_>,
        path: &[u8],
        after: Option<WatchPoint>,
        wait: u32,
    ) -> Performing {
        let path = Path::parse(path)?;
        self.settle();
        let now = self.clock.now;
        let known = self.watches.enter(&path, &from.request.cred, now);
        let watcher = known.map_err(Refused::Failure)?;
        let term = self.tables.epoch();
        let Some(after) = after else {
            self.watches.watchers[watcher].iter_mut().for_each(|it| it.is_blind = false);
            return Ok(Performed::Answer(self.watched(None, &path)));
        };
        let is_blind = |it: &Watcher| it.is_blind;
        if self.watches.watchers[watcher].as_ref().is_some_and(is_blind) {
            return Err(Refused::Failure(blind()));
        }
        let page = if after.term == term {
            self.watches.page(watcher, after.next)
        } else {
            Some(WatchPage { lost: true, ..WatchPage::default() })
        };
        let wait = Span::from_millis(u64::from(wait)).min(WAIT_MAX);
        match page {
            None if wait > Span(0) && self.watches.waiting.len() < WAITING_MAX => {
                let (at, until) = (from.at(), now + wait);
                let waiting = WaitingPage { at, watcher, after: after.next, until };
                self.watches.waiting.push(waiting);
                Ok(Performed::Later)
            }
            page => Ok(Performed::Answer(self.watched(page, &path))),
        }
    }

    /// An answer. Without a page, or with a loss, the point is the present one.
    fn watched(&self, page: Option<WatchPage>, path: &Path) -> Answer {
        let end = self.watches.ring.end();
        let is_at_end = page.as_ref().is_none_or(|page| page.lost);
        let mut page = page.unwrap_or_default();
        page.next.next = if is_at_end { end } else { page.next.next };
        page.next.term = self.tables.epoch();
        page.serves = self.authority.own_paths().any(|own| {
            Path::parse(own).is_ok_and(|own| own.starts_with(path) || path.starts_with(&own))
        });
        Answer::Watched(Box::new(page))
    }

    /// Answers the requests that have waited for a change, or long enough, and forgets watchers.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        self.settle();
        let now = self.clock.now;
        for waiting in std::mem::take(&mut self.watches.waiting) {
            let WaitingPage { at, watcher, after, until } = waiting;
            let Some(known) = self.watches.watchers[watcher].as_mut() else { continue };
            if known.is_blind {
                effects.reply_error(at, blind());
                continue;
            }
            let path = known.path.clone();
            let page = self.watches.page(watcher, after);
            if page.is_none() && now < until {
                self.watches.waiting.push(WaitingPage { at, watcher, after, until });
                continue;
            }
            self.watches.watchers[watcher].iter_mut().for_each(|it| it.asked = now);
            let answer = self.watched(page, &path);
            effects.answer(at, Ok(answer));
        }
        self.watches.forget_silent(now, self.settings.watch);
    }

    /// Notes the subtrees that left this rank, or came to it.
    pub(crate) fn note_moves(&mut self) {
        for news in self.authority.take_moves() {
            self.watches.note_move(news);
        }
    }

    /// Completes the changes of this input: their time, and directories in place of fragments.
    pub(crate) fn settle(&mut self) {
        let whole = |dir| self.authority.whole_of(dir).unwrap_or(dir);
        self.watches.ring.settle(self.clock.time, whole);
    }
}
