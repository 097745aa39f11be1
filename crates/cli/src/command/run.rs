//! `cudele run`: a batch job in a subtree of its own, with any program.

mod in_branch;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Completion, Errno, Error, Mechanism, Path, Policy, Result};
use mount::{Mounted, Options};
use serde_json::json;
use vfs::{Ending, Vfs};

use crate::command::merge;
use crate::command::up::io;
use crate::context::Context;
use crate::figures::seconds;
use crate::owned;
use crate::private::{self, MountPoint};

/// Take PATH for a job alone, run COMMAND in it, and keep and show what it made as the policy says.
///
/// The command finds the directory in $CUDELE_JOB, where it stands for `{}` in its arguments, and
/// at PATH itself if this machine has a directory there (nobody else sees that). Nothing it does in
/// there asks a server. Others see PATH as the policy says while it runs. The exit code is the
/// command's. With --private, $CUDELE_JOB is the path in the namespace that $CUDELE_MON leads to.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele run --policy batchfs /scratch/job -- ./app --output {}
  cudele run --policy batchfs -C /src -- tar xf linux.tar
  cudele run --branch nightly -C -- make          in a branch, without any server
  cudele run --branch nightly --private -- mpirun ./app   many processes, and a server of their own")]
pub(crate) struct Args {
    /// The name of a preset, or a policy file
    #[arg(long, default_value = "batchfs", value_name = "POLICY")]
    policy: String,
    /// What becomes of the work if the command fails: kept on this machine for `cudele merge` or
    /// `cudele discard`, merged all the same, or thrown away
    #[arg(long, value_enum, default_value_t = OnFailure::Keep, value_name = "WHAT")]
    on_failure: OnFailure,
    /// Run the command in the directory
    #[arg(short = 'C', long)]
    chdir: bool,
    /// Run the command in this branch, with nothing but the object store; what it did is committed when it
    /// ends, unless it fails and --on-failure says that it is thrown away
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["policy", "path"])]
    branch: Option<String>,
    /// Give the branch a metadata server of the job's own, which any number of processes share: they find
    /// it as a cluster, at $CUDELE_MON. What all of them did becomes a part of the branch when the command
    /// ends, as a whole
    #[arg(long, requires = "branch", conflicts_with = "chdir")]
    private: bool,
    /// Address of the object store, for a branch [default: the cluster's]
    #[arg(long, value_name = "URL", requires = "branch")]
    store: Option<String>,
    /// Directory in the namespace, made if it is missing
    #[arg(required_unless_present = "branch")]
    path: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFailure {
    Keep,
    Merge,
    Discard,
}

impl Args {
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    match &args.branch {
        Some(branch) if args.private => return in_branch::serve(context, args, branch),
        Some(branch) => return in_branch::run(context, args, branch),
        None => {}
    }
    let path = owned::path(args.path())?;
    let policy = owned::policy(&args.policy)?;
    // Before any thread is started: what is mounted from here on is this job's alone.
    let is_private = private::enter().is_ok();
    let fs = context.mount()?;
    fs.make_dir(path.to_bytes(), 0o755)?;
    let vfs = Arc::new(Vfs::new(fs, &Path::root(), vfs::Options::default())?);
    let root = vfs.decouple(&path, &policy)?;
    let at = MountPoint::new()?;
    let outcome = job(args, &path, &vfs, (at.path(), is_private));
    let (status, mounted) = match outcome {
        Ok(done) => done,
        Err(error) => {
            // Nothing was done in it.
            vfs.end(root, Ending::Discard)?;
            return Err(error);
        }
    };
    // A process of the job that is still at work keeps the mount until it ends, but nothing it does
    // is part of the job any more. Nor can the mount end while it is seen at a second place.
    if views(args, at.path(), is_private).all(|view| mount::unmount(view, false).is_ok()) {
        let _ = mounted.unmount();
    } else {
        views(args, at.path(), is_private).for_each(|view| drop(mount::unmount(view, true)));
        drop(mounted);
    }
    vfs.write_back_all()?;
    let ending = ending(status, &policy, args.on_failure);
    let done = vfs.end(root, ending)?;
    report(context, &path, &policy, status, (ending, &done))?;
    Ok(exit_code(status))
}

/// Where the job's directory is shown as a mount of its own, the last one first: at the directory
/// of this machine that is at PATH, if there is one, and in the place of the whole namespace. There
/// nobody has to look up the directories above it, which others may change at any time.
fn views<'a>(
    args: &'a Args,
    at: &'a FilePath,
    is_private: bool,
) -> impl Iterator<Item = &'a FilePath> {
    let local = FilePath::new(args.path());
    let local = (local.is_absolute() && local.is_dir()).then_some(local);
    local.into_iter().chain([at]).filter(move |_| is_private)
}

