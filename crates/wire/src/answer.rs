//! The answers of a metadata server.

use types::bytes::{Malformed, Put, Reader};
use types::{Attr, ClientId, Epoch, Errno, Frag, Ino, InoRange, Lock, Rank, Seq};

use crate::codec::{
    attr, boolean, list, lock, option, put_attr, put_list, put_lock, put_option, put_range, range,
    string,
};
use crate::op::ino;
use crate::watch::{WatchPage, page, put_page};

/// The result of a merge, or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Events in the journal.
    pub events: u64,
    /// Inodes they created.
    pub created: u64,
    /// Names of other clients that lost.
    pub replaced: u64,
    /// Events that were not carried out.
    pub rejected: u64,
    /// Nanoseconds spent verifying, then applying.
    pub verify_nanos: u64,
    /// See `verify_nanos`.
    pub apply_nanos: u64,
    /// The first few names that were replaced or rejected.
    pub samples: Vec<MergeSample>,
}

/// One conflict of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeSample {
    /// The kind of change.
    pub kind: SampleKind,
    /// Why it was rejected.
    pub errno: Option<Errno>,
    /// Its directory; the inode itself for an event that is about no name.
    pub parent: Ino,
    /// Its name; empty for an event that is about an inode.
    pub name: Vec<u8>,
    /// Its path, where it is known; else empty.
    pub path: Vec<u8>,
}

/// The change of a name in a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// The merging client's entry replaced another client's.
    Replaced,
    /// The event was not carried out.
    Rejected,
}

/// A subtree that was given to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoupled {
    /// Its root directory.
    pub root: Attr,
    /// The inode numbers the client may use in it.
    pub range: InoRange,
    /// The term of the decoupling.
    pub epoch: Epoch,
    /// Whether the root had no entries: then the client's view needs nothing from the server.
    pub empty: bool,
}

/// A policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// Canonical text; empty for the default.
    pub policy: String,
    /// The directory that carries it; 0 for the default.
    pub source: Ino,
    /// The path of that directory.
    pub source_path: Vec<u8>,
    /// Where the entries of the directory that was asked about are now.
    pub storage: StateStorage,
    /// The client that has the subtree, if it is decoupled; 0 for none. Only that client knows its
    /// incomplete updates.
    pub owner: ClientId,
}

/// The storage, at this moment, of the directory state that a server shows (P-08).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateStorage {
    /// In the metadata store: it survives everything that the store does.
    #[default]
    Stored,
    /// Some of it in the journal only, all of which is in the store.
    Journalled,
    /// Some of it in the journal, which is being written.
    Applied,
    /// Some of it in the memory of the metadata server only.
    Memory,
}

impl StateStorage {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 4] = [Self::Stored, Self::Journalled, Self::Applied, Self::Memory];

    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Stored => "in the metadata store",
            Self::Journalled => "in the journal",
            Self::Applied => "on the way into the journal",
            Self::Memory => "in the memory of the metadata server only",
        }
    }
}

/// A file that was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Its attributes.
    pub attr: Attr,
    /// Its inline content; empty if the content is in the object store.
    pub data: Vec<u8>,
    /// Several clients have it open, and one writes: no client may cache it, and content goes to
    /// the object store only.
    pub shared: bool,
}

/// A redirect to the authority (B-02). The request was not executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The rank that serves it.
    pub rank: Rank,
    /// Of a path or a name that leads into a subtree of that rank, the root of the subtree; else 0:
    /// the same request is for that rank.
    pub root: Ino,
    /// The directory in which the root has its name.
    pub parent: Ino,
    /// The rest of the path below the root.
    pub rest: Vec<u8>,
}

/// A directory that is split, and the places of its fragments (B-04). The request was not executed:
/// it belongs to the hidden directory that has the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Its own attributes; number of entries, links and times are those of its fragments together.
    pub attr: Attr,
    /// Its names: all, or those of a fragment that was split further.
    pub frag: Frag,
    /// The hidden directories that have the names, by their hashes, and their ranks.
    pub parts: [(Ino, Rank); Frag::SPLIT_WAYS],
    /// The rest of the path below the directory.
    pub rest: Vec<u8>,
}

