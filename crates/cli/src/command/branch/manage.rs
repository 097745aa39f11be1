//! Making, showing and removing branches.

use std::ffi::OsString;

use branches::{BranchInfo, BranchMerge, Branches, Collected, Conflict};
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Path, Result};
use serde_json::json;
use terminal::context::Context;
use terminal::figures;

use super::{branches, missing, store_of, to_json, to_text};
use crate::space;

/// Make a branch of a directory in its present state, or of another branch. With a running cluster,
/// everything that is visible in the directory is in it. Without one (or with --store) the store
/// must be at rest: the cluster was stopped cleanly.
#[derive(Debug, ClapArgs)]
pub(super) struct Create {
    /// Its name: letters, digits, `-`, `_` and `.`
    name: String,
    /// The directory
    #[arg(value_name = "PATH", required_unless_present = "from", conflicts_with = "from")]
    path: Option<OsString>,
    /// Go out from this branch as it is now, and share all that it has
    #[arg(long, value_name = "BRANCH")]
    from: Option<String>,
}

pub(super) fn create(context: &Context, store: Option<&str>, args: &Create) -> Result<()> {
    let info = match (&args.from, &args.path) {
        (Some(from), _) => branches(context, store)?.create_from(&args.name, from)?,
        (None, None) => return Err(missing("PATH")),
        (None, Some(path)) => create_of(context, store, &args.name, &space::parse(path)?)?,
    };
    context.print(&to_json(&info), String::new)
}

/// Makes a branch of a directory: by the servers, or without them if the store is at rest.
pub(crate) fn create_of(
    context: &Context,
    store: Option<&str>,
    name: &str,
    path: &Path,
) -> Result<BranchInfo> {
    match (store, context.cluster()) {
        (Some(url), _) => Branches::open(url)?.create(name, path, None),
        (None, Ok(cluster)) => {
            let fs = cluster.mount()?;
            Branches::of(fs.store().clone()).create(name, path, Some(&fs))
        }
        (None, Err(error)) if is_down(error.errno) => {
            let branches = Branches::open(&store_of(context).map_err(|_| error)?)?;
            branches.create(name, path, None)
        }
        (None, Err(error)) => Err(error),
    }
}

/// Whether no server of the cluster runs.
fn is_down(errno: Errno) -> bool {
    matches!(errno, Errno::Refused | Errno::NotFound)
}

/// One branch.
#[derive(Debug, ClapArgs)]
pub(super) struct Named {
    /// Its name
    name: String,
}

pub(super) fn show(context: &Context, branches: &Branches, args: &Named) -> Result<()> {
    let info = branches.get(&args.name)?;
    context.print(&to_json(&info), || to_text(&info))
}

pub(super) fn delete(context: &Context, branches: &Branches, args: &Named) -> Result<()> {
    branches.remove(&args.name)?;
    context.print(&json!({ "name": args.name, "removed": true }), String::new)
}

/// Delete the data that no branch needs any more: snapshots, layers, old states of directories, and
/// content. Branches and servers may work during that. Interrupted, it may be called again.
#[derive(Debug, ClapArgs)]
pub(super) struct Gc {
    /// Name the objects to delete, and keep them
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn gc(context: &Context, branches: &Branches, args: &Gc) -> Result<()> {
    let collected = branches.collect(args.dry_run)?;
    let Collected { snapshots, layers, manifests, runs, contents, bytes, objects } = &collected;
    let value = json!({
        "dry_run": args.dry_run, "snapshots": snapshots, "layers": layers, "manifests": manifests,
        "runs": runs, "contents": contents, "bytes": bytes, "objects": objects,
    });
    context.print(&value, || {
        let what = if args.dry_run { "would be deleted" } else { "deleted" };
        let mut text = String::new();
        if args.dry_run {
            objects.iter().for_each(|name| text.push_str(&format!("{name}\n")));
        }
        text.push_str(&format!(
            "{what}: {snapshots} snapshots, {layers} layers, {manifests} kept directories, {runs} runs, \
             the content of {contents} files; {}\n",
            figures::bytes(*bytes)
        ));
        text
    })
}

/// Have the namespace take in branches that are published: the named ones, or all, the oldest
/// first. Where a branch and the namespace have changed the same name, the branch wins, unless
/// --conflict chooses otherwise. An interrupted merge continues.
#[derive(Debug, ClapArgs)]
pub(super) struct Merge {
    /// Show the merges, without doing them
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// The winner where both have changed a name; `fail`: none, the branch is not merged
    #[arg(long, value_enum, default_value = "branch")]
    conflict: Rule,
    /// Look again every so many seconds, until this is ended
    #[arg(long, value_name = "SECONDS")]
    watch: Option<u64>,
    /// Branches
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Rule {
    Branch,
    Trunk,
    Fail,
}

impl From<Rule> for Conflict {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Branch => Self::Branch,
            Rule::Trunk => Self::Trunk,
            Rule::Fail => Self::Fail,
        }
    }
}

pub(super) fn merge(context: &Context, store: Option<&str>, args: &Merge) -> Result<()> {
    let cluster = context.cluster()?;
    let branches = match store {
        Some(url) => Branches::open(url)?,
        None => Branches::open(&cluster.status()?.store)?,
    };
    let all = |branches: &Branches| -> Result<Vec<String>> {
        Ok(branches.waiting()?.into_iter().map(|info| info.name).collect())
    };
    let Some(seconds) = args.watch else {
        let names = if args.names.is_empty() { all(&branches)? } else { args.names.clone() };
        let mut refused = None;
        for name in names {
            let merged = branches.merge(&cluster, &name, args.conflict.into(), args.dry_run)?;
            print_merge(context, &name, args.dry_run, &merged)?;
            if !merged.merged && !args.dry_run {
                refused.get_or_insert((name, merged.conflicts.len()));
            }
        }
        return match refused {
            None => Ok(()),
            Some((name, count)) => {
                let cause = format!("{count} names were changed by the namespace, too");
                Err(Error::new(Errno::Exists, name, cause)
                    .remedy("choose who wins: --conflict branch or trunk"))
            }
        };
    };
    loop {
        for name in all(&branches)? {
            if !args.names.is_empty() && !args.names.contains(&name) {
                continue;
            }
            // An obstacle for one branch keeps no other from being merged, and may be gone next
            // time.
            match branches.merge(&cluster, &name, args.conflict.into(), false) {
                Ok(merged) => print_merge(context, &name, false, &merged)?,
                Err(error) => context.report(&error),
            }
        }
        std::thread::sleep(std::time::Duration::from_secs(seconds.max(1)));
    }
}

fn print_merge(context: &Context, name: &str, dry_run: bool, merge: &BranchMerge) -> Result<()> {
    let BranchMerge { merged, report, conflicts, left_out } = merge;
    let mut value = crate::command::merge::to_json(report);
    let names: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
    value["branch"] = json!(name);
    value["merged"] = json!(merged);
    value["dry_run"] = json!(dry_run);
    value["changed_by_both"] = json!(names);
    value["left_out"] = json!(left_out);
    context.print(&value, || {
        let what = match (dry_run, merged) {
            (true, _) => "would be merged",
            (false, true) => "is merged",
            (false, false) => "is not merged",
        };
        let mut text = format!("{name} {what}\n{}", crate::command::merge::to_text(report));
        if !names.is_empty() {
            text.push_str(&format!(
                "  {} names changed by both, {left_out} events left out\n",
                names.len()
            ));
            for name in conflicts {
                text.push_str(&format!("    {}\n", name.quoted()));
            }
        }
        text
    })
}
