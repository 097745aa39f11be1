//! The pre-commit hook: what takes well under a second, and never more, so that nobody is tempted
//! to switch it off.
//!
//! Invariant: a hook somebody else wrote is never overwritten.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Failure, Outcome};

const HOOK: &str = "\
#!/bin/sh
# Installed by `cargo xtask hook`.
cargo fmt --all --check && cargo xtask tidy
";

/// Writes the hook into the repository's hooks directory.
pub(crate) fn install(root: &Path) -> Outcome {
    let path = hooks_directory(root)?.join("pre-commit");
    match fs::read_to_string(&path) {
        Ok(present) if present != HOOK => {
            let message =
                format!("{} exists and is not ours; add the two checks to it", path.display());
            return Err(Failure::Failed(message));
        }
        Ok(_) | Err(_) => {}
    }
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(&path, HOOK).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    println!("installed {}", path.display());
    Ok(())
}

/// Asks git, because a worktree keeps its hooks elsewhere and `core.hooksPath` may move them.
fn hooks_directory(root: &Path) -> Result<PathBuf, Failure> {
    let output =
        Command::new("git").args(["rev-parse", "--git-path", "hooks"]).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(root.join(String::from_utf8_lossy(&output.stdout).trim()))
        }
        Ok(_) | Err(_) => {
            Err(Failure::Failed("this is not a git repository, so it has no hooks".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_is_installed_once_and_never_over_another() {
        let root = std::env::temp_dir().join(format!("xtask-hook-{}", std::process::id()));
        fs::create_dir_all(&root).expect("the temporary directory can be written");
        let git = Command::new("git").args(["init", "--quiet"]).current_dir(&root).status();
        if git.is_ok_and(|status| status.success()) {
            let path = root.join(".git/hooks/pre-commit");
            install(&root).expect("the first time");
            install(&root).expect("a second time changes nothing");
            assert_eq!(fs::read_to_string(&path).expect("it was written"), HOOK);
            fs::write(&path, "#!/bin/sh\n").expect("it can be replaced");
            assert!(matches!(install(&root), Err(Failure::Failed(_))));
        }
        fs::remove_dir_all(&root).expect("it was made above");
    }
}
