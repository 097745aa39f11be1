//! Files that processes in the background write their logs to.

use std::fs::File;
use std::path::{Path, PathBuf};

use cudele::{Result, StateDir};

use crate::io;

/// Bytes of a mount's directory in the name of its log.
const PLACE_BYTES_MAX: usize = 200;

/// Opens a log to append to; makes it, and the directory it is in, if they are missing.
///
/// # Errors
/// The system's error about the file or the directory.
pub fn open(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|error| io(dir, &error))?;
    }
    cudele::own_file::append(path).map_err(|error| io(path, &error))
}

/// The log of a daemon: `mon.log` of the monitor, `mds.log` of rank 0, `1.log` of rank 1 and so on.
pub fn of_daemon(dir: &Path, name: &str) -> PathBuf {
    dir.join("log").join(format!("{name}.log"))
}

/// The log of a mount on a directory, in the state directory of the mounting user. Without a state
/// directory there is no log.
pub fn of_mount(at: &Path) -> PathBuf {
    let Some(root) = StateDir::root() else { return PathBuf::from("/dev/null") };
    let place = at.to_string_lossy().trim_matches('/').replace('/', "-");
    let start = place.len().saturating_sub(PLACE_BYTES_MAX);
    let start = (start..=place.len()).find(|at| place.is_char_boundary(*at)).unwrap_or(0);
    root.join("log").join(format!("mount-{}.log", &place[start..]))
}

/// Where to look after a failure of the cluster in a directory.
pub fn advice(dir: Option<&Path>) -> String {
    match dir {
        Some(dir) => format!(
            "see the logs of the server, {}, and of the monitor, {}",
            of_daemon(dir, "mds").display(),
            of_daemon(dir, "mon").display()
        ),
        None => {
            "see the logs of the cluster's daemons, DIR/log/mds.log and DIR/log/mon.log, where \
                 `cudele up --dir DIR` started them"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{advice, of_mount};

    #[test]
    fn advice_names_the_files() {
        let said = advice(Some(Path::new("/srv/c")));
        assert!(
            said.contains("/srv/c/log/mds.log") && said.contains("/srv/c/log/mon.log"),
            "{said}"
        );
        assert!(advice(None).contains("DIR/log/mds.log"));
    }

    #[test]
    fn a_mount_with_a_long_path_has_a_log_with_a_legal_name() {
        let log = of_mount(Path::new(&format!("/mnt{}", "/für".repeat(300))));
        assert!(log == Path::new("/dev/null") || log.file_name().unwrap().len() <= 255);
        assert!(log.to_str().is_some_and(|log| log.ends_with("für.log") || log == "/dev/null"));
    }
}
