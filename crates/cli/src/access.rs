//! Access to a cluster on this machine: the permissions of directory, sockets and store.
//!
//! By default that is its owner, and root. With a group its members may connect, too; the metadata
//! servers then hold each of their requests against the permissions of files and directories. The
//! store is the owner's alone: an object has no permissions.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use cudele::{Errno, Error, Result};
use rustix::fs::Mode;
use terminal::io;
use types::Cred;

use crate::marker;

/// The umask of a process, until this is dropped.
#[derive(Debug)]
pub(crate) struct Umask(Mode);

impl Drop for Umask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}

/// New files and directories of this process and of its children are for its user alone.
#[must_use = "the umask is put back when this is dropped"]
pub(crate) fn keep_private() -> Umask {
    Umask(rustix::process::umask(Mode::from_raw_mode(0o077)))
}

/// The number of a group, by its number or its name.
///
/// # Errors
/// `EINVAL` if there is no such group.
pub(crate) fn group_of(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    // It asks every source that this machine is set up with.
    let found = Command::new("getent").args(["group", "--", name]).output();
    let found = found.map_err(|error| io(Path::new("getent"), &error))?;
    let line = String::from_utf8_lossy(&found.stdout).into_owned();
    line.trim_end().split(':').nth(2).and_then(|number| number.parse().ok()).ok_or_else(|| {
        Error::new(Errno::Invalid, format!("--group {name}"), "there is no such group")
            .remedy("`getent group` lists the groups; the number of a group will do, too")
    })
}

/// A user with the groups that this machine knows, by name or number. A number without an entry is
/// a user with the group of the same number.
///
/// # Errors
/// `EINVAL` if there is no such user.
pub(crate) fn user_of(name: &str) -> Result<Cred> {
    let run = |program: &str, arguments: &[&str]| -> Result<String> {
        let found = Command::new(program).args(arguments).output();
        let found = found.map_err(|error| io(Path::new(program), &error))?;
        Ok(String::from_utf8_lossy(&found.stdout).into_owned())
    };
    let line = run("getent", &["passwd", "--", name])?;
    let fields: Vec<&str> = line.trim_end().split(':').collect();
    if let [known, _, uid, gid, ..] = fields[..]
        && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
    {
        let groups = run("id", &["-G", "--", known])?;
        let groups = groups.split_whitespace().filter_map(|group| group.parse().ok());
        return Ok(Cred { uid, gid, groups: groups.filter(|group| *group != gid).collect() });
    }
    let uid = name.parse().map_err(|_| {
        Error::new(Errno::Invalid, format!("--user {name}"), "there is no such user")
            .remedy("`getent passwd` lists the users; the number of a user will do, too")
    })?;
    Ok(Cred { uid, gid: uid, groups: Vec::new() })
}

/// Gives the directory of a cluster, its sockets and its local store their permissions, also
/// those of a cluster that an earlier version made, and notes the group in the marker. Without a
/// group the one in the marker stays.
///
/// # Errors
/// `EPERM` if they belong to another user, or if the group is none of the owner's.
pub(crate) fn protect(dir: &Path, group: Option<u32>) -> Result<()> {
    let mut group = group;
    if let Some(mut known) = marker::read(dir)? {
        group = group.or(known.group);
        if known.group != group {
            known.group = group;
            marker::write(dir, &known)?;
        }
        if let Some(store) = local_store(&known.store) {
            restrict(&store, 0o700)?;
        }
    }
    if let Some(group) = group {
        chown(dir, None, Some(group)).map_err(|error| io(dir, &error))?;
        for socket in sockets(dir)? {
            chown(&socket, None, Some(group)).map_err(|error| io(&socket, &error))?;
            restrict(&socket, 0o660)?;
        }
    }
    // A member of the group passes through to the sockets, and lists nothing.
    restrict(dir, if group.is_some() { 0o710 } else { 0o700 })
}

/// The sockets of the daemons that run.
fn sockets(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| io(dir, &error))? {
        let entry = entry.map_err(|error| io(dir, &error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The directory of a store that is one.
fn local_store(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("dir:")?;
    Some(PathBuf::from(path.split('?').next()?))
}

fn restrict(dir: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(mode)).map_err(|error| io(dir, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name_and_by_its_number() {
        assert_eq!(group_of("root").unwrap(), 0);
        assert_eq!(group_of("4711").unwrap(), 4711);
        let unknown = group_of("no such group").unwrap_err();
        assert_eq!(unknown.errno, Errno::Invalid);
    }

    #[test]
    fn only_a_store_of_files_is_local() {
        assert_eq!(local_store("dir:/a/b"), Some(PathBuf::from("/a/b")));
        assert_eq!(local_store("dir:/a/b?copies=2"), Some(PathBuf::from("/a/b")));
        assert_eq!(local_store("rados://pool"), None);
    }
}
