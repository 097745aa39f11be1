//! The Python package: tested in a virtual environment, and built as a wheel.
//!
//! The tests of every change run the extension that cargo has built for the tests of the program,
//! in the layout of a wheel; `test all` builds the wheel itself, installs it, and tests it with
//! popular libraries. `crates/pyapi/requirements.txt` and its neighbours pin the packages from
//! PyPI.
//!
//! Invariant: Python's path has no directory of the source tree, so the tests see the packed files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Cargo, Failure, Outcome};

const USAGE: &str = "write `cargo xtask python [OPTION OF PYTEST]...`, \
                     `cargo xtask python all [OPTION OF PYTEST]...` or \
                     `cargo xtask python wheel DIRECTORY`";

/// The Python to use, if not the `python3` of the path.
const PYTHON: &str = "CUDELE_PYTHON";

/// Where the package is.
const PACKAGE: &str = "crates/pyapi";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    match arguments {
        // Called by the test in `crates/cli/tests/python`.
        ["run", library, program, options @ ..] => {
            let place = Place::new(root, "requirements");
            place.install()?;
            let site = lay_out(&place, Path::new(library))?;
            place.pytest(program, options, Some(&site))
        }
        ["all", options @ ..] => all(root, options),
        ["wheel", directory] => {
            let place = Place::new(root, "requirements-wheel");
            place.install()?;
            wheel(&place, &root.join(directory)).map(|path| println!("built {}", path.display()))
        }
        ["wheel"] => Err(Failure::Usage(USAGE.to_owned())),
        options => tests(&options.join(" ")).run(root),
    }
}

/// The tests of every change. Of the whole workspace, because the features of one crate alone would
/// need another build.
pub(crate) fn tests(options: &str) -> Cargo {
    let command = ["test", "--quiet", "--workspace", "--test", "python", "--", "--ignored"];
    let command = Cargo::new(&command).and(&["--nocapture"]);
    if options.is_empty() { command } else { command.with("CUDELE_PYTEST", options) }
}

fn all(root: &Path, options: &[&str]) -> Outcome {
    let place = Place::new(root, "requirements-all");
    place.install()?;
    Cargo::new(&["build", "--quiet", "--release", "-p", "cli"]).run(root)?;
    let built = wheel(&place, &place.target.join("python/wheels"))?;
    let mut pip = place.program("python");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall"]);
    start(pip.arg(built))?;
    let program = place.target.join("release/cudele");
    place.pytest(&program.display().to_string(), options, None)
}

/// Where everything is.
struct Place {
    root: PathBuf,
    target: PathBuf,
    /// The packages of the environment: a requirements file of the package without its ending.
    requirements: &'static str,
    environment: PathBuf,
}

impl Place {
    fn new(root: &Path, requirements: &'static str) -> Self {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = root.join(target.unwrap_or_else(|| "target".into()));
        let environment = target.join("python").join(requirements);
        Self { root: root.to_owned(), target, requirements, environment }
    }

    /// A program of the virtual environment.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.environment.join("bin").join(name));
        command.current_dir(self.root.join(PACKAGE));
        command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env_remove("PYTHONPATH");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Makes the virtual environment, unless a complete one exists.
    fn install(&self) -> Outcome {
        let package = self.root.join(PACKAGE);
        let wanted = package.join(self.requirements).with_extension("txt");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let python = env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
        // The other files are built upon this one.
        let text =
            format!("# {python}\n{}{}", read(&package.join("requirements.txt")), read(&wanted));
        let stamp = self.environment.join("installed");
        if read(&stamp) == text {
            return Ok(());
        }
        let mut made = Command::new(&python);
        made.args(["-m", "venv", "--clear"]).arg(&self.environment);
        start(&mut made).map_err(|failure| match failure {
            Failure::Failed(message) => Failure::Failed(format!(
                "{message}\nthe Python package needs Python 3.9 or newer with venv: apt-get \
                 install python3-venv, or name another one in {PYTHON}"
            )),
            other @ (Failure::Usage(_) | Failure::Reported) => other,
        })?;
        println!("installing what {} names, once", wanted.display());
        let mut pip = self.program("python");
        start(pip.args(["-m", "pip", "install", "--quiet", "-r"]).arg(&wanted))?;
        write(&stamp, &text)
    }

    fn pytest(&self, program: &str, options: &[&str], site: Option<&Path>) -> Outcome {
        let mut pytest = self.program("python");
        pytest.args(["-m", "pytest", "--quiet"]).args(options).env("CUDELE_PROGRAM", program);
        if let Some(site) = site {
            pytest.env("PYTHONPATH", site);
        }
        start(&mut pytest)
    }
}

/// Lays the package out as it is when it is installed.
fn lay_out(place: &Place, library: &Path) -> Result<PathBuf, Failure> {
    let site = place.target.join("python/site");
    match fs::remove_dir_all(&site) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(&site, &error));
        }
        Ok(()) | Err(_) => {}
    }
    let (package, told) = (site.join("cudele"), site.join(format!("cudele-{VERSION}.dist-info")));
    for dir in [&package, &told] {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    let source = place.root.join(PACKAGE).join("python/cudele");
    for entry in fs::read_dir(&source).map_err(|error| failed(&source, &error))? {
        let entry = entry.map_err(|error| failed(&source, &error))?;
        if entry.path().is_file() {
            copy(&entry.path(), &package.join(entry.file_name()))?;
        }
    }
    copy(library, &package.join("_cudele.abi3.so"))?;
    let metadata = format!("Metadata-Version: 2.1\nName: cudele\nVersion: {VERSION}\n");
    write(&told.join("METADATA"), &metadata)?;
    write(&told.join("entry_points.txt"), &entry_points(place)?)?;
    Ok(site)
}

/// The wheel's entry points, as `pyproject.toml` has them.
fn entry_points(place: &Place) -> Result<String, Failure> {
    let path = place.root.join(PACKAGE).join("pyproject.toml");
    let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let parsed: toml::Table =
        text.parse().map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let groups = parsed.get("project").and_then(|project| project.get("entry-points"));
    let mut out = String::new();
    for (group, points) in groups.and_then(toml::Value::as_table).into_iter().flatten() {
        out += &format!("[{group}]\n");
        for (name, value) in points.as_table().into_iter().flatten() {
            out += &format!("{name}={}\n", value.as_str().unwrap_or_default());
        }
    }
    Ok(out)
}

/// Builds the wheel, optimised, and says where it is.
fn wheel(place: &Place, directory: &Path) -> Result<PathBuf, Failure> {
    let mut maturin = place.program("maturin");
    maturin.args(["build", "--quiet", "--locked", "--release", "--strip"]);
    maturin.arg("--interpreter").arg(place.environment.join("bin/python"));
    maturin.arg("--target-dir").arg(&place.target).arg("--out").arg(directory);
    start(&mut maturin)?;
    let name = format!("cudele-{VERSION}-cp39-abi3-");
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut built = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name))
    });
    let none = || Failure::Failed(format!("there is no {name}….whl in {}", directory.display()));
    built.next().ok_or_else(none)
}

/// Runs a program to the end, output going to the terminal.
fn start(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed(format!("`{command:?}` failed; its output is above"))),
        Err(error) => Err(Failure::Failed(format!("cannot start `{command:?}`: {error}"))),
    }
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).map(drop).map_err(|error| failed(from, &error))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}
