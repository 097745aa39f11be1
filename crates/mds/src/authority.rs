//! Which subtrees this rank is the authority of (B-02), and how one goes to another rank while
//! clients work in it (B-03).
//!
//! The authority of an inode is that of the nearest directory above it that the list of subtrees
//! names, and rank 0 if the list names none. The list is one object (`metastore::Subtrees`) that is
//! replaced by compare-and-swap, and a subtree changes hands in the moment of that replacement. So
//! an inode has one authority at any time, whichever rank crashes and when.
//!
//! Before that, the exporter (`export`) writes the whole subtree to the metadata store, and keeps
//! nothing in its journal that a recovery would replay (`behind`). So the importer (`import`)
//! begins from the store, and no rank replays an event on a directory that another rank has changed
//! since.
//!
//! A rank redirects requests for a subtree to its authority (`Answer::Redirect`). The rank that
//! executed a request also answers its repetition, even after the subtree moved: each client has a
//! session with each rank, and resends a request to the rank that got it first. So no request is
//! executed twice.
//!
//! The name of a subtree's root stays with the rank that serves the directory above it (`nested`).
//! Decoupled subtrees in a subtree move along with it (`decoupled`).
//!
//! `list` reads and replaces the list, `place` finds the rank of a request, `view` and `check`
//! answer questions, `frozen` is the freeze set, `reshape` splits and joins directories. Each part
//! borrows a context; `route` has other parts of the server meet their needs.

mod between;
mod check;
mod colocate;
mod cross_rename;
mod decoupled;
mod departed;
mod export;
mod fragments;
mod frozen;
mod handover;
mod import;
mod list;
mod nested;
mod pin;
mod place;
mod preload;
mod reclaim;
mod rename;
mod reports;
mod reserve;
mod reshape;
mod route;
mod validate;
mod view;

use std::collections::BTreeSet;

use metastore::{MovedSubtree, Subtrees};
use namespace::Namespace;
use types::{ClientId, Ino, Map, Moment, Rank, Seq, Span};

use crate::Phase;
pub(crate) use between::BetweenCx;
pub(crate) use check::UnderWay;
use cross_rename::CrossRenames;
pub(crate) use cross_rename::NamesCx;
pub(crate) use export::{Export, ExportCx};
use fragments::Split;
use frozen::Frozen;
pub(crate) use import::{Import, ImportCx};
pub(crate) use list::{ListCx, ListNews};
pub(crate) use place::{PlaceCx, Placed};
pub(crate) use preload::{Preload, PreloadCx};
use reserve::Reservations;
pub(crate) use reserve::ReserveCx;
use reshape::Reshape;
pub(crate) use reshape::ReshapeCx;
pub(crate) use view::Places;

/// How often a rank reads the list of subtrees if there are several ranks: the rank that should
/// announce a change of the list may have crashed.
const READ_INTERVAL: Span = Span::from_millis(500);
/// A request for an unknown inode is refused only if the rank read the list less long ago than
/// this.
const READ_LATELY: Span = Span::from_millis(5);
/// How long to wait before something is tried again that the store refused.
const RETRY: Span = Span::from_millis(100);
/// Inodes whose new place is remembered. For an inode beyond these the rank answers that it is
/// unknown, and the client asks the other ranks.
const MOVED_MAX: usize = 1 << 20;
/// Requests wait under this key until the list of subtrees was read.
pub(crate) const LIST: Ino = Ino(0);

/// Whether a root whose name is another rank's is in memory in its hidden directory. A directory
/// that the root left, and that was removed since, may still list it if it was read earlier.
pub(crate) fn is_in_hidden(namespace: &Namespace, root: Ino) -> bool {
    namespace.home_of(root) == Some(Ino::mount_stub(root))
}

