//! `cudele auth`: the keys with which other hosts and users reach the cluster over TCP.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use cudele::{Errno, Error, Path, Result, Timestamp};
use keys::{
    Authority, Holder, IdRanges, IpNet, IssuedKey, KeyRule, KeyRules, Narrower, NewKey, Revoked,
    Rights,
};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::{format, io};

use crate::access;

/// Make, list and revoke the keys with which other hosts and users reach the cluster over TCP. The
/// keys are in the folder `keys` of the cluster's directory, and only its owner can use them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele auth add alice --user alice       a key for one user
  cudele auth add node7 --squash-root      a key for the mount of a host, for its users but not root
  cudele auth add node7 --users 1000-1999 --from 10.1.0.0/16
                                           a key for the mount of a host, for these users, used from there
  cudele auth add rank1 --daemon           a key for a server on another host
  cudele auth add job9 --user alice --allow read,write,decouple,merge:/scratch/job9
  cudele auth test job9 write /users/alice  whether a key has a right, and by which rule
  cudele auth narrow alice.pem --allow read,write:/job9 --hours 8 --out job9.pem
                                           a narrower key, from one that you have
  cudele auth ls
  cudele auth rm alice                     from now on, nothing is served to this key")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// Make the authority of a cluster that was started by an earlier version
    #[command(after_help = "Example:\n  cudele auth init --dir /srv/cudele")]
    Init,
    /// Make a key
    Add(Add),
    /// Make a narrower key from one that you have, without the cluster
    Narrow(Narrow),
    /// List the keys: name, kind, user, end in UTC, whether the key is in use, its rules, and the
    /// users and networks that it is for
    #[command(after_help = "Examples:\n  cudele auth ls\n  cudele auth ls --json")]
    Ls,
    /// Say whether a key has a right at a path, and which rule gives it. Permissions of files count
    /// besides
    Test(Test),
    /// Revoke a key
    Rm(Remove),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele auth test job9 write /scratch/job9/out
  cudele auth test job9 merge-unchecked /scratch/job9")]
struct Test {
    /// The name of the key
    name: String,
    /// The right, or several with commas between
    right: Rights,
    /// The path
    path: String,
}

/// Make a key, and write it to a file for its owner alone. A process that can read the file can use
/// the key, so bring the file to its host over an encrypted connection.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele auth add alice --user alice --days 30
  cudele auth add node7 --squash-root --out node7.key
  cudele auth add node8 --users 1000-1999 --groups 100,1000-1999 --from 10.1.0.0/16 --from 2001:db8::/32
  cudele auth add backup --everyone --read-only
  cudele auth add ci --user ci --allow read:/ --allow read,write,decouple,merge:/ci

Rights: read, write, decouple, merge, merge-unchecked, merge-by-reference, policy, branch, recover,
balance, admin. `balance` and `admin` in / let a key command the cluster.")]
struct Add {
    /// A name for the key, of letters, digits and - _ . @
    name: String,
    #[command(flatten)]
    holder: HolderArgs,
    /// It is for reading only
    #[arg(long, conflicts_with_all = ["daemon", "allow"])]
    read_only: bool,
    /// It has these rights in a subtree, and no others [repeat for more subtrees]
    #[arg(long, value_name = "RIGHT,...:PATH", value_parser = KeyRule::parse, conflicts_with = "daemon")]
    allow: Vec<KeyRule>,
    /// The groups that the users of --users have; a user keeps no other group [default: the ids of
    /// --users]
    #[arg(long, value_name = "IDS", requires = "users")]
    groups: Option<IdRanges>,
    /// It is used from this network only [repeat for more networks]
    #[arg(long, value_name = "NETWORK")]
    from: Vec<IpNet>,
    /// Its life in days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=36_500))]
    days: i64,
    /// The file [default: NAME.pem here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Make a narrower key from the key of a user or a host: for a job, with rights of its own, for
/// some hours. The command reads the key file, and needs neither the cluster nor its owner. A
/// cluster refuses a key that says more than the key that it was made from. The revocation of a
/// key ends the narrower keys, too.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele auth narrow alice.pem --allow read,write,decouple,merge:/scratch/job9 --out job9.pem
  cudele auth narrow node7.pem --hours 8 --from 10.1.7.0/24 --out tonight.pem")]
struct Narrow {
    /// The key file
    key: PathBuf,
    /// The new key has these rights in a subtree, and no others [repeat for more subtrees; default:
    /// the rights of the key]
    #[arg(long, value_name = "RIGHT,...:PATH", value_parser = KeyRule::parse)]
    allow: Vec<KeyRule>,
    /// It is used from this network only [repeat for more networks; default: the networks of the
    /// key]
    #[arg(long, value_name = "NETWORK")]
    from: Vec<IpNet>,
    /// Its life in hours
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(i64).range(1..=876_000))]
    hours: i64,
    /// The file of the new key
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
struct HolderArgs {
    /// It speaks for this user, with the groups that the user has on this machine
    #[arg(long)]
    user: Option<String>,
    /// It speaks for every user, as the mount of a host does, and commands nothing
    #[arg(long)]
    everyone: bool,
    /// The same, but root of that host is nobody here
    #[arg(long)]
    squash_root: bool,
    /// It speaks for the users of a host with these numeric ids, 1000-1999 or 1000-1999,2500. Root
    /// is nobody, unless 0 is among them
    #[arg(long, value_name = "IDS")]
    users: Option<IdRanges>,
    /// It is a daemon's: clients believe it, and it speaks for every user
    #[arg(long)]
    daemon: bool,
}

