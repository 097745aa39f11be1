//! The content of a disk: what it has for sure, and the writes since the last flush.
//!
//! Invariant: at a cut each sector has the content of the last flush, or that of one write since.

use std::collections::BTreeMap;
use std::fmt;

use types::Map;
use types::rng::Rng;

/// The disk is kept in pages, and torn between sectors.
const PAGE: usize = 4096;
const SECTOR: usize = 512;

type Page = Box<[u8; PAGE]>;

/// The effect of a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CutFigures {
    /// Pages with writes since the last flush.
    pub(crate) pages: u64,
    /// Sectors in them that differ from the last write.
    pub(crate) lost_sectors: u64,
    /// Pages of which some sectors are from one write, and some from another.
    pub(crate) torn_pages: u64,
    /// Flushes since the disk got power.
    pub(crate) flushes: u64,
}

impl fmt::Display for CutFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pages, lost_sectors, torn_pages, flushes } = self;
        write!(
            f,
            "{pages} pages were written since the last of {flushes} flushes: {lost_sectors} \
             sectors lost, {torn_pages} pages torn"
        )
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct DiskImage {
    flushed: Map<u64, Page>,
    /// The content of a page after each write since the last flush.
    written: BTreeMap<u64, Vec<Page>>,
    flushes: u64,
}

impl DiskImage {
    fn page(&self, number: u64) -> Option<&Page> {
        let newest = self.written.get(&number).and_then(|versions| versions.last());
        newest.or_else(|| self.flushed.get(&number))
    }

    /// The content as the disk shows it: with all writes. A page that was never written is zero.
    pub(super) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        for (page, start, piece) in pieces(offset, length) {
            if let Some(page) = self.page(page) {
                data[piece.clone()].copy_from_slice(&page[start..start + piece.len()]);
            }
        }
        data
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (number, start, piece) in pieces(offset, data.len()) {
            let mut page = self.page(number).cloned().unwrap_or_else(|| Box::new([0; PAGE]));
            page[start..start + piece.len()].copy_from_slice(&data[piece]);
            self.written.entry(number).or_default().push(page);
        }
    }

    /// Everything written so far survives.
    pub(super) fn flush(&mut self) {
        self.flushes += 1;
        for (number, mut versions) in std::mem::take(&mut self.written) {
            self.flushed.extend(versions.pop().map(|page| (number, page)));
        }
    }

    /// The power is cut: each sector keeps one of its contents. Writes survive with one likelihood
    /// for the whole cut, so that some cuts lose all and some lose little.
    pub(super) fn cut(mut self, random: &mut Rng) -> (Self, CutFigures) {
        let percent = [0, 20, 50, 80, 100][random.index(5)];
        let mut figures = CutFigures { flushes: self.flushes, ..CutFigures::default() };
        for (number, versions) in std::mem::take(&mut self.written) {
            figures.pages += 1;
            let old = self.flushed.remove(&number).unwrap_or_else(|| Box::new([0; PAGE]));
            let mut page = old.clone();
            let (mut lost, mut kept) = (0, 0);
            for at in (0..PAGE).step_by(SECTOR) {
                let sector = at..at + SECTOR;
                let chosen = if random.percent(percent) {
                    &versions[random.index(versions.len())]
                } else {
                    &old
                };
                page[sector.clone()].copy_from_slice(&chosen[sector.clone()]);
                let newest =
                    versions.last().is_some_and(|last| last[sector.clone()] == page[sector]);
                if newest { kept += 1 } else { lost += 1 }
            }
            figures.lost_sectors += lost;
            figures.torn_pages += u64::from(lost > 0 && kept > 0);
            self.flushed.insert(number, page);
        }
        (Self { flushes: 0, ..self }, figures)
    }
}

/// The parts of a range in each page: the page, the first byte in it, and the bytes of the range.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let start = usize::try_from(at % PAGE as u64).unwrap_or(0);
        let piece = done..length.min(done + PAGE - start);
        done = piece.end;
        Some((at / PAGE as u64, start, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_shows_each_write_at_once() {
        let mut image = DiskImage::default();
        image.write(4000, &[7; 200]);
        image.write(4100, &[8; 10]);
        let read = image.read(3990, 220);
        assert_eq!(
            (read[9], read[10], read[109], read[110], read[119], read[120]),
            (0, 7, 7, 8, 8, 7)
        );
        assert_eq!((read[209], read[210]), (7, 0));
    }

    #[test]
    fn a_flushed_write_survives_every_cut() {
        for seed in 0..50 {
            let mut image = DiskImage::default();
            image.write(0, &[1; 8192]);
            image.flush();
            image.write(4096, &[2; 4096]);
            let (image, figures) = image.cut(&mut Rng::new(seed));
            assert_eq!(image.read(0, 4096), [1; 4096]);
            assert!(image.read(4096, 4096).iter().all(|byte| [1, 2].contains(byte)));
            assert_eq!((figures.pages, figures.flushes), (1, 1));
        }
    }

    #[test]
    fn cuts_lose_keep_and_tear_unsynced_writes() {
        let figures: Vec<CutFigures> = (0..100)
            .map(|seed| {
                let mut image = DiskImage::default();
                image.write(0, &[1; 4096]);
                image.cut(&mut Rng::new(seed)).1
            })
            .collect();
        assert!(figures.iter().any(|one| one.lost_sectors == 0));
        assert!(figures.iter().any(|one| one.lost_sectors == 8));
        assert!(figures.iter().any(|one| one.torn_pages == 1));
    }

    #[test]
    fn an_earlier_write_may_be_the_one_that_survives() {
        let survivors = (0..100).map(|seed| {
            let mut image = DiskImage::default();
            image.write(0, &[1; 512]);
            image.write(0, &[2; 512]);
            image.cut(&mut Rng::new(seed)).0.read(0, 1)[0]
        });
        let survivors: std::collections::BTreeSet<u8> = survivors.collect();
        assert_eq!(survivors.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
