//! Packages for Debian and for systems with RPM.
//!
//! The files are laid out below `target/package/tree`; `crates/cli/Cargo.toml` says where each of
//! them is installed. `cargo-deb` and `cargo-generate-rpm` write the packages.
//!
//! Invariant: a package has no file that this chore does not lay out, except those of
//! `contrib/package`.

mod trial;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Cargo, Failure, Outcome};
use crate::{capi, tools};

const USAGE: &str = "write `cargo xtask package [DIRECTORY]`, or `cargo xtask package test`";

/// The programs of the packages.
const PROGRAMS: [&str; 2] = ["cudele", "cudele-lab"];
/// The names under which `mount(8)` looks for the program.
const HELPERS: [&str; 2] = ["mount.cudele", "mount.fuse.cudele"];
/// Shells, with the file names of their completions.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "cudele"), ("zsh", "_cudele"), ("fish", "cudele.fish")];
/// Files for other programs, with their names in the package.
const SHARED: [(&str, &str); 3] = [
    ("prometheus/prometheus.yml", "prometheus.yml"),
    ("prometheus/rules.yml", "prometheus-rules.yml"),
    ("grafana/cudele.json", "grafana-dashboard.json"),
];
/// The hooks of Slurm, which all are in one directory.
const SLURM: [&str; 5] = ["burst_buffer.lua", "burst_buffer.conf", "prolog", "epilog", "node.sh"];
const UNITS: [&str; 3] = ["cudele-mon.service", "cudele-mds@.service", "cudele-standby@.service"];

/// The profile that the programs are built with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Release,
    /// For tests of the package: the build machine has built these programs already.
    Dev,
}

/// The two packages.
#[derive(Debug)]
struct Packages {
    deb: PathBuf,
    rpm: PathBuf,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    match arguments {
        ["test"] => {
            if std::env::var("CUDELE_TEST_PACKAGE").is_ok_and(|wish| wish == "skip") {
                println!("the test of the packages is left out, as CUDELE_TEST_PACKAGE=skip says");
                return Ok(());
            }
            trial::check_tools()?;
            let place = place(root);
            let packages = make(root, &place.join("dev"), Profile::Dev)?;
            trial::run(&place, &packages, &root.join("contrib/package/boot"))
        }
        [] => report(&make(root, &place(root), Profile::Release)?),
        [directory] => report(&make(root, Path::new(directory), Profile::Release)?),
        [_, second, ..] => Err(Failure::Usage(format!("unexpected argument {second:?}: {USAGE}"))),
    }
}

fn report(packages: &Packages) -> Outcome {
    println!("{}\n{}", packages.deb.display(), packages.rpm.display());
    Ok(())
}

/// The directory of the layout. The manifest names it, so another build directory does not move it.
fn place(root: &Path) -> PathBuf {
    root.join("target/package")
}

/// Builds the programs, and both packages into a directory.
fn make(root: &Path, into: &Path, profile: Profile) -> Result<Packages, Failure> {
    let built = build(root, profile)?;
    let tree = place(root).join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(|error| failed(&tree, &error))?;
    }
    lay_out(root, &built, &tree, profile)?;
    fs::create_dir_all(into).map_err(|error| failed(into, &error))?;
    let (deb, rpm) = (into.join("cudele.deb.new"), into.join("cudele.rpm.new"));
    let of_root = |mut command: Command| run_in(root, &mut command);
    let mut command = Command::new(tools::packager(root, "cargo-deb")?);
    command.args(["-p", "cli", "--no-build", "--no-strip", "--quiet", "--output"]).arg(&deb);
    command.stdout(Stdio::null());
    if profile == Profile::Dev {
        // Half a minute of compression tests nothing.
        command.arg("--fast");
    }
    of_root(command)?;
    let mut command = Command::new(tools::packager(root, "cargo-generate-rpm")?);
    command.args(["generate-rpm", "-p", "crates/cli", "--output"]).arg(&rpm);
    if profile == Profile::Dev {
        command.args(["--payload-compress", "none"]);
    }
    of_root(command)?;
    let version = env!("CARGO_PKG_VERSION");
    let (debian, arch) = match std::env::consts::ARCH {
        "x86_64" => ("amd64", "x86_64"),
        "aarch64" => ("arm64", "aarch64"),
        other => (other, other),
    };
    let packages = Packages {
        deb: into.join(format!("cudele_{version}-1_{debian}.deb")),
        rpm: into.join(format!("cudele-{version}-1.{arch}.rpm")),
    };
    for (new, named) in [(&deb, &packages.deb), (&rpm, &packages.rpm)] {
        fs::rename(new, named).map_err(|error| failed(new, &error))?;
    }
    Ok(packages)
}