/// A subtree left this rank, or came to it.
#[derive(Clone, Debug)]
pub(crate) struct MoveNews {
    pub(crate) root: Ino,
    pub(crate) path: Vec<u8>,
    /// How often the subtree has moved, this time included.
    pub(crate) moves: u64,
    /// The rank that it went to; this rank if it came.
    pub(crate) other: Rank,
    pub(crate) is_here: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    rank: Rank,
    /// The list that was read or written last, and its version in the store; `None` without a list.
    list: Subtrees,
    version: Option<u64>,
    reading: bool,
    read_at: Option<Moment>,
    /// A replacement of the list is under way, or it is being found out whether it took place.
    writing: bool,
    /// The list after that replacement.
    proposed: Option<Subtrees>,
    /// Inodes that were forgotten with a subtree, and the root of the subtree.
    moved: Map<Ino, Ino>,
    /// At once. A frozen one overlaps no other: a rename may nest them before the freeze.
    exports: Vec<Export>,
    /// When a subtree went last.
    pub(crate) went_at: Option<Moment>,
    imports: Vec<Import>,
    /// Subtrees that other ranks are about to give to this one.
    reservations: Reservations,
    /// Files about whose open state a request of a client waits for the list.
    reports_waiting: BTreeSet<(ClientId, Ino)>,
    preloads: Vec<Preload>,
    /// The directories that are split, from the list.
    splits: Map<Ino, Split>,
    reshape: Option<Reshape>,
    /// Names that move to other ranks, and from them.
    cross_renames: CrossRenames,
    /// Requests that need another rank.
    held: between::HeldRequests,
    /// The subtree that was to follow its name last, and when the next one is looked for.
    followed: Ino,
    follow_at: Option<Moment>,
    sizes: fragments::Sizes,
    frozen: Frozen,
    /// Everything is here, and nothing is going anywhere: requests need not be looked at.
    plain: bool,
    /// Up to here the journal may name directories that are not in memory any more (`behind`).
    unclear: Option<Seq>,
    /// Subtrees that have moved: other parts have not heard of these yet.
    moves: Vec<MoveNews>,
    /// Moves ended, and these decoupled subtrees went: other parts have not heard of that yet.
    ended: Option<Vec<Ino>>,
}

impl Authority {
    pub(crate) fn new(rank: Rank) -> Self {
        Self { rank, plain: rank == Rank(0), ..Self::default() }
    }

    /// Whether all of the namespace is this rank's, and stays so.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The roots of the subtrees that move to other ranks: all of them must stay in memory.
    pub(crate) fn exporting(&self) -> impl Iterator<Item = Ino> {
        self.exports.iter().map(|export| export.root)
    }

    fn export_of(&self, root: Ino) -> Option<&Export> {
        self.exports.iter().find(|export| export.root == root)
    }

    /// Whether a subtree moves to another rank.
    pub(crate) fn is_exporting(&self) -> bool {
        !self.exports.is_empty()
    }

    /// Whether the server may stop.
    pub(crate) fn is_idle(&self) -> bool {
        self.exports.is_empty() && !self.writing && self.cross_renames.is_empty()
    }

    /// The roots of the subtrees that this rank serves while another rank has their names.
    pub(crate) fn own_roots(&self) -> Vec<Ino> {
        let own = self.list.unjoined().filter(|subtree| self.is_own(subtree));
        own.map(|subtree| subtree.root).collect()
    }

    /// The paths of these subtrees, as the list has them.
    pub(crate) fn own_paths(&self) -> impl Iterator<Item = &[u8]> {
        let own = self.list.unjoined().filter(|subtree| self.is_own(subtree));
        own.map(|subtree| subtree.path.as_slice())
    }

    /// The moves that have ended since the last call.
    pub(crate) fn take_moves(&mut self) -> Vec<MoveNews> {
        std::mem::take(&mut self.moves)
    }

    /// A subtree left this rank for another one, or came to it.
    fn note_move(&mut self, root: Ino, other: Rank) {
        if let Some(MovedSubtree { path, moves, .. }) = self.list.get(root).cloned() {
            let is_here = other == self.rank;
            self.moves.push(MoveNews { root, path, moves, other, is_here });
        }
    }

    fn is_own(&self, subtree: &MovedSubtree) -> bool {
        subtree.rank == self.rank && self.list.named_by(subtree) != self.rank
    }

    /// Whether this rank serves the subtree with this root, and its name is another rank's.
    pub(crate) fn is_own_root(&self, root: Ino) -> bool {
        self.list.unjoined_at(root).is_some_and(|subtree| self.is_own(subtree))
    }

    /// Whether a subtree is moving from this rank, or to it.
    pub(crate) fn is_moving(&self) -> bool {
        self.is_exporting() || !self.imports.is_empty() || self.reshape.is_some()
    }

    /// Whether another rank serves the subtree with this root.
    pub(crate) fn is_of_other(&self, root: Ino) -> bool {
        self.list.unjoined_at(root).is_some_and(|subtree| subtree.rank != self.rank)
    }

    /// Whether a directory is another rank's, or comes from one.
    pub(crate) fn is_others(&self, dir: Ino) -> bool {
        self.is_of_other(dir) || self.is_coming(dir)
    }

