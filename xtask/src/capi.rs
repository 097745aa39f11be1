//! The C library in the layout that C programs expect: header, shared and static library, and a
//! file for pkg-config.
//!
//! Invariant: the installed directory can be moved as a whole to another place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::run::{Cargo, Failure, Outcome};

const USAGE: &str = "write `cargo xtask capi install PREFIX`";

/// The version of the interface: `CUDELE_ABI` in the header, and in the library's `soname`.
const ABI: &str = "0";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// System libraries that a static library of this project needs.
const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl";

/// Builds it and lays it out below a directory, or only lays out a shared library that was built
/// before (for the tests, which have one).
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    match arguments {
        ["install", prefix] => {
            let kinds = ["--lib", "--crate-type", "cdylib,staticlib"];
            Cargo::new(&["rustc", "--release", "-p", "capi"]).and(&kinds).run(root)?;
            let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
            let built = root.join(target.unwrap_or_else(|| "target".into())).join("release");
            let libraries = [built.join("libcapi.so"), built.join("libcapi.a")];
            let prefix = Path::new(prefix);
            lay_out(root, prefix, &libraries[0])?;
            copy(&libraries[1], &prefix.join("lib/libcudele.a"))?;
            said(prefix)
        }
        ["install", prefix, "--shared", library] => {
            lay_out(root, Path::new(prefix), Path::new(library))?;
            said(Path::new(prefix))
        }
        [] => Err(Failure::Usage(USAGE.to_owned())),
        [first, ..] => Err(Failure::Usage(format!("unexpected argument {first:?}: {USAGE}"))),
    }
}

fn said(prefix: &Path) -> Outcome {
    println!("the C library is in {}", prefix.display());
    Ok(())
}

/// Lays the header, a shared library that was built before and the file for pkg-config out below a
/// directory.
pub(crate) fn lay_out(root: &Path, prefix: &Path, shared: &Path) -> Outcome {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let packages = lib.join("pkgconfig");
    for dir in [&include, &packages] {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    copy(&root.join("crates/capi/include/cudele.h"), &include.join("cudele.h"))?;
    let full = format!("libcudele.so.{VERSION}");
    copy(shared, &lib.join(&full))?;
    link(&full, &lib.join(format!("libcudele.so.{ABI}")))?;
    link(&full, &lib.join("libcudele.so"))?;
    let package = packages.join("cudele.pc");
    fs::write(&package, description()).map_err(|error| failed(&package, &error))
}

/// The content of the file for pkg-config.
fn description() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         libdir=${{pcfiledir}}/..\n\
         \n\
         Name: cudele\n\
         Description: A file system whose subtrees choose their own consistency and durability\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lcudele\n\
         Libs.private: {PRIVATE}\n"
    )
}

/// Replaces a file even while programs have it open: a running program keeps its old library.
fn copy(from: &Path, to: &Path) -> Outcome {
    let new = to.with_extension("new");
    fs::copy(from, &new).map_err(|error| failed(from, &error))?;
    fs::rename(&new, to).map_err(|error| failed(to, &error))
}

fn link(target: &str, at: &Path) -> Outcome {
    match fs::remove_file(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(at, &error));
        }
        Ok(()) | Err(_) => {}
    }
    symlink(target, at).map_err(|error| failed(at, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot install {}: {error}", path.display()))
}
