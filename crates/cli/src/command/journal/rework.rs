//! The segments of a journal surveyed together, and the errors about their damage.

use std::fmt::Write as _;
use std::ops::Range;

use cudele::{Errno, Error, Result};
use journal::segment::HEADER_BYTES;
use journal::{DamagedRegion, GAP_EVENTS_MAX, JournalError, Record, Rewritten, Survey, rewrite};
use serde_json::{Value, json};
use types::{Epoch, Seq};

use super::source::Source;

/// Every position.
pub(super) const ALL: Range<Seq> = Seq(0)..Seq(u64::MAX);

/// Something of a journal that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// The segment.
    pub(super) name: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// The header is unusable, and with it everything.
    Header(JournalError),
    Region(DamagedRegion),
    /// Events are missing between this segment and those before it.
    Gap(Range<Seq>),
}

/// See the module documentation. In the order of the segments' names.
pub(super) struct Surveys<'a> {
    all: Vec<(&'a str, std::result::Result<Survey<'a>, JournalError>)>,
    /// Segments whose header was not written completely: they have no events.
    begun: Vec<&'a str>,
    /// Whether an interrupted write of a server explains a torn end.
    server: bool,
}

impl<'a> Surveys<'a> {
    pub(super) fn of(source: &'a Source) -> Self {
        let pieces = source.pieces.iter().map(|piece| (piece.name.as_str(), &*piece.bytes));
        Self::of_pieces(pieces, source.rank.is_some())
    }

    /// The segments of a server's journal, or the one of a client's.
    pub(super) fn of_pieces(
        pieces: impl Iterator<Item = (&'a str, &'a [u8])>,
        server: bool,
    ) -> Self {
        let (mut all, mut begun) = (Vec::new(), Vec::new());
        for (name, bytes) in pieces {
            begun.extend((bytes.len() < HEADER_BYTES).then_some(name));
            all.push((name, Survey::of(bytes)));
        }
        Self { all, begun, server }
    }

    /// Those with a usable header, in the order of their events.
    fn by_position(&self) -> Vec<(usize, &Survey<'a>)> {
        let mut all: Vec<_> = (self.all.iter().enumerate())
            .filter_map(|(at, (_, survey))| Some((at, survey.as_ref().ok()?)))
            .collect();
        all.sort_by_key(|(_, survey)| survey.header.first_seq);
        all
    }

    /// Everything that is damaged.
    pub(super) fn damage(&self) -> Vec<Damage> {
        let mut all = Vec::new();
        for (name, survey) in &self.all {
            let name = (*name).to_owned();
            match survey {
                Ok(survey) => all.extend(survey.damage.iter().map(|region| Damage {
                    name: name.clone(),
                    kind: Kind::Region(region.clone()),
                })),
                Err(error) => all.push(Damage { name, kind: Kind::Header(error.clone()) }),
            }
        }
        all.extend(self.gaps().into_iter().map(|(_, after, lost)| Damage {
            name: self.all[after].0.to_owned(),
            kind: Kind::Gap(lost),
        }));
        all
    }

    /// Damage that stops a recovery: all but the torn ends of a server's segments, and segments
    /// that a server had only begun.
    pub(super) fn serious(&self) -> Vec<Damage> {
        let torn = |damage: &Damage| match &damage.kind {
            Kind::Region(region) => region.torn,
            Kind::Header(_) => self.is_begun(&damage.name),
            Kind::Gap(_) => false,
        };
        self.damage().into_iter().filter(|damage| !(self.server && torn(damage))).collect()
    }

    /// Events missing between segments: the segment before, the one after, and their positions.
    fn gaps(&self) -> Vec<(usize, usize, Range<Seq>)> {
        let mut gaps = Vec::new();
        let mut last: Option<(usize, Seq)> = None;
        for (at, survey) in self.by_position() {
            let first = survey.header.first_seq;
            if let Some((before, next)) = last.filter(|(_, next)| *next < first) {
                gaps.push((before, at, next..first));
            }
            if last.is_none_or(|(_, next)| next <= survey.next_seq) {
                last = Some((at, survey.next_seq));
            }
        }
        gaps
    }

    /// A position that no event of the journal has, nor any after it. Where something is damaged,
    /// far behind all that can be seen.
    pub(super) fn free_seq(&self) -> Seq {
        let readable = self.all.iter().filter_map(|(_, survey)| survey.as_ref().ok());
        let end = readable.map(Survey::free_seq).max().unwrap_or(Seq(1));
        let is_unusable = self.all.iter().any(|(name, it)| it.is_err() && !self.is_begun(name));
        let doubt = is_unusable || !self.serious().is_empty();
        Seq(end.0.saturating_add(if doubt { GAP_EVENTS_MAX } else { 0 }))
    }

