//! `mount.cudele`: how `mount(8)` and `/etc/fstab` ask for a mount.
//!
//! The program is this one under another name: `mount.cudele`, or `mount.fuse.cudele` for the type
//! that a mount has, which `mount -o remount` looks for.
//! `mount.cudele SOURCE DIR [-o OPTIONS]` becomes `cudele mount`, and prints nothing on success:
//! SOURCE says where the cluster is (the directory of a cluster started by `cudele up`, or the
//! address of a monitor), and the options can hold `root=PATH`, `log=FILE`, `key=FILE` and
//! `metrics=ADDR`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The names under which `mount(8)` calls it.
const NAMES: [&str; 2] = ["mount.cudele", "mount.fuse.cudele"];

/// The arguments of this process, as `cudele` would be given them.
pub(crate) fn arguments(given: Vec<OsString>) -> Vec<OsString> {
    let called = given.first().map(Path::new).and_then(Path::file_name);
    if NAMES.iter().any(|name| called == Some(OsStr::new(name))) {
        translated(&given[1..])
    } else {
        given
    }
}

fn translated(given: &[OsString]) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut places = Vec::new();
    let mut rest = given.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => options.extend(rest.next().and_then(|list| list.to_str())),
            // Be sloppy, fake, no mtab, verbose; which helper and which type.
            Some("-s" | "-f" | "-n" | "-v") => {}
            Some("-t" | "-N") => {
                let _ = rest.next();
            }
            _ => places.push(argument.clone()),
        }
    }
    let mut command: Vec<OsString> = vec!["cudele".into(), "mount".into(), "--quiet".into()];
    let mut places = places.into_iter();
    if let Some(source) = places.next() {
        let kinds = ["unix:", "tcp:", "plain:"];
        let is_address =
            source.to_str().is_some_and(|text| kinds.iter().any(|kind| text.starts_with(kind)));
        if is_address {
            command.extend(["--mon".into(), source]);
        } else if !is_own_source(&source) {
            command.extend(["--dir".into(), source]);
        }
    }
    for option in options.iter().flat_map(|list| list.split(',')).filter(|o| !o.is_empty()) {
        match option.split_once('=') {
            Some(("root", path)) => command.extend(["--root".into(), path.into()]),
            Some(("log", path)) => command.extend(["--log".into(), path.into()]),
            Some(("key", path)) => command.extend(["--key".into(), path.into()]),
            Some(("metrics", at)) => command.extend(["--metrics".into(), at.into()]),
            _ => command.extend(["-o".into(), option.into()]),
        }
    }
    command.push("--".into());
    command.extend(places);
    command
}

/// Whether a source names no cluster: that of the table of mounts, `cudele:PATH`, does not.
fn is_own_source(source: &OsStr) -> bool {
    source == "none"
        || source == "cudele"
        || source.to_str().is_some_and(|text| text.starts_with("cudele:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(given: &[&str]) -> String {
        let given = given.iter().map(OsString::from).collect();
        arguments(given).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn an_entry_of_fstab_becomes_a_command() {
        let given =
            ["/sbin/mount.cudele", "/srv/cluster", "/mnt", "-o", "rw,allow_other,root=/home"];
        let wanted =
            "cudele mount --quiet --dir /srv/cluster -o rw -o allow_other --root /home -- /mnt";
        assert_eq!(says(&given), wanted);
        let given = [
            "mount.cudele",
            "tcp:mon:7000",
            "/mnt",
            "-n",
            "-t",
            "cudele",
            "-o",
            "key=/etc/k.pem,metrics=9400",
        ];
        let wanted =
            "cudele mount --quiet --mon tcp:mon:7000 --key /etc/k.pem --metrics 9400 -- /mnt";
        assert_eq!(says(&given), wanted);
        let given = ["/sbin/mount.fuse.cudele", "cudele:/", "/mnt", "-o", "rw,nosuid,remount,ro"];
        let wanted = "cudele mount --quiet -o rw -o nosuid -o remount -o ro -- /mnt";
        assert_eq!(says(&given), wanted);
    }

    #[test]
    fn everything_else_is_left_alone() {
        assert_eq!(says(&["cudele", "ls", "-o"]), "cudele ls -o");
    }
}
