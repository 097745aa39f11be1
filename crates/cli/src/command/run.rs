//! `cudele run`: a batch job in a subtree of its own, with any program.

mod in_branch;
mod interception;
mod key;
mod place;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Completion, Errno, Error, Ino, Mechanism, Path, Policy, Result, WantsExclusive};
use mount::{MountOptions, Mounted};
use serde_json::json;
use terminal::context::Context;
use terminal::figures::seconds;
use terminal::io;
use terminal::mount_point::MountPoint;
use types::quota::QuotaReport;
use vfs::{Ending, Vfs, VfsOptions};

use interception::{Preload, Preloaded};
use key::JobKey;
use place::{JobMountPoint, Plan};

use crate::command::{merge, quota};
use crate::owned;
use crate::private;

/// Take PATH for a job alone, run COMMAND in it, and keep and show its work as the policy says.
///
/// The command finds the directory in $CUDELE_JOB, which replaces `{}` in its arguments, and at
/// PATH itself if this machine has a directory there, in a view of the job's own. With --at the
/// directory is at the path that it will have after the merge. Nothing that the command does in
/// there asks a server. Other clients see PATH as the policy says while it runs. The exit code is
/// the command's, 127 if there is no such program, and 126 if the program cannot be run. With
/// --private, $CUDELE_JOB is the path in the namespace that $CUDELE_MON leads to.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele run --policy batchfs /scratch/job -- ./app --output {}
  cudele run --policy batchfs -C /src -- tar xf linux.tar
  cudele run --at /mnt/cudele/env /env -- sh -c 'python3 -m venv $CUDELE_JOB'
  cudele run --branch nightly -C -- make          in a branch, without any server
  cudele run --branch nightly --private -- mpirun ./app   many processes, and a server of their own")]
pub(crate) struct Args {
    /// The name of a preset, or a policy file
    #[arg(long, default_value = "batchfs", value_name = "POLICY")]
    policy: String,
    /// The fate of the work if the command fails: kept on this machine for `cudele merge` or
    /// `cudele discard`, merged all the same, or thrown away
    #[arg(long, value_enum, default_value_t = OnFailure::Keep, value_name = "WHAT")]
    on_failure: OnFailure,
    /// Run the command in the directory
    #[arg(short = 'C', long)]
    chdir: bool,
    /// Show the command the directory at this path of this machine, in a view of its own: the path
    /// that it will have after the merge, so that a virtual environment or a build works there.
    /// PATH is in a mount of the namespace, a directory, or below the empty directory of a later
    /// mount
    #[arg(long, value_name = "PATH", conflicts_with = "private")]
    at: Option<PathBuf>,
    /// Answer the command's system calls for files of the directory in its own process, where that
    /// is possible (`auto`), or fail if it is not (`on`). The rest goes through the mount
    #[arg(long, value_enum, default_value_t = Preload::Auto, value_name = "WHEN",
          conflicts_with = "branch")]
    preload: Preload,
    /// The life of the key that the command finds in $CUDELE_KEY, if the user has a key: it reads
    /// what the user's key reads, and does the rest in the directory only
    #[arg(long, value_name = "HOURS", default_value_t = 24, conflicts_with = "branch",
          value_parser = clap::value_parser!(i64).range(1..=876_000))]
    key_hours: i64,
    /// How long the end of the job waits for a server before the work is kept on this machine
    #[arg(long, value_name = "SECONDS", default_value_t = 30, conflicts_with = "branch")]
    timeout: u64,
    /// Run the command in this branch, with nothing but the object store; its work is committed
    /// when it ends, unless it fails and --on-failure is discard
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["policy", "path"])]
    branch: Option<String>,
    /// Give the branch a metadata server of the job's own, for any number of processes: they find
    /// it as a cluster, at $CUDELE_MON. The work of all of them becomes a part of the branch when
    /// the command ends, as a whole
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
    let path = cudele::parse_path(args.path())?;
    let policy = owned::policy(&args.policy)?;
    // Before any thread is started: mounts from here on are this job's alone.
    let plan = plan(args, &path, private::enter())?;
    let key = JobKey::new(context, &path, args.key_hours)?;
    let fs = context.mount()?;
    fs.set_patience(Some(Duration::from_secs(args.timeout)));
    fs.make_dir(path.to_bytes(), 0o755)?;
    // As in any mount.
    let settings = VfsOptions { ahead: WantsExclusive::Always, ..VfsOptions::default() };
    let vfs = Arc::new(Vfs::new(fs.clone(), &Path::root(), settings)?);
    let root = vfs.decouple(&path, &policy)?;
    let preloaded = match Preloaded::new(args.preload, &vfs, root) {
        Ok(preloaded) => preloaded,
        Err(error) => {
            vfs.end(root, Ending::Discard)?;
            return Err(error);
        }
    };
    let at = MountPoint::new()?;
    let (preload, key) = (preloaded.as_ref(), key.as_ref());
    let setting = Setting { vfs: &vfs, preloaded: preload, at: at.path(), key };
    let Job { status, mounted, place } = match job(args, &path, &setting, plan.as_ref()) {
        Ok(done) => done,
        Err(failure) => {
            // Nothing was done in it.
            vfs.end(root, Ending::Discard)?;
            return failure.end(context);
        }
    };
    // A process of the job that is still at work keeps the mount until it ends, but nothing it does
    // is part of the job any more. Nor can the mount end while it is seen at a second place.
    if place.hide(false) {
        let _ = mounted.unmount();
    } else {
        place.hide(true);
        drop(mounted);
    }
    let ending = ending(status, &policy, args.on_failure);
    if let Some(preloaded) = &preloaded {
        preloaded.finish(ending)?;
    }
    let done = finish(&vfs, root, &path, ending)?;
    let passed_on = preloaded.as_ref().map(Preloaded::passed_on);
    let is_merged = matches!(ending, Ending::Merge);
    let exceeded = if is_merged { quota::exceeded(&fs, &path) } else { Vec::new() };
    report(context, &path, &policy, &JobEnd { status, ending, done, exceeded, passed_on })?;
    Ok(exit_code(status))
}