/// Builds the programs and libraries. Returns the directory that they are in.
fn build(root: &Path, profile: Profile) -> Result<PathBuf, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = root.join(target.unwrap_or_else(|| "target".into()));
    if profile == Profile::Dev {
        // The features of the whole workspace are those of the tests.
        Cargo::new(&["build", "--quiet", "--workspace"]).run(root)?;
        return Ok(target.join("debug"));
    }
    let crates = ["-p", "cli", "-p", "lab", "-p", "preload", "-p", "capi"];
    Cargo::new(&["build", "--release"]).and(&crates).run(root)?;
    Ok(target.join("release"))
}

/// Lays out the files of the packages.
fn lay_out(root: &Path, built: &Path, tree: &Path, profile: Profile) -> Outcome {
    let from = root.join("contrib/package");
    for program in PROGRAMS {
        install(&built.join(program), &tree.join("usr/bin").join(program))?;
    }
    let preload = tree.join("usr/lib/cudele/libcudele-preload.so");
    install(&built.join("libpreload.so"), &preload)?;
    let library = built.join("libcapi.so");
    capi::lay_out(root, &tree.join("capi"), &library)?;
    if profile == Profile::Release {
        let programs = PROGRAMS.map(|program| tree.join("usr/bin").join(program));
        for file in programs.iter().chain([&preload]) {
            run_in(root, Command::new("strip").arg("--strip-debug").arg(file))?;
        }
    }
    for helper in HELPERS {
        let link = tree.join("usr/sbin").join(helper);
        make_parent(&link)?;
        symlink("../bin/cudele", &link).map_err(|error| failed(&link, &error))?;
    }
    for unit in UNITS {
        let to = tree.join("usr/lib/systemd/system").join(unit);
        install(&from.join("systemd").join(unit), &to)?;
    }
    let hardening = tree.join("usr/lib/systemd/system/cudele-.service.d/hardening.conf");
    install(&from.join("systemd/hardening.conf"), &hardening)?;
    install(&from.join("systemd/sysusers.conf"), &tree.join("usr/lib/sysusers.d/cudele.conf"))?;
    install(&from.join("mount.cudele.8"), &tree.join("usr/share/man/man8/mount.cudele.8"))?;
    for (file, name) in SHARED {
        install(&root.join("contrib").join(file), &tree.join("usr/share/cudele").join(name))?;
    }
    for file in SLURM {
        install(&root.join("contrib/slurm").join(file), &tree.join("slurm").join(file))?;
    }
    for page in ["README.md", "CHANGELOG.md"] {
        install(&root.join(page), &tree.join("usr/share/doc/cudele").join(page))?;
    }
    let program = tree.join("usr/bin/cudele");
    run_in(root, Command::new(&program).arg("man").arg(tree.join("usr/share/man/man1")))?;
    for (shell, file) in COMPLETIONS {
        let to = tree.join("completions").join(file);
        make_parent(&to)?;
        let script = Command::new(&program).args(["completions", shell]).output();
        let script = script.map_err(|error| failed(&program, &error))?;
        fs::write(&to, script.stdout).map_err(|error| failed(&to, &error))?;
    }
    Ok(())
}

fn install(from: &Path, to: &Path) -> Outcome {
    make_parent(to)?;
    fs::copy(from, to).map(drop).map_err(|error| failed(from, &error))
}

fn make_parent(path: &Path) -> Outcome {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| failed(parent, &error))
}

fn run_in(dir: &Path, command: &mut Command) -> Outcome {
    match command.current_dir(dir).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed(format!("{command:?} failed; its output is above"))),
        Err(error) => Err(Failure::Failed(format!("cannot start {command:?}: {error}"))),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}
