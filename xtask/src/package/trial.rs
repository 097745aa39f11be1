//! The test of the packages: an installation into a fresh Debian. The systemd of that Debian runs
//! in namespaces of its own, and starts a cluster as the units say.
//!
//! Invariant: a trial changes nothing but its own directory, and ends all processes that it
//! started.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Packages, failed, run_in};
use crate::run::{Failure, Outcome};

/// Programs of Debian packages that the trial needs.
const TOOLS: [&str; 4] = ["debootstrap", "rpm", "unshare", "nsenter"];
/// The version of Debian, and its packages besides the smallest system.
const SUITE: &str = "bookworm";
const INCLUDED: &str = "--include=systemd,systemd-sysv,fuse3,procps";
/// How long a condition may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The places that a running system changes, and those with files that stay by design: the cluster,
/// its user, and the lists of the package manager.
const CHANGING: [&str; 11] = [
    "etc/group",
    "etc/gshadow",
    "etc/ld.so.cache",
    "etc/machine-id",
    "etc/passwd",
    "etc/shadow",
    "etc/subgid",
    "etc/subuid",
    "var/cache",
    "var/lib",
    "var/log",
];

/// Steps in the fresh system: a title, and a script that must succeed.
const STEPS: [(&str, &str); 10] = [
    ("the package is installed", "dpkg -i /srv/cudele.deb && cudele --version"),
    (
        "the units are verified",
        "systemd-analyze verify --man=no /lib/systemd/system/cudele-mon.service \
         /lib/systemd/system/cudele-mds@.service /lib/systemd/system/cudele-standby@.service \
         && systemd-analyze security --no-pager --offline=yes --threshold=20 \
         cudele-mon.service cudele-mds@0.service cudele-standby@1.service",
    ),
    (
        "a cluster starts as they say",
        "systemctl enable --now cudele-mon cudele-mds@0 cudele-standby@1 \
         && printf 'dir = \"/var/lib/cudele\"\\n' >> /etc/cudele/cudele.toml \
         && until cudele status | grep -q 'mds.0 *active'; do sleep 0.05; done \
         && [ \"$(ps -o user= -C cudele | sort -u)\" = cudele ] \
         && for unit in cudele-mon cudele-mds@0 cudele-standby@1; do \
         grep -Eq '^CapBnd:\\s0+$' /proc/$(systemctl show -P MainPID $unit)/status || exit 1; done \
         && [ \"$(stat -c %U:%G:%a /var/lib/cudele)\" = cudele:cudele:710 ]",
    ),
    (
        "a job runs and is merged",
        "cudele ingest --policy batchfs /usr/share/doc /doc \
         && cudele run --policy batchfs -C /job -- sh -c 'mkdir made && echo content > made/file' \
         && [ \"$(cudele find /doc | wc -l)\" = \"$(find /usr/share/doc | wc -l)\" ] \
         && cudele ls /job/made | grep -q file",
    ),
    (
        "members of the group connect, and nobody else",
        "useradd ada && useradd eve && usermod -aG cudele ada \
         && runuser -u ada -- cudele ls / | grep -q doc \
         && ! runuser -u eve -- cudele ls / 2>/dev/null",
    ),
    (
        "a unit mounts it",
        "printf '[Mount]\\nWhat=/var/lib/cudele\\nWhere=/mnt\\nType=cudele\\nOptions=allow_other\\n' \
         > /etc/systemd/system/mnt.mount \
         && systemctl daemon-reload && systemctl start mnt.mount \
         && cmp /mnt/job/made/file /dev/stdin <<< content \
         && systemctl stop mnt.mount && rm /etc/systemd/system/mnt.mount",
    ),
    (
        "a standby takes over from a killed server, and its unit starts another standby",
        "killed=$(systemctl show -P MainPID cudele-mds@0) && kill -9 $killed \
         && until systemctl show -P MainPID cudele-mds@0 | grep -qv -e \"^$killed$\" -e '^0$'; \
         do sleep 0.05; done \
         && until cudele status | grep -q 'mds.0 *active'; do sleep 0.05; done \
         && cudele ls /job/made | grep -q file",
    ),
    (
        "the daemons are restarted one by one while a client works",
        "echo 0 > /tmp/made; (n=0; while [ ! -e /tmp/end ]; do n=$((n+1)); \
         cudele mkdir /job/made/$n || exit 1; echo $n > /tmp/made; done) & \
         for unit in cudele-standby@1 cudele-mds@0 cudele-mon cudele-mds@0; do \
         systemctl restart $unit \
         && until cudele status | grep -q 'mds.0 *active'; do sleep 0.05; done \
         && seen=$(cat /tmp/made) \
         && until [ $(cat /tmp/made) -gt $((seen+1)) ]; do kill -0 $! && sleep 0.05 || exit 1; done \
         || exit 1; done \
         && touch /tmp/end && wait $! \
         && [ $(cudele ls /job/made | wc -l) = $(($(cat /tmp/made)+1)) ] \
         && [ $(pgrep -cf '[c]udele mds') = 2 ]",
    ),
    (
        "the cluster stops cleanly",
        "systemctl stop cudele-standby@1 cudele-mds@0 cudele-mon \
         && runuser -u cudele -- cudele fsck --dir /var/lib/cudele \
         && systemctl start cudele-mon cudele-mds@0 \
         && until cudele ls /job/made | grep -q file; do sleep 0.05; done",
    ),
    (
        "the package is removed, the cluster stays",
        "dpkg --purge cudele && ! pgrep -x cudele && test -e /var/lib/cudele/cudele-cluster \
         && rm /srv/cudele.deb",
    ),
];

