//! The table of a rank as the bytes of an object: `docs/formats/rank.md`.

use std::collections::{BTreeMap, BTreeSet};

use metastore::request::rank_name;
use policy::MergeTrigger;
use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Cred, Epoch, Ino, InoRange, Rank, Seq, Tid, Timestamp};

use super::departures::GoneList;
use super::free::Free;
use super::holders::Holders;
use super::lapsed::Lapsed;
use super::{Decoupling, JournalEnd, Tables};
use crate::session::{Remembered, SavedSession};

const MAGIC: &[u8; 8] = b"CUDLRANK";
/// Version 2 has numbers that were given back, version 3 clients with caches, version 4 subtrees
/// that move to other ranks, version 5 subtrees that left and are still in the journal, version 8
/// clients whose open files and locks ended, version 9 the holders of numbers. Earlier tables are
/// read, and written in the present version.
const VERSION: u16 = 9;
/// The first version that lists which inodes with several names left.
const VERSION_LINKED: u16 = 6;
/// The first version whose checksum includes the name of the object, and so the rank.
const VERSION_NAMED: u16 = 7;

impl Tables {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.put_u16(VERSION);
        out.put_varint(self.epoch.0);
        out.put_varint(self.next);
        out.put_varint(self.decoupled.len() as u64);
        for (ino, decoupling) in &self.decoupled {
            put_decoupling(&mut out, *ino, decoupling);
        }
        out.put_varint(self.end.last.0);
        out.put_varint(self.end.next_index);
        out.put_varint(self.end.sessions.len() as u64);
        for SavedSession { client, tids, remembered } in &self.end.sessions {
            out.put_varint(client.0);
            out.put_varint(tids.len() as u64);
            tids.iter().for_each(|tid| out.put_varint(tid.0));
            out.put_varint(remembered.len() as u64);
            for Remembered { tid, seq, ino, time } in remembered {
                [tid.0, seq.0, ino.0].into_iter().for_each(|value| out.put_varint(value));
                out.put_signed(time.0);
            }
        }
        out.put_varint(self.fenced.len() as u64);
        self.fenced.iter().for_each(|client| out.put_varint(client.0));
        out.put_varint(self.stopped.0);
        out.put_varint(self.crashed.0);
        out.put_varint(self.free.ranges().count() as u64);
        for range in self.free.ranges() {
            out.put_varint(range.start);
            out.put_varint(range.end);
        }
        out.put_varint(self.expected.len() as u64);
        self.expected.iter().for_each(|client| out.put_varint(client.0));
        out.put_varint(self.departed.ranges().count() as u64);
        for range in self.departed.ranges() {
            out.put_varint(range.start);
            out.put_varint(range.end);
        }
        self.gone.encode(&mut out);
        out.put_varint(self.lapsed.clients().len() as u64);
        self.lapsed.clients().for_each(|client| out.put_varint(client.0));
        self.holders.encode(&mut out);
        out.put_u32(crc(VERSION, self.rank, &out));
        out
    }

    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.take(8)? != MAGIC {
            return Err(Malformed { offset: 0, expected: "the table of a rank" });
        }
        let version = reader.u16()?;
        // Every version ends with the checksum: a flipped bit must not look like a later version.
        if let Some((body, sum)) = bytes.split_last_chunk::<4>()
            && crc(version, self.rank, body) != u32::from_le_bytes(*sum)
        {
            return Err(Malformed { offset: body.len(), expected: "a matching checksum" });
        }
        if !(1..=VERSION).contains(&version) {
            return Err(Malformed { offset: 8, expected: "format version 1 to 9" });
        }
        self.epoch = Epoch(reader.varint()?);
        self.next = reader.varint()?;
        let mut decoupled = BTreeMap::new();
        for _ in 0..reader.length()? {
            let (ino, known) = read_decoupling(&mut reader)?;
            decoupled.insert(ino, known);
        }
        let end = read_end(&mut reader)?;
        // Tables that were written before there were fenced clients end here.
        let mut fenced = BTreeSet::new();
        if reader.offset() + 4 < bytes.len() {
            for _ in 0..reader.length()? {
                fenced.insert(ClientId(reader.varint()?));
            }
        }
        // Or before it was noted how terms end: then the last one counts as crashed.
        let (mut stopped, mut crashed) = (Epoch(0), Epoch(0));
        if reader.offset() + 4 < bytes.len() {
            stopped = Epoch(reader.varint()?);
            crashed = Epoch(reader.varint()?);
        }
        // Or before numbers were given back.
        let mut free = Free::default();
        if reader.offset() + 4 < bytes.len() {
            free = read_free(&mut reader)?;
        }
        // Or before clients had caches.
        let mut expected = BTreeSet::new();
        if reader.offset() + 4 < bytes.len() {
            for _ in 0..reader.length()? {
                expected.insert(ClientId(reader.varint()?));
            }
        }
        // Or before decoupled subtrees moved.
        let mut departed = Free::default();
        if reader.offset() + 4 < bytes.len() {
            departed = read_free(&mut reader)?;
        }
        // Or before subtrees left the journal behind.
        let mut gone = GoneList::default();
        if reader.offset() + 4 < bytes.len() {
            gone = GoneList::decode(&mut reader, version >= VERSION_LINKED)?;
        }
        // Or before open files and locks ended when the store knew it.
        let mut lapsed = BTreeSet::new();
        if reader.offset() + 4 < bytes.len() {
            for _ in 0..reader.length()? {
                lapsed.insert(ClientId(reader.varint()?));
            }
        }
        // Or before numbers had holders.
        let mut holders = Holders::default();
        if reader.offset() + 4 < bytes.len() {
            holders = Holders::decode(&mut reader)?;
        }
        let body = reader.offset();
        if reader.u32()? != crc(version, self.rank, &bytes[..body]) {
            return Err(Malformed { offset: body, expected: "a matching checksum" });
        }
        reader.end()?;
        (self.decoupled, self.end, self.fenced) = (decoupled, end, fenced);
        (self.stopped, self.crashed, self.free) = (stopped, crashed, free);
        (self.expected, self.departed, self.gone) = (expected, departed, gone);
        (self.lapsed, self.holders) = (Lapsed::decoded(lapsed), holders);
        Ok(())
    }
}

