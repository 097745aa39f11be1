//! Recovery of cross-rank renames that were under way at a crash: none is forgotten before it is
//! decided, and until then their directories are not served.

use metastore::{CrossRename, CrossRenameState, parse_cross_rename_name};
use types::{Error, Moment};

use super::arrive::Arrival;
use super::depart::Departure;
use crate::Mds;

impl Mds {
    /// Takes up one that concerns this rank.
    pub(crate) fn recall_cross_rename(
        &mut self,
        name: &str,
        (bytes, version): (&[u8], u64),
    ) -> Result<(), Error> {
        let Some((from, number)) = parse_cross_rename_name(name) else { return Ok(()) };
        let cross_rename = CrossRename::decode(name, bytes)?;
        let cross_renames = &mut self.authority.cross_renames;
        if from == self.rank {
            cross_renames.departures.push(Departure::found(number, cross_rename, Moment(0)));
        } else if cross_rename.to == self.rank && cross_rename.state == CrossRenameState::Taken {
            let id = self.cross_rename_number();
            let arrival = Arrival::found(id, (from, number), (cross_rename, version));
            self.authority.cross_renames.arrivals.push(arrival);
        }
        self.authority.note_plain();
        Ok(())
    }
}
