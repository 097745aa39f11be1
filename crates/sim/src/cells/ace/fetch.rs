//! The view of a client in a subtree that had names when it was decoupled: the client reads the
//! directories that it lacks, as the library does.

use namespace::Refusal;
use types::{Cred, EntryName, Ino, Seq};
use wire::Answer;

use super::AceRun;
use crate::call::CallKind;
use crate::cells::{Done, Stop};

/// The content and the extended attributes of an inode of the base.
#[derive(Debug)]
struct BaseContent {
    data: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl AceRun {
    /// Looks up each name on the path of an inode: a program knows an inode by a name only.
    pub(super) fn look(&mut self, client: usize, ino: Ino) -> Done<()> {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != self.cells.job().root {
            let Some((parent, name)) = self.view.names_of(at).into_iter().next() else {
                return Ok(());
            };
            at = parent;
            names.push((parent, name));
        }
        while let Some((parent, name)) = names.last() {
            let view = self.cells.holding()?.inner.view();
            match view.namespace().lookup(&Cred::root(), *parent, name) {
                Err(Refusal::Cold(dir)) => self.fetch(client, dir)?,
                Ok(_) | Err(Refusal::Errno(_)) => drop(names.pop()),
            }
        }
        Ok(())
    }

    /// Brings a directory of the base into the view of the client, as the library does.
    pub(super) fn fetch(&mut self, client: usize, dir: Ino) -> Done<()> {
        let path = self.path_of(dir).unwrap_or_default();
        let list = CallKind::list(dir);
        let answer = self.cells.request_at(client, list, vec![(path.clone(), dir)])?;
        let Answer::Entries { entries, .. } = answer else { return Err(Stop::Broken) };
        for (name, attr) in entries {
            let at = format!("{path}/{}", String::from_utf8_lossy(&name));
            let BaseContent { data, xattrs } =
                self.content_of(client, (at, attr.ino), attr.is_dir())?;
            let job = self.cells.holding()?;
            let namespace = job.inner.view().namespace_mut();
            namespace.store().load_entry(dir, &name, &attr, &data);
            job.places.note_loaded(namespace, EntryName::new(dir, &name), &attr);
            namespace.store().load_extra(attr.ino, &data, &xattrs);
        }
        let namespace = self.cells.holding()?.inner.view().namespace_mut();
        namespace.store().finish_load(dir, Seq(0), Default::default());
        Ok(())
    }

    /// The content and the extended attributes of an inode of the base.
    fn content_of(&mut self, client: usize, at: (String, Ino), is_dir: bool) -> Done<BaseContent> {
        let ino = at.1;
        let paths = || vec![at.clone()];
        let mut data = Vec::new();
        if !is_dir
            && let Answer::Data(found) =
                self.cells.request_at(client, CallKind::GetData { ino }, paths())?
        {
            data = found;
        }
        let mut xattrs = Vec::new();
        let names = self.cells.request_at(client, CallKind::ListXattr { ino }, paths())?;
        let Answer::Names(names) = names else { return Err(Stop::Broken) };
        for name in names {
            let what = CallKind::GetXattr { ino, name: String::from_utf8_lossy(&name).into() };
            let value = self.cells.request_at(client, what, paths())?;
            if let Answer::Data(value) = value {
                xattrs.push((name, value));
            }
        }
        Ok(BaseContent { data, xattrs })
    }
}
