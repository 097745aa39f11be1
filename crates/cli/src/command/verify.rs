//! `cudele verify`: an auxiliary metadata server, run by the job and not by the cluster.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use cudele::{Errno, Error, ProofKey, Result};
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;
use terminal::io;
use types::quote::quoted;

/// The key in the cluster's directory, which its metadata servers read when they start.
const KEY_FILE: &str = "verify.key";

/// Judge the journals that a decoupled subtree has in the object store, event by event, and write
/// their entries as runs, with a proof for the metadata server. Then a merge under `check: merge`
/// links them: the server judges only the job's changes in directories that it did not make. The
/// work is this process's, on any machine; it judges on behalf of the user that runs it, which must
/// be the one that merges.
///
/// The proof is made with a key that the metadata servers have (`verify.key` in the cluster's
/// directory, read when they start). Every holder of the key is trusted: keep it from untrusted
/// users, and run this command for them.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  cudele verify --new-key\n  cudele verify /scratch/job && cudele merge /scratch/job"
)]
pub(crate) struct Args {
    /// Directory in the namespace
    #[arg(required_unless_present = "new_key")]
    path: Option<String>,
    /// The key's file [default: verify.key in the cluster's directory]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Make a key; metadata servers that run have to be restarted to know it
    #[arg(long, conflicts_with = "path")]
    new_key: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let file = match &args.key {
        Some(file) => file.clone(),
        None => super::mon::marker(context)?.0.join(KEY_FILE),
    };
    let Some(path) = &args.path else {
        new_key(&file)?;
        let value = json!({ "key": file.display().to_string() });
        return context.print(&value, || format!("{} is made\n", file.display()));
    };
    let key = read_key(&file)?.ok_or_else(|| {
        Error::of(Errno::NotFound, file.display().to_string())
            .remedy("make it with `cudele verify --new-key`, and restart the metadata servers")
    })?;
    let done = context.mount()?.verify(path.as_str(), &key)?;
    let value = json!({
        "path": path, "journals": done.journals, "events": done.events, "runs": done.runs,
        "names": done.names, "not_because": done.because,
    });
    context.print(&value, || {
        let path = quoted(path.as_bytes());
        let mut text = format!(
            "{} events of {path} are legal; {} of its names are in {} runs, with a proof\n",
            count(done.events),
            count(done.names),
            count(done.runs)
        );
        if let Some(because) = done.because {
            text.push_str(&format!("the server has to judge the rest itself: {because}\n"));
        }
        text
    })
}

/// The key of a cluster, for its servers; nothing if it has none.
///
/// # Errors
/// `EACCES` if other users can read it, `EINVAL` if it is no key, `EIO`.
pub(crate) fn key_of(dir: &Path) -> Result<Option<ProofKey>> {
    read_key(&dir.join(KEY_FILE))
}

fn read_key(file: &Path) -> Result<Option<ProofKey>> {
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(file, &error)),
    };
    if meta.mode() & 0o077 != 0 {
        let cause = "others than its owner may read or write it";
        return Err(Error::new(Errno::Access, file.display().to_string(), cause)
            .remedy("chmod 600 it, or make a new one if somebody may have read it"));
    }
    let text = fs::read_to_string(file).map_err(|error| io(file, &error))?;
    let key = ProofKey::parse(&text).ok_or_else(|| {
        Error::new(Errno::Invalid, file.display().to_string(), "not 64 hexadecimal digits")
            .remedy("make a key with `cudele verify --new-key`")
    })?;
    Ok(Some(key))
}

fn new_key(file: &Path) -> Result<()> {
    let mut bytes = [0; ProofKey::BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io(file, &error.into()))?;
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = new.and_then(|mut new| {
        new.write_all(ProofKey::new(bytes).to_text().as_bytes())?;
        new.sync_all()
    });
    written.map_err(|error| {
        io(file, &error).remedy("if there is a key, remove it first: then its proofs are void")
    })
}