/// Where the command is to find the directory: at the mount made for it if this process could not
/// `enter` a mount namespace of its own.
fn plan(args: &Args, path: &Path, entered: std::io::Result<()>) -> Result<Option<Plan>> {
    match (&args.at, entered) {
        (Some(at), Ok(())) => Plan::at(at, path, args.branch.is_some()).map(Some),
        (Some(at), Err(error)) => {
            let cause = format!("this system allows no mounts of a process's own: {error}");
            let subject = format!("--at {}", at.display());
            Err(Error::new(Errno::NotPermitted, subject, cause).remedy(
                "act as root, or have user namespaces allowed (sysctl user.max_user_namespaces)",
            ))
        }
        (None, Ok(())) => Ok(Some(Plan::usual(&path.to_string()))),
        (None, Err(_)) => Ok(None),
    }
}

/// Ends the work in the subtree. If that fails, because no server answers for example, the work is
/// kept on this machine.
fn finish(vfs: &Vfs, root: Ino, path: &Path, ending: Ending) -> Result<Completion> {
    let error = match vfs.write_back_all().and_then(|()| vfs.end(root, ending)) {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    // Another client took the work over: a second copy of it would be merged in vain.
    if ending == Ending::Discard || error.errno == Errno::Stale {
        return Err(error);
    }
    let remedy = match vfs.end(root, Ending::Keep) {
        Ok(_) => format!(
            "what the command did is kept on this machine: `cudele merge {path}` merges it once the              cluster answers (`cudele up` starts what does not run), `cudele discard {path}` gives it up"
        ),
        Err(kept) => {
            format!("what the command did is lost, as it cannot be kept here either: {kept}")
        }
    };
    Err(Error { remedy, ..error }.about(path.to_string()))
}

/// A job after the end of its command.
struct Job {
    status: ExitStatus,
    mounted: Mounted,
    place: JobMountPoint,
}

/// Why a command did not run.
#[derive(Debug)]
enum Failure {
    /// It cannot be started: the exit code, as a shell has it.
    Start(Error, u8),
    /// Something else failed.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Failure {
    /// The exit code, after the error is printed.
    fn end(self, context: &Context) -> Result<ExitCode> {
        match self {
            Self::Start(error, code) => {
                context.report(&error);
                Ok(ExitCode::from(code))
            }
            Self::Other(error) => Err(error),
        }
    }
}

/// Where the files of a job come from, and the directory of its mount.
struct Setting<'a> {
    vfs: &'a Arc<Vfs>,
    preloaded: Option<&'a Preloaded>,
    at: &'a FilePath,
    key: Option<&'a JobKey>,
}