    /// Whether a subtree with this root is this rank's and not taken in yet. The rank does not read
    /// it before: it may first have to forget an earlier state of the subtree.
    pub(crate) fn is_coming(&self, root: Ino) -> bool {
        self.imports.iter().any(|import| import.root == root && !import.is_taken_in())
    }

    /// The rank to which the subtree with this root is pinned.
    pub(crate) fn pin_of(&self, root: Ino) -> Option<Rank> {
        let pinned = self.list.get(root).filter(|subtree| subtree.pinned)?;
        Some(if pinned.joined { self.rank } else { pinned.rank })
    }

    /// The roots of the subtrees that other ranks serve while this rank has their names.
    pub(crate) fn other_roots(&self) -> impl Iterator<Item = Ino> {
        let others = self.list.unjoined().filter(|subtree| {
            subtree.rank != self.rank && self.list.named_by(subtree) == self.rank
        });
        others.map(|subtree| subtree.root)
    }

    /// The roots whose names must be known: the directories above them stay in memory.
    pub(crate) fn named_roots(&self) -> impl Iterator<Item = Ino> {
        let moving = self.imports.iter().map(|import| import.root);
        let moving = moving.chain(self.exporting());
        self.other_roots()
            .chain(moving)
            .chain(self.splits.keys().copied())
            .chain(self.cross_renames.directories())
    }

    /// How many subtrees this rank serves apart from its share of the namespace, and how many have
    /// moved to other ranks.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.own_roots().len() as u64, self.other_roots().count() as u64)
    }

    /// How many subtrees are leaving this rank, and how many are coming.
    pub(crate) fn moves_under_way(&self) -> (u64, u64) {
        (self.exports.len() as u64, self.imports.len() as u64)
    }

    /// How many of a rank's directories are split.
    pub(crate) fn splits_here(&self, rank: Rank) -> u64 {
        if rank == Rank(0) { self.splits.len() as u64 } else { 0 }
    }

    /// Whether the list may not be asked for, or replaced, now.
    fn is_busy(&self) -> bool {
        self.reading || self.writing
    }

    /// Sets the path and policy above every subtree whose name another rank has.
    pub(crate) fn set_above_stubs(&self, namespace: &mut Namespace) {
        let own = self.list.unjoined().filter(|it| self.is_own(it));
        own.for_each(|subtree| self.set_above_stub(namespace, subtree));
    }

    /// The roots that are served here, in hidden directories.
    pub(crate) fn served_roots(&self) -> Vec<Ino> {
        let served =
            |root: &Ino| self.list.get(*root).is_some_and(|subtree| subtree.inode.is_empty());
        // The name of a directory stays here until its cross-rank rename is decided.
        let leaving: Vec<Ino> = self.cross_renames.leaving().collect();
        let own = self.own_roots().into_iter().filter(served);
        own.filter(|root| !leaving.contains(root)).collect()
    }

    /// The root of a subtree that is served here and not in memory where it is.
    pub(crate) fn lacking_root(&self, namespace: &Namespace) -> Option<Ino> {
        self.served_roots().into_iter().find(|root| !is_in_hidden(namespace, *root))
    }

    /// Whether the journal is to be written without delay.
    pub(crate) fn wants_journal(&self) -> bool {
        self.exports_want_journal()
            || self.imports_want_journal()
            || self.reshape_wants_journal()
            || self.cross_renames.wants_journal()
    }

    /// Notes that a move ended, with which these decoupled subtrees went.
    fn note_ended(&mut self, gone: &[Ino]) {
        self.ended.get_or_insert_default().extend(gone);
        self.note_plain();
    }

    /// The list of subtrees was read.
    pub(crate) fn list_changed(&mut self, namespace: &Namespace, phase: Phase) {
        if phase == Phase::Active {
            self.find_other_roots(namespace);
        }
        self.note_plain();
    }

    /// Notes the freeze set, and whether requests must be looked at.
    fn note_plain(&mut self) {
        self.frozen = Frozen::of(self);
        let nothing =
            self.exports.is_empty() && self.imports.is_empty() && self.preloads.is_empty();
        let whole =
            self.splits.is_empty() && self.reshape.is_none() && self.cross_renames.is_empty();
        let all_here = self.list.unjoined().all(|subtree| subtree.rank == self.rank);
        self.plain = self.rank == Rank(0) && nothing && whole && all_here;
    }
}
