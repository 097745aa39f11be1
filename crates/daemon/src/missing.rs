//! Missing tables and maps: a server that started without them would allocate inode and client
//! numbers a second time.
//!
//! Called with the lock of the rank or monitor held, before the first write.

use std::sync::Arc;

use mds::RankTable;
use metastore::request::{MAP_NAME, journal_prefix, parse_rank_name, rank_name};
use metastore::{ObjectName, SUBTREES_NAME, Subtrees, copy_name, manifest_name};
use objstore::{ObjectStore, ScratchView, Store};
use types::{ClientId, DirFragId, Errno, Error, Ino, Rank, Result};

const REMEDY: &str =
    "run `cudele down` and `cudele fsck --repair`, or restore the object from a backup";

fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, ..DirFragId::default() }
}

fn is_there(store: &dyn ObjectStore, name: &str) -> Result<bool> {
    match store.stat(name) {
        Ok(_) => Ok(true),
        Err(error) if error.errno == Errno::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn lost(object: &str, trace: &str) -> Error {
    let cause = format!("it is missing, and {trace} shows that it was there");
    Error::new(Errno::BadMessage, object, cause).remedy(REMEDY)
}

/// Refuses to start a rank whose table is lost, or rank 0 if the root directory has lost its inode.
///
/// # Errors
/// `EBADMSG`, or the error of the store.
pub(crate) fn check_rank(store: &dyn ObjectStore, rank: Rank) -> Result<()> {
    let table = rank_name(rank);
    let [root, anchor] = [Ino::ROOT, Ino::ANCHOR].map(|ino| manifest_name(whole(ino)));
    if rank == Rank(0) && !is_there(store, &anchor)? && is_there(store, &root)? {
        return Err(lost(&anchor, &root));
    }
    if is_there(store, &table)? {
        return Ok(());
    }
    let copy = copy_name(&table);
    if is_there(store, &copy)? {
        return Err(lost(&table, &copy));
    }
    // All numbers of a rank have their first digits in common.
    let first = format!("{:016x}", Ino::space_of(rank).start);
    let digits = &first[..first.len() - 10];
    let own = whole(if rank == Rank(0) { Ino::ROOT } else { Ino::links_of(rank) });
    let prefixes = [journal_prefix(rank), manifest_name(own), format!("dirs/{digits}")];
    for prefix in prefixes {
        if let Some(name) = store.list(&prefix)?.first() {
            return Err(lost(&table, name));
        }
    }
    // The names of content begin with the last digits of the number instead.
    let is_own = |name: &String| match ObjectName::parse(name) {
        Some(ObjectName::Data(ino, ..) | ObjectName::Sums(ino, ..)) => {
            Ino::space_of(rank).contains(ino)
        }
        _ => false,
    };
    if let Some(name) = store.list("data/")?.iter().find(|name| is_own(name)) {
        return Err(lost(&table, name));
    }
    Ok(())
}

/// Refuses to start a monitor whose map is lost. A cluster without clients so far gets a new map.
///
/// # Errors
/// `EBADMSG`, or the error of the store.
pub(crate) fn check_map(store: &dyn ObjectStore) -> Result<()> {
    if is_there(store, MAP_NAME)? {
        return Ok(());
    }
    let copy = copy_name(MAP_NAME);
    if is_there(store, &copy)? {
        return Err(lost(MAP_NAME, &copy));
    }
    if let Some(name) = store.list("journal/")?.first() {
        return Err(lost(MAP_NAME, name));
    }
    for name in store.list("rank/")? {
        let Some(rank) = parse_rank_name(&name) else { continue };
        let (bytes, _) = store.get(&name)?;
        let table = RankTable::decode(rank, &bytes);
        if !table.is_ok_and(|table| table.last_client == ClientId(0)) {
            return Err(lost(MAP_NAME, &name));
        }
    }
    Ok(())
}

/// A view of a store that is not changed, for a monitor: without its map if that is damaged.
///
/// # Errors
/// The error of the store.
pub(crate) fn without_damaged_map(store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
    let aside = ScratchView::new(store);
    hide_unless(&aside, MAP_NAME, |bytes| mon::read_map(bytes).is_ok())?;
    Ok(Arc::new(aside))
}

/// The same for a rank: without its table and the list of subtrees if they are damaged.
///
/// # Errors
/// The error of the store.
pub(crate) fn without_damaged_tables(store: Arc<dyn Store>, rank: Rank) -> Result<Arc<dyn Store>> {
    let aside = ScratchView::new(store);
    hide_unless(&aside, &rank_name(rank), |bytes| RankTable::decode(rank, bytes).is_ok())?;
    hide_unless(&aside, SUBTREES_NAME, |bytes| Subtrees::decode(bytes).is_ok())?;
    Ok(Arc::new(aside))
}

fn hide_unless(
    aside: &ScratchView,
    name: &str,
    is_whole: impl FnOnce(&[u8]) -> bool,
) -> Result<()> {
    match aside.get(name) {
        Ok((bytes, _)) if is_whole(&bytes) => Ok(()),
        Ok(_) => aside.delete(name).map(drop),
        Err(error) if error.errno == Errno::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use objstore::{Expect, Memory};
    use types::Seq;

    use super::*;

    fn put(store: &Memory, name: &str, bytes: &[u8]) {
        let _ = store.put(name, bytes, Expect::Any).unwrap();
    }

    #[test]
    fn every_object_of_a_rank_shows_that_its_table_is_missing() {
        let (rank, own) = (Rank(1), Ino::space_of(Rank(1)).start + 5);
        let traces = [
            copy_name(&rank_name(rank)),
            metastore::request::segment_name(rank, 7),
            manifest_name(whole(Ino(own))),
            manifest_name(whole(Ino::links_of(rank))),
            metastore::data_name(Ino(own), types::Pool::USUAL, 0),
        ];
        for trace in traces {
            let store = Memory::new();
            put(&store, &manifest_name(whole(Ino(Ino::FIRST_FREE + 5))), b"of rank 0");
            check_rank(&store, rank).unwrap();
            put(&store, &trace, b"x");
            assert_eq!(check_rank(&store, rank).unwrap_err().errno, Errno::BadMessage, "{trace}");
            put(&store, &rank_name(rank), b"x");
            check_rank(&store, rank).unwrap();
        }
    }

    #[test]
    fn a_root_without_its_inode_is_not_made_anew() {
        let store = Memory::new();
        put(&store, &rank_name(Rank(0)), b"x");
        check_rank(&store, Rank(0)).unwrap();
        put(&store, &manifest_name(whole(Ino::ROOT)), b"x");
        assert!(check_rank(&store, Rank(0)).is_err());
    }

    #[test]
    fn a_missing_map_is_noticed_once_a_client_has_worked() {
        let store = Memory::new();
        put(&store, "rank/0000", &RankTable::begin(Rank(0), Ino::FIRST_FREE, Seq(0)));
        check_map(&store).unwrap();
        for trace in [copy_name(MAP_NAME), "journal/mds.0000/0000000000000000".into()] {
            put(&store, &trace, b"x");
            assert_eq!(check_map(&store).unwrap_err().errno, Errno::BadMessage, "{trace}");
            store.delete(&trace).unwrap();
        }
        put(&store, "rank/0000", b"damaged");
        assert!(check_map(&store).is_err());
    }
}