/// The content of a successful reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, nothing to say.
    Done,
    /// Attributes.
    Attr(Attr),
    /// The end of a path: the directory of the last name, and the attributes of its object if it
    /// exists.
    Walked {
        /// The directory.
        parent: Ino,
        /// The inode.
        attr: Option<Attr>,
    },
    /// Entries of a directory; `more` if there may be further ones.
    Entries {
        /// Names and attributes.
        entries: Vec<(Vec<u8>, Attr)>,
        /// Whether to go on after the last name.
        more: bool,
    },
    /// Content or value.
    Data(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Vec<u8>>),
    /// A policy.
    Policy(EffectivePolicy),
    /// A subtree is decoupled.
    Decoupled(Decoupled),
    /// More inode numbers.
    Range(InoRange),
    /// A merge is done.
    Merged(Box<MergeReport>),
    /// Everything up to here is durable.
    Safe(Seq),
    /// A policy will be in force when this client gives the subtree back (P-16).
    Pending(ClientId),
    /// A file is open.
    Opened(Opened),
    /// A conflicting lock and its owner; `None` if there is none.
    Locked(Option<(ClientId, Lock)>),
    /// Another rank has the authority. The request was not executed, and never will be here.
    Redirect(Box<Redirect>),
    /// A snapshot was taken; its number.
    Snapshot(u64),
    /// The directory is split. Nothing was carried out, and nothing will be for this request.
    Fragments(Box<Fragments>),
    /// Changes at a path and below it.
    Watched(Box<WatchPage>),
}

impl Answer {
    #[allow(clippy::too_many_lines, reason = "an arm for each answer")]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Done => out.put_u8(0),
            Answer::Attr(value) => {
                out.put_u8(1);
                put_attr(out, value);
            }
            Answer::Walked { parent, attr } => {
                out.put_u8(2);
                out.put_varint(parent.0);
                put_option(out, attr.as_ref(), put_attr);
            }
            Answer::Entries { entries, more } => {
                out.put_u8(3);
                put_list(out, entries, |out, (name, attr)| {
                    out.put_bytes(name);
                    put_attr(out, attr);
                });
                out.put_u8(u8::from(*more));
            }
            Answer::Data(data) => {
                out.put_u8(4);
                out.put_bytes(data);
            }
            Answer::Names(names) => {
                out.put_u8(5);
                put_list(out, names, |out, name| out.put_bytes(name));
            }
            Answer::Policy(policy) => {
                out.put_u8(6);
                out.put_bytes(policy.policy.as_bytes());
                out.put_varint(policy.source.0);
                out.put_bytes(&policy.source_path);
                out.put_u8(policy.storage as u8);
                out.put_varint(policy.owner.0);
            }
            Answer::Decoupled(decoupled) => {
                out.put_u8(7);
                put_attr(out, &decoupled.root);
                put_range(out, decoupled.range);
                out.put_varint(decoupled.epoch.0);
                out.put_u8(u8::from(decoupled.empty));
            }
            Answer::Range(value) => {
                out.put_u8(8);
                put_range(out, *value);
            }
            Answer::Merged(report) => {
                out.put_u8(9);
                put_report(out, report);
            }
            Answer::Safe(seq) => {
                out.put_u8(10);
                out.put_varint(seq.0);
            }
            Answer::Pending(client) => {
                out.put_u8(11);
                out.put_varint(client.0);
            }
            Answer::Opened(Opened { attr, data, shared }) => {
                out.put_u8(12);
                put_attr(out, attr);
                out.put_bytes(data);
                out.put_u8(u8::from(*shared));
            }
            Answer::Locked(found) => {
                out.put_u8(13);
                put_option(out, found.as_ref(), |out, (client, lock)| {
                    out.put_varint(client.0);
                    put_lock(out, lock);
                });
            }
            Answer::Redirect(elsewhere) => {
                let Redirect { rank, root, parent, rest } = &**elsewhere;
                out.put_u8(14);
                out.put_varint(u64::from(rank.0));
                out.put_varint(root.0);
                out.put_varint(parent.0);
                out.put_bytes(rest);
            }
            Answer::Snapshot(number) => {
                out.put_u8(20);
                out.put_varint(*number);
            }
            Answer::Fragments(fragments) => {
                out.put_u8(21);
                put_fragments(out, fragments);
            }
            Answer::Watched(page) => {
                out.put_u8(22);
                put_page(out, page);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            0 => Answer::Done,
            1 => Answer::Attr(attr(reader)?),
            2 => Answer::Walked { parent: ino(reader)?, attr: option(reader, attr)? },
            3 => Answer::Entries {
                entries: list(reader, |reader| Ok((reader.bytes()?.to_vec(), attr(reader)?)))?,
                more: boolean(reader)?,
            },
            4 => Answer::Data(reader.bytes()?.to_vec()),
            5 => Answer::Names(list(reader, |reader| Ok(reader.bytes()?.to_vec()))?),
            6 => Answer::Policy(EffectivePolicy {
                policy: string(reader)?,
                source: ino(reader)?,
                source_path: reader.bytes()?.to_vec(),
                storage: storage(reader)?,
                owner: ClientId(reader.varint()?),
            }),
            7 => Answer::Decoupled(Decoupled {
                root: attr(reader)?,
                range: range(reader)?,
                epoch: Epoch(reader.varint()?),
                empty: boolean(reader)?,
            }),
            8 => Answer::Range(range(reader)?),
            9 => Answer::Merged(Box::new(report(reader)?)),
            10 => Answer::Safe(Seq(reader.varint()?)),
            11 => Answer::Pending(ClientId(reader.varint()?)),
            12 => Answer::Opened(Opened {
                attr: attr(reader)?,
                data: reader.bytes()?.to_vec(),
                shared: boolean(reader)?,
            }),
            13 => Answer::Locked(option(reader, |reader| {
                Ok((ClientId(reader.varint()?), lock(reader)?))
            })?),
            14 => Answer::Redirect(Box::new(Redirect {
                rank: crate::map::rank(reader)?,
                root: ino(reader)?,
                parent: ino(reader)?,
                rest: reader.bytes()?.to_vec(),
            })),
            20 => Answer::Snapshot(reader.varint()?),
            21 => Answer::Fragments(Box::new(fragments(reader)?)),
            22 => Answer::Watched(Box::new(page(reader)?)),
            _ => return Err(start.malformed("a known answer")),
        })
    }
}