/// Fails, with the remedy, if this machine cannot run the trial.
pub(super) fn check_tools() -> Outcome {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let missing: Vec<&str> = TOOLS.iter().filter(|tool| !has(tool)).copied().collect();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
    if missing.is_empty() && is_root {
        return Ok(());
    }
    let needs = if is_root { missing.join(", ") } else { "root's rights".to_owned() };
    Err(Failure::Failed(format!(
        "the test of the packages needs {needs} (Debian: apt-get install debootstrap rpm \
         util-linux); CUDELE_TEST_PACKAGE=skip leaves it out"
    )))
}

pub(super) fn run(place: &Path, packages: &Packages, boot: &Path) -> Outcome {
    let base = place.join(format!("{SUITE}-base"));
    if !base.exists() {
        make_base(place, &base)?;
    }
    check_rpm(place, packages)?;
    let dirs = ["upper", "work", "root"].map(|name| place.join("trial").join(name));
    let trial = place.join("trial");
    if trial.exists() {
        fs::remove_dir_all(&trial).map_err(|error| failed(&trial, &error))?;
    }
    for dir in &dirs {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    let system = System::boot(boot, &base, &dirs)?;
    let before = changed(&dirs[0])?;
    // An overlay does not see files that appear in its upper directory from outside.
    system.copy_in(&packages.deb, "/srv/cudele.deb")?;
    for (title, script) in STEPS {
        let start = Instant::now();
        system.shell(title, script)?;
        println!("{title}: {:.1} s", start.elapsed().as_secs_f64());
    }
    let left: Vec<_> = changed(&dirs[0])?.difference(&before).cloned().collect();
    drop(system);
    if left.is_empty() {
        return fs::remove_dir_all(&trial).map_err(|error| failed(&trial, &error));
    }
    Err(Failure::Failed(format!("the removed package left {left:?}")))
}

/// Makes a Debian, whole or not at all.
fn make_base(place: &Path, base: &Path) -> Outcome {
    println!("making a Debian {SUITE}, once");
    let new = base.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(|error| failed(&new, &error))?;
    }
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", INCLUDED, SUITE]).arg(&new).stdout(Stdio::null());
    run_in(place, &mut command)?;
    fs::rename(&new, base).map_err(|error| failed(&new, &error))
}

/// The RPM package has the files of the Debian package, and installs into an empty root.
fn check_rpm(place: &Path, packages: &Packages) -> Outcome {
    let list = |program: &str, arguments: &[&str], package: &Path| {
        let listed = Command::new(program).args(arguments).arg(package).output();
        let listed = listed.map_err(|error| failed(Path::new(program), &error))?;
        Ok(String::from_utf8_lossy(&listed.stdout).into_owned())
    };
    let deb = list("dpkg-deb", &["--fsys-tarfile"], &packages.deb).map(drop).and_then(|()| {
        let text = list("dpkg-deb", &["--contents"], &packages.deb)?;
        let paths = text.lines().filter(|line| !line.starts_with('d'));
        let path = |line: &str| line.split_whitespace().nth(5).map(str::to_owned);
        Ok(paths.filter_map(path).map(|path| known_as(&path)).collect::<BTreeSet<String>>())
    })?;
    let text = list("rpm", &["--query", "--list", "--package"], &packages.rpm)?;
    let rpm: BTreeSet<String> = text.lines().map(known_as).collect();
    let missing: Vec<_> = deb.difference(&rpm).collect();
    if !missing.is_empty() {
        return Err(Failure::Failed(format!("the RPM package lacks {missing:?}")));
    }
    let root = place.join("rpm-root");
    if root.exists() {
        fs::remove_dir_all(&root).map_err(|error| failed(&root, &error))?;
    }
    fs::create_dir_all(&root).map_err(|error| failed(&root, &error))?;
    let mut install = Command::new("rpm");
    install.arg("--root").arg(&root).args([
        "--install",
        "--nodeps",
        "--noscripts",
        "--nosignature",
    ]);
    run_in(place, install.arg(&packages.rpm))?;
    let mut verify = Command::new("rpm");
    verify.arg("--root").arg(&root).args(["--verify", "--nodeps", "--noscripts", "cudele"]);
    // The owner of the files is root in the package, and here, too.
    run_in(place, &mut verify)?;
    println!("the RPM package has the same {} files, and installs", deb.len());
    fs::remove_dir_all(&root).map_err(|error| failed(&root, &error))
}

