//! `cudele policy`: which consistency and durability a subtree has.

mod advise;
pub(crate) mod costs;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Args as ClapArgs, Subcommand};
use cudele::{Completion, Errno, Error, Policy, PolicySet, Result};
use policy::{FILE_BYTES_MAX, Parsed, PolicyError};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;

use crate::{owned, promise, space};

/// Check, set, show and remove policies. A policy is a file of up to eight keys, a preset (posix,
/// posix-volatile, indexfs, hdfs, batchfs, deltafs, ramdisk) or a cell such as weak-global.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele policy check job.yml --strict
  cudele policy set /scratch batchfs
  cudele policy get /scratch/job > job.yml     the policy in force, as a policy file")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a policy and print it in canonical form, with its promise and its questionable settings
    #[command(after_help = "Example:\n  cudele policy check --strict job.yml")]
    Check(Check),
    /// Set the policy of a directory and of everything below that has none of its own
    #[command(
        after_help = "Examples:\n  cudele policy set /scratch batchfs\n  cudele policy set /scratch job.yml"
    )]
    Set(Set),
    /// Print the policy in force in a directory, and where it is inherited from
    #[command(after_help = "Example:\n  cudele policy get /scratch/job")]
    Get(PolicySource),
    /// Remove the policy of a directory: its parent's holds again
    #[command(after_help = "Example:\n  cudele policy rm /scratch")]
    Rm(PolicySource),
    /// List every policy that was set, with the present path of its directory
    #[command(after_help = "Example:\n  cudele policy ls")]
    Ls,
    /// Say which consistency and durability a traced program needs, and why
    Advise(advise::Advise),
    /// Say how long a job takes under each consistency and durability
    Predict(advise::Predict),
}

#[derive(Debug, ClapArgs)]
struct Check {
    /// Refuse a policy with warnings
    #[arg(long)]
    strict: bool,
    /// A policy file, `-` for standard input, or the name of a preset or cell
    #[arg(value_name = "FILE")]
    policy: OsString,
}

#[derive(Debug, ClapArgs)]
struct Set {
    /// Refuse a policy with warnings
    #[arg(long)]
    strict: bool,
    /// The directory
    #[arg(value_name = "PATH")]
    path: OsString,
    /// A preset or cell, else a policy file (./NAME if it is called like a preset), or `-` for
    /// standard input
    #[arg(value_name = "FILE|PRESET")]
    policy: OsString,
}

#[derive(Debug, ClapArgs)]
struct PolicySource {
    /// The directory
    #[arg(value_name = "PATH")]
    path: OsString,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Check(args) => check(context, args),
        Command::Set(args) => set(context, args),
        Command::Get(args) => get(context, args),
        Command::Rm(args) => remove(context, args),
        Command::Ls => list(context),
        Command::Advise(args) => advise::advise(context, args),
        Command::Predict(args) => advise::print_prediction(context, args),
    }
}

/// Reads the policy that an argument means.
///
/// # Errors
/// `EINVAL` with file, line and column; `ENOENT` if it is neither a file nor a name.
pub(crate) fn read(argument: &OsStr, strict: bool) -> Result<Parsed> {
    let parsed = parse(argument)?;
    if strict {
        policy::strict(&parsed.warnings)
            .map_err(|error| Error { subject: shown(argument), ..error })?;
    }
    Ok(parsed)
}

fn shown(argument: &OsStr) -> String {
    if argument == "-" {
        "standard input".to_owned()
    } else {
        format::quoted(argument.as_bytes()).into_owned()
    }
}

fn parse(argument: &OsStr) -> Result<Parsed> {
    let in_file = |error: PolicyError| error.in_file(&shown(argument));
    if argument == "-" {
        return Policy::parse_bytes(&input(&mut std::io::stdin().lock(), "standard input")?)
            .map_err(in_file);
    }
    if let Some(policy) = argument.to_str().and_then(policy::policy_named) {
        return Ok(policy.into());
    }
    match std::fs::File::open(Path::new(argument)) {
        Ok(mut file) => Policy::parse_bytes(&input(&mut file, &shown(argument))?).map_err(in_file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = match Policy::from_name_or_text(&argument.to_string_lossy()) {
                Err(error) if !argument.as_bytes().contains(&b'/') => error.remedy,
                Ok(_) | Err(_) => "name a policy file, a preset or a cell".to_owned(),
            };
            let cause = "neither a file nor the name of a preset";
            Err(Error::new(Errno::NotFound, shown(argument), cause).remedy(remedy))
        }
        Err(error) => Err(terminal::io(Path::new(argument), &error)),
    }
}

/// A policy file's bytes: up to one more than the maximum, so that its reader reports the excess.
fn input(source: &mut dyn Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = source.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| terminal::io(Path::new(name), &error))?;
    Ok(bytes)
}

fn check(context: &Context, args: &Check) -> Result<()> {
    let parsed = read(&args.policy, args.strict)?;
    context.print(&promise::to_json(&parsed.policy), || promise::to_text(&parsed.policy))
}

