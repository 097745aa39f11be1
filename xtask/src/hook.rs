//! The git hooks: checks that take well under a second, so that no one has a reason to switch them
//! off.
//!
//! `pre-commit` checks format and tidiness; `commit-msg` checks the message's form.
//!
//! Invariant: a hook that this program did not write is never overwritten.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Failure, Outcome};

/// Each hook's name and script.
const HOOKS: [(&str, &str); 2] = [
    (
        "pre-commit",
        "\
#!/bin/sh
# Installed by `cargo xtask hook`.
cargo fmt --all --check && cargo xtask tidy
",
    ),
    (
        "commit-msg",
        "\
#!/bin/sh
# Installed by `cargo xtask hook`.
cargo xtask commit-message \"$1\"
",
    ),
];

/// Writes the hooks into the repository's hooks directory.
pub(crate) fn install(root: &Path) -> Outcome {
    let directory = hooks_directory(root)?;
    for (name, script) in HOOKS {
        let path = directory.join(name);
        write(&path, script)?;
        println!("installed {}", path.display());
    }
    Ok(())
}

fn write(path: &Path, script: &str) -> Outcome {
    if fs::read_to_string(path).is_ok_and(|present| present != script) {
        let message = format!(
            "{} exists and was not installed by this command; add these lines to it:\n{script}",
            path.display()
        );
        return Err(Failure::Failed(message));
    }
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(path, script).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed)
}

/// Asks git: a worktree keeps its hooks in another directory, and `core.hooksPath` may move them.
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
    fn hooks_are_installed_once_and_never_over_another() {
        let root = std::env::temp_dir().join(format!("xtask-hook-{}", std::process::id()));
        fs::create_dir_all(&root).expect("the temporary directory can be written");
        let git = Command::new("git").args(["init", "--quiet"]).current_dir(&root).status();
        if git.is_ok_and(|status| status.success()) {
            install(&root).expect("the first time");
            install(&root).expect("a second time changes nothing");
            for (name, script) in HOOKS {
                let path = root.join(".git/hooks").join(name);
                assert_eq!(fs::read_to_string(&path).expect("it was written"), script);
                fs::write(&path, "#!/bin/sh\n").expect("it can be replaced");
                assert!(matches!(install(&root), Err(Failure::Failed(_))), "{name}");
                fs::write(&path, script).expect("it can be written back");
            }
        }
        fs::remove_dir_all(&root).expect("it was made above");
    }
}