/// Revoke a key on all hosts: the monitor tells the other daemons, and its open connections end
/// within a few seconds
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele auth rm alice")]
struct Remove {
    /// The name of the key
    name: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let _private = access::keep_private();
    let dir = || super::mon::marker(context).map(|(dir, _)| dir);
    let authority = || Authority::open(&dir()?);
    match &args.command {
        AuthCommand::Init => {
            let dir = dir()?;
            Authority::ensure(&dir, cudele::now())?;
            let folder = dir.join(keys::FOLDER);
            context.print(&json!({ "keys": folder }), || format!("{}\n", folder.display()))
        }
        AuthCommand::Add(add) => make(context, &authority()?, add),
        AuthCommand::Narrow(wish) => narrow(context, wish),
        AuthCommand::Ls => list(context, &authority()?),
        AuthCommand::Test(question) => test(context, &authority()?, question),
        AuthCommand::Rm(remove) => revoke(context, &authority()?, &remove.name),
    }
}

fn make(context: &Context, authority: &Authority, add: &Add) -> Result<()> {
    let mut holder = match &add.holder {
        HolderArgs { user: Some(user), .. } => Holder::User(access::user_of(user)?),
        HolderArgs { daemon: true, .. } => Holder::Daemon,
        HolderArgs { squash_root: true, .. } => Holder::without_root(),
        HolderArgs { users: Some(users), .. } => {
            let groups = add.groups.as_ref().unwrap_or(users);
            Holder::Host { users: users.clone(), groups: groups.clone() }
        }
        HolderArgs { .. } => Holder::everyone(),
    };
    if add.read_only {
        holder = Holder::Limited(Box::new(holder), KeyRules::reading());
    } else if let Some(rules) = rules_of(&add.name, &add.allow)? {
        holder = Holder::Limited(Box::new(holder), rules);
    }
    let file = add.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.pem", add.name)));
    // Before the key is made: a key that cannot be written would stay in the list.
    let out = new_file(&file)?;
    let (name, networks) = (add.name.clone(), add.from.clone());
    let new = NewKey { name, holder, networks, days: add.days };
    let made = authority.issue(new, cudele::now());
    let text = made.inspect_err(|_| drop(std::fs::remove_file(&file)))?;
    write(out, &file, &text)?;
    context.print(&json!({ "name": add.name, "file": file }), || {
        let (name, file) = (&add.name, file.display());
        format!("key {name} is in {file}; its host uses it with --key FILE or CUDELE_KEY\n")
    })
}

fn narrow(context: &Context, wish: &Narrow) -> Result<()> {
    let Narrow { key, allow, from, hours, out: file } = wish;
    let text = std::fs::read_to_string(key).map_err(|error| io(key, &error))?;
    let named = key.display().to_string();
    let rules = rules_of(&named, allow)?;
    let narrower = Narrower { rules, networks: from.clone(), seconds: hours * 3600 };
    let made = keys::narrow(&named, &text, &narrower, cudele::now())?;
    write(new_file(file)?, file, &made)?;
    context.print(&json!({ "file": file }), || {
        let file = file.display();
        format!("the key is in {file}; use it with --key FILE or CUDELE_KEY\n")
    })
}

/// The rules of a new key, if it has some.
fn rules_of(name: &str, allow: &[KeyRule]) -> Result<Option<KeyRules>> {
    if allow.is_empty() {
        return Ok(None);
    }
    let rules = KeyRules::new(allow.to_vec()).ok_or_else(|| {
        let cause = "a key has 16 rules at most, and 8 KiB of them";
        Error::new(Errno::Invalid, name, cause).remedy("make two keys")
    })?;
    Ok(Some(rules))
}