fn set(context: &Context, args: &Set) -> Result<()> {
    let path = space::parse(&args.path)?;
    let Parsed { policy, warnings } = read(&args.policy, args.strict)?;
    let cluster = context.cluster()?;
    let owned = owned::owner(&cluster, &path)?.filter(|owner| owner.merged_in.is_none());
    let change = match owned {
        Some(owner) => {
            let mut subtree = cluster.mount_as(owner.client())?.attach(path.to_bytes())?;
            let done = subtree.set_policy(&policy)?;
            if !policy.is_decoupled() {
                subtree.forget()?;
            }
            Change::Executed(done)
        }
        None => {
            // A client that mounts resends requests that earlier processes logged and a server
            // lost.
            let _fs = cluster.mount()?;
            let done = cluster.set_policy(&path.to_bytes(), Some(&policy.to_yaml()));
            Change::Set(done.map_err(|error| error.about(path.to_string()))?)
        }
    };
    if !context.json {
        for warning in warnings {
            eprintln!("cudele: warning: {warning}");
        }
    }
    let mut value = promise::to_json(&policy);
    name_path(&mut value, "path", &path.to_bytes());
    value["change"] = change.to_json();
    context.print(&value, || {
        let mut text = format!("{}: {}\n", format::quoted(&path.to_bytes()), policy.effective());
        text.push_str(&change.to_text());
        for line in promise::lines(&policy) {
            let _ = writeln!(text, "  {line}");
        }
        text
    })
}

/// The result of setting a policy.
enum Change {
    Set(PolicySet),
    /// This machine has the subtree, and executed the steps that the change needs.
    Executed(Completion),
}

impl Change {
    fn to_json(&self) -> Value {
        match self {
            Self::Set(PolicySet::ActivePolicy) => json!({ "state": "in force" }),
            Self::Set(PolicySet::Waits(client)) => {
                json!({ "state": "pending", "client": client.0 })
            }
            Self::Executed(done) => json!({
                "state": "in force", "seconds": done.seconds, "events": done.events,
                "steps": done.steps.iter().map(|step| json!({
                    "name": step.mechanism.name(), "seconds": step.seconds, "bytes": step.bytes,
                })).collect::<Vec<_>>(),
            }),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Set(PolicySet::ActivePolicy) => String::new(),
            Self::Set(PolicySet::Waits(client)) => format!(
                "  pending: {client} has the subtree; the old policy holds until it gives it back\n"
            ),
            Self::Executed(done) => {
                let steps = done.steps.iter();
                let names: Vec<_> = steps.map(|step| step.mechanism.name()).collect();
                let steps = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                format!("  carried out before the change: {steps}, {} events\n", done.events)
            }
        }
    }
}

fn get(context: &Context, args: &PolicySource) -> Result<()> {
    let path = space::parse(&args.path)?.to_bytes();
    let fs = context.mount()?;
    let (policy, effective) = fs.policy(&path)?;
    let mut value = promise::to_json(&policy);
    name_path(&mut value, "path", &path);
    let source = (effective.source.0 != 0).then_some(effective.source_path);
    let inherited = source.as_ref().is_none_or(|source| *source != path);
    match &source {
        Some(source) => name_path(&mut value, "source", source),
        None => value["source"] = Value::Null,
    }
    value["inherited"] = inherited.into();
    context.print(&value, || {
        let origin = match &source {
            None => "the default: no policy is set here or above".to_owned(),
            Some(_) if !inherited => format!("set at {}", format::quoted(&path)),
            Some(source) => format!("inherited from {}", format::quoted(source)),
        };
        format!("{}# {origin}\n", promise::to_text(&policy))
    })
}

fn remove(context: &Context, args: &PolicySource) -> Result<()> {
    let path = space::parse(&args.path)?;
    let cluster = context.cluster()?;
    let _fs = cluster.mount()?;
    let done = cluster.set_policy(&path.to_bytes(), None);
    done.map_err(|error| {
        let error = error.about(path.to_string());
        if error.errno == Errno::NoData {
            Error { cause: "no policy is set at this directory itself".to_owned(), ..error }
                .remedy("`cudele policy get` shows where the one in force comes from")
        } else {
            error
        }
    })?;
    let mut value = json!({ "removed": true });
    name_path(&mut value, "path", &path.to_bytes());
    context.print(&value, String::new)
}

fn list(context: &Context) -> Result<()> {
    let policies = context.mount()?.policies()?;
    let mut rows = Vec::new();
    let mut text = String::new();
    for entry in &policies {
        let policy = Policy::parse(&entry.policy)?.policy;
        let mut row = promise::to_json(&policy);
        name_path(&mut row, "path", &entry.path);
        row["version"] = entry.version.into();
        rows.push(row);
        let cell = policy.cell().map_or_else(|| "-".to_owned(), |cell| cell.to_string());
        let path = format::quoted(&entry.path);
        let _ = writeln!(text, "{path}\t{cell}\t{}\tversion {}", policy.effective(), entry.version);
    }
    context.print(&Value::Array(rows), || text)
}

/// Puts a path first into an object.
fn name_path(value: &mut Value, key: &str, path: &[u8]) {
    let Value::Object(object) = value else { return };
    let rest = std::mem::take(object);
    let mut named = Map::new();
    format::put_bytes(&mut named, key, path);
    named.extend(rest);
    *object = named;
}
