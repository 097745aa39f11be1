//! Pools that policies have named for the data of their files (E-03).
//!
//! Each pool has a number, which is part of the names of objects; an object of the store, to which
//! lines are only added, maps numbers to pools. So a number means the same to all processes for
//! ever, even when no policy names the pool any more: files from that time are in it.
//!
//! Invariant: an object with a number of a pool in its name is in that pool and in no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{Errno, Error, Pool as Number, Result};

use super::errors::to_error;
use super::large::ATTEMPTS_MAX;
use super::places::{DATA, PoolPlace, open};
use super::sys::{Cluster, Code, Pool, Read, Step};

/// The object that maps numbers to pools.
const TABLE: &str = "cudele-pools";
/// 255 lines of a number and a name.
const TABLE_BYTES_MAX: usize = 255 * (4 + 129);

/// Numbers and names of pools.
type Table = Vec<(u8, String)>;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Chosen {
    cluster: Arc<Cluster>,
    /// The store's address, for errors.
    store: String,
    /// Where the table is.
    base: Pool,
    namespace: String,
    opened: Mutex<BTreeMap<u8, Arc<PoolPlace>>>,
}

impl Chosen {
    pub(super) fn new(cluster: &Arc<Cluster>, store: &str, base: Pool, namespace: String) -> Self {
        let (cluster, store) = (Arc::clone(cluster), store.to_owned());
        Self { cluster, store, base, namespace, opened: Mutex::default() }
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<u8, Arc<PoolPlace>>> {
        // No code here panics half-way through a change.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where data in this pool is.
    ///
    /// # Errors
    /// `ENXIO` if there is no such pool; `subject` is the object of the look-up.
    pub(super) fn place(&self, subject: &str, number: Number) -> Result<Arc<PoolPlace>> {
        if let Some(place) = self.opened().get(&number.0) {
            return Ok(Arc::clone(place));
        }
        let (table, _) = self.table()?;
        let Some((_, pool)) = table.into_iter().find(|(known, _)| *known == number.0) else {
            let cause = format!("it is in pool number {}, which this store has not", number.0);
            return Err(Error::new(Errno::NoSuchPlace, subject, cause)
                .remedy("its name was made for another store, or is damaged"));
        };
        let place = self.open(&pool).map_err(|error| {
            if error.errno != Errno::NotFound {
                return error;
            }
            let cause = format!("it is in pool {pool}, which the cluster has not any more");
            Error::new(Errno::NoSuchPlace, subject, cause)
                .remedy("what was in a pool is gone with it: remove the files")
        })?;
        let place = Arc::new(place);
        self.opened().insert(number.0, Arc::clone(&place));
        Ok(place)
    }

    /// All that the cluster still has.
    pub(super) fn all(&self) -> Result<Vec<Arc<PoolPlace>>> {
        let mut places = Vec::new();
        for (number, pool) in self.table()?.0 {
            match self.place(&pool, Number(number)) {
                Ok(place) => places.push(place),
                Err(error) if error.errno == Errno::NoSuchPlace => {}
                Err(error) => return Err(error),
            }
        }
        Ok(places)
    }

    /// The number of a pool; it gets one if it has none.
    pub(super) fn number_of(&self, pool: &str) -> Result<Number> {
        self.try_out(pool, &self.open(pool)?)?;
        for _ in 0..ATTEMPTS_MAX {
            let (mut table, version) = self.table()?;
            if let Some((number, _)) = table.iter().find(|(_, name)| name == pool) {
                return Ok(Number(*number));
            }
            let last = table.iter().map(|(number, _)| *number).max().unwrap_or(0);
            let Some(number) = last.checked_add(1) else {
                let cause = "the store has numbers for 255 pools, and all are given";
                return Err(Error::new(Errno::NoSpace, pool, cause)
                    .remedy("choose a pool that was used before, or another store"));
            };
            table.push((number, pool.to_owned()));
            let text: String = table.iter().map(|(n, pool)| format!("{n} {pool}\n")).collect();
            let guard = version.map_or(Step::CreateNew, Step::AssertVersion);
            match self.base.change(TABLE, &[guard, Step::WriteFull(text.as_bytes())]) {
                Ok(_) => return Ok(Number(number)),
                // Another process has added one.
                Err(Code::EXISTS | Code::RANGE | Code::OVERFLOW) => {}
                Err(code) => return Err(to_error(TABLE, "note the pool", code)),
            }
        }
        Err(super::contended(TABLE))
    }

    fn open(&self, pool: &str) -> Result<PoolPlace> {
        let within = |part: &str| {
            open(&self.cluster, &self.store, pool, &format!("{}.data{part}", self.namespace))
        };
        Ok(PoolPlace { prefix: DATA, heads: within("")?, pieces: within(".pieces")? })
    }

    /// Finds out whether this user may write to a pool, and whether the pool has the needed
    /// features, before the first file does.
    fn try_out(&self, pool: &str, place: &PoolPlace) -> Result<()> {
        let probe = format!("probe.{:x}", self.cluster.instance());
        let written = place.heads.change(&probe, &[Step::Create, Step::Write(1, b"x")]);
        let tried = written.and_then(|_| place.heads.change(&probe, &[Step::Remove]));
        match tried {
            // Another thread of this process tried the same.
            Ok(_) | Err(Code::NOT_FOUND) => Ok(()),
            Err(Code(-95)) => {
                let cause = "the pool cannot write into the middle of an object";
                Err(Error::new(Errno::NotSupported, pool, cause).remedy("choose a replicated pool"))
            }
            Err(code) => Err(to_error(pool, "write to the pool", code)),
        }
    }

    /// The table, and its version if it exists.
    fn table(&self) -> Result<(Table, Option<u64>)> {
        let mut buffer = vec![0; TABLE_BYTES_MAX];
        let read = Read {
            object: TABLE.into(),
            offset: 0,
            buffer: &mut buffer,
            version: None,
            attr: None,
        };
        let seen = match self.base.read(read) {
            Ok(seen) => seen,
            Err(Code::NOT_FOUND) => return Ok((Vec::new(), None)),
            Err(code) => return Err(to_error(TABLE, "read", code)),
        };
        let text = String::from_utf8_lossy(&buffer[..seen.read]);
        let rows = text.lines().map(|line| {
            let (number, pool) = line.split_once(' ')?;
            Some((number.parse().ok()?, pool.to_owned()))
        });
        let rows: Option<Vec<_>> = rows.collect();
        let rows = rows.ok_or_else(|| {
            Error::new(Errno::BadMessage, TABLE, "the object is not a table of pools")
                .remedy("restore it: a number, a space and a name of a pool in each line")
        })?;
        Ok((rows, Some(seen.version)))
    }
}
