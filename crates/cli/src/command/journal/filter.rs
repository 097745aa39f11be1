//! Which events of a journal are wanted: those for which everything that is asked holds.

use std::ffi::OsStr;

use clap::Args as ClapArgs;
use cudele::{ClientId, Ino};
use journal::{Event, EventKind};

use crate::glob::Glob;
use crate::journals::Story;

/// The options. A missing option matches all events.
#[derive(Debug, ClapArgs)]
pub(super) struct FilterArgs {
    /// Only events of these types, such as create,unlink
    #[arg(long = "type", value_name = "TYPES", value_parser = TypesParser)]
    kinds: Option<Kinds>,
    /// Only events at or below this path, as far as the journals tell paths
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only events about names that match a pattern
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Only events about this inode, or names in it
    #[arg(long, value_name = "N")]
    inode: Option<u64>,
    /// Only events about names in this directory, or this fragment of it
    #[arg(long, value_name = "INODE[.FRAGMENT]", value_parser = fragment)]
    frag: Option<Ino>,
    /// Only events about this name in the directory
    #[arg(long, value_name = "NAME", requires = "frag")]
    dname: Option<String>,
    /// Only events of this client
    #[arg(long, value_name = "N")]
    client: Option<u64>,
    /// Only events at these positions; B is the first one after
    #[arg(long, value_name = "A..B", value_parser = range)]
    range: Option<(u64, u64)>,
}

impl FilterArgs {
    /// The filter that they describe.
    pub(super) fn filter(&self) -> Filter {
        Filter {
            kinds: self.kinds.clone().map(|Kinds(kinds)| kinds).unwrap_or_default(),
            path: self.path.clone().map(String::into_bytes),
            name: self.name.as_ref().map(|pattern| Glob::new(pattern.as_bytes())),
            ino: self.inode.map(Ino),
            frag: self.frag,
            dname: self.dname.clone().map(String::into_bytes),
            client: self.client.map(ClientId),
            range: self.range,
        }
    }

    /// Whether nothing is asked, so that every event is admitted.
    pub(super) fn is_empty(&self) -> bool {
        let Self { kinds, path, name, inode, frag, dname, client, range } = self;
        kinds.is_none()
            && (path.is_none() && name.is_none() && inode.is_none() && frag.is_none())
            && (dname.is_none() && client.is_none() && range.is_none())
    }

    /// Whether paths matter.
    pub(super) fn asks_for_path(&self) -> bool {
        self.path.is_some()
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Filter {
    kinds: Vec<EventKind>,
    path: Option<Vec<u8>>,
    name: Option<Glob>,
    ino: Option<Ino>,
    frag: Option<Ino>,
    dname: Option<Vec<u8>>,
    client: Option<ClientId>,
    range: Option<(u64, u64)>,
}

impl Filter {
    pub(super) fn admits(&self, story: &Story<'_>) -> bool {
        let event = &story.record.event;
        let below = |path: &[u8], root: &[u8]| {
            let rest = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let path = |root: &Vec<u8>| {
            below(&story.path, root) || story.to.as_ref().is_some_and(|to| below(to, root))
        };
        let name = |glob: &Glob| event.dentry().is_some_and(|(_, name)| glob.matches(name));
        let ino = |wanted: &Ino| {
            event.inode() == Some(*wanted) || event.dentry().is_some_and(|(dir, _)| dir == *wanted)
        };
        let seq = story.record.seq.0;
        (self.kinds.is_empty() || (self.kinds.contains(&event.kind()) && !event.is_nothing()))
            && self.path.as_ref().is_none_or(path)
            && self.name.as_ref().is_none_or(name)
            && self.ino.as_ref().is_none_or(ino)
            && self.frag.is_none_or(|dir| self.is_in(dir, event))
            && self.client.is_none_or(|client| story.client() == Some(client))
            && self.range.is_none_or(|(first, end)| first <= seq && seq < end)
    }

    /// Whether an event is about a name in a directory, the one that is asked for if one is.
    fn is_in(&self, dir: Ino, event: &Event<'_>) -> bool {
        let wanted = |(parent, name): (Ino, &[u8])| {
            parent == dir && self.dname.as_ref().is_none_or(|wanted| wanted == name)
        };
        if let Event::Stored { dir: stored } = *event {
            return stored == dir && self.dname.is_none();
        }
        event.dentry().is_some_and(wanted) || event.destination().is_some_and(wanted)
    }
}

#[derive(Clone, Debug)]
struct Kinds(Vec<EventKind>);

#[derive(Clone, Debug)]
struct TypesParser;

impl clap::builder::TypedValueParser for TypesParser {
    type Value = Kinds;
    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Kinds, clap::Error> {
        kinds(&value.to_string_lossy()).map(Kinds).map_err(|cause| {
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{cause}\n"))
                .with_cmd(command)
        })
    }
}

/// Reads `create,unlink`.
fn kinds(text: &str) -> Result<Vec<EventKind>, String> {
    let one = |word: &str| {
        let known = EventKind::ALL.into_iter().find(|kind| kind.name() == word);
        known.ok_or_else(|| {
            let all: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("`{word}` is no type of event; the types are {}", all.join(", "))
        })
    };
    text.split(',').map(|word| one(word.trim())).collect()
}

/// Reads `A..B`, either end left out at will.
fn range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str, default| {
        if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| ()) }
    };
    let parts = text.split_once("..").ok_or(());
    parts
        .and_then(|(first, end)| Ok((number(first, 0)?, number(end, u64::MAX)?)))
        .map_err(|()| "a range of positions is written A..B, without B".to_owned())
}

/// Reads `INODE` or `INODE.FRAGMENT`.
fn fragment(text: &str) -> Result<Ino, String> {
    let (ino, fragment) = text.split_once('.').unwrap_or((text, "0"));
    let ino = ino.parse().map_err(|_| {
        format!("`{ino}` is no inode number; a fragment is written INODE or INODE.FRAGMENT")
    })?;
    match fragment {
        "0" => Ok(Ino(ino)),
        _ => Err(format!(
            "there is no fragment `{fragment}`: every directory has one; write {ino} or {ino}.0"
        )),
    }
}
