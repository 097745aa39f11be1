//! `cudele quota`: limits of directories, and their use.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Args as ClapArgs, Subcommand};
use cudele::{Attr, Errno, Error, Fs, Path, Result};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::figures::count;
use terminal::format;
use types::quota::{LIMITS, QuotaLimits, QuotaReport, REPORT, Usage};

use crate::space;

/// Limit how many inodes and bytes may be in a directory and below it, and show the use. A request
/// over a limit fails with EDQUOT. `df` of a directory in a mount shows its limits as well.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele quota set /users/ada --bytes 100G --inodes 1M
  cudele quota get /users/ada/src            what holds there, and how much is used
  cudele quota rm /users/ada")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QuotaCommand,
}

#[derive(Debug, Subcommand)]
enum QuotaCommand {
    /// Set limits of directories
    Set(Set),
    /// Show the quotas that hold in directories, and their use
    Get(Directories),
    /// Remove the limits of directories
    Rm(Limited),
}

/// Set limits of directories, for root. A limit that is not given stays as it is. The server counts
/// the use in the background; until it has finished, the limits hold for the count so far.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele quota set /users/ada --bytes 100G --inodes 1M
  cudele quota set /users/ada --bytes none   the limit of inodes stays")]
struct Set {
    /// Most inodes, with k, M or G for powers of 1000; `none` removes the limit
    #[arg(long, value_name = "NUMBER", value_parser = inodes)]
    inodes: Option<Wanted>,
    /// Most bytes, with K, M, G or T for powers of 1024; `none` removes the limit
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    bytes: Option<Wanted>,
    /// The directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Show the quotas that hold in directories, the innermost first, and their use.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele quota get /users/ada --json")]
struct Directories {
    /// The directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Remove the limits of directories, for root. Quotas of directories above stay.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele quota rm /users/ada")]
struct Limited {
    /// The directories that have limits
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// A limit that is asked for; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted(Option<u64>);

fn inodes(text: &str) -> std::result::Result<Wanted, String> {
    number(text, 1000)
}

fn bytes(text: &str) -> std::result::Result<Wanted, String> {
    number(text, 1024)
}

/// Reads a number with an optional unit, which is a power of `base`.
fn number(text: &str, base: u64) -> std::result::Result<Wanted, String> {
    if text == "none" {
        return Ok(Wanted(None));
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let power = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        unit => return Err(format!("`{unit}` is no unit: write k, M, G, T or P")),
    };
    let number = digits.parse::<u64>().ok().and_then(|it| it.checked_mul(base.pow(power)));
    let number = number.ok_or("write a number such as 1000, 64k or 10G, or `none`")?;
    Ok(Wanted(Some(number)))
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    match &args.command {
        QuotaCommand::Set(set) => each(context, &fs, &set.paths, |dir| set_limits(&fs, dir, set)),
        QuotaCommand::Get(get) => each(context, &fs, &get.paths, |_| Ok(())),
        QuotaCommand::Rm(rm) => each(context, &fs, &rm.paths, |dir| put(&fs, dir, None)),
    }
}

fn set_limits(fs: &Fs, dir: &Attr, set: &Set) -> Result<()> {
    if set.inodes.is_none() && set.bytes.is_none() {
        return Err(Error::new(Errno::Invalid, "", "no limit is given")
            .remedy("say --inodes or --bytes; `cudele quota rm` removes both"));
    }
    let before = match fs.get_xattr(dir.ino, LIMITS) {
        Err(error) if error.errno == Errno::NoData => QuotaLimits::default(),
        text => QuotaLimits::parse(&text?)?,
    };
    let limits = QuotaLimits {
        inodes: set.inodes.map_or(before.inodes, |wanted| wanted.0),
        bytes: set.bytes.map_or(before.bytes, |wanted| wanted.0),
    };
    let text = limits.to_string();
    let value = (limits != QuotaLimits::default()).then_some(text.as_bytes());
    if value.is_none() && before == QuotaLimits::default() {
        return Ok(());
    }
    put(fs, dir, value)
}

/// Sets or removes the attribute that has the limits.
fn put(fs: &Fs, dir: &Attr, value: Option<&[u8]>) -> Result<()> {
    fs.set_xattr(dir.ino, LIMITS, value).map_err(|error| {
        if error.errno == Errno::NoData {
            return Error::new(Errno::NoData, "", "the directory has no limits of its own")
                .remedy("`cudele quota get` shows which directories above have limits");
        }
        if error.errno == Errno::NotPermitted {
            return Error::new(Errno::NotPermitted, "", "only root sets limits")
                .remedy("ask an administrator of the cluster");
        }
        error
    })
}

/// The quotas of a directory that are exceeded, because a merge does not ask for room. None if the
/// server does not answer: the merge is done.
pub(crate) fn exceeded(fs: &Fs, path: &Path) -> Vec<QuotaReport> {
    let attr = fs.walk(path).ok().and_then(|(_, attr)| attr);
    let quotas = attr.and_then(|attr| quotas_of(fs, &attr).ok()).unwrap_or_default();
    quotas.into_iter().filter(|quota| quota.excess() != Usage::default()).collect()
}

fn quotas_of(fs: &Fs, attr: &Attr) -> Result<Vec<QuotaReport>> {
    match fs.get_xattr(attr.ino, REPORT) {
        Err(error) if error.errno == Errno::NoData => Ok(Vec::new()),
        text => Ok(QuotaReport::parse_all(&text?)?),
    }
}

/// Does something with each directory, and prints the quotas that hold there then.
fn each(
    context: &Context,
    fs: &Fs,
    paths: &[OsString],
    act: impl Fn(&Attr) -> Result<()>,
) -> Result<()> {
    let (mut rows, mut text) = (Vec::new(), String::new());
    for path in paths {
        let path = space::parse(path)?;
        let about = |error: Error| error.about(path.quoted());
        let (_, attr) = fs.walk(&path)?;
        let attr = attr.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))?;
        if !attr.is_dir() {
            return Err(Error::of(Errno::NotDirectory, path.to_string()));
        }
        act(&attr).map_err(about)?;
        let quotas = quotas_of(fs, &attr).map_err(about)?;
        if quotas.is_empty() {
            let _ = writeln!(text, "{}: no quota", path.quoted());
        }
        text.extend(quotas.iter().map(to_text));
        let mut row = Map::new();
        format::put_bytes(&mut row, "path", &path.to_bytes());
        row.insert("quotas".to_owned(), quotas.iter().map(to_json).collect());
        rows.push(Value::Object(row));
    }
    space::sync_after(fs, Ok(()))?;
    let value = if rows.len() == 1 { rows.swap_remove(0) } else { Value::Array(rows) };
    context.print(&value, || text)
}

pub(crate) fn to_text(quota: &QuotaReport) -> String {
    let QuotaReport { path, limits, used, reserved, is_counted } = quota;
    let of = |most: Option<String>| most.map_or_else(String::new, |most| format!(" of {most}"));
    let mut text = format!(
        "{}: {} inodes{}, {}{}",
        format::quoted(path),
        count(used.inodes),
        of(limits.inodes.map(count)),
        format::size(used.bytes),
        of(limits.bytes.map(format::size)),
    );
    if *reserved > 0 {
        let _ = write!(text, ", {} inodes reserved by decoupled subtrees", count(*reserved));
    }
    let Usage { inodes, bytes } = quota.excess();
    if inodes > 0 {
        let _ = write!(text, "; {} inodes over the limit", count(inodes));
    }
    if bytes > 0 {
        let _ = write!(text, "; {} over the limit", format::size(bytes));
    }
    text + if *is_counted { "\n" } else { "; still counting\n" }
}

pub(crate) fn to_json(quota: &QuotaReport) -> Value {
    let QuotaReport { path, limits, used, reserved, is_counted } = quota;
    let mut object = Map::new();
    format::put_bytes(&mut object, "path", path);
    object.insert("inodes".to_owned(), json!({ "used": used.inodes, "limit": limits.inodes }));
    object.insert("bytes".to_owned(), json!({ "used": used.bytes, "limit": limits.bytes }));
    object.insert("reserved_inodes".to_owned(), json!(reserved));
    object.insert("counted".to_owned(), json!(is_counted));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(inodes("1M"), Ok(Wanted(Some(1_000_000))));
        assert_eq!(bytes("10G"), Ok(Wanted(Some(10 << 30))));
        assert_eq!(bytes("7"), Ok(Wanted(Some(7))));
        assert_eq!(bytes("none"), Ok(Wanted(None)));
        for wrong in ["", "G", "-1", "1GB", "1.5G", "99999999999P"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_excess_is_shown() {
        let quota = QuotaReport {
            path: b"/a b".to_vec(),
            limits: QuotaLimits { inodes: Some(10), bytes: None },
            used: Usage { inodes: 12, bytes: 5 },
            reserved: 3,
            is_counted: false,
        };
        assert_eq!(
            to_text(&quota),
            "'/a b': 12 inodes of 10, 5 B, 3 inodes reserved by decoupled subtrees; \
             2 inodes over the limit; still counting\n"
        );
    }
}
