//! The contexts of all parts, in one place: [`Vfs`] lends a part the references that its context
//! names, and nothing else.

use crate::Vfs;
use crate::attrs::AttrsCx;
use crate::content::ContentCx;
use crate::listing::ListingsCx;
use crate::locks::LocksCx;
use crate::names::NamesCx;
use crate::open::FilesCx;
use crate::owned::SubtreesCx;
use crate::virtual_xattr::VirtualXattrsCx;

impl Vfs {
    pub(crate) fn content(&self) -> ContentCx<'_> {
        ContentCx {
            fs: &self.trees.fs,
            options: &self.trees.options,
            trees: &self.trees,
            write_back: &self.write_back,
        }
    }

    pub(crate) fn files(&self) -> FilesCx<'_> {
        FilesCx {
            fs: &self.trees.fs,
            options: &self.trees.options,
            trees: &self.trees,
            content: self.content(),
            outdated: &self.outdated,
        }
    }

    pub(crate) fn names(&self) -> NamesCx<'_> {
        NamesCx {
            fs: &self.trees.fs,
            trees: &self.trees,
            files: self.files(),
            listings: self.listings(),
        }
    }

    pub(crate) fn attrs(&self) -> AttrsCx<'_> {
        AttrsCx {
            fs: &self.trees.fs,
            trees: &self.trees,
            content: self.content(),
            files: self.files(),
        }
    }

    pub(crate) fn listings(&self) -> ListingsCx<'_> {
        ListingsCx { trees: &self.trees, open: &self.open_dirs }
    }

    pub(crate) fn locks(&self) -> LocksCx<'_> {
        LocksCx { fs: &self.trees.fs, trees: &self.trees, lockers: &self.lockers }
    }

    pub(crate) fn subtrees(&self) -> SubtreesCx<'_> {
        SubtreesCx {
            fs: &self.trees.fs,
            trees: &self.trees,
            content: self.content(),
            outdated: &self.outdated,
        }
    }

    pub(crate) fn virtual_xattrs(&self) -> VirtualXattrsCx<'_> {
        VirtualXattrsCx {
            fs: &self.trees.fs,
            trees: &self.trees,
            content: self.content(),
            attrs: self.attrs(),
            subtrees: self.subtrees(),
        }
    }
}
