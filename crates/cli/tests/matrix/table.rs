//! Table II with the surviving updates, as section 6 of the design has it: one line here for one
//! line there. The expectations of the tests are derived from these lines and from nothing else.

use policy::{Cell, Consistency, Durability};

use Durability::{Global, Local, None as Nowhere};
use Fate::{
    Kept, KeptByTheClient, KeptTheClientMergesAgain, KeptTheClientReplaysItsLog,
    KeptTheServerMergesAgain, KeptUnlessTheServerFailsToo, Lost, LostIfUnmerged, MergedPartLost,
};
use Seen::{AfterAnExplicitMerge, AfterMerge, AtOnce};

/// The table's column of visibility to other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    AfterAnExplicitMerge,
    AfterMerge,
    AtOnce,
}

/// The fate of updates after their mechanisms have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost,
    LostIfUnmerged,
    MergedPartLost,
    Kept,
    KeptByTheClient,
    KeptTheClientMergesAgain,
    KeptTheServerMergesAgain,
    KeptTheClientReplaysItsLog,
    KeptUnlessTheServerFailsToo,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) composition: &'static str,
    pub(crate) seen: Seen,
    /// The client is killed; its disk comes back.
    pub(crate) client_killed: Fate,
    /// Its machine and disk never come back.
    pub(crate) client_gone: Fate,
    pub(crate) mds_killed: Fate,
}

const fn row(
    (consistency, durability): (Consistency, Durability),
    composition: &'static str,
    seen: Seen,
    [client_killed, client_gone, mds_killed]: [Fate; 3],
) -> Row {
    let cell = Cell { consistency, durability };
    Row { cell, composition, seen, client_killed, client_gone, mds_killed }
}

/// The column of the object store's lost minority is left out: a directory has none.
#[rustfmt::skip]
pub(crate) const TABLE: [Row; 9] = [
    row((Consistency::Invisible, Nowhere), "append_client_journal",
        AfterAnExplicitMerge, [Lost, Lost, KeptByTheClient]),
    row((Consistency::Invisible, Local), "append_client_journal+local_persist",
        AfterAnExplicitMerge, [Kept, Lost, Kept]),
    row((Consistency::Invisible, Global), "append_client_journal+global_persist",
        AfterAnExplicitMerge, [Kept, Kept, Kept]),
    row((Consistency::Weak, Nowhere), "append_client_journal+volatile_apply",
        AfterMerge, [LostIfUnmerged, LostIfUnmerged, MergedPartLost]),
    row((Consistency::Weak, Local), "append_client_journal+local_persist+volatile_apply",
        AfterMerge, [Kept, LostIfUnmerged, KeptTheClientMergesAgain]),
    row((Consistency::Weak, Global), "append_client_journal+global_persist+volatile_apply",
        AfterMerge, [Kept, Kept, KeptTheServerMergesAgain]),
    row((Consistency::Strong, Nowhere), "rpcs",
        AtOnce, [Kept, Kept, Lost]),
    row((Consistency::Strong, Local), "rpcs+local_persist",
        AtOnce, [Kept, KeptUnlessTheServerFailsToo, KeptTheClientReplaysItsLog]),
    row((Consistency::Strong, Global), "rpcs+stream",
        AtOnce, [Kept, Kept, Kept]),
];

#[test]
fn the_table_here_names_every_cell_and_its_composition() {
    for (row, cell) in TABLE.iter().zip(Cell::all()) {
        assert_eq!(row.cell, cell);
        assert_eq!(row.composition, cell.composition().to_string());
    }
}
