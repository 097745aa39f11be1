//! The C library as C programs use it: compiled against the header, linked with the shared library,
//! run against real daemons. `cudele` then shows their results.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start a compiler, daemons and programs"
)]

#[allow(dead_code, reason = "the tests of the program, for which it was made, use all of it")]
#[path = "../it/cluster.rs"]
mod cluster;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cluster::{Cluster, text};

/// An installed C library and the programs that are compiled with it.
struct Toolbox {
    dir: tempfile::TempDir,
}

impl Toolbox {
    fn new() -> Self {
        let toolbox = Self { dir: tempfile::tempdir().unwrap() };
        // Cargo puts the libraries of a test beside it.
        let library = std::env::current_exe().unwrap().with_file_name("libcapi.so");
        let mut install = Command::new(env!("CARGO"));
        install.args(["run", "--quiet", "--package", "xtask", "--", "capi", "install"]);
        install.arg(toolbox.prefix()).arg("--shared").arg(library).current_dir(top());
        succeeds(&mut install);
        toolbox
    }

    fn prefix(&self) -> PathBuf {
        self.dir.path().join("prefix")
    }

    /// Compiles a program as strictly as compilers can. Its name is that of the source.
    fn compile(&self, source: &Path) -> PathBuf {
        let program = self.dir.path().join(source.file_stem().unwrap());
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        compiler.arg("-o").arg(&program).arg(source).args(self.flags()).arg("-pthread");
        succeeds(&mut compiler);
        program
    }

    /// The output of pkg-config, or its equivalent on a machine without it.
    fn flags(&self) -> Vec<String> {
        let mut asked = Command::new("pkg-config");
        asked.args(["--cflags", "--libs", "cudele"]);
        asked.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"));
        if let Ok(output) = asked.output() {
            assert!(output.status.success(), "pkg-config: {}", text(&output.stderr));
            return text(&output.stdout).split_whitespace().map(str::to_owned).collect();
        }
        println!("there is no pkg-config: cudele.pc is not tested");
        let place = |dir: &str| self.prefix().join(dir).display().to_string();
        vec![format!("-I{}", place("include")), format!("-L{}", place("lib")), "-lcudele".into()]
    }

    /// Runs a program on a cluster.
    fn run(&self, cluster: &Cluster, program: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        command.env_remove("CUDELE_MON").env("CUDELE_DIR", &cluster.dir);
        command.env("HOME", &cluster.home).env("CUDELE_STATE", cluster.home.join("state"));
        command.output().unwrap()
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

#[test]
fn a_c_program_decouples_creates_merges_and_lists() {
    let (cluster, toolbox) = (Cluster::up(), Toolbox::new());
    let job = toolbox.compile(&top().join("crates/capi/examples/job.c"));
    cluster.run(&["mkdir", "/scratch"]);
    let output = toolbox.run(&cluster, &job, &["/scratch/job", "2500"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "merged 2501 events, 2501 inodes, 0 rejected\nfound 2500 files with content\n"
    );
    assert_eq!(cluster.names("/scratch/job"), ["results", "summary"]);
    assert_eq!(cluster.names("/scratch/job/results").len(), 2500);
    assert_eq!(cluster.say(&["cp", "/scratch/job/results/file.0001234", "-"]), "result 1234\n");
    assert_eq!(cluster.say(&["cp", "/scratch/job/summary", "-"]), "2500 results\n");
    // A second run, over existing files: they are replaced, as the policy demands.
    let output = toolbox.run(&cluster, &job, &["/scratch/job", "2500"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // A directory that does not exist has no owner.
    let output = toolbox.run(&cluster, &job, &["/none/job", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("job: mkdir: /none/job: no such file or directory (ENOENT)"),
        "{said}"
    );
}

#[test]
fn every_call_of_the_c_library_does_what_the_header_says() {
    let (cluster, toolbox) = (Cluster::up(), Toolbox::new());
    let calls = toolbox.compile(&top().join("crates/cli/tests/capi/calls.c"));
    let parts = [
        "handles",
        "names",
        "attributes",
        "files",
        "threads",
        "policies",
        "subtree",
        "persist",
        "attach",
    ];
    for part in parts {
        let output = toolbox.run(&cluster, &calls, &[part]);
        assert!(output.status.success(), "{part}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("{part}: done\n"));
    }
    // The program's results, in the view of another client.
    assert_eq!(cluster.names("/names"), ["kept"]);
    assert_eq!(cluster.run(&["cp", "/files/large", "-"]).len(), 9_000_000);
    assert_eq!(cluster.names("/threads").len(), 400);
    assert_eq!(cluster.names("/subtree"), ["dir", "more", "own", "seen"]);
    assert_eq!(cluster.say(&["cp", "/persist/held", "-"]), "held by its journal");
}

#[test]
fn a_c_program_gets_an_error_without_a_cluster() {
    let (cluster, toolbox) = (Cluster::down(), Toolbox::new());
    let calls = toolbox.compile(&top().join("crates/cli/tests/capi/calls.c"));
    let output = toolbox.run(&cluster, &calls, &["names"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("start the cluster with `cudele up`"), "{said}");
}