/// A new file for its owner alone.
fn new_file(file: &std::path::Path) -> Result<File> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    made.map_err(|error| io(file, &error))
}

fn write(mut out: File, file: &std::path::Path, text: &str) -> Result<()> {
    out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(|error| io(file, &error))
}

fn list(context: &Context, authority: &Authority) -> Result<()> {
    let revoked = authority.revoked();
    let issued = authority.list()?;
    let value: Vec<Value> = issued.iter().map(|key| to_json(key, &revoked)).collect();
    context
        .print(&Value::Array(value), || issued.iter().map(|key| to_text(key, &revoked)).collect())
}

fn test(context: &Context, authority: &Authority, question: &Test) -> Result<()> {
    let Test { name, right, path } = question;
    let asked = Path::parse(path).map_err(|errno| Error::of(errno, path))?;
    let (revoked, issued) = (authority.revoked(), authority.list()?);
    let key = issued.iter().rev().find(|key| key.name == *name).ok_or_else(|| none_of(name))?;
    let state = state_of(key, &revoked);
    let rule = key.rules.as_ref().and_then(|rules| rules.giving(*right, &asked));
    // Without rules a key has every right of its kind, and only a daemon's commands the cluster.
    let commands = right.has(Rights::ADMIN) || (right.has(Rights::BALANCE) && asked.is_root());
    let by_kind = key.rules.is_none() && (key.kind == "daemon" || !commands);
    let allowed = state == "in use" && (rule.is_some() || by_kind);
    let why = match (rule, &key.rules) {
        _ if state != "in use" => format!("the key is {state}"),
        (Some(rule), _) => format!("by the rule {rule}"),
        (None, Some(rules)) => format!("no rule gives it; the key has {rules}"),
        (None, None) => format!("the key has no rules, and is for: {}", key.kind),
    };
    let value = json!({
        "name": name, "right": right.to_string(), "path": asked.to_string(), "allowed": allowed,
        "why": why,
    });
    context.print(&value, || {
        let may = if allowed { "may" } else { "may not" };
        format!("{name} {may} {right} in {}: {why}\n", asked.quoted())
    })
}

fn none_of(name: &str) -> Error {
    Error::new(Errno::NotFound, name, "no key of this name is in use")
        .remedy("`cudele auth ls` lists the keys")
}

fn revoke(context: &Context, authority: &Authority, name: &str) -> Result<()> {
    let revoked = authority.revoked();
    let issued = authority.list()?;
    let ids: Vec<_> =
        issued.iter().filter(|key| key.name == name && !revoked.has(key.id)).collect();
    if ids.is_empty() {
        return Err(none_of(name));
    }
    ids.iter().try_for_each(|key| revoked.add(key.id))?;
    context.print(&json!({ "revoked": name }), || format!("key {name} is revoked\n"))
}

fn end_of(key: &IssuedKey) -> Timestamp {
    Timestamp::from_parts(key.expires, 0)
}

fn state_of(key: &IssuedKey, revoked: &Revoked) -> &'static str {
    if revoked.has(key.id) {
        "revoked"
    } else if end_of(key) < cudele::now() {
        "expired"
    } else {
        "in use"
    }
}

fn to_json(key: &IssuedKey, revoked: &Revoked) -> Value {
    json!({
        "name": key.name, "id": key.id.to_string(), "kind": key.kind, "uid": key.uid,
        "expires": key.expires, "state": state_of(key, revoked),
        "rules": key.rules.as_ref().map(|rules| {
            rules.all().iter().map(ToString::to_string).collect::<Vec<_>>()
        }),
        "users": key.host.as_ref().map(|(users, _)| users.to_string()),
        "groups": key.host.as_ref().map(|(_, groups)| groups.to_string()),
        "networks": key.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn to_text(key: &IssuedKey, revoked: &Revoked) -> String {
    let user = key.uid.map_or_else(|| "-".to_owned(), |uid| uid.to_string());
    let (name, kind, state) = (&key.name, &key.kind, state_of(key, revoked));
    let mut more = key.rules.as_ref().map(|rules| format!("  {rules}")).unwrap_or_default();
    if let Some((users, groups)) = &key.host {
        more += &format!("  users {users}  groups {groups}");
    }
    more.extend(key.networks.iter().map(|network| format!("  from {network}")));
    format!("{name:<20} {kind:<9} {user:>6}  {}  {state}{more}\n", format::minute(end_of(key)))
}
