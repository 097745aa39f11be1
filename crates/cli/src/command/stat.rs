//! `cudele stat`: everything that is known of a file.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{Attr, ClientId, Policy, Result, StateStorage};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;

use types::Rank;

use crate::space::ResolvedPath;
use crate::{promise, space};

/// Show the attributes of a file or directory, the policy in force there and its promise. A
/// symbolic link is shown itself, not its target.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele stat /src/main.c")]
pub(crate) struct Args {
    /// What to show
    #[arg(value_name = "PATH")]
    path: OsString,
}

/// What is shown.
struct Facts {
    place: ResolvedPath,
    attr: Attr,
    target: Option<Vec<u8>>,
    xattrs: Vec<Vec<u8>>,
    policy: Policy,
    /// The directory that carries the policy; none for the default.
    source: Option<Vec<u8>>,
    /// Its present place, and the client that has the subtree.
    storage: StateStorage,
    owner: ClientId,
    /// The rank that serves it.
    rank: Rank,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let place = space::find(&fs, &args.path)?;
    let attr = place.existing()?;
    let target = space::link_target(&fs, &place.path, &attr)?;
    let xattrs = fs.walked(&[(&place.path, attr.ino)], || fs.list_xattr(attr.ino))?;
    // A file is under the policy of its directory.
    let above = || place.path.split_last().map(|(above, _)| above.to_bytes());
    let dir = if attr.is_dir() { None } else { above() };
    let (policy, effective) = fs.policy(dir.unwrap_or_else(|| place.path.to_bytes()))?;
    let (storage, owner) = (effective.storage, effective.owner);
    let source = (effective.source.0 != 0).then_some(effective.source_path);
    let rank = fs.rank_of(attr.ino);
    let facts = Facts { place, attr, target, xattrs, policy, source, storage, owner, rank };
    context.print(&to_json(&facts), || to_text(&facts))
}

fn to_json(facts: &Facts) -> Value {
    let mut object = Map::new();
    format::put_bytes(&mut object, "path", &facts.place.path.to_bytes());
    format::put_bytes(&mut object, "name", &facts.place.name());
    format::put_attr(&mut object, &facts.attr);
    match &facts.target {
        Some(target) => format::put_bytes(&mut object, "target", target),
        None => {
            object.insert("target".to_owned(), Value::Null);
        }
    }
    let names = facts.xattrs.iter().map(|name| String::from_utf8_lossy(name).into_owned());
    object.insert("xattrs".to_owned(), json!(names.collect::<Vec<_>>()));
    let mut in_force = promise::to_json(&facts.policy);
    if let Value::Object(in_force) = &mut in_force {
        match &facts.source {
            Some(source) => format::put_bytes(in_force, "source", source),
            None => {
                in_force.insert("source".to_owned(), Value::Null);
            }
        }
    }
    object.insert("policy".to_owned(), in_force);
    let owner = (facts.owner.0 != 0).then_some(facts.owner.0);
    let state = if owner.is_some() { "pending" } else { "complete" };
    let now = json!({ "kept": facts.storage.text(), "decoupled_by": owner, "state": state });
    object.insert("now".to_owned(), now);
    object.insert("rank".to_owned(), json!(facts.rank.0));
    Value::Object(object)
}

fn to_text(facts: &Facts) -> String {
    let Facts { place, attr, target, xattrs, policy, source, storage, owner, rank } = facts;
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key:<8} {value}");
    };
    line("path", &format::quoted(&place.path.to_bytes()));
    let word = attr.file_type().word();
    line("type", &format!("{word}, mode {} ({})", format::permissions(attr), format::mode(attr)));
    if let Some(target) = target {
        line("target", &format::quoted(target));
    }
    line("owner", &format!("user {}, group {}", attr.uid, attr.gid));
    if attr.is_dir() {
        line("size", &format!("{} entries", attr.size));
    } else {
        line("size", &format!("{} bytes ({})", attr.size, format::size(attr.size)));
    }
    let links = if attr.nlink == 1 { "link" } else { "links" };
    line("inode", &format!("{:#x}, {} {links}", attr.ino.0, attr.nlink));
    if attr.rdev != 0 {
        line("device", &format!("{:#x}", attr.rdev));
    }
    for (key, time) in [
        ("modified", attr.mtime),
        ("accessed", attr.atime),
        ("changed", attr.ctime),
        ("born", attr.btime),
    ] {
        line(key, &format::instant(time));
    }
    for name in xattrs {
        line("xattr", &format::quoted(name));
    }
    let origin = match source {
        None => "the default".to_owned(),
        Some(source) if *source == place.path.to_bytes() => "set here".to_owned(),
        Some(source) => format!("inherited from {}", format::quoted(source)),
    };
    line("policy", &format!("{}, {origin}", policy.effective()));
    for (at, promise) in promise::lines(policy).iter().enumerate() {
        line(if at == 0 { "promise" } else { "" }, promise);
    }
    if rank.0 != 0 {
        line("rank", &format!("{rank} serves it; names are not moved or linked across ranks"));
    }
    line("now", storage.text());
    if owner.0 != 0 {
        line("", &format!("pending: {owner} has the subtree, and may hold what is not merged"));
    }
    text
}