    /// Hands out every event that can be read, segment by segment.
    pub(super) fn each(&self, show: &mut dyn FnMut(&Record<'_>)) {
        self.all.iter().filter_map(|(_, survey)| survey.as_ref().ok()).for_each(|s| s.each(show));
    }

    /// Position of the first event.
    pub(super) fn first_seq(&self) -> Seq {
        self.by_position().first().map_or(Seq(1), |(_, survey)| survey.header.first_seq)
    }

    /// Position after the last event that can be read.
    pub(super) fn next_seq(&self) -> Seq {
        self.by_position().iter().map(|(_, survey)| survey.next_seq).max().unwrap_or(Seq(1))
    }

    /// Events that can be read.
    pub(super) fn events(&self) -> u64 {
        self.by_position().iter().map(|(_, survey)| survey.events).sum()
    }

    /// The latest term that wrote.
    pub(super) fn epoch(&self) -> Epoch {
        self.by_position().iter().map(|(_, survey)| survey.header.epoch).max().unwrap_or(Epoch(1))
    }

    /// Whether a server had only begun this segment when it ended: a recovery deletes it.
    fn is_begun(&self, name: &str) -> bool {
        self.server && self.begun.contains(&name)
    }

    /// Every segment and its readable part, without those that a server had only begun.
    ///
    /// # Errors
    /// `EBADMSG` if a header is unusable: then the writer of the events is unknown.
    pub(super) fn readable(&self) -> Result<Vec<(&'a str, &Survey<'a>)>> {
        let mut all = Vec::with_capacity(self.all.len());
        for (name, survey) in self.all.iter().filter(|(name, _)| !self.is_begun(name)) {
            let survey = survey.as_ref().map_err(|error| {
                error.in_journal(name).remedy(format!(
                    "see what is left of the header with `cudele journal header get {name}`, and \
                     write it anew with `cudele journal header set`"
                ))
            })?;
            all.push((*name, survey));
        }
        Ok(all)
    }

    /// Rewrites every readable segment with the events that `keep` accepts and all holes closed,
    /// also those between segments. Positions stay.
    ///
    /// # Errors
    /// `EBADMSG` if a header is unusable, or too much is missing to be closed.
    pub(super) fn rewrite(
        &self,
        keep: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> Result<Vec<(&'a str, Rewritten)>> {
        let mut all: Vec<_> = (self.readable()?.into_iter())
            .map(|(name, survey)| (name, rewrite(survey, &ALL, keep)))
            .collect();
        for (before, after, lost) in self.gaps() {
            if lost.end.0 - lost.start.0 > GAP_EVENTS_MAX {
                let (start, end) = (lost.start.0, lost.end.0);
                let cause = format!("events {start}..{end} are missing before it");
                return Err(Error::new(Errno::BadMessage, self.all[after].0, cause)
                    .remedy("this is more than can be closed; export the journal, then reset it"));
            }
            let name = self.all[before].0;
            if let Some((_, segment)) = all.iter_mut().find(|(found, _)| *found == name) {
                segment.fill(lost.end);
            }
        }
        Ok(all)
    }
}

/// Damage as lines of text.
pub(super) fn text(damage: &[Damage]) -> String {
    let mut text = String::new();
    for Damage { name, kind } in damage {
        let _ = match kind {
            Kind::Header(error) => writeln!(text, "  DAMAGED {name}: the header, {error}"),
            Kind::Region(region) => writeln!(text, "  DAMAGED {name}: {region}"),
            Kind::Gap(lost) => {
                let (start, end) = (lost.start.0, lost.end.0);
                writeln!(text, "  DAMAGED {name}: before it events {start}..{end} are missing")
            }
        };
    }
    text
}

/// Damage as facts.
pub(super) fn json(damage: &[Damage]) -> Value {
    let one = |Damage { name, kind }: &Damage| match kind {
        Kind::Header(error) => {
            json!({ "name": name, "kind": "header", "offset": error.offset, "cause": error.cause })
        }
        Kind::Region(DamagedRegion { bytes, lost, error, torn }) => json!({
            "name": name, "kind": if *torn { "torn" } else { "hole" },
            "offset": bytes.start, "end": bytes.end, "cause": error.cause,
            "lost": [lost.start.0, lost.end.0],
        }),
        Kind::Gap(lost) => {
            json!({ "name": name, "kind": "gap", "lost": [lost.start.0, lost.end.0] })
        }
    };
    damage.iter().map(one).collect()
}

/// An error about the first of them.
pub(super) fn error(damage: &[Damage], remedy: &str) -> Option<Error> {
    let Damage { name, kind } = damage.first()?;
    let cause = match kind {
        Kind::Header(error) => error.to_string(),
        Kind::Region(region) => format!("damaged at {region}"),
        Kind::Gap(lost) => {
            format!("before it events {}..{} are missing", lost.start.0, lost.end.0)
        }
    };
    let more = match damage.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(Error::new(Errno::BadMessage, name.clone(), cause + &more).remedy(remedy))
}
