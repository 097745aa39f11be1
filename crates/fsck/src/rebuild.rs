//! Rebuilds the tables of ranks, the map of the monitor and the list of subtrees.
//!
//! Each has a second copy ([`metastore::is_copied`]), which may lack the last change. Numbers and
//! positions therefore continue behind the largest one in the store, and behind a wide gap. A table
//! or map without a copy loses its decoupled subtrees and policies. The list of subtrees cannot be
//! rebuilt without its copy.
//!
//! Invariant: no number is allocated twice.

use journal::Event;
use journal::segment::{SegmentReader, Writer};
use mds::{NextNumbers, RankTable};
use metastore::request::{
    MAP_NAME, client_journals_prefix, journal_prefix, parse_rank_name, rank_name,
};
use metastore::{
    COPY_PREFIX, SUBTREES_NAME, Subtrees, copy_name, decode_copy, encode_copy, is_of_branch,
};
use objstore::{Expect, ObjectStore};
use types::{ClientId, Epoch, Errno, Error, Ino, Rank, Result, Seq};
use wire::{ClusterMap, MdsEntry, MdsState};

use crate::facts::Facts;
use crate::survey::StoreSurvey;
use crate::{FsckReport, Scope};

/// Numbers of inodes that are skipped, of 2^40 that a rank has.
const INOS: u64 = 1 << 32;
/// Numbers of clients, of terms, and positions in a journal.
const CLIENTS: u64 = 1 << 20;
const TERMS: u64 = 1000;
const EVENTS: u64 = 1 << 20;

/// Numbers in use in the store.
#[derive(Debug, Default)]
struct Used {
    inos: Vec<Ino>,
    positions: Vec<Seq>,
    clients: Vec<ClientId>,
    /// The terms of each rank in the segments of its journal and in the map.
    terms: Vec<(Rank, Epoch)>,
}

/// Rebuilds a damaged or missing object. Returns the reason if that is impossible.
///
/// # Errors
/// If the store does not answer.
pub(crate) fn make(store: &dyn ObjectStore, object: &str) -> Result<Option<String>> {
    let copied = match store.get(&copy_name(object)) {
        Ok((bytes, _)) => decode_copy(object, &bytes).ok().map(<[u8]>::to_vec),
        Err(error) if error.errno == Errno::NotFound => None,
        Err(error) => return Err(error),
    };
    let bytes = if let Some(rank) = parse_rank_name(object) {
        table(store, rank, copied.as_deref())?
    } else if object == MAP_NAME {
        map(store, copied.as_deref())?
    } else {
        match copied {
            Some(bytes) if Subtrees::decode(&bytes).is_ok() => bytes,
            _ => {
                let why =
                    "nothing else says which rank serves what: restore it from a copy of the store";
                return Ok(Some(why.to_owned()));
            }
        }
    };
    let _replaced = store.put(object, &bytes, Expect::Any)?;
    copy(store, object, &bytes)?;
    Ok(None)
}

/// Writes the second copy of an object again.
pub(crate) fn copy(store: &dyn ObjectStore, object: &str, bytes: &[u8]) -> Result<()> {
    store.put(&copy_name(object), &encode_copy(object, bytes), Expect::Any).map(drop)
}

/// Rebuilds a second copy. Returns the reason if that is impossible.
pub(crate) fn copy_again(store: &dyn ObjectStore, name: &str) -> Result<Option<String>> {
    let object = name.strip_prefix(COPY_PREFIX).unwrap_or(name);
    match store.get(object) {
        Ok((bytes, _)) => copy(store, object, &bytes).map(|()| None),
        Err(_) => Ok(Some("what it is a copy of cannot be read".to_owned())),
    }
}

