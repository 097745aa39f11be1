//! The findings of a check.

use std::fmt;

use types::{DirFragId, Ino};

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It takes room and does no harm.
    Leak,
    /// Names, attributes or content are lost or wrong.
    Damage,
}

impl Severity {
    /// In one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Leak => "leak",
            Self::Damage => "damage",
        }
    }
}

/// The subject of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An object of the store.
    Object(String),
    /// An inode.
    Inode(Ino),
    /// A name in a directory.
    Name(Ino, Vec<u8>),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The object is unreadable or malformed; the cause.
    Unreadable(String),
    /// The end of a journal is unreadable: damage, or an interrupted write without acknowledgement.
    TornEnd(String),
    /// The object is missing, and the store has traces of it.
    Lost,
    /// A manifest lists a run or a value segment that is not there.
    MissingRun,
    /// The value segment with content or attributes of the file is lost.
    ContentLost,
    /// The counts of values in a manifest differ from the references of its runs.
    Uses,
    /// Runs without a manifest.
    NoManifest,
    /// A run or a value segment that no manifest lists, left by a crash.
    LeftRun,
    /// A run of a client that no merge has attached.
    UnmergedRun,
    /// A directory that has no name.
    Unreachable(DirFragId),
    /// An inode that is in two places: where it was before, and where it was later.
    TwoPlaces(DirFragId, DirFragId),
    /// An inode counts so many names, and has so many.
    LinkCount(u32, u32),
    /// A name of an inode with several names that is not there.
    NameOfNothing(Ino),
    /// An inode that had several names and has none.
    Nameless,
    /// The manifest counts wrongly: the entries and sub-directories that it states, and the right
    /// numbers.
    Counts((u64, u64), (u64, u64)),
    /// Content of a file that is not there: objects.
    LeftContent(u64),
    /// No table shows that the number was allocated, so a server would allocate it again.
    NumberNotGiven,
    /// A journal of a client that has no decoupled subtree.
    LeftJournal,
    /// The content of a file does not match its checksums.
    Content {
        /// The number of damaged blocks.
        blocks: u64,
        /// The number of the first damaged block.
        first: u64,
        /// The object that contains the first damaged block.
        object: String,
    },
    /// The number of checksums of a file's content that are damaged.
    Checksums(u64),
    /// A name that nothing here would give to an object.
    Foreign,
}

