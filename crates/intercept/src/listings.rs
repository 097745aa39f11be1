//! Directories that the mount opened while the region was open.
//!
//! A listing of the region is taken at once, because names move in the region's memory while
//! programs work. A reader that starts again gets a new one: from the region or, when that has
//! closed, from the subtree.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cudele::Ino;
use types::Map;

use crate::held;
use crate::reads::RegionName;

/// Handles of these directories have this bit; those of the subtree do not.
const OF_REGION: u64 = 1 << 63;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RegionListings {
    by_handle: Mutex<Map<u64, RegionListing>>,
    last: AtomicU64,
}

/// An open directory.
#[derive(Clone, Debug)]
pub(crate) struct RegionListing {
    pub(crate) dir: Ino,
    /// Names, once a reader has begun.
    pub(crate) names: Option<Arc<Vec<RegionName>>>,
    /// The handle of the subtree that answers since the region closed.
    pub(crate) moved: Option<u64>,
}

impl RegionListings {
    pub(crate) fn open(&self, dir: Ino) -> u64 {
        let handle = OF_REGION | self.last.fetch_add(1, Ordering::Relaxed);
        held(&self.by_handle).insert(handle, RegionListing { dir, names: None, moved: None });
        handle
    }

    /// The state of a handle; `None` if it is one of the subtree's.
    pub(crate) fn get(&self, handle: u64) -> Option<RegionListing> {
        held(&self.by_handle).get(&handle).cloned()
    }

    pub(crate) fn set(&self, handle: u64, listing: RegionListing) {
        if let Some(known) = held(&self.by_handle).get_mut(&handle) {
            *known = listing;
        }
    }

    pub(crate) fn close(&self, handle: u64) -> Option<RegionListing> {
        held(&self.by_handle).remove(&handle)
    }
}
