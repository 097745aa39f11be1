//! All suites with their cases.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::case::{Case, Reading};
use super::cell::Cell;
use super::options::Options;
use super::{ltp, xfstests};
use crate::run::Failure;

/// A suite: a program of another project, with its tests.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    /// The program's version, as it says.
    pub(super) version: String,
    pub(super) cases: Vec<Case>,
    pub(super) place: Place,
}

/// The cells that a suite is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// All.
    Any,
    /// All but jobs: its tests act as several users, which a job has not.
    NoJob,
    /// Directories that several mounts see: the suite makes its own mounts.
    Mounted,
}

impl Suite {
    /// Whether it says anything about the cell.
    pub(super) fn suits(&self, cell: &Cell) -> bool {
        match self.place {
            Place::Any => true,
            Place::NoJob => !cell.has_jobs(),
            Place::Mounted => cell.is_shared(),
        }
    }
}

/// The suites that Debian packages, under the names of the packages.
const PACKAGED: [&str; 3] = ["stress-ng", "fio", "dbench"];
/// Seconds of one stressor.
const STRESS_SECONDS: u32 = 5;
const STRESS_SECONDS_QUICK: u32 = 1;
/// The time of a stressor for the removal of its files.
const STRESS_SLACK: Duration = Duration::from_secs(300);
/// Seconds of one dbench.
const DBENCH_SECONDS: u32 = 20;
const DBENCH_SECONDS_QUICK: u32 = 5;
const DBENCH_SLACK: Duration = Duration::from_secs(120);
const FIO_TIME_MAX: Duration = Duration::from_secs(300);
const FSX_TIME_MAX: Duration = Duration::from_secs(300);
const PJDFSTEST_TIME_MAX: Duration = Duration::from_secs(600);

/// Stressors that use no file of the directory.
const ELSEWHERE: [&str; 6] = ["bind-mount", "binderfs", "eventfd", "procfs", "rawdev", "ioprio"];
/// Stressors of other classes that use files.
const MORE: [&str; 5] = ["chdir", "getdent", "mmap", "mmapfork", "sendfile"];
/// The stressors of a short run: names, attributes, content, locks and removal.
const QUICK: [&str; 20] = [
    "access",
    "aio",
    "chmod",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "fallocate",
    "fcntl",
    "flock",
    "fpunch",
    "hdd",
    "iomix",
    "link",
    "lockf",
    "mmap",
    "rename",
    "seek",
    "utime",
    "xattr",
];

/// The suites that the options name.
///
/// # Errors
/// A suite is unknown, or its program is missing.
pub(super) fn suites(root: &Path, options: &Options) -> Result<Vec<Suite>, Failure> {
    let mut all = packaged(options)?;
    if !options.quick {
        all.push(fsx(root));
        all.extend(options.pjdfstest.as_deref().map(pjdfstest).transpose()?);
        if let Some(ltp) = &options.ltp {
            all.extend(ltp::suites(ltp)?);
        }
        all.extend(options.xfstests.as_deref().map(xfstests::suite).transpose()?);
    }
    if let Some(name) = options.suites.iter().find(|name| !all.iter().any(|it| it.name == **name)) {
        let others = all.iter().map(|suite| suite.name.as_str());
        let others = others.filter(|name| !PACKAGED.contains(name));
        let known = PACKAGED.into_iter().chain(others).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!(
            "there is no suite {name:?}; the suites: {known}; --ltp, --xfstests and --pjdfstest \
             DIR add more"
        )));
    }
    all.retain(|suite| options.suites.is_empty() || options.suites.contains(&suite.name));
    for suite in &mut all {
        let wanted = |case: &Case| options.cases.iter().any(|part| case.name.contains(part));
        suite.cases.retain(|case| options.cases.is_empty() || wanted(case));
    }
    Ok(all)
}

/// The names of suites and cases.
pub(super) fn listing(suites: &[Suite]) -> String {
    let lines = |suite: &Suite| {
        let line = |case: &Case| format!("{} {}\n", suite.name, case.name);
        suite.cases.iter().map(line).collect::<String>()
    };
    suites.iter().map(lines).collect()
}

