//! `cudele watch`: the changes of a subtree, a line for each.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use cudele::{
    ChangeKind, Errno, Error, FileType, Result, Watch, WatchEvent, WatchLoss, WatchPosition,
    WatchedChange,
};
use serde_json::{Map, Value, json};
use terminal::context::{Context, is_read, say};
use terminal::format;

use crate::space;

/// The exit code after lost changes.
const LOST: u8 = 3;
/// How long one call waits for a change.
const WAIT: Duration = Duration::from_secs(3600);

/// Print the changes at a directory and below it as they happen, a line for each; a merge is one
/// line. With --json each line is an object with its `position`; --from continues behind one,
/// within ten minutes of the last request and as long as the servers have the changes in memory
/// (16 MiB for each). If changes are lost, the exit code is 3.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele watch /proj
  cudele watch --json /proj                     each line has \"position\", \"kind\", \"path\"
  cudele watch --json --from 0.7.1234 /proj     continue behind a printed position
  cudele watch --position /proj                 the present position, then end
  cudele watch --json --once --from 0.7.1234 /proj    what is there already, then end")]
pub(crate) struct Args {
    /// The directory
    path: OsString,
    /// Continue behind this position
    #[arg(long, value_name = "POSITION")]
    from: Option<String>,
    /// Print the present position and end; changes behind it are kept from now on
    #[arg(long, conflicts_with_all = ["from", "once"])]
    position: bool,
    /// End when all present changes are printed; the last line has the position
    #[arg(long)]
    once: bool,
    /// After lost changes print a line of the kind `lost`, and go on
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let from = args.from.as_deref().map(str::parse::<WatchPosition>).transpose()?;
    let path = space::parse(&args.path)?;
    let mut watch = context.mount()?.watch(path.to_bytes(), from)?;
    if args.position {
        let position = watch.position().to_string();
        let line =
            if context.json { json!({ "position": position }).to_string() } else { position };
        return say(&format!("{line}\n")).map(|()| ExitCode::SUCCESS);
    }
    let wait = if args.once { Duration::ZERO } else { WAIT };
    let mut is_wanted = true;
    while is_wanted {
        is_wanted = match watch.next_event(wait)? {
            Some(WatchEvent::Change(change)) => {
                let line = Line { change: &change, position: watch.position() };
                line.print(context)?
            }
            Some(WatchEvent::Lost(loss)) if args.keep_going => print_lost(context, &watch, loss)?,
            Some(WatchEvent::Lost(loss)) => {
                context.report(&lost(&watch, &path.quoted(), loss));
                return Ok(ExitCode::from(LOST));
            }
            None if args.once => {
                print_end(context, &watch)?;
                false
            }
            None => true,
        };
    }
    Ok(ExitCode::SUCCESS)
}

fn print_end(context: &Context, watch: &Watch) -> Result<()> {
    let position = watch.position().to_string();
    if context.json {
        say(&format!("{}\n", json!({ "position": position, "kind": "end" })))
    } else {
        Ok(())
    }
}

fn lost(watch: &Watch, path: &str, loss: WatchLoss) -> Error {
    let position = watch.position();
    Error::new(Errno::Stale, path, format!("changes are lost: {loss}")).remedy(format!(
        "read the directory again (`cudele dump`), and then continue with `cudele watch --from \
         {position}`"
    ))
}

fn print_lost(context: &Context, watch: &Watch, loss: WatchLoss) -> Result<bool> {
    let position = watch.position().to_string();
    if context.json {
        let cause = loss.to_string();
        return is_read(&format!(
            "{}\n",
            json!({ "position": position, "kind": "lost", "cause": cause })
        ));
    }
    is_read(&format!("lost         changes before {position}: {loss}\n"))
}

/// A change, and the position behind it.
struct Line<'a> {
    change: &'a WatchedChange,
    position: &'a WatchPosition,
}

impl Line<'_> {
    /// Returns whether it was read.
    fn print(&self, context: &Context) -> Result<bool> {
        let line = if context.json { format!("{}\n", self.to_json()) } else { self.to_text() };
        is_read(&line)
    }

    fn to_text(&self) -> String {
        let WatchedChange { time, kind, ino, at, to, number, xattr, .. } = self.change;
        let shown = match at {
            Some(name) => format::quoted(&name.path).into_owned(),
            None => ino.to_string(),
        };
        let more = if let Some(to) = to {
            format!(" -> {}", format::quoted(&to.path))
        } else if !xattr.is_empty() {
            format!("  {}", format::quoted(xattr))
        } else if *kind == ChangeKind::Merge {
            format!("  {number} new names")
        } else if *kind == ChangeKind::Content {
            format!("  {number} bytes")
        } else {
            String::new()
        };
        format!("{}  {:<12} {}{more}\n", format::instant(*time), kind.name(), shown)
    }

    fn to_json(&self) -> Value {
        let WatchedChange { time, kind, file_type, ino, at, to, other, number, xattr } =
            self.change;
        let mut object = Map::new();
        object.insert("position".to_owned(), self.position.to_string().into());
        object.insert("time".to_owned(), format::instant(*time).into());
        object.insert("time_ns".to_owned(), time.0.into());
        object.insert("kind".to_owned(), kind.name().into());
        object.insert("ino".to_owned(), ino.0.into());
        object.insert("type".to_owned(), file_type.word().into());
        if let Some(name) = at {
            format::put_bytes(&mut object, "path", &name.path);
            if is_of_name(*kind) {
                object.insert("parent".to_owned(), name.dir.0.into());
            }
        }
        if let Some(name) = to {
            format::put_bytes(&mut object, "to", &name.path);
            object.insert("to_parent".to_owned(), name.dir.0.into());
        }
        if other.0 != 0 {
            let key = if *kind == ChangeKind::Exchange { "other_ino" } else { "replaced_ino" };
            object.insert(key.to_owned(), other.0.into());
        }
        if *kind == ChangeKind::Content {
            object.insert("size".to_owned(), (*number).into());
        }
        if *kind == ChangeKind::Merge {
            object.insert("names".to_owned(), (*number).into());
        }
        if !xattr.is_empty() {
            format::put_bytes(&mut object, "xattr", xattr);
        }
        if is_to_read(*kind, *file_type) {
            object.insert("read".to_owned(), true.into());
        }
        Value::Object(object)
    }
}

/// Whether the change is one of a name in a directory.
fn is_of_name(kind: ChangeKind) -> bool {
    kind <= ChangeKind::Exchange || matches!(kind, ChangeKind::RemoveTree | ChangeKind::Restore)
}

/// Whether names below the path may have come without a line: a program reads the directory.
fn is_to_read(kind: ChangeKind, file_type: FileType) -> bool {
    // Until the release other clients may not read what was merged.
    matches!(kind, ChangeKind::Merge | ChangeKind::Release | ChangeKind::Restore)
        || (kind == ChangeKind::MovedTo && file_type == FileType::Directory)
}