/// Mounts, and runs the command.
fn job(
    args: &Args,
    path: &Path,
    vfs: &Arc<Vfs>,
    (at, is_private): (&FilePath, bool),
) -> Result<(ExitStatus, Mounted)> {
    let root = rustix::process::getuid().is_root();
    let options = Options { allow_other: root, set_id: root, devices: root, ..Options::default() };
    let mounted = mount::mount(vfs.clone(), at, "cudele:/", &options)?;
    let mut dir = at.join(path.to_string().trim_start_matches('/'));
    for view in views(args, at, is_private) {
        private::show(&dir, view)?;
    }
    if is_private {
        at.clone_into(&mut dir);
    }
    let child = start(args, &dir, None)?;
    let status = wait(child)?;
    Ok((status, mounted))
}

fn start(args: &Args, dir: &FilePath, monitor: Option<&str>) -> Result<Child> {
    let (program, rest) = args.command.split_first().ok_or_else(|| {
        Error::new(Errno::Invalid, "run", "no command").remedy("name one after `--`")
    })?;
    let here = std::env::current_dir().map_err(|error| io(FilePath::new("."), &error))?;
    let has_slash = program.as_encoded_bytes().contains(&b'/');
    // A program that is named by a path is meant from here, wherever it is run.
    let program = if has_slash { here.join(program).into_os_string() } else { program.clone() };
    let mut command = Command::new(&program);
    command.args(rest.iter().map(|argument| filled(argument, dir)));
    command.env("CUDELE_JOB", dir);
    if let Some(monitor) = monitor {
        command.env("CUDELE_MON", monitor).env_remove("CUDELE_DIR");
    }
    if args.chdir {
        command.current_dir(dir);
    }
    command.spawn().map_err(|error| {
        io(&PathBuf::from(&program), &error).remedy("name a program that can be run after `--`")
    })
}

/// An argument with the directory in the place of `{}`.
fn filled(argument: &OsStr, dir: &FilePath) -> OsString {
    let Some(text) = argument.to_str().filter(|text| text.contains("{}")) else {
        return argument.to_owned();
    };
    OsString::from(text.replace("{}", &dir.display().to_string()))
}

/// Waits for the command; SIGINT and SIGTERM are handed on to it.
fn wait(mut child: Child) -> Result<ExitStatus> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let failed = |error: std::io::Error| io(FilePath::new("job"), &error);
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let handle = signals.handle();
    let pid = AtomicI32::new(i32::try_from(child.id()).unwrap_or_default());
    let pid = Arc::new(pid);
    let target = pid.clone();
    let forwarder = std::thread::Builder::new().name("signals".to_owned());
    let forwarder = forwarder.spawn(move || {
        for signal in signals.forever() {
            let pid = rustix::process::Pid::from_raw(target.load(Ordering::SeqCst));
            let signal = rustix::process::Signal::from_named_raw(signal);
            if let (Some(pid), Some(signal)) = (pid, signal) {
                // It may have ended a moment ago.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(failed);
    pid.store(0, Ordering::SeqCst);
    handle.close();
    // If there could be no such thread, nothing was handed on; the command ran all the same.
    let _ = forwarder.map(std::thread::JoinHandle::join);
    status
}

fn ending(status: ExitStatus, policy: &Policy, on_failure: OnFailure) -> Ending {
    if !status.success() {
        return match on_failure {
            OnFailure::Keep => Ending::Keep,
            OnFailure::Merge => Ending::Merge,
            OnFailure::Discard => Ending::Discard,
        };
    }
    Ending::of(policy)
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn report(
    context: &Context,
    path: &Path,
    policy: &Policy,
    status: ExitStatus,
    (ending, done): (Ending, &Completion),
) -> Result<()> {
    let fate = match ending {
        Ending::Complete if policy.contains(Mechanism::GlobalPersist) => "kept in the object store",
        Ending::Complete | Ending::Keep => "kept on this machine",
        Ending::Merge => "merged: everybody sees it",
        Ending::Discard if status.success() => "gone, as the policy says: it keeps nothing",
        Ending::Discard => "thrown away",
    };
    let mechanisms: Vec<_> = done
        .steps
        .iter()
        .map(|step| {
            json!({ "mechanism": step.mechanism.name(), "seconds": step.seconds,
                    "bytes": step.bytes })
        })
        .collect();
    let value = json!({
        "path": path.to_string(), "exit_code": status.code(), "signal": status.signal(),
        "ending": ending.name(), "events": done.events, "bytes": done.bytes,
        "seconds": done.seconds, "mechanisms": mechanisms,
        "by_reference": merge::told(&done.merged_by),
    });
    if context.json {
        return context.print(&value, String::new);
    }
    // Standard output is the command's.
    let kept = matches!(ending, Ending::Keep | Ending::Complete);
    let next = if kept {
        format!(
            "; `cudele merge {path}` shows it to everybody, `cudele discard {path}` gives it up"
        )
    } else {
        String::new()
    };
    let took = seconds(done.seconds);
    eprintln!("cudele: {path}: {} events in {took}, {fate}{next}", done.events);
    for line in merge::told_text(&done.merged_by).lines() {
        eprintln!("cudele: {line}");
    }
    for step in &done.steps {
        eprintln!("cudele:   {:<22} {}", step.mechanism.name(), seconds(step.seconds));
    }
    Ok(())
}