/// The suites that Debian packages.
fn packaged(options: &Options) -> Result<Vec<Suite>, Failure> {
    let wants = |name: &&&str| {
        options.suites.is_empty() || options.suites.iter().any(|suite| suite == *name)
    };
    let mut all = Vec::new();
    for name in PACKAGED.iter().filter(wants) {
        all.push(match *name {
            "stress-ng" => stress(options.quick)?,
            "fio" => fio(options.quick)?,
            _ => dbench(options.quick)?,
        });
    }
    Ok(all)
}

/// The output of a program.
fn said(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments).output().map_err(|error| {
        let install = "apt-get install stress-ng fio dbench";
        Failure::Failed(format!("cannot start {program}: {error}; {install}"))
    })?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn stress(quick: bool) -> Result<Suite, Failure> {
    let version = first_line(&said("stress-ng", &["--version"])?);
    let mut names: Vec<String> = MORE.iter().map(ToString::to_string).collect();
    for class in ["filesystem?", "io?"] {
        // "class 'io' stressors: aio aiol ..."
        let line = said("stress-ng", &["--class", class])?;
        let list = line.rsplit(':').next().unwrap_or_default();
        names.extend(list.split_whitespace().map(str::to_owned));
    }
    names.sort();
    names.dedup();
    names.retain(|name| !ELSEWHERE.contains(&name.as_str()));
    names.retain(|name| !quick || QUICK.contains(&name.as_str()));
    let seconds = if quick { STRESS_SECONDS_QUICK } else { STRESS_SECONDS };
    let case = |name: &String| {
        // Small files: the test is of operations, not of bytes.
        let size = match name.as_str() {
            "hdd" => "--hdd-bytes 8m",
            "mmap" => "--mmap-file --mmap-bytes 4m",
            "iomix" => "--iomix-bytes 8m",
            "copy-file" => "--copy-file-bytes 128m",
            "seek" => "--seek-size 4m",
            "readahead" => "--readahead-bytes 8m",
            "revio" => "--revio-bytes 8m",
            "sync-file" => "--sync-file-bytes 4m",
            "fallocate" => "--fallocate-bytes 8m",
            _ => "",
        };
        let script = format!(
            "cd \"$1\"; stress-ng --temp-path \"$1\" --{name} 2 {size} --timeout {seconds}s \
             --verify --oomable --no-rand-seed --metrics-brief"
        );
        let time_max = Duration::from_secs(seconds.into()) + STRESS_SLACK;
        Case { name: name.clone(), script, time_max, reading: Reading::Stress }
    };
    let cases = names.iter().map(case).collect();
    Ok(Suite { name: "stress-ng".into(), version, cases, place: Place::Any })
}

fn fio(quick: bool) -> Result<Suite, Failure> {
    let version = first_line(&said("fio", &["--version"])?);
    let engines: &[&str] = if quick {
        &["psync", "mmap", "libaio"]
    } else {
        &["psync", "pvsync2", "mmap", "libaio", "io_uring", "posixaio", "splice"]
    };
    let patterns: &[&str] = if quick { &["randrw"] } else { &["write", "randwrite", "randrw"] };
    let mut cases = Vec::new();
    for engine in engines {
        for pattern in patterns {
            for direct in [0, 1] {
                // A mapping has no direct form, and `splice` reads through pipes.
                if direct == 1 && (quick || matches!(*engine, "mmap" | "splice")) {
                    continue;
                }
                // Mappings are written in pages, direct writes in blocks.
                let least = if direct == 1 || *engine == "mmap" { "4k" } else { "512" };
                let script = format!(
                    "fio --directory=\"$1\" --name=f --ioengine={engine} --rw={pattern} --size=8m \
                     --bsrange={least}-64k --numjobs=2 --iodepth=4 --direct={direct} --fsync=64 \
                     --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 \
                     --randseed=7 --aux-path=\"$2\""
                );
                let direct = if direct == 1 { ".direct" } else { "" };
                cases.push(Case {
                    name: format!("{engine}.{pattern}{direct}"),
                    script,
                    time_max: FIO_TIME_MAX,
                    reading: Reading::Code,
                });
            }
        }
    }
    Ok(Suite { name: "fio".into(), version, cases, place: Place::Any })
}

