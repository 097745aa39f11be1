//! `cudele branch`: work on a snapshot of the namespace that needs the object store only.

mod change;
mod look;
mod manage;

use std::fmt::Write as _;

use branches::{BranchInfo, Branches};
use clap::{Args as ClapArgs, Subcommand};
use cudele::{Error, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::format;

use crate::command::up;

/// Work on a branch: a snapshot of a directory, and the changes since then, invisible to all other
/// clients. Once a branch exists, it needs only the object store: no monitor and no metadata
/// server. One process after the other works on a branch, on any machine; when it is published, the
/// namespace takes it in (`cudele branch merge`).
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele branch create nightly /proj            a snapshot of /proj, however large, in milliseconds
  cudele branch put nightly out.tar /proj/out/  work on it; others see nothing
  cudele branch ls nightly,weekly /proj/out     both, one on top of the other, without merging
  cudele publish nightly                        done: it waits to be merged
  cudele branch merge                           the namespace takes in what is published")]
pub(crate) struct Args {
    /// Address of the object store: dir:/path or rados://pool [default: the cluster's]
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a branch of a directory, or of another branch
    #[command(
        after_help = "Examples:\n  cudele branch create nightly /proj\n  cudele branch create fix --from nightly"
    )]
    Create(manage::Create),
    /// List the branches, or a directory in one or several of them
    #[command(
        after_help = "Examples:\n  cudele branch ls\n  cudele branch ls -l nightly,weekly /proj/out"
    )]
    Ls(look::Ls),
    /// Show the facts about a branch
    #[command(after_help = "Example:\n  cudele branch show nightly")]
    Show(manage::Named),
    /// Print names below a directory
    #[command(after_help = "Example:\n  cudele branch find --name '*.o' nightly /proj")]
    Find(look::Find),
    /// Print the content of a file
    #[command(after_help = "Example:\n  cudele branch cat nightly /proj/out/log")]
    Cat(look::Cat),
    /// Make directories
    #[command(after_help = "Example:\n  cudele branch mkdir -p nightly /proj/out/today")]
    Mkdir(change::Mkdir),
    /// Copy files and directories of this machine into a branch
    #[command(after_help = "Example:\n  cudele branch put nightly out.tar /proj/out/")]
    Put(change::Put),
    /// Move or rename
    #[command(after_help = "Example:\n  cudele branch mv nightly /proj/out /proj/old")]
    Mv(change::Mv),
    /// Remove names
    #[command(after_help = "Example:\n  cudele branch rm -r nightly /proj/old")]
    Rm(change::Rm),
    /// Have the namespace take in branches that are published
    #[command(
        after_help = "Examples:\n  cudele branch merge --dry-run\n  cudele branch merge --conflict fail nightly"
    )]
    Merge(manage::Merge),
    /// Remove a branch
    #[command(after_help = "Example:\n  cudele branch delete nightly")]
    Delete(manage::Named),
    /// Delete the data that no branch needs any more
    #[command(after_help = "Example:\n  cudele branch gc --dry-run")]
    Gc(manage::Gc),
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let store = args.store.as_deref();
    match &args.action {
        Action::Create(create) => manage::create(context, store, create),
        Action::Ls(args) => look::ls(context, &branches(context, store)?, args),
        Action::Show(args) => manage::show(context, &branches(context, store)?, args),
        Action::Find(args) => look::find(context, &branches(context, store)?, args),
        Action::Cat(args) => look::cat(&branches(context, store)?, args),
        Action::Mkdir(args) => change::mkdir(context, &branches(context, store)?, args),
        Action::Put(args) => change::put(context, &branches(context, store)?, args),
        Action::Mv(args) => change::mv(context, &branches(context, store)?, args),
        Action::Rm(args) => change::rm(context, &branches(context, store)?, args),
        Action::Merge(args) => manage::merge(context, store, args),
        Action::Delete(args) => manage::delete(context, &branches(context, store)?, args),
        Action::Gc(args) => manage::gc(context, &branches(context, store)?, args),
    }
}

/// `cudele publish`: declares a branch complete.
pub(crate) mod publish {
    use clap::Args as ClapArgs;
    use cudele::Result;

    use terminal::context::Context;

    /// Declare a branch complete: from now on it is not changed, and the namespace can take it in.
    /// One change of one object; no server is asked.
    #[derive(Debug, ClapArgs)]
    #[command(after_help = "Example:\n  cudele publish nightly")]
    pub(crate) struct Args {
        /// Its name
        name: String,
        /// Address of the object store [default: the cluster's]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
    }

    pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
        let branches = super::branches(context, args.store.as_deref())?;
        let info = branches.publish(&args.name)?;
        context.print(&super::to_json(&info), String::new)
    }
}

pub(crate) use manage::create_of;

/// The branches of the store that the command line names, or of the cluster's.
pub(crate) fn branches(context: &Context, store: Option<&str>) -> Result<Branches> {
    match store {
        Some(url) => Branches::open(url),
        None => Branches::open(&store_of(context)?),
    }
}

/// The address of the store of a cluster, which need not run.
pub(crate) fn store_of(context: &Context) -> Result<String> {
    let found = context.locator().find()?;
    let noted = found.dir.as_deref().and_then(up::store_of);
    match noted {
        Some(url) => Ok(url),
        None => Ok(context.cluster()?.status()?.store),
    }
}

/// The facts of a branch.
fn to_json(info: &BranchInfo) -> Value {
    let BranchInfo { name, path, branch, snapshot } = info;
    let events: u64 = branch.layers.iter().map(|layer| layer.events).sum();
    let bytes: u64 = branch.layers.iter().map(|layer| layer.bytes).sum();
    json!({
        "name": name, "path": snapshot.map(|_| path.to_string()), "state": branch.state.word(),
        "snapshot": snapshot, "layers": branch.layers.len(), "inherited": branch.inherited,
        "from": (!branch.from.is_empty()).then_some(&branch.from),
        "events": events, "bytes": bytes, "created": format::instant(branch.time),
    })
}

/// The same in a few lines.
fn to_text(info: &BranchInfo) -> String {
    let BranchInfo { name, path, branch, snapshot } = info;
    let mut text = String::new();
    let _ = writeln!(text, "branch    {name}, {}", branch.state.word());
    let path = snapshot.map_or("what is not known any more".to_owned(), |_| path.quoted());
    let _ = writeln!(text, "of        {path}, as at {}", format::instant(branch.time));
    if !branch.from.is_empty() {
        let _ = writeln!(
            text,
            "from      {}, whose {} layers it shares",
            branch.from, branch.inherited
        );
    }
    let snapshot = snapshot.map_or("not there (any more)".to_owned(), |number| number.to_string());
    let _ = writeln!(text, "snapshot  {snapshot}");
    for layer in &branch.layers {
        let name = layer.name();
        let _ = writeln!(text, "layer     {name}: {} events, {} bytes", layer.events, layer.bytes);
    }
    text
}

/// Names of branches that were given as one word.
fn split(names: &str) -> Vec<&str> {
    names.split(',').collect()
}

/// The error about a missing argument of a command.
fn missing(what: &str) -> Error {
    Error::new(cudele::Errno::Invalid, what, "it is not named").remedy("see --help")
}
