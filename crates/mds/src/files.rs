//! Open files and locks: which clients have which files open or locked, and how a file that several
//! clients have open becomes shared. [`crate::opens`] and [`crate::locks`] decide; this part asks
//! clients, moves content to the store, and answers.

mod lapse;
mod lock;
mod open;

pub(crate) use lapse::{LapseCx, Returning};
use namespace::Namespace;
use types::Clock;

use crate::apply::ApplyCx;
use crate::authority::Authority;
use crate::caps::Caps;
use crate::contexts::lend;
use crate::fetch::Fetches;
use crate::locks::Locks;
use crate::log::Log;
use crate::op::Change;
use crate::opens::Opens;
use crate::purge::Purges;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::watch::Watches;
use crate::{Counters, ReplyTo, Settings};

/// Open files and locks, with all that they may touch.
pub(crate) struct FilesCx<'a> {
    pub(crate) opens: &'a mut Opens,
    pub(crate) locks: &'a mut Locks<ReplyTo>,
    pub(crate) caps: &'a mut Caps,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) purges: &'a mut Purges,
    pub(crate) watches: &'a mut Watches,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) sessions: &'a Sessions,
    pub(crate) authority: &'a Authority,
    pub(crate) settings: &'a Settings,
    pub(crate) changes: &'a [Change],
    pub(crate) clock: Clock,
}

impl FilesCx<'_> {
    fn applying(&mut self) -> ApplyCx<'_> {
        lend!(self => ApplyCx)
    }
}