fn dbench(quick: bool) -> Result<Suite, Failure> {
    let version = first_line(&said("dbench", &["--help"])?);
    let version = version.split(" - ").next().unwrap_or_default().to_owned();
    let seconds = if quick { DBENCH_SECONDS_QUICK } else { DBENCH_SECONDS };
    let kinds: &[(&str, &str)] = if quick {
        &[("4", "4")]
    } else {
        &[("1", "1"), ("8", "8"), ("4.sync", "-s 4"), ("4.sync-dir", "-S 4"), ("4.fsync", "-F 4")]
    };
    let case = |(name, options): &(&str, &str)| Case {
        name: (*name).into(),
        script: format!(
            "dbench -c /usr/share/dbench/client.txt -D \"$1\" -t {seconds} {options}; \
             rm -rf \"$1/clients\"; test -z \"$(ls -A \"$1\")\""
        ),
        time_max: Duration::from_secs(seconds.into()) + DBENCH_SLACK,
        reading: Reading::Code,
    };
    let cases = kinds.iter().map(case).collect();
    Ok(Suite { name: "dbench".into(), version, cases, place: Place::Any })
}

/// fsx with the settings of the tests of the mount, and other seeds.
fn fsx(root: &Path) -> Suite {
    let program = crate::tools::target(root).join("tools/bin/fsx").display().to_string();
    let weights = "[weights]\\nclose_open = 2\\nread = 10\\nwrite = 10\\nmapread = 10\\n\
                   mapwrite = 10\\ninvalidate = 2\\ntruncate = 5\\nfsync = 0.2\\nfdatasync = 0.2\\n\
                   posix_fallocate = 2\\npunch_hole = 2\\nsendfile = 2\\nposix_fadvise = 1\\n\
                   copy_file_range = 2\\n";
    let case = |seed: u32| {
        let (length, size) =
            if seed.is_multiple_of(2) { (16_384, 6_000) } else { (9_437_184, 262_144) };
        Case {
            name: format!("seed{seed}"),
            script: format!(
                "test -x '{program}' || {{ echo 'missing: cargo xtask tools'; exit 1; }}\n\
                 printf 'flen = {length}\\n[opsize]\\nmax = {size}\\n{weights}' >\"$2/settings\"\n\
                 '{program}' -N 20000 -S {seed} -P \"$2\" -f \"$2/settings\" \"$1/file\""
            ),
            time_max: FSX_TIME_MAX,
            reading: Reading::Code,
        }
    };
    let cases = (101..107).map(case).collect();
    Suite { name: "fsx".into(), version: "0.3.2".into(), cases, place: Place::Any }
}

/// The first pjdfstest, with tests in shell: a case for each.
fn pjdfstest(at: &Path) -> Result<Suite, Failure> {
    if !at.join("pjdfstest").is_file() {
        let at = at.display();
        return Err(Failure::Failed(format!(
            "cannot use --pjdfstest {at}: the program pjdfstest is not built there"
        )));
    }
    let mut scripts = Vec::new();
    let groups = std::fs::read_dir(at.join("tests")).into_iter().flatten().flatten();
    for group in groups {
        let tests = std::fs::read_dir(group.path()).into_iter().flatten().flatten();
        scripts.extend(
            tests
                .map(|test| test.path())
                .filter(|test| test.extension().is_some_and(|extension| extension == "t")),
        );
    }
    scripts.sort();
    let case = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(at.join("tests")).unwrap_or(path).with_extension("");
        Case {
            name: name.display().to_string(),
            script: format!("cd \"$1\"; prove -v '{}'", path.display()),
            time_max: PJDFSTEST_TIME_MAX,
            reading: Reading::Prove,
        }
    };
    let cases = scripts.iter().map(case).collect();
    let version = ltp::revision(at);
    Ok(Suite { name: "pjdfstest-sh".into(), version, cases, place: Place::NoJob })
}