/// The name of a file of a package, without the parts in which the two systems differ: the place
/// of libraries and completions, the name of the licence, and compression.
fn known_as(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".gz");
    if name == "copyright" { "LICENSE".to_owned() } else { name.to_owned() }
}

/// The files in the upper directory of an overlay, but for those that a system changes itself.
fn changed(upper: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let (mut found, mut dirs) = (BTreeSet::new(), vec![upper.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(|error| failed(&dir, &error))? {
            let path = entry.map_err(|error| failed(&dir, &error))?.path();
            let name = path.strip_prefix(upper).unwrap_or(&path);
            // `useradd` keeps the version before: `passwd-`.
            let known = Path::new(name.to_str().unwrap_or_default().trim_end_matches('-'));
            if CHANGING.iter().any(|place| known.starts_with(place)) {
                continue;
            }
            let kind = fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() || kind.is_symlink() {
                found.insert(name.to_owned());
            }
        }
    }
    Ok(found)
}

/// A system in namespaces of its own. Dropping it ends its processes.
struct System {
    unshared: Child,
    /// Its init process.
    init: String,
}

impl System {
    fn boot(boot: &Path, base: &Path, dirs: &[PathBuf; 3]) -> Result<Self, Failure> {
        let kinds = ["--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup"];
        let mut command = Command::new("unshare");
        command.args(kinds).args(["--kill-child", "--"]).arg(boot).arg(base).args(dirs);
        let unshared = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let unshared = unshared.map_err(|error| failed(boot, &error))?;
        let children = format!("/proc/{0}/task/{0}/children", unshared.id());
        let mut system = Self { unshared, init: String::new() };
        let start = Instant::now();
        while !system.is_ready() {
            let text = fs::read_to_string(&children).unwrap_or_default();
            system.init = text.trim().to_owned();
            if start.elapsed() > PATIENCE || !matches!(system.unshared.try_wait(), Ok(None)) {
                return Err(Failure::Failed("systemd does not start in the fresh Debian".into()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(system)
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.init, "--"]);
        command
    }

    fn is_ready(&self) -> bool {
        let mut command = self.inside();
        command.args(["systemctl", "is-system-running"]).stderr(Stdio::null());
        let state = if self.init.is_empty() { return false } else { command.output() };
        state.is_ok_and(|state| [&b"running\n"[..], b"degraded\n"].contains(&&state.stdout[..]))
    }

    fn copy_in(&self, from: &Path, to: &str) -> Outcome {
        let file = fs::File::open(from).map_err(|error| failed(from, &error))?;
        let mut command = self.inside();
        command.args(["sh", "-c", "cat > \"$0\"", to]).stdin(file);
        run_in(Path::new("/"), &mut command)
    }

    /// Runs a script in the system.
    fn shell(&self, title: &str, script: &str) -> Outcome {
        let mut command = self.inside();
        let seconds = PATIENCE.as_secs().to_string();
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin", "HOME=/root", "timeout", &seconds]);
        command.args(["bash", "-o", "pipefail", "-c", script]).stdin(Stdio::null());
        let output = command.output().map_err(|error| failed(Path::new("nsenter"), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let mut journal = self.inside();
        journal.args(["journalctl", "--no-pager", "--lines=60", "--unit=cudele-*"]);
        let journal = journal.output().map(|output| output.stdout).unwrap_or_default();
        Err(Failure::Failed(format!(
            "{title}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&said),
            String::from_utf8_lossy(&journal)
        )))
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // The end of the init process ends all processes of the namespace.
        let _ = self.unshared.kill();
        let _ = self.unshared.wait();
    }
}