fn table(store: &dyn ObjectStore, rank: Rank, copied: Option<&[u8]>) -> Result<Vec<u8>> {
    let used = Used::of(store)?;
    let space = Ino::space_of(rank);
    let last = used.inos.iter().filter(|ino| space.contains(**ino)).map(|ino| ino.0).max();
    let next = last.unwrap_or(space.start) + INOS;
    let term = used.terms.iter().filter(|(of, _)| *of == rank).map(|(_, epoch)| epoch.0).max();
    let names = store.list(&journal_prefix(rank))?;
    let seen = used.positions.iter().map(|seq| seq.seen_by(rank).0).max();
    // The segments of a journal show its end.
    let first = Seq::before_first(rank);
    let last = if names.is_empty() { Seq(seen.unwrap_or(0).max(first.0) + EVENTS) } else { first };
    let from = NextNumbers {
        next: next.min(space.end),
        epoch: Epoch(term.unwrap_or(0) + TERMS),
        last,
        next_index: 0,
    };
    let older = copied.filter(|bytes| RankTable::decode(rank, bytes).is_ok());
    let from = match older.map(|bytes| RankTable::decode(rank, bytes)) {
        Some(Ok(table)) => NextNumbers {
            next: from.next.max((table.next + INOS).min(space.end)),
            epoch: from.epoch.max(Epoch(table.epoch.0 + TERMS)),
            ..from
        },
        _ => from,
    };
    RankTable::begin_again(rank, older, from).map_err(|error| {
        Error::new(Errno::BadMessage, copy_name(&rank_name(rank)), error.to_string())
    })
}

fn map(store: &dyn ObjectStore, copied: Option<&[u8]>) -> Result<Vec<u8>> {
    let used = Used::of(store)?;
    let mut map = copied.and_then(|bytes| mon::read_map(bytes).ok()).unwrap_or_default();
    let last = used.clients.into_iter().max().unwrap_or_default();
    map.next_client = ClientId(map.next_client.max(last).0 + CLIENTS);
    map.epoch.0 += TERMS;
    for rank in StoreSurvey::of(store)?.ranks() {
        if !map.mds.iter().any(|entry| entry.rank == rank) {
            map.mds.push(MdsEntry { rank, state: MdsState::Lost, ..MdsEntry::default() });
        }
    }
    map.mds.sort_by_key(|entry| entry.rank);
    Ok(mon::map_bytes(&map))
}

impl Used {
    fn of(store: &dyn ObjectStore) -> Result<Self> {
        let survey = StoreSurvey::of(store)?;
        let (mut facts, mut report) = (Facts::default(), FsckReport::default());
        crate::survey::read_tables(store, &survey, &mut facts, &mut report)?;
        let mut used = Self::default();
        for object in &survey.copies {
            let Some(rank) = parse_rank_name(object) else { continue };
            let bytes = crate::survey::read(store, &copy_name(object), &mut report)?;
            let bytes = bytes.unwrap_or_default();
            let table = decode_copy(object, &bytes).map(|table| RankTable::decode(rank, table));
            facts.tables.extend(table.ok().and_then(|table| table.ok()));
        }
        for (dirfrag, objects) in &survey.fragments {
            used.inos.push(dirfrag.ino);
            let scope = Scope::EachByItself;
            crate::fragment::check(store, *dirfrag, objects, scope, &mut facts, &mut report)?;
        }
        used.inos.extend(survey.content.keys());
        used.inos.extend(facts.files.iter().chain(facts.links.keys()));
        used.inos.extend(facts.homes.iter().map(|home| home.ino));
        used.positions.extend(facts.homes.iter().map(|home| home.version));
        used.positions.append(&mut facts.positions);
        for table in &facts.tables {
            used.clients.push(table.last_client);
            for (root, _, ranges) in &table.decoupled {
                used.inos.push(*root);
                used.inos.extend(ranges.iter().map(|range| Ino(range.end.saturating_sub(1))));
            }
        }
        for name in survey.client_journals.iter().chain(&survey.segments) {
            used.clients.extend(client_of(name));
            if let Some(bytes) = crate::survey::read(store, name, &mut report)? {
                used.read_journal(&bytes);
            }
        }
        used.inos.retain(|ino| !is_of_branch(*ino));
        let map = crate::survey::read(store, MAP_NAME, &mut report)?;
        let copied = crate::survey::read(store, &copy_name(MAP_NAME), &mut report)?;
        let copied = copied.as_deref().and_then(|bytes| decode_copy(MAP_NAME, bytes).ok());
        for map in map.as_deref().into_iter().chain(copied) {
            let ranks = mon::read_map(map).map(|map| map.mds).unwrap_or_default();
            used.terms.extend(ranks.iter().map(|entry| (entry.rank, entry.epoch)));
        }
        Ok(used)
    }

