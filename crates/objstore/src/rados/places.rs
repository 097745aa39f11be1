//! The pool and namespace of each object, and the object that records them.
//!
//! A pool is tied to devices and to a number of copies, so journals, file data and the rest each
//! have one of their own if the address names it. The pool follows from the beginning of the name,
//! so that every process agrees; the marker keeps the choice from the making of the store.
//!
//! Invariant: every process that uses a store uses the same pools, or is refused.

use std::sync::Arc;

use types::{Errno, Error, Result};

use super::chosen::Chosen;
use super::config::Config;
use super::errors::to_error;
use super::sys::{Cluster, Code, Pool, Read, Step};

/// The prefix of file data.
pub(super) const DATA: &str = "data/";
/// The prefixes of journals and of file data; everything else is metadata.
pub(super) const PURPOSES: [(&str, &str); 3] =
    [("journal", "journal/"), ("data", DATA), ("metadata", "")];

/// The marker of a store, in the namespace with the store's name.
const MARKER: &str = "cudele-store";
/// Version of the layout.
const LAYOUT: &str = "1";
const MARKER_BYTES_MAX: usize = 4096;

/// Where the objects of one purpose are.
#[derive(Debug)]
pub(super) struct PoolPlace {
    /// The prefix of their names.
    pub(super) prefix: &'static str,
    /// Heads: the objects of a list.
    pub(super) heads: Pool,
    /// The overflow of heads.
    pub(super) pieces: Pool,
}

/// All of them, and where locks are.
#[derive(Debug)]
pub(super) struct Places {
    places: [Arc<PoolPlace>; 3],
    pub(super) locks: Arc<Pool>,
    /// Pools in use, each once; without those that policies name.
    pub(super) pools: Vec<String>,
    chosen: Chosen,
}

impl Places {
    /// Opens the pools of a store; makes the store if it may and there is none.
    pub(super) fn open(
        cluster: &Arc<Cluster>,
        store: &str,
        mut config: Config,
        create: bool,
    ) -> Result<Self> {
        let base = open(cluster, store, &config.pool, &config.namespace)?;
        read_or_write_marker(&base, store, &mut config, create)?;
        let place = |purpose: usize| -> Result<PoolPlace> {
            let (name, prefix) = PURPOSES[purpose];
            let pool = config.pool_of(purpose);
            let within = |part: &str| {
                open(cluster, store, pool, &format!("{}.{name}{part}", config.namespace))
            };
            Ok(PoolPlace { prefix, heads: within("")?, pieces: within(".pieces")? })
        };
        let place = |purpose: usize| place(purpose).map(Arc::new);
        let places = [place(0)?, place(1)?, place(2)?];
        let locks = format!("{}.locks", config.namespace);
        let locks = Arc::new(open(cluster, store, &config.pool, &locks)?);
        let mut pools =
            (0..3).map(|purpose| config.pool_of(purpose).to_owned()).collect::<Vec<_>>();
        pools.sort_unstable();
        pools.dedup();
        let chosen = Chosen::new(cluster, store, base, config.namespace);
        Ok(Self { places, locks, pools, chosen })
    }

    /// Where an object is.
    ///
    /// # Errors
    /// `ENXIO` if it is in a pool that does not exist, or not any more.
    pub(super) fn of(&self, name: &str) -> Result<Arc<PoolPlace>> {
        let pool = types::Pool::of_object(name);
        if pool != types::Pool::USUAL {
            return self.chosen.place(name, pool);
        }
        let found = self.places.iter().find(|place| name.starts_with(place.prefix));
        Ok(Arc::clone(found.expect("every name begins with nothing")))
    }

    /// All places.
    pub(super) fn all(&self) -> Result<Vec<Arc<PoolPlace>>> {
        let places = self.places.iter().map(Arc::clone);
        Ok(places.chain(self.chosen.all()?).collect())
    }