pub(super) fn put_decoupling(out: &mut Vec<u8>, ino: Ino, decoupling: &Decoupling) {
    out.put_varint(ino.0);
    out.put_varint(decoupling.client.0);
    let waits = decoupling.next.is_some();
    let cred = &decoupling.cred;
    let Decoupling { block, released, taken_over, leaving, .. } = *decoupling;
    let flags = [block, released, waits, !cred.is_root(), taken_over, leaving.is_some()];
    out.put_u8(flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(flag)));
    out.put_varint(decoupling.epoch.0);
    out.put_bytes(decoupling.policy.as_bytes());
    if let Some(next) = &decoupling.next {
        out.put_bytes(next.as_bytes());
    }
    if !cred.is_root() {
        put_cred(out, cred);
    }
    if let Some((root, moves)) = leaving {
        out.put_varint(root.0);
        out.put_varint(moves);
    }
    out.put_varint(decoupling.ranges.len() as u64);
    for range in &decoupling.ranges {
        out.put_varint(range.start);
        out.put_varint(range.end);
    }
}

pub(super) fn read_decoupling(reader: &mut Reader<'_>) -> Result<(Ino, Decoupling), Malformed> {
    let ino = Ino(reader.varint()?);
    let client = ClientId(reader.varint()?);
    let flags = reader.u8()?;
    let [block, released, taken_over] = [1, 2, 16].map(|bit| flags & bit != 0);
    let epoch = Epoch(reader.varint()?);
    let policy = text(reader)?;
    let next = if flags & 4 == 0 { None } else { Some(text(reader)?) };
    let cred = if flags & 8 == 0 { Cred::root() } else { read_cred(reader)? };
    let leaving = if flags & 32 == 0 { None } else { Some(read_leaving(reader)?) };
    let mut ranges = Vec::new();
    for _ in 0..reader.length()? {
        ranges.push(InoRange { start: reader.varint()?, end: reader.varint()? });
    }
    let parsed = policy::Policy::parse(&policy);
    let on_demand = parsed.is_ok_and(|parsed| parsed.policy.merge == MergeTrigger::OnDemand);
    let known = Decoupling {
        client,
        block,
        on_demand,
        ranges,
        epoch,
        policy,
        released,
        next,
        cred,
        taken_over,
        leaving,
    };
    Ok((ino, known))
}

fn read_end(reader: &mut Reader<'_>) -> Result<JournalEnd, Malformed> {
    let mut end = JournalEnd {
        last: Seq(reader.varint()?),
        next_index: reader.varint()?,
        sessions: Vec::new(),
    };
    for _ in 0..reader.length()? {
        let client = ClientId(reader.varint()?);
        let count = reader.length()?;
        let tids = (0..count).map(|_| Ok(Tid(reader.varint()?))).collect::<Result<_, _>>()?;
        let mut remembered = Vec::new();
        for _ in 0..reader.length()? {
            remembered.push(Remembered {
                tid: Tid(reader.varint()?),
                seq: Seq(reader.varint()?),
                ino: Ino(reader.varint()?),
                time: Timestamp(reader.signed()?),
            });
        }
        end.sessions.push(SavedSession { client, tids, remembered });
    }
    Ok(end)
}

fn read_leaving(reader: &mut Reader<'_>) -> Result<(Ino, u64), Malformed> {
    Ok((Ino(reader.varint()?), reader.varint()?))
}

/// Ranges in order that do not overlap.
fn read_free(reader: &mut Reader<'_>) -> Result<Free, Malformed> {
    let (mut free, mut last) = (Free::default(), 0);
    for _ in 0..reader.length()? {
        let start = *reader;
        let range = InoRange { start: reader.varint()?, end: reader.varint()? };
        if range.start < last || range.is_empty() {
            return Err(start.malformed("free numbers in order"));
        }
        last = range.end;
        free.put(range);
    }
    Ok(free)
}

fn put_cred(out: &mut Vec<u8>, cred: &Cred) {
    let groups = cred.groups.len();
    [cred.uid, cred.gid].into_iter().for_each(|id| out.put_varint(u64::from(id)));
    out.put_varint(groups as u64);
    cred.groups.iter().for_each(|gid| out.put_varint(u64::from(*gid)));
}

fn read_cred(reader: &mut Reader<'_>) -> Result<Cred, Malformed> {
    let (uid, gid) = (reader.varint_u32()?, reader.varint_u32()?);
    let count = reader.length()?;
    let groups = (0..count).map(|_| reader.varint_u32()).collect::<Result<_, _>>()?;
    Ok(Cred { uid, gid, groups })
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let start = *reader;
    let text = std::str::from_utf8(reader.bytes()?);
    text.map(str::to_owned).map_err(|_| start.malformed("UTF-8 text"))
}

fn crc(version: u16, rank: Rank, bytes: &[u8]) -> u32 {
    if version < VERSION_NAMED {
        return journal::checksum(bytes);
    }
    journal::checksum(&[rank_name(rank).as_bytes(), bytes].concat())
}