    /// Takes in the readable events of a segment.
    fn read_journal(&mut self, bytes: &[u8]) {
        let Ok(mut segment) = SegmentReader::open(bytes) else { return };
        match segment.header.writer {
            Writer::Mds { rank } => self.terms.push((rank, segment.header.epoch)),
            Writer::Client { client, .. } => self.clients.push(client),
        }
        while let Ok(Some(block)) = segment.next_block() {
            let mut events = block.events();
            while let Ok(Some(record)) = events.next_event() {
                self.positions.push(record.seq);
                self.clients.push(record.origin.client);
                if let Event::Create(create) = record.event {
                    self.inos.push(create.ino);
                } else if let Event::Session { client, .. } | Event::Merged { client, .. } =
                    record.event
                {
                    self.clients.push(client);
                }
            }
        }
        self.clients = self.clients.iter().max().copied().into_iter().collect();
    }
}

/// Parses the client from the name of a client journal.
fn client_of(name: &str) -> Option<ClientId> {
    let (subtree, rest) = name.strip_prefix("journal/client/")?.split_once('.')?;
    let (client, _) = rest.split_once('.')?;
    let subtree = Ino(u64::from_str_radix(subtree, 16).ok()?);
    let client = ClientId(u64::from_str_radix(client, 16).ok()?);
    name.starts_with(&client_journals_prefix(subtree, client)).then_some(client)
}

/// Missing objects of which the store has traces.
pub(crate) fn missing(survey: &StoreSurvey, facts: &Facts) -> Vec<String> {
    let mut missing = Vec::new();
    let given = facts.homes.iter().map(|home| home.ino);
    let dirs = survey.fragments.keys().map(|dirfrag| dirfrag.ino);
    let given = given.chain(dirs).filter(|ino| ino.0 >= Ino::FIRST_FREE && !is_of_branch(*ino));
    let given = given.filter(|ino| !ino.is_mount_stub()).map(Ino::given_by);
    let journals = survey.segments.iter().filter_map(|name| rank_of_segment(name));
    let copies = survey.copies.iter().filter_map(|object| parse_rank_name(object));
    let mut ranks: Vec<Rank> = given.chain(journals).chain(copies).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let lost = ranks.into_iter().filter(|rank| !survey.tables.contains(rank));
    missing.extend(lost.map(rank_name));
    let has_copy = |object: &str| survey.copies.iter().any(|copied| copied == object);
    let has_clients = facts.tables.iter().any(|table| table.last_client > ClientId(0));
    let map_was = has_copy(MAP_NAME) || has_clients || survey.has_rank_journals();
    if !survey.map && map_was {
        missing.push(MAP_NAME.to_owned());
    }
    if !survey.subtrees && has_copy(SUBTREES_NAME) {
        missing.push(SUBTREES_NAME.to_owned());
    }
    missing
}

fn rank_of_segment(name: &str) -> Option<Rank> {
    let rank = name.strip_prefix("journal/mds.")?.get(..4)?;
    let rank = Rank(u16::from_str_radix(rank, 16).ok()?);
    name.starts_with(&journal_prefix(rank)).then_some(rank)
}

/// The map, if it can be read.
pub(crate) fn read_map(bytes: &[u8]) -> std::result::Result<ClusterMap, String> {
    mon::read_map(bytes).map_err(|error| error.to_string())
}