/// Mounts, and runs the command.
fn job(
    args: &Args,
    path: &Path,
    Setting { vfs, preloaded, at, key }: &Setting<'_>,
    plan: Option<&Plan>,
) -> std::result::Result<Job, Failure> {
    let root = rustix::process::getuid().is_root();
    let options =
        MountOptions { allow_other: root, set_id: root, devices: root, ..MountOptions::default() };
    let mounted = match preloaded {
        Some(preloaded) => mount::mount(preloaded.file_system(vfs), at, "cudele:/", &options)?,
        None => mount::mount((*vfs).clone(), at, "cudele:/", &options)?,
    };
    let text = path.to_string();
    let inside = FilePath::new(text.trim_start_matches('/'));
    let place = match plan {
        Some(plan) => plan.show(at, inside)?,
        None => JobMountPoint::plain(at.join(inside)),
    };
    let started = match preloaded {
        Some(preloaded) => preloaded.show_at(&place).map_err(Failure::from),
        None => Ok(()),
    };
    let surroundings = Surroundings { monitor: None, preloaded: *preloaded, key: *key };
    let child = started.and_then(|()| start(args, &place.dir, &surroundings));
    let status = child.and_then(|child| {
        if preloaded.is_some() {
            interception::allow_descriptors();
        }
        Ok(wait(child)?)
    });
    match status {
        Ok(status) => Ok(Job { status, mounted, place }),
        Err(failure) => {
            place.hide(true);
            Err(failure)
        }
    }
}

/// The additions to the environment of a command.
#[derive(Default)]
struct Surroundings<'a> {
    /// A monitor of its own.
    monitor: Option<&'a str>,
    /// The memory in which its programs work.
    preloaded: Option<&'a Preloaded>,
    /// Its key.
    key: Option<&'a JobKey>,
}

fn start(
    args: &Args,
    dir: &FilePath,
    surroundings: &Surroundings<'_>,
) -> std::result::Result<Child, Failure> {
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
    if let Some(preloaded) = surroundings.preloaded {
        preloaded.introduce(&mut command);
    }
    if let Some(monitor) = surroundings.monitor {
        command.env("CUDELE_MON", monitor).env_remove("CUDELE_DIR");
    }
    if let Some(key) = surroundings.key {
        command.env("CUDELE_KEY", key.file());
    }
    if args.chdir {
        command.current_dir(dir);
    }
    command.spawn().map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
        let error = io(&PathBuf::from(&program), &error);
        Failure::Start(error.remedy("name a program that can be run after `--`"), code)
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

/// The end of a job, and that of the work in its subtree.
struct JobEnd {
    status: ExitStatus,
    ending: Ending,
    done: Completion,
    /// Quotas that the merge has exceeded.
    exceeded: Vec<QuotaReport>,
    /// With `--preload`: why the programs went through the mount at last, if they did.
    passed_on: Option<Option<&'static str>>,
}

fn report(
    context: &Context,
    path: &Path,
    policy: &Policy,
    JobEnd { status, ending, done, exceeded, passed_on }: &JobEnd,
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
        "merge": done.merge.as_ref().map(merge::to_json),
        "by_reference": merge::reference_json(&done.merged_by),
        "exceeded_quotas": exceeded.iter().map(quota::to_json).collect::<Vec<_>>(),
        "preload": passed_on.map(|because| json!({ "passed_on": because })),
    });
    if context.json {
        return context.print(&value, String::new);
    }
    // Standard output is the command's.
    let path = path.quoted();
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
    if let Some(because) = passed_on.flatten() {
        eprintln!("cudele: from some point on, its programs used the mount: {because}");
    }
    // A merge that leaves something out must not look like one of all.
    let conflicts = done.merge.as_ref().filter(|report| report.rejected + report.replaced > 0);
    for line in conflicts.map(merge::to_text).unwrap_or_default().lines() {
        eprintln!("cudele: {line}");
    }
    for line in merge::reference_text(&done.merged_by).lines() {
        eprintln!("cudele: {line}");
    }
    for quota in exceeded {
        eprint!("cudele: quota of {}", quota::to_text(quota));
    }
    for step in &done.steps {
        eprintln!("cudele:   {:<22} {}", step.mechanism.name(), seconds(step.seconds));
    }
    Ok(())
}
