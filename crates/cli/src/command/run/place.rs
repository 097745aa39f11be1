//! Where a job finds its directory.
//!
//! Only the job sees this: the process is in a mount namespace of its own ([`private::enter`]).
//! With `--at PATH` the directory is at the path that it will have after the merge, so that a
//! virtual environment or a build, which contain their own path, work there.
//!
//! Invariant: nothing is made on a disk of this machine for it.

use std::fs;
use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use mount::{MountEntry, listed};
use terminal::io;

use crate::private;

/// The views of a job, planned before the job begins.
#[derive(Debug)]
pub(super) enum Plan {
    /// In the place of the mount that was made for the job, and at the directory of this machine
    /// with the same path as in the namespace, if there is one.
    Usual(Option<PathBuf>),
    /// At this directory of this machine.
    Directory(PathBuf),
    /// At a path below an empty directory of this machine, in which the rest is made.
    Below {
        /// The empty directory.
        empty: PathBuf,
        /// The path.
        path: PathBuf,
    },
    /// In a mount of the namespace, which the job's own mount covers.
    Mount {
        /// Where it is mounted.
        at: PathBuf,
        /// The directory of the namespace that it shows.
        root: String,
        /// The path.
        path: PathBuf,
    },
}

/// Where the job's directory is shown.
#[derive(Debug)]
pub(super) struct JobMountPoint {
    /// The directory, as the job is to call it.
    pub(super) dir: PathBuf,
    /// Another path that shows the same directory.
    pub(super) also: Option<PathBuf>,
    /// The mounts for that, in order.
    views: Vec<PathBuf>,
}

impl Plan {
    /// Without `--at`; `path` is the job's directory in the namespace.
    pub(super) fn usual(path: &str) -> Self {
        let local = Path::new(path);
        Self::Usual((local.is_absolute() && local.is_dir()).then(|| local.to_owned()))
    }

    /// With `--at`; `in_namespace` is the job's directory in the namespace. The mount of a branch
    /// shows that directory only, so it covers no other mount.
    ///
    /// # Errors
    /// `EINVAL` if the directory cannot be shown there, with the remedy.
    pub(super) fn at(at: &Path, in_namespace: &cudele::Path, branch: bool) -> Result<Self> {
        let path = std::path::absolute(at).map_err(|error| io(at, &error))?;
        let refused =
            |cause: String| Error::new(Errno::Invalid, format!("--at {}", path.display()), cause);
        if path.components().any(|part| part == std::path::Component::ParentDir) {
            let error = refused("the path goes up with `..`".to_owned());
            return Err(error.remedy("name it without `..`"));
        }
        if path.parent().is_none() {
            let error = refused("the job would see nothing of this machine".to_owned());
            return Err(error.remedy("name a directory below the root"));
        }
        if let Some(MountEntry { at: mount, root }) = covering(&path)? {
            let will_be = within(&mount, &root, in_namespace);
            if will_be.as_ref() != Some(&path) {
                let becomes = will_be.map_or_else(
                    || format!("{} shows only {root}", mount.display()),
                    |path| format!("{in_namespace} is {} there", path.display()),
                );
                let cause = format!("it is in a mount of the namespace, and {becomes}");
                return Err(refused(cause).remedy("name the path that the directory has there"));
            }
            if !branch {
                return Ok(Self::Mount { at: mount, root, path });
            }
        }
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        let above = path.ancestors().skip(1).find(|above| above.exists());
        let empty = above.filter(|above| is_empty_dir(above)).map(Path::to_owned);
        match empty {
            Some(empty) if !path.exists() => Ok(Self::Below { empty, path }),
            _ => {
                let cause = "there is no such directory, and the one above it is in use";
                let remedy = format!(
                    "make it with `mkdir -p {}`: an empty directory is enough, and only the job sees \
                     what is put there",
                    path.display()
                );
                Err(refused(cause.to_owned()).remedy(remedy))
            }
        }
    }

    /// Shows the job's directory. `mounted` is the place of the job's mount, and `inside` the path
    /// of the directory in that, empty for a mount of nothing else.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn show(&self, mounted: &Path, inside: &Path) -> Result<JobMountPoint> {
        let whole = inside.as_os_str().is_empty();
        let own = if whole { mounted.to_owned() } else { mounted.join(inside) };
        let mut place = JobMountPoint { dir: own.clone(), also: None, views: Vec::new() };
        let shown = match self {
            Self::Usual(local) => place.show_usual(&own, mounted, local.as_deref()),
            Self::Directory(path) => place.show(&own, path),
            Self::Below { empty, path } => place.show_below(&own, empty, path),
            Self::Mount { at, root, path } => {
                path.clone_into(&mut place.dir);
                place.cover(&mounted.join(root.trim_start_matches('/')), at)
            }
        };
        match shown {
            Ok(()) => Ok(place),
            Err(error) => {
                place.hide(true);
                Err(error)
            }
        }
    }
}

impl JobMountPoint {
    /// Where the directory is without views of one's own.
    pub(super) fn plain(dir: PathBuf) -> Self {
        Self { dir, also: None, views: Vec::new() }
    }

    /// Shows a directory also at another place.
    fn cover(&mut self, dir: &Path, at: &Path) -> Result<()> {
        private::show(dir, at)?;
        self.views.push(at.to_owned());
        Ok(())
    }

    /// The same; this place becomes the job's `$CUDELE_JOB`.
    fn show(&mut self, dir: &Path, at: &Path) -> Result<()> {
        self.cover(dir, at)?;
        at.clone_into(&mut self.dir);
        Ok(())
    }

    fn show_usual(&mut self, dir: &Path, mounted: &Path, local: Option<&Path>) -> Result<()> {
        if let Some(local) = local {
            self.cover(dir, local)?;
            self.also = Some(local.to_owned());
        }
        // In the place of the whole namespace: no lookup depends on the directories above the
        // job's, which other clients may change at any time.
        if dir == mounted { Ok(()) } else { self.show(dir, mounted) }
    }

    fn show_below(&mut self, dir: &Path, empty: &Path, path: &Path) -> Result<()> {
        private::scratch(empty)?;
        self.views.push(empty.to_owned());
        fs::create_dir_all(path).map_err(|error| io(path, &error))?;
        // Files of the job beside its directory would vanish with the scratch file system.
        private::make_read_only(empty)?;
        self.show(dir, path)
    }

    /// Unmounts the views, the last one first. Without `lazy` it returns `false` at the first view
    /// that is in use.
    pub(super) fn hide(&self, lazy: bool) -> bool {
        let mut views = self.views.iter().rev();
        if lazy {
            views.for_each(|view| drop(mount::unmount(view, true)));
            return true;
        }
        views.all(|view| mount::unmount(view, false).is_ok())
    }
}

/// The mount of the namespace that a path is in; of several above each other the innermost.
fn covering(path: &Path) -> Result<Option<MountEntry>> {
    let mounts = listed()?.into_iter().filter(|mount| path.starts_with(&mount.at));
    Ok(mounts.max_by_key(|mount| mount.at.components().count()))
}

/// The path that a directory of the namespace has in a mount.
fn within(mount: &Path, root: &str, in_namespace: &cudele::Path) -> Option<PathBuf> {
    let whole = in_namespace.to_string();
    let rest = Path::new(&whole).strip_prefix(root).ok()?;
    Some(if rest.as_os_str().is_empty() { mount.to_owned() } else { mount.join(rest) })
}

fn is_empty_dir(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