    /// The places of objects with this prefix.
    ///
    /// # Errors
    /// If the cluster does not say which pools policies have named.
    pub(super) fn may_hold(&self, prefix: &str) -> Result<Vec<Arc<PoolPlace>>> {
        let pool = types::Pool::of_object(prefix);
        if pool != types::Pool::USUAL {
            return Ok(vec![self.chosen.place(prefix, pool)?]);
        }
        let within = self
            .places
            .iter()
            .position(|place| !place.prefix.is_empty() && prefix.starts_with(place.prefix));
        let fits = |(at, place): &(usize, &Arc<PoolPlace>)| match within {
            Some(within) => *at == within,
            None => place.prefix.starts_with(prefix) || place.prefix.is_empty(),
        };
        let places = self.places.iter().enumerate().filter(fits);
        let mut places: Vec<_> = places.map(|(_, place)| Arc::clone(place)).collect();
        // A shard of a file is never in another pool's places.
        if DATA.starts_with(prefix) || prefix.strip_prefix(DATA).is_some_and(may_be_pool) {
            places.extend(self.chosen.all()?);
        }
        Ok(places)
    }

    /// The number of a pool.
    pub(super) fn number_of(&self, pool: &str) -> Result<types::Pool> {
        self.chosen.number_of(pool)
    }
}

/// Whether names in a chosen pool may begin so.
fn may_be_pool(rest: &str) -> bool {
    types::Pool::WORD.starts_with(rest) || rest.starts_with(types::Pool::WORD)
}

pub(super) fn open(
    cluster: &Arc<Cluster>,
    store: &str,
    pool: &str,
    namespace: &str,
) -> Result<Pool> {
    Pool::open(cluster, pool, namespace).map_err(|code| match code {
        Code::NOT_FOUND => {
            Error::new(Errno::NotFound, store, format!("the cluster has no pool named {pool}"))
                .remedy(format!("see `ceph osd pool ls`, or `ceph osd pool create {pool}`"))
        }
        code => to_error(store, &format!("open pool {pool}"), code),
    })
}

/// Reads the marker into `config`, or writes it.
fn read_or_write_marker(base: &Pool, store: &str, config: &mut Config, create: bool) -> Result<()> {
    if create {
        let mut text = format!("cudele-store {LAYOUT}\n");
        for (purpose, (name, _)) in PURPOSES.iter().enumerate() {
            text += &format!("{name} {}\n", config.pool_of(purpose));
        }
        match base.change(MARKER, &[Step::CreateNew, Step::WriteFull(text.as_bytes())]) {
            Ok(_) => return Ok(()),
            Err(Code::EXISTS) => {}
            Err(code) => return Err(to_error(store, "make the store", code)),
        }
    }
    let mut buffer = [0; MARKER_BYTES_MAX];
    let read =
        Read { object: MARKER.into(), offset: 0, buffer: &mut buffer, version: None, attr: None };
    let seen = base.read(read).map_err(|code| match code {
        Code::NOT_FOUND => {
            let cause = format!(
                "there is no store in namespace {} of pool {}",
                config.namespace, config.pool
            );
            Error::new(Errno::NotFound, store, cause)
                .remedy("`cudele up --store` makes one; or correct the address")
        }
        code => to_error(store, "read what the store is", code),
    })?;
    let text = String::from_utf8_lossy(&buffer[..seen.read]);
    agree(&text, store, config)
}

/// Takes over the marker's values, unless the address contradicts them.
fn agree(text: &str, store: &str, config: &mut Config) -> Result<()> {
    let mut lines = text.lines();
    match lines.next().and_then(|line| line.split_once(' ')) {
        Some(("cudele-store", LAYOUT)) => {}
        Some(("cudele-store", other)) => {
            let cause =
                format!("the store has layout {other}, and this program knows layout {LAYOUT}");
            return Err(Error::new(Errno::NotSupported, store, cause)
                .remedy("use the program that made it"));
        }
        Some(_) | None => {
            let cause = format!("object {MARKER} is not what marks a store");
            return Err(Error::new(Errno::Invalid, store, cause).remedy("choose another namespace"));
        }
    }
    for line in lines {
        let known = line.split_once(' ').and_then(|(name, pool)| {
            let purpose = PURPOSES.iter().position(|(purpose, _)| *purpose == name)?;
            Some((purpose, pool))
        });
        let Some((purpose, pool)) = known else {
            let cause = format!("object {MARKER} says {line:?}, which is not understood");
            return Err(Error::new(Errno::Invalid, store, cause));
        };
        match &config.pools[purpose] {
            Some(wanted) if wanted != pool => {
                let (name, _) = PURPOSES[purpose];
                let cause = format!("the {name} of this store is in pool {pool}, not in {wanted}");
                return Err(Error::new(Errno::Invalid, store, cause)
                    .remedy(format!("leave {name}_pool out of the address")));
            }
            Some(_) | None => config.pools[purpose] = Some(pool.to_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
