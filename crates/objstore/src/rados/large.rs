//! Reading and extending objects, whichever RADOS objects they consist of.
//!
//! Invariant: a change begins with the head, and only if the head is unchanged since it was read.
//! So of two that extend an object one sees the other's end; and bytes behind the end were never
//! written, or are zeros.

use types::Result;

use super::errors::to_error;
use super::head::{Head, LARGE, Large, PIECE_BYTES, parts};
use super::places::PoolPlace;
use super::sys::{Code, CodeResult, Read, Step, Submitted};
use super::{Rados, changed, contended};
use crate::gather::Gather;
use crate::store::{absent, check_end};

/// Requests of one call that are under way at a time: 32 MiB keep the OSDs of a small cluster busy.
const DEPTH: usize = 8;

/// The most attempts at a change while other processes change the object.
pub(super) const ATTEMPTS_MAX: usize = 1000;

/// Where data goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// At the end of the object.
    End,
    Offset(u64),
}

impl Rados {
    /// The head, without content.
    pub(super) fn look(&self, place: &PoolPlace, name: &str) -> Result<Option<Head>> {
        Ok(self.read_head(place, name, 0, &mut [])?.map(|(head, _)| head))
    }

    /// Reads from the head; `None` if there is no object.
    fn read_head(
        &self,
        place: &PoolPlace,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Option<(Head, usize)>> {
        let read = Read { object: name.into(), offset, buffer, version: None, attr: Some(LARGE) };
        match place.heads.read(read) {
            Ok(seen) => match Head::of(&seen) {
                Some(head) => Ok(Some((head, seen.read))),
                None => Err(self.foreign(name)),
            },
            Err(Code::NOT_FOUND) => Ok(None),
            Err(code) => Err(to_error(name, "read", code)),
        }
    }

    /// Reads the existing part of a range; returns its length, and the head.
    pub(super) fn read_at(
        &self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, Head)> {
        let place = &*self.places.of(name)?;
        for _ in 0..ATTEMPTS_MAX {
            let in_head = PIECE_BYTES.saturating_sub(offset);
            let in_head = usize::try_from(in_head).map_or(buffer.len(), |n| n.min(buffer.len()));
            let (head, read) = self
                .read_head(place, name, offset, &mut buffer[..in_head])?
                .ok_or_else(|| absent(name))?;
            let Some(large) = head.large else { return Ok((read, head)) };
            let there = large.size.saturating_sub(offset);
            let there = usize::try_from(there).map_or(buffer.len(), |n| n.min(buffer.len()));
            // Between the head's bytes and the first piece are zeros.
            buffer[read..in_head.min(there).max(read)].fill(0);
            if there <= in_head {
                return Ok((there, head));
            }
            let rest = &mut buffer[in_head..there];
            let whole = self.read_pieces(place, name, large, offset + in_head as u64, rest)?;
            // Missing pieces are zeros, or the object was replaced since.
            let same = |now: Head| now.large.is_some_and(|now| now.number == large.number);
            if whole || self.look(place, name)?.is_some_and(same) {
                return Ok((there, head));
            }
        }
        Err(contended(name))
    }

    /// Fills the buffer; false if pieces were missing, with zeros in their place.
    fn read_pieces(
        &self,
        place: &PoolPlace,
        name: &str,
        large: Large,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<bool> {
        let mut whole = true;
        let (mut rest, mut reads) = (buffer, Vec::with_capacity(DEPTH));
        let mut all = parts(offset, rest.len()).peekable();
        while let Some(part) = all.next() {
            let (now, later) = rest.split_at_mut(part.length);
            now.fill(0);
            rest = later;
            let object = large.piece(name, part.index);
            reads.push(Read {
                object,
                offset: part.offset,
                buffer: now,
                version: None,
                attr: None,
            });
            if reads.len() < DEPTH && all.peek().is_some() {
                continue;
            }
            for result in place.pieces.read_all(std::mem::take(&mut reads)) {
                match result {
                    Ok(_) => {}
                    Err(Code::NOT_FOUND) => whole = false,
                    Err(code) => return Err(to_error(name, "read", code)),
                }
            }
        }
        Ok(whole)
    }

    /// Writes at the end or at an offset, and returns the offset. If a write behind the head fails,
    /// the object may have become longer by zeros.
    pub(super) fn extend(&self, name: &str, at: At, data: Gather<'_>) -> Result<u64> {
        let place = &*self.places.of(name)?;
        // A guess is as good as a look where the head is changed, and so compared.
        let changes_head = matches!(at, At::End) && data.len() > 0;
        let mut guess = self.known.head(name).filter(|_| changes_head);
        for _ in 0..ATTEMPTS_MAX {
            let before = match guess.take() {
                Some(head) => Some(head),
                None => self.look(place, name)?,
            };
            let size = before.map_or(0, |head| head.size());
            let offset = match at {
                At::End => size,
                At::Offset(offset) => offset,
            };
            let end = if data.len() == 0 { size } else { check_end(name, offset, data.len())? };
            match self.extend_head(place, name, before, (offset, end.max(size)), data) {
                Ok(now) => {
                    self.known.note(name, now, None);
                    let written = now.large.map_or(Ok(()), |large| {
                        self.write_pieces(place, name, large, offset, data)
                    });
                    return written.map(|()| offset).map_err(|code| to_error(name, "write", code));
                }
                Err(code) => {
                    self.known.forget(name);
                    if !changed(code, before.is_some()) {
                        return Err(to_error(name, "write", code));
                    }
                }
            }
        }
        Err(contended(name))
    }

    /// Reserves the range, writes its part inside the head, and returns the new head.
    fn extend_head(
        &self,
        place: &PoolPlace,
        name: &str,
        before: Option<Head>,
        (offset, size): (u64, u64),
        mut data: Gather<'_>,
    ) -> CodeResult<Head> {
        let guard = before.map_or(Step::CreateNew, |head| Step::AssertVersion(head.version));
        let (mut steps, mut buffer) = (vec![guard], Vec::new());
        let mut now = before.unwrap_or(Head { version: 0, head_bytes: 0, large: None });
        if now.large.is_some() || size > PIECE_BYTES {
            let number = now.large.map_or_else(|| self.next_number(), |large| large.number);
            let large = Large { number, size };
            if now.large != Some(large) {
                steps.push(Step::SetAttr(LARGE, large.encode()));
            }
            now.large = Some(large);
        }
        if let Some(part) = parts(offset, data.len()).next().filter(|part| part.index == 0) {
            steps.push(Step::Write(offset, data.take(part.length, &mut buffer)));
            now.head_bytes = now.head_bytes.max(offset + part.length as u64);
        }
        if before.is_none() || steps.len() > 1 {
            now.version = place.heads.change(name, &steps)?;
        }
        Ok(now)
    }

    /// Writes everything outside the head, side by side. Data in several buffers is joined piece by
    /// piece in the same memory, as librados copies its input.
    pub(super) fn write_pieces(
        &self,
        place: &PoolPlace,
        name: &str,
        large: Large,
        offset: u64,
        mut data: Gather<'_>,
    ) -> CodeResult<()> {
        let mut buffer = Vec::new();
        let mut pieces = parts(offset, data.len()).peekable();
        if let Some(head) = pieces.next_if(|part| part.index == 0) {
            data.skip(head.length);
        }
        side_by_side(pieces, |part| {
            let now = data.take(part.length, &mut buffer);
            place.pieces.submit(&large.piece(name, part.index), &[Step::Write(part.offset, now)])
        })
    }

    /// Removes pieces with these numbers. A missing piece is no error.
    pub(super) fn remove_pieces(
        &self,
        place: &PoolPlace,
        name: &str,
        large: Large,
        numbers: std::ops::Range<u64>,
    ) -> CodeResult<()> {
        side_by_side(numbers, |index| {
            place.pieces.submit(&large.piece(name, index), &[Step::Remove])
        })
    }
}

/// Begins requests, at most [`DEPTH`] at a time, and waits for all. The first error is returned
/// when all have ended; that something to be removed is not there is none.
fn side_by_side<T>(
    all: impl IntoIterator<Item = T>,
    mut submit: impl FnMut(T) -> CodeResult<Submitted>,
) -> CodeResult<()> {
    let mut under_way = std::collections::VecDeque::with_capacity(DEPTH);
    let mut result = Ok(());
    let mut note = |ended: CodeResult<u64>| match ended {
        Ok(_) | Err(Code::NOT_FOUND) => {}
        Err(code) => result = result.and(Err(code)),
    };
    for one in all {
        if under_way.len() == DEPTH {
            under_way.pop_front().map(Submitted::wait).into_iter().for_each(&mut note);
        }
        match submit(one) {
            Ok(submitted) => under_way.push_back(submitted),
            Err(code) => {
                note(Err(code));
                break;
            }
        }
    }
    under_way.into_iter().map(Submitted::wait).for_each(&mut note);
    result
}