impl FindingKind {
    /// How grave it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unreadable(_)
            | Self::Lost
            | Self::MissingRun
            | Self::ContentLost
            | Self::Uses
            | Self::NoManifest
            | Self::Unreachable(_)
            | Self::TwoPlaces(..)
            | Self::LinkCount(..)
            | Self::NameOfNothing(_)
            | Self::Nameless
            | Self::Counts(..)
            | Self::Content { .. }
            | Self::NumberNotGiven => Severity::Damage,
            Self::LeftRun | Self::LeftContent(_) => Severity::Leak,
            Self::UnmergedRun
            | Self::LeftJournal
            | Self::Checksums(_)
            | Self::Foreign
            | Self::TornEnd(_) => Severity::Note,
        }
    }

    /// A word for machines.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::TornEnd(_) => "torn_end",
            Self::Lost => "lost",
            Self::MissingRun => "missing_run",
            Self::ContentLost => "content_lost",
            Self::Uses => "uses",
            Self::NoManifest => "no_manifest",
            Self::LeftRun => "left_run",
            Self::UnmergedRun => "unmerged_run",
            Self::Unreachable(_) => "unreachable",
            Self::TwoPlaces(..) => "two_places",
            Self::LinkCount(..) => "link_count",
            Self::NameOfNothing(_) => "name_of_nothing",
            Self::Nameless => "nameless",
            Self::Counts(..) => "counts",
            Self::LeftContent(_) => "left_content",
            Self::NumberNotGiven => "number_not_given",
            Self::LeftJournal => "left_journal",
            Self::Content { .. } => "content",
            Self::Checksums(_) => "checksums",
            Self::Foreign => "foreign",
        }
    }

    /// The effect of a repair on a finding of this kind.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "what can be read stays; the object is moved to lost/",
            Self::TornEnd(_) => "whoever goes on with the journal cuts it off",
            Self::Lost => "made again from its second copy and from what else is there",
            Self::MissingRun => "the directory goes on without it",
            Self::NoManifest => "a new one lists all runs, those with higher numbers first",
            Self::LeftRun | Self::LeftContent(_) => "removed, if nothing is damaged",
            Self::Unreachable(_) | Self::Nameless => "it gets a name in /lost+found",
            Self::TwoPlaces(..) => "the older of the two goes",
            Self::ContentLost => "it stays, and is empty",
            Self::LinkCount(..) | Self::Counts(..) | Self::Uses => "corrected",
            Self::NameOfNothing(_) => "the name is removed",
            Self::NumberNotGiven => "the server must not give it again: not mended, see the manual",
            Self::UnmergedRun => "its client may merge it; `cudele discard` gives it up",
            Self::LeftJournal => "look at it with `cudele journal inspect`, then remove it",
            Self::Content { .. } => "restore the file from a copy: what was there is not known",
            Self::Checksums(_) => "the content is read unverified until it is written again",
            Self::Foreign => "nothing here touches it",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::TornEnd(why) => {
                write!(f, "ends with what cannot be read, perhaps an interrupted write: {why}")
            }
            Self::Lost => write!(f, "is gone, and was there"),
            Self::MissingRun => write!(f, "is listed in the manifest and is not there"),
            Self::ContentLost => write!(f, "has content or attributes that are lost"),
            Self::Uses => write!(f, "is pointed to otherwise than the manifest states"),
            Self::NoManifest => write!(f, "runs of a directory without a manifest"),
            Self::LeftRun => write!(f, "no manifest lists it"),
            Self::UnmergedRun => write!(f, "was written by a client and is not merged"),
            Self::Unreachable(_) => write!(f, "a directory without a name"),
            Self::TwoPlaces(older, newer) => {
                write!(f, "is in directory {} and, later, in {}", older.ino.0, newer.ino.0)
            }
            Self::LinkCount(counted, found) => {
                write!(f, "counts {counted} names and has {found}")
            }
            Self::NameOfNothing(ino) => write!(f, "is a name of inode {}, which is not", ino.0),
            Self::Nameless => write!(f, "had several names and has none"),
            Self::Counts((entries, subdirs), (names, dirs)) => write!(
                f,
                "counts {entries} names and {subdirs} directories, and has {names} and {dirs}"
            ),
            Self::LeftContent(objects) => {
                write!(f, "content in {objects} objects, of a file that is not there")
            }
            Self::NumberNotGiven => write!(f, "its number was never given to anybody"),
            Self::LeftJournal => write!(f, "a journal of a client that has no subtree"),
            Self::Content { blocks, first, object } => write!(
                f,
                "content does not match its checksums in {blocks} blocks of 16 KiB, the first is block {first} \
                 in {object}"
            ),
            Self::Checksums(count) => write!(f, "{count} checksums of its content are damaged"),
            Self::Foreign => write!(f, "is not an object of this program"),
        }
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The faulty object, inode or name.
    pub subject: Subject,
    /// What is wrong.
    pub kind: FindingKind,
    /// The path of the directory that it is in or about, if that is known.
    pub path: Option<String>,
}

impl Finding {
    pub(crate) fn new(subject: Subject, kind: FindingKind) -> Self {
        Self { subject, kind, path: None }
    }

    pub(crate) fn object(name: impl Into<String>, kind: FindingKind) -> Self {
        Self::new(Subject::Object(name.into()), kind)
    }

    pub(crate) fn foreign(name: String) -> Self {
        Self::object(name, FindingKind::Foreign)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.severity().as_str())?;
        if let Some(path) = &self.path {
            write!(f, "{}: ", types::quote::quoted(path.as_bytes()))?;
        }
        match &self.subject {
            Subject::Object(name) => write!(f, "{name} ")?,
            Subject::Inode(ino) => write!(f, "inode {} ", ino.0)?,
            Subject::Name(dir, name) => {
                write!(f, "\"{}\" in directory {} ", name.escape_ascii(), dir.0)?;
            }
        }
        write!(f, "{}", self.kind)
    }
}
