//! Truncation, of files that are open here and of others.

use std::sync::Arc;

use cudele::{AttrChange, FILE_BYTES_MAX, Ino, Result};
use posix::{Caller, OpenMode};

use crate::file::{Body, File, checked_end};
use crate::open::{FilesCx, check_file};
use crate::tree::Tree;

impl FilesCx<'_> {
    /// Cuts a file off, or extends it with zeros.
    pub(crate) fn truncate(
        &self,
        caller: &Caller,
        ino: Ino,
        size: u64,
        is_open: bool,
    ) -> Result<()> {
        checked_end(size, 0)?;
        let open = self.trees.nodes().file(ino).cloned();
        if open.is_none() && matches!(self.trees.tree(ino), Tree::Server) {
            // Other clients may have the file open and hold content: they learn of this change as
            // of a write.
            check_file(&self.trees.stored_attr(ino)?)?;
            self.open(&Caller::SELF, ino, OpenMode { write: true, ..OpenMode::default() })?;
            let cut = self.truncate(caller, ino, size, is_open);
            return self.close(ino, true).and(cut);
        }
        let file = match open {
            Some(file) => file,
            None => {
                let attr = self.trees.stored_attr(ino)?;
                check_file(&attr)?;
                Arc::new(File::new(&attr, Body::Unread))
            }
        };
        let mut content = file.held();
        if content.shared && content.nameless.is_none() {
            self.content.write_back(ino, &mut content)?;
            content.note_change(size..FILE_BYTES_MAX);
            content.size = size;
            return self.content.truncate_shared(caller, ino, size, is_open);
        }
        if !is_open && content.nameless.is_none() {
            // Whether the caller may is for the namespace to say.
            let change = AttrChange { size: Some(size), ..AttrChange::default() };
            self.content.load(ino, &mut content)?;
            self.trees.change_attr(caller, ino, &change)?;
        }
        self.content.load(ino, &mut content)?;
        content.touch();
        self.content.resize(ino, &mut content, size)?;
        self.content.write_back(ino, &mut content)
    }
}
