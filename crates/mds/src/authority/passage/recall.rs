//! Recovery of passages that were under way at a crash: none is forgotten before it is decided, and
//! until then their directories are not served.

use metastore::{Passage, PassageState, parse_passage_name};
use types::{Error, Moment};

use super::arrive::Arrival;
use super::depart::Departure;
use crate::Mds;

impl Mds {
    /// Takes up one that concerns this rank.
    pub(crate) fn recall_passage(
        &mut self,
        name: &str,
        (bytes, version): (&[u8], u64),
    ) -> Result<(), Error> {
        let Some((from, number)) = parse_passage_name(name) else { return Ok(()) };
        let passage = Passage::decode(name, bytes)?;
        let passages = &mut self.authority.passages;
        if from == self.rank {
            passages.departures.push(Departure::found(number, passage, Moment(0)));
        } else if passage.to == self.rank && passage.state == PassageState::Taken {
            let id = self.passage_number();
            let arrival = Arrival::found(id, (from, number), (passage, version));
            self.authority.passages.arrivals.push(arrival);
        }
        self.authority.note_plain();
        Ok(())
    }
}