fn put_fragments(out: &mut Vec<u8>, fragments: &Fragments) {
    let Fragments { attr, frag, parts, rest } = fragments;
    put_attr(out, attr);
    out.put_u8(frag.bits);
    out.put_u32(frag.value);
    for (ino, rank) in parts {
        out.put_varint(ino.0);
        out.put_varint(u64::from(rank.0));
    }
    out.put_bytes(rest);
}

fn fragments(reader: &mut Reader<'_>) -> Result<Fragments, Malformed> {
    let attr = attr(reader)?;
    let start = *reader;
    let frag = Frag { bits: reader.u8()?, value: reader.u32()? };
    if !frag.is_legal() || frag.split().is_none() {
        return Err(start.malformed("a fragment that can be split"));
    }
    let mut parts = [(Ino(0), Rank(0)); Frag::SPLIT_WAYS];
    for part in &mut parts {
        *part = (ino(reader)?, crate::map::rank(reader)?);
    }
    Ok(Fragments { attr, frag, parts, rest: reader.bytes()?.to_vec() })
}

fn storage(reader: &mut Reader<'_>) -> Result<StateStorage, Malformed> {
    let start = *reader;
    let code = usize::from(reader.u8()?);
    StateStorage::ALL.get(code).copied().ok_or_else(|| start.malformed("a known place"))
}

fn put_report(out: &mut Vec<u8>, report: &MergeReport) {
    let MergeReport { events, created, replaced, rejected, verify_nanos, apply_nanos, samples } =
        report;
    for value in [events, created, replaced, rejected, verify_nanos, apply_nanos] {
        out.put_varint(*value);
    }
    put_list(out, samples, |out, sample| {
        out.put_u8(u8::from(sample.kind == SampleKind::Rejected));
        out.put_varint(sample.parent.0);
        out.put_bytes(&sample.name);
        out.put_varint(sample.errno.map_or(0, |errno| u64::from(errno.code())));
        out.put_bytes(&sample.path);
    });
}

fn report(reader: &mut Reader<'_>) -> Result<MergeReport, Malformed> {
    Ok(MergeReport {
        events: reader.varint()?,
        created: reader.varint()?,
        replaced: reader.varint()?,
        rejected: reader.varint()?,
        verify_nanos: reader.varint()?,
        apply_nanos: reader.varint()?,
        samples: list(reader, |reader| {
            let rejected = boolean(reader)?;
            let kind = if rejected { SampleKind::Rejected } else { SampleKind::Replaced };
            let (parent, name) = (ino(reader)?, reader.bytes()?.to_vec());
            let errno = match u16::try_from(reader.varint()?) {
                Ok(0) => None,
                Ok(code) => Some(Errno::from_code(code)),
                Err(_) => Some(Errno::Io),
            };
            Ok(MergeSample { kind, errno, parent, name, path: reader.bytes()?.to_vec() })
        })?,
    })
}
